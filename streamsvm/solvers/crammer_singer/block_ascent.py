"""Crammer-Singer by dual coordinate ascent, one block of the data at a time (as in cutting_plane.block_ascent).

    D(c) = sum_i C_i s_i - 1/2 sum_k |w_k|^2,    w_k = sum_{i: y_i = k} C_i s_i x_i - sum_{i: y_i != k} C_i c_ik x_i

Row i has K shares. The share c_ik >= 0 of its cost goes to class k != y_i, and s_i <= 1 is the sum of these shares. A
pass proves P and D for the shares at its start; meanwhile it improves the shares block by block, and keeps in memory
the rows whose best two classes have close scores.

A visit of a row sets all its shares to their optimum, with the shares of all other rows fixed (Keerthi et al. 2008).
With g_k = w_k.x_i + [k != y_i], A = C_i |x_i|^2, and the current shares a_k = -c_ik and a_y = s_i, the optimum is

    a_k <- min([k = y_i], (beta - b_k) / A),    b_k = g_k - A a_k,    beta such that the new a_k sum to zero

To find beta, classes whose share would be 0 are removed until no such class is left. A row is undivided if all its
shares are 0, or if one class has its whole cost. Later epochs skip an undivided row if the class that holds its cost
(its own class, if all shares are 0) leads all others by more than the largest violation of the previous epoch
(shrinking, as in cutting_plane.coordinate_ascent). On a block, once no violation exceeds the margin, 1, they also skip
rows whose violation is small beside the largest one: visits of these rows take time and hardly raise D.

Sources: Keerthi, Sundararajan, Chang, Hsieh & Lin 2008, "A sequential dual method for large scale multi-class linear
SVMs", KDD; Fan, Chang, Hsieh, Wang & Lin 2008, "LIBLINEAR", J. Machine Learning Research 9, appendix E.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm.kernels.kernel import compute_squares
from streamsvm.losses.classes import add_multiples, judge_row, read_costs, score_classes, solve_row, split_shares
from streamsvm.numeric.rows import F64, I32, I64, U32, Rows, Split, add_row_to_all, find_items, read_item, split
from streamsvm.passes import Scan, grows
from streamsvm.solvers.crammer_singer import line_search
from streamsvm.solvers.cutting_plane import block_ascent, cuts
from streamsvm.solvers.cutting_plane.coordinate_ascent import AscentRows, Visit, ascend

WHOLE_SHARE = 0.5  # if all rows are in memory, the ascent ends at this share of the requested gap
KEPT_SHARE = 0.7  # of the resident rows: with many classes, more rows have close scores than with two
EPOCHS = 15  # the maximum number of epochs on a block in the first passes: the last epochs visit few rows
SMALL = 0.02  # on a block, a violation below this share of the largest one is small
STEPS = np.arange(1, 9) / 8  # steps at which a pass evaluates P, from the best point (0) to the point of the shares (1)


@register_jitable
def _score(X: Split, i: int, bias_feature: float, V: F64, scores: F64) -> None:
    """Set `scores` (K,) to the scores of row i with the weights V (d+1, K)."""
    for k in range(scores.size):
        scores[k] = bias_feature * V[-1, k]
    first, end = find_items(X.values, X.indptr, i)
    for e in range(first, end):
        j, x = read_item(X.values, X.indices, i, e)
        weights = V[j]
        if x != 0.0:
            for k in range(scores.size):
                scores[k] += x * weights[k]


@njit(cache=True, nogil=True)
def _visit(
    X: Split, y: I32, costs: F64, squares: F64, bias: float, order: I64, V: F64, share: F64, limit: float, least: float
) -> tuple[float, float, int]:
    """Visit the rows of `order`, and move the rows that stay in the ascent to the front of `order`.

    Return the duality gap, the largest violation, and the number of rows that stay. Each row's term of the gap is
    computed when the row is visited. V (d+1, K) and share (n, K) change in place. limit: the largest violation of the
    last epoch. least: rows with a smaller violation leave the ascent.
    """
    gap, worst, n = 0.0, 0.0, 0
    lead, changes = np.empty(V.shape[1]), np.empty(V.shape[1])
    for place in range(order.size):
        i = order[place]
        _score(X, i, bias, V, lead)
        own = lead[y[i]]
        for k in range(lead.size):
            lead[k] = 1.0 + (lead[k] - own)
        lead[y[i]] = 0.0
        missed, violation, ahead = judge_row(lead, share[i], y[i])
        gap += costs[i] * missed
        if ahead > limit or 0.0 <= violation < least:
            continue
        order[n] = i
        n += 1
        if violation > 0.0 and solve_row(lead, y[i], costs[i] * squares[i], share[i], changes) > 0.0:
            worst = max(worst, violation)
            for k in range(changes.size):
                changes[k] *= costs[i]
                V[-1, k] += bias * changes[k]
            add_row_to_all(X.values, X.indices, X.indptr, i, changes, V)
    return gap, worst, n


@dataclass
class ClassPart:
    """Rows in memory that the ascent visits (see coordinate_ascent.AscentRows).

    share (n, K): c_ik, and s_i for k = y_i; the ascent changes it in place. y (n,): class codes. costs (n,): C_i.
    squares (n,): |x_i|^2 with the constant feature. order: the rows that the ascent still visits. small: the share of
    the largest violation below which a violation is small.
    """

    rows: Rows
    share: F64
    y: I32
    costs: F64
    squares: F64
    order: I64
    small: float

    @property
    def gain(self) -> float:
        """The rows' part of the linear term of D: sum C_i s_i."""
        return float(self.costs @ self.share[np.arange(len(self.y)), self.y])

    def start_over(self) -> None:
        """Make the ascent visit all rows again, except rows whose cost or length is 0."""
        self.order = np.flatnonzero(self.costs * self.squares > 0.0)

    def visit(self, draws: U32, bias_feature: float, w: F64, limit: float) -> Visit:
        """Sort `order` by `draws`, one random number per row, and visit its rows; see `_visit`. w: V (d+1, K)."""
        self.order, before = self.order[np.argsort(draws, kind="stable")], self.gain
        arrays = self.y, self.costs, self.squares, bias_feature, self.order, w, self.share
        least = self.small * limit if limit < 1.0 else 0.0
        gap, worst, n_left = _visit(split(self.rows.X), *arrays, limit, least)
        return Visit(gap, self.gain - before, worst, n_left)

    def find_distances(self, bias_feature: float, w: F64) -> tuple[F64, npt.NDArray[np.bool_]]:
        """Return the lead of each row's best class over the second, (n,), and whether the row is divided, (n,)."""
        own = np.arange(len(self.y)), self.y
        lead, takes = score_classes(self.rows, w.reshape(self.share.shape[1], -1), bias_feature), self.share > 0.0
        of_own = lead[own]
        lead += 1.0  # in place, as there may be many classes
        lead -= of_own[:, None]
        lead[own], takes[own] = 0.0, self.share[own] < 1.0
        lead.partition(-2, axis=1)
        return lead[:, -1] - lead[:, -2], np.count_nonzero(takes, axis=1) > 1


def make_part(rows: Rows, class_costs: F64, bias_feature: float, share: F64, small: float = 0.0) -> ClassPart:
    """Return the rows as a part that the ascent visits, with a copy of their shares (n, K). small: see ClassPart."""
    costs = read_costs(class_costs, rows)
    squares = compute_squares(rows.X).astype(np.float64) + bias_feature**2
    y = np.require(rows.codes, np.int32, requirements="W")
    part = ClassPart(rows, share.copy(), y, costs, squares, np.empty(0, np.int64), small)
    part.start_over()
    return part


def add_dual(totals: cuts.RowSums, rows: Rows, class_costs: F64, bias_feature: float, share: F64) -> None:
    """Add the rows' terms of D, given their shares (n, K). An s_i that rounding has raised above 1 counts as 1."""
    y, costs = rows.codes, read_costs(class_costs, rows)
    taken, own = split_shares(share, y)
    classes, places = np.nonzero(taken.T)
    used, lost = np.flatnonzero(own > 0.0), costs[places] * taken[places, classes]
    places = np.concatenate((places, used))
    classes, coefs = np.concatenate((classes, y[used])), np.concatenate((-lost, (costs * own)[used]))
    add_multiples(totals.vectors.reshape(len(class_costs), -1), rows, places, classes, coefs, bias_feature)
    totals.offsets += float(costs @ own)


@dataclass(frozen=True)
class ClassAscent(block_ascent.BlockAscent):
    """Settings of block ascent for Crammer-Singer. class_costs (K,): C_i of the classes, before sample weights."""

    kept_share: ClassVar[float] = KEPT_SHARE
    first_epochs: ClassVar[int] = EPOCHS
    add_dual: ClassVar[Callable[..., None]] = staticmethod(add_dual)

    def make_part(self, rows: Rows, share: F64) -> AscentRows:
        """Return the rows as a part that the ascent visits, with a copy of their shares (n, K)."""
        small = 0.0 if self.keeps_all else SMALL
        return make_part(rows, np.array(self.class_costs), self.bias_feature, share, small)

    def ascend(
        self, parts: Sequence[AscentRows], w: F64, wanted: float, tol: float, epochs: int, seed: tuple[int, ...]
    ) -> F64:
        """Improve the shares of the parts; return the flat weights W. During the ascent, W is stored transposed."""
        V = np.ascontiguousarray(w.reshape(len(self.class_costs), -1).T)
        after = ascend(parts, self.bias_feature, V, wanted, tol, epochs, seed).w
        return np.ascontiguousarray(after.T).ravel()

    def start(self, n_features: int) -> State:
        """Return the state before the first pass, with W = 0 and all shares 0."""
        share = np.zeros((self.n_rows, len(self.class_costs)))
        return block_ascent.begin(self, State.at_zero(len(self.class_costs) * (n_features + 1)), share)

    def improve(self, state: block_ascent.State, rows: Rows) -> tuple[block_ascent.State, F64]:
        """Improve the shares of all rows, which are in memory.

        Return the new state, and the weights from which the line search starts.
        """
        part, seed = self.make_part(rows, state.share), (self.seed, state.passes)
        W = self.ascend([part], state.master_w, 0.0, WHOLE_SHARE * self.tol, state.epochs, seed)
        return replace(state, share=part.share, master_w=W), state.best_w

    def look(self, ends: F64) -> Scan:
        """See BlockAscent."""
        return line_search.look_along(ends, STEPS, np.empty(0), np.array(self.class_costs), self.bias_feature)

    def take_line(self, state: block_ascent.State, ends: F64, totals: Any) -> block_ascent.State:
        """See BlockAscent."""
        return line_search.take_best(state, ends, STEPS, totals)


@dataclass
class State(block_ascent.State):
    """The state of a run. Weight vectors are flat, (K (d+1),): the weights of all classes, one class after another.

    share (n, K): the shares of each row, c_ik for k != y_i and s_i for k = y_i. proved (n, K): the shares with which
    the lower bound was computed.
    """

    share: F64 = grows("n", "k")
    proved: F64 = grows("n", "k")
