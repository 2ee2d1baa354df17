"""Corrections of the multipliers between their bounds, for lower bounds that the central path alone cannot prove.

    v = sum_i alpha_i y_i x_i,   delta = argmin |w - v - sum_{i in F} delta_i y_i x_i|   where y'(alpha + delta) = 0

At the optimum, v = w (Jung, O'Leary & Tits 2008, (3.1)). A step knows alpha to some units in the last place only. Where
rows are long and |w| is short, as with features far from the origin, v then differs much from w, and D of alpha is far
below P, however near to the optimum both points are. So the multipliers of the rows F, which are far from their bounds,
are corrected by delta until v is w. The corrections are never added to alpha, because the sum would be rounded. They
are summed up apart, in twice the precision, and each of them is returned as a pair of numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq

from streamsvm.methods.interior_point.steps import unwarned
from streamsvm.numeric.exact_sums import (
    ExactSums,
    add_exact_sums,
    combine_exact_sums,
    start_exact_sums,
)
from streamsvm.numeric.rounding import add_pairs
from streamsvm.numeric.rows import F64, CsrRows, Rows, to_dense

MOST_FREE_ROWS = 512  # Their matrix has 20 MB at most, where there are 5,000 features.
MOST_CORRECTIONS = 20  # Each corrects what the last one has left, and goes half of the way to a bound at most.
PATIENCE = 3  # After so many corrections that do not halve what is missing, rounding or the bounds are the limit.


class Corrected(NamedTuple):
    """The sums over all rows after the correction, and the corrections of the free rows.

    corrections (k, 2): a pair of numbers for each free row; the sum of the pair is the correction in twice the
    precision. magnitude: the sum of the magnitudes of all corrections, including those that later ones took back.
    """

    sums: ExactSums
    corrections: F64
    magnitude: float


@unwarned
def correct_sums(sums: ExactSums, rows: Rows, w: F64, alpha: F64, highest: F64) -> Corrected:
    """Correct the multipliers of `rows` so that v comes near to w; return the corrected sums and the corrections.

    sums: the sums over all rows before. alpha (k,): the multipliers of `rows`. highest (k,): their upper bounds. The
    corrected multipliers stay within 0 and `highest`.
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
    """Return v = sum alpha_i y_i x_i and y'alpha, each rounded only once."""
    total, rest = add_pairs(sums.totals[1], sums.rests[1], -sums.totals[0], -sums.rests[0])
    difference = total + rest
    return difference[:-1], float(difference[-1])
