"""How chunks are grouped, kept and summed: by the shape of the data alone, and never beyond the room there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import add
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from threadpoolctl import threadpool_info, threadpool_limits

from streamsvm.data.rows.source import LARGEST_GROUP_BYTES, SMALLEST_GROUP_BYTES, plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine, ThreadedEngine, tree_levels
from streamsvm.engines.tasks import ChunkCache, _read_tiles
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Walk
from streamsvm.plan.predict import plan_training
from streamsvm.runs.features import find_feature_map, make_features
from streamsvm.runs.train import train
from streamsvm.runs.tune import train_together, tune
from streamsvm.solvers.cutting_plane.line_search import SegmentTotals
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.reading import shown
from streamsvm.verify.verify import verify
from tests.conftest import Problem, make_problem
from tests.engines.scans import neighbours_combined, trace_scan

MIB = 1 << 20


def source_of(n_chunks: int, chunk_bytes: int) -> Any:
    """All that a plan may look at."""
    return SimpleNamespace(n_chunks=n_chunks, nbytes=n_chunks * chunk_bytes)


@given(st.integers(1, 5000), st.integers(1, 600 * MIB))
def test_groups_cover_all_chunks_once_in_order(n_chunks: int, chunk_bytes: int) -> None:
    groups = plan_groups(source_of(n_chunks, chunk_bytes))
    assert [index for group in groups for index in group] == list(range(n_chunks))
    assert all(len(group) >= 1 for group in groups)


@given(st.integers(1, 20000), st.integers(1, 100 * MIB))
def test_groups_are_some_16_of_4_to_256_mib(n_chunks: int, chunk_bytes: int) -> None:
    groups = plan_groups(source_of(n_chunks, chunk_bytes))
    total = n_chunks * chunk_bytes
    sizes = [len(group) * chunk_bytes for group in groups]
    assert max(sizes) <= max(chunk_bytes, LARGEST_GROUP_BYTES)
    assert all(size > SMALLEST_GROUP_BYTES / 2 or size > SMALLEST_GROUP_BYTES - chunk_bytes for size in sizes[:-1])
    if 16 * max(chunk_bytes, SMALLEST_GROUP_BYTES) <= total <= 16 * LARGEST_GROUP_BYTES:
        assert 16 <= len(groups) <= 32


@given(st.integers(1, 200))
def test_tree_is_fixed(n: int) -> None:
    """Positions are combined as in a tree of neighbours, and the total ends up at position 0."""
    parts: list[Any] = list(range(n))
    for level in tree_levels(n):
        touched = [at for pair in level for at in pair]
        assert len(touched) == len(set(touched)), "a level can be summed in any order"
        for left, right in level:
            parts[left] = [parts[left], parts[right]]
    assert parts[0] == neighbours_combined(range(n))


def test_combining_leaves_the_parts_alone() -> None:
    """A scheduler may use them again."""
    parts = [SegmentTotals(*(np.full(2, float(k)) for _ in range(3))) for k in (1, 2)]
    for part in parts:
        for array in vars(part).values():
            array.flags.writeable = False
    total = add(*parts)
    for array in vars(total).values():
        assert array.tolist() == [3.0, 3.0]


def skewed_rows() -> Problem:
    """Sparse rows, the first of them a hundred times longer than the last."""
    random = np.random.default_rng(1)
    share = np.where(np.arange(2000) < 100, 1.0, 0.01)[:, None]
    X = np.where(random.random((2000, 100)) < share, random.normal(size=(2000, 100)), 0.0)
    return Problem(csr_array(X.astype(np.float32)), random.choice([-1, 1], size=2000))


KEPT = {"dense": make_problem(1, n=2000, d=20, weighted=True), "sparse": skewed_rows()}


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_kept_chunks_never_exceed_the_room(share: float, layout: str, codec: str, tmp_path: Path) -> None:
    dataset = KEPT[layout].store(tmp_path / "rows", layout=layout, chunk_bytes=4000, codec=codec)
    room = int(share * dataset.nbytes)
    engine = ThreadedEngine(dataset, 4, room)
    for _ in range(3):
        engine.scan(trace_scan())
    (pins,) = engine.caches.values()
    held = sum(rows.nbytes for rows in pins.chunks.values())
    assert held <= pins.held_bytes <= room
    assert held > room / 1.1 - 2 * dataset.nbytes / dataset.n_chunks, "room is left unused"
    engine.close()
    assert not engine.caches


def test_the_next_chunk_is_asked_for_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each chunk of a group but its first, before the one in front of it is computed on."""
    dataset = make_problem(1).store(tmp_path / "rows", layout="dense", chunk_bytes=1000)
    calls: list[tuple[str, int]] = []
    tiles = Dataset.tiles

    def stream(self: Dataset, index: int) -> Iterator[Rows]:
        calls.append(("tiles", index))
        return tiles(self, index)

    monkeypatch.setattr(Dataset, "advise", lambda self, index: calls.append(("advise", index)))
    monkeypatch.setattr(Dataset, "tiles", stream)
    engine = SerialEngine(dataset)
    engine.scan(trace_scan())
    engine.close()
    own = [[("tiles", k), ("advise", k)] for k in range(dataset.n_chunks)]  # the arrays of a chunk, side by side
    assert calls == [call for k, one in enumerate(own) for call in ([("advise", k + 1)] * (k + 1 < len(own)) + one)]


def test_tiles_that_are_given_up_do_not_wait_for_the_chunk_that_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The garbage collector may give them up, in a thread where waiting never ends."""
    dataset = make_problem(1).store(tmp_path / "rows", layout="dense", chunk_bytes=1000, codec="lz4")
    read, go_on, ended = Dataset.read, Event(), list[int]()

    def read_late(self: Dataset, index: int) -> Rows:
        if index:
            go_on.wait(20.0)
            ended.append(index)
        return read(self, index)

    monkeypatch.setattr(Dataset, "read", read_late)
    tiles: Any = _read_tiles(dataset, range(2), ChunkCache(0), {})
    next(tiles)
    tiles.close()
    assert not ended
    go_on.set()


def test_pinned_chunks_are_not_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dataset = make_problem(1).store(tmp_path / "rows", layout="dense", chunk_bytes=1000)
    engine = SerialEngine(dataset, 2 * dataset.nbytes)
    expected = engine.scan(trace_scan()).tree
    for name in ("tiles", "read", "advise"):
        monkeypatch.setattr(Dataset, name, lambda self, index: pytest.fail("read again"))
    assert engine.scan(trace_scan()).tree == expected
    engine.close()


def test_blas_has_one_thread_while_a_run_computes(tmp_path: Path) -> None:
    """Two threads add in another order; afterwards the caller's own setting is back."""
    dataset = make_problem(1).store(tmp_path / "rows")
    seen: list[int] = []
    with threadpool_limits(2):
        before = _blas_threads()
        train(dataset, TrainOptions(threads=2), listener=lambda _: seen.extend(_blas_threads()))
        assert _blas_threads() == before
    assert seen
    assert set(seen) == {1}


RBF = TrainOptions(solver="smo", kernel="rbf", gamma=0.2, threads=2)
CALLS: dict[str, Callable[[Dataset, Path], object]] = {
    "train": lambda data, _: train(data, TrainOptions(threads=2)),
    "train_together": lambda data, _: train_together(data, [TrainOptions(threads=2), TrainOptions(C=2.0, threads=2)]),
    "tune": lambda data, _: tune(data, TrainOptions(threads=2), [1.0], folds=2),
    "plan_training": lambda data, _: plan_training(data, TrainOptions(threads=2)),
    "make_features": lambda data, out: make_features(data, out / "mapped", FeatureOptions("nystrom", 5), RBF),
    "find_feature_map": lambda data, _: find_feature_map(data, FeatureOptions("cholesky", 5), RBF),
    "verify": lambda data, out: verify(train(data, TrainOptions(threads=2), out / "run").model, data, threads=2),
}


@pytest.mark.parametrize("name", CALLS)
def test_blas_has_one_thread_whenever_rows_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever carries passes out sums what it has read, and the caller may have asked BLAS for two threads."""
    dataset, seen = make_problem(1).store(tmp_path / "rows"), list[int]()
    for read in ("tiles", "read", "take"):
        monkeypatch.setattr(Dataset, read, _watch(getattr(Dataset, read), seen))
    with threadpool_limits(2):
        CALLS[name](dataset, tmp_path)
    assert set(seen) == {1}


def _watch(read: Callable[..., Any], seen: list[int]) -> Callable[..., Any]:
    def look_and_read(self: Dataset, what: Any) -> Any:
        seen.extend(_blas_threads())
        return read(self, what)

    return look_and_read


def _blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_within_a_group_and_within_a_part_of_a_walk(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset may consist of one chunk, and a walk may learn all of its rows as one group."""
    monkeypatch.setattr("streamsvm.system.reading.REPORT_SECONDS", 0.0)
    source = make_problem(1, n=20_000, d=30).store(tmp_path / "one.zarr")
    engine = ThreadedEngine(source, threads) if threads > 1 else SerialEngine(source)

    def learn_in_parts(carry: int, rows: Rows) -> Iterator[tuple[int, int]]:
        for at in range(0, rows.n_rows, 3000):
            yield carry + at, min(3000, rows.n_rows - at)

    for read in (partial(engine.scan, trace_scan()), partial(engine.walk, Walk(learn_in_parts, [0], [[[0]]]))):
        seen: list[int] = []
        with shown(lambda reading, seen=seen: seen.append(reading.done_rows)):
            read()
        assert source.n_chunks == 1
        assert len(seen) > 2
        assert 0 < seen[0] < seen[-1] < source.n_rows
    engine.close()
