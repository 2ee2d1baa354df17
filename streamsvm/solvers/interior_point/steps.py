"""Primal-dual interior-point steps of a linear SVM, row by row (Jung, O'Leary & Tits 2008, section 3.1).

    min 1/2 |w|^2 + sum_i C_i xi_i   s.t.   y_i (w.x_i + b) + xi_i - 1 = s_i,   s_i >= 0, xi_i >= 0

xi_i is the loss of row i over C_i, and s_i the slack of its margin. C_i is the paper's tau_i, and b its -gamma.
The first constraint has the multiplier alpha_i = C_i t_i, and xi_i >= 0 has u_i = C_i r_i. We hold t and r, the
multipliers as shares of the cost. So a row of cost 0 changes nothing, and the iterates have the scale of the paper's
with tau = 1.

The central path is defined by the multipliers: s_i alpha_i = xi_i u_i, that is s_i t_i = xi_i r_i = mu scale_i with
scale_i = (mean of C) / C_i. On the path defined by the shares (scale_i = 1), steps become short if the costs differ
widely: with weights from 1e-3 to 1e3 (benchmarks/interior_point.py), 15,000 rows of Adult took 121 passes instead of
35, and Web did not finish within 400 passes instead of taking 63. Newton's equations are eliminated down to w, (3.11)
to (3.16):

    r_s = y (f + b) + xi - 1 - s,   r_u = 1 - t - r,   f = X w
    omega = s/t + xi/r,   r_Omega = r_s + r_sv / t - (xi r_u + r_xu) / r
    dt = -(r_Omega + y df + y db) / omega,   dr = r_u - dt
    dxi = -(xi dr + r_xu) / r,   ds = -(r_sv + s dt) / t

The predictor has r_sv = s t and r_xu = xi r (3.7, 3.8). The corrector adds ds dt - sigma mu scale_i to the first and
dxi dr - sigma mu scale_i to the second (3.9, 3.10). We limit the products ds dt and dxi dr to 3 mu scale_i: before a
short step they are much too large for a few rows, which would then make the next steps short as well. (Without the
limit, LETTER takes 37 iterations instead of 30 and MUSHROOM 22 instead of 20, both without constraint reduction.) All
arrays are (n,) float64, and each compiled function reads them once.

The row states, called `numbers` (10, n), stay where the rows are read (passes.RowState); steps change them:

    f, s, t, xi, r     the point (interior_point.steps)
    y, costs           the label, -1 or +1, and the cost C_i
    predicted          X dw of the predictor
    corrected          X dw of pure centering after the pass `predict`, and of the corrector after the pass `assemble`
    after              X w at the end of the step

The driver holds none of them. It holds all changes since the start: for each step two vectors dw of d entries before
`predict`, dw and w before `assemble`, and a Course of seven numbers. These determine the state of every row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, REORDERED_SUMS, Rows, scores_of, split
from streamsvm.passes import Change

compiled = njit(cache=True, nogil=True, error_model="numpy")
unwarned = np.errstate(over="ignore", invalid="ignore")  # later checks end runs with non-finite numbers
MOST_SECOND_ORDER = 3.0  # the limit of ds dt and dxi dr, in units of mu scale_i
BOUNDARY = 0.995  # A step goes at most this share of the way to the boundary, where a variable becomes 0.
INSIDE = 0.9999  # A row may go up to this share of its way; a row that would go farther stops at BOUNDARY.
F, S, T, XI, R, Y, COSTS, PREDICTED, CORRECTED, AFTER = range(10)
N_NUMBERS = 10
BEGIN, PREDICT, CORRECT, MOVE, ARRIVE = range(5)  # the kinds of changes
N_VECTORS = 2  # vectors in each change of the kind PREDICT or CORRECT


class Point(NamedTuple):
    """A point of the iteration: f = w.x of each row, and its four positive variables, (n,) each."""

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64


class Targets(NamedTuple):
    """The right-hand sides of the complementarity equations, r_sv and r_xu, divided by the rows' costs."""

    sv: F64
    xu: F64


Direction = Point  # the changes of a point's variables in a step of length 1


@compiled
def find_omega(point: Point) -> F64:
    """Return omega, (n,); a row's weight in the normal equations is C / omega."""
    return point.s / point.t + point.xi / point.r


def find_residuals(point: Point, y: F64, bias: float) -> tuple[F64, F64]:
    """Return r_s (3.4) and r_u (3.3), the latter divided by the costs."""
    return y * (point.f + bias) + point.xi - 1.0 - point.s, 1.0 - point.t - point.r


@compiled
def aim_at_zero(point: Point) -> Targets:
    """Return the targets of the predictor, which aims at mu = 0 (3.7, 3.8)."""
    return Targets(point.s * point.t, point.xi * point.r)


@compiled
def find_products(predicted: Direction, mu: float, scales: F64) -> Targets:
    """Return the predictor's products ds dt and dxi dr, limited to 3 mu scale_i in magnitude."""
    most = MOST_SECOND_ORDER * mu * scales
    sv = np.minimum(np.maximum(predicted.s * predicted.t, -most), most)
    return Targets(sv, np.minimum(np.maximum(predicted.xi * predicted.r, -most), most))


@compiled
def aim_at_center(point: Point, predicted: Direction, mu: float, center: float, scales: F64) -> Targets:
    """Return the targets of the corrector (3.9, 3.10). center: sigma mu."""
    products, aim = find_products(predicted, mu, scales), center * scales
    return Targets(point.s * point.t + products.sv - aim, point.xi * point.r + products.xu - aim)


def find_right_side(point: Point, y: F64, bias: float, targets: Targets) -> F64:
    """Return r_Omega, (n,), for these targets."""
    r_s, r_u = find_residuals(point, y, bias)
    return r_s + targets.sv / point.t - (point.xi * r_u + targets.xu) / point.r


@compiled
def find_second_order(point: Point, predicted: Direction, mu: float, scales: F64) -> F64:
    """Return the contribution of the predictor's products ds dt and dxi dr to the corrector's r_Omega."""
    products = find_products(predicted, mu, scales)
    added: F64 = products.sv / point.t - products.xu / point.r
    return added


@compiled
def find_direction(
    point: Point, y: F64, costs: F64, bias: float, targets: Targets, df: F64, bias_change: float
) -> Direction:
    """Return the direction that df = X dw and db imply; rows of cost 0 do not move."""
    ds, dt, dxi, dr = np.zeros(y.size), np.zeros(y.size), np.zeros(y.size), np.zeros(y.size)
    for i in range(y.size):
        s, t, xi, r = point.s[i], point.t[i], point.xi[i], point.r[i]
        if costs[i] > 0:
            r_s, r_u = y[i] * (point.f[i] + bias) + xi - 1.0 - s, 1.0 - t - r
            side = r_s + targets.sv[i] / t - (xi * r_u + targets.xu[i]) / r
            dt[i] = -(side + y[i] * (df[i] + bias_change)) / (s / t + xi / r)
            dr[i] = r_u - dt[i]
            dxi[i] = -(xi * dr[i] + targets.xu[i]) / r
            ds[i] = -(targets.sv[i] + s * dt[i]) / t
    return Direction(df, ds, dt, dxi, dr)


@compiled
def find_ratios(point: Point, direction: Direction) -> F64:
    """Return for each row the step length at which its first variable becomes 0, or infinity if none does."""
    ratios = np.full(point.s.size, np.inf)
    for i in range(ratios.size):
        falls = max(
            -direction.s[i] / point.s[i],
            -direction.t[i] / point.t[i],
            -direction.xi[i] / point.xi[i],
            -direction.r[i] / point.r[i],
        )
        if falls > 0:
            ratios[i] = 1.0 / falls
    return ratios


@compiled
def move_inside(point: Point, direction: Direction, step: float) -> Point:
    """Return the end of a step; a row with a variable that would become 0 stops at BOUNDARY times its own ratio."""
    s, t, xi, r = point.s.copy(), point.t.copy(), point.xi.copy(), point.r.copy()
    ratios = find_ratios(point, direction)
    for i in range(s.size):
        own = step if step <= INSIDE * ratios[i] else BOUNDARY * ratios[i]
        s[i] += own * direction.s[i]
        t[i] += own * direction.t[i]
        xi[i] += own * direction.xi[i]
        r[i] += own * direction.r[i]
    return Point(point.f + step * direction.f, s, t, xi, r)


def find_scales(costs: F64, mean: float) -> F64:
    """Return scale_i = mean / C_i, (n,), or 0 for rows of cost 0. mean: the mean cost."""
    return np.divide(mean, costs, out=np.zeros(len(costs)), where=costs > 0)


class Course(NamedTuple):
    """The scalars of a step; together with X dw, they determine how each row moves.

    bias, mu: the bias and mu at the start of the step. predicted_change: the predictor's change of the bias. center:
    sigma mu. mean: the mean cost. bias_change: the corrector's change of the bias. length: the step length.
    """

    bias: float
    predicted_change: float = 0.0
    mu: float = 0.0
    center: float = 0.0
    mean: float = 0.0
    bias_change: float = 0.0
    length: float = 0.0


def point_of(numbers: F64) -> Point:
    """Return the point that the row states `numbers` hold."""
    return Point(numbers[F], numbers[S], numbers[T], numbers[XI], numbers[R])


def _direct(numbers: F64, bias: float, targets: Targets, df: F64, change: float) -> Direction:
    found: Direction = find_direction(point_of(numbers), numbers[Y], numbers[COSTS], bias, targets, df, change)
    return found


def find_predicted(numbers: F64, bias: float, change: float) -> Direction:
    """Return the direction of the predictor. bias, change: b, and its change by the predictor."""
    return _direct(numbers, bias, aim_at_zero(point_of(numbers)), numbers[PREDICTED], change)


def find_targets(numbers: F64, course: Course) -> Targets:
    """Return the targets of the corrector for the row states `numbers`."""
    predicted = find_predicted(numbers, course.bias, course.predicted_change)
    scales = find_scales(numbers[COSTS], course.mean)
    targets: Targets = aim_at_center(point_of(numbers), predicted, course.mu, course.center, scales)
    return targets


def find_corrected(numbers: F64, course: Course, df: F64) -> Direction:
    """Return the direction of the corrector. df (n,): X dw of the corrector."""
    return _direct(numbers, course.bias, find_targets(numbers, course), df, course.bias_change)


def list_changes(kinds: I64, given: F64, vectors: F64) -> list[Change]:
    """Return the changes of the row states as a list.

    kinds (m,): the kinds of the changes. given (m, 7): their scalars. vectors (v, d): two for each change of the kind
    PREDICT or CORRECT.
    """
    changes, at = list[Change](), 0
    for kind, numbers in zip(kinds.tolist(), given, strict=True):
        if kind == BEGIN:
            changes.append(Change(begin, (numbers[:2].copy(),)))
        elif kind in (PREDICT, CORRECT):
            changes.append(Change(predict if kind == PREDICT else correct, (vectors[at : at + N_VECTORS],)))
            at += N_VECTORS
        elif kind == MOVE:
            changes.append(Change(move_row, tuple(numbers.tolist()), of_features=False))
        else:
            changes.append(Change(arrive, of_features=False))
    return changes


def check_changes(kinds: I64, vectors: F64) -> None:
    """Raise ValueError unless these kinds and vectors form a valid list of changes."""
    n_vectors = N_VECTORS * int(np.count_nonzero((kinds == PREDICT) | (kinds == CORRECT)))
    if not np.isin(kinds, (BEGIN, PREDICT, CORRECT, MOVE, ARRIVE)).all() or len(vectors) != n_vectors:
        raise ValueError("change_kinds, change_vectors: they do not describe steps of the interior-point method")
    if (len(kinds) > 0 and kinds[0] != BEGIN) or (kinds[1:] == BEGIN).any():
        raise ValueError("change_kinds: the first change, and no other, must be the start")


def begin(_: None, rows: Rows, class_costs: F64) -> F64:
    """Return the row states at w = 0: s = xi = 2 as in the paper (section 5), and t = r = 1, which is feasible."""
    numbers = np.zeros((N_NUMBERS, rows.n_rows))
    numbers[[S, XI]], numbers[[T, R]] = 2.0, 1.0
    numbers[Y], numbers[COSTS] = read_labels(class_costs, rows.y, rows.sample_weight)
    return numbers


def predict(numbers: F64, rows: Rows, dws: F64) -> F64:
    """Return the row states with X dw of the predictor and of pure centering. dws (2, d): the two vectors dw."""
    found = numbers.copy()
    found[[PREDICTED, CORRECTED]] = _map(*split(rows.X), dws)
    return found


def correct(numbers: F64, rows: Rows, ends: F64) -> F64:
    """Return the row states with X dw of the corrector, and X w after the step. ends (2, d): dw, and w after the step.

    The new f is thus a single product, and its rounding error does not grow from step to step.
    """
    found = numbers.copy()
    found[[CORRECTED, AFTER]] = _map(*split(rows.X), ends)
    return found


@unwarned
def move_row(numbers: F64, rows: Rows, *given: float) -> F64:  # noqa: ARG001
    """Return the row states after a step, in which f moves along the direction like s, t, xi and r."""
    course, found = Course(*given), numbers.copy()
    direction = find_corrected(numbers, course, numbers[CORRECTED])
    found[: len(Point._fields)] = move_inside(point_of(numbers), direction, course.length)
    return found


def arrive(numbers: F64, rows: Rows) -> F64:  # noqa: ARG001
    """Return the row states with f set to the product X w after the step."""
    found = numbers.copy()
    found[F] = numbers[AFTER]
    return found


@njit(cache=True, nogil=True, fastmath=REORDERED_SUMS)
def _map(values: F32, indices: I32, indptr: I64, dws: F64) -> F64:
    """Return X dw, (k, n), for k = 1 or 2 vectors dw; dense rows are read one at a time, in memory order.

    This takes half the time of reading four rows at a time (products.scores_of), because reading X dominates the cost.
    """
    if values.ndim == 1:
        scores = np.empty((indptr.size - 1, len(dws)))
        scores_of(values, indices, indptr, dws, scores)
        return scores.T.copy()
    products, u, v = np.empty((len(dws), len(values))), dws[0], dws[-1]
    for i in range(len(values)):
        x, by_u, by_v = values[i], 0.0, 0.0
        for j in range(x.size):
            by_u += x[j] * u[j]
            by_v += x[j] * v[j]
        products[0, i], products[-1, i] = by_u, by_v
    return products
