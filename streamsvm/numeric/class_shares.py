"""The shares of one row of Crammer-Singer, and the exact solution of its own problem (Keerthi et al. 2008).

The shares c_ik >= 0, k != y_i, of the cost of row i that the other classes take sum to s_i <= 1. With v_k = 1 + f_k -
f_y for k != y, v_y = 0, and a_k = -c_ik, a_y = s_i, the optimum of one row with the others fixed is

    a_k <- min([k = y_i], (beta - b_k) / A),    b_k = v_k - A a_k,    beta such that the new a_k sum to zero

where A is C_i times the squared length of the row (in feature space).

Source: Keerthi, Sundararajan, Chang, Hsieh & Lin 2008, "A sequential dual method for large scale multi-class linear
SVMs", KDD.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from streamsvm.numeric.rows import F64, I32


@register_jitable
def judge_row(lead: F64, share: F64, y: int) -> tuple[float, float, float]:
    """Return the loss and how much of it the shares (K,) have; the violation; and by how much the best class leads.

    lead (K,): v_k = 1 + f_k - f_y, and 0 for the row's own class y.
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
    """Set the shares (K,) to their optimum, and `changes` to the changes of a_k; return the largest change.

    lead: see `judge_row`; size: A.
    """
    top = -np.inf
    for k in range(lead.size):
        changes[k] = lead[k] - size * share[k] if k == y else lead[k] + size * share[k]  # b_k
        if k == y:
            changes[k] += size
        top = max(top, changes[k])
    beta, n, fewer = top - size, lead.size + 1, True
    while fewer:  # the best class stays, however beta is rounded
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
    """Return c_ik (n, K), with zeros for the rows' own classes, and s_i (n,), which is 1 where rounding was above."""
    taken = share.copy()
    taken[np.arange(len(y)), y] = 0.0
    own = np.sum(taken, axis=1)
    taken /= np.maximum(own, 1.0)[:, None]
    return taken, np.minimum(own, 1.0)


def multiply_shares(share: F64, y: I32, costs: F64) -> F64:
    """Return the multipliers (n, K): alpha_ik = -C_i c_ik for k != y_i, and C_i s_i for the row's own class."""
    taken, own = split_shares(share, y)
    alpha: F64 = -costs[:, None] * taken
    alpha[np.arange(len(y)), y] = costs * own
    return alpha
