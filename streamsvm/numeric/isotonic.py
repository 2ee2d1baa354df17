"""Isotonic calibration: the non-decreasing function of the score that is nearest the truth.

    min over non-decreasing p    sum_i v_i (t_i - p(f_i))^2,      t_i = 1 for a row of the class, and 0 for any other

The minimum over the scores of the rows is a step function. It is kept as its corners, between which the function is
linear, and beyond which it is constant, as in scikit-learn's IsotonicRegression(out_of_bounds="clip").

Source: Zadrozny & Elkan 2002, "Transforming classifier scores into accurate multiclass probability estimates", KDD.
The algorithm (pool adjacent violators) is SciPy's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64

MOST_CORNERS = 20_000  # of a function that is stored; without weights, a million rows have fewer


def fit_isotonic(scores: F64, is_in_class: npt.NDArray[np.bool_], weight: F64) -> tuple[F64, F64]:
    """Return the corners, scores (k,) that ascend and probabilities (k,) that do not descend.

    scores (n,), whether each row is of the class (n,), and weights >= 0 (n,). Of more than MOST_CORNERS corners some,
    evenly spread, are kept. ValueError unless both kinds of rows have a weight.
    """
    total, positive = float(np.sum(weight)), float(np.sum(weight, where=is_in_class))
    if not 0.0 < positive < total:
        raise ValueError("an isotonic function needs rows of the class and others")
    counted = weight > 0.0
    known, place = np.unique(scores[counted], return_inverse=True)
    weights = np.bincount(place, weight[counted])
    shares = np.bincount(place, weight[counted] * is_in_class[counted]) / weights
    from scipy.optimize import isotonic_regression  # here, since it takes 15 MB that most trainings need not have

    found = isotonic_regression(shares, weights=weights)
    corners = np.unique(np.concatenate((found.blocks[:-1], found.blocks[1:] - 1)))
    if len(corners) > MOST_CORNERS:
        corners = corners[np.linspace(0, len(corners) - 1, MOST_CORNERS).astype(np.int64)]
    return known[corners], np.maximum.accumulate(np.clip(found.x[corners], 0.0, 1.0))


def apply_isotonic(scores: F64, corners: F64, probabilities: F64) -> F64:
    """Return the probability of the class, (n,), from scores (n,) and the corners of the function."""
    return np.interp(scores, corners, probabilities)
