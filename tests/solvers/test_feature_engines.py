"""Every pass for features goes through an engine: the same bits anywhere, memory refused first, damage named."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.open import open_dataset
from streamsvm.data.rows import source as groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import watch
from streamsvm.engines.engine import Costs
from streamsvm.engines.local import ThreadedEngine
from streamsvm.runs.features import make_features
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import IntegrityError
from tests.commands import Run, run  # noqa: F401
from tests.conftest import Problem, make_problem
from tests.kernel_problems import KINDS, ask_for

MAPS = ("cholesky", "eigen", "nystrom", "polynomial")
N = 700
PROBLEMS = {"dense": make_problem(1, n=N, d=9, weighted=True), "sparse": make_problem(2, n=N, d=9, density=0.3)}


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SMALLEST_GROUP_BYTES", 1)


def store(problem: Problem, folder: Path) -> Dataset:
    dataset = problem.store(folder / "rows.zarr", chunk_bytes=4000 if problem is PROBLEMS["dense"] else 2000)
    assert len(groups.plan_groups(dataset)) >= 5
    return dataset


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", MAPS)
def test_the_same_bits_on_threads_and_workers(name: str, problem: str, client: Client, tmp_path: Path) -> None:
    """The manifest, which lists the checksum of every chunk, is the same; chunks of features end within groups."""
    source = store(PROBLEMS[problem], tmp_path)
    options, found = FeatureOptions(name, 12, seed=3, chunk_bytes=3000), []
    for threads, workers in ((1, None), (3, None), (None, client)):
        place = tmp_path / f"{threads}.zarr"
        settings = ask_for(KINDS["rbf"], threads=threads)
        found.append(make_features(source, place, options, settings, client=workers).dataset)
    assert found[0].n_chunks >= 10
    assert {dataset.fingerprint for dataset in found} == {found[0].fingerprint}


def test_own_workers_from_the_command_line(run: Run, tmp_path: Path) -> None:
    """gamma "scale" is measured there, too."""
    source, told = store(PROBLEMS["dense"], tmp_path), []
    for k, where in enumerate((("--threads", 1), ("--workers", 2))):
        told.append(run("features", source.path, tmp_path / f"{k}.zarr", "--rank", 12, "--json", *where).result)
    assert told[0]["map_sha256"] == told[1]["map_sha256"]
    assert told[0]["passes"] == told[1]["passes"] == 8  # gamma, six pairs of pivots, the last
    prints = {open_dataset(tmp_path / f"{k}.zarr").fingerprint for k in range(2)}
    assert len(prints) == 1


@pytest.mark.parametrize("where", [(), ("--workers", 2)])
def test_memory_is_refused_before_rows_are_read(
    where: tuple[Any, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before workers are started; gamma is not measured, either."""
    source = store(PROBLEMS["dense"], tmp_path)
    for name in ("tiles", "read", "take"):
        monkeypatch.setattr(Dataset, name, lambda *_: pytest.fail("the rows were touched"))
    monkeypatch.setattr("streamsvm.engines.cluster.open.start_workers", lambda *_: pytest.fail("workers were started"))
    ran = run("features", source.path, tmp_path / "f.zarr", "--memory", "30MB", *where)
    assert (ran.code, "but the budget is 30.0 MB: raise --memory to at least" in ran.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.zarr"]


@pytest.mark.parametrize("name", ["cholesky", "nystrom", "polynomial"])
@pytest.mark.parametrize("workers", [False, True])
def test_a_damaged_chunk_is_named(name: str, workers: bool, client: Client, tmp_path: Path) -> None:
    """Nothing is left; what finished passes have found stays for another try."""
    source = store(PROBLEMS["dense"], tmp_path)
    chunk = Path(source.path) / "X" / "c" / "3" / "0"
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    chunk.write_bytes(content)
    settings, options = ask_for(KINDS["rbf"]), FeatureOptions(name, 12, seed=1)
    with pytest.raises(IntegrityError, match=r"rows\.zarr/X/c/3/0: chunk is damaged"):
        make_features(source, tmp_path / "f.zarr", options, settings, client=client if workers else None)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.zarr"]


@pytest.mark.parametrize("workers", [False, True])
def test_every_row_of_a_pass_is_reported(
    workers: bool, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group by group: of a pass that takes an hour, people see where it stands. Workers tell more rarely.

    Here they tell after each pass, however long it takes.
    """
    monkeypatch.setattr(watch, "LOOK_SECONDS", 600.0)
    source, told, all_told = store(PROBLEMS["dense"], tmp_path), list[int](), threading.Event()

    def report(n_rows: int) -> None:
        told.append(n_rows)
        if sum(told) == 12 * N:
            all_told.set()

    settings, place = ask_for(KINDS["rbf"]), tmp_path / "f.zarr"
    make_features(source, place, FeatureOptions("eigen", 12), settings, report, client=client if workers else None)
    assert all_told.wait(60), f"{sum(told)} rows were told, {12 * N} were read"
    assert len(told) == (12 if workers else 12 * len(groups.plan_groups(source)))


def test_a_cluster_that_is_lost_is_not_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """What finished passes have found is kept, and nothing else is left."""
    source, passes, scan = store(PROBLEMS["dense"], tmp_path), list[int](), ThreadedEngine.scan

    def lose(self: ThreadedEngine, request: Any) -> Any:
        passes.append(1)
        if len(passes) == 3:
            raise ConnectionError("scheduler tcp://somewhere: the connection is lost")
        return scan(self, request)

    command = ("features", source.path, tmp_path / "f.zarr", "--rank", 12, "--gamma", 0.3)
    with monkeypatch.context() as patch:
        patch.setattr(ThreadedEngine, "scan", lose)
        ran = run(*command)
    message = "\nstreamsvm features: scheduler tcp://somewhere: the connection is lost\n"
    assert (ran.code, ran.err.endswith(message)) == (1, True)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.zarr", ".f.zarr.passes.npz"}
    assert run(*command, "--resume").code == 0


def test_nobody_has_to_listen() -> None:
    costs = Costs()
    costs.report_rows(5)
    costs.report = (told := list[int]()).append
    costs.begin_read(7)
    costs.report_rows(7)
    assert told == [7]


def test_chunks_that_stay_in_memory_are_read_once(tmp_path: Path) -> None:
    """read_bytes counts what came from storage."""
    source = store(PROBLEMS["dense"], tmp_path)
    made = make_features(source, tmp_path / "f.zarr", FeatureOptions("polynomial"), ask_for(KINDS["rbf"]))
    assert made.read_bytes == source.nbytes + source.take_bytes(np.zeros(1, np.int64))  # a row tells the types
    np.testing.assert_array_equal(made.dataset.column("y"), source.column("y"))
