"""Sums of alpha_i x_i and of alpha_i by class, in twice the precision: for bounds that float64 cannot give.

A multiplier in two parts times a float32 number is exact, and sums are pairs of numbers (numeric.rounding). Each part
is added to the pair on its own, so 2 n additions lose at most 4 n u^2 of the sizes of the terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rounding import UNIT, add_pairs, add_to_pair, bound_rounding, split_for_float32
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, split


@dataclass
class ExactSums:
    """Pairs: totals and rests (2, d + 1) by class, of alpha_i x_i, and of alpha_i in the last column; rows."""

    totals: F64
    rests: F64
    n_rows: int = 0

    def balance(self) -> tuple[float, F64]:
        """Return l and v (d,): the smaller one of the sums of alpha, and the combination of rows that goes with it.

            v = l / l_+ sum_{y_i > 0} alpha_i x_i - l / l_- sum_{y_i < 0} alpha_i x_i

        Both are rounded once: what is between is computed with fractions.
        """
        if not np.isfinite(self.totals + self.rests).all():
            return 0.0, np.zeros(self.totals.shape[1] - 1)
        (*down, sum_down), (*up, sum_up) = (
            [Fraction(total) + Fraction(rest) for total, rest in zip(*pairs, strict=True)]
            for pairs in zip(self.totals.tolist(), self.rests.tolist(), strict=True)
        )
        lighter = min(sum_up, sum_down)
        if lighter <= 0:
            return 0.0, np.zeros(len(up))
        p, q = lighter / sum_up, lighter / sum_down
        return float(lighter), np.array([float(p * a - q * b) for a, b in zip(up, down, strict=True)])

    @property
    def share(self) -> float:
        """How far a sum of pairs can be off, as a share of the sum of its terms' magnitudes."""
        return bound_rounding(4.0 * (self.n_rows + 8), 1.0) * UNIT


def start_exact_sums(n_features: int) -> ExactSums:
    """Return the sums of no rows."""
    return ExactSums(np.zeros((2, n_features + 1)), np.zeros((2, n_features + 1)))


def add_exact_sums(sums: ExactSums, rows: Rows, alpha: F64) -> None:
    """Add rows; alpha: theirs."""
    assert rows.y is not None
    high, low = split_for_float32(alpha)
    _add_exact_sums(*split(rows.X), rows.y, high, low, sums.totals, sums.rests)
    sums.n_rows += rows.n_rows


def combine_exact_sums(left: ExactSums, right: ExactSums) -> ExactSums:
    """Return the sum."""
    return ExactSums(*add_pairs(left.totals, left.rests, right.totals, right.rests), left.n_rows + right.n_rows)


@njit(cache=True, nogil=True)
def _add_exact_sums(
    values: F32, indices: I32, indptr: I64, y: I32, high: F64, low: F64, totals: F64, rests: F64
) -> None:
    width = totals.shape[1] - 1
    for i in range(y.size):
        total, rest, a, b = totals[y[i]], rests[y[i]], high[i], low[i]
        if values.ndim == 2:
            for j in range(width):
                _add_twice(total, rest, j, a, b, np.float64(values[i, j]))
        else:
            for e in range(indptr[i], indptr[i + 1]):
                _add_twice(total, rest, indices[e], a, b, np.float64(values[e]))
        _add_twice(total, rest, width, a, b, 1.0)


@register_jitable
def _add_twice(total: F64, rest: F64, j: int, a: float, b: float, x: float) -> None:
    """Add a x and b x to the pair (total_j, rest_j)."""
    total[j], rest[j] = add_to_pair(total[j], rest[j], a * x)
    total[j], rest[j] = add_to_pair(total[j], rest[j], b * x)
