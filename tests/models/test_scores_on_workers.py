"""`predict`, `evaluate` and `verify` on the workers of a cluster, with the results of this process."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import Model
from streamsvm.models.predict import predict
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.commands import Run, run  # noqa: F401

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(1200, 5)).astype(np.float32)
Y = np.digitize(X[:, 0] + 0.3 * RANDOM.normal(size=1200), [-0.5, 0.5])
KINDS = {
    "linear": TrainOptions(loss="logistic", threads=1),
    "kernel": TrainOptions(kernel="rbf", gamma=0.2, threads=1),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    data = ingest(X, tmp_path_factory.mktemp("rows") / "rows.zarr", Y, chunk_bytes=800)
    assert data.n_chunks > 20  # more than the workers hold at once
    return data


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_this_process(kind: str, rows: Dataset, address: str, tmp_path: Path, run: Run) -> None:
    model = tmp_path / "run"
    train(rows, KINDS[kind], model)
    more = ("--probabilities",) if kind == "linear" else ()
    for where in ((), ("--scheduler", address)):
        out = tmp_path / f"{len(where)}.parquet"
        assert run("predict", model, rows.path, "--out", out, *more, *where).code == 0
    assert (tmp_path / "0.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()
    for command in ("evaluate", "verify"):
        here, there = (run(command, model, rows.path, "--json", *w) for w in ((), ("--scheduler", address)))
        assert here.code == there.code == 0
        assert here.result == there.result


def test_what_workers_cannot_do_is_refused(rows: Dataset, address: str, tmp_path: Path, run: Run) -> None:
    model = train(rows, KINDS["linear"]).model
    (tmp_path / "rows.csv").write_text("a,b,c,d,e,label\n1,2,3,4,5,0\n")
    with pytest.raises(InputError, match=r"rows.csv: workers score datasets, not files: ingest it first, or remove"):
        evaluate(model, tmp_path / "rows.csv", scheduler=address)
    with pytest.raises(MemoryBudgetError, match=r"worker tcp.* already holds"):
        predict(model, rows, tmp_path / "out.csv", memory_bytes=64 << 20, scheduler=address)
    told = run("evaluate", _save(model, tmp_path / "model.npz"), rows.path, "--scheduler", "tcp://127.0.0.1:1")
    assert (told.code, "check the address, and that the scheduler is running" in told.err) == (2, True)


def _save(model: Model, file: Path) -> Path:
    file.write_bytes(model.to_bytes())
    return file
