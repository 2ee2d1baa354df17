"""Steps of primal-dual interior-point methods: their lengths, and the limit of Mehrotra's second-order products.

A point is a tuple of arrays, and a direction holds their changes in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from streamsvm.numeric.rows import F64

Point = TypeVar("Point", bound=tuple[F64, ...])
BOUNDARY_SHARE = 0.995  # a step goes this share of the way to the boundary
MOST_SECOND_ORDER = 3.0  # the largest second-order product of the corrector, in units of mu


def find_length(values: Sequence[F64], changes: Sequence[F64]) -> float:
    """Return the longest step length, at most 1, that keeps all values, which are positive, at 0 or above."""
    fastest = max(float(np.max(-change / value)) for value, change in zip(values, changes, strict=True))
    return min(1.0, 1.0 / fastest) if fastest > 0 else 1.0


def move(point: Point, direction: Point, length: float) -> Point:
    """Return point + length * direction; both are named tuples of one type."""
    make: Any = type(point)
    moved: Point = make(*(old + length * change for old, change in zip(point, direction, strict=True)))
    return moved
