"""The search of Wang, Crammer and Vucetic 2012 for the best merge, which the solver computes from a table."""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.solvers.budgeted_sgd.maintenance import solve_share, weigh_share

GOLDEN_RATIO = 0.6180339887498949


@njit(cache=True, nogil=True)
def search_share(ratio: float, separation: float) -> float:
    """Return the best u to about 1e-8 of its range, by the golden section of Wang et al. 2012: the reference."""
    if separation == 0.0:
        return float(solve_share(ratio, separation))
    low, high = (0.0, 0.5) if ratio >= 0.0 else (-1.0 / np.sqrt(2.0 * separation), 0.0)
    left, right = high - GOLDEN_RATIO * (high - low), low + GOLDEN_RATIO * (high - low)
    f_left, f_right = weigh_share(ratio, separation, left)[0], weigh_share(ratio, separation, right)[0]
    for _ in range(60):
        if f_left >= f_right:
            high, right, f_right = right, left, f_left
            left = high - GOLDEN_RATIO * (high - low)
            f_left = weigh_share(ratio, separation, left)[0]
        else:
            low, left, f_left = left, right, f_right
            right = low + GOLDEN_RATIO * (high - low)
            f_right = weigh_share(ratio, separation, right)[0]
    return 0.5 * (low + high)
