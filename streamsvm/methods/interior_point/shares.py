"""The dual point of an interior-point iterate as shares of the rows' costs; see numeric.dual_points."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.methods.interior_point.state import State
from streamsvm.numeric.dual_points import DualPoint


def read_point(state: State) -> DualPoint:
    """Return the multipliers C t of a state whose lower bound has just risen, and the corrections behind the bound.

    Where a share t is above 1, all of them are divided by a power of two: this changes no digit of t, as max t would,
    and corrections hold for the digits that alpha has.
    """
    most, exponent = math.frexp(max(1.0, float(np.max(state.t))))
    if (most, exponent) == (0.5, 1):
        return DualPoint(share=state.t, rows=state.corrected_rows, corrections=state.corrections)
    factor = 2.0**-exponent
    return DualPoint(
        share=factor * state.t, most=most, rows=state.corrected_rows, corrections=factor * state.corrections
    )
