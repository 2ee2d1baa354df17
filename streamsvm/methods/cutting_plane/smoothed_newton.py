"""Newton's method for an SVM on rows in memory, with a linear term: the hinge is smoothed less and less.

    F(w) = 1/2 |w|^2 + c - g.w + sum_i C_i max(0, 1 - m_i),                m_i = y_i w.x_i
    D(a) = c + sum_i C_i a_i - 1/2 |v|^2,   v = g + sum_i C_i a_i y_i x_i,   0 <= a_i <= 1          (its dual)

Within `width` of the margin, the hinge is replaced by a parabola that joins both of its lines smoothly (Chapelle 2007,
Training a Support Vector Machine in the Primal, section 2.3). The derivative of the smoothed loss is -a_i with

    a_i = min(1, max(0, 1/2 + (1 - m_i) / (2 width)))

so every w gives a dual point and a gap F(w) - D(a). At the minimiser of the smoothed problem v = w, and the gap is what
the smoothing adds, which shrinks with the width squared. Newton's matrix takes only the rows within the width:

    I + sum_i C_i / (2 width) x_i x_i'

A Newton step is followed by an exact line search, since the derivative along a line is piecewise linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from streamsvm import interrupts
from streamsvm.methods.cutting_plane.cuts import RowSums
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, Rows

FIRST_WIDTH = 1.0
NARROWER = 0.3  # the width is multiplied by this once the gap is mostly what the smoothing adds
NARROWEST = 1e-12  # where no step descends with so small a width, rounding is the limit
MOST_STEPS = 200
LINE_STEPS = 30  # bisections of a line search
FLAT = 0.1  # a line search ends where the derivative is so small a share of that at its start


@dataclass(frozen=True)
class Linear:
    """The part of F that does not depend on the rows in memory: c - g.w; slope g (width,), value c."""

    slope: F64
    value: float


@dataclass(frozen=True)
class Optimum:
    """The lowest F that was found and its w (width,), and the highest D and its shares a (n,)."""

    w: F64
    objective: float
    shares: F64
    lower_bound: float
    steps: int


@dataclass(frozen=True)
class HingeRows:
    """Rows in memory with labels y_i of -1 or +1 and costs C_i, (n,) each, and the value of the constant feature."""

    rows: Rows
    y: F64
    costs: F64
    bias_feature: float

    def find_margins(self, w: F64) -> F64:
        """Return y_i w.x_i, (n,)."""
        scores = compute_scores(self.rows.X, np.ascontiguousarray(w[None, :-1]))[:, 0]
        margins: F64 = self.y * (scores + w[-1] * self.bias_feature)
        return margins

    def combine(self, shares: F64) -> F64:
        """Return sum_i C_i a_i y_i x_i, (width,)."""
        used = np.flatnonzero((shares != 0.0) & (self.costs != 0.0))
        coef, total = (self.costs * shares * self.y)[used], np.zeros((1, self.rows.X.shape[1] + 1))
        add_rows(total, self.rows.X, used, np.zeros_like(used), coef)
        total[0, -1] = self.bias_feature * float(np.sum(coef))
        combined: F64 = total[0]
        return combined

    def sum_up(self, shares: F64) -> RowSums:
        """Return sum_i C_i a_i y_i x_i and sum_i C_i a_i."""
        cost = float(self.costs @ shares)
        return RowSums(self.combine(shares), cost, cost)

    def add_products(self, Q: F64 | None, used: I64, weight: F64) -> F64:
        """Return Q + sum of weight_i x_i x_i' over the rows with the numbers `used`; its upper triangle is filled.

        Q is I if it is None.
        """
        d = self.rows.X.shape[1]
        gram = GramSum(d)
        gram.add(self.rows.X, used, weight)
        last = np.zeros((1, d))
        add_rows(last, self.rows.X, used, np.zeros_like(used), weight)
        matrix = np.eye(d + 1) if Q is None else Q.copy()
        matrix[:d, :d] += np.triu(gram.finish())
        matrix[:d, d] += self.bias_feature * last[0]
        matrix[d, d] += self.bias_feature**2 * float(np.sum(weight))
        return matrix


@dataclass(frozen=True)
class Pull:
    """A term strength / 2 (w - point)'M(w - point) that is added to F, and keeps w near a point; M (width, width)."""

    M: F64
    point: F64
    strength: float


class _Quadratic:
    """1/2 w'Qw - p.w + k: the part of F that does not depend on the rows, with the pull. Q is I without a pull."""

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
        product: F64 = w if self.Q is None else self.Q @ w
        return product

    def solve(self, v: F64) -> F64:
        """Return the w with Qw = v."""
        solution: F64 = v if self._factor is None else cho_solve(self._factor, v)
        return solution


def minimise(
    data: HingeRows, linear: Linear, tol: float, start: F64, pull: Pull | None = None, smoothing: float = FIRST_WIDTH
) -> Optimum:
    """Minimise F, with the pull if there is one, until its gap is at most tol times F. smoothing: the first width.

    The search also ends after MOST_STEPS, or where rounding leaves no step. The optimum's objective and lower bound
    are those of F with the pull.
    """
    w, quadratic = start, _Quadratic(linear, pull)
    margins, costs = data.find_margins(start), data.costs
    best = Optimum(start, float("inf"), np.zeros(len(costs)), float("-inf"), 0)
    for steps in range(1, MOST_STEPS + 1):
        interrupts.check()
        slack = 1.0 - margins
        shares = np.clip(0.5 + slack / (2.0 * smoothing), 0.0, 1.0)
        v, product = quadratic.slope + data.combine(shares), quadratic.multiply(w)
        objective = float(w @ product / 2 - quadratic.slope @ w + quadratic.value + costs @ np.maximum(slack, 0.0))
        bound = float(quadratic.value + costs @ shares - v @ quadratic.solve(v) / 2)
        best = _keep_best(best, w, objective, shares, bound, steps)
        if best.objective - best.lower_bound <= tol * abs(best.objective):
            break
        added = float(costs @ (np.maximum(slack, 0.0) - shares * slack))
        if objective - bound <= 2.0 * added:
            smoothing *= NARROWER
            continue
        near = np.flatnonzero(np.abs(slack) < smoothing)
        matrix = data.add_products(quadratic.Q, near, costs[near] / (2.0 * smoothing))
        try:
            step = cho_solve(cho_factor(matrix), v - product)
        except (np.linalg.LinAlgError, ValueError):  # rounding has made the matrix singular, or overflowed
            break
        along = data.find_margins(step)
        line = _Line(
            (product - quadratic.slope) @ step, step @ quadratic.multiply(step), slack, along, costs, smoothing
        )
        length = _search_line(line)
        if length == 0.0:
            if smoothing < NARROWEST:
                break
            smoothing *= NARROWER
            continue
        w = w + length * step
        margins = margins + length * along
    return best


def _keep_best(best: Optimum, w: F64, objective: float, shares: F64, bound: float, steps: int) -> Optimum:
    lower, higher = objective < best.objective, bound > best.lower_bound
    return Optimum(
        w if lower else best.w,
        objective if lower else best.objective,
        shares if higher else best.shares,
        bound if higher else best.lower_bound,
        steps,
    )


@dataclass(frozen=True)
class _Line:
    """A line from w: the derivative of the quadratic part there and along it, and the slacks and how they change."""

    first: float
    second: float
    slack: F64
    along: F64
    costs: F64
    smoothing: float

    def differentiate(self, t: float) -> float:
        """Return the derivative of the smoothed problem at step t."""
        shares = np.clip(0.5 + (self.slack - t * self.along) / (2.0 * self.smoothing), 0.0, 1.0)
        return float(self.first + t * self.second - (self.costs * shares) @ self.along)


def _search_line(line: _Line) -> float:
    """Return the step's length, at most 1, at which the derivative is nearly 0; 0 if the step does not descend."""
    at_start = line.differentiate(0.0)
    if not at_start < 0.0:
        return 0.0
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(LINE_STEPS):
        derivative = line.differentiate(t)
        if abs(derivative) <= FLAT * -at_start:
            return t
        if derivative < 0.0:
            if t == 1.0:
                return t
            low = t
        else:
            high = t
        t = (low + high) / 2
    return low
