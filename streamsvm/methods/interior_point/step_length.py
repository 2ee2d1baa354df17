"""How long a step of the interior-point method is, where X dw is known of some rows only.

After `predict` (interior_point.solver) all of X dw is known but for the corrector's own part, which is guessed. The
rows that this guess bounds most are taken, a hundredth at most, and their X dw is computed: nearly always the row that
bounds the step is one of them.

In many steps it is a row, or two, that bounds it far below what all others allow. So 3 rows of 10,000 may be passed
over if that makes the step no more than 1.2 times as long: they, and rows that the guess missed, go 0.995 of their own
way only (interior_point.move_inside), and their residuals are left to the next step (LETTER: 29 iterations, 33 with
none passed over; with ten times as many, or any length, some problems do not converge). Where a row that was missed
can go less than half of the step, the step is made again, at a length that leaves all rows inside.
"""

from __future__ import annotations

import numpy as np

from streamsvm.methods.interior_point.steps import BOUNDARY
from streamsvm.numeric.rows import F64, I64

CRITICAL_SHARE, LEAST_CRITICAL_ROWS, MOST_CRITICAL_ROWS = 100, 64, 2048  # one row in so many is taken
PASSED_OVER_SHARE, MOST_BEYOND = 3000, 1.2  # one row in so many may be passed over
MOST_MISSED = 2.0


def find_smallest(ratios: F64) -> I64:
    """Return the rows with the smallest ratios (interior_point.find_ratios), ascending: those that are taken."""
    n_rows = len(ratios)
    number = min(n_rows, max(LEAST_CRITICAL_ROWS, min(n_rows // CRITICAL_SHARE, MOST_CRITICAL_ROWS)))
    return np.sort(np.argpartition(ratios, number - 1)[:number])


def choose_length(ratios: F64, n_rows: int) -> float:
    """Return the length of the step, at most 1; ratios: of the rows that were taken."""
    ordered = np.sort(ratios)
    passed_over = min(n_rows // PASSED_OVER_SHARE, len(ordered) - 1)
    return min(1.0, BOUNDARY * float(min(ordered[passed_over], MOST_BEYOND * ordered[0])))


def mend_length(length: float, ratios: F64) -> float:
    """Return a length that no row bounds, or the one that was chosen if that is near enough; ratios: of all rows."""
    longest = float(np.min(ratios))
    return length if length <= MOST_MISSED * longest else min(1.0, BOUNDARY * longest)
