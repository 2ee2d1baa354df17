"""Multipliers are returned to the plane sum_i y_i a_i = 0 after rounding has moved them off it."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.numeric.rounding import sum_exactly
from streamsvm.numeric.rows import F64

MOST_CORRECTIONS = 3


def restore_balance(y: F64, alpha: F64, costs: F64, others: F64) -> None:
    """Change single multipliers in place, between 0 and C_i, until sum y_i a_i + sum others is no more than rounding.

    `others` holds the terms y_j a_j of rows that are not in `alpha`. The sum is exact (math.fsum). The multiplier with
    the most room takes all of the correction, and a free one (0 < a_i < C_i) comes before the others: the correction is
    its smallest share there, and rows of small multipliers may have kernel values that are larger by any factor.
    """
    least_excess = math.inf
    for _ in range(MOST_CORRECTIONS):
        total = sum_exactly(y * alpha, others)
        if not 0.0 < abs(total) < least_excess:
            return
        least_excess = abs(total)
        rises = y * total < 0
        room = np.where(rises, costs - alpha, alpha)
        free_room = np.where((alpha > 0) & (alpha < costs), np.minimum(alpha, costs - alpha), 0.0)
        row = int(np.argmax(free_room if np.max(free_room, initial=0.0) > least_excess else room))
        alpha[row] = min(max(alpha[row] + (least_excess if rises[row] else -least_excess), 0.0), costs[row])
