"""Rows that are mapped whenever they are read: every way of reading a row gives the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.rows import views
from streamsvm.data.rows.source import split_rows
from streamsvm.data.rows.views import Mapped, regroup
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine
from streamsvm.kernels.feature_maps import Features, KernelMap, PolynomialMap, make_nystrom_map
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import Rows, add_rows, to_dense
from streamsvm.passes import Scan
from tests.conftest import make_problem

N, D, RANK = 1700, 30, 300  # with this rank products by some libraries depend on the place of a row


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in every training."""
    with one_blas_thread():
        yield


@pytest.fixture(scope="module", params=["dense", "sparse"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    problem = make_problem(3, n=N, d=D, density=1.0 if request.param == "dense" else 0.3, weighted=True)
    return problem.store(tmp_path_factory.mktemp("data") / "rows.zarr", chunk_bytes=40_000)


def map_rows(source: Dataset, kind: str) -> Mapped:
    if kind == "polynomial":
        return Mapped(source, Features(PolynomialMap(D, 3.0)))
    chosen = np.sort(np.random.default_rng(1).permutation(N)[:RANK])
    kernel = Kernel(kind, gamma=0.05, degree=2, coef0=1.0)
    return Mapped(source, Features(make_nystrom_map(kernel, source.take(chosen).X)))


def stack(tiles: Iterator[Rows]) -> Any:
    return np.concatenate([np.array(rows.X) for rows in tiles])


@pytest.mark.parametrize("kind", ["rbf", "poly", "linear", "polynomial"])
def test_every_way_of_reading_gives_the_same_bits(source: Dataset, kind: str) -> None:
    """Tiles, chunks, and rows by number, whatever other rows are taken with them."""
    rows = map_rows(source, kind)
    whole = np.concatenate([np.asarray(rows.read(k).X) for k in range(rows.n_chunks)])
    assert whole.shape == (N, rows.n_features)
    for k in range(rows.n_chunks):
        start, stop = rows.chunk_starts[k : k + 2]
        np.testing.assert_array_equal(stack(rows.tiles(k)), whole[start:stop])
    random = np.random.default_rng(2)
    for wanted in (
        np.arange(N),
        random.permutation(N)[:900],
        random.integers(0, N, 500),
        np.array([N - 1]),
        np.arange(0),
    ):
        np.testing.assert_array_equal(rows.take(wanted).X, whole[wanted])


@pytest.mark.parametrize("kind", ["rbf", "polynomial"])
def test_features_are_those_of_the_map(source: Dataset, kind: str) -> None:
    """Labels and weights go with the rows; `features` writes the same values."""
    rows, raw = map_rows(source, kind), source.take(np.arange(N))
    found = rows.take(np.arange(N))
    np.testing.assert_allclose(found.X, rows.features.apply(raw.X), rtol=0, atol=1e-6)
    for name, values in raw.vectors.items():
        np.testing.assert_array_equal(found.vectors[name], values)
        np.testing.assert_array_equal(
            np.concatenate([t.vectors[name] for t in rows.tiles(1)]), rows.read(1).vectors[name]
        )
    X = raw.X if isinstance(raw.X, np.ndarray) else to_dense(raw.X)
    if kind == "rbf":
        found_map = rows.features.map
        assert isinstance(found_map, KernelMap)
        Z = found_map.rows if isinstance(found_map.rows, np.ndarray) else to_dense(found_map.rows)
        K = np.exp(-0.05 * ((X[:, None, :].astype(float) - Z[None]) ** 2).sum(axis=2))
        np.testing.assert_allclose(found.X @ found.X.T, K @ np.linalg.pinv(K[_places(X, Z)]) @ K.T, atol=1e-4)
    else:
        np.testing.assert_allclose(found.X @ found.X.T, (X @ X.T + 1) ** 2 / 9, rtol=1e-4, atol=1e-4)


def _places(X: Any, Z: Any) -> Any:
    return [int(np.flatnonzero((z == X).all(axis=1))[0]) for z in Z]


def test_sums_do_not_depend_on_the_chunks_in_memory(source: Dataset) -> None:
    rows, found = map_rows(source, "rbf"), []
    for pin_bytes in (0, rows.nbytes // 2, 2 * rows.nbytes):
        engine = SerialEngine(rows, pin_bytes)
        scan = Scan(_start, _add, np.add)
        found.append([engine.scan(scan) for _ in range(2)])
        read = (2 if pin_bytes == 0 else 1 if pin_bytes > rows.nbytes else 1.5) * source.nbytes
        assert engine.costs.read_bytes == pytest.approx(read, rel=0.2)
        engine.close()
    for each in (one for pair in found for one in pair):
        np.testing.assert_array_equal(each, found[0][0])


def _start() -> Any:
    return np.zeros((1, RANK))


def _add(totals: Any, rows: Rows) -> None:
    assert rows.y is not None
    add_rows(totals, rows.X, np.arange(rows.n_rows), np.zeros(rows.n_rows, np.int64), 1.0 + rows.y)


def test_what_is_said_of_the_rows(source: Dataset) -> None:
    rows = map_rows(source, "rbf")
    assert (rows.n_rows, rows.n_features, rows.is_sparse, rows.scaling) == (N, RANK, False, None)
    assert rows.stored_bytes == source.nbytes
    assert rows.fingerprint != source.fingerprint
    assert rows.read(0).nbytes <= rows.chunk_bytes(0)
    assert sum(rows.chunk_bytes(k) for k in range(rows.n_chunks)) == rows.nbytes
    assert rows.features.sha256 in rows.fingerprint
    tiles = list(rows.tiles(0))
    assert [tile.n_rows for tile in tiles] == [tile.n_rows for tile in split_rows(rows.read(0))]


@pytest.mark.parametrize("lengths", [[7], [1, 1, 1, 1, 1], [4, 4], [3, 9, 1, 0, 2], [12, 1], []])
def test_regrouped_rows(lengths: list[int]) -> None:
    """In parts of four; the memory of a part is used again once the next one is asked for."""
    whole, buffer = np.arange(2 * sum(lengths), dtype=np.float32).reshape(-1, 2), np.empty((12, 2), np.float32)

    def give() -> Iterator[Rows]:
        at = 0
        for n in lengths:
            buffer[:n] = whole[at : at + n]
            yield Rows(at, buffer[:n], y=np.arange(at, at + n, dtype=np.int32))
            at += n

    parts = [(rows.start, np.array(rows.X), rows.y) for rows in regroup(give(), 4)]
    assert [len(X) for _, X, _ in parts] == [4] * (sum(lengths) // 4) + [sum(lengths) % 4] * (sum(lengths) % 4 > 0)
    assert [start for start, _, _ in parts] == list(range(0, sum(lengths), 4))
    if parts:
        np.testing.assert_array_equal(np.concatenate([X for _, X, _ in parts]), whole)
        np.testing.assert_array_equal(np.concatenate([np.asarray(y) for _, _, y in parts]), np.arange(sum(lengths)))


def test_many_features_make_smaller_blocks(source: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a block is bounded, and a block has at least one row."""
    monkeypatch.setattr("streamsvm.kernels.feature_maps.PART_VALUES", 100)
    rows = map_rows(source, "polynomial")
    assert rows.stream_bytes() < source.stream_bytes() + 100_000
    np.testing.assert_array_equal(rows.take(np.arange(50)).X, np.asarray(rows.read(0).X)[:50])
    assert views.BLOCK_ROWS == 512


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    source = make_problem(3, n=300, d=D).store(tmp_path / "rows.zarr", chunk_bytes=8000)
    chunk = tmp_path / "rows.zarr" / "X" / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    chunk.write_bytes(content)
    rows = Mapped(source, Features(PolynomialMap(D)))
    with pytest.raises(Exception, match=r"rows\.zarr/X/c/1/0: chunk is damaged"):
        list(rows.tiles(1))
