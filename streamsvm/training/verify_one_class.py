"""Verification of a one-class model: its objective and a lower bound of the optimum, both in float64, in one read.

    Q = 1/2 sum_ij a_i a_j k(x_i, x_j)     >=     M^2 / (2 |w|^2),   M = N rho - sum_i C_i max(0, rho - w.phi(x_i))

Both follow from the model alone (see numeric.fixed_sum_certificates), so that no dual point need be kept.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel, LinearModel
from streamsvm.numeric.compact import match_layouts
from streamsvm.numeric.dual_points import Bound
from streamsvm.numeric.exact_losses import compute_exact_scores
from streamsvm.numeric.fixed_sum_certificates import BOUNDARY_SHARE
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64, Matrix, Rows
from streamsvm.requests import Scan
from streamsvm.training.verify_kernel import SUM_SHARE, measure_squares, refuse_known_values


def evaluate(model: KernelModel, engine: Engine, problem: dict[str, Any]) -> tuple[float, float, Bound | None]:
    """Return the objective, how far rounding can have moved it, and the lower bound if the kernel has one.

    Raises InputError if the coefficients are no point of the problem: one is above the weight of its row, or their sum
    is not nu times the sum of the weights.
    """
    refuse_known_values(model)
    weight = engine.source.column("sample_weight")
    weight = np.ones(engine.source.n_rows) if weight is None else weight
    total = float(problem["nu"]) * float(np.sum(weight))
    _check_point(model, weight, total)
    square, error = (float(found[0]) for found in measure_squares(model, model.dual_coef[None]))
    if not model.kernel.is_definite:
        return square / 2, error, None
    rho, vectors = -float(np.asarray(model.intercept)), to_float64(model.support_vectors)
    scan = Scan(partial(np.zeros, 3), partial(_add_losses, rho), operator.add, (model.kernel, vectors, model.dual_coef))
    loss, moved, size = engine.scan(scan).tolist()
    moved += bound_rounding(len(weight) + 4, size + abs(total * rho))
    return square / 2, error, bound_optimum(total * rho - loss, moved, square, error)


def bound_optimum(margin: float, margin_error: float, square: float, square_error: float) -> Bound:
    """Return M^2 / (2 |w|^2) less its rounding, given how far M and |w|^2 can be off."""
    value, least = (
        m**2 / (2 * s) if m > 0.0 and s > 0.0 else 0.0
        for m, s in ((margin, square), (margin - margin_error, square + square_error))
    )
    return Bound((1.0 - 8 * UNIT) * least, max(0.0, value - least) + 8 * UNIT * value)


def evaluate_linear(model: LinearModel, engine: Engine, problem: dict[str, Any]) -> tuple[float, float, Bound | None]:
    """Return 1/2 |w|^2 of a linear model, how far rounding can have moved it, and the lower bound of the optimum.

    That w is a sum of rows with multipliers is what the training proved; the model does not hold the multipliers.
    """
    square, rho = float(model.coef @ model.coef), -float(np.asarray(model.intercept))
    error = bound_rounding(len(model.coef) + 4, square)
    offsets = np.array([rho, rho / (1.0 - BOUNDARY_SHARE * np.sign(rho))])  # the model's, and that of its training
    scan = Scan(partial(np.zeros, (3, 2)), partial(_add_exact_losses, offsets), operator.add, (model.coef[None],))
    losses, sizes, costs = engine.scan(scan)
    totals = float(problem["nu"]) * costs
    rounding = bound_rounding(engine.source.n_rows + 8, 1.0) * (sizes + 2 * np.abs(totals * offsets))
    margins = totals * offsets - losses
    best = int(np.argmax(margins - rounding))
    return square / 2, error, bound_optimum(float(margins[best]), float(rounding[best]), square, error)


def _check_point(model: KernelModel, weight: F64, total: float) -> None:
    """Raise InputError unless the coefficients are multipliers of these rows."""
    assert model.support is not None
    if len(model.support) and model.support[-1] >= len(weight):
        raise InputError("the model's support vectors are not among these rows")
    if np.any((model.dual_coef < 0.0) | (model.dual_coef > weight[model.support])):
        raise InputError("the model's coefficients are no multipliers: one is not between 0 and the weight of its row")
    if abs(float(np.sum(model.dual_coef)) - total) > len(weight) * SUM_SHARE * total:
        raise InputError(
            "the model's coefficients are no multipliers: they do not sum to nu times the sum "
            "of weights, as those of a training that was stopped early may not"
        )


def _add_losses(rho: float, totals: F64, rows: Rows, kernel: Kernel, vectors: Matrix, coef: F64) -> None:
    """Add the losses, how far the errors of the scores can raise them, and the sizes that bound their rounding."""
    f, errors = np.zeros((2, rows.n_rows))
    add_kernel_sums(kernel, *match_layouts(to_float64(rows.X), vectors), coef, f, errors=errors)
    costs = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    losses, most = np.maximum(rho - f, 0.0), np.maximum(rho - f + errors, 0.0)
    totals += costs @ losses, costs @ (most - losses), costs @ (np.abs(f) + abs(rho) + errors)


def _add_exact_losses(offsets: F64, totals: F64, rows: Rows, W: F64) -> None:
    """Add the losses by scores in twice the precision, the sizes that bound their rounding, and the weights.

    A row whose score is above the offset has no loss, however its score is rounded to float64.
    """
    pairs = compute_exact_scores(rows.X, W)[0]
    f = (pairs[:, 0] + pairs[:, 1])[:, None]
    costs = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    totals[0] += costs @ np.maximum(offsets - f, 0.0)
    totals[1] += costs @ np.where(f <= offsets, np.abs(f) + np.abs(offsets), 0.0)
    totals[2] += float(np.sum(costs))
