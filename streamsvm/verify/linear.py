"""P and D of linear models, recomputed.

P of hinge losses is summed in twice the working precision (certificates.double_double), P of other losses in float64. D
comes from the dual points that a run has kept (certificates.dual_points). The solver that made them is not trusted: the
multipliers of the rows are computed from shares or cuts while the rows are read, and corrections of multipliers are
limited to what the costs allow.

P of a one-class model is 1/2 |w|^2, and its D follows from the model alone (certificates.kernel).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.certificates import double_double, dual_points
from streamsvm.certificates.double_double import ExactLosses
from streamsvm.certificates.dual_points import Bound, DualPoint, DualSums, add_dual_sums
from streamsvm.certificates.kernel import BOUNDARY_SHARE
from streamsvm.data.rows import views
from streamsvm.engines.engine import Engine
from streamsvm.engines.merge import answer
from streamsvm.kernels.kernel import compute_squares
from streamsvm.losses.classes import add_line_losses, read_costs, score_classes
from streamsvm.losses.convex import ConvexLoss, SmoothLoss
from streamsvm.losses.softmax import MOST_SCORES, count_rows, find_slopes, measure
from streamsvm.models.model import LinearModel
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64, Rows, compute_scores, take_rows, to_factor
from streamsvm.passes import All, Scan, add_each
from streamsvm.system.errors import InputError

SLICE_ROWS = 1024  # number of rows whose scores for all weight vectors are held at once

Loss = ConvexLoss | SmoothLoss


class Found(NamedTuple):
    """P, a bound on its rounding error, and D if it was recomputed."""

    objective: float
    rounding: float
    bound: Bound | None = None


def bound_optimum(margin: float, margin_error: float, square: float, square_error: float) -> Bound:
    """Return M^2 / (2 |w|^2) less its rounding error, given M, |w|^2, and bounds on the errors of both."""
    value, least = (
        m**2 / (2 * s) if m > 0.0 and s > 0.0 else 0.0
        for m, s in ((margin, square), (margin - margin_error, square + square_error))
    )
    return Bound((1.0 - 8 * UNIT) * least, max(0.0, value - least) + 8 * UNIT * value)


def split_two_classes(values: F64, n_classes: int) -> F64:
    """Return the values of K classes, (K, ..). If two classes have a single value v, they get -v/2 and v/2."""
    both = values if len(values) > 1 else np.concatenate((-values, values)) / 2
    if len(both) != n_classes:
        raise InputError(
            f"the model file contradicts itself: the model has {len(both)} classes, but stores the costs of {n_classes}"
        )
    return both


def sum_rows(engine: Engine, add: Callable[[F64, Rows], None], shape: int | tuple[int, ...]) -> F64:
    """Return an array of sums over all rows.

    shape: the shape of the array. add(sums, rows): adds the rows of a tile.
    """
    sums: F64 = engine.scan(Scan(partial(np.zeros, shape), add, operator.add))
    return sums


def read_weights(model: LinearModel) -> F64:
    """Return the weights of all scores, (K, d+1), with the biases in the last column."""
    return np.column_stack((np.atleast_2d(model.coef), np.atleast_1d(np.asarray(model.intercept, np.float64))))


def evaluate(model: LinearModel, engine: Engine, problem: dict[str, Any], points: list[DualPoint] | None) -> Found:
    """Recompute P of a model whose losses depend on one score each, and D if there are dual points."""
    losses = model.problem.read_losses(problem, engine.source, np.size(model.intercept))
    loss = problem.get("loss", "hinge")
    if loss == "hinge":
        costs = np.array([own.class_costs for own in losses])
        return _evaluate_hinges(model, engine, costs, problem.get("bias_feature"), points)
    if points is not None:
        raise InputError(f"the lower bound with the loss {loss} cannot be recomputed; use `verify` without --dual")
    return _evaluate_losses(model, engine, losses, problem)


def _evaluate_hinges(
    model: LinearModel, engine: Engine, costs: F64, bias_feature: float | None, points: list[DualPoint] | None
) -> Found:
    W, biases = np.atleast_2d(model.coef), np.atleast_1d(np.asarray(model.intercept, np.float64))
    scans = [Scan(partial(double_double.start_exact, len(W)), _add_hinges, operator.add, (W, biases, costs))]
    if points is not None:
        add = partial(_add_points, points, costs, bias_feature)
        scans.append(Scan(partial(_start_points, len(points), W.shape[1]), add, add_each))
    totals, *sums = answer(engine, All(scans))
    losses, errors = (found.tolist() for found in totals.read(W.shape[1]))
    half = float(np.sum(W**2)) / 2
    if bias_feature:
        half += float(np.sum((biases / bias_feature) ** 2)) / 2
    bound = None
    if points is not None:  # objectives and lower bounds are summed over the problems
        pairs = zip(points, sums[0], strict=True)
        bounds = [dual_points.bound_by_shares(own, bias_feature, point.most_multiple) for point, own in pairs]
        bound = Bound(sum(each.value for each in bounds), sum(each.rounding for each in bounds))
    return Found(half + sum(losses), bound_rounding(W.size + 8, 2 * half) + sum(errors), bound)


def _add_hinges(totals: ExactLosses, rows: Rows, W: F64, biases: F64, costs: F64) -> None:
    """Add the losses of the rows in the two-class problem, or in each one-versus-rest problem."""
    for k in range(len(W)):
        own = slice(k, k + 1)
        part = ExactLosses(totals.losses[own], totals.magnitudes[own])
        double_double.add_exact(part, single_out(rows, k, len(W)), W[own], biases[own], costs[k])
    totals.n_rows += rows.n_rows


def single_out(rows: Rows, code: int, n_problems: int) -> Rows:
    """Label the rows of class `code` 1 and all others 0. With a single problem, the rows are returned unchanged."""
    return rows if n_problems == 1 and rows.label_sets is None else views.single_out(rows, code=code)


def _evaluate_losses(model: LinearModel, engine: Engine, losses: Sequence[Loss], problem: dict[str, Any]) -> Found:
    """Recompute P for losses that depend on one score, given the loss of each problem.

    A score is off by at most e |x_i|, with e = gamma_(d+8) |w|. The effect on a smooth loss is bounded by its slope and
    its second derivative, and the effect on any other loss by its steepest slope.
    """
    W, feature = read_weights(model), float(problem["bias_feature"])
    totals = sum_rows(engine, partial(_add_losses, losses, W), (len(W), 3))
    penalised = np.column_stack((W[:, :-1], W[:, -1] / feature if feature else np.zeros(len(W))))
    is_l1 = problem.get("penalty") == "l1"
    of_weights = float(np.sum(np.abs(penalised))) if is_l1 else float(np.sum(penalised**2)) / 2
    moved = bound_rounding(W.shape[1] + 12, 1.0) * np.linalg.norm(W, axis=1)
    of_scores = float(np.sum(moved * totals[:, 1] + moved**2 * totals[:, 2]))
    loss_sum, n_terms = float(np.sum(totals[:, 0])), engine.source.n_rows + 24
    of_sums = of_scores + bound_rounding(n_terms, loss_sum)
    return Found(of_weights + loss_sum, of_sums + bound_rounding(W.size + 8, 2 * of_weights))


def _add_losses(losses: Sequence[Loss], W: F64, totals: F64, rows: Rows) -> None:
    """Add, for every problem, the losses of the rows, sum |l_i'| |x_i| and sum max l_i'' |x_i|^2."""
    squares, width = compute_squares(rows.X, np.float64) + 1.0, 2 * max(1, MOST_SCORES // (2 * max(1, rows.n_rows)))
    for k, loss in enumerate(losses):
        if k % width == 0:
            some = W[k : k + width]
            scores = compute_scores(rows.X, some[:, :-1]) + some[:, -1]
        own = single_out(rows, k, len(losses))
        values, slopes = loss.measure(own, scores[:, k % width])
        totals[k, 0] += np.sum(values)
        totals[k, 1] += (loss.steepest(own) if isinstance(loss, ConvexLoss) else np.abs(slopes)) @ np.sqrt(squares)
        if not isinstance(loss, ConvexLoss):
            totals[k, 2] += loss.sharpest(own) @ squares


def evaluate_classes(model: LinearModel, engine: Engine, problem: dict[str, Any]) -> Found:
    """Recompute P of a Crammer-Singer model.

    A score is off by at most e |x_i|, with e = gamma_(d+8) |w_k|. A loss depends on two scores, with slope C_i in each.
    """
    costs, feature = np.asarray(problem["class_costs"], np.float64), float(problem["bias_feature"])
    W = split_two_classes(read_weights(model), len(costs))
    loss, lengths = sum_rows(engine, partial(_add_class_losses, W, costs), 2).tolist()
    penalised = W[:, -1] / feature if feature else np.zeros(len(W))
    half = float(np.sum(W[:, :-1] ** 2) + np.sum(penalised**2)) / 2
    moved = bound_rounding(W.shape[1] + 12, 2.0 * float(np.max(np.linalg.norm(W, axis=1)))) * lengths
    of_sums = bound_rounding(engine.source.n_rows + 24, loss) + bound_rounding(W.size + 8, 2 * half)
    return Found(half + loss, moved + of_sums)


def _add_class_losses(W: F64, class_costs: F64, totals: F64, rows: Rows) -> None:
    """Add the losses of the rows, and the sum of C_i |x_i|."""
    losses = np.zeros(1)
    for part in rows.cut(count_rows(len(W))):
        scores = score_classes(part, W, 1.0)
        add_line_losses(scores, scores, part.codes, read_costs(class_costs, part), np.ones(1), losses)
    totals += losses[0], read_costs(class_costs, rows) @ np.sqrt(compute_squares(rows.X, np.float64) + 1.0)


def evaluate_softmax(model: LinearModel, engine: Engine, problem: dict[str, Any], dual: bool) -> Found:
    """Recompute P of a multinomial model and, with `dual`, the lower bound of its own probabilities (losses.softmax).

    A score is off by at most e |x_i|, with e = gamma_(d+8) |w_k|, and the slopes of a loss sum to at most 2 C_i.
    """
    costs, feature = np.asarray(problem["class_costs"], np.float64), float(problem["bias_feature"])
    W = split_two_classes(read_weights(model), len(costs))
    sums = sum_rows(engine, partial(_add_softmax, W, costs, feature), (len(W) + 1, max(4, W.shape[1])))
    (loss, entropy, lengths, total), gradient = sums[0, :4].tolist(), sums[1:, : W.shape[1]]
    penalised = np.column_stack((W[:, :-1], W[:, -1] / feature if feature else np.zeros(len(W))))
    half, terms = float(np.sum(penalised**2)) / 2, engine.source.n_rows + 4 * len(W) + 32
    moved = bound_rounding(W.shape[1] + 12, 2.0 * float(np.max(np.linalg.norm(W, axis=1)))) * lengths
    most = total * (2.0 + float(np.log(len(W))))
    rounding = moved + bound_rounding(terms, loss + most) + bound_rounding(W.size + 8, 2 * half)
    if not dual:
        return Found(half + loss, rounding)
    square, missed = float(np.sum(gradient**2)), bound_rounding(terms, 2.0 * lengths)
    off = bound_rounding(terms, most) + (np.sqrt(square) + missed) * missed + bound_rounding(W.size + 8, square)
    return Found(half + loss, rounding, Bound(max(0.0, entropy - square / 2 - off), off))


def _add_softmax(W: F64, class_costs: F64, feature: float, totals: F64, rows: Rows) -> None:
    """Add the losses, the entropies, C_i |x_i| and C_i, and, from the second row on, the gradient of each class."""
    for tile in rows.cut(count_rows(len(W))):
        costs = read_costs(class_costs, tile)
        loss, entropy, shares = measure(score_classes(tile, W, 1.0), tile.codes, costs)
        lengths = np.sqrt(compute_squares(tile.X, np.float64) + max(1.0, feature**2))
        totals[0, :4] += np.array([loss, entropy, costs @ lengths, np.sum(costs)])
        slopes = find_slopes(shares, tile.codes, costs)
        totals[1:, : W.shape[1] - 1] += (to_factor(tile.X).T @ slopes).T
        totals[1:, W.shape[1] - 1] += feature * np.sum(slopes, axis=0)


def evaluate_one_class(model: LinearModel, engine: Engine, problem: dict[str, Any]) -> Found:
    """Recompute 1/2 |w|^2 of a one-class model, and the lower bound on the optimum.

    The training has proved that w is a sum of rows times multipliers; the model does not store the multipliers.
    """
    square, rho = float(model.coef @ model.coef), -float(np.asarray(model.intercept))
    error = bound_rounding(len(model.coef) + 4, square)
    offsets = np.array([rho, rho / (1.0 - BOUNDARY_SHARE * np.sign(rho))])  # of the model, and of its training
    losses, sizes, costs = sum_rows(engine, partial(_add_offset_losses, offsets, model.coef[None]), (3, 2))
    totals = float(problem["nu"]) * costs
    rounding = bound_rounding(engine.source.n_rows + 8, 1.0) * (sizes + 2 * np.abs(totals * offsets))
    margins = totals * offsets - losses
    best = int(np.argmax(margins - rounding))
    return Found(square / 2, error, bound_optimum(float(margins[best]), float(rounding[best]), square, error))


def _add_offset_losses(offsets: F64, W: F64, totals: F64, rows: Rows) -> None:
    """Add the sums of a tile: losses (with scores in twice the precision), terms of the rounding bound, and weights.

    A row whose score exceeds the offset has no loss, even if rounding the score to float64 would give one.
    """
    pairs = double_double.compute_exact_scores(rows.X, W)[0]
    f = (pairs[:, 0] + pairs[:, 1])[:, None]
    costs = rows.weights
    totals[0] += costs @ np.maximum(offsets - f, 0.0)
    totals[1] += costs @ np.where(f <= offsets, np.abs(f) + np.abs(offsets), 0.0)
    totals[2] += float(np.sum(costs))


def count_bytes(points: Sequence[DualPoint], n_features: int, in_slices: bool = True) -> tuple[int, int]:
    """Return the bytes of the points in the driver, and the bytes of the totals of one task.

    in_slices: whether a task holds the scores of a slice of its rows for all cuts.
    """
    sums = 8 * 6 * (n_features + 1) * len(points)
    sums += 8 * n_features * min(SLICE_ROWS, max((len(point.rows) for point in points), default=0))
    cuts = max((len(point.steps) + len(point.vectors) for point in points), default=0)
    return 3 * sum(point.nbytes for point in points), sums + 8 * 6 * SLICE_ROWS * (cuts + 1) * in_slices


def _start_points(n_points: int, n_features: int) -> list[DualSums]:
    return [dual_points.start_dual_sums(n_features) for _ in range(n_points)]


def _add_points(
    points: Sequence[DualPoint], costs: F64, bias_feature: float | None, totals: list[DualSums], rows: Rows
) -> None:
    """Add the rows times their multipliers in each problem. costs (K, 2): the costs of the rest, and of the class.

    bias_feature: the constant feature, or None for a free bias.
    """
    for k, (point, total) in enumerate(zip(points, totals, strict=True)):
        own = single_out(rows, k, len(points))
        for tile in own.cut(SLICE_ROWS):
            y, row_costs = read_labels(costs[k], tile.y, tile.sample_weight)
            if len(point.share):
                share = point.share[tile.start : tile.start + tile.n_rows]
            else:
                share = _find_shares(point, tile, y, bias_feature or 0.0)
            alpha = row_costs * share
            add_dual_sums(total, tile, alpha, alpha)
            _add_corrections(total, point, tile, row_costs, alpha)


def _add_corrections(sums: DualSums, point: DualPoint, rows: Rows, costs: F64, alpha: F64) -> None:
    """Add the corrections of the multipliers alpha (n,) of these rows, as far as the costs allow."""
    start, stop = np.searchsorted(point.rows, [rows.start, rows.start + rows.n_rows])
    if start == stop:
        return
    at = point.rows[start:stop] - rows.start
    corrected = Rows(rows.start, take_rows(rows.X, at), rows.codes[at])
    for change in dual_points.limit_corrections(alpha[at], point.most * costs[at], point.corrections[start:stop]):
        add_dual_sums(sums, corrected, change, np.abs(change))


def _find_shares(point: DualPoint, rows: Rows, y: F64, bias_feature: float) -> F64:
    """Return the shares c_i (n,) of the rows, computed from the cuts. No share exceeds 1, even after rounding."""
    if not len(point.steps):
        return np.zeros(rows.n_rows)
    scores, biases = compute_scores(rows.X, point.vectors), point.vectors[:, -1] * bias_feature
    active = dual_points.find_active(scores, biases, y, point.ends, point.steps)
    share: F64 = dual_points.put_own_shares(active, rows.start, point) @ point.multipliers
    return np.minimum(share, 1.0, out=share)
