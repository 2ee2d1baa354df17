"""Consecutive rows of arrays of all kinds, a few at a time, so that an array that lies elsewhere is never held whole.

Arrays of Zarr and HDF5 are read in whole chunks, since a part of a chunk costs as much as all of it. Dask computes a
partition after the other (data.dask_pieces).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from streamsvm.errors import InputError

Vector = npt.NDArray[Any]
ITEM_BYTES = 8  # of a value while it is converted: a float64, or a float32 and its int32 index
STORED = ("zarr", "h5py")  # the packages whose arrays lie in files, and are read where they are sliced
NUMBERS = ("X", "sample_weight")  # what holds numbers only
BACKED = ("anndata", "h5py", "zarr")


def comes_from(value: object, *packages: str) -> bool:
    """Tell whether a value's class, or one of its base classes, is defined in a package; nothing is imported."""
    return any(cls.__module__.partition(".")[0] in packages for cls in type(value).__mro__)


def is_sparse(value: object) -> bool:
    """Whether a value is a SciPy sparse matrix or array."""
    return bool(issparse(value))


def is_stored(values: object) -> bool:
    """Tell whether an array lies in a file and is read where it is sliced: of Zarr, of h5py, or AnnData's."""
    return comes_from(values, *STORED) or is_backed(values)


def is_backed(values: object) -> bool:
    """Tell whether a value is AnnData's sparse matrix in a file."""
    return comes_from(values, "anndata") and hasattr(values, "group") and hasattr(values, "format")


def is_tensor(values: object) -> bool:
    """Tell whether a value is a tensor of PyTorch."""
    return comes_from(values, "torch") and hasattr(values, "detach")


def refuse_lazy(source: Any, name: str = "X") -> None:
    """Raise InputError for a frame of polars whose rows are not there yet."""
    if comes_from(source, "polars") and type(source).__name__ == "LazyFrame":
        given = name.partition(",")[0]
        raise InputError(
            f"{name}: a LazyFrame has no rows yet: give {given}.collect(), or the file that {given}.sink_parquet writes"
        )


def refuse_unsuitable(**given: Any) -> None:
    """Raise InputError for masked values, which are missing, and for features and weights that are times.

    given: the values by their name. NumPy would take times for numbers.
    """
    for name, values in given.items():
        if np.ma.is_masked(values):
            raise InputError(f"{name}: has masked (missing) values: fill them in, or leave their rows out")
        is_frame = comes_from(values, "pandas") and values.ndim > 1
        for dtype in values.dtypes if is_frame else [getattr(values, "dtype", None)]:
            if name in NUMBERS and getattr(dtype, "kind", "") in ("m", "M"):
                raise InputError(f"{name}: {dtype} is not a number: divide by a unit of time")


def find_pieces(where: str, values: Any, piece_bytes: int) -> Iterator[Any]:
    """Yield consecutive rows of an array, in order. The pieces of an array in memory are views."""
    if comes_from(values, "dask"):
        from streamsvm.data.dask_pieces import Partitions

        yield from read_partitions(where, Partitions([values])[0], piece_bytes)
        return
    if is_sparse(values):
        values = values.tocsr()
        yield from (values[start:stop] for start, stop in cut_rows(values.indptr, piece_bytes))
        return
    refuse_unsuitable(**{where: values})
    n_piece = max(1, piece_bytes // (ITEM_BYTES * _count_items(values)))
    if is_stored(values):
        for start, stop in _cut_chunks(values, n_piece):
            yield from find_pieces(where, _read(values, start, stop), piece_bytes)
        return
    for start in range(0, values.shape[0], n_piece):
        yield to_numpy(getattr(values, "iloc", values)[start : start + n_piece])


def read_partitions(where: str, computes: Iterable[Callable[[], Any]], piece_bytes: int) -> Iterator[Any]:
    """Yield consecutive rows of partitions. computes: functions that each return a partition."""
    for compute in computes:  # nothing here holds a partition while the next one is computed
        yield from find_pieces(where, compute(), piece_bytes)


def _count_items(values: Any) -> int:
    """Return about how many values a row has."""
    if is_backed(values):
        return -(-int(values.group["data"].shape[0]) // max(1, int(values.shape[0])))
    return max(1, int(math.prod(values.shape[1:])))


def _cut_chunks(values: Any, n_piece: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of the rows of a stored array: whole chunks, about n_piece rows, or one chunk."""
    chunk = (getattr(values, "chunks", None) or (1,))[0]
    step = chunk * max(1, n_piece // chunk)
    yield from ((start, min(start + step, values.shape[0])) for start in range(0, values.shape[0], step))


def _read(values: Any, start: int, stop: int) -> Any:
    """Return the rows start:stop of a stored array, in memory. Texts of HDF5 become str."""
    if comes_from(values, "h5py") and values.dtype.kind == "O":
        return values.asstr()[start:stop]
    return values[start:stop]


def cut_rows(indptr: Vector, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of CSR rows of about `piece_bytes`; each has at least one row."""
    start, n_rows, n_items = 0, len(indptr) - 1, max(1, piece_bytes // ITEM_BYTES)
    while start < n_rows:
        most = min(int(indptr[start]) + n_items, int(indptr[-1]))
        fitting = int(np.searchsorted(indptr, indptr.dtype.type(most), "right")) - 1
        stop = min(max(fitting, start + 1), start + n_items, n_rows)
        yield start, stop
        start = stop


def to_numpy(values: Any) -> Vector:
    """Return rows in memory as an array. A tensor is copied from its device, and its gradient is left out.

    Of a pandas object: objects if some are, so that messages can show a bad one, else float64.
    """
    if is_tensor(values):
        values = values.detach().cpu()
        return np.asarray((values.float() if "bfloat16" in str(values.dtype) else values).numpy())
    if not hasattr(values, "to_numpy"):
        found: Vector = np.asarray(values)
        if found.dtype.kind == "T":  # NumPy's StringDType, which few functions know
            return found.astype(object)
        return found.astype(np.float32) if found.dtype.name == "bfloat16" else found  # a type of ml_dtypes
    if values.ndim == 1 or any(dtype.kind == "O" for dtype in values.dtypes):
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
