"""Sets of labels: a bit for each label of each row, the first label in the lowest bit of the first byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
COUNTED_ROWS = 4096  # rows whose bits are unpacked at a time


def count_bytes(n_labels: int) -> int:
    """Return the bytes of a row's set."""
    return -(-n_labels // 8)


def pack_sets(has: Any) -> Bits:
    """Return an indicator matrix (n, L) as bits, (n, L/8)."""
    return np.packbits(has, axis=1, bitorder="little")


def unpack_sets(bits: Bits, n_labels: int) -> Flags:
    """Return bits as an indicator matrix, (n, L)."""
    return np.unpackbits(bits, axis=1, count=n_labels, bitorder="little").view(np.bool_)


def find_label(bits: Bits, code: int) -> Flags:
    """Return which rows have a label, (n,)."""
    found: Flags = (bits[:, code // 8] >> (code % 8) & 1).astype(np.bool_)
    return found


def pick_labels(bits: Bits, places: npt.NDArray[Any]) -> Flags:
    """Return the indicator matrix of the labels at these places, (n, k); no row has a label whose place is -1."""
    if not len(places):
        return np.zeros((len(bits), 0), np.bool_)
    found = np.where(places >= 0, bits[:, places // 8] >> (places % 8).astype(np.uint8) & 1, 0)
    return found.astype(np.bool_)


def sum_labels(bits: Bits, n_labels: int, weight: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
    """Return the sum of the weights (None: the number) of the rows that have each label, (L,)."""
    total = np.zeros(n_labels)
    for at in range(0, len(bits), COUNTED_ROWS):
        has = unpack_sets(bits[at : at + COUNTED_ROWS], n_labels)
        total += np.sum(has, axis=0) if weight is None else weight[at : at + COUNTED_ROWS] @ has
    return total
