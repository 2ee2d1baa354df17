"""P and D of a Crammer-Singer model that is a sum of kernels, computed anew in float64, and how far they can be off."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel
from streamsvm.numeric.class_losses import add_line_losses, read_costs
from streamsvm.numeric.compact import match_layouts
from streamsvm.numeric.dual_points import Bound
from streamsvm.numeric.kernels import Kernel, compute_squares, to_float64
from streamsvm.numeric.many_kernel_sums import prove_kernel_sums
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64, Matrix, Rows
from streamsvm.requests import Scan
from streamsvm.training.verify_kernel import SUM_SHARE, refuse_known_values


class ClassSums(NamedTuple):
    """The coefficients of K classes (K, m), and their biases (K,); two classes have half of one score each."""

    coefs: F64
    biases: F64


def read_sums(model: KernelModel, told: Mapping[str, Any]) -> ClassSums:
    """Return the sums of a model; InputError if it holds no support vectors, or is not what it tells."""
    refuse_known_values(model)
    coefs, biases = np.atleast_2d(model.dual_coef), np.atleast_1d(np.asarray(model.intercept, np.float64))
    if len(coefs) == 1:
        coefs, biases = np.concatenate((-coefs, coefs)) / 2, np.concatenate((-biases, biases)) / 2
    if len(coefs) != np.size(told["class_costs"]):
        raise InputError(f"the model has {len(coefs)} classes, and tells the costs of {np.size(told['class_costs'])}")
    if float(told["bias_feature"]) == 0.0 and np.any(biases != 0.0):
        raise InputError("the model has biases, and tells that it has none")
    return ClassSums(coefs, biases)


def evaluate(model: KernelModel, engine: Engine, told: Mapping[str, Any]) -> tuple[float, float]:
    """Return P of the model, and how far rounding can have moved it."""
    sums, costs = read_sums(model, told), np.asarray(told["class_costs"], np.float64)
    vectors = to_float64(model.support_vectors)
    scan = Scan(partial(np.zeros, 2), _add_losses, operator.add, (model.kernel, vectors, *sums, costs))
    loss, moved = engine.scan(scan).tolist()
    square, error = _measure_square(model, sums, float(told["bias_feature"]))
    rounding = bound_rounding(engine.source.n_rows + 24, loss) + moved + error / 2
    return square / 2 + loss, rounding


def _add_losses(totals: F64, rows: Rows, kernel: Kernel, vectors: Matrix, coefs: F64, biases: F64, costs: F64) -> None:
    """Add the losses of the rows, and how far they can be off."""
    assert rows.y is not None
    own, losses = read_costs(costs, rows), np.zeros(1)
    F, errors = prove_kernel_sums(kernel, *match_layouts(to_float64(rows.X), vectors), coefs)
    F += biases
    add_line_losses(F, F, rows.y, own, np.ones(1), losses)
    reach = np.max(np.abs(F), axis=1) + float(np.max(np.abs(biases)))
    totals += losses[0], own @ (2.02 * errors + 8 * UNIT * (1.0 + 2 * reach))


def _measure_square(model: KernelModel, sums: ClassSums, bias_feature: float) -> tuple[float, float]:
    """Return sum_k |w_k|^2 with the weights of the constant feature, and how far it can be off."""
    X = to_float64(model.support_vectors)
    if not X.shape[0]:
        return 0.0, 0.0
    F, errors = prove_kernel_sums(model.kernel, X, X, sums.coefs)
    products = sums.coefs.T * F
    weights = sums.biases / bias_feature if bias_feature else np.zeros(len(sums.biases))
    size = float(np.sum(np.abs(products)) + np.sum(weights**2))
    error = 1.01 * float(np.sum(np.abs(sums.coefs), axis=0) @ errors) + bound_rounding(products.size + 8, size)
    return float(np.sum(products) + np.sum(weights**2)), error


def bound(model: KernelModel, source: RowSource, told: Mapping[str, Any]) -> Bound | None:
    """Return D of the model's coefficients, less its rounding, or None for a kernel without a lower bound.

    In floating point the coefficients of a row do not sum to zero, which counts as numeric.class_certificates says.
    Raises InputError if they are no dual point: those of a row do not sum to zero, one that is not of its own class is
    positive, or one exceeds its cost (which is checked only if the rows have no weights of their own).
    """
    if model.info["lower_bound"] is None:
        return None
    sums, costs, y = read_sums(model, told), np.asarray(told["class_costs"], np.float64), source.column("y")
    assert y is not None
    if model.support is None or np.any(model.support >= len(y)):
        raise InputError("the model does not tell which rows its support vectors are")
    labels, every = y[model.support], np.arange(len(model.support))
    own, others = sums.coefs[labels, every], sums.coefs.copy()
    others[labels, every] = 0.0
    lacking = np.abs(own + np.sum(others, axis=0))
    if np.any(lacking > SUM_SHARE * own) or np.any(others > 0.0):
        raise InputError(
            "the model's coefficients are no dual point: the coefficients of a row do not belong to its class"
        )
    if source.column("sample_weight") is None and np.any(own > costs[labels]):
        raise InputError("the model's coefficients are no dual point: one is above the cost of its row")
    square, error = _measure_square(model, sums, float(told["bias_feature"]))
    gain, missing = math.fsum(own.tolist()), float(np.sum(lacking + 2 * len(costs) * UNIT * own))
    reach = float(np.max(compute_squares(model.support_vectors, np.float64), initial=0.0))
    largest = model.kernel.bound_values(reach) + float(told["bias_feature"]) ** 2
    moved = 2 * missing * math.sqrt(largest)
    of_point = missing + math.sqrt(max(0.0, square + error)) * moved + moved**2 / 2
    rounding = error / 2 + bound_rounding(len(own) + 8, gain + square) + of_point
    return Bound(gain - square / 2 - rounding, rounding)
