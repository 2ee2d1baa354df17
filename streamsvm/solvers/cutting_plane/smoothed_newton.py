"""Newton's method for an SVM on rows in memory plus a linear term, with a hinge whose smoothing shrinks step by step.

    F(w) = 1/2 |w|^2 + c - g.w + sum_i C_i max(0, 1 - m_i),                m_i = y_i w.x_i
    D(a) = c + sum_i C_i a_i - 1/2 |v|^2,   v = g + sum_i C_i a_i y_i x_i,   0 <= a_i <= 1          (its dual)

Within `width` of the margin, a parabola replaces the hinge and joins its two lines smoothly (Chapelle 2007,
Training a Support Vector Machine in the Primal, section 2.3). The derivative of the smoothed loss is -a_i with

    a_i = min(1, max(0, 1/2 + (1 - m_i) / (2 width)))

so every w gives a dual point and a gap F(w) - D(a). At the minimiser of the smoothed problem v = w, and only the
smoothing contributes to the gap; its contribution shrinks with the square of the width. Only rows within the width
enter Newton's matrix:

    I + sum_i C_i / (2 width) x_i x_i'

An exact line search follows each Newton step, since the derivative along a line is piecewise linear.

At a start other than 0, the first width is the one with the highest lower bound, since the start may be near the
optimum. If the start is far from the optimum, few rows lie within this width, and the steps are short. So each short
step raises the width, until the width is lowered for the first time. At w = 0 every row lies exactly at the first width
from the margin, so no row enters the matrix and the step follows the gradient. If features have very different scales,
no such step descends. From then on, rows exactly at the width count as within it, so that Newton's matrix knows the
scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable
from scipy.linalg import cho_factor, cho_solve

from streamsvm.numeric.equations import solve_definite
from streamsvm.numeric.gram import sum_products
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, REORDERED_SUMS, Rows, add_rows, score_rows, slice_rows
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.system import interrupts
from streamsvm.system.threads import map_on_threads

PARTS, PART_ROWS = 4, 16_384  # the maximum number of parts of the rows, and the least size of a part
FIRST_WIDTH = 1.0
NARROWER = 0.3  # the width is multiplied by this once the smoothing causes most of the gap
NARROWEST = 1e-12  # rounding is the limit if no step descends with a width below this
MOST_STEPS = 200
MOST_IDLE_STEPS = 30  # rounding is the limit after this many steps in which neither F fell nor D rose
SHORT = 0.1  # a step is short if it is less than this share of the whole Newton step
START_WIDTHS = 8  # the number of widths that are tried at a start other than 0
LINE_STEPS = 30  # bisections of a line search
FLAT = 0.1  # a line search ends where the derivative falls to this share of its initial value


@dataclass(frozen=True)
class Linear:
    """The linear part of F, c - g.w, which does not depend on the rows in memory.

    slope (width,): g. value: c.
    """

    slope: F64
    value: float


@dataclass(frozen=True)
class Optimum:
    """The best points found, of F and of D.

    w (width,), objective: the point with the lowest F, and this F. shares (n,), lower_bound: the point with the highest
    D, and this D.
    """

    w: F64
    objective: float
    shares: F64
    lower_bound: float


@dataclass(frozen=True)
class HingeRows:
    """Rows in memory.

    y, costs (n,): the labels y_i, -1 or +1, and the costs C_i. bias_feature: the value of the constant feature.
    threads: the number of threads that add up the rows. A sum is the sum over a few parts of the rows, whose number
    does not depend on the threads.
    """

    rows: Rows
    y: F64
    costs: F64
    bias_feature: float
    threads: int = 1

    def find_margins(self, w: F64) -> F64:
        """Return y_i w.x_i, (n,)."""
        X, parts = self.rows.X, _split(len(self.y))
        scores = map_on_threads(lambda part: score_rows(slice_rows(X, part), w, self.bias_feature), parts, self.threads)
        return self.y * np.concatenate(scores)

    def combine(self, shares: F64) -> F64:
        """Return sum_i C_i a_i y_i x_i, (width,)."""
        used = ((shares != 0.0) & (self.costs != 0.0)).nonzero()[0]
        coef = (self.costs * shares * self.y)[used]

        def add_up(part: slice) -> F64:
            total: F64 = np.zeros(self.rows.X.shape[1] + 1)
            add_rows(total[None, :], self.rows.X, used[part], np.zeros(part.stop - part.start, np.int64), coef[part])
            return total

        combined: F64 = reduce(np.add, map_on_threads(add_up, _split(len(used)), self.threads))
        combined[-1] = self.bias_feature * float(coef.sum())
        return combined

    def sum_up(self, shares: F64) -> RowSums:
        """Return sum_i C_i a_i y_i x_i and sum_i C_i a_i."""
        cost = float(self.costs @ shares)
        return RowSums(self.combine(shares), cost, cost)

    def add_products(self, Q: F64 | None, used: I64, weight: F64) -> F64:
        """Return the upper triangle of Q + sum of weight_i x_i x_i' over the rows with the numbers `used`.

        Q: None for the identity.
        """

        def add_up(part: slice) -> F64:
            return sum_products(self.rows.X, used[part], weight[part], self.bias_feature)

        products: F64 = reduce(np.add, map_on_threads(add_up, _split(len(used)), self.threads))
        return products + (np.eye(len(products)) if Q is None else Q)


def _split(n: int) -> list[slice]:
    """Return at most PARTS parts of n items; all but the last have the same size, of at least PART_ROWS."""
    size = max(PART_ROWS, -(-n // PARTS))
    return [slice(at, min(at + size, n)) for at in range(0, max(n, 1), size)]


def read_rows(settings: Any, rows: Rows, threads: int = 1) -> HingeRows:
    """Return rows in memory with labels and costs. settings: an object with class_costs and bias_feature."""
    y, costs = read_labels(np.array(settings.class_costs), rows.y, rows.sample_weight)
    return HingeRows(rows, y, costs, settings.bias_feature, threads)


@dataclass(frozen=True)
class Pull:
    """A term strength / 2 (w - point)'M(w - point) of F that keeps w near a point; M (width, width)."""

    M: F64
    point: F64
    strength: float


class _Quadratic:
    """1/2 w'Qw - p.w + k: the part of F that does not depend on the rows, including any pull. Without a pull, Q = I."""

    def __init__(self, linear: Linear, pull: Pull | None) -> None:
        self.slope, self.value, self.Q, self._factor = linear.slope, linear.value, None, None
        if pull is not None:
            to_point = pull.strength * (pull.M @ pull.point)
            self.slope = linear.slope + to_point
            self.value = linear.value + float(pull.point @ to_point) / 2
            self.Q = np.eye(len(pull.point)) + pull.strength * pull.M
            self._factor = cho_factor(self.Q)

    def multiply(self, w: F64) -> F64:
        """Return Qw."""
        return w if self.Q is None else self.Q @ w

    def solve(self, v: F64) -> F64:
        """Return the w with Qw = v."""
        return v if self._factor is None else cho_solve(self._factor, v)


def minimise(
    data: HingeRows, linear: Linear, tol: float, start: F64, pull: Pull | None = None, smoothing: float = FIRST_WIDTH
) -> Optimum:
    """Minimise F, plus the pull if given, until the gap is at most tol times F. smoothing: the first width.

    The search also ends after MOST_STEPS steps, after MOST_IDLE_STEPS steps without progress, or when rounding leaves
    no step that descends. The returned objective and lower bound include the pull.
    """
    w, quadratic = start, _Quadratic(linear, pull)
    margins, costs = data.find_margins(start), data.costs
    best_w, lowest, best_shares, highest = start, float("inf"), np.zeros(len(costs)), float("-inf")
    idle, on_edge, widest = 0, False, float("inf")
    if np.any(start):
        smoothing = _choose_width(data, quadratic, 1.0 - margins, smoothing)
    for _ in range(MOST_STEPS):
        interrupts.check()
        slack = 1.0 - margins
        shares, v, bound = _find_dual(data, quadratic, slack, smoothing)
        product = quadratic.multiply(w)
        objective = float(w @ product / 2 - quadratic.slope @ w + quadratic.value + costs @ np.maximum(slack, 0.0))
        idle = 0 if objective < lowest or bound > highest else idle + 1
        if objective < lowest:
            best_w, lowest = w, objective
        if bound > highest:
            best_shares, highest = shares, bound
        if lowest - highest <= tol * abs(lowest) or idle == MOST_IDLE_STEPS:
            break
        added = float(costs @ (np.maximum(slack, 0.0) - shares * slack))
        if objective - bound <= 2.0 * added:
            smoothing = widest = smoothing * NARROWER
            continue
        near = (np.abs(slack) <= smoothing if on_edge else np.abs(slack) < smoothing).nonzero()[0]
        # no name keeps the matrix: it would be held while the next one is added up
        step = solve_definite(data.add_products(quadratic.Q, near, costs[near] / (2.0 * smoothing)), v - product)
        if step is None:  # rounding has made the matrix singular, or overflowed
            break
        along = data.find_margins(step)
        first, second = float((product - quadratic.slope) @ step), float(step @ quadratic.multiply(step))
        length = search_line(first, second, slack, along, costs, shares, smoothing)
        if length == 0.0 and not len(near) and not on_edge:
            on_edge = True
            continue
        if length == 0.0:
            if smoothing < NARROWEST:
                break
            smoothing = widest = smoothing * NARROWER
            continue
        w = w + length * step
        margins = margins + length * along
        smoothing = min(widest, smoothing / NARROWER) if length < SHORT else smoothing
    return Optimum(best_w, lowest, best_shares, highest)


def _find_dual(data: HingeRows, quadratic: _Quadratic, slack: F64, smoothing: float) -> tuple[F64, F64, float]:
    """Return the shares a_i of a smoothing, their v, and the lower bound D(a)."""
    shares = _find_shares(slack, smoothing)
    v = quadratic.slope + data.combine(shares)
    return shares, v, float(quadratic.value + data.costs @ shares - v @ quadratic.solve(v) / 2)


def _find_shares(slack: F64, smoothing: float) -> F64:
    """Return the shares a_i of the slacks 1 - m_i, (n,)."""
    return np.minimum(np.maximum(0.5 + slack / (2.0 * smoothing), 0.0), 1.0)


def _choose_width(data: HingeRows, quadratic: _Quadratic, slack: F64, widest: float) -> float:
    """Return the width, at most `widest`, whose lower bound is the highest at a point that may be near the optimum."""
    widths = widest * NARROWER ** np.arange(START_WIDTHS)
    bounds = [_find_dual(data, quadratic, slack, float(width))[2] for width in widths]
    return float(widths[int(np.argmax(bounds))])


@register_jitable
def find_share(slack: float, width: float) -> float:
    """Return a_i of the slack 1 - m_i."""
    return min(max(0.5 + slack / (2.0 * width), 0.0), 1.0)


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def search_line(first: float, second: float, slack: F64, along: F64, costs: F64, shares: F64, width: float) -> float:
    """Return the step length, at most 1, at which the derivative is nearly 0; return 0 if the step does not descend.

    first, second: the derivative of the quadratic part at the start, and its change along the whole step. slack (n,):
    the values 1 - m_i at the start. along (n,): the change of the margins along the step. costs (n,): C_i. shares (n,):
    the shares a_i at the start.
    """
    at_start = first
    for i in range(costs.size):
        at_start -= costs[i] * shares[i] * along[i]
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(LINE_STEPS if at_start < 0.0 else 0):
        slope = first + t * second
        for i in range(costs.size):
            slope -= costs[i] * find_share(slack[i] - t * along[i], width) * along[i]
        if abs(slope) <= -FLAT * at_start or (slope < 0.0 and t == 1.0):
            return t
        low, high = (t, high) if slope < 0.0 else (low, t)
        t = (low + high) / 2
    return low
