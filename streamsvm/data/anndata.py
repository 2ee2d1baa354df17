"""AnnData `.zarr` files opened as they are: X dense or csr_matrix, labels from a column of obs.

Such files carry no manifest, so a missing chunk cannot be told from one of zeros; `info` says so. `ingest` copies
nothing of them: they are read through Zarr, with whatever codecs and chunks they have.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import zarr

from streamsvm.data.dataset import Dataset
from streamsvm.data.layouts import CsrLayout, DenseLayout, Layout
from streamsvm.data.store import StoredArray
from streamsvm.errors import InputError
from streamsvm.numeric.rows import I64

CHUNK_BYTES = 64 << 20


def open_anndata(path: str, group: zarr.Group, label: str | None) -> Dataset:
    """Open an AnnData group as a dataset; InputError when it is none, or label names no column of obs."""
    if "X" not in group or "obs" not in group:
        raise InputError(f"{path}: neither a streamsvm dataset nor an AnnData file (no X and obs in it)")
    X = group["X"]
    layout: Layout
    if isinstance(X, zarr.Array):
        if X.ndim != 2:
            raise InputError(f"{path}/X: {X.ndim} dimensions, rows and features are needed")
        layout = DenseLayout(StoredArray(X, "X", None))
        n_rows, starts = int(X.shape[0]), _dense_starts(X)
    else:
        layout, n_rows, starts = _open_csr(path, X)
    if not n_rows or not layout.n_features:
        raise InputError(f"{path}/X: no rows, or no features")
    vectors, classes, counts = {}, None, None
    if label is not None:
        vectors["y"], classes = _read_labels(path, group, label, n_rows)
        counts = np.bincount(vectors["y"].read(0, n_rows), minlength=len(classes))
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


def _open_csr(path: str, X: zarr.Group) -> tuple[Layout, int, I64]:
    encoding = X.attrs.get("encoding-type")
    if encoding != "csr_matrix":
        raise InputError(f"{path}/X: encoding {encoding!r}; csr_matrix or a dense array is needed")
    parts = [StoredArray(X[name], f"X/{name}", None) for name in ("data", "indices", "indptr")]  # type: ignore[arg-type]
    n_rows, n_features = (int(n) for n in X.attrs["shape"])  # type: ignore[union-attr,arg-type]
    indptr = np.asarray(parts[2].array[:], np.int64)
    if len(indptr) != n_rows + 1:
        raise InputError(f"{path}/X: indptr is for {len(indptr) - 1} rows, the shape says {n_rows}")
    items = max(1, CHUNK_BYTES // 8)
    inner = np.searchsorted(indptr[:-1], np.arange(items, max(indptr[-1], 1), items), side="left")
    starts = np.unique(np.concatenate(([0], inner, [n_rows]))).astype(np.int64)
    layout = CsrLayout(parts[0], parts[1], parts[2], n_features, int(np.diff(indptr).max(initial=0)), items)
    return layout, n_rows, starts


def _dense_starts(X: zarr.Array[Any]) -> I64:
    """Whole Zarr chunks together, up to CHUNK_BYTES."""
    chunk_bytes = max(1, X.chunks[0] * X.shape[1] * 4)
    step = X.chunks[0] * max(1, CHUNK_BYTES // chunk_bytes)
    return np.append(np.arange(0, X.shape[0], step), X.shape[0]).astype(np.int64)


def _read_labels(path: str, group: zarr.Group, label: str, n_rows: int) -> tuple[StoredArray, np.ndarray]:
    """Codes (in memory: 4 bytes a row) and classes of a column of obs: those that occur, sorted."""
    try:
        column = group[f"obs/{label}"]
    except KeyError:
        there = ", ".join(sorted(group["obs"])) or "none"  # type: ignore[arg-type]
        raise InputError(f"{path}: no column {label!r} in obs; there are {there}") from None
    values, codes = _decode(column, f"{path}/obs/{label}")
    if len(codes) != n_rows:
        raise InputError(f"{path}/obs/{label}: {len(codes)} rows, but X has {n_rows}")
    if codes.min() < 0:
        raise InputError(f"{path}/obs/{label}: row {int(codes.argmin()) + 1} (counted from 1) has no label")
    used, codes = np.unique(codes, return_inverse=True)
    classes, rank = np.unique(values[used], return_inverse=True)
    stored = zarr.array(rank[codes].astype(np.int32), chunks=(min(n_rows, 1 << 20),))
    return StoredArray(stored, "y", None), classes


def _decode(column: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Different values of a column, and which of them each row has: -1 for none."""
    if isinstance(column, zarr.Array):
        values, codes = np.unique(_plain(column[:]), return_inverse=True)
        missing = np.isnan(values)[codes] if values.dtype.kind == "f" else False
        return values, np.where(missing, -1, codes)
    if "codes" in column:
        return _plain(column["categories"][:]), np.asarray(column["codes"][:])
    if "mask" in column:
        values, codes = np.unique(_plain(column["values"][:]), return_inverse=True)
        return values, np.where(column["mask"][:], -1, codes)
    raise InputError(f"{name}: encoding {column.attrs.get('encoding-type')!r} cannot be read as labels")


def _plain(values: Any) -> np.ndarray:
    """Texts as NumPy's own, whichever way Zarr decodes them."""
    return np.array(values.tolist(), str) if values.dtype.kind in "OTSU" else np.asarray(values)
