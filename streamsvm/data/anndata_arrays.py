"""Arrays of AnnData files, read whole or in part, and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from streamsvm.errors import InputError, say_count
from streamsvm.numeric.rows import I64

WHOLE = slice(None)


def read_shape(path: str, X: zarr.Group) -> tuple[int, int]:
    """Return the numbers of rows and features that AnnData notes. Raises InputError if they are no such numbers."""
    shape = X.attrs.get("shape")
    match shape:
        case [int(n_rows), int(n_features)] if 0 <= n_rows < 1 << 53 and 0 <= n_features < 1 << 31:
            return n_rows, n_features
    raise InputError(f"{path}/X: its shape is {shape!r}; rows and features are expected")


def read_indptr(path: str, array: zarr.Array[Any], n_rows: int, n_data: int, n_indices: int) -> I64:
    """Return the limits of the rows. Raises InputError unless they ascend from 0 to the number of items."""
    if array.shape != (n_rows + 1,):
        raise InputError(f"{path}/X: indptr is for {say_count(array.shape[0] - 1, 'row')}, the shape says {n_rows:,}")
    indptr = read_values(array, f"{path}/X/indptr").astype(np.int64)
    if n_data != n_indices or indptr[0] != 0 or indptr[-1] != n_data or indptr.min() < 0 or np.any(np.diff(indptr) < 0):
        raise InputError(
            f"{path}/X: its row limits do not ascend from 0 to its items, of which there are {n_data} in data and "
            f"{n_indices} in indices"
        )
    return indptr


def read_values(array: zarr.Array[Any], name: str, part: slice = WHOLE) -> np.ndarray:
    """Return the values of a part of an array along its first axis; InputError if they cannot be decoded."""
    try:
        return np.asarray(array[part])
    except (ValueError, TypeError, OSError, RuntimeError, MemoryError, LookupError) as error:
        raise InputError(f"{name}: cannot be decoded: {error}") from error
