"""The labels, groups and names of AnnData files: columns of obs, or a matrix in obsm with a column for each label."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from scipy.sparse import csr_array

from streamsvm.data.anndata_arrays import read_indptr, read_shape, read_values
from streamsvm.data.arrays import make_canonical, place_rows
from streamsvm.data.codecs import exists, is_array, is_name, list_names, open_array, open_node
from streamsvm.data.hdf5 import Hdf5Group
from streamsvm.data.labels import to_label_lists
from streamsvm.data.store import StoredArray
from streamsvm.data.values import to_groups
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.label_sets import sum_labels
from streamsvm.numeric.rows import I64

OBSM = "obsm/"  # before the name of a matrix of labels, in place of a column of obs
PIECE_VALUES = 1 << 24  # of a matrix of labels that are in memory at a time


def read_labels(path: str, group: zarr.Group | Hdf5Group, label: str, n_rows: int) -> tuple[StoredArray, np.ndarray]:
    """Return the codes of a column of obs, held in memory (4 bytes a row), and the classes that occur in it, sorted."""
    values, codes = _read_column(path, group, label, n_rows, "label")
    used, codes = np.unique(codes, return_inverse=True)
    classes, rank = np.unique(values[used], return_inverse=True)
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise InputError(f"{path}/obs/{label}: a label is NaN or infinite")
    return _hold("y", rank[codes].astype(np.int32)), classes


def read_label_sets(path: str, group: zarr.Group | Hdf5Group, label: str, n_rows: int) -> tuple[StoredArray, I64]:
    """Return the sets of labels that a matrix of obsm has, as bits in memory, and the number of rows with each label.

    The matrix has a column of 0 and 1 for each label, and is dense or a csr_matrix.
    """
    name = f"{path}/{label}"
    if not is_name(label) or not exists(group, "obsm") or not exists(group, label):
        raise InputError(f"{path}: no matrix {label!r} of labels")
    node = open_node(group, label, path)
    shape = tuple(node.shape) if is_array(node) else read_shape(name, node)
    if len(shape) != 2 or shape[0] != n_rows or shape[1] < 2:
        raise InputError(
            f"{name}: its shape is {shape}; rows as in X, and a column for each of several labels are needed"
        )
    step, parts = max(1, PIECE_VALUES // shape[1]), list[np.ndarray]()
    indptr = None if is_array(node) else _read_limits(name, node, n_rows)
    for start in range(0, n_rows, step):
        piece = _read_piece(name, node, indptr, start, min(start + step, n_rows), shape[1])
        parts.append(to_label_lists(piece, place_rows(name, start)).to_bits(np.arange(shape[1])))
    sets = np.concatenate(parts)
    values = zarr.array(sets, chunks=(min(n_rows, 1 << 16), sets.shape[1]))
    return StoredArray(values, "label_sets", None), sum_labels(sets, shape[1], None).astype(np.int64)


def _read_limits(name: str, node: zarr.Group, n_rows: int) -> I64:
    arrays = [open_array(node, each, name) for each in ("data", "indices", "indptr")]
    return read_indptr(name, arrays[2], n_rows, arrays[0].shape[0], arrays[1].shape[0])


def _read_piece(
    name: str, node: zarr.Array[Any] | zarr.Group, indptr: I64 | None, start: int, stop: int, n_labels: int
) -> Any:
    """Return the rows start:stop of a matrix of labels, dense or CSR."""
    if is_array(node):
        return read_values(node, name, slice(start, stop))
    assert indptr is not None
    items = slice(int(indptr[start]), int(indptr[stop]))
    data, indices = (read_values(open_array(node, each, name), name, items) for each in ("data", "indices"))
    return make_canonical(
        csr_array((data, indices, indptr[start : stop + 1] - indptr[start]), (stop - start, n_labels)), name
    )


def read_groups(path: str, group: zarr.Group | Hdf5Group, column: str, n_rows: int) -> StoredArray:
    """Return the numbers of the groups that a column of obs names, held in memory (8 bytes a row)."""
    values, codes = _read_column(path, group, column, n_rows, "group")
    return _hold("groups", to_groups(values, lambda _: f"{path}/obs/{column}")[codes])


def read_names(path: str, group: zarr.Group | Hdf5Group, n_features: int) -> tuple[str, ...] | None:
    """Return the names of the variables, which name the features; None for a file without them, or with others."""
    columns = open_node(group, "var", path) if exists(group, "var") else None
    index = None if columns is None or is_array(columns) else columns.attrs.get("_index")
    if columns is None or is_array(columns) or not isinstance(index, str) or not exists(columns, index):
        return None
    names = _read_column_values(open_array(columns, index, f"{path}/var"), f"{path}/var/{index}")
    found = tuple(map(str, names))
    return found if len(set(found)) == n_features else None


def _hold(name: str, values: np.ndarray) -> StoredArray:
    """Return a vector in memory as a stored one."""
    return StoredArray(zarr.array(values, chunks=(min(len(values), 1 << 20),)), name, None)


def _read_column(
    path: str, group: zarr.Group | Hdf5Group, label: str, n_rows: int, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a column of obs, and the place of each row's value among them."""
    name, columns = f"{path}/obs/{label}", open_node(group, "obs", path)
    if is_array(columns):
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
    if is_array(column):
        if "categories" in column.attrs:
            raise InputError(f"{name}: categories as anndata wrote them before 0.7: read the file and write it again")
        values, codes = np.unique(_read_column_values(column, name), return_inverse=True)
        missing = np.isnan(values)[codes] if values.dtype.kind == "f" else False
        return values, np.where(missing, -1, codes)
    if exists(column, "codes"):
        codes = _read_column_values(open_array(column, "codes", name), f"{name}/codes")
        if codes.dtype.kind not in "iu":
            raise InputError(f"{name}/codes: {codes.dtype} is not a whole number")
        return _read_column_values(open_array(column, "categories", name), f"{name}/categories"), codes
    if exists(column, "mask"):
        mask = _read_column_values(open_array(column, "mask", name), f"{name}/mask")
        values, codes = np.unique(
            _read_column_values(open_array(column, "values", name), f"{name}/values"), return_inverse=True
        )
        if mask.shape != codes.shape:
            raise InputError(f"{name}: {say_count(len(mask), 'row')} of the mask, but {say_count(len(codes), 'value')}")
        return values, np.where(mask.astype(bool), -1, codes)
    raise InputError(f"{name}: encoding {column.attrs.get('encoding-type')!r} cannot be read as labels")


def _read_column_values(array: zarr.Array[Any], name: str) -> np.ndarray:
    """Return numbers or texts (as NumPy's own), (n,), however Zarr decodes them. Raises InputError for other values."""
    if array.ndim != 1:
        raise InputError(f"{name}: {say_count(array.ndim, 'dimension')}, one is expected")
    values = read_values(array, name)
    if values.dtype.kind in "OTSU":
        return np.array(values.tolist(), str)
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name}: {values.dtype} cannot be read as labels")
    return values
