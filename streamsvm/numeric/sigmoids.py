"""Platt's sigmoid: the probability of a class from a score.

    P(y = 1 | f) = 1 / (1 + exp(A f + B))

A and B minimise the cross-entropy  - sum_i v_i [t_i log p_i + (1 - t_i) log(1 - p_i)]  with the row weights v_i and

    t_i = (N+ + 1) / (N+ + 2)  for a row of the class,    t_i = 1 / (N- + 2)  for any other

where N+ and N- are the sums of the weights of both: Platt's targets, which keep separable scores from probabilities of
0 and 1. The minimum is found by Newton's method with backtracking.

Source: Lin, Lin & Weng 2007, "A note on Platt's probabilistic outputs for support vector machines", Machine Learning
68, Algorithm 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from streamsvm.numeric.rows import F64

MOST_STEPS = 100
RIDGE = 1e-12  # on the Hessian's diagonal, with scores of about 1
LEAST_GRADIENT = 1e-9  # of weights that sum to 1
LEAST_STEP = 1e-10
SUFFICIENT_FALL = 1e-4


def fit_sigmoid(scores: F64, is_in_class: npt.NDArray[np.bool_], weight: F64) -> tuple[float, float]:
    """Return A and B for scores (n,), whether each row is of the class (n,), and weights >= 0 (n,).

    The scores of rows with a weight are brought to -1 to 1 before, and their weights to a sum of 1. ValueError unless
    both kinds of rows have a weight.
    """
    total, positive = float(np.sum(weight)), float(np.sum(weight, where=is_in_class))
    if not 0.0 < positive < total:
        raise ValueError("a sigmoid needs rows of the class and others")
    counted = weight > 0.0
    target = np.where(is_in_class, (positive + 1.0) / (positive + 2.0), 1.0 / (total - positive + 2.0))[counted]
    f, weight = scores[counted], weight[counted] / total
    low, high = float(np.min(f)), float(np.max(f))
    middle, scale = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0 or 1.0
    f, point = (f - middle) / scale, np.array([0.0, np.log((total - positive + 1.0) / (positive + 1.0))])
    loss = _measure(point, f, target, weight)
    for _ in range(MOST_STEPS):
        p = expit(-(point[0] * f + point[1]))
        off, curve = weight * (target - p), weight * p * (1.0 - p)
        gradient = np.array([off @ f, np.sum(off)])
        if np.max(np.abs(gradient)) < LEAST_GRADIENT:
            break
        mixed = curve @ f
        hessian = np.array([[curve @ f**2 + RIDGE, mixed], [mixed, np.sum(curve) + RIDGE]])
        direction, length = -np.linalg.solve(hessian, gradient), 1.0
        fall = float(gradient @ direction)
        while length >= LEAST_STEP:
            ahead = point + length * direction
            found = _measure(ahead, f, target, weight)
            if found < loss + SUFFICIENT_FALL * length * fall:
                break
            length /= 2.0
        else:
            break
        point, loss = ahead, found
    slope = float(point[0] / scale)
    return slope, float(point[1]) - slope * middle


def _measure(point: F64, f: F64, target: F64, weight: F64) -> float:
    """Return the cross-entropy."""
    z = point[0] * f + point[1]
    return float(weight @ (target * z + np.logaddexp(0.0, -z)))


def apply_sigmoid(scores: F64, A: F64, B: F64) -> F64:
    """Return the probabilities of the classes that K scores stand for, (n, K), from A and B (K,) of their sigmoids."""
    found: F64 = expit(-(A * scores + B))
    return found
