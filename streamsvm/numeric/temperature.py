"""Temperature scaling: one factor for all scores turns them into probabilities of the classes.

    p_k = exp(beta f_k) / sum_l exp(beta f_l),      beta = 1 / temperature

beta minimises the log loss  - sum_i v_i log p_{y_i}  with the row weights v_i. The loss is convex in beta. The zero of
its derivative  sum_i v_i (sum_k p_k f_k - f_{y_i})  is found by Brent's method. Two classes have the scores -f and f.

Source: Guo, Pleiss, Sun & Weinberger 2017, "On calibration of modern neural networks", ICML; the bounds of beta are
those of scikit-learn 1.8's CalibratedClassifierCV(method="temperature"), for scores of about 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from streamsvm.numeric.rows import F64, I32

BLOCK_SCORES = 1 << 16  # that are computed on at a time
MOST_LOG = 10.0  # of beta times the largest score: the logarithm is from -MOST_LOG to MOST_LOG


def fit_temperature(scores: F64, codes: I32, weight: F64) -> float:
    """Return beta > 0 for scores (n, K), or (n, 1) for two classes, the classes' codes (n,), and weights >= 0 (n,).

    ValueError unless some row has a weight.
    """
    if not np.sum(weight) > 0.0:
        raise ValueError("a temperature needs rows")
    counted = [_Part(scores[at], codes[at], weight[at] / np.sum(weight)) for at in _cut(scores)]
    scale = max(float(np.max(np.abs(part.scores[part.weight > 0.0]), initial=0.0)) for part in counted) or 1.0

    def slope(log_beta: float) -> float:
        return sum(part.find_slope(np.exp(log_beta), scale) for part in counted)

    if slope(-MOST_LOG) >= 0.0:
        return float(np.exp(-MOST_LOG)) / scale
    if slope(MOST_LOG) <= 0.0:
        return float(np.exp(MOST_LOG)) / scale
    from scipy.optimize import brentq  # here, since it takes 15 MB that most trainings need not have

    found = float(np.exp(brentq(slope, -MOST_LOG, MOST_LOG, xtol=1e-12))) / scale
    counted.clear()  # brentq leaves a cycle of references behind, which would hold the scores until it is collected
    return found


class _Part(NamedTuple):
    """Some rows, as views of all rows."""

    scores: F64
    codes: I32
    weight: F64

    def find_slope(self, beta: float, scale: float) -> float:
        """Return the derivative of the loss of these rows by beta, for scores that are divided by a scale."""
        own = np.flatnonzero(self.weight > 0.0)  # the others may have any scores
        logits = _make_logits(self.scores[own]) / scale
        p = softmax(beta * logits, axis=1)
        means = np.einsum("ik,ik->i", p, logits)
        return float(self.weight[own] @ (means - logits[np.arange(len(own)), self.codes[own]]))


def apply_temperature(scores: F64, beta: float) -> F64:
    """Return the probability of each class, (n, K), from scores (n,) for two classes or (n, K)."""
    found = np.empty((len(scores), 2 if scores.ndim == 1 else max(2, scores.shape[1])))
    for part in _cut(scores):
        found[part] = softmax(beta * _make_logits(scores[part]), axis=1)
    return found


def _cut(scores: F64) -> list[slice]:
    """Return the places of rows that are computed on at a time, since softmax takes several copies of its scores."""
    step = max(1, BLOCK_SCORES * len(scores) // max(1, scores.size))
    return [slice(at, at + step) for at in range(0, len(scores), step)]


def _make_logits(scores: F64) -> F64:
    """Return a score for each class, (n, K)."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        f = scores.reshape(-1)
        return np.column_stack((-f, f))
    return scores
