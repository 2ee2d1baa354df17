"""The softmax loss of a row with a score for each of K classes: multinomial logistic regression.

    l_i(f) = C_i (log sum_k exp(f_ik) - f_iy)      (y is short for y_i, the row's own class)

Its slope in f_ik is C_i (p_ik - [k = y]) with the probabilities p_ik = exp(f_ik) / sum_l exp(f_il). For any p_i whose
entries are positive and sum to 1, Fenchel's inequality log sum_k exp(f_ik) >= p_i.f_i + H(p_i) with the entropy H gives
a cut, even if rounded scores led to p_i:

    sum_i l_i(W x_i) >= sum_i C_i H(p_i) + sum_i C_i sum_k (p_ik - [k = y]) w_k.x_i

At the probabilities of W itself, the two sides are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.numeric.rows import I32, Values

LEAST_ROWS, MOST_SCORES = 256, 1 << 18  # the least rows, and about the most scores, that are computed at a time
SCORE_ARRAYS = 5  # arrays of these scores that are held at once


def count_rows(n_classes: int) -> int:
    """Return the number of rows whose scores are computed at a time."""
    return max(LEAST_ROWS, MOST_SCORES // n_classes)


def score_bytes(n_classes: int, n_rows: int) -> int:
    """Return the bytes of the scores that are held at once. n_rows: the most rows of a tile."""
    return 8 * SCORE_ARRAYS * n_classes * min(n_rows, count_rows(n_classes))


class Measured(NamedTuple):
    """The sums of the losses and of C_i H(p_i) over some rows, and the probabilities p_i, (n, K)."""

    loss: float
    entropy: float
    shares: Values


def measure(scores: Values, y: I32, costs: Values) -> Measured:
    """Return the loss of rows with these scores (n, K), own classes y (n,) and costs C_i (n,)."""
    below = scores - np.max(scores, axis=1, keepdims=True)
    shares = np.exp(below)
    sums = np.sum(shares, axis=1)
    shares /= sums[:, None]
    logs = np.log(sums)
    losses = np.maximum(logs - below[np.arange(len(y)), y], 0.0)
    return Measured(float(costs @ losses), float(costs @ (logs - np.einsum("ik,ik->i", shares, below))), shares)


def find_slopes(shares: Values, y: I32, costs: Values) -> Values:
    """Return the slopes C_i (p_ik - [k = y]), (n, K), of rows with these probabilities."""
    slopes = shares.copy()
    slopes[np.arange(len(y)), y] -= 1.0
    slopes *= costs[:, None]
    return slopes


def change_slopes(shares: Values, along: Values, costs: Values) -> Values:
    """Return the changes of the slopes, (n, K), for small changes `along` of the scores.

    They are C_i (diag p_i - p_i p_i') along_i.
    """
    changes: Values = shares * (along - np.einsum("ik,ik->i", shares, along)[:, None])
    return changes * costs[:, None]
