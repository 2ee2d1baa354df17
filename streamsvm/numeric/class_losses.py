"""The loss of a row that has a score for each of K classes (Crammer & Singer 2001, J. Machine Learning Research 2).

    l_i(f) = C_i max(0, max_{k != y_i} v_ik),      v_ik = 1 + f_ik - f_iy      (y is short for y_i, the row's own class)

The class with the largest v_ik is the row's rival. The loss lies above its tangents, so a choice of a rival k_i, or of
none, for every row gives a cut, however the scores were rounded that led to the choice:

    sum_i l_i(W x_i) >= sum_i C_i (1 + w_{k_i}.x_i - w_{y_i}.x_i)      over the rows that have a rival
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I32, I64, Rows


def read_costs(class_costs: F64, rows: Rows) -> F64:
    """Return C_i of the rows, (n,). class_costs (K,): of the classes, before sample weights."""
    assert rows.y is not None
    costs: F64 = class_costs[rows.y]
    return costs if rows.sample_weight is None else costs * rows.sample_weight


def score_classes(rows: Rows, W: F64, bias_feature: float) -> F64:
    """Return the scores (n, K) of rows with the constant feature by the weights W (K, d+1)."""
    return compute_scores(rows.X, np.ascontiguousarray(W[:, :-1])) + bias_feature * W[:, -1]


@njit(cache=True, nogil=True)
def add_line_losses(first: F64, last: F64, y: I32, costs: F64, steps: F64, losses: F64) -> None:
    """Add the losses at (1 - t) first + t last, scores (n, K) each, for each step t. losses: (T,)."""
    for i in range(y.size):
        own, start, end = y[i], first[i, y[i]], last[i, y[i]]
        for s in range(steps.size if costs[i] > 0.0 else 0):
            t, top = steps[s], 0.0
            for k in range(first.shape[1]):
                v = (1.0 - t) * (1.0 + (first[i, k] - start)) + t * (1.0 + (last[i, k] - end))
                if v > top and k != own:
                    top = v
            losses[s] += costs[i] * top


@njit(cache=True, nogil=True)
def find_rivals(first: F64, last: F64, y: I32, step: float) -> I64:
    """Return the rival of each row at the scores (1 - t) first + t last, (n,), or -1 if no v_ik is positive."""
    rivals = np.full(y.size, -1)
    for i in range(y.size):
        own, start, end, top = y[i], first[i, y[i]], last[i, y[i]], 0.0
        for k in range(first.shape[1]):
            v = (1.0 - step) * (1.0 + (first[i, k] - start)) + step * (1.0 + (last[i, k] - end))
            if v > top and k != own:
                top, rivals[i] = v, k
    return rivals


def add_multiples(total: F64, rows: Rows, places: I64, classes: I64, coefs: F64, bias_feature: float) -> None:
    """Add coef_e x_{place_e} to total[class_e] for each e. total: (K, d+1).

    The terms of a class are added in the order of the rows, so that of two classes one gets minus what the other gets.
    """
    order = np.lexsort((places, classes))
    places, classes, coefs = places[order], classes[order], coefs[order]
    add_rows(total, rows.X, places, classes, coefs)
    total[:, -1] += bias_feature * np.bincount(classes, coefs, len(total))
