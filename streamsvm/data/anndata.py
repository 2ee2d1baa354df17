"""AnnData `.zarr` files, opened as they are: X is dense or a csr_matrix, and the labels are a column of obs.

Such files carry no manifest, so a missing chunk cannot be told from a chunk of zeros; `info` says so. They are not
copied: Zarr reads them, in the chunks that they have, with any of the allowed codecs.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import zarr

from streamsvm.data.codecs import exists, is_name, list_names, open_array, open_node
from streamsvm.data.dataset import Dataset
from streamsvm.data.layouts import CsrLayout, DenseLayout, Layout
from streamsvm.data.store import StoredArray
from streamsvm.data.values import to_groups
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.rows import I64

CHUNK_BYTES = 64 << 20


def open_anndata(path: str, group: zarr.Group, label: str | None, groups: str | None = None) -> Dataset:
    """Open an AnnData group as a dataset. Raises InputError if it is none, or for names that are no columns of obs."""
    if not exists(group, "X") or not exists(group, "obs"):
        raise InputError(f"{path}: neither a streamsvm dataset nor an AnnData file (no X and obs in it)")
    X = open_node(group, "X", path)
    layout, n_rows, starts = _open_dense(path, X) if isinstance(X, zarr.Array) else _open_csr(path, X)
    if not n_rows or not layout.n_features:
        raise InputError(f"{path}/X: no rows, or no features")
    vectors, classes, counts = {}, None, None
    if label is not None:
        vectors["y"], classes = _read_labels(path, group, label, n_rows)
        counts = np.bincount(vectors["y"].read(0, n_rows), minlength=len(classes))
    if groups is not None:
        vectors["groups"] = _read_groups(path, group, groups, n_rows)
    return Dataset(
        path=path,
        layout=layout,
        vectors=vectors,
        n_rows=n_rows,
        chunk_starts=starts,
        classes=classes,
        class_counts=counts,
        fingerprint=hashlib.sha256(f"{path} {label} {n_rows} {layout.n_features}".encode()).hexdigest(),
        scaling=None,
        feature_names=None,
        meta={"source": ["anndata"], "arrays": None},
        label=label,
    )


def _open_dense(path: str, X: zarr.Array[Any]) -> tuple[Layout, int, I64]:
    """Return the layout of dense rows, their number, and the first row of each chunk."""
    if X.ndim != 2:
        raise InputError(f"{path}/X: {say_count(X.ndim, 'dimension')}, rows and features are needed")
    _check_kind(X, f"{path}/X", "biuf")
    return DenseLayout(StoredArray(X, "X", None)), int(X.shape[0]), _dense_starts(X)


def _open_csr(path: str, X: zarr.Group) -> tuple[Layout, int, I64]:
    """Return the layout of sparse rows, their number, and the first row of each chunk of about CHUNK_BYTES."""
    encoding = X.attrs.get("encoding-type")
    if encoding != "csr_matrix":
        raise InputError(f"{path}/X: encoding {encoding!r}; csr_matrix or a dense array is needed")
    arrays = [open_array(X, name, f"{path}/X") for name in ("data", "indices", "indptr")]
    for array, kinds in zip(arrays, ("biuf", "iu", "iu"), strict=True):
        if array.ndim != 1:
            raise InputError(f"{path}/{array.path}: {say_count(array.ndim, 'dimension')}, one is expected")
        _check_kind(array, f"{path}/{array.path}", kinds)
    n_rows, n_features = _read_shape(path, X)
    indptr = _read_indptr(path, arrays[2], n_rows, arrays[0].shape[0], arrays[1].shape[0])
    items = max(1, CHUNK_BYTES // 8)
    inner = np.searchsorted(indptr[:-1], np.arange(items, max(indptr[-1], 1), items), side="left")
    starts = np.unique(np.concatenate(([0], inner, [n_rows]))).astype(np.int64)
    data, indices, limits = (StoredArray(array, array.path, None) for array in arrays)
    return CsrLayout(data, indices, limits, n_features, int(np.diff(indptr).max(initial=0)), items), n_rows, starts


def _read_shape(path: str, X: zarr.Group) -> tuple[int, int]:
    """Return the numbers of rows and features that AnnData notes. Raises InputError if they are no such numbers."""
    shape = X.attrs.get("shape")
    match shape:
        case [int(n_rows), int(n_features)] if 0 <= n_rows < 1 << 53 and 0 <= n_features < 1 << 31:
            return n_rows, n_features
    raise InputError(f"{path}/X: its shape is {shape!r}; rows and features are expected")


def _read_indptr(path: str, array: zarr.Array[Any], n_rows: int, n_data: int, n_indices: int) -> I64:
    """Return the limits of the rows. Raises InputError unless they ascend from 0 to the number of items."""
    if array.shape != (n_rows + 1,):
        raise InputError(f"{path}/X: indptr is for {say_count(array.shape[0] - 1, 'row')}, the shape says {n_rows:,}")
    indptr = _read_whole(array, f"{path}/X/indptr").astype(np.int64)
    if n_data != n_indices or indptr[0] != 0 or indptr[-1] != n_data or indptr.min() < 0 or np.any(np.diff(indptr) < 0):
        raise InputError(
            f"{path}/X: its row limits do not ascend from 0 to its items, of which there are {n_data} in data and "
            f"{n_indices} in indices"
        )
    return indptr


def _check_kind(array: zarr.Array[Any], name: str, kinds: str) -> None:
    """Raise InputError unless the values are numbers, or whole numbers where `kinds` has no "f"."""
    if array.dtype.kind not in kinds:
        raise InputError(f"{name}: {array.dtype} is not {'a number' if 'f' in kinds else 'a whole number'}")


def _read_whole(array: zarr.Array[Any], name: str) -> np.ndarray:
    """Return all values of an array. Raises InputError if they cannot be decoded."""
    try:
        return np.asarray(array[...])
    except (ValueError, TypeError, OSError, RuntimeError, MemoryError, LookupError) as error:
        raise InputError(f"{name}: cannot be decoded: {error}") from error


def _dense_starts(X: zarr.Array[Any]) -> I64:
    """Return the first row of each chunk, which is as many whole Zarr chunks as fit into CHUNK_BYTES."""
    chunk_bytes = max(1, X.chunks[0] * X.shape[1] * 4)
    step = X.chunks[0] * max(1, CHUNK_BYTES // chunk_bytes)
    return np.append(np.arange(0, X.shape[0], step), X.shape[0]).astype(np.int64)


def _read_labels(path: str, group: zarr.Group, label: str, n_rows: int) -> tuple[StoredArray, np.ndarray]:
    """Return the codes of a column of obs, held in memory (4 bytes a row), and the classes that occur in it, sorted."""
    values, codes = _read_column(path, group, label, n_rows, "label")
    used, codes = np.unique(codes, return_inverse=True)
    classes, rank = np.unique(values[used], return_inverse=True)
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise InputError(f"{path}/obs/{label}: a label is NaN or infinite")
    return _hold("y", rank[codes].astype(np.int32)), classes


def _read_groups(path: str, group: zarr.Group, column: str, n_rows: int) -> StoredArray:
    """Return the numbers of the groups that a column of obs names, held in memory (8 bytes a row)."""
    values, codes = _read_column(path, group, column, n_rows, "group")
    return _hold("groups", to_groups(values, lambda _: f"{path}/obs/{column}")[codes])


def _hold(name: str, values: np.ndarray) -> StoredArray:
    """Return a vector in memory as a stored one."""
    return StoredArray(zarr.array(values, chunks=(min(len(values), 1 << 20),)), name, None)


def _read_column(path: str, group: zarr.Group, label: str, n_rows: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of obs, and the place of each row's value among them."""
    name, columns = f"{path}/obs/{label}", open_node(group, "obs", path)
    if isinstance(columns, zarr.Array):
        raise InputError(f"{path}/obs: an array; a group of columns is expected")
    if not is_name(label) or not exists(columns, label):
        there = ", ".join(list_names(columns)) or "none"
        raise InputError(f"{path}: no column {label!r} in obs; there are {there}")
    values, codes = _decode(open_node(columns, label, f"{path}/obs"), name)
    if codes.shape != (n_rows,):
        raise InputError(f"{name}: {say_count(len(codes), 'row')}, but X has {n_rows:,}")
    if codes.min() < 0:
        raise InputError(f"{name}: row {int(codes.argmin()) + 1} (counted from 1) has no {what}")
    if codes.max() >= len(values):
        row = int(codes.argmax())
        raise InputError(
            f"{name}: row {row + 1} (counted from 1) has the code {codes[row]}, but there are {len(values)} categories"
        )
    return values, codes


def _decode(column: zarr.Array[Any] | zarr.Group, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values of a column, and for each row the position of its value, or -1 for a missing one."""
    if isinstance(column, zarr.Array):
        values, codes = np.unique(_read_values(column, name), return_inverse=True)
        missing = np.isnan(values)[codes] if values.dtype.kind == "f" else False
        return values, np.where(missing, -1, codes)
    if exists(column, "codes"):
        codes = _read_values(open_array(column, "codes", name), f"{name}/codes")
        if codes.dtype.kind not in "iu":
            raise InputError(f"{name}/codes: {codes.dtype} is not a whole number")
        return _read_values(open_array(column, "categories", name), f"{name}/categories"), codes
    if exists(column, "mask"):
        mask = _read_values(open_array(column, "mask", name), f"{name}/mask")
        values, codes = np.unique(
            _read_values(open_array(column, "values", name), f"{name}/values"), return_inverse=True
        )
        if mask.shape != codes.shape:
            raise InputError(f"{name}: {say_count(len(mask), 'row')} of the mask, but {say_count(len(codes), 'value')}")
        return values, np.where(mask.astype(bool), -1, codes)
    raise InputError(f"{name}: encoding {column.attrs.get('encoding-type')!r} cannot be read as labels")


def _read_values(array: zarr.Array[Any], name: str) -> np.ndarray:
    """Return numbers or texts (as NumPy's own), (n,), however Zarr decodes them. Raises InputError for other values."""
    if array.ndim != 1:
        raise InputError(f"{name}: {say_count(array.ndim, 'dimension')}, one is expected")
    values = _read_whole(array, name)
    if values.dtype.kind in "OTSU":
        return np.array(values.tolist(), str)
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name}: {values.dtype} cannot be read as labels")
    return values
