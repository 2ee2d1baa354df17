"""What the layouts of the features on disk have in common: dense rows (dense_layout) and sparse rows (csr_layout)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from streamsvm.data.checks import are_finite
from streamsvm.data.store import Array, StoredArray
from streamsvm.errors import InputError, IntegrityError
from streamsvm.numeric.rows import F32, I64, Matrix


class Layout(Protocol):
    """The features of a dataset, read by rows. Rows are numbered over the whole dataset."""

    n_features: int
    nbytes: int
    dtype: str
    streams: bool
    arrays: tuple[StoredArray, ...]

    def read(self, start: int, stop: int) -> Matrix:
        """Return the rows start:stop, verified, in memory of their own."""

    def tiles(self, index: int, start: int, stop: int) -> Iterator[Matrix]:
        """Yield the rows start:stop of chunk `index` in verified tiles. The next tile uses the same memory again."""

    def take(self, rows: I64) -> Matrix:
        """Return the rows with the given numbers, which ascend, in memory of their own."""

    def chunk_bytes(self, index: int, chunk_rows: int) -> int:
        """Return the most bytes that chunk `index`, of `chunk_rows` rows, takes in memory."""

    def stream_bytes(self, chunk_rows: int) -> int:
        """Return the bytes that streaming a chunk of `chunk_rows` rows takes."""

    def advise(self, index: int, start: int, stop: int) -> None:
        """Begin to read the rows start:stop of chunk `index`, which this thread will read soon."""


def as_float32(part: StoredArray, values: Array) -> F32:
    """Return the values as float32.

    Raises IntegrityError if some of them are not finite, or InputError if `ingest` has not checked the array.
    """
    with np.errstate(over="ignore"):
        converted: F32 = np.ascontiguousarray(values, dtype=np.float32)
    if not are_finite(converted):
        kind = InputError if part.checksums is None else IntegrityError
        raise kind(f"{part.place}: contains NaN, infinity or a value too large for float32")
    return converted


def check_finite(part: StoredArray, values: F32, first: int) -> None:
    """Raise IntegrityError, which names the chunk, if a value is not finite. `first` is the first row of the values."""
    if not are_finite(values):
        row = first + int(np.argmin(np.isfinite(values))) // part.row_items
        raise IntegrityError(f"{part.describe(row // part.chunk_rows)}: contains NaN or infinity: the chunk is damaged")
