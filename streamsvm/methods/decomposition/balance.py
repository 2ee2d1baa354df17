"""Multipliers are put back on the plane sum_i y_i a_i = 0, from which rounding takes them."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.numeric.rows import F64

ATTEMPTS = 3


def restore_balance(y: F64, alpha: F64, costs: F64, others: F64) -> None:
    """Change single multipliers in place, within 0 and their costs, until the sum of y a and of `others` is rounding.

    The sum is exact (math.fsum). What it is goes to the multiplier with most room, a free one if there is one: there it
    does least, as rows of small multipliers may have kernel values that are larger by any factor.
    """
    rest = others.tolist()
    best = math.inf
    for _ in range(ATTEMPTS):
        total = math.fsum([*(y * alpha).tolist(), *rest])
        if not 0.0 < abs(total) < best:
            return
        best = abs(total)
        rises = y * total < 0
        room = np.where(rises, costs - alpha, alpha)
        free = np.where((alpha > 0) & (alpha < costs), np.minimum(alpha, costs - alpha), 0.0)
        row = int(np.argmax(free if np.max(free, initial=0.0) > best else room))
        alpha[row] = min(max(alpha[row] + (best if rises[row] else -best), 0.0), costs[row])
