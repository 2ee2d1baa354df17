"""Datasets: what was written comes back, however it is laid out and whichever way it is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm.data.rows import source as sources
from streamsvm.data.rows.source import split_rows
from streamsvm.data.store import layouts
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.row_states import TileStates
from streamsvm.engines.tasks import ChunkCache, run_group
from streamsvm.numeric.rows import CsrRows, Rows
from streamsvm.passes import Scan
from tests.conftest import choose_examples
from tests.data.conftest import Collect, Write, measure_peak

CODECS = ("crc32c", "lz4", "zstd")


@dataclass(frozen=True)
class Case:
    """Rows, how a source cuts them, how they are stored, and which of them are taken."""

    X: csr_array
    labels: Any
    sample_weight: Any
    qid: Any
    borders: list[int]
    taken: list[int]
    from_sparse: bool
    tile_items: int
    options: dict[str, Any]

    @property
    def source(self) -> Any:
        return self.X if self.from_sparse else self.X.toarray()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rows of every shape: empty ones, long ones, stored zeros, pieces without a row."""
    n, d = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    columns = [sorted(draw(st.sets(st.integers(0, d - 1), max_size=d))) for _ in range(n)]
    columns[draw(st.integers(0, n - 1))] = list(range(d))
    indptr = np.cumsum([0, *map(len, columns)])
    n_items = int(indptr[-1])
    data = np.array(draw(st.lists(st.integers(-3, 3), min_size=n_items, max_size=n_items)), np.float32)
    data[indptr[np.argmax(np.diff(indptr) == d)]] = 1.5  # not all are zero
    indices = np.array([j for row in columns for j in row], np.int32)

    def vector(values: st.SearchStrategy[float], kind: str) -> Any:
        chosen = draw(st.none() | st.lists(values, min_size=n, max_size=n))
        return None if chosen is None else np.array(chosen, kind)

    return Case(
        X=csr_array((data, indices, indptr), shape=(n, d)),
        labels=vector(st.sampled_from([-1.0, 1.0, 2.5]), "f8"),
        sample_weight=vector(st.floats(0, 9), "f8"),
        qid=vector(st.integers(0, 4), "i8"),
        borders=sorted(draw(st.lists(st.integers(0, n), max_size=4))),
        taken=draw(st.lists(st.integers(0, n - 1), max_size=12)),
        from_sparse=draw(st.booleans()),
        tile_items=draw(st.integers(1, 40)),
        options={
            "layout": draw(st.sampled_from(["dense", "sparse"])),
            "codec": draw(st.sampled_from(CODECS)),
            "chunk_bytes": draw(st.integers(1, 400)),
        },
    )


def chunks(dataset: Dataset) -> range:
    return range(dataset.n_chunks)


def fingerprints(parts: Iterator[Rows]) -> list[tuple[Any, ...]]:
    """The exact bytes of each tile, its borders included."""

    def as_bytes(value: Any) -> Any:
        if isinstance(value, CsrRows):
            return tuple(as_bytes(v) for v in (value.data, value.indices, value.indptr))
        return None if value is None else (value.dtype.str, value.shape, value.tobytes())

    return [(rows.start, rows.n_rows, *map(as_bytes, (rows.X, rows.y, rows.sample_weight, rows.qid))) for rows in parts]


def assert_same(found: dict[str, Any], case: Case, dataset: Dataset, rows: Any = slice(None)) -> None:
    """What was read is what the source gave, in its order."""
    np.testing.assert_array_equal(found["X"], case.X.toarray()[rows])
    for name, wanted in (("sample_weight", case.sample_weight), ("qid", case.qid)):
        np.testing.assert_array_equal(found[name], None if wanted is None else wanted[rows])
    if case.labels is None:
        assert found["y"] is None
        assert dataset.classes is None
    else:
        assert dataset.classes is not None
        np.testing.assert_array_equal(dataset.classes, np.unique(case.labels))
        np.testing.assert_array_equal(dataset.classes[found["y"]], case.labels[rows])


@settings(max_examples=choose_examples(20, 60, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_chunks_and_pieces_change_nothing(case: Case, write: Write, collect: Collect) -> None:
    tile_items = {"TILE_ITEMS": case.tile_items}
    with (
        patch.multiple(sources, TILE_BYTES=8 * case.tile_items, **tile_items),
        patch.multiple(layouts, **tile_items),
    ):
        dataset = write(case.source, case.labels, case.sample_weight, case.qid, borders=case.borders, **case.options)
        assert (dataset.n_rows, dataset.n_features) == case.X.shape
        assert dataset.is_sparse == (case.options["layout"] == "sparse")
        assert dataset.chunk_starts[0] == 0
        assert dataset.chunk_starts[-1] == dataset.n_rows
        assert np.all(np.diff(dataset.chunk_starts) >= 0)
        streamed = [fingerprints(dataset.tiles(k)) for k in chunks(dataset)]
        read = [dataset.read(k) for k in chunks(dataset)]
        assert [fingerprints(split_rows(rows)) for rows in read] == streamed
        starts = [start for tile in streamed for start, *_ in tile]
        counts = [n_rows for tile in streamed for _, n_rows, *_ in tile]
        assert starts == np.cumsum([0, *counts])[:-1].tolist()
        found = collect(rows for k in chunks(dataset) for rows in dataset.tiles(k))
        assert_same(found, case, dataset)
        assert_same(collect(read), case, dataset)
        if dataset.is_sparse:
            assert found["n_items"] == (case.X.nnz if case.from_sparse else np.count_nonzero(case.X.toarray()))
    assert_same(collect([dataset.take(case.taken)]), case, dataset, np.array(case.taken, int))


@settings(max_examples=choose_examples(10, 30, 30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), seed=st.integers(0, 9))
def test_shuffle_keeps_the_set_of_rows(case: Case, seed: int, write: Write, collect: Collect) -> None:
    number = np.arange(case.X.shape[0], dtype=float)
    dataset = write(case.source, case.labels, number, borders=case.borders, shuffle=seed, **case.options)
    found = collect(dataset.read(k) for k in chunks(dataset))
    rows = found["sample_weight"].astype(int)
    assert sorted(rows) == list(range(dataset.n_rows))
    np.testing.assert_array_equal(found["X"], case.X.toarray()[rows])
    if case.labels is not None:
        assert dataset.classes is not None
        np.testing.assert_array_equal(dataset.classes[found["y"]], case.labels[rows])


def rows_of_lengths(lengths: list[int], n_features: int = 8) -> csr_array:
    """Rows with so many items each; every value is different."""
    indptr = np.cumsum([0, *lengths])
    indices = np.array([j for length in lengths for j in range(length)], np.int32)
    return csr_array((np.arange(1, indptr[-1] + 1, dtype=np.float32), indices, indptr), (len(lengths), n_features))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("lengths", "starts"),
    [
        ([4, 4, 4, 4], [0, 1, 2, 3, 4]),  # rows end exactly where chunks do
        ([2, 2, 2, 2], [0, 2, 4]),
        ([3, 3, 3, 3], [0, 2, 3, 4]),  # rows straddle borders: the second row belongs to the first chunk
        ([1, 1, 1, 4], [0, 4, 4]),  # the last chunk holds only the end of a row
        ([4, 0, 0, 4], [0, 1, 4]),  # empty rows at a border
        ([4, 4, 0, 0], [0, 1, 4]),  # at the end, where the last chunk is full
        ([4, 2, 0, 0], [0, 1, 4]),
        ([0, 0, 4, 4], [0, 3, 4]),
        ([4], [0, 1]),
        ([0, 3, 0], [0, 3]),
    ],
)
def test_rows_belong_to_the_chunk_of_their_first_item(
    lengths: list[int], starts: list[int], codec: str, write: Write, collect: Collect
) -> None:
    X = rows_of_lengths(lengths)
    dataset = write(X, np.arange(len(lengths)), layout="sparse", chunk_bytes=32, codec=codec)  # 4 items a chunk
    assert dataset.chunk_starts.tolist() == starts
    found = collect(rows for k in chunks(dataset) for rows in dataset.tiles(k))
    np.testing.assert_array_equal(found["X"], X.toarray())
    for row in range(len(lengths)):
        np.testing.assert_array_equal(collect([dataset.take([row])])["X"], X.toarray()[[row]])


def test_a_row_longer_than_the_chunk_asked_for_makes_chunks_larger(write: Write, collect: Collect) -> None:
    X = rows_of_lengths([1, 1, 8, 1, 8, 1, 1])
    dataset = write(X, layout="sparse", chunk_bytes=8)
    assert int(dataset.meta["arrays"]["X/data"]["chunks"][0]) == 8
    found = collect(rows for k in chunks(dataset) for rows in dataset.tiles(k))
    np.testing.assert_array_equal(found["X"], X.toarray())


def test_dense_rows_longer_than_a_chunk_lie_one_a_chunk(write: Write, collect: Collect) -> None:
    X = np.arange(1, 31, dtype=np.float32).reshape(3, 10)
    dataset = write(X, chunk_bytes=8)
    assert dataset.chunk_starts.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(collect(dataset.tiles(1))["X"], X[1:2])


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_chunks_are_of_the_size_asked_for(layout: str, write: Write) -> None:
    X = np.ones((1000, 10), np.float32)
    dataset = write(X, layout=layout, chunk_bytes=4000)
    item_bytes = 4 if layout == "dense" else 8
    assert dataset.n_chunks == 10 * item_bytes // 4
    name = "X" if layout == "dense" else "X/data"
    sizes = [file.stat().st_size for file in Path(dataset.path, name, "c").rglob("*") if file.is_file()]
    assert sizes == [4000 * 4 // item_bytes + 4] * dataset.n_chunks


def test_labels_of_each_kind_come_back_with_their_counts(write: Write) -> None:
    X = np.ones((5, 2), np.float32)
    whole = write(X, np.array([3.0, -1, 3, 3, 0]))
    assert whole.classes is not None
    assert whole.classes.dtype == np.int64
    assert whole.classes.tolist() == [-1, 0, 3]
    assert whole.class_counts is not None
    assert whole.class_counts.tolist() == [1, 1, 3]
    broken = write(X, np.array([0.5, 1, 0.5, 1, 1]))
    assert broken.classes is not None
    assert broken.classes.tolist() == [0.5, 1.0]
    texts = np.array(["spam", "ham", "spam", "Ätsch", "9"])
    text = write(X, texts, borders=[2, 3], shuffle=4)
    assert text.classes is not None
    assert text.classes.tolist() == ["9", "ham", "spam", "Ätsch"]
    assert text.class_counts is not None
    assert text.class_counts.tolist() == [1, 1, 2, 1]


def test_types_are_those_that_kernels_know(write: Write) -> None:
    rows = write(np.eye(3, dtype=np.float32), np.arange(3.0), np.ones(3), np.arange(3), layout="sparse").read(0)
    assert isinstance(rows.X, CsrRows)
    assert [v.dtype for v in (rows.X.data, rows.X.indices, rows.X.indptr)] == [np.float32, np.int32, np.int64]
    assert rows.y is not None
    assert rows.sample_weight is not None
    assert rows.qid is not None
    assert [v.dtype for v in (rows.y, rows.sample_weight, rows.qid)] == [np.int32, np.float64, np.int64]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_read_and_take_give_memory_of_their_own(layout: str, codec: str, write: Write, collect: Collect) -> None:
    X = np.arange(1, 41, dtype=np.float32).reshape(20, 2)
    dataset = write(X, chunk_bytes=80, layout=layout, codec=codec)
    kept = [dataset.read(0), dataset.take([3, 1, 3])]
    for k in chunks(dataset):
        for tile in dataset.tiles(k):
            (tile.X.data if isinstance(tile.X, CsrRows) else tile.X)[:] = -1  # a reader that scribbles
    np.testing.assert_array_equal(collect(kept[:1])["X"], X[: dataset.chunk_starts[1]])
    np.testing.assert_array_equal(collect(kept[1:])["X"], X[[3, 1, 3]])
    np.testing.assert_array_equal(collect(dataset.read(k) for k in chunks(dataset))["X"], X)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_streaming_needs_no_more_memory_than_projected(layout: str, codec: str, write: Write) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40_000, 20)).astype(np.float32)
    dataset = write(X, X[:, 0].round(), rng.random(40_000), layout=layout, codec=codec, chunk_bytes=2 << 20)
    deque(dataset.tiles(0), maxlen=0)  # whatever is made once only

    def stream() -> None:
        for k in chunks(dataset):
            deque(dataset.tiles(k), maxlen=0)

    peak_bytes = measure_peak(stream)
    # and half a MiB for reading the end of a chunk that is only verified
    assert peak_bytes <= dataset.stream_bytes() + (1 << 19) + 100_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_group_lets_go_of_a_chunk_before_it_reads_the_next(layout: str, codec: str, write: Write) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60_000, 20)).astype(np.float32)
    dataset = write(X, X[:, 0].round(), layout=layout, codec=codec, chunk_bytes=1 << 20)
    scan = Scan(start=lambda: [0], add=lambda totals, rows: totals.append(rows.n_rows), combine=add)
    given = scan, (ChunkCache(0), TileStates(0)), lambda: False, None
    run_group(dataset, range(1), *given)
    assert sum(run_group(dataset, range(4), *given).totals) == dataset.chunk_starts[4]
    peak_bytes = measure_peak(lambda: run_group(dataset, range(4), *given))
    assert peak_bytes <= dataset.stream_bytes() + (1 << 19) + 100_000


def test_nbytes_is_what_the_rows_take_in_memory(write: Write, sparse_rows: csr_array) -> None:
    for layout in ("dense", "sparse"):
        dataset = write(sparse_rows, np.arange(60.0), np.ones(60), layout=layout, chunk_bytes=64)
        held = [dataset.read(k).nbytes for k in chunks(dataset)]
        assert dataset.nbytes <= sum(held) <= dataset.nbytes + 8 * dataset.n_chunks  # row limits overlap
        assert all(n_bytes <= dataset.chunk_bytes(k) for k, n_bytes in enumerate(held))
        longest_bytes = 8 * int(np.diff(sparse_rows.indptr).max())  # a row may end in the next chunk
        assert all(dataset.chunk_bytes(k) <= n_bytes + 2 * longest_bytes for k, n_bytes in enumerate(held[:-1]))


def test_it_is_shown_in_one_line(write: Write, sparse_rows: csr_array) -> None:
    """However many chunks there are: notebooks show it."""
    dataset = write(sparse_rows, np.arange(60.0), chunk_bytes=64)
    shown = repr(dataset)
    assert dataset.path in shown
    assert "rows: 60, features: " in shown
    assert len(shown) < 600 + len(dataset.path)
