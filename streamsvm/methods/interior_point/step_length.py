"""The length of a step of the interior-point method, chosen while X dw is known for some rows only.

    length = min(1, 0.995 min_i ratio_i),   ratio_i = the step at which a variable of row i becomes 0

This is the step rule of Jung, O'Leary & Tits 2008 (Algorithm 1). After the pass `predict` (interior_point.solver), all
of X dw is known but for the corrector's own part, which is guessed. The critical rows, whose ratios are the smallest by
this guess, are taken from storage, and their X dw is computed. They are a hundredth of the rows (at least 64, at most
2,048), and the row that bounds the step is nearly always one of them.

In many steps, one or two rows bound the step far below the length that all other rows allow. So we let the step pass
over one row in 3,000 if this makes it at most 1.2 times as long. These rows, and rows that the guess missed, go only
0.995 of their own way to the boundary (steps.move_inside), and the next step reduces the residuals that this leaves.
(LETTER takes 29 iterations, and 33 if no row is passed over. With ten times as many rows, or without a limit of the
length, some problems do not converge.) Where a missed row can go less than half of the step, the step is made again
with a length that leaves all rows inside.
"""

from __future__ import annotations

import numpy as np

from streamsvm.methods.interior_point.steps import BOUNDARY
from streamsvm.numeric.rows import F64

CRITICAL_SHARE, LEAST_CRITICAL_ROWS, MOST_CRITICAL_ROWS = 100, 64, 2048  # One row in CRITICAL_SHARE is critical.
PASSED_OVER_SHARE, MOST_BEYOND = 3000, 1.2  # One row in so many may be passed over.
MOST_MISSED = 2.0  # A step more than so many times as long as the shortest ratio of all rows is made again.


def count_critical(n_rows: int) -> int:
    """Return how many rows are critical: those with the smallest ratios (steps.find_ratios)."""
    return min(n_rows, max(LEAST_CRITICAL_ROWS, min(n_rows // CRITICAL_SHARE, MOST_CRITICAL_ROWS)))


def choose_length(ratios: F64, n_rows: int) -> float:
    """Return the length of the step, at most 1, from the ratios of the critical rows among n_rows rows."""
    ordered = np.sort(ratios)
    passed_over = min(n_rows // PASSED_OVER_SHARE, len(ordered) - 1)
    return min(1.0, BOUNDARY * float(min(ordered[passed_over], MOST_BEYOND * ordered[0])))


def mend_length(length: float, longest: float) -> float:
    """Return the length if it is short enough for `longest`, the smallest ratio; else one that leaves all inside."""
    return length if length <= MOST_MISSED * longest else min(1.0, BOUNDARY * longest)
