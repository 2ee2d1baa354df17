"""Memory: a plan is plain arithmetic, what does not fit is refused untouched, runs stay below their projection."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm.data.open import open_dataset
from streamsvm.data.sources import anndata
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.open import SLACK_BYTES, plan_memory
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane, start_totals, totals_bytes
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import format_bytes, parse_bytes
from tests.conftest import Problem, make_problem, run_python

MIB = 1 << 20
BYTES = st.integers(0, 1 << 34)


@given(base=BYTES, threads=st.integers(1, 64), stream=BYTES, totals=BYTES, solver=BYTES, data=BYTES, budget=BYTES)
def test_a_plan_adds_up_or_is_refused(
    base: int, threads: int, stream: int, totals: int, solver: int, data: int, budget: int
) -> None:
    """needed = base + threads (stream + 3 totals) + solver + slack; what is left holds chunks, but no more than all."""
    needed = base + threads * (stream + 3 * totals) + solver + SLACK_BYTES
    if needed > budget:
        with pytest.raises(MemoryBudgetError):
            plan_memory(budget, base, threads, stream, totals, solver, data).require()
        return
    plan = plan_memory(budget, base, threads, stream, totals, solver, data)
    assert sum(plan.parts.values()) == needed
    assert plan.projected_bytes == needed + plan.pin_bytes <= budget
    assert plan.pin_bytes == budget - needed or data <= plan.pin_bytes <= 1.05 * data + MIB


@given(base=BYTES, threads=st.integers(1, 64), stream=BYTES)
def test_a_refusal_names_budget_and_need(base: int, threads: int, stream: int) -> None:
    """The size it asks for is enough, also for a process whose libraries take a little more, but not much more."""
    with pytest.raises(MemoryBudgetError) as refusal:
        plan_memory(1000, base, threads, stream, 0, 0, 0).require()
    message = str(refusal.value)
    needed = base + threads * stream + SLACK_BYTES
    assert message.startswith(f"{format_bytes(needed)} of memory is needed")
    assert f"the budget is {format_bytes(1000)}" in message
    assert "--threads" not in message  # without any rows in memory the rest is too much
    enough = parse_bytes(re.findall(r"to at least (\S+)", message)[0])
    assert needed + 500_000 <= enough <= 1.1 * needed + 20_000_000
    plan_memory(enough, base, threads, stream, 0, 0, 0).require()


@pytest.mark.parametrize("process", ["this process", "worker tcp://10.0.0.1:1"])
def test_a_refusal_names_the_process_and_what_it_holds(process: str) -> None:
    with pytest.raises(MemoryBudgetError) as refusal:
        plan_memory(600_000_000, 1_900_000_000, 1, 10_000_000, 0, 0, 0, process=process).require()
    holds = f"{process} already holds 1.9 GB: interpreter, libraries and your own data; streaming on 1 thread "
    assert f"2.0 GB of memory is needed ({holds}" in str(refusal.value)
    ((option, parameter),) = re.findall(
        r"raise --memory to at least (\S+) \(memory='(\S+)' in Python\)", str(refusal.value)
    )
    assert option == parameter


def test_the_worker_that_holds_the_most_is_named(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold what its user has persisted; the driver has room enough."""
    dataset = make_problem(1).store(tmp_path / "rows")
    monkeypatch.setattr(opening, "resident_bytes", lambda: 0)
    with pytest.raises(MemoryBudgetError, match=r"\(worker t\w+://127\.0\.0\.1:\d+ already holds [\d.]+ MB: "):
        train(dataset, TrainOptions(memory_bytes=80 * MIB), client=client)


def test_a_refusal_names_what_helps() -> None:
    """Fewer threads and smaller chunks are named where they can be enough."""
    for budget, helps in ((500 * MIB, True), (200 * MIB, False)):
        with pytest.raises(MemoryBudgetError, match="raise --memory to at least") as refusal:
            plan_memory(budget, 150 * MIB, 4, 100 * MIB, 10 * MIB, 20 * MIB, 0).require()
        ways = "use fewer --threads (n_jobs=... in Python), or ingest with a smaller --chunk-bytes"
        assert (ways in str(refusal.value)) == helps


@pytest.mark.parametrize("where", ["threads", "workers"])
def test_refused_before_anything_is_read_or_written(
    where: str, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then the same folder can be used with a budget that suffices."""
    dataset, out = make_problem(1).store(tmp_path / "rows"), tmp_path / "run"
    cluster = client if where == "workers" else None
    with monkeypatch.context() as patch:
        for name in ("tiles", "read", "take", "advise"):
            patch.setattr(Dataset, name, lambda self, index: pytest.fail("the rows were touched"))
        with pytest.raises(MemoryBudgetError, match="--memory"):
            train(dataset, TrainOptions(memory_bytes=10 * MIB), out=out, client=cluster)
    assert not out.exists()
    assert train(dataset, TrainOptions(), out=out, client=cluster).status == "converged"


@pytest.mark.parametrize("n_features", [1, 100, 50_000, 1_000_000])
@pytest.mark.parametrize("accelerated", [True, False])
def test_totals_take_what_is_planned(n_features: int, accelerated: bool) -> None:
    settings = CuttingPlane((1.0, 1.0), accelerated=accelerated)
    k = settings.cut_points(n_features + 1)
    totals = start_totals(k, n_features + 1)
    taken = sum(array.nbytes for array in vars(totals).values())
    assert taken <= totals_bytes(k, n_features + 1) <= 1.5 * taken + 20_000


def write_anndata(problem: Problem, path: Path) -> Dataset:
    """A csr_matrix file in small Zarr chunks, as AnnData writes it."""
    matrix, codes = csr_array(problem.X), (problem.y > 0).astype(np.int8)
    group = zarr.open_group(str(path), mode="w")
    X = group.create_group("X")
    X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)})
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        X.create_array(name, shape=values.shape, chunks=(1000,), dtype=values.dtype)[:] = values
    obs = group.create_group("obs").create_array("label", shape=codes.shape, chunks=codes.shape, dtype="int8")
    obs[:] = codes
    return open_dataset(path, "label")


@pytest.mark.slow("measures memory")
@pytest.mark.parametrize("kind", ["dense-crc32c", "dense-lz4", "sparse-crc32c", "sparse-lz4", "sparse-anndata"])
def test_streaming_takes_no_more_than_is_planned(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measured while each chunk is streamed, and while it is read whole, as a chunk that is kept is."""
    layout, codec = kind.split("-")
    problem = make_problem(1, n=20_000, d=50, density=1.0 if layout == "dense" else 0.99)
    monkeypatch.setattr(anndata, "CHUNK_BYTES", 2 * MIB)
    if codec == "anndata":
        dataset = write_anndata(problem, tmp_path / "rows")
    else:
        dataset = problem.store(tmp_path / "rows", layout=layout, chunk_bytes=2 * MIB, codec=codec)
    for _ in dataset.tiles(0):  # what is imported and cached by the first is no concern of the next
        pass
    assert dataset.n_chunks > 1
    for index in range(dataset.n_chunks):
        # other threads, which are left from other tests, can only add to it: one measurement of three has to hold
        assert any(_measure_tiles(dataset, index) <= dataset.stream_bytes() + MIB // 2 for _ in range(3))
        assert any(_measure_read(dataset, index) <= dataset.chunk_bytes(index) for _ in range(3))


def _measure_tiles(dataset: Dataset, index: int) -> int:
    tracemalloc.start()
    for _ in dataset.tiles(index):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _measure_read(dataset: Dataset, index: int) -> int:
    return dataset.read(index).nbytes


ROOM = 8_000_000
LARGER_THAN_MEMORY = """
import json, re, sys
from contextlib import nullcontext
import streamsvm.engines.open, streamsvm.runs.train
from streamsvm.data.open import open_dataset
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak

def train(path, budget, client):
    options = streamsvm.runs.train.TrainOptions(tol=1e-9, max_passes=4, memory_bytes=budget, threads=2)
    return streamsvm.runs.train.train(open_dataset(path), options, client=client)

def train_within_least(path, client, room):
    try:
        train(path, 150_000_000, client)
    except MemoryBudgetError as refusal:
        budget = room + parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1])
    (reset_peak if client is None else lambda: client.run(reset_peak))()
    result = train(path, budget, client)
    peaks = [peak_bytes()] if client is None else list(client.run(peak_bytes).values())
    return {"budget": budget, "peaks": peaks, **result.as_json()}

if __name__ == "__main__":
    where, room, *paths = sys.argv[1:]
    if where == "workers":
        streamsvm.engines.open.resident_bytes = lambda: 0  # the budget shall be the workers' concern alone
    with start_workers(2, 1, 1 << 30) if where == "workers" else nullcontext() as client:
        print(json.dumps([train_within_least(path, client, int(room)) for path in paths]))
"""


@pytest.mark.slow("measures the memory of trainings in processes of their own")
@pytest.mark.parametrize(("where", "processes"), [("here", 1), ("workers", 2)])
def test_data_of_eight_times_the_room_stay_below_the_projection(where: str, processes: int, tmp_path: Path) -> None:
    """64 MB of rows, 8 MB more than the least budget: what does not fit is read again on every pass."""
    datasets = []
    for layout, n in (("dense", 160_000), ("sparse", 80_000)):
        random = np.random.default_rng(1)
        X = random.normal(size=(n, 100)).astype(np.float32)
        y = np.where(X[:, 0] + random.normal(size=n) > 0, 1, -1)
        options: dict[str, Any] = {"layout": layout, "chunk_bytes": 2_000_000, "shuffle": None}
        datasets.append(ingest(X, tmp_path / layout, y, **options))
        assert datasets[-1].nbytes > 8 * ROOM
    ended = run_python(LARGER_THAN_MEMORY, where, ROOM, *(dataset.path for dataset in datasets))
    assert ended.returncode == 0, ended.stderr
    for dataset, result in zip(datasets, json.loads(ended.stdout), strict=True):
        assert result["passes"] == 4
        assert 60_000_000 < max(result["peaks"]) <= result["projected_memory_bytes"] <= result["budget"]
        kept = 4 * dataset.nbytes - result["read_bytes"]
        assert 0 < kept <= 3 * processes * (ROOM + 4_000_000)


FREED = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from streamsvm.data.open import open_dataset
from streamsvm.system.machine import resident_bytes
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train

def free_arrays(barrier):
    np.ones(24 << 20, np.uint8)  # glibc takes its size for that of arrays to come
    barrier.wait()
    arrays = [np.ones(size << 20, np.uint8) for size in (20, 10)]
    barrier.wait()  # every thread holds its own, so that none uses what another has freed

train(open_dataset(sys.argv[1]), TrainOptions(max_passes=1, threads=1))
before, barrier = resident_bytes(), threading.Barrier(8)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(free_arrays, [barrier] * 8))
    print(resident_bytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of freed arrays is that of glibc")
def test_what_threads_have_freed_is_not_held(tmp_path: Path) -> None:
    """Eight threads have held 30 MiB each: what stays of that after a training is not planned for."""
    dataset = make_problem(1).store(tmp_path / "rows")
    ended = run_python(FREED, dataset.path)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < SLACK_BYTES // 2
