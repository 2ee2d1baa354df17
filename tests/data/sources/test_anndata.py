"""AnnData `.zarr` files, built by hand after AnnData's on-disk format: opened, streamed, trained on as they are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csc_array, csr_array
from sklearn.svm import LinearSVC

import streamsvm
from streamsvm.cli.info import describe, format_description, verify
from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import split_rows
from streamsvm.data.sources import anndata
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.layouts import CsrLayout
from streamsvm.numeric.rows import to_dense
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.conftest import Collect, Write

Make = Callable[..., Path]
FORMATS = (2, 3)


def add_array(group: zarr.Group, name: str, values: np.ndarray, encoding: str, chunks: Any = None) -> None:
    dtype: Any = values.dtype
    if values.dtype.kind == "U":
        dtype, values = str, np.asarray(values, np.dtypes.StringDType())
    chunks = chunks or tuple(max(1, n) for n in values.shape)
    array = group.create_array(name, shape=values.shape, dtype=dtype, chunks=chunks)
    array[:] = values
    array.attrs.update({"encoding-type": encoding, "encoding-version": "0.2.0"})


def add_sparse(group: zarr.Group, X: Any, encoding: str, index_type: Any) -> None:
    there = group.create_group("X")
    there.attrs.update({"encoding-type": encoding, "encoding-version": "0.1.0", "shape": list(X.shape)})
    for name in ("data", "indices", "indptr"):
        values = getattr(X, name) if name == "data" else getattr(X, name).astype(index_type)
        add_array(there, name, values, "array", (max(1, len(values) // 3),))


def add_column(obs: zarr.Group, name: str, values: Any) -> None:
    """A plain column, or a categorical one: (codes, categories)."""
    if not isinstance(values, tuple):
        add_array(obs, name, values, "string-array" if values.dtype.kind == "U" else "array")
        return
    there = obs.create_group(name)
    there.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    add_array(there, "codes", np.asarray(values[0], np.int8), "array")
    add_array(there, "categories", values[1], "string-array" if values[1].dtype.kind == "U" else "array")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write an AnnData file: X, and columns of obs."""

    def make_anndata(
        X: Any,
        zarr_format: int = 3,
        encoding: str = "csr_matrix",
        index_type: Any = np.int32,
        chunks: Any = None,
        **obs: Any,
    ) -> Path:
        path = tmp_path / "a.zarr"
        group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)  # type: ignore[arg-type]
        group.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        if isinstance(X, np.ndarray):
            add_array(group, "X", X, "array", chunks)
        else:
            add_sparse(group, X, encoding, index_type)
        columns = group.create_group("obs")
        columns.attrs.update({"encoding-type": "dataframe", "_index": "_index", "column-order": list(obs)})
        add_array(columns, "_index", np.array([f"cell {i}" for i in range(X.shape[0])]), "string-array")
        for name, values in obs.items():
            add_column(columns, name, values)
        return path

    return make_anndata


def make_rows(dtype: Any = np.float32) -> csr_array:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((90, 6)) * (rng.random((90, 6)) < 0.4)
    X[[0, 30, 88, 89]] = 0
    return csr_array(X.astype(dtype))


def assert_rows(dataset: Dataset, X: np.ndarray, collect: Collect) -> None:
    """All ways to read give X, in float32 and int32."""
    tiles = collect(rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k))
    read = [dataset.read(k) for k in range(dataset.n_chunks)]
    for found in (tiles, collect(read), collect(tile for rows in read for tile in split_rows(rows))):
        assert found["X"].dtype == np.float32
        np.testing.assert_array_equal(found["X"], X.astype(np.float32))
    wanted = np.random.default_rng(0).integers(len(X), size=40)
    np.testing.assert_array_equal(collect([dataset.take(wanted)])["X"], X.astype(np.float32)[wanted])
    assert (dataset.n_rows, dataset.n_features) == X.shape


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("chunks", [(90, 6), (20, 6), (7, 4), (1, 1)])
def test_dense_rows_are_read(
    zarr_format: int, dtype: Any, chunks: Any, make: Make, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anndata, "CHUNK_BYTES", 1000)
    X = (1000 * make_rows(float)).toarray().astype(dtype)
    dataset = open_dataset(make(X, zarr_format, chunks=chunks))
    assert not dataset.is_sparse
    limits = dataset.chunk_starts[:-1]
    assert np.all(limits % chunks[0] == 0)  # no chunk of Zarr is decoded for two of ours
    assert dataset.n_chunks == -(-90 // (chunks[0] * max(1, 1000 // (24 * chunks[0]))))
    assert_rows(dataset, X, collect)


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_csr_rows_are_read(
    zarr_format: int, dtype: Any, index_type: Any, make: Make, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anndata, "CHUNK_BYTES", 240)
    X = csr_array((1000 * make_rows(float)).astype(dtype))
    dataset = open_dataset(make(X, zarr_format, index_type=index_type))
    assert dataset.is_sparse
    assert dataset.n_chunks > 5
    starts = dataset.chunk_starts
    assert np.all(X.indptr[starts[1:]] - X.indptr[starts[:-1]] <= 30 + 5)  # 30 items, and the end of a row
    assert_rows(dataset, X.toarray(), collect)


def test_other_encodings_of_x_are_refused_by_name(make: Make) -> None:
    path = make(csc_array(make_rows()), encoding="csc_matrix")
    with pytest.raises(InputError, match="X: has the encoding 'csc_matrix'") as caught:
        open_dataset(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="X: has 3 dimensions"):
        open_dataset(make(np.ones((2, 3, 4))))
    for shape in ((0, 4), (4, 0)):
        with pytest.raises(InputError, match="X: has no rows or no features"):
            open_dataset(make(np.ones(shape), chunks=(1, 1)))
        with pytest.raises(InputError, match="X: has no rows or no features"):
            open_dataset(make(csr_array(shape)))


def test_a_group_without_x_or_obs_is_no_anndata(tmp_path: Path, make: Make) -> None:
    zarr.open_group(str(tmp_path / "other.zarr"), mode="w")
    with pytest.raises(InputError, match=r"other\.zarr: is neither a streamsvm dataset nor an AnnData file"):
        open_dataset(tmp_path / "other.zarr")
    path = make(np.ones((2, 2)))
    del zarr.open_group(str(path), mode="a")["obs"]
    with pytest.raises(InputError, match="neither a streamsvm dataset nor an AnnData file"):
        open_dataset(path)


def test_row_limits_must_fit_the_shape(make: Make) -> None:
    path = make(make_rows())
    zarr.open_group(str(path), mode="a")["X"].attrs["shape"] = [95, 6]
    with pytest.raises(InputError, match="indptr has 90 rows, but the shape has 95"):
        open_dataset(path)


@pytest.mark.parametrize("column", [6, 2**40, -1])
def test_a_column_that_does_not_exist_never_reaches_a_kernel(column: int, make: Make) -> None:
    X, path = make_rows(), make(make_rows(), index_type=np.int64)
    zarr.open_group(str(path), mode="a")["X/indices"][50] = column  # type: ignore[index]
    dataset = open_dataset(path)
    row = int(np.searchsorted(X.indptr, 50, side="right")) - 1
    for read in (lambda: list(dataset.tiles(0)), lambda: dataset.read(0), lambda: dataset.take([row])):
        with pytest.raises(IntegrityError, match=r"X/indices.*: a column is outside 0\.\.5"):
            read()


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_repeated_and_unsorted_columns_are_added_up(index_type: Any, make: Make) -> None:
    """AnnData may store a column twice in a row: its items are added up, whichever way rows are read."""
    X = csr_array(make_rows(np.float32))
    items = (np.repeat(X.data / 2, 2)[::-1].copy(), np.repeat(X.indices, 2)[::-1].copy())
    twice = csr_array((*items, (2 * (X.nnz - X.indptr[::-1]))), shape=X.shape)
    dataset = open_dataset(make(twice, index_type=index_type))
    expected = X.toarray()[::-1]
    found = [to_dense(rows.X) for k in range(dataset.n_chunks) for rows in (*dataset.tiles(k), dataset.read(k))]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate((expected, expected)))
    order = np.array([5, 3, 88, 3])
    np.testing.assert_array_equal(to_dense(dataset.take(order).X), expected[order])
    rows = dataset.read(0).X
    assert len(rows.data) == X.nnz


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_no_float32_can_hold_are_refused(value: float, make: Make) -> None:
    X = make_rows(float)
    X.data[70] = value
    for source in (X, X.toarray()):
        dataset = open_dataset(make(source))
        for read in (lambda data: list(data.tiles(0)), lambda data: data.read(0), lambda data: data.take(range(90))):
            with pytest.raises(InputError, match="contains NaN, infinity or a value too large") as caught:
                read(dataset)
            assert "a.zarr/X" in str(caught.value)


# --- labels


CELLS = np.arange(90)


# --- as any other dataset


@pytest.mark.parametrize("zarr_format", FORMATS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_machine_is_trained_on_it_as_it_lies(sparse: bool, zarr_format: int, make: Make) -> None:
    X = make_rows(float)
    labels = np.where(X.toarray() @ np.arange(-2.0, 4) > 0.1, "tumour", "normal")
    path = make(X if sparse else X.toarray(), zarr_format, label=labels)
    result = train(open_dataset(path, "label"), TrainOptions(C=1.0, tol=1e-4, threads=1))
    assert result.status == "converged"
    reference = LinearSVC(C=1.0, loss="hinge", tol=1e-8, max_iter=100_000, random_state=0)
    reference.fit(X.toarray().astype(np.float32), labels)
    w, b = reference.coef_[0], reference.intercept_[0]
    margins = np.where(labels == "tumour", 1, -1) * (X.toarray() @ w + b)
    wanted = 0.5 * (w @ w + b * b) + np.maximum(0, 1 - margins).sum()
    assert result.objective == pytest.approx(wanted, rel=3e-4)
    assert result.lower_bound <= wanted * (1 + 1e-6)
    assert result.model.classes.tolist() == ["normal", "tumour"]


def test_it_pickles_with_its_label(make: Make) -> None:
    dataset = open_dataset(make(make_rows(), label=CELLS % 2), "label")
    packed = pickle.dumps(dataset)
    assert len(packed) < 1000
    again = pickle.loads(packed)
    assert again.fingerprint == dataset.fingerprint
    np.testing.assert_array_equal(again.read(0).y, CELLS % 2)


def test_info_says_that_nothing_verifies_it(make: Make) -> None:
    dataset = open_dataset(make(make_rows(), label=CELLS % 2), "label")
    about = describe(dataset) | verify(dataset)
    assert about["verified_rows"] == 90
    assert about["verified"] is False
    shown = format_description(about)
    assert "no manifest, so a damaged chunk may go unnoticed" in shown
    assert "read (there is no manifest to verify them with)" in shown


def test_a_chunk_that_cannot_be_decoded_is_named(make: Make) -> None:
    path = make(make_rows().toarray(), chunks=(30, 6))
    chunk = path / "X" / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    dataset = open_dataset(path)
    with pytest.raises(IntegrityError, match=r"a\.zarr/X/c/1/0: cannot be decoded"):
        dataset.read(0)


def test_our_sparse_rows_are_laid_out_as_anndata_has_them(write: Write, sparse_rows: csr_array) -> None:
    """What AnnData's own reader of csr_matrix needs: see its on-disk format."""
    dataset = write(sparse_rows, layout="sparse", chunk_bytes=80)
    assert isinstance(dataset.layout, CsrLayout)
    X: Any = zarr.open_group(dataset.path, mode="r")["X"]
    assert X.attrs.asdict() == {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [60, 7]}
    parts = [X[name][:] for name in ("data", "indices", "indptr")]
    np.testing.assert_array_equal(csr_array(tuple(parts), shape=(60, 7)).toarray(), sparse_rows.toarray())


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_an_index_of_nullable_strings(zarr_format: int, make: Make) -> None:
    """anndata 0.13 writes it as a group of values and a mask."""
    path = make(np.ones((9, 3), np.float32), zarr_format)
    for has_gap in (False, True):
        group = zarr.open_group(str(path), mode="a")
        columns = group.create_group("var", overwrite=True)
        columns.attrs.update({"encoding-type": "dataframe", "_index": "_index", "column-order": []})
        index = columns.create_group("_index")
        index.attrs.update({"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"})
        add_array(index, "values", np.array(["c", "a", "b"]), "string-array")
        add_array(index, "mask", np.array([False, has_gap, False]), "array")
        assert open_dataset(path).feature_names == (None if has_gap else ("c", "a", "b"))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of anndata, about versions of Zarr
def test_an_object_is_ingested_and_not_fitted(tmp_path: Path) -> None:
    package = pytest.importorskip("anndata")
    data = package.AnnData(np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
    data.obs["kind"] = np.where(np.arange(30) % 3, "a", "b")
    model = streamsvm.LinearSVC().fit(streamsvm.ingest(data, tmp_path / "rows.zarr", label="kind"))
    for use in (lambda: streamsvm.LinearSVC().fit(data, data.obs["kind"]), lambda: model.predict(data)):
        with pytest.raises(InputError, match=r"X: an AnnData object .*: use streamsvm\.ingest"):
            use()
    data.write_zarr(tmp_path / "cells.zarr")
    with pytest.raises(InputError, match=r"cells\.zarr: is an AnnData store, which is read in place; use it directly"):
        streamsvm.ingest(tmp_path / "cells.zarr", tmp_path / "copy.zarr", label="kind")
