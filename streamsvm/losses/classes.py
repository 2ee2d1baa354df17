"""The loss of a row with a score for each of K classes (Crammer & Singer 2001, J. Machine Learning Research 2).

    l_i(f) = C_i max(0, max_{k != y_i} v_ik),      v_ik = 1 + f_ik - f_iy      (y is short for y_i, the row's own class)

The class k with the largest v_ik is the row's rival. The loss lies above its tangents, so any choice of a rival k_i, or
of none, for each row gives a valid cut, even if rounded scores led to the choice:

    sum_i l_i(W x_i) >= sum_i C_i (1 + w_{k_i}.x_i - w_{y_i}.x_i)      over the rows that have a rival

In the dual, the other classes k != y_i take shares c_ik >= 0 of the cost of row i; the sum of the shares is s_i <= 1.
With v_y = 0 and a_k = -c_ik, a_y = s_i, the optimum of one row with the others fixed is

    a_k <- min([k = y_i], (beta - b_k) / A),    b_k = v_k - A a_k,    beta such that the new a_k sum to zero

where A is C_i times the squared length of the row in feature space.

Source: Keerthi, Sundararajan, Chang, Hsieh & Lin 2008, "A sequential dual method for large scale multi-class linear
SVMs", KDD.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32, I64, Rows, add_rows, compute_scores


def read_costs(class_costs: F64, rows: Rows) -> F64:
    """Return C_i of the rows, (n,). class_costs (K,): the costs C_i of the classes, before sample weights."""
    costs: F64 = class_costs[rows.codes]
    return costs if rows.sample_weight is None else costs * rows.sample_weight


def score_classes(rows: Rows, W: F64, bias_feature: float) -> F64:
    """Return the scores (n, K) of rows with the constant feature, for the weights W (K, d+1)."""
    return compute_scores(rows.X, np.ascontiguousarray(W[:, :-1])) + bias_feature * W[:, -1]


@njit(cache=True, nogil=True)
def add_line_losses(first: F64, last: F64, y: I32, costs: F64, steps: F64, losses: F64) -> None:
    """Add to losses (T,) the losses at the scores (1 - t) first + t last, for each step t.

    first, last (n, K): the scores at the two ends.
    """
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
    """Return the rival of each row at the scores (1 - step) first + step last, (n,), or -1 if no v_ik is positive."""
    rivals = np.full(y.size, -1)
    for i in range(y.size):
        own, start, end, top = y[i], first[i, y[i]], last[i, y[i]], 0.0
        for k in range(first.shape[1]):
            v = (1.0 - step) * (1.0 + (first[i, k] - start)) + step * (1.0 + (last[i, k] - end))
            if v > top and k != own:
                top, rivals[i] = v, k
    return rivals


def add_multiples(total: F64, rows: Rows, places: I64, classes: I64, coefs: F64, bias_feature: float) -> None:
    """Add coef_e x_{place_e} to total[class_e] for each e. total (K, d+1): the weights of the classes.

    The terms of a class are added in row order, so that with two classes the sums are exact negatives of each other.
    """
    order = np.lexsort((places, classes))
    places, classes, coefs = places[order], classes[order], coefs[order]
    add_rows(total, rows.X, places, classes, coefs)
    total[:, -1] += bias_feature * np.bincount(classes, coefs, len(total))


@register_jitable
def judge_row(lead: F64, share: F64, y: int) -> tuple[float, float, float]:
    """Return (loss / C_i - sum_k share_k v_k, the violation of the KKT conditions, the lead of the best class).

    lead (K,): v_k = 1 + f_k - f_y, and 0 for the row's own class y. share (K,): the shares of the classes. The third
    result is the lead over the second-best class; it is 0 unless a single class holds the whole cost of the row.
    """
    top, second, low, had, places = lead[y], -np.inf, np.inf, 0.0, 0
    for k in range(lead.size):
        v = lead[k]
        if k != y:
            had += share[k] * v
            if v > top:
                top, second = v, top
            elif v > second:
                second = v
        if (share[y] < 1.0) if k == y else (share[k] > 0.0):
            low = min(low, v)
            places += 1
    return top - had, top - low, (top - second if places == 1 else 0.0)


@register_jitable
def solve_row(lead: F64, y: int, size: float, share: F64, changes: F64) -> float:
    """Set the shares (K,) to their optimum, and `changes` (K,) to the changes of a_k; return the largest change.

    lead: see `judge_row`. size: the factor A of the module's docstring.
    """
    top = -np.inf
    for k in range(lead.size):
        changes[k] = lead[k] - size * share[k] if k == y else lead[k] + size * share[k]  # b_k
        if k == y:
            changes[k] += size
        top = max(top, changes[k])
    beta, n, fewer = top - size, lead.size + 1, True
    while fewer:  # The best class stays in the set, even if beta is rounded.
        total, count = -size, 0
        for k in range(lead.size):
            if changes[k] >= beta:
                total += changes[k]
                count += 1
        beta, fewer, n = min(total / count, top), count < n, count
    largest, taken, has_own = 0.0, 0.0, changes[y] > beta
    for k in range(lead.size):
        if k != y:
            after = max(0.0, (changes[k] - beta) / size)
            changes[k] = share[k] - after
            largest = max(largest, abs(changes[k]))
            share[k] = after
            taken += after
    after = min(taken, 1.0) if has_own else 1.0
    changes[y] = after - share[y]
    share[y] = after
    return largest


def split_shares(share: F64, y: I32) -> tuple[F64, F64]:
    """Return c_ik (n, K), with zeros for the rows' own classes, and s_i (n,), limited to 1 in spite of rounding."""
    taken = share.copy()
    taken[np.arange(len(y)), y] = 0.0
    own = np.sum(taken, axis=1)
    taken /= np.maximum(own, 1.0)[:, None]
    return taken, np.minimum(own, 1.0)


def multiply_shares(share: F64, y: I32, costs: F64) -> F64:
    """Return the multipliers alpha (n, K): -C_i c_ik for k != y_i, and C_i s_i for the row's own class."""
    taken, own = split_shares(share, y)
    alpha: F64 = -costs[:, None] * taken
    alpha[np.arange(len(y)), y] = costs * own
    return alpha
