"""AnnData files opened in place as datasets, and AnnData objects as a source of rows for an ingest.

`open_anndata` opens a `.zarr` or `.h5ad` file in place. X is dense or a csr_matrix; the labels are a column of obs, or
a matrix in obsm with a column for each label. Zarr or h5py reads the chunks of the file, with any of the allowed
codecs. Such files have no manifest, so a missing chunk looks like a chunk of zeros; `info` points this out. The
checksum of a chunk is recorded when the chunk is first read, and later reads must match it (data.store.array).

`read_anndata` streams the rows of an AnnData object, in memory or backed by a file. `read_h5ad` streams the rows of
files, which anndata opens in backed mode. The names of observations and variables become the names of rows and
features.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from scipy.sparse import csr_array, issparse

from streamsvm.data.remote.files import copied
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources.arrays import VECTOR_NAMES, comes_from, is_backed, make_canonical, place_rows, read_arrays
from streamsvm.data.sources.formats import ENCODED, name_option
from streamsvm.data.store import zarr_arrays
from streamsvm.data.store.array import StoredArray
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.layouts import CsrLayout, DenseLayout, Layout
from streamsvm.data.tables.checks import to_groups, to_label_lists
from streamsvm.data.tables.columns import Columns
from streamsvm.numeric.labels import sum_labels
from streamsvm.numeric.rows import I64
from streamsvm.system.errors import InputError, say_count

WHOLE = slice(None)
Group = zarr.Group | zarr_arrays.Hdf5Group


class Items(NamedTuple):
    """The open arrays of a csr_matrix, its shape, and the values of indptr (rows + 1,)."""

    arrays: list[zarr.Array[Any]]
    shape: tuple[int, int]
    indptr: I64


def open_items(name: str, X: zarr.Group) -> Items:
    """Open a csr_matrix written by AnnData. Raises InputError for another encoding, or if its arrays do not match."""
    encoding, shape = X.attrs.get("encoding-type"), X.attrs.get("shape")
    if encoding != "csr_matrix":
        raise InputError(
            f"{name}: has the encoding {encoding!r}, which cannot be read in place; store it as csr_matrix or as a "
            "dense array"
        )
    data, indices, limits = arrays = [zarr_arrays.open_array(X, part, name) for part in ("data", "indices", "indptr")]
    for array, part, kinds in zip(arrays, ("data", "indices", "indptr"), ("biuf", "iu", "iu"), strict=True):
        _require_values(array, f"{name}/{part}", 1, kinds)
    match shape:
        case [int(n_rows), int(n_features)] if 0 <= n_rows < 1 << 53 and 0 <= n_features < 1 << 31:
            pass
        case _:
            raise InputError(f"{name}: its shape is {shape!r}; a number of rows and a number of features are expected")
    if limits.shape != (n_rows + 1,):
        raise InputError(f"{name}: indptr has {say_count(limits.shape[0] - 1, 'row')}, but the shape has {n_rows:,}")
    indptr = read_values(limits, f"{name}/indptr").astype(np.int64)
    n_data, n_indices = data.shape[0], indices.shape[0]
    if n_data != n_indices or indptr[0] != 0 or indptr[-1] != n_data or indptr.min() < 0 or np.any(np.diff(indptr) < 0):
        found = f"{n_data} in data, {n_indices} in indices"
        raise InputError(f"{name}: indptr does not ascend from 0 to the number of items: {found}")
    return Items(arrays, (n_rows, n_features), indptr)


def read_values(array: zarr.Array[Any], name: str, part: slice = WHOLE) -> np.ndarray:
    """Return the values of a part of an array along its first axis. Raises InputError if they cannot be decoded."""
    try:
        return np.asarray(array[part])
    except (ValueError, TypeError, OSError, RuntimeError, MemoryError, LookupError) as error:
        raise InputError(f"{name}: cannot be decoded: {error}") from error


def _require_values(array: zarr.Array[Any], name: str, n_dimensions: int, kinds: str | None = None) -> None:
    """Raise InputError unless an array has `n_dimensions` and a dtype of one of the `kinds` (None: of any kind)."""
    if array.ndim != n_dimensions:
        expected = "one is expected" if n_dimensions == 1 else "two are expected: rows and features"
        raise InputError(f"{name}: has {say_count(array.ndim, 'dimension')}, but {expected}")
    if kinds is not None and array.dtype.kind not in kinds:
        raise InputError(f"{name}: holds {array.dtype}; {'numbers' if 'f' in kinds else 'whole numbers'} are expected")


OLD_FORM = (
    "has the form of anndata before 0.7, which cannot be read in place: ingest the file, or read it with a current "
    "anndata and write it again"
)
OBSM = "obsm/"  # the prefix of the name of a label matrix; a name without this prefix is a column of obs
PIECE_VALUES = 1 << 24  # the number of values of a label matrix in memory at a time


def read_labels(path: str, group: Group, label: str, n_rows: int) -> tuple[StoredArray, np.ndarray]:
    """Return the class codes of a column of obs, in memory (4 bytes a row), and the sorted classes in that column."""
    values, codes = _read_column(path, group, label, n_rows, "label")
    used, codes = np.unique(codes, return_inverse=True)
    classes, rank = np.unique(values[used], return_inverse=True)
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise InputError(f"{path}/obs/{label}: a label is NaN or infinite")
    return _hold("y", rank[codes].astype(np.int32)), classes


def read_label_sets(path: str, group: Group, label: str, n_rows: int) -> tuple[StoredArray, I64]:
    """Return the label sets in a matrix of obsm, as bits in memory, and the number of rows with each label.

    The matrix has a column of 0 and 1 for each label. It is dense or a csr_matrix.
    """
    name = f"{path}/{label}"
    if not zarr_arrays.is_name(label) or not zarr_arrays.exists(group, "obsm") or not zarr_arrays.exists(group, label):
        raise InputError(f"{path}: has no matrix {label!r} of labels")
    node = zarr_arrays.open_node(group, label, path)
    read: Callable[[slice], Any]
    if zarr_arrays.is_array(node):
        shape, read = tuple(node.shape), partial(read_values, node, name)
    else:
        items = open_items(name, node)
        shape, read = items.shape, partial(_read_items, items, name)
    if len(shape) != 2 or shape[0] != n_rows or shape[1] < 2:
        raise InputError(f"{name}: the shape is {shape}; expected the rows of X, and columns for at least two labels")
    step, parts = max(1, PIECE_VALUES // shape[1]), list[np.ndarray]()
    for start in range(0, n_rows, step):
        piece = read(slice(start, min(start + step, n_rows)))
        parts.append(to_label_lists(piece, place_rows(name, start)).to_bits(np.arange(shape[1])))
    sets = np.concatenate(parts)
    values = zarr.array(sets, chunks=(min(n_rows, 1 << 16), sets.shape[1]))
    return StoredArray(values, "label_sets", None), sum_labels(sets, shape[1], None).astype(np.int64)


def _read_items(items: Items, name: str, rows: slice) -> csr_array:
    """Return a range of rows of a csr_matrix."""
    limits = items.indptr[rows.start : rows.stop + 1]
    data, indices = (read_values(array, name, slice(limits[0], limits[-1])) for array in items.arrays[:2])
    return make_canonical(csr_array((data, indices, limits - limits[0]), (len(limits) - 1, items.shape[1])), name)


def read_groups(path: str, group: Group, column: str, n_rows: int) -> StoredArray:
    """Return the group numbers of a column of obs, in memory (8 bytes a row)."""
    values, codes = _read_column(path, group, column, n_rows, "group")
    return _hold("groups", to_groups(values, lambda _: f"{path}/obs/{column}")[codes])


def read_names(path: str, group: Group, n_features: int) -> tuple[str, ...] | None:
    """Return the names of the variables, which name the features; None if they are missing or do not match."""
    columns = zarr_arrays.open_node(group, "var", path) if zarr_arrays.exists(group, "var") else None
    if columns is None or zarr_arrays.is_array(columns):
        return None
    index = columns.attrs.get("_index")
    if not isinstance(index, str) or not zarr_arrays.exists(columns, index):
        return None
    names, codes = _decode(zarr_arrays.open_node(columns, index, f"{path}/var"), f"{path}/var/{index}")
    found = tuple(map(str, names[codes]))
    return found if len(set(found)) == n_features and codes.min() >= 0 else None


def _hold(name: str, values: np.ndarray) -> StoredArray:
    """Wrap a vector in memory as a StoredArray."""
    return StoredArray(zarr.array(values, chunks=(min(len(values), 1 << 20),)), name, None)


def _read_column(path: str, group: Group, label: str, n_rows: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of a column of obs, and for each row the index of its value."""
    name, columns = f"{path}/obs/{label}", zarr_arrays.open_node(group, "obs", path)
    if zarr_arrays.is_array(columns):
        raise InputError(f"{path}/obs: {OLD_FORM if columns.dtype.names else 'is an array, not a group of columns'}")
    if not zarr_arrays.is_name(label) or not zarr_arrays.exists(columns, label):
        there = ", ".join(zarr_arrays.list_names(columns)) or "none"
        raise InputError(f"{path}: no column {label!r} in obs; there are {there}")
    values, codes = _decode(zarr_arrays.open_node(columns, label, f"{path}/obs"), name)
    if codes.shape != (n_rows,):
        raise InputError(f"{name}: has {say_count(len(codes), 'row')}, but X has {n_rows:,}")
    if codes.min() < 0:
        raise InputError(f"{name}: row {int(codes.argmin()) + 1} (counted from 1) has no {what}")
    if codes.max() >= len(values):
        row = int(codes.argmax())
        raise InputError(
            f"{name}: row {row + 1} (counted from 1) has the code {codes[row]}, but there are {len(values)} categories"
        )
    return values, codes


def _decode(column: zarr.Array[Any] | zarr.Group, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of a column, and for each row the index of its value, or -1 if it is missing."""
    if zarr_arrays.is_array(column):
        if "categories" in column.attrs:
            raise InputError(f"{name}: {OLD_FORM}")
        values, codes = np.unique(_read_column_values(column, name), return_inverse=True)
        missing = np.isnan(values)[codes] if values.dtype.kind == "f" else False
        return values, np.where(missing, -1, codes)

    def read(part: str) -> np.ndarray:
        return _read_column_values(zarr_arrays.open_array(column, part, name), f"{name}/{part}")

    if zarr_arrays.exists(column, "codes"):
        codes = read("codes")
        if codes.dtype.kind not in "iu":
            raise InputError(f"{name}/codes: holds {codes.dtype}; whole numbers are expected")
        return read("categories"), codes
    if zarr_arrays.exists(column, "mask"):
        mask, (values, codes) = read("mask"), np.unique(read("values"), return_inverse=True)
        if mask.shape != codes.shape:
            raise InputError(
                f"{name}: its mask has {say_count(len(mask), 'row')}, but there are {say_count(len(codes), 'value')}"
            )
        return values, np.where(mask.astype(bool), -1, codes)
    raise InputError(f"{name}: encoding {column.attrs.get('encoding-type')!r} cannot be read as labels")


def _read_column_values(array: zarr.Array[Any], name: str) -> np.ndarray:
    """Return the values of a column (n,), strings as a NumPy string array. Raises InputError for other types."""
    _require_values(array, name, 1)
    values = read_values(array, name)
    if values.dtype.kind in "OTSU":
        return np.array(values.tolist(), str)
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name}: holds {values.dtype}, which cannot be read as labels; numbers or texts are expected")
    return values


CHUNK_BYTES = 64 << 20


def open_anndata(path: str, group: Group, label: str | None, groups: str | None = None) -> Dataset:
    """Open an AnnData group as a dataset. Raises InputError for another group, or if obs lacks a named column."""
    if not zarr_arrays.exists(group, "X") or not zarr_arrays.exists(group, "obs"):
        found = "" if isinstance(group, zarr_arrays.Hdf5Group) else f"; it is {zarr_arrays.explain_group(group, path)}"
        raise InputError(
            f"{path}: is neither a streamsvm dataset nor an AnnData file, which would contain X and obs{found}"
        )
    X = zarr_arrays.open_node(group, "X", path)
    layout, n_rows, starts = _open_dense(path, X) if zarr_arrays.is_array(X) else _open_csr(path, X)
    if not n_rows or not layout.n_features:
        raise InputError(f"{path}/X: has no rows or no features")
    vectors, classes, counts = {}, None, None
    if label is not None and label.startswith(OBSM):
        vectors["label_sets"], counts = read_label_sets(path, group, label, n_rows)
        classes = np.arange(len(counts))
    elif label is not None:
        vectors["y"], classes = read_labels(path, group, label, n_rows)
        counts = np.bincount(vectors["y"].read(0, n_rows), minlength=len(classes))
    if groups is not None:
        vectors["groups"] = read_groups(path, group, groups, n_rows)
    return Dataset(
        path=path,
        layout=layout,
        vectors=vectors,
        n_rows=n_rows,
        chunk_starts=starts,
        classes=classes,
        class_counts=counts,
        fingerprint=_make_fingerprint(path, label, n_rows, layout.n_features),
        scaling=None,
        feature_names=read_names(path, group, layout.n_features),
        meta={"source": ["anndata"], "arrays": None},
        label=label,
    )


def _make_fingerprint(path: str, label: str | None, n_rows: int, n_features: int) -> str:
    """Return a string that identifies a file and its label. For .h5ad, size and modification time are part of it."""
    about = Path(path).stat() if zarr_arrays.is_h5ad(path) else None
    state = "" if about is None else f" {about.st_size} {about.st_mtime_ns}"
    return hashlib.sha256(f"{path} {label} {n_rows} {n_features}{state}".encode()).hexdigest()


def _open_dense(path: str, X: zarr.Array[Any]) -> tuple[Layout, int, I64]:
    """Return the layout of dense rows, the number of rows, and the first row of each chunk of about CHUNK_BYTES."""
    _require_values(X, f"{path}/X", 2, "biuf")
    step = X.chunks[0] * max(1, CHUNK_BYTES // max(1, X.chunks[0] * X.shape[1] * 4))  # rows of whole Zarr chunks
    starts = np.append(np.arange(0, X.shape[0], step), X.shape[0]).astype(np.int64)
    return DenseLayout(StoredArray(X, "X", None)), int(X.shape[0]), starts


def _open_csr(path: str, X: zarr.Group) -> tuple[Layout, int, I64]:
    """Return the layout of sparse rows, the number of rows, and the first row of each chunk of about CHUNK_BYTES."""
    arrays, (n_rows, n_features), indptr = open_items(f"{path}/X", X)
    items = max(1, min(CHUNK_BYTES // 8, int(indptr[-1])))
    inner = np.searchsorted(indptr[:-1], np.arange(items, max(indptr[-1], 1), items), side="left")
    starts = np.unique(np.concatenate(([0], inner, [n_rows]))).astype(np.int64)
    data, indices, limits = (StoredArray(array, array.path, None) for array in arrays)
    return CsrLayout(data, indices, limits, n_features, int(np.diff(indptr).max(initial=0)), items), n_rows, starts


def is_anndata(source: object) -> bool:
    """Return whether a value is an AnnData object."""
    return comes_from(source, "anndata") and hasattr(source, "obs_names")


def read_h5ad(paths: Sequence[str | Path], columns: Columns) -> Iterator[SourceRows]:
    """Yield the rows of `.h5ad` files, read in place. Raises InputError for files that anndata cannot read."""
    try:
        anndata = importlib.import_module("anndata")
    except ImportError as error:
        raise InputError("reading .h5ad needs anndata: pip install 'streamsvm[anndata]'") from error
    for path in map(str, paths):
        with copied(path) as copy:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)  # about parts of old files that are not read here
                    opened = anndata.read_h5ad(copy, backed="r")
            except Exception as error:
                raise InputError(f"{path}: not an .h5ad file that anndata reads ({error})") from error
            with closing(opened.file):
                yield from read_anndata(opened, columns, path)


def read_anndata(data: Any, columns: Columns, where: str = "X") -> Iterator[SourceRows]:
    """Yield the rows of an AnnData object. columns: label, qid, sample_weight and groups name columns of obs.

    Raises InputError for a column that obs does not have, and if a sparse X in a file is stored by columns (CSC).
    """
    for name in ENCODED:
        if getattr(columns, name) not in (None, ()):
            raise InputError(f"{where}: {name_option(name)} applies to tables, not to AnnData: remove it")
    if is_backed(data.X) and data.X.format != "csr":
        raise InputError(f"{where}: X is stored by columns ({data.X.format}); store it as csr_matrix")
    given = {name: _find(data, role, columns, where) for role, name in VECTOR_NAMES.items()}
    if columns.label is None and columns.require_label:
        raise InputError(f"{where}: name the label column of obs by --label COLUMN (label=... in Python)")
    names = tuple(map(str, data.var_names))
    place = {name: j for j, name in enumerate(names)}
    if missing := [name for name in columns.features or () if name not in place]:
        raise InputError(f"{where}: no variable {missing[0]!r}, which is a feature of the model")
    chosen = None if columns.features in (None, names) else [place[name] for name in columns.features or ()]
    n_rows = 0
    for rows in read_arrays(data.X, **given):
        X = rows.X if chosen is None else rows.X[:, chosen]
        X = csr_array(X) if issparse(X) else np.ascontiguousarray(X)
        texts = np.array(list(map(str, data.obs_names[n_rows : n_rows + rows.n_rows])), object)
        yield replace(rows, X=X, feature_names=columns.features or names, row_names=texts)
        n_rows += rows.n_rows


def _find(data: Any, role: str, columns: Columns, where: str) -> Any:
    """Return the column of obs for a role; None if no column is named for it, or if an optional label is missing."""
    name = getattr(columns, role)
    if name in data.obs.columns:
        return data.obs[name]
    if name is None or (role == "label" and not columns.require_label):
        return None
    there = ", ".join(map(str, data.obs.columns[:12])) or "none"
    raise InputError(f"{where}: no column {name!r} in obs, the {role}; there are {there}")
