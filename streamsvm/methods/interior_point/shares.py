"""The dual point of an interior-point iterate as shares of the rows' costs; see numeric.dual_points."""

from __future__ import annotations

import numpy as np

from streamsvm.methods.interior_point.state import State
from streamsvm.numeric.rows import F64


def read_shares(state: State) -> F64:
    """Return t / max(1, max t), (n,): the multiple of the state's multipliers that no cost forbids."""
    shares: F64 = np.minimum(state.t / max(1.0, float(np.max(state.t))), 1.0)
    return shares
