"""Steps of single rows on a working set whose kernel values are in memory (Keerthi et al. 2008, with kernels).

A visit sets the shares of a row to their optimum with all others fixed (numeric.class_shares), where A = C_i k_ii. The
row's multipliers move by C_i times the changes of a_k, and the sums F_jk of all rows of the working set by that times
k_ij. D rises by

    C_i sum_{k != y} (change of c_ik) v_k - 1/2 C_i^2 k_ii sum_k (change of a_k)^2
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from streamsvm.numeric.class_shares import judge_row, solve_row
from streamsvm.numeric.rows import F64, I32, I64, Values

TINY_SIZE = 1e-8  # of C_i k_ii


@register_jitable
def _find_lead(F: F64, i: int, y: int, lead: F64) -> None:
    """Set v_k = 1 + F_ik - F_iy, and 0 for the row's own class. F: (K, n)."""
    own = F[y, i]
    for k in range(lead.size):
        lead[k] = 1.0 + (F[k, i] - own)
    lead[y] = 0.0


@register_jitable
def _give_all(lead: F64, y: int, share: F64, changes: F64) -> None:
    """Give all of the cost to the class with the greatest v_k, where k_ii is 0."""
    best = y
    for k in range(lead.size):
        best = k if lead[k] > lead[best] else best
        changes[k] = share[k]
        share[k] = 0.0
    if best != y:
        share[best] = share[y] = 1.0
    for k in range(lead.size):
        changes[k] = share[k] - changes[k] if k == y else changes[k] - share[k]


@njit(cache=True, nogil=True)
def visit_rows(K: Values, y: I32, costs: F64, share: F64, F: F64, order: I64, least: float) -> tuple[float, float]:
    """Visit the rows of `order` whose violation is above `least`; return the largest violation, and the rise of D.

    K: (q, q). y, costs: (q,). share (q, K) and F (K, q) change in place.
    """
    worst, rise = 0.0, 0.0
    lead, changes = np.empty(share.shape[1]), np.empty(share.shape[1])
    for i in order:
        _find_lead(F, i, y[i], lead)
        violation = judge_row(lead, share[i], y[i])[1]
        if violation <= least or costs[i] == 0.0:
            continue
        worst, size = max(worst, violation), costs[i] * K[i, i]
        if size > 0.0:
            if size < TINY_SIZE:  # only differences of v_k count, and 1 + size has no digits of size
                lead -= np.max(lead)
            solve_row(lead, y[i], size, share[i], changes)
        else:
            _give_all(lead, y[i], share[i], changes)
        column = K[i]
        for k in range(changes.size):
            if changes[k] != 0.0:
                rise -= costs[i] * changes[k] * lead[k]
                rise -= 0.5 * costs[i] * size * changes[k] ** 2
                sums, change = F[k], costs[i] * changes[k]
                for j in range(column.size):
                    sums[j] += change * column[j]
    return worst, rise


@njit(cache=True, nogil=True)
def judge_rows(F: F64, y: I32, costs: F64, share: F64, violations: F64, ahead: F64) -> float:
    """Return P - D of the rows, sum_i C_i (max(0, max_k v_ik) - sum_k c_ik v_ik), where no term is negative.

    F: (K, n). Set the violations (n,), and by how much the best class is ahead of the others where it has all of the
    row's cost; 0 for a row whose shares may move both ways.
    """
    gap, lead = 0.0, np.empty(F.shape[0])
    for i in range(y.size):
        violations[i], ahead[i] = 0.0, np.inf
        if costs[i] > 0.0:
            _find_lead(F, i, y[i], lead)
            missed, violations[i], ahead[i] = judge_row(lead, share[i], y[i])
            gap += costs[i] * missed
    return gap
