"""The dual point of an interior-point iterate, as shares alpha_i / C_i of the rows' costs (numeric.dual_points)."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.methods.interior_point.state import State
from streamsvm.numeric.dual_points import DualPoint
from streamsvm.numeric.rows import F64


def read_point(state: State, share: F64) -> DualPoint:
    """Return the multipliers C t of a state whose lower bound has just risen, with the corrections behind the bound.

    share (n,): t of all rows. If one is above 1, all shares and corrections are divided by a power of two. Division by
    max t would change the last digits of alpha, and the corrections are valid for exactly these digits.
    """
    most, exponent = math.frexp(max(1.0, float(np.max(share))))
    if (most, exponent) == (0.5, 1):
        return DualPoint(share=share, rows=state.corrected_rows, corrections=state.corrections)
    factor = 2.0**-exponent
    corrections = factor * state.corrections
    return DualPoint(share=factor * share, most=most, rows=state.corrected_rows, corrections=corrections)
