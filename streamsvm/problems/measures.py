"""Measures of scores that more than one problem reports."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rank_measures import swapped_pairs
from streamsvm.numeric.rows import F64

CURVE_POINTS = 201


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


def trace_curves(scores: F64, positive: npt.NDArray[np.bool_]) -> tuple[float, dict[str, list[float]]] | None:
    """Return the average precision, and points of the ROC and precision-recall curves; None if a class has no rows.

        average precision = sum_k (R_k - R_(k-1)) P_k    over the thresholds, which are the different scores

    The curves go from the highest threshold to the lowest: false_positive_rate, true_positive_rate (the recall R) and
    precision P, which is 1 where no row is chosen. Of many thresholds, CURVE_POINTS are told, evenly spaced along the
    ROC curve.
    """
    n_positive = int(np.count_nonzero(positive))
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    right = np.cumsum(positive[order])[ends]
    wrong = ends + 1 - right
    precision, recall = np.append(1.0, right / (right + wrong)), np.append(0.0, right / n_positive)
    false = np.append(0.0, wrong / n_negative)
    average = float(np.sum(np.diff(recall) * precision[1:]))
    at = np.arange(len(recall))
    if len(at) > CURVE_POINTS:
        at = np.unique(np.searchsorted(false + recall, np.linspace(0.0, 2.0, CURVE_POINTS)).clip(0, len(at) - 1))
    named = {"false_positive_rate": false, "true_positive_rate": recall, "precision": precision}
    return average, {name: values[at].tolist() for name, values in named.items()}
