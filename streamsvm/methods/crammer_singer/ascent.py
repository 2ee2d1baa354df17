"""Dual coordinate ascent for Crammer-Singer on rows in memory: Keerthi et al. 2008, and Fan et al. 2008 (LIBLINEAR).

    D(c) = sum_i C_i s_i - 1/2 sum_k |w_k|^2,    w_k = sum_{i: y_i = k} C_i s_i x_i - sum_{i: y_i != k} C_i c_ik x_i

The shares c_ik >= 0, k != y_i, of the cost of row i that the other classes take sum to s_i <= 1. Each visit of a row
sets all its shares to their optimum with those of the other rows fixed. With g_k = w_k.x_i + [k != y_i], A = C_i
|x_i|^2, and the shares a_k = -c_ik and a_y = s_i as they are, the optimum is

    a_k <- min([k = y_i], (beta - b_k) / A),    b_k = g_k - A a_k,    beta such that the new a_k sum to zero

and beta is found by leaving out classes that take no share until none is left to leave out. A row has all its cost in
one place if it has no share, or one class has all of it. Such a row is left out of further epochs if that class beats
all others by more than the largest violation of the epoch before (shrinking, as in cutting_plane.coordinate_ascent).

Sources: Keerthi, Sundararajan, Chang, Hsieh & Lin 2008, "A sequential dual method for large scale multi-class linear
SVMs", KDD; Fan, Chang, Hsieh, Wang & Lin 2008, "LIBLINEAR", J. Machine Learning Research 9, appendix E.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm.methods.cutting_plane.coordinate_ascent import Visit
from streamsvm.numeric.class_losses import read_costs, score_classes
from streamsvm.numeric.class_shares import judge_row, solve_row
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.rows import F32, F64, I32, I64, U32, Rows, split


@register_jitable
def _score(values: F32, indices: I32, indptr: I64, i: int, bias_feature: float, V: F64, scores: F64) -> None:
    """Set the scores (K,) of row i by the weights V (d+1, K)."""
    for k in range(scores.size):
        scores[k] = bias_feature * V[-1, k]
    if values.ndim == 1:
        for e in range(indptr[i], indptr[i + 1]):
            x, weights = values[e], V[indices[e]]
            for k in range(scores.size):
                scores[k] += x * weights[k]
    else:
        for j in range(values.shape[1]):
            x, weights = values[i, j], V[j]
            if x != 0.0:
                for k in range(scores.size):
                    scores[k] += x * weights[k]


@register_jitable
def _add_changes(values: F32, indices: I32, indptr: I64, i: int, bias_feature: float, changes: F64, V: F64) -> None:
    """Add x_i times the changes (K,) to V."""
    for k in range(changes.size):
        V[-1, k] += bias_feature * changes[k]
    if values.ndim == 1:
        for e in range(indptr[i], indptr[i + 1]):
            x, weights = values[e], V[indices[e]]
            for k in range(changes.size):
                weights[k] += x * changes[k]
    else:
        for j in range(values.shape[1]):
            x, weights = values[i, j], V[j]
            if x != 0.0:
                for k in range(changes.size):
                    weights[k] += x * changes[k]


@njit(cache=True, nogil=True)
def _visit(
    values: F32,
    indices: I32,
    indptr: I64,
    y: I32,
    costs: F64,
    squares: F64,
    bias_feature: float,
    order: I64,
    V: F64,
    share: F64,
    limit: float,
) -> tuple[float, float, int]:
    """Visit the rows of `order`, and move the rows that are not left out to its front.

    Return the duality gap, whose terms are taken as the rows are visited, the largest violation, and the number of rows
    that are not left out. V (d+1, K) and share (n, K) change in place. limit: the largest violation of the last epoch.
    """
    gap, worst, n = 0.0, 0.0, 0
    lead, changes = np.empty(V.shape[1]), np.empty(V.shape[1])
    for place in range(order.size):
        i = order[place]
        _score(values, indices, indptr, i, bias_feature, V, lead)
        own = lead[y[i]]
        for k in range(lead.size):
            lead[k] = 1.0 + (lead[k] - own)
        lead[y[i]] = 0.0
        missed, violation, ahead = judge_row(lead, share[i], y[i])
        gap += costs[i] * missed
        if ahead > limit:
            continue
        order[n] = i
        n += 1
        if violation > 0.0 and solve_row(lead, y[i], costs[i] * squares[i], share[i], changes) > 0.0:
            worst = max(worst, violation)
            for k in range(changes.size):
                changes[k] *= costs[i]
            _add_changes(values, indices, indptr, i, bias_feature, changes, V)
    return gap, worst, n


@njit(cache=True, nogil=True)
def _find_leads(scores: F64, y: I32, share: F64, distances: F64, is_free: npt.NDArray[np.bool_]) -> None:
    """Set by how much the best of the v_ik leads over the second, and whether a share may move both ways, (n,)."""
    for i in range(y.size):
        top, second, places = 0.0, -np.inf, (1 if share[i, y[i]] < 1.0 else 0)
        for k in range(scores.shape[1]):
            if k == y[i]:
                continue
            v = 1.0 + scores[i, k] - scores[i, y[i]]
            places += share[i, k] > 0.0
            if v > top:
                top, second = v, top
            elif v > second:
                second = v
        distances[i], is_free[i] = top - second, places > 1


@dataclass
class ClassPart:
    """Rows in memory that the ascent visits (see coordinate_ascent.AscentRows).

    share (n, K): c_ik, and s_i for k = y_i, which the ascent changes in place; y (n,): codes of the classes; costs
    (n,): C_i; squares (n,): |x_i|^2 with the constant feature; order: the rows that the ascent still visits.
    """

    rows: Rows
    share: F64
    y: I32
    costs: F64
    squares: F64
    order: I64

    @property
    def gain(self) -> float:
        """The rows' part of the linear term of D: sum C_i s_i."""
        return float(self.costs @ self.share[np.arange(len(self.y)), self.y])

    def start_over(self) -> None:
        """Let the ascent visit all rows again that can move."""
        self.order = np.flatnonzero(self.costs * self.squares > 0.0)

    def visit(self, draws: U32, bias_feature: float, w: F64, limit: float) -> Visit:
        """Visit the rows of `order` in the order of their draws, as `_visit` does. w: V (d+1, K)."""
        self.order, before = self.order[np.argsort(draws, kind="stable")], self.gain
        arrays = self.y, self.costs, self.squares, bias_feature, self.order, w, self.share
        gap, worst, n_left = _visit(*split(self.rows.X), *arrays, limit)
        return Visit(gap, self.gain - before, worst, n_left)

    def find_distances(self, bias_feature: float, w: F64) -> tuple[F64, npt.NDArray[np.bool_]]:
        """Return how far the rows are from another best class, (n,), and whether their shares may move both ways."""
        n_rows, n_classes = self.share.shape
        distances, is_free = np.empty(n_rows), np.empty(n_rows, np.bool_)
        scores = score_classes(self.rows, w.reshape(n_classes, -1), bias_feature)
        _find_leads(scores, self.y, self.share, distances, is_free)
        return distances, is_free


def make_part(rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> ClassPart:
    """Return these rows with a copy of their shares (n, K)."""
    assert rows.y is not None
    costs = read_costs(class_costs, rows)
    squares = compute_squares(rows.X).astype(np.float64) + bias_feature**2
    y = np.require(rows.y, np.int32, requirements="W")
    part = ClassPart(rows, share.copy(), y, costs, squares, np.empty(0, np.int64))
    part.start_over()
    return part
