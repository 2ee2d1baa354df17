"""Types of fewer bytes in which rows are stored, and which become float32 as they are read.

NumPy has no bfloat16, which is the upper half of a float32: its bits are stored as uint16.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamsvm.numeric.compilation import load_or_compile_here
from streamsvm.numeric.rows import F32

STORED_AS = {"float32": "float32", "float16": "float16", "bfloat16": "uint16", "int8": "int8"}
Stored = npt.NDArray[Any]

with np.errstate(invalid="ignore"):  # of bits that are no number
    _WIDE: F32 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)  # by the bits of a float16


def narrow(X: F32, dtype: str) -> Stored:
    """Return float32 values as they are stored. Values that are none of the type become others near them."""
    if dtype == "bfloat16":
        return (np.ascontiguousarray(X).view(np.uint32) >> 16).astype(np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        return X.astype(STORED_AS[dtype])


def widen(stored: Stored, wide: F32) -> None:
    """Fill `wide` with the values that are stored, each exactly. uint16 holds the bits of a bfloat16."""
    if stored.dtype == np.float16:  # NumPy's conversion takes five times as long
        look_up(stored.reshape(-1).view(np.uint16), _WIDE, wide.reshape(-1))
    elif stored.dtype == np.uint16:
        np.left_shift(stored, 16, out=wide.view(np.uint32), dtype=np.uint32)
    else:
        wide[:] = stored


def widen_bits(bits: Stored) -> F32:
    """Return the values of bfloat16 whose bits are given, two bytes each: uint16, or no type of NumPy (V2)."""
    wide = np.empty(bits.shape, np.float32)
    widen(np.ascontiguousarray(bits).view(np.uint16), wide)
    return wide


@lru_cache
def load_widening(dtype: str) -> None:
    """Load what widens a type from numba's cache, or compile it, before a pass does; only float16 needs it."""
    if dtype == "float16":
        load_or_compile_here("float16", lambda _: widen(np.zeros(1, np.float16), np.zeros(1, np.float32)))


@njit(cache=True, nogil=True)
def look_up(places: npt.NDArray[np.uint16], table: F32, found: F32) -> None:
    """Fill `found` with the entries of a table of 65,536 numbers."""
    for i in range(places.size):
        found[i] = table[places[i]]
