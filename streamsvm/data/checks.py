"""Checks of values before compiled code computes with them, even if their checksums are right.

A manifest proves that a dataset is as somebody wrote it, but not that streamsvm wrote it.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.data.store import Array
from streamsvm.errors import InputError, IntegrityError

VECTORS = {  # beside the features
    "y": "int32",
    "sample_weight": "float64",
    "qid": "int64",
    "target": "float64",
    "groups": "int64",
    "label_sets": "uint8",
}
LARGEST_TARGET = 1e100  # The sum of squares of such targets is still finite in float64.


def check_targets(values: Array, name: str) -> None:
    """Raise InputError, which names the rows, for a target whose square is too large to compute with."""
    if len(values) and not (largest := float(np.max(np.abs(values)))) <= LARGEST_TARGET:
        raise InputError(f"{name}: a target is {largest:.1e} in size; at most {LARGEST_TARGET:.0e} is possible")


def are_finite(values: Array) -> bool:
    """Tell whether no value is NaN or infinite.

    A sum is not finite if one of its terms is not. A sum of finite terms may overflow, too, so the terms are looked at
    if the sum is not finite. `einsum` adds faster than `isfinite` looks, in one thread and without warnings.
    """
    return math.isfinite(np.einsum("i->", values.reshape(-1))) or bool(np.isfinite(values).all())


def check_vector(name: str, values: Array, n_classes: int, place: str) -> None:
    """Raise IntegrityError, which names `place`, for codes that are no classes, and unsuitable weights and targets."""
    if not len(values):
        return
    if name == "label_sets":
        if n_classes % 8 and (values[:, -1] >> (n_classes % 8)).any():
            raise IntegrityError(f"{place}: a label is not one of 0..{n_classes - 1}: the chunk is damaged")
        return
    low, high = values.min(), values.max()
    if name == "y" and not 0 <= low <= high < n_classes:
        wrong = low if low < 0 else high
        raise IntegrityError(f"{place}: the class code {wrong} is not one of 0..{n_classes - 1}: the chunk is damaged")
    if name == "sample_weight" and not 0 <= low <= high < np.inf:
        raise IntegrityError(f"{place}: a weight is negative, infinite or no number: the chunk is damaged")
    if name == "target" and not -np.inf < low <= high < np.inf:
        raise IntegrityError(f"{place}: a target is infinite or no number: the chunk is damaged")
