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

from streamsvm.numeric.equations import solve_definite
from streamsvm.numeric.gram import sum_products
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, REORDERED_SUMS, Rows, add_rows, score_rows, slice_rows, to_dense
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.system import deadline, interrupts
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
FEW_ROWS = 4096  # `minimise_few` copies the rows in float64, and does not look at the time limit or Ctrl-C
FEW_PRODUCTS = 1 << 20  # with more products in a step, (n + width) width^2, BLAS and LAPACK take less time
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

    def add_products(self, used: I64, weight: F64) -> F64:
        """Return the upper triangle of I + sum of weight_i x_i x_i' over the rows with the numbers `used`."""

        def add_up(part: slice) -> F64:
            return sum_products(self.rows.X, used[part], weight[part], self.bias_feature)

        products: F64 = reduce(np.add, map_on_threads(add_up, _split(len(used)), self.threads))
        return products + np.eye(len(products))


def _split(n: int) -> list[slice]:
    """Return at most PARTS parts of n items; all but the last have the same size, of at least PART_ROWS."""
    size = max(PART_ROWS, -(-n // PARTS))
    return [slice(at, min(at + size, n)) for at in range(0, max(n, 1), size)]


def read_rows(settings: Any, rows: Rows, threads: int = 1) -> HingeRows:
    """Return rows in memory with labels and costs. settings: an object with class_costs and bias_feature."""
    y, costs = read_labels(np.array(settings.class_costs), rows.y, rows.sample_weight)
    return HingeRows(rows, y, costs, settings.bias_feature, threads)


def minimise(data: HingeRows, linear: Linear, tol: float, start: F64, smoothing: float = FIRST_WIDTH) -> Optimum:
    """Minimise F until the gap is at most tol times F. smoothing: the first width.

    The search also ends after MOST_STEPS steps, after MOST_IDLE_STEPS steps without progress, when rounding leaves no
    step that descends, or at the deadline.
    """
    w, margins, costs = start, data.find_margins(start), data.costs
    best_w, lowest, best_shares, highest = start, float("inf"), np.zeros(len(costs)), float("-inf")
    idle, on_edge, widest = 0, False, float("inf")
    if np.any(start):
        smoothing = _choose_width(data, linear, 1.0 - margins, smoothing)
    for _ in range(MOST_STEPS):
        interrupts.check()
        slack = 1.0 - margins
        shares, v, bound = _find_dual(data, linear, slack, smoothing)
        objective = float(w @ w / 2 - linear.slope @ w + linear.value + costs @ np.maximum(slack, 0.0))
        idle = 0 if objective < lowest or bound > highest else idle + 1
        if objective < lowest:
            best_w, lowest = w, objective
        if bound > highest:
            best_shares, highest = shares, bound
        if lowest - highest <= tol * abs(lowest) or idle == MOST_IDLE_STEPS or deadline.is_over():
            break
        added = float(costs @ (np.maximum(slack, 0.0) - shares * slack))
        if objective - bound <= 2.0 * added:
            smoothing = widest = smoothing * NARROWER
            continue
        near = (np.abs(slack) <= smoothing if on_edge else np.abs(slack) < smoothing).nonzero()[0]
        # no name keeps the matrix: it would be held while the next one is added up
        step = solve_definite(data.add_products(near, costs[near] / (2.0 * smoothing)), v - w)
        if step is None:  # rounding has made the matrix singular, or overflowed
            break
        along = data.find_margins(step)
        first = float((w - linear.slope) @ step)
        length = search_line(first, float(step @ step), slack, along, costs, shares, smoothing)
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


def _find_dual(data: HingeRows, linear: Linear, slack: F64, smoothing: float) -> tuple[F64, F64, float]:
    """Return the shares a_i of a smoothing, their v, and the lower bound D(a)."""
    shares = _find_shares(slack, smoothing)
    v = linear.slope + data.combine(shares)
    return shares, v, float(linear.value + data.costs @ shares - v @ v / 2)


@register_jitable
def _find_shares(slack: Any, smoothing: float) -> Any:
    """Return the shares a_i of the slacks 1 - m_i, (n,), or the share of a single slack."""
    return np.minimum(np.maximum(0.5 + slack / (2.0 * smoothing), 0.0), 1.0)


def _choose_width(data: HingeRows, linear: Linear, slack: F64, widest: float) -> float:
    """Return the width, at most `widest`, whose lower bound is the highest at a point that may be near the optimum."""
    widths = widest * NARROWER ** np.arange(START_WIDTHS)
    bounds = [_find_dual(data, linear, slack, float(width))[2] for width in widths]
    return float(widths[int(np.argmax(bounds))])


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
            slope -= costs[i] * _find_shares(slack[i] - t * along[i], width) * along[i]
        if abs(slope) <= -FLAT * at_start or (slope < 0.0 and t == 1.0):
            return t
        low, high = (t, high) if slope < 0.0 else (low, t)
        t = (low + high) / 2
    return low


def is_small(n_rows: int, width: int) -> bool:
    """Return whether n_rows rows of `width` entries, constant feature included, are few enough for `minimise_few`."""
    return n_rows <= FEW_ROWS and (n_rows + width) * width**2 <= FEW_PRODUCTS


def count_bytes(n_rows: int, width: int) -> int:
    """Return the bytes of the largest copy of at most n_rows rows that are few enough."""
    return 8 * min(width * min(n_rows, FEW_ROWS), FEW_PRODUCTS // width)


def minimise_rows(data: HingeRows, linear: Linear, tol: float, start: F64) -> Optimum:
    """Minimise F by `minimise_few` if the rows are few and it reaches the gap, and otherwise by `minimise`."""
    if is_small(len(data.y), len(start)):
        found = minimise_few(data, linear, tol, start)
        if found.objective - found.lower_bound <= tol * abs(found.objective):
            return found
    return minimise(data, linear, tol, start)


def minimise_few(data: HingeRows, linear: Linear, tol: float, start: F64) -> Optimum:
    """Minimise F with few rows and few features, in one compiled function. Equal input gives equal bits.

    Calling the parts of a step from Python takes twenty times as long as computing them for few rows. A step takes only
    microseconds, so the search is simpler: it always begins with the first width, wherever it starts; no short step
    raises the width; and rows exactly at the width always count as within it.
    """
    signed = np.empty((len(data.y), len(start)))
    signed[:, :-1], signed[:, -1] = to_dense(data.rows.X), data.bias_feature
    signed *= data.y[:, None]
    slope, start = np.array(linear.slope), np.array(start)  # compiled code takes only writable arrays
    return Optimum(*_minimise_few(signed, data.costs, slope, linear.value, tol, start, FIRST_WIDTH))


@njit(cache=True, nogil=True)
def _minimise_few(
    signed: F64, costs: F64, slope: F64, value: float, tol: float, w: F64, width: float
) -> tuple[F64, float, F64, float]:
    """Return the fields of the Optimum. signed (n, d+1): y_i x_i. slope, value: the linear part of F. w: the start.

    Loops take the compiler less time than operations on whole arrays.
    """
    best_w, lowest, best_shares, highest = w, np.inf, np.zeros(costs.size), -np.inf
    slack, along, matrix = np.empty(costs.size), np.empty(costs.size), np.empty((w.size, w.size))
    for _ in range(MOST_STEPS):
        shares, v, loss, gained, added = np.empty(costs.size), slope.copy(), value, value, 0.0
        matrix[:] = 0.0
        for i in range(costs.size):
            slack[i] = 1.0 - _dot(signed[i], w)
            shares[i] = _find_shares(slack[i], width)
            own, multiplier = costs[i] * max(slack[i], 0.0), costs[i] * shares[i]
            loss, gained, added = loss + own, gained + multiplier, added + own - multiplier * slack[i]
            bend = costs[i] / (2.0 * width) if abs(slack[i]) <= width else 0.0
            for j in range(w.size):
                v[j] += multiplier * signed[i, j]
                for k in range(j + 1 if bend > 0.0 else 0):
                    matrix[j, k] += bend * signed[i, j] * signed[i, k]
        objective, bound = _dot(w, w) / 2 - _dot(slope, w) + loss, gained - _dot(v, v) / 2
        if objective < lowest:
            best_w, lowest = w, objective
        if bound > highest:
            best_shares, highest = shares, bound
        if not lowest - highest > tol * abs(lowest):
            break
        length = 0.0
        if objective - bound > 2.0 * added:
            step = v - w
            if not _solve(matrix, step):
                break
            for i in range(costs.size):
                along[i] = _dot(signed[i], step)
            first = _dot(w, step) - _dot(slope, step)
            length = search_line(first, _dot(step, step), slack, along, costs, shares, width)
            w = w + length * step
        if length == 0.0:
            width *= NARROWER
    return best_w, lowest, best_shares, highest


@register_jitable
def _dot(a: F64, b: F64) -> float:
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@register_jitable
def _solve(matrix: F64, x: F64) -> bool:
    """Replace x by the z with (I + A) z = x; return False if rounding has made I + A singular, or it overflows.

    matrix: A; only its lower triangle is read, and the Cholesky factor of I + A replaces it.
    """
    for j in range(x.size):
        pivot = 1.0 + matrix[j, j] - _dot(matrix[j, :j], matrix[j, :j])
        if not 0.0 < pivot < np.inf:
            return False
        matrix[j, j] = np.sqrt(pivot)
        for i in range(j + 1, x.size):
            matrix[i, j] = (matrix[i, j] - _dot(matrix[i, :j], matrix[j, :j])) / matrix[j, j]
        x[j] = (x[j] - _dot(matrix[j, :j], x[:j])) / matrix[j, j]
    for j in range(x.size - 1, -1, -1):
        x[j] /= matrix[j, j]
        for k in range(j):
            x[k] -= matrix[j, k] * x[j]
    return True
