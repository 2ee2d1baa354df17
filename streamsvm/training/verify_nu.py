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
from streamsvm.numeric.compact import match_layouts
from streamsvm.numeric.dual_points import Bound
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.rounding import UNIT, bound_rounding
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
    sum_losses,
)
from streamsvm.training.verify_one_class import bound_optimum


def evaluate(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> tuple[float, float, Bound | None]:
    """Return the objective, how far rounding can have moved it, and the lower bound if the kernel has one.

    Raises InputError if the coefficients are no point of the problem.
    """
    pick, model = choose_rows(model), separate(model)
    coefs, biases = np.atleast_2d(model.dual_coef), np.atleast_1d(np.asarray(model.intercept, np.float64))
    costs, nu = np.broadcast_to(np.atleast_2d(np.asarray(problem["class_costs"])), (len(coefs), 2)), problem["nu"]
    losses = [Hinge((float(own[0]), float(own[1]))) for own in costs]
    model_of = (model.kernel, model.support_vectors, coefs, biases)
    totals = engine.scan(Scan(partial(np.zeros, (len(coefs), 4)), partial(_add, losses, pick), operator.add, model_of))
    squares, errors = measure_squares(model, coefs)
    values, bounds, of_values = [], [], []
    for coef, own, square, off, (loss, moved, size, cost) in zip(
        coefs, costs, squares.tolist(), errors.tolist(), totals.tolist(), strict=True
    ):
        total = float(nu) * cost
        offset = total / float(np.sum(np.abs(coef))) if np.any(coef) else 0.0
        _check_point(model, engine, coef, own * (1.0 / offset if offset else 0.0))
        values.append(offset**2 * square / 2)
        of_values.append(offset**2 * off)
        margin_error = moved + bound_rounding(engine.source.n_rows + 4, size + total)
        bounds.append(bound_optimum(total - loss, margin_error, square, off))
    bound = Bound(sum(one.value for one in bounds), sum(one.rounding for one in bounds))
    return sum(values), sum(of_values), bound if model.kernel.is_definite else None


def evaluate_tube(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> tuple[float, float]:
    """Return P of a nu-SVR model, and how far rounding can have moved it."""
    refuse_known_values(model)
    numbers = read_numbers(engine.source)
    about = (model.kernel, model.support_vectors, model.dual_coef, float(np.asarray(model.intercept)))
    tiles = engine.scan(Scan(list, partial(_add_distances, numbers), operator.add, about))
    _, *columns = zip(*sorted(tiles, key=lambda tile: tile[0]), strict=True)
    distances, errors, weight = (np.concatenate(parts) for parts in columns)
    costs = float(problem["row_cost"]) * weight
    square, of_square = (float(found[0]) for found in measure_squares(model, model.dual_coef[None]))
    total = float(problem["nu"]) * float(np.sum(costs))
    n = len(costs)
    width = find_best_bias(np.ones(n), costs, np.zeros(n), distances, total)
    objective = square / 2 + total * width + float(costs @ np.maximum(distances - width, 0.0))
    return objective, float(costs @ errors) + of_square / 2 + bound_rounding(n + 8, 2 * objective)


def _add_distances(
    numbers: F64, tiles: list[Any], rows: Rows, kernel: Kernel, vectors: Matrix, coef: F64, bias: float
) -> None:
    """Note how far the scores are from the targets, the errors of the scores, and the weights of the rows."""
    f, errors = np.zeros((2, rows.n_rows))
    add_kernel_sums(kernel, *match_layouts(to_float64(rows.X), to_float64(vectors)), coef, f, errors=errors)
    f, truth = f + bias, read_truth(rows, numbers)
    errors += 4 * UNIT * (np.abs(f) + np.abs(truth))
    weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight.copy()
    tiles.append((rows.start, np.abs(truth - f), errors, weight))


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
    """Add the losses, how far the errors of the scores can raise them, the sizes of rounding, and the costs."""
    own_rows, columns = match_layouts(to_float64(rows.X), to_float64(X))
    for k, loss in enumerate(losses):
        one, mine = pick(rows, k)
        used = np.flatnonzero(S[k])
        f, errors = np.zeros((2, len(mine)))
        add_kernel_sums(kernel, take_rows(own_rows, mine), take_rows(columns, used), S[k, used], f, errors=errors)
        f += b[k]
        costs = loss.steepest(one)
        totals[k] += *sum_losses(loss, one, f, errors), costs @ (np.abs(f) + 1.0 + errors), np.sum(costs)
