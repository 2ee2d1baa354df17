"""Budgeted SGD stays within the memory that is projected, measured in processes of their own."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from streamsvm.ingestion.readers import ingest
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up
from tests.commands import Run, run  # noqa: F401
from tests.conftest import make_problem, run_python
from tests.solvers.budgeted_sgd.test_budgeted import with_options

WITHIN_LEAST = """
import json, re, sys
from contextlib import nullcontext
import streamsvm.engines.open, streamsvm.runs.train
from streamsvm.solvers.budgeted_sgd import setup as budgeted
from streamsvm.data.open import open_dataset
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak

def train(path, budget, client, given):
    options = streamsvm.runs.train.TrainOptions(
        solver="budgeted-sgd", kernel="rbf", gamma=0.01, memory_bytes=budget, threads=2, options=given
    )
    return streamsvm.runs.train.train(open_dataset(path), options, client=client)

def train_within_least(path, client, given):
    try:
        train(path, 150_000_000, client, given)
    except MemoryBudgetError as refusal:
        budget = 4_000_000 + parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1])
    (reset_peak if client is None else lambda: client.run(reset_peak))()
    result = train(path, budget, client, given)
    peaks = [peak_bytes()] if client is None else list(client.run(peak_bytes).values())
    return {"budget": budget, "peaks": peaks, **result.as_json()}

if __name__ == "__main__":
    where, given, *paths = sys.argv[1:]
    if where == "workers":
        streamsvm.engines.open.resident_bytes = lambda: 0  # the budget shall be the workers' concern alone
    with start_workers(2, 1, 1 << 30) if where == "workers" else nullcontext() as client:
        print(json.dumps([train_within_least(path, client, json.loads(given)) for path in paths]))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same rows, dense and sparse."""
    folder, paths = tmp_path_factory.mktemp("rows"), []
    for layout in ("dense", "sparse"):
        random = np.random.default_rng(1)
        X = random.standard_normal((160_000, 200), np.float32)
        X *= X > 0
        y = np.where(X[:, 0] - X[:, 1] + random.normal(size=160_000) > 0, 1, -1)
        paths.append(ingest(X, folder / layout, y, layout=layout, chunk_bytes=4_000_000, shuffle=None).path)
    return paths


@pytest.mark.slow("measures the memory of trainings in processes of their own")
@pytest.mark.parametrize("where", ["here", "workers"])
def test_memory_stays_below_the_projection(where: str, paths: list[str]) -> None:
    """Within the least budget: of buffers of 32 MB one is computed on, while another is put together."""
    options = {"budget": "100", "merge": "20", "replicas": "2"}
    ended = run_python(WITHIN_LEAST, where, json.dumps(options), *paths)
    assert ended.returncode == 0, ended.stderr
    for result in json.loads(ended.stdout):
        assert 130_000_000 < max(result["peaks"]) <= result["projected_memory_bytes"] <= result["budget"]
        assert result["projected_memory_bytes"] < 1.6 * max(result["peaks"])


@pytest.mark.slow("measures memory")
@pytest.mark.parametrize("replicas", [1, 2])
def test_models_take_what_is_planned(replicas: int, tmp_path: Path) -> None:
    """Of 20,000 features and 500 vectors, 41 MB each: while they are trained, joined, saved and read."""
    source = make_problem(3, n=500, d=20_000, density=0.001).in_memory()
    options = with_options(budget=500, replicas=replicas, epochs=1)
    need = set_up(source, options).memory(1)
    planned = need.driver_bytes + need.walk_bytes
    tracemalloc.start()
    try:
        train(source, options, out=tmp_path / "run")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.5 * planned < peak <= planned
