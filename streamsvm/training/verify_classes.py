"""The objective of a Crammer-Singer model, computed anew, and how far it can be off."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.class_losses import add_line_losses, read_costs, score_classes
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import Scan
from streamsvm.training import verify_kernel_classes


def evaluate(model: Model, engine: Engine, told: Mapping[str, Any]) -> tuple[float, float]:
    """Return P of the model, and how far rounding can have moved it.

    A score is off by at most e |x_i| with e = gamma_(d+8) |w_k|, and a loss has two of them and a slope of C_i in each.
    """
    if isinstance(model, KernelModel):
        return verify_kernel_classes.evaluate(model, engine, told)
    W, feature = _read_weights(model), float(told["bias_feature"])
    if len(W) != np.size(told["class_costs"]):
        raise InputError(f"the model has {len(W)} classes, and tells the costs of {np.size(told['class_costs'])}")
    scan = Scan(partial(np.zeros, 2), _add_losses, operator.add, (W, np.asarray(told["class_costs"], np.float64)))
    loss, lengths = engine.scan(scan).tolist()
    penalised = W[:, -1] / feature if feature else np.zeros(len(W))
    half = float(np.sum(W[:, :-1] ** 2) + np.sum(penalised**2)) / 2
    moved = bound_rounding(W.shape[1] + 12, 2.0 * float(np.max(np.linalg.norm(W, axis=1)))) * lengths
    of_sums = bound_rounding(engine.source.n_rows + 24, loss) + bound_rounding(W.size + 8, 2 * half)
    return half + loss, moved + of_sums


def _read_weights(model: LinearModel) -> F64:
    """Return the weights of the classes with their biases, (K, d+1); two classes have half of one score each."""
    W = np.column_stack((np.atleast_2d(model.coef), np.atleast_1d(np.asarray(model.intercept, np.float64))))
    return W if len(W) > 1 else np.concatenate((-W, W)) / 2


def _add_losses(totals: F64, rows: Rows, W: F64, class_costs: F64) -> None:
    """Add the losses of the rows, and sum C_i |x_i|."""
    assert rows.y is not None
    costs, scores, losses = read_costs(class_costs, rows), score_classes(rows, W, 1.0), np.zeros(1)
    add_line_losses(scores, scores, rows.y, costs, np.ones(1), losses)
    totals += losses[0], costs @ np.sqrt(compute_squares(rows.X, np.float64) + 1.0)
