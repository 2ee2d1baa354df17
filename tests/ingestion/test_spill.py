"""Rows set aside: a uniform permutation in bounded memory, whatever the source's size was thought to be."""

from __future__ import annotations

import mmap
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chi2

from streamsvm.ingestion import segments
from streamsvm.ingestion.segments import Spill
from streamsvm.numeric.rows import CsrRows, Matrix, drop_zeros, take_rows, to_dense
from streamsvm.numeric.stored_types import as_matrix
from tests.data.conftest import small_files


def numbered(n: int, n_features: int = 1, sparse: bool = False) -> Matrix:
    """Row i holds i + 1 in one of its columns."""
    X = np.zeros((n, n_features), np.float32)
    X[np.arange(n), np.arange(n) % n_features] = np.arange(1, n + 1)
    return as_matrix(csr_array(X)) if sparse else X


def numbers(X: Matrix) -> np.ndarray:
    dense = to_dense(X) if isinstance(X, CsrRows) else X
    return np.asarray(dense.sum(axis=1), int) - 1


def is_mapped(values: Any) -> bool:
    """Tell whether an array lies in a mapped file."""
    while isinstance(values, np.ndarray):
        values = values.base
    return isinstance(values.obj if isinstance(values, memoryview) else values, mmap.mmap)


def written_order(spill: Spill) -> np.ndarray:
    """Numbers of the rows in the order in which they would be written; labels must go along with X."""
    spill.split_large_runs()
    orders = []
    for run in range(len(spill.run_bytes)):
        rows, order = spill.read_shuffled(run)
        assert sorted(order) == list(range(rows.n_rows))
        mine = numbers(rows.X)
        for values in rows.vectors.values():
            np.testing.assert_array_equal(values, mine)
        orders.append(mine[order])
    return np.concatenate(orders)


def shuffle(folder: Path, n: int, seed: int | None, expected_bytes: int, pieces: int, **kind: Any) -> np.ndarray:
    folder.mkdir()
    spill = Spill(folder, seed, expected_bytes)
    X = numbered(n, **kind)
    for mine in np.array_split(np.arange(n), pieces):
        spill.add(take_rows(X, mine), {"label": mine.astype(float), "qid": mine})
    return written_order(spill)


def test_all_orders_are_equally_likely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 8)  # two runs for 4 rows of 4 bytes, often split
    n_seeds, seen = 1200, {}  # type: ignore[var-annotated]
    for seed in range(n_seeds):
        (folder := tmp_path / str(seed)).mkdir()
        spill = Spill(folder, seed, 16)
        spill.add(numbered(3), {})
        spill.add(take_rows(numbered(4), np.array([3])), {})
        order = tuple(written_order(spill).tolist())
        seen[order] = seen.get(order, 0) + 1
    expected = n_seeds / 24
    statistic = sum((seen.get(order, 0) - expected) ** 2 for order in seen) / expected
    statistic += (24 - len(seen)) * expected
    assert statistic < chi2.ppf(1 - 1e-5, 23)


@pytest.mark.parametrize("expected_bytes", [0, 500_000, 5_000_000])
def test_rows_of_every_part_go_everywhere(expected_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 50_000)
    n = 20_000
    order = shuffle(tmp_path / "runs", n, 0, expected_bytes, 7)
    assert sorted(order) == list(range(n))
    table = np.histogram2d(np.arange(n), order, bins=(10, 10))[0]
    statistic = ((table - n / 100) ** 2).sum() / (n / 100)
    assert statistic < chi2.ppf(1 - 1e-5, 81)
    neighbours = np.count_nonzero(np.abs(np.diff(order)) == 1)
    assert neighbours < 15  # 2 on average: rows that were side by side are torn apart


@pytest.mark.parametrize("sparse", [False, True])
def test_the_order_follows_the_seed(sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 1000)
    kind = {"n_features": 3, "sparse": sparse}
    first, again, other = (
        shuffle(tmp_path / name, 300, seed, 5000, 4, **kind)
        for name, seed in (("first", 7), ("again", 7), ("other", 8))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9


@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_seed_the_order_is_kept_in_runs_of_bounded_size(
    sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 1000)
    kind = {"n_features": 3, "sparse": sparse}
    np.testing.assert_array_equal(shuffle(tmp_path / "runs", 300, None, 0, 10, **kind), np.arange(300))
    sizes = [sum(f.stat().st_size for f in tmp_path.glob(f"runs/{run}.*")) for run in range(4)]
    piece_bytes = 30 * (16 + (12 if not sparse else 16))
    assert all(1000 <= size < 1000 + piece_bytes for size in sizes)


def spill_into_one_run(folder: Path, items: float, total_bytes: int) -> tuple[Spill, int]:
    """Sparse rows with so many items on average, all in one run, since their size was not known."""
    folder.mkdir()
    rng, spill = np.random.default_rng(0), Spill(folder, 0, 0)
    n_rows = int(total_bytes / 20 / (16 + 8 * items))
    for at in range(0, 20 * n_rows, n_rows):
        counts = rng.poisson(items, n_rows)
        indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        X = CsrRows(np.ones(indptr[-1], np.float32), np.zeros(indptr[-1], np.int32), indptr, 1)
        spill.add(X, {"label": at + np.arange(float(n_rows))})
    return spill, 20 * n_rows


@pytest.mark.slow("measures the memory of ingests of much data")
@pytest.mark.parametrize("items", [0.2, 1, 40])
def test_runs_that_grew_too_large_are_split_in_bounded_memory(
    items: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held is a few runs, and not the row counts of a source of 40 runs."""
    run_bytes = 500_000
    monkeypatch.setattr(segments, "RUN_BYTES", run_bytes)
    for name in ("first", "again", "last"):  # at first, Python remembers names of files; other threads allocate, too
        folder = tmp_path / name
        spill, n_rows = spill_into_one_run(folder, items, 40 * run_bytes)
        assert spill.run_bytes[0] > 35 * run_bytes
        tracemalloc.start()
        try:
            spill.split_large_runs()
            spill.read_shuffled(1)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak < 8 * run_bytes:
            break
    assert peak < 8 * run_bytes
    assert max(spill.run_bytes) <= 2 * run_bytes
    for run, size in enumerate(spill.run_bytes):
        assert sum(file.stat().st_size for file in folder.glob(f"{run}.*")) == size
    labels = [spill.read_shuffled(run)[0].vectors["label"] for run in range(len(spill.run_bytes))]
    np.testing.assert_array_equal(np.sort(np.concatenate(labels)), np.arange(n_rows))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("n", [1, 2])
def test_a_row_larger_than_a_run_ends_up_alone(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 100)
    spill = Spill(tmp_path, 0, 0)
    X = np.repeat(np.arange(1, n + 1, dtype=np.float32), 1000).reshape(n, 1000)
    spill.add(X, {})
    spill.split_large_runs()
    found = [spill.read_shuffled(run)[0].X for run in range(len(spill.run_bytes))]
    assert sorted(float(part[0, 0]) for part in found if part.shape[0]) == list(range(1, n + 1))  # type: ignore[index]


def test_a_run_that_is_removed_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN_BYTES", 100)
    spill = Spill(tmp_path, 0, 200)
    spill.add(numbered(50), {"label": np.arange(50.0)})
    n_kept = spill.read_shuffled(1)[0].n_rows
    spill.remove(0)
    assert {file.name.split(".")[0] for file in tmp_path.iterdir()} == {"1"}
    assert spill.read_shuffled(1)[0].n_rows == n_kept


def test_pieces_without_rows_change_no_row(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 0, 0)
    for n in (0, 5, 0):
        spill.add(numbered(n, 2), {"label": np.arange(float(n))})
    assert sorted(written_order(spill)) == [0, 1, 2, 3, 4]


@given(data=st.data(), sparse=st.booleans(), pieces=st.integers(1, 5))
def test_any_range_of_a_run_is_read(
    data: st.DataObject, sparse: bool, pieces: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    X = (rng.standard_normal((20, 3)) * (rng.random((20, 3)) < 0.4)).astype(np.float32)
    spill = Spill(tmp_path_factory.mktemp("runs"), None, 0)
    for mine in np.array_split(np.arange(20), pieces):
        part = as_matrix(csr_array(X[mine])) if sparse else X[mine]
        spill.add(part, {"qid": mine})
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20))))
    rows = spill.read(0, start, stop, int(np.count_nonzero(X[:start])))
    found = to_dense(rows.X.keep_features(3)) if isinstance(rows.X, CsrRows) else rows.X
    np.testing.assert_array_equal(found, X[start:stop])
    np.testing.assert_array_equal(rows.vectors["qid"], np.arange(start, stop))


@given(st.integers(0, 6), st.integers(1, 5), st.integers(0, 99))
def test_dense_and_sparse_rows_are_the_same_rows(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)).astype(np.float32)
    rows = drop_zeros(X)
    wanted = csr_array(X)
    assert rows.shape == (n, d)
    np.testing.assert_array_equal(rows.data, wanted.data)
    np.testing.assert_array_equal(rows.indices, wanted.indices)
    np.testing.assert_array_equal(rows.indptr, wanted.indptr)
    assert [v.dtype for v in (rows.data, rows.indices, rows.indptr)] == [np.float32, np.int32, np.int64]
    np.testing.assert_array_equal(to_dense(rows.keep_features(d)), X)
    np.testing.assert_array_equal(to_dense(rows.keep_features(d + 2))[:, d:], np.zeros((n, 2)))


def test_a_full_disk_is_noticed_at_once(tmp_path: Path) -> None:
    spill = Spill(tmp_path, None, 0)
    spill.add(numbered(200), {})
    with pytest.raises(OSError, match="File too large"), small_files(1000):
        spill.add(numbered(100), {})


@pytest.mark.parametrize("sparse", [False, True])
def test_runs_that_are_mapped_have_the_rows_of_runs_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse: bool
) -> None:
    n, d = 20_000, 3
    monkeypatch.setattr(segments, "LEAST_MAPPED_BYTES", 1)
    spill = Spill(tmp_path, 0, 0)
    spill.add(numbered(n, d, sparse), {})
    part = spill.read(0, 7001, 15_003, 7001)  # it begins within a page, and not in the first one
    spill.remove(0)
    assert is_mapped(part.X.data if isinstance(part.X, CsrRows) else part.X)
    np.testing.assert_array_equal(numbers(part.X), np.arange(7001, 15_003))


def test_runs_are_read_where_files_cannot_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(segments, "LEAST_MAPPED_BYTES", 1)
    monkeypatch.setattr(mmap, "mmap", refuse)
    assert sorted(shuffle(tmp_path / "spill", 1000, 0, 0, 3)) == list(range(1000))
