"""Measures of scores that more than one problem reports."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rank_measures import swapped_pairs
from streamsvm.numeric.rows import F64


def roc_area(scores: F64, positive: npt.NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve, or None if all rows are of one class.

    It is the share of (positive, negative) pairs in the right order; a tie counts one half.
    """
    n_positive = int(np.count_nonzero(positive))
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    swapped = swapped_pairs(scores, Pairs(positive.astype(np.int32), np.ones(len(scores)), np.array([0, len(scores)])))
    return None if swapped is None else 1.0 - swapped
