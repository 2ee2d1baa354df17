"""AnnData files, `.zarr` and `.h5ad`, opened as they are: X is dense or a csr_matrix, and the labels are a column of
obs, or a matrix in obsm.

Such files carry no manifest, so a missing chunk cannot be told from a chunk of zeros; `info` says so. They are not
copied: Zarr or h5py reads them, in the chunks that they have, with any of the allowed codecs. The checksums of the
chunks as they were first read are those that later reads have to find (data.store).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamsvm.data.anndata_arrays import read_indptr, read_shape
from streamsvm.data.anndata_labels import OBSM, read_groups, read_label_sets, read_labels, read_names
from streamsvm.data.codecs import exists, is_array, open_array, open_node
from streamsvm.data.csr_layout import CsrLayout
from streamsvm.data.dataset import Dataset
from streamsvm.data.dense_layout import DenseLayout
from streamsvm.data.hdf5 import Hdf5Group, is_h5ad
from streamsvm.data.layouts import Layout
from streamsvm.data.store import StoredArray
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.rows import I64

CHUNK_BYTES = 64 << 20


def open_anndata(path: str, group: zarr.Group | Hdf5Group, label: str | None, groups: str | None = None) -> Dataset:
    """Open an AnnData group as a dataset. Raises InputError if it is none, or for names that are no columns of obs."""
    if not exists(group, "X") or not exists(group, "obs"):
        raise InputError(f"{path}: neither a streamsvm dataset nor an AnnData file (no X and obs in it)")
    X = open_node(group, "X", path)
    layout, n_rows, starts = _open_dense(path, X) if is_array(X) else _open_csr(path, X)
    if not n_rows or not layout.n_features:
        raise InputError(f"{path}/X: no rows, or no features")
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
    """Return a text that differs between files, and changes with the size or the time of a single file."""
    about = Path(path).stat() if is_h5ad(path) else None
    state = "" if about is None else f" {about.st_size} {about.st_mtime_ns}"
    return hashlib.sha256(f"{path} {label} {n_rows} {n_features}{state}".encode()).hexdigest()


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
    n_rows, n_features = read_shape(path, X)
    indptr = read_indptr(path, arrays[2], n_rows, arrays[0].shape[0], arrays[1].shape[0])
    items = max(1, min(CHUNK_BYTES // 8, int(indptr[-1])))
    inner = np.searchsorted(indptr[:-1], np.arange(items, max(indptr[-1], 1), items), side="left")
    starts = np.unique(np.concatenate(([0], inner, [n_rows]))).astype(np.int64)
    data, indices, limits = (StoredArray(array, array.path, None) for array in arrays)
    return CsrLayout(data, indices, limits, n_features, int(np.diff(indptr).max(initial=0)), items), n_rows, starts


def _check_kind(array: zarr.Array[Any], name: str, kinds: str) -> None:
    """Raise InputError unless the values are numbers, or whole numbers where `kinds` has no "f"."""
    if array.dtype.kind not in kinds:
        raise InputError(f"{name}: {array.dtype} is not {'a number' if 'f' in kinds else 'a whole number'}")


def _dense_starts(X: zarr.Array[Any]) -> I64:
    """Return the first row of each chunk, which is as many whole Zarr chunks as fit into CHUNK_BYTES."""
    chunk_bytes = max(1, X.chunks[0] * X.shape[1] * 4)
    step = X.chunks[0] * max(1, CHUNK_BYTES // chunk_bytes)
    return np.append(np.arange(0, X.shape[0], step), X.shape[0]).astype(np.int64)
