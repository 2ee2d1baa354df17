"""Kernel columns of the rows of an active set, as many as the memory holds, and the kernel matrices of some rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.kernels import Kernel, compute_kernel, copy_columns
from streamsvm.numeric.rows import I64, Matrix, Values, take_rows

LONG_ROW_BYTES = 2048  # the product of two rows so long takes as much time as a kernel value from the cache


@dataclass
class ColumnCache:
    """Kernel columns of some rows of the active set. The oldest column makes room for the next.

    columns: (slots, m); slot: (m,), the slot of each row's column, or -1; owner: (slots,), the row in each slot, or -1;
    next: the slot that is assigned next.
    """

    columns: Values
    slot: I64
    owner: I64
    next: int = 0

    @classmethod
    def of_size(cls, n_rows: int, limit_bytes: int, dtype: npt.DTypeLike = np.float32) -> ColumnCache:
        """Return an empty cache with as many slots as fit into limit_bytes, at most one for each row."""
        n_slots = min(n_rows, limit_bytes // max(1, np.dtype(dtype).itemsize * n_rows))
        return cls(np.empty((n_slots, n_rows), dtype), np.full(n_rows, -1), np.full(n_slots, -1))

    @classmethod
    def of_all(cls, K: Values) -> ColumnCache:
        """Return a cache that holds the columns of all rows."""
        return cls(K, np.arange(len(K)), np.arange(len(K)))

    def assign(self, rows: I64) -> I64:
        """Assign slots to rows that have none, at most as many rows as there are slots; return the slots."""
        slots = (self.next + np.arange(len(rows))) % len(self.owner)
        self.next = int(slots[-1] + 1)
        evicted = self.owner[slots]
        self.slot[evicted[evicted >= 0]] = -1
        self.owner[slots], self.slot[rows] = rows, slots
        return slots


def form_kernel(kernel: Kernel, X: Matrix, cache: ColumnCache, chosen: I64, threads: int) -> Values:
    """Return K_WW of the chosen rows of X. Columns come from the cache if rows are so long that this is faster."""
    rows_are_long = X.nbytes >= LONG_ROW_BYTES * X.shape[0]
    slots = cache.slot[chosen] if rows_are_long else np.full(len(chosen), -1)
    new = np.flatnonzero(slots < 0)
    K_new = compute_kernel(kernel, take_rows(X, chosen[new]), threads)
    if len(new) == len(chosen):
        return K_new
    K: Values = np.empty((len(chosen), len(chosen)), K_new.dtype)
    K[np.ix_(new, new)] = K_new
    copy_columns(cache.columns, slots, chosen, K, threads)
    return K


def scale(K: Values, factor: float) -> Values:
    """Multiply K by the factor in place, in its own precision, and return it."""
    return K if factor == 1.0 else np.multiply(K, K.dtype.type(factor), out=K)
