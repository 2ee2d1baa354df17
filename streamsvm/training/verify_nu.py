"""Verification of models of nu-SVC and nu-SVR, in float64 and in one read.

Of nu-SVC, the objective and a lower bound of the optimum are computed anew:

    Q = r^2 / 2 |w|^2     >=     M^2 / (2 |w|^2),   M = N - sum_i C_i max(0, 1 - y_i f_i),   r = N / sum_j |s_j|

f_i are the model's scores, s_j its coefficients y_j a_j / r, and w = sum_j s_j phi(x_j). Both follow from the model
alone (see numeric.fixed_sum_certificates), so that no dual point need be kept. Those of pairs of classes are added up.

Of nu-SVR it is P, at the half-width of the tube that is best for the model (see numeric.nu_tube_certificates).
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel
from streamsvm.numeric.certificates import find_best_bias
from streamsvm.numeric.dual_points import Bound
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Matrix, Rows, take_rows
from streamsvm.problems.classification import Hinge
from streamsvm.problems.problem import read_truth
from streamsvm.problems.regression import read_numbers
from streamsvm.requests import Scan
from streamsvm.training.verify_kernel import (
    SUM_SHARE,
    Pick,
    choose_rows,
    measure_squares,
    refuse_known_values,
    separate,
)


def evaluate(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> tuple[float, float, Bound | None]:
    """Return the objective, how far rounding can have moved it, and the lower bound if the kernel has one.

    Raises InputError if the coefficients are no point of the problem.
    """
    pick, model = choose_rows(model), separate(model)
    coefs, biases = np.atleast_2d(model.dual_coef), np.atleast_1d(np.asarray(model.intercept, np.float64))
    costs, nu = np.broadcast_to(np.atleast_2d(np.asarray(problem["class_costs"])), (len(coefs), 2)), problem["nu"]
    losses = [Hinge((float(own[0]), float(own[1]))) for own in costs]
    vectors, model_of = to_float64(model.support_vectors), (model.kernel, model.support_vectors, coefs, biases)
    totals = engine.scan(Scan(partial(np.zeros, (len(coefs), 3)), partial(_add, losses, pick), operator.add, model_of))
    value, bound, error = 0.0, 0.0, 0.0
    for coef, own, (loss, size, cost) in zip(coefs, costs, totals, strict=True):
        total = float(nu) * cost
        offset = total / float(np.sum(np.abs(coef))) if np.any(coef) else 0.0
        _check_point(model, engine, coef, own * (1.0 / offset if offset else 0.0))
        used = np.flatnonzero(coef)
        chosen, s = take_rows(vectors, used), coef[used]
        f, f_errors = np.zeros((2, len(used)))
        add_kernel_sums(model.kernel, chosen, chosen, s, f, errors=f_errors)
        square = float(s @ f)
        of_square = float(np.abs(s) @ (f_errors + bound_rounding(len(f) + 4, 1.0) * np.abs(f)))
        margin = total - loss - bound_rounding(engine.source.n_rows + 4, float(size) + total)
        value, error = value + offset**2 * square / 2, error + offset**2 * of_square
        bound += margin**2 / (2 * (square + of_square)) if margin > 0.0 else 0.0
    return float(value), float(error), Bound(float(bound), float(error)) if model.kernel.is_definite else None


def evaluate_tube(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> tuple[float, float]:
    """Return P of a nu-SVR model, and how far rounding can have moved it."""
    refuse_known_values(model)
    numbers = read_numbers(engine.source)
    about = (model.kernel, model.support_vectors, model.dual_coef, float(np.asarray(model.intercept)))
    tiles = engine.scan(Scan(list, partial(_add_distances, numbers), operator.add, about))
    _, *columns = zip(*sorted(tiles, key=lambda tile: tile[0]), strict=True)
    distances, errors, weight = (np.concatenate(parts) for parts in columns)
    costs, square = float(problem["row_cost"]) * weight, float(measure_squares(model, model.dual_coef[None])[0])
    total = float(problem["nu"]) * float(np.sum(costs))
    n, size = len(costs), float(np.sum(np.abs(model.dual_coef)))
    width = find_best_bias(np.ones(n), costs, np.zeros(n), distances, total)
    objective = square / 2 + total * width + float(costs @ np.maximum(distances - width, 0.0))
    return objective, float(costs @ errors) + bound_rounding(n + len(model.dual_coef) + 8, 2 * objective + size)


def _add_distances(
    numbers: F64, tiles: list[Any], rows: Rows, kernel: Kernel, vectors: Matrix, coef: F64, bias: float
) -> None:
    """Note how far the scores are from the targets, the errors of the scores, and the weights of the rows."""
    f, errors = np.full(rows.n_rows, bias), np.zeros(rows.n_rows)
    add_kernel_sums(kernel, to_float64(rows.X), to_float64(vectors), coef, f, errors=errors)
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight.copy()
    tiles.append((rows.start, np.abs(read_truth(rows, numbers) - f), errors, weight))


def _check_point(model: KernelModel, engine: Engine, coef: F64, most: F64) -> None:
    """Raise InputError unless the coefficients are multipliers of these rows. most: of the classes, before weights."""
    weight = engine.source.column("sample_weight")
    assert model.support is not None
    if len(model.support) and model.support.max() >= engine.source.n_rows:
        raise InputError("the model's support vectors are not among these rows")
    limit = np.where(coef > 0.0, most[1], most[0]) * (1.0 if weight is None else weight[model.support])
    if np.any(np.abs(coef) > limit * (1.0 + len(coef) * SUM_SHARE)):
        raise InputError("the model's coefficients are no multipliers: one is above the cost of its row")
    if abs(float(np.sum(coef))) > len(coef) * SUM_SHARE * float(np.sum(np.abs(coef))):
        raise InputError(
            "the model's coefficients are no multipliers: those of both classes do not sum to the same, as those of a "
            "training that was stopped early may not"
        )


def _add(losses: list[Hinge], pick: Pick, totals: F64, rows: Rows, kernel: Kernel, X: Matrix, S: F64, b: F64) -> None:
    """Add the most that the losses can be, given the errors of the scores, the sizes of rounding, and the costs."""
    own_rows, columns = to_float64(rows.X), to_float64(X)
    for k, loss in enumerate(losses):
        one, mine = pick(rows, k)
        used = np.flatnonzero(S[k])
        f, errors = np.full(len(mine), b[k]), np.zeros(len(mine))
        add_kernel_sums(kernel, take_rows(own_rows, mine), take_rows(columns, used), S[k, used], f, errors=errors)
        costs = loss.steepest(one)
        found = float(np.sum(loss.measure(one, f)[0] + costs * errors))
        totals[k] += found, float(costs @ (np.abs(f) + 1.0 + errors)), float(np.sum(costs))
