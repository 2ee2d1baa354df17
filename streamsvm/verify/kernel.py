"""P and D of kernel models, recomputed in float64. D follows from the model's coefficients, without a kept dual point.

nu-SVC has an objective and a lower bound that both follow from the model (certificates.kernel):

    Q = r^2 / 2 |w|^2     >=     M^2 / (2 |w|^2),   M = N - sum_i C_i max(0, 1 - y_i f_i),   r = N / sum_j |s_j|

f_i are the scores of the model, s_j its coefficients y_j a_j / r, and w = sum_j s_j phi(x_j). For pairs of classes,
objectives and bounds are summed over the pairs. P of nu-SVR is taken at the half-width of the tube that minimises it.
For a one-class model

    Q = 1/2 sum_ij a_i a_j k(x_i, x_j)     >=     M^2 / (2 |w|^2),   M = N rho - sum_i C_i max(0, rho - w.phi(x_i))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.certificates.dual_points import Bound
from streamsvm.certificates.kernel import LONGEST_STRETCH, find_best_bias
from streamsvm.data.rows.source import RowSource, read_codes
from streamsvm.data.rows.views import pick_pair
from streamsvm.engines.engine import Engine
from streamsvm.kernels.kernel import add_kernel_sums, compute_squares, prove_kernel_sums, to_float64
from streamsvm.losses.classes import add_line_losses, read_costs
from streamsvm.losses.convex import ConvexLoss
from streamsvm.models.model import KernelModel
from streamsvm.numeric.labels import list_pairs
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64, I64, Rows, make_writable, take_rows
from streamsvm.passes import Scan
from streamsvm.problems.classification import CLASSIFY, Hinge
from streamsvm.problems.problem import read_truth
from streamsvm.problems.regression import read_numbers
from streamsvm.system.errors import InputError
from streamsvm.verify.linear import Found, bound_optimum, single_out, split_two_classes, sum_rows

SUM_SHARE = 1e-12  # the largest allowed |y'a|, as a share of sum a_i; rounding of the terms may keep y'a from being 0
ABOVE_COST = (
    "the model's coefficients are not a dual point, since one is above the cost of its row: are these the model and "
    "the rows of one training?"
)


def list_scores(model: KernelModel) -> KernelModel:
    """Return the model with one row of coefficients per score or pair of classes: dual_coef (K, m), intercept (K,).

    Raises InputError for a precomputed kernel, whose support vectors are unknown.
    """
    if model.is_of_known_values:
        raise InputError(
            "the objective of a model with a precomputed kernel cannot be recomputed, since it stores no support "
            "vectors"
        )
    model = model.list_pairs()
    vectors, coefs = make_writable(model.support_vectors), np.atleast_2d(make_writable(model.dual_coef))
    biases = np.atleast_1d(np.asarray(model.intercept, np.float64))
    return replace(model, support_vectors=vectors, dual_coef=coefs, intercept=biases)


def evaluate(model: KernelModel, engine: Engine, problem: dict[str, Any], dual: bool) -> Found:
    """Recompute P of a model whose losses depend on one score each and, with `dual`, its lower bound."""
    losses = model.problem.read_losses(problem, engine.source, np.size(model.intercept))
    pairs, model = find_pairs(model), list_scores(model)
    totals = sum_rows(engine, partial(_add_losses, losses, pairs, model), (len(losses), 2))
    squares, errors = measure_squares(model)
    loss, moved = totals.sum(axis=0).tolist()
    half, size = float(np.sum(squares)) / 2, float(np.sum(np.abs(squares))) / 2
    of_sums = bound_rounding(engine.source.n_rows + 24, loss) + bound_rounding(len(losses) + 8, size)
    bound = _bound(model, engine.source, problem, squares, errors) if dual else None
    return Found(half + loss, moved + float(np.sum(errors)) / 2 + of_sums, bound)


Pairs = Sequence[tuple[int, int]] | None


def find_pairs(model: KernelModel) -> Pairs:
    """Return the pairs of classes that define the problems of a model; None if each problem has all rows."""
    return None if model.n_support is None else list_pairs(len(model.n_support))


def _pick_rows(rows: Rows, k: int, n_problems: int, pairs: Pairs) -> tuple[Rows, I64]:
    """Return the rows of a tile that belong to a problem, with labels 1 and 0, and their positions in the tile."""
    if pairs is None:
        return single_out(rows, k, n_problems), np.arange(rows.n_rows)
    first, second = pairs[k]
    return pick_pair(rows, first=first, second=second), np.flatnonzero((rows.y == first) | (rows.y == second))


def _add_losses(losses: Sequence[ConvexLoss], pairs: Pairs, model: KernelModel, totals: F64, rows: Rows) -> None:
    """Add, for every problem, the losses of the rows and a bound on their error."""
    F, errors = prove_kernel_sums(model.kernel, rows.X, model.support_vectors, model.dual_coef)
    F += model.intercept
    for k, loss in enumerate(losses):
        one, places = _pick_rows(rows, k, len(losses), pairs)
        totals[k] += sum_losses(loss, one, F[places, k], errors[places])


def sum_losses(loss: ConvexLoss, rows: Rows, f: F64, errors: F64) -> tuple[float, float]:
    """Return the sum of the losses of the rows, and a bound on its error, given errors e of the scores f.

    A convex loss l moves by at most max(l(f - e), l(f + e)) - l(f). The rounding error of 1 - y f counts as an error of
    f.
    """
    off = 1.01 * errors + 4 * UNIT * (1.0 + np.abs(f))
    values, below, above = (loss.measure(rows, scores)[0] for scores in (f, f - off, f + off))
    return float(np.sum(values)), 1.01 * float(np.sum(np.maximum(below, above) - values))


def measure_squares(model: KernelModel) -> tuple[F64, F64]:
    """Return |w|^2 of each problem and bounds on their errors, (n_problems,), from the support vectors alone."""
    X = to_float64(model.support_vectors)
    squares, errors = np.zeros((2, len(model.dual_coef)))
    for k, coef in enumerate(model.dual_coef):
        used = np.flatnonzero(coef)
        if len(used):
            own, s, (f, off) = take_rows(X, used), coef[used], np.zeros((2, len(used)))
            add_kernel_sums(model.kernel, own, own, s, f, errors=off)
            squares[k] = s @ f
            errors[k] = 1.01 * np.abs(s) @ (off + bound_rounding(len(s) + 4, 1.0) * np.abs(f))
    return squares, errors


def _bound(model: KernelModel, source: RowSource, problem: dict[str, Any], squares: F64, errors: F64) -> Bound | None:
    """Return D of the model's coefficients, less the rounding error of D; None for a kernel without a lower bound.

    squares, errors: the results of `measure_squares`. Raises InputError if the coefficients are not a dual point: their
    sum is not zero, or one exceeds the cost of its row by more than the stretch of a model.

    If rounding leaves a small sum s, the coefficients with the sign of s can shrink until the sum is 0. This lowers D
    by at most |s| (1 + max |f_j|) + s^2 / 2 max k_jj, with |f_j| <= |w| sqrt(k_jj).
    """
    if model.info["lower_bound"] is None:
        return None
    coefs = model.dual_coef
    total = np.abs(coefs).sum(axis=1)
    lacking = np.array([abs(math.fsum(coef.tolist())) for coef in coefs])
    if np.any(lacking > SUM_SHARE * total):
        raise InputError(
            "the model's coefficients are not a dual point, since they do not sum to zero: is the model file intact?"
        )
    shrink = _find_shrinkage(model, source, problem)
    largest = 1.01 * _bound_diagonal(model)
    of_point = lacking * (1.0 + np.sqrt(largest * np.maximum(squares + errors, 0.0)) + lacking * largest)
    rounding = float(np.sum(errors / 2 + 1.01 * of_point))
    rounding += bound_rounding(coefs.size + 8, float(np.sum(total + np.abs(squares))))
    return Bound(float(np.sum(shrink * (total - shrink * squares / 2))) - rounding, rounding)


def _find_shrinkage(model: KernelModel, source: RowSource, problem: dict[str, Any]) -> F64:
    """Return the factor for each problem, at most 1, by which its coefficients become multipliers, (n_problems,).

    The coefficients of a model may be its multipliers times a stretch (certificates.kernel). Raises InputError if they
    exceed the costs by more than the largest stretch.
    """
    coefs, costs = model.dual_coef, np.atleast_2d(np.asarray(problem["class_costs"], np.float64))
    weight = source.column("sample_weight")
    own = 1.0 if weight is None else weight[_require_support(model, source.n_rows)]
    limits, most = np.where(coefs > 0.0, costs[:, 1:], costs[:, :1]) * own, np.where(coefs == 0.0, 0.0, np.inf)
    most = np.max(np.divide(np.abs(coefs), limits, out=most, where=limits > 0.0), axis=1, initial=1.0)
    if np.any(most > LONGEST_STRETCH):
        raise InputError(ABOVE_COST)
    return np.where(most > 1.0, (1.0 - 4 * UNIT) / most, 1.0)


def _bound_diagonal(model: KernelModel) -> float:
    """Return an upper bound on k(z, z) of the support vectors z."""
    return model.kernel.bound_values(float(np.max(compute_squares(model.support_vectors, np.float64), initial=0.0)))


def evaluate_nu_classes(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> Found:
    """Recompute the objective of a nu-SVC model, and the lower bound if the kernel has one.

    Raises InputError if the coefficients are not feasible.
    """
    pairs, model = find_pairs(model), list_scores(model)
    losses = CLASSIFY.read_losses({"class_costs": problem["class_costs"]}, engine.source, len(model.dual_coef))
    totals = sum_rows(engine, partial(_add_nu_losses, losses, pairs, model), (len(losses), 4))
    squares, errors = (found.tolist() for found in measure_squares(model))
    values, bounds, of_values = [], [], []
    each = zip(model.dual_coef, losses, squares, errors, totals.tolist(), strict=True)
    for coef, own, square, off, (loss, moved, size, cost) in each:
        total = float(problem["nu"]) * cost
        offset = total / float(np.sum(np.abs(coef))) if np.any(coef) else 0.0
        _check_nu_point(model, engine.source, coef, np.array(own.class_costs) * (1.0 / offset if offset else 0.0))
        values.append(offset**2 * square / 2)
        of_values.append(offset**2 * off)
        margin_error = moved + bound_rounding(engine.source.n_rows + 4, size + total)
        bounds.append(bound_optimum(total - loss, margin_error, square, off))
    bound = Bound(sum(one.value for one in bounds), sum(one.rounding for one in bounds))
    return Found(sum(values), sum(of_values), bound if model.kernel.is_definite else None)


def _add_nu_losses(losses: Sequence[Hinge], pairs: Pairs, model: KernelModel, totals: F64, rows: Rows) -> None:
    """Add the sums of a tile: losses, a bound on the effect of score errors, terms of the rounding bound, and costs."""
    biases = np.atleast_1d(model.intercept)
    for k, (loss, coef) in enumerate(zip(losses, model.dual_coef, strict=True)):
        one, places = _pick_rows(rows, k, len(losses), pairs)
        used = np.flatnonzero(coef)
        vectors, (f, errors) = take_rows(model.support_vectors, used), np.zeros((2, len(places)))
        add_kernel_sums(model.kernel, take_rows(rows.X, places), vectors, coef[used], f, errors=errors)
        f += biases[k]
        costs = loss.steepest(one)
        totals[k] += *sum_losses(loss, one, f, errors), costs @ (np.abs(f) + 1.0 + errors), np.sum(costs)


def _check_nu_point(model: KernelModel, source: RowSource, coef: F64, most: F64) -> None:
    """Raise InputError unless the coefficients are feasible.

    most: the upper limit of the coefficients in each class, before sample weights.
    """
    weight, support = source.column("sample_weight"), _require_support(model, source.n_rows)
    limit = np.where(coef > 0.0, most[1], most[0]) * (1.0 if weight is None else weight[support])
    if np.any(np.abs(coef) > limit * (1.0 + len(coef) * SUM_SHARE)):
        raise InputError(
            "the model's coefficients are not multipliers, since one is above the cost of its row: are these the "
            "model and the rows of one training?"
        )
    if abs(float(np.sum(coef))) > len(coef) * SUM_SHARE * float(np.sum(np.abs(coef))):
        raise InputError(
            "the model's coefficients are not multipliers: the multipliers of the two classes have different sums; "
            "this happens if training was stopped early"
        )


def _require_support(model: KernelModel, n_rows: int) -> I64:
    """Return the row numbers of the support vectors. Raises InputError unless they are numbers of these rows."""
    if model.support is None or np.any(model.support >= n_rows):
        raise InputError(
            "the support vectors of the model are not among these rows; give the training rows in the same order"
        )
    return model.support


def evaluate_tube(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> Found:
    """Recompute P of a nu-SVR model."""
    model = list_scores(model)
    tiles = engine.scan(Scan(list, partial(_add_distances, read_numbers(engine.source), model), operator.add))
    distances, errors, weight = (np.concatenate(parts) for parts in zip(*tiles, strict=True))
    costs = float(problem["row_cost"]) * weight
    square, of_square = (float(found[0]) for found in measure_squares(model))
    total = float(problem["nu"]) * float(np.sum(costs))
    n = len(costs)
    width = find_best_bias(np.ones(n), costs, np.zeros(n), distances, total)
    objective = square / 2 + total * width + float(costs @ np.maximum(distances - width, 0.0))
    size = objective - min(square, 0.0)  # |w|^2 may be negative with an indefinite kernel
    return Found(objective, float(costs @ errors) + of_square / 2 + bound_rounding(n + 8, 2 * size))


def _add_distances(numbers: F64, model: KernelModel, tiles: list[Any], rows: Rows) -> None:
    """Append the distances of the scores from the targets, the errors of the scores, and the weights of the rows."""
    f, errors = np.zeros((2, rows.n_rows))
    add_kernel_sums(model.kernel, rows.X, model.support_vectors, model.dual_coef[0], f, errors=errors)
    f, truth = f + model.intercept, read_truth(rows, numbers)
    errors += 4 * UNIT * (np.abs(f) + np.abs(truth))
    tiles.append((np.abs(truth - f), errors, rows.weights.copy()))


def evaluate_one_class(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> Found:
    """Recompute the objective of a one-class model, and the lower bound if the kernel has one.

    Raises InputError if the coefficients are not feasible: one is negative or above the weight of its row, or their sum
    is not nu times the sum of the weights.
    """
    model, weight = list_scores(model), engine.source.column("sample_weight")
    weight = np.ones(engine.source.n_rows) if weight is None else weight
    coef, rho = model.dual_coef[0], -float(np.asarray(model.intercept)[0])
    total = float(problem["nu"]) * float(np.sum(weight))
    if np.any((coef < 0.0) | (coef > weight[_require_support(model, len(weight))])):
        raise InputError("the model's coefficients are not multipliers: one is not between 0 and the weight of its row")
    if abs(float(np.sum(coef)) - total) > len(weight) * SUM_SHARE * total:
        raise InputError(
            "the model's coefficients are not multipliers: their sum is not nu times the sum of the weights; this "
            "happens if training was stopped early"
        )
    square, error = (float(found[0]) for found in measure_squares(model))
    if not model.kernel.is_definite:
        return Found(square / 2, error)
    model = replace(model, support_vectors=to_float64(model.support_vectors))
    loss, moved, size = sum_rows(engine, partial(_add_offset_losses, rho, model), 3).tolist()
    moved += bound_rounding(len(weight) + 4, size + abs(total * rho))
    return Found(square / 2, error, bound_optimum(total * rho - loss, moved, square, error))


def _add_offset_losses(rho: float, model: KernelModel, totals: F64, rows: Rows) -> None:
    """Add the losses, a bound on the effect of score errors, and the terms of the rounding bound."""
    f, errors = np.zeros((2, rows.n_rows))
    add_kernel_sums(model.kernel, rows.X, model.support_vectors, model.dual_coef[0], f, errors=errors)
    costs = rows.weights
    losses, most = np.maximum(rho - f, 0.0), np.maximum(rho - f + errors, 0.0)
    totals += costs @ losses, costs @ (most - losses), costs @ (np.abs(f) + abs(rho) + errors)


def evaluate_classes(model: KernelModel, engine: Engine, problem: dict[str, Any], dual: bool) -> Found:
    """Recompute P of a Crammer-Singer model and, with `dual`, its lower bound."""
    costs, feature = np.asarray(problem["class_costs"], np.float64), float(problem["bias_feature"])
    model = list_scores(model)
    coefs, biases = (split_two_classes(each, len(costs)) for each in (model.dual_coef, np.atleast_1d(model.intercept)))
    if feature == 0.0 and np.any(biases != 0.0):
        raise InputError("the model file contradicts itself: the model has biases, but its settings exclude them")
    model = replace(model, dual_coef=coefs, intercept=biases)
    wide = replace(model, support_vectors=to_float64(model.support_vectors))
    loss, moved = sum_rows(engine, partial(_add_class_losses, costs, wide), 2).tolist()
    square, error = _measure_square(wide, biases / feature if feature else np.zeros(len(biases)))
    rounding = bound_rounding(engine.source.n_rows + 24, loss) + moved + error / 2
    has_bound = dual and model.info["lower_bound"] is not None
    bound = _bound_classes(model, engine.source, costs, (square, error), feature) if has_bound else None
    return Found(square / 2 + loss, rounding, bound)


def _add_class_losses(costs: F64, model: KernelModel, totals: F64, rows: Rows) -> None:
    """Add the losses of the rows, and a bound on their error."""
    own, losses = read_costs(costs, rows), np.zeros(1)
    F, errors = prove_kernel_sums(model.kernel, rows.X, model.support_vectors, model.dual_coef)
    F += model.intercept
    add_line_losses(F, F, rows.codes, own, np.ones(1), losses)
    reach = np.max(np.abs(F), axis=1) + float(np.max(np.abs(model.intercept)))
    totals += losses[0], own @ (2.02 * errors + 8 * UNIT * (1.0 + 2 * reach))


def _measure_square(model: KernelModel, weights: F64) -> tuple[float, float]:
    """Return sum_k |w_k|^2, including the weights (K,) of the constant feature, and a bound on its error."""
    X, coefs = model.support_vectors, model.dual_coef
    if not X.shape[0]:
        return 0.0, 0.0
    F, errors = prove_kernel_sums(model.kernel, X, X, coefs)
    products = coefs.T * F
    size = float(np.sum(np.abs(products)) + np.sum(weights**2))
    error = 1.01 * float(np.sum(np.abs(coefs), axis=0) @ errors) + bound_rounding(products.size + 8, size)
    return float(np.sum(products) + np.sum(weights**2)), error


def _bound_classes(
    model: KernelModel, source: RowSource, costs: F64, proved: tuple[float, float], bias_feature: float
) -> Bound:
    """Return D of the model's coefficients, less the rounding error of D. proved: the result of `_measure_square`.

    In floating point, the coefficients of a row do not sum exactly to zero; the bound accounts for this as described in
    certificates.kernel. Raises InputError if the coefficients are not a dual point: the sum of a row's coefficients
    differs from zero by more than rounding explains (SUM_SHARE), a coefficient for a class other than the row's is
    positive, or the coefficient for the row's own class exceeds the row's cost.
    """
    (square, error), support = proved, _require_support(model, source.n_rows)
    labels, every = read_codes(source)[support], np.arange(len(support))
    own, others = model.dual_coef[labels, every], model.dual_coef.copy()
    others[labels, every] = 0.0
    lacking = np.abs(own + np.sum(others, axis=0))
    if np.any(lacking > SUM_SHARE * own) or np.any(others > 0.0):
        raise InputError(
            "the model's coefficients are not a dual point: the coefficients of a row do not belong to its class; the "
            "model names its rows by number, so give the training rows in the same order (ingest --shuffle no)"
        )
    weight = source.column("sample_weight")
    if np.any(own > costs[labels] * (1.0 if weight is None else (1.0 + 4 * UNIT) * weight[support])):
        raise InputError(ABOVE_COST)
    gain, missing = math.fsum(own.tolist()), float(np.sum(lacking + 2 * len(costs) * UNIT * own))
    moved = 2 * missing * math.sqrt(_bound_diagonal(model) + bias_feature**2)
    of_point = missing + math.sqrt(max(0.0, square + error)) * moved + moved**2 / 2
    rounding = error / 2 + bound_rounding(len(own) + 16, gain + square) + of_point
    return Bound(gain - square / 2 - rounding, rounding)
