"""Temperature scaling: one factor for all scores turns them into probabilities of the classes.

    p_k = exp(beta f_k) / sum_l exp(beta f_l),      beta = 1 / temperature

beta minimises the log loss  - sum_i v_i log p_{y_i}  with the row weights v_i. The loss is convex in beta. The zero of
its derivative  sum_i v_i (sum_k p_k f_k - f_{y_i})  is found by Brent's method. Two classes have the scores -f and f.

Source: Guo, Pleiss, Sun & Weinberger 2017, "On calibration of modern neural networks", ICML; the bounds of beta are
those of scikit-learn 1.8's CalibratedClassifierCV(method="temperature"), for scores of about 1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from streamsvm.numeric.rows import F64, I32

MOST_LOG = 10.0  # of beta times the largest score: the logarithm is from -MOST_LOG to MOST_LOG


def fit_temperature(scores: F64, codes: I32, weight: F64) -> float:
    """Return beta > 0 for scores (n, K), or (n, 1) for two classes, the classes' codes (n,), and weights >= 0 (n,).

    ValueError unless some row has a weight.
    """
    if not np.sum(weight) > 0.0:
        raise ValueError("a temperature needs rows")
    counted = weight > 0.0
    logits, codes, weight = _make_logits(scores[counted]), codes[counted], weight[counted] / np.sum(weight)
    scale = float(np.max(np.abs(logits))) or 1.0
    logits = logits / scale
    own = float(weight @ logits[np.arange(len(codes)), codes])

    def slope(log_beta: float) -> float:
        p = softmax(np.exp(log_beta) * logits, axis=1)
        return float(weight @ np.einsum("ik,ik->i", p, logits)) - own

    if slope(-MOST_LOG) >= 0.0:
        return float(np.exp(-MOST_LOG)) / scale
    if slope(MOST_LOG) <= 0.0:
        return float(np.exp(MOST_LOG)) / scale
    from scipy.optimize import brentq  # here, since it takes 15 MB that most trainings need not have

    return float(np.exp(brentq(slope, -MOST_LOG, MOST_LOG, xtol=1e-12))) / scale


def apply_temperature(scores: F64, beta: float) -> F64:
    """Return the probability of each class, (n, K), from scores (n,) for two classes or (n, K)."""
    found: F64 = softmax(beta * _make_logits(scores), axis=1)
    return found


def _make_logits(scores: F64) -> F64:
    """Return a score for each class, (n, K)."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        f = scores.reshape(-1)
        return np.column_stack((-f, f))
    return scores
