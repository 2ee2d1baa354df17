"""The sums of the two passes of an interior-point iteration (interior_point.solver), formed one tile of rows at a time.

W = diag(C / omega) and the other symbols are those of interior_point.steps (Jung, O'Leary & Tits 2008, section 3). All
sums are float64. Only the rows in Q take part in the Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from streamsvm.methods.interior_point.constraint_reduction import Flags
from streamsvm.methods.interior_point.steps import (
    Point,
    Targets,
    aim_at_zero,
    compiled,
    find_direction,
    find_omega,
    find_scales,
    find_second_order,
    move_inside,
    unwarned,
)
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import (
    F32,
    F64,
    I32,
    I64,
    SUMS_MAY_BE_REORDERED,
    CsrRows,
    Matrix,
    Rows,
    add_rows,
    scores_of,
    split,
)

WEIGHTS, PREDICTOR, CENTERING, POSITIVE, NEGATIVE, CHOSEN = range(6)  # rows of AssembledSums.sums
N_SUMS = 6
MAPPED, LABELS, SAMPLE_WEIGHTS = 1, 2, 3  # places in a Tile; place 0 is the number of its first row
N_MAGNITUDES = 2

Tile = tuple[int, F64, Any, Any]


def gather(tiles: list[Tile], column: int) -> Any:
    """Return MAPPED, LABELS or SAMPLE_WEIGHTS of all rows in the order of the rows, or None if tiles have none."""
    parts = [tile[column] for tile in sorted(tiles, key=lambda tile: tile[0])]
    return None if parts[0] is None else np.concatenate(parts)


@dataclass
class AssembledSums:
    """The totals of the pass `assemble`, at the new point.

    gram, chosen_weight and chosen_rows are X'WX, e'We and e'e over Q. sums (6, d) has the rows WEIGHTS to CHOSEN:
    X'We, X'YW r_Omega of the predictor, X'Y (1/r - 1/t) / omega, sum alpha_i x_i of the classes +1 and -1, and X'We
    over Q. depth: the most additions that a term of `sums` has gone through. magnitudes (2, d): sum C_i |x_ij| and
    the largest |x_ij| of the rows of positive cost. A tile is the number of its first row, X dw and X w at the new
    point (n, 2), label codes, and sample weights. Magnitudes, labels and weights are found in the first pass only.
    """

    gram: GramSum
    sums: F64
    magnitudes: F64
    chosen_weight: float = 0.0
    chosen_rows: int = 0
    depth: int = 0
    tiles: list[Tile] = field(default_factory=list)


def start_assembled(n_features: int, most_light: float = 0.0) -> AssembledSums:
    """Return the totals of no rows. most_light: which rows of the Gram matrix are light (numeric.gram)."""
    return AssembledSums(
        GramSum(n_features, most_light), np.zeros((N_SUMS, n_features)), np.zeros((N_MAGNITUDES, n_features))
    )


@unwarned
def combine_assembled(left: AssembledSums, right: AssembledSums) -> AssembledSums:
    """Return the totals of both groups of rows."""
    return AssembledSums(
        left.gram + right.gram,
        left.sums + right.sums,
        _combine_magnitudes(left.magnitudes, right.magnitudes),
        left.chosen_weight + right.chosen_weight,
        left.chosen_rows + right.chosen_rows,
        max(left.depth, right.depth) + 1,
        left.tiles + right.tiles,
    )


def _combine_magnitudes(left: F64, right: F64) -> F64:
    return np.stack((left[0] + right[0], np.maximum(left[1], right[1])))


@unwarned
def add_assembled(
    totals: AssembledSums,
    rows: Rows,
    class_costs: F64,
    ends: F64,
    biases: F64,
    step: float,
    limits: F64,
    rule: str,
    first: bool,
    f: F64,
    s: F64,
    t: F64,
    xi: F64,
    r: F64,
    sv: F64,
    xu: F64,
    allowed: Flags,
) -> None:
    """Add a tile at the end of a step of length `step`. biases: b before the step, and its change.

    ends (2, d): dw, and w after the step: the new f is one product, and its rounding does not grow from step to step.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    products = _map(*split(rows.X), ends)
    df, after = products[:, 0].copy(), products[:, 1].copy()
    coefs = _weigh(f, s, t, xi, r, sv, xu, allowed, y, costs, df, after, biases, step, limits, rule == "omega")
    chosen = np.flatnonzero(coefs[CHOSEN])
    totals.gram.add(rows.X, chosen, coefs[CHOSEN, chosen])
    totals.chosen_weight += float(np.sum(coefs[CHOSEN]))
    totals.chosen_rows += len(chosen)
    _add_products(*split(rows.X), coefs, totals.sums)
    totals.depth += rows.n_rows if isinstance(rows.X, CsrRows) else -(-rows.n_rows // 4) + 2  # see _add_products
    sample_weight = None if rows.sample_weight is None or not first else rows.sample_weight.copy()
    totals.tiles.append((rows.start, products, rows.y.copy() if first and rows.y is not None else None, sample_weight))
    if first:
        _add_magnitudes(rows.X, costs, totals.magnitudes)


@compiled
def _weigh(
    f: F64,
    s: F64,
    t: F64,
    xi: F64,
    r: F64,
    sv: F64,
    xu: F64,
    allowed: Flags,
    y: F64,
    costs: F64,
    df: F64,
    after: F64,
    biases: F64,
    step: float,
    limits: F64,
    by_omega: bool,
) -> F64:
    """Return the factors (6, n) of the rows in `AssembledSums.sums`; after: f at the end of the step."""
    before = Point(f, s, t, xi, r)
    point = move_inside(before, find_direction(before, y, costs, biases[0], Targets(sv, xu), df, biases[1]), step)
    coefs, bias = np.zeros((N_SUMS, y.size)), biases[0] + step * biases[1]
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


@njit(cache=True, nogil=True, fastmath=SUMS_MAY_BE_REORDERED)
def _map(values: F32, indices: I32, indptr: I64, dws: F64) -> F64:
    """Return X dw, (n, k), for k = 1 or 2 vectors dw. Dense rows are read one at a time, in the order of memory.

    This takes half the time of four rows at a time (rows.scores_of), because reading X is most of the work.
    """
    if values.ndim == 1:
        products = np.empty((indptr.size - 1, len(dws)))
        scores_of(values, indices, indptr, dws, products)
        return products
    products, u, v = np.empty((len(values), len(dws))), dws[0], dws[-1]
    for i in range(len(values)):
        x, by_u, by_v = values[i], 0.0, 0.0
        for j in range(x.size):
            by_u += x[j] * u[j]
            by_v += x[j] * v[j]
        products[i, 0], products[i, -1] = by_u, by_v
    return products


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

    second_order (1, d): X'YW (ds dt / t - dxi dr / r) with limited products (steps.find_products). A tile is the
    number of its first row, and X dw of the predictor and of centering, (n, 2).
    """

    second_order: F64
    tiles: list[Tile] = field(default_factory=list)


def start_predicted(n_features: int) -> PredictedSums:
    """Return the totals of no rows."""
    return PredictedSums(np.zeros((1, n_features)))


def combine_predicted(left: PredictedSums, right: PredictedSums) -> PredictedSums:
    """Return the totals of both groups of rows."""
    return PredictedSums(left.second_order + right.second_order, left.tiles + right.tiles)


@unwarned
def add_predicted(
    totals: PredictedSums,
    rows: Rows,
    class_costs: F64,
    dws: F64,
    biases: F64,
    mu: float,
    mean_cost: float,
    f: F64,
    s: F64,
    t: F64,
    xi: F64,
    r: F64,
) -> None:
    """Add a tile. dws (2, d): dw of the predictor and of centering. biases: b, and its change by the predictor."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    df = _map(*split(rows.X), dws)
    scales = find_scales(costs, mean_cost)
    coefs = _weigh_second_order(f, s, t, xi, r, y, costs, df[:, 0].copy(), biases, mu, scales)
    row = np.arange(rows.n_rows)
    add_rows(totals.second_order, rows.X, row, np.zeros_like(row), coefs)
    totals.tiles.append((rows.start, df, None, None))


@compiled
def _weigh_second_order(
    f: F64, s: F64, t: F64, xi: F64, r: F64, y: F64, costs: F64, df: F64, biases: F64, mu: float, scales: F64
) -> F64:
    point = Point(f, s, t, xi, r)
    predicted = find_direction(point, y, costs, biases[0], aim_at_zero(point), df, biases[1])
    coefs: F64 = y * costs / find_omega(point) * find_second_order(point, predicted, mu, scales)
    return coefs
