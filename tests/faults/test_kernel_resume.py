"""Kernel SVMs: the same bits on any engine, for any number of workers, and after any step that a run was killed at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from streamsvm.data.rows.source import plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import KernelModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.conftest import make_problem
from tests.faults.instants import describe
from tests.faults.killed import kill_after

pytestmark = pytest.mark.usefixtures("many_groups")

OPTIONS = TrainOptions(
    solver="smo", kernel="rbf", gamma=0.2, tol=1e-3, threads=1, resident_rows="30%", options={"working_rows": "30"}
)
SETTINGS = {
    "smo": OPTIONS,
    "irwls": replace(OPTIONS, solver="irwls"),
    "linear": replace(OPTIONS, kernel="linear", gamma="scale", options={"working_rows": "30", "selection": "random"}),
    "small": replace(OPTIONS, resident_rows=None, tol=1e-9, options={}),
    "poly": replace(OPTIONS, kernel="poly", coef0=1.0, options={"selection": "chunking", "working_rows": "20"}),
}
FIVE_GROUPS = {("streamsvm.data.rows.source", "SMALLEST_GROUP_BYTES"): 1, ("streamsvm.data.rows.source", "GROUPS"): 5}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("rows")
    dense, sparse = make_problem(5, n=420, weighted=True), make_problem(6, n=420, d=20, density=0.3)
    return {
        "dense": dense.store(folder / "dense", layout="dense", chunk_bytes=1500),
        "sparse": sparse.store(folder / "sparse", layout="sparse", chunk_bytes=3000),
    }


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_bits_on_any_engine(
    name: str, layout: str, datasets: dict[str, Dataset], client: Client, tmp_path: Path
) -> None:
    """Threads share out groups of chunks and tiles of rows; workers get theirs by the wire."""
    source, options = datasets[layout], SETTINGS[name]
    assert len(plan_groups(source)) >= 5
    results = [train(source, replace(options, threads=threads)) for threads in (1, 2, 4)]
    results.append(train(source, options, client=client))
    first = results[0]
    assert first.status == "converged"
    assert isinstance(first.model, KernelModel)
    for other in results[1:]:
        assert other.model.to_bytes() == first.model.to_bytes()
        assert (other.objective, other.lower_bound, other.passes) == (first.objective, first.lower_bound, first.passes)


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", SETTINGS)
def test_resumed_after_each_step(name: str, layout: str, datasets: dict[str, Dataset], tmp_path: Path) -> None:
    """From the checkpoint after the first steps, one in the middle and the last but one; then with other threads."""
    source, options = datasets[layout], SETTINGS[name]
    train(source, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    assert n_steps > 1 or name == "small"
    for step in sorted({1, 2, n_steps // 2, n_steps - 1} & set(range(1, n_steps))):
        out = tmp_path / f"stopped-{step}"
        stopped = train(source, replace(options, max_passes=step), out=out)
        assert (stopped.status, stopped.steps) == ("pass_limit", step)
        train(source, replace(options, threads=2), out=out, resume=True)
        assert describe(out) == whole


@pytest.mark.parametrize("step", [1, 3])
def test_killed_after_a_step(step: int, datasets: dict[str, Dataset], tmp_path: Path) -> None:
    """kill -9: the checkpoint of the step is there, and what comes of it is what would have come."""
    source = datasets["dense"]
    train(source, OPTIONS, out=tmp_path / "whole")
    out = tmp_path / "run"
    kill_after(step, source.path, OPTIONS, out, FIVE_GROUPS)
    assert (out / "checkpoint.npz").exists()
    assert not (out / "model.npz").exists()
    train(source, OPTIONS, out=out, resume=True)
    assert describe(out) == describe(tmp_path / "whole")


@pytest.mark.parametrize(
    "change", [{"gamma": 0.3}, {"kernel": "poly"}, {"resident_rows": 50}, {"options": {"selection": "largest"}}]
)
def test_other_settings_are_not_gone_on_with(
    change: dict[str, Any], datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    train(datasets["dense"], replace(OPTIONS, max_passes=1), out=tmp_path / "run")
    with pytest.raises(InputError, match="cannot be resumed with other settings"):
        train(datasets["dense"], replace(OPTIONS, **change), out=tmp_path / "run", resume=True)
