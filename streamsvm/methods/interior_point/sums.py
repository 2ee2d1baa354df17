"""The sums of the two passes of an interior-point iteration (interior_point.solver), formed one tile of rows at a time.

W = diag(C / omega) and the other symbols are those of interior_point.steps (Jung, O'Leary & Tits 2008, section 3). All
sums are float64. Only the rows in Q take part in the Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from streamsvm.methods.interior_point.row_numbers import (
    AFTER,
    CORRECTED,
    COSTS,
    Course,
    T,
    Y,
    find_corrected,
    find_predicted,
    point_of,
)
from streamsvm.methods.interior_point.row_passes import is_drawn, sum_complementarity
from streamsvm.methods.interior_point.steps import (
    Point,
    compiled,
    find_omega,
    find_ratios,
    find_scales,
    find_second_order,
    move_inside,
    unwarned,
)
from streamsvm.numeric.exact_sums import ExactSums, add_exact_sums
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.row_products import add_rows
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix, Rows, split

WEIGHTS, PREDICTOR, CENTERING, POSITIVE, NEGATIVE, CHOSEN = range(6)  # rows of AssembledSums.sums
N_SUMS = 6
N_MAGNITUDES = 2


@dataclass
class AssembledSums:
    """The totals of the pass `assemble`, at the new point.

    gram and chosen_rows are X'WX and e'e over Q. sums (6, d) has the rows WEIGHTS to CHOSEN: X'We, X'YW r_Omega of the
    predictor, X'Y (1/r - 1/t) / omega, sum alpha_i x_i of the classes +1 and -1, and X'We over Q. ones (6,): the same
    sums for a feature that is 1 in all rows. depth: the most additions that a term of `sums` has gone through;
    additions: the most that the sum of a tile has in `ones`. shortest: the step at which the first variable of a row
    becomes 0. complementarity: sum C (s t + xi r). The rest is found in the first pass only. magnitudes (2, d): sum C_i
    |x_ij| and the largest |x_ij| of the rows of positive cost. total_cost, positive_cost, largest_cost,
    counted_rows: sum C, the same of the class +1, the largest C, and the number of rows of positive cost.
    """

    gram: GramSum
    sums: F64
    ones: F64
    magnitudes: F64
    chosen_rows: int = 0
    depth: int = 0
    additions: int = 0
    shortest: float = float("inf")
    complementarity: float = 0.0
    total_cost: float = 0.0
    positive_cost: float = 0.0
    largest_cost: float = 0.0
    counted_rows: int = 0


def start_assembled(n_features: int, most_light: float = 0.0) -> AssembledSums:
    """Return the totals of no rows. most_light: which rows of the Gram matrix are light (numeric.gram)."""
    sums, magnitudes = np.zeros((N_SUMS, n_features)), np.zeros((N_MAGNITUDES, n_features))
    return AssembledSums(GramSum(n_features, most_light), sums, np.zeros(N_SUMS), magnitudes)


@unwarned
def combine_assembled(left: AssembledSums, right: AssembledSums) -> AssembledSums:
    """Return the totals of both groups of rows."""
    return AssembledSums(
        left.gram + right.gram,
        left.sums + right.sums,
        left.ones + right.ones,
        np.stack((left.magnitudes[0] + right.magnitudes[0], np.maximum(left.magnitudes[1], right.magnitudes[1]))),
        left.chosen_rows + right.chosen_rows,
        max(left.depth, right.depth) + 1,
        max(left.additions, right.additions) + 1,
        min(left.shortest, right.shortest),
        left.complementarity + right.complementarity,
        left.total_cost + right.total_cost,
        left.positive_cost + right.positive_cost,
        max(left.largest_cost, right.largest_cost),
        left.counted_rows + right.counted_rows,
    )


@unwarned
def add_assembled(
    totals: AssembledSums,
    rows: Rows,
    course: Course,
    limits: F64,
    rule: str,
    drawn: tuple[float, int],
    first: bool,
    numbers: F64,
) -> None:
    """Add a tile at the end of a step; one of length 0 leaves the rows where they are.

    limits (2,): the largest keys of Q by class. drawn: share and seed of the rows that may be in Q (row_passes).
    """
    course, before, costs = Course(*course), point_of(numbers), numbers[COSTS]
    point = before
    if course.length > 0.0:
        direction = find_corrected(numbers, course, numbers[CORRECTED])
        totals.shortest = min(totals.shortest, float(np.min(find_ratios(before, direction), initial=np.inf)))
        point = move_inside(before, direction, course.length)
    totals.complementarity += sum_complementarity(point, costs)
    bias, allowed = course.bias + course.length * course.bias_change, is_drawn(rows.start, rows.n_rows, *drawn)
    coefs = _weigh(point, numbers[AFTER], numbers[Y], costs, bias, limits, rule == "omega", allowed)
    chosen = np.flatnonzero(coefs[CHOSEN])
    totals.gram.add(rows.X, chosen, coefs[CHOSEN, chosen])
    totals.chosen_rows += len(chosen)
    totals.ones += np.sum(coefs, axis=1)
    _add_products(*split(rows.X), coefs, totals.sums)
    totals.depth += rows.n_rows if isinstance(rows.X, CsrRows) else -(-rows.n_rows // 4) + 2  # see _add_products
    totals.additions += 1
    if first:
        _add_magnitudes(rows.X, costs, totals.magnitudes)
        totals.total_cost += float(np.sum(costs))
        totals.positive_cost += float(np.sum(costs, where=numbers[Y] > 0))
        totals.largest_cost = max(totals.largest_cost, float(np.max(costs)))
        totals.counted_rows += int(np.count_nonzero(costs))


@compiled
def _weigh(point: Point, after: F64, y: F64, costs: F64, bias: float, limits: F64, by_omega: bool, allowed: Any) -> F64:
    """Return the factors (6, n) of the rows in `AssembledSums.sums`; after: f at the end of the step."""
    coefs = np.zeros((N_SUMS, y.size))
    for i in range(y.size):
        t_i, xi_i, r_i = point.t[i], point.xi[i], point.r[i]
        omega, distance = point.s[i] / t_i + xi_i / r_i, y[i] * (after[i] + bias) + xi_i - 1.0
        weight = costs[i] / omega
        coefs[WEIGHTS, i] = weight
        coefs[PREDICTOR, i] = y[i] * weight * (distance - xi_i * (1.0 - t_i) / r_i)  # r_sv = s t, r_xu = xi r
        coefs[CENTERING, i] = y[i] / omega * (1.0 / r_i - 1.0 / t_i) if costs[i] > 0 else 0.0
        coefs[POSITIVE if y[i] > 0 else NEGATIVE, i] = costs[i] * t_i
        key = omega if by_omega else y[i] * (point.f[i] + bias) + xi_i - 1.0  # The limits were found with this f.
        if allowed[i] and key <= limits[1 if y[i] > 0 else 0]:
            coefs[CHOSEN, i] = weight
    return coefs


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_products(values: F32, indices: I32, indptr: I64, coefs: F64, totals: F64) -> None:
    """Add coefs (6, n) X to totals (6, d). Of dense X, four rows and two sums are taken at a time."""
    if values.ndim == 1:
        for i in range(indptr.size - 1):
            for e in range(indptr[i], indptr[i + 1]):
                for k in range(N_SUMS):
                    totals[k, indices[e]] += coefs[k, i] * values[e]
        return
    n = values.shape[0]
    padded = np.zeros((N_SUMS, n + 3))
    for k in range(N_SUMS):  # as a slice it takes twice as long to compile
        for i in range(n):
            padded[k, i] = coefs[k, i]
    for i in range(0, n, 4):
        x0, x1, x2, x3 = values[i], values[min(i + 1, n - 1)], values[min(i + 2, n - 1)], values[min(i + 3, n - 1)]
        for k in range(0, N_SUMS, 2):
            a, b, p, q = totals[k], totals[k + 1], padded[k, i : i + 4], padded[k + 1, i : i + 4]
            a0, a1, a2, a3, b0, b1, b2, b3 = p[0], p[1], p[2], p[3], q[0], q[1], q[2], q[3]
            for j in range(x0.size):
                a[j] += (a0 * x0[j] + a1 * x1[j]) + (a2 * x2[j] + a3 * x3[j])
                b[j] += (b0 * x0[j] + b1 * x1[j]) + (b2 * x2[j] + b3 * x3[j])


def _add_magnitudes(X: Matrix, costs: F64, magnitudes: F64) -> None:
    """Add the rows to magnitudes (2, d): sum C_i |x_ij|, and the largest |x_ij| of the rows of positive cost."""
    row, counted = np.arange(len(costs)), costs > 0
    if isinstance(X, CsrRows):
        size: Matrix = CsrRows(np.abs(X.data), X.indices, X.indptr, X.n_features)
        np.maximum.at(magnitudes[1], X.indices, np.abs(X.data) * np.repeat(counted, np.diff(X.indptr)))
    else:
        size = np.abs(X)
        np.maximum(magnitudes[1], np.max(size, axis=0, where=counted[:, None], initial=0.0), out=magnitudes[1])
    add_rows(magnitudes[:1], size, row, np.zeros_like(row), costs)


@dataclass
class PredictedSums:
    """The totals of the pass `predict`.

    second_order (1, d): X'YW (ds dt / t - dxi dr / r) with limited products (steps.find_products); one: the same sum
    for a feature that is 1 in all rows. shortest: the step at which the first variable of a row becomes 0.
    """

    second_order: F64
    one: float = 0.0
    shortest: float = float("inf")


def start_predicted(n_features: int) -> PredictedSums:
    """Return the totals of no rows."""
    return PredictedSums(np.zeros((1, n_features)))


def combine_predicted(left: PredictedSums, right: PredictedSums) -> PredictedSums:
    """Return the totals of both groups of rows."""
    sums = left.second_order + right.second_order
    return PredictedSums(sums, left.one + right.one, min(left.shortest, right.shortest))


@unwarned
def add_predicted(
    totals: PredictedSums, rows: Rows, bias: float, change: float, mu: float, mean_cost: float, numbers: F64
) -> None:
    """Add a tile. bias, change: b, and its change by the predictor."""
    point, y, costs = point_of(numbers), numbers[Y], numbers[COSTS]
    predicted = find_predicted(numbers, bias, change)
    totals.shortest = min(totals.shortest, float(np.min(find_ratios(point, predicted), initial=np.inf)))
    scales = find_scales(costs, mean_cost)
    coefs: F64 = y * costs / find_omega(point) * find_second_order(point, predicted, mu, scales)
    row = np.arange(rows.n_rows)
    add_rows(totals.second_order, rows.X, row, np.zeros_like(row), coefs)
    totals.one += float(np.sum(coefs))


def add_exact_multipliers(totals: ExactSums, rows: Rows, numbers: F64) -> None:
    """Add alpha_i x_i in twice the precision."""
    add_exact_sums(totals, rows, numbers[COSTS] * numbers[T])
