"""What the two passes of an interior-point iteration add up, a tile of rows at a time (see solvers.interior_point).

W = diag(C / omega); all sums are float64. Rows of a tile that are not in Q take no part in the Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.numeric.constraint_reduction import Flags, find_keys
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.interior_point import (
    Point,
    Targets,
    aim_at_zero,
    find_direction,
    find_omega,
    find_right_side,
    find_second_order,
    move,
)
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, CsrRows, Matrix, Rows, add_rows, compute_scores

N_SUMS = 6
TINY = 1e-300  # a variable that would leave the interior: the step will be refused, and sums must not warn before

Tile = tuple[int, F64, Any, Any]


def gather(tiles: list[Tile], column: int) -> Any:
    """Return one of the columns for all rows, in their order; None if there is none."""
    parts = [tile[column] for tile in sorted(tiles, key=lambda tile: tile[0])]
    return None if parts[0] is None else np.concatenate(parts)


@dataclass
class AssembledSums:
    """Of `assemble`, at the new point. gram, chosen_sum, chosen_weight, chosen_rows: X'WX, X'We, e'We, e'e over Q.

    sums (6, d): X'We, X'YW r_Omega of the predictor, X'YW (1/r - 1/t), X'Y alpha, and sum min(alpha_i, C_i) x_i of the
    classes +1 and -1. largest: of |X|. tiles: first row, X dw, and, if asked for, codes of the labels and weights.
    """

    gram: GramSum
    chosen_sum: F64
    sums: F64
    chosen_weight: float = 0.0
    chosen_rows: int = 0
    largest: float = 0.0
    tiles: list[Tile] = field(default_factory=list)


def start_assembled(n_features: int) -> AssembledSums:
    """Return the totals of no rows."""
    return AssembledSums(GramSum(n_features), np.zeros(n_features), np.zeros((N_SUMS, n_features)))


def combine_assembled(left: AssembledSums, right: AssembledSums) -> AssembledSums:
    """Return the sum."""
    return AssembledSums(
        left.gram + right.gram, left.chosen_sum + right.chosen_sum, left.sums + right.sums,
        left.chosen_weight + right.chosen_weight, left.chosen_rows + right.chosen_rows,
        max(left.largest, right.largest), left.tiles + right.tiles,
    )  # fmt: skip


def add_assembled(
    totals: AssembledSums, rows: Rows, class_costs: F64, dw: F64, biases: F64, step: float, limits: F64, rule: str,
    first: bool, f: F64, s: F64, t: F64, xi: F64, r: F64, sv: F64, xu: F64, allowed: Flags,
) -> None:  # fmt: skip
    """Add a tile, at the point that is `step` along the direction of dw. biases: b before the step, and its change."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    df = compute_scores(rows.X, dw[None, :])[:, 0]
    before = Point(f, s, t, xi, r)
    direction = find_direction(before, y, costs, biases[0], Targets(sv, xu), df, biases[1])
    moved = move(before, direction, step)
    point, bias = Point(moved.f, *(np.maximum(value, TINY) for value in moved[1:])), biases[0] + step * biases[1]
    weight = costs / find_omega(point)
    keys = find_keys(rule, point, y, bias)
    chosen = np.flatnonzero(allowed & (keys <= np.where(y > 0, limits[1], limits[0])) & (weight > 0))
    totals.gram.add(rows.X, chosen, weight[chosen])
    add_rows(totals.chosen_sum[None, :], rows.X, chosen, np.zeros(len(chosen), np.int64), weight[chosen])
    totals.chosen_weight += float(np.sum(weight[chosen]))
    totals.chosen_rows += len(chosen)
    right_side = find_right_side(point, y, bias, aim_at_zero(point))
    bounded = costs * np.minimum(point.t, 1.0)
    coefs = (
        weight, y * weight * right_side, y * weight * (1.0 / point.r - 1.0 / point.t), y * costs * point.t,
        np.where(y > 0, bounded, 0.0), np.where(y < 0, bounded, 0.0),
    )  # fmt: skip
    for k, coef in enumerate(coefs):
        _add_sum(totals.sums[k : k + 1], rows.X, coef)
    sample_weight = None if rows.sample_weight is None or not first else rows.sample_weight.copy()
    totals.tiles.append((rows.start, df, rows.y.copy() if first and rows.y is not None else None, sample_weight))
    if first:
        totals.largest = max(totals.largest, _find_largest(rows.X))


def find_lower_bound(sums: F64, y: F64, alpha: F64) -> float:
    """D at a feasible multiple of alpha (n,), 0 <= alpha <= C, of which sums 4 and 5 (see AssembledSums) are made.

    The heavier class's multipliers are made smaller in proportion, for y'alpha = 0; then D is maximised over c alpha.
    """
    up, down = float(np.sum(alpha, where=y > 0)), float(np.sum(alpha, where=y < 0))
    lighter = min(up, down)
    if lighter <= 0:
        return 0.0
    v = lighter / up * sums[4] - lighter / down * sums[5]
    square, total = float(v @ v), 2 * lighter
    multiple = min(1.0, total / square) if square > 0 else 1.0
    return multiple * total - multiple**2 * square / 2


def _add_sum(total: F64, X: Matrix, coef: F64) -> None:
    row = np.flatnonzero(coef)
    add_rows(total, X, row, np.zeros(len(row), np.int64), coef[row])


def _find_largest(X: Matrix) -> float:
    values = X.data if isinstance(X, CsrRows) else X
    return float(np.max(np.abs(values))) if values.size else 0.0


@dataclass
class PredictedSums:
    """Of `predict`. second_order (1, d): X'YW (ds dt / t - dxi dr / r). tiles: first row, X dw of both, (n, 2)."""

    second_order: F64
    tiles: list[Tile] = field(default_factory=list)


def start_predicted(n_features: int) -> PredictedSums:
    """Return the totals of no rows."""
    return PredictedSums(np.zeros((1, n_features)))


def combine_predicted(left: PredictedSums, right: PredictedSums) -> PredictedSums:
    """Return the sum."""
    return PredictedSums(left.second_order + right.second_order, left.tiles + right.tiles)


def add_predicted(
    totals: PredictedSums, rows: Rows, class_costs: F64, dws: F64, biases: F64, f: F64, s: F64, t: F64, xi: F64, r: F64
) -> None:
    """Add a tile. dws (2, d): the predictor's, and that of centering; biases: b, and its change by the predictor."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    df = compute_scores(rows.X, dws)
    point = Point(f, s, t, xi, r)
    predicted = find_direction(point, y, costs, biases[0], aim_at_zero(point), df[:, 0], biases[1])
    _add_sum(totals.second_order, rows.X, y * costs / find_omega(point) * find_second_order(point, predicted))
    totals.tiles.append((rows.start, df, None, None))
