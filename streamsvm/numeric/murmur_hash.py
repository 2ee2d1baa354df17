"""MurmurHash3 of texts, 32 bits on x86, by which columns of text become features without a list of their values.

It is the hash of scikit-learn's FeatureHasher: a text is the bytes "COLUMN=VALUE" in UTF-8, its feature is the absolute
value of its hash modulo the number of features, and the sign of its hash is the sign of its value 1. Since signs
differ, the products of two rows are right on average, collisions included.

Source: A. Appleby, MurmurHash3_x86_32 (public domain); K. Weinberger and others, "Feature Hashing for Large Scale
Multitask Learning", ICML 2009.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]

FIRST, SECOND = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
FIVE, ADDED = np.uint32(5), np.uint32(0xE6546B64)
MIXES = (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))


@njit(cache=True, nogil=True)
def hash_texts(prefix: U8, text: U8, limits: I32, seed: int) -> I32:
    """Return the hash of `prefix` + text[limits[i]:limits[i + 1]] for each i, signed."""
    n = limits.size - 1
    found, most = np.empty(n, np.int32), 0
    for i in range(n):
        most = max(most, limits[i + 1] - limits[i])
    key = np.empty(prefix.size + most, np.uint8)
    key[: prefix.size] = prefix
    for i in range(n):
        size = prefix.size + limits[i + 1] - limits[i]
        key[prefix.size : size] = text[limits[i] : limits[i + 1]]
        found[i] = np.int32(hash_bytes(key, size, seed))
    return found


@njit(cache=True, nogil=True)
def hash_bytes(key: U8, size: int, seed: int) -> np.uint32:
    """Return the hash of the first `size` bytes of a key."""
    state = np.uint32(seed)
    for at in range(0, size - 3, 4):
        block = np.uint32(key[at]) | np.uint32(key[at + 1]) << np.uint32(8)
        block |= np.uint32(key[at + 2]) << np.uint32(16) | np.uint32(key[at + 3]) << np.uint32(24)
        state = np.uint32(state ^ _scramble(np.uint32(block)))
        state = np.uint32(_rotate(state, 13) * FIVE + ADDED)
    tail = np.uint32(0)
    for k in range(size % 4):
        tail |= np.uint32(key[size - size % 4 + k]) << np.uint32(8 * k)
    state = np.uint32(state ^ _scramble(np.uint32(tail)) ^ np.uint32(size))
    state = np.uint32((state ^ (state >> np.uint32(16))) * MIXES[0])
    state = np.uint32((state ^ (state >> np.uint32(13))) * MIXES[1])
    return np.uint32(state ^ (state >> np.uint32(16)))


@njit(cache=True, nogil=True, inline="always")
def _scramble(block: np.uint32) -> np.uint32:
    return np.uint32(_rotate(np.uint32(block * FIRST), 15) * SECOND)


@njit(cache=True, nogil=True, inline="always")
def _rotate(value: np.uint32, bits: int) -> np.uint32:
    return np.uint32((value << np.uint32(bits)) | (value >> np.uint32(32 - bits)))
