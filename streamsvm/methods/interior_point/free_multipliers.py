"""Multipliers between their bounds are corrected until their rows make up w: for bounds that the path cannot give.

    v = sum_i alpha_i y_i x_i,   delta = argmin |w - v - sum_{i in F} delta_i y_i x_i|   where y'(alpha + delta) = 0

A step knows alpha to some units in the last place. Where rows are long and |w| is short, as with features far from
the origin, v is then far off w, and D of alpha far below P, however near to the optimum both points are. F holds
the rows whose multipliers are far from their bounds. The corrections are never added to alpha, which would round them:
they are summed up apart, in twice the precision. For the same reason each correction is returned as a pair of numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq

from streamsvm.methods.interior_point.steps import Point, find_omega, unwarned
from streamsvm.numeric.exact_sums import (
    ExactSums,
    add_exact_sums,
    combine_exact_sums,
    start_exact_sums,
)
from streamsvm.numeric.rounding import add_pairs
from streamsvm.numeric.rows import F64, I64, CsrRows, Rows, to_dense

MOST_FREE_ROWS = 512  # of them a matrix of 20 MB at most, where there are 5,000 features
MOST_CORRECTIONS = 20  # each of what the last has left; one goes half of the way to a bound at most
PATIENCE = 3  # corrections that have not mended half of what was lacking: rounding, or bounds, are met


class Corrected(NamedTuple):
    """Sums of all alpha, and what was added to the multipliers of the free rows.

    corrections (k, 2): a pair of numbers for each free row; their sum is its correction in twice the precision.
    magnitude: the sum of the magnitudes of all steps that led there.
    """

    sums: ExactSums
    corrections: F64
    magnitude: float


def choose_free_rows(point: Point, costs: F64) -> I64:
    """Return the rows of the largest weights C / omega, ascending: their multipliers are far from both bounds."""
    number = min(len(costs), MOST_FREE_ROWS)
    return np.sort(np.argsort(-costs / find_omega(point), kind="stable")[:number])


@unwarned
def correct_sums(sums: ExactSums, rows: Rows, w: F64, alpha: F64, highest: F64) -> Corrected:
    """Return the sums of all alpha, the multipliers of `rows` being corrected, and the corrections.

    sums: of all rows; alpha, highest (k,): multipliers of `rows`, and what they may be at most. All stay within bounds.
    """
    X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X
    length, n_features = float(np.max(np.abs(X), initial=0.0)) or 1.0, len(w)
    room = np.maximum(np.minimum(alpha, highest - alpha), 0.0)
    y = np.where(rows.y == 1, 1.0, -1.0)
    columns = (y * room)[:, None] * np.column_stack((X.astype(np.float64), np.full(len(alpha), length)))
    moved, rest, magnitude = np.zeros(len(alpha)), np.zeros(len(alpha)), 0.0
    best, least, idle = Corrected(sums, np.zeros((len(alpha), 2)), magnitude), np.inf, 0
    if not np.isfinite(columns).all():
        return best
    for _ in range(MOST_CORRECTIONS):
        made_of, balance = _subtract_classes(sums)
        lacking = np.append(w - made_of, -length * balance)
        size = float(np.linalg.norm(lacking))
        idle = 0 if size <= least / 2 else idle + 1
        if idle > PATIENCE or not np.isfinite(size):
            break
        if size < least:
            best, least = Corrected(sums, np.stack((moved, rest), axis=1), magnitude), size
        found = lstsq(columns.T, lacking, check_finite=False, lapack_driver="gelsy")[0]
        at = alpha + moved
        change = np.clip(room * found, -at / 2, np.maximum(highest - at, 0.0) / 2)
        own = start_exact_sums(n_features)
        add_exact_sums(own, rows, change)
        sums = combine_exact_sums(sums, own)
        moved, rest = add_pairs(moved, rest, change, np.zeros(len(alpha)))
        magnitude += float(np.sum(np.abs(change)))
    return best


def _subtract_classes(sums: ExactSums) -> tuple[F64, float]:
    """Return sum alpha_i y_i x_i and y'alpha, rounded once."""
    total, rest = add_pairs(sums.totals[1], sums.rests[1], -sums.totals[0], -sums.rests[0])
    difference = total + rest
    return difference[:-1], float(difference[-1])
