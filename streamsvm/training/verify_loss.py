"""The objective of a linear model with any loss of a row's score, computed anew, and how far it can be off."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.models.model import LinearModel
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, Rows
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.requests import Scan
from streamsvm.training.verify_dual import single_out

Loss = ConvexLoss | SmoothLoss
Losses = Sequence[Loss]


def evaluate(
    model: LinearModel, engine: Engine, losses: Losses, bias_feature: float, penalty: str
) -> tuple[float, float]:
    """Return P of the model, and how far rounding can have moved it; losses: of each problem.

    A score is off by at most e |x_i| with e = gamma_(d+8) |w|. That moves a smooth loss by its slope and its second
    derivative, and any other by its steepest slope.
    """
    W = np.column_stack((np.atleast_2d(model.coef), np.atleast_1d(np.asarray(model.intercept, np.float64))))
    start = partial(np.zeros, (len(W), 3))
    totals = engine.scan(Scan(start, partial(_add_losses, losses), operator.add, (W,)))
    penalised = put_penalised(W[:, :-1], W[:, -1], bias_feature)
    of_weights = float(np.sum(np.abs(penalised))) if penalty == "l1" else float(np.sum(penalised**2)) / 2
    moved = bound_rounding(W.shape[1] + 12, 1.0) * np.linalg.norm(W, axis=1)
    of_scores = float(np.sum(moved * totals[:, 1] + moved**2 * totals[:, 2]))
    loss_sum, n_terms = float(np.sum(totals[:, 0])), engine.source.n_rows + 24
    return of_weights + loss_sum, of_scores + bound_rounding(n_terms, loss_sum) + bound_rounding(
        W.size + 8, 2 * of_weights
    )


def put_penalised(W: F64, biases: F64, bias_feature: float) -> F64:
    """Return the weights of all problems, with that of the constant feature; a feature of 0 means there is no bias."""
    return np.column_stack((W, biases / bias_feature if bias_feature else np.zeros(len(biases))))


def _add_losses(losses: Losses, totals: F64, rows: Rows, W: F64) -> None:
    """Add the losses of the rows in every problem, sum |l_i'| |x_i| and sum max l_i'' |x_i|^2."""
    scores, squares = compute_scores(rows.X, W[:, :-1]) + W[:, -1], compute_squares(rows.X, np.float64) + 1.0
    for k, loss in enumerate(losses):
        own = single_out(rows, k, len(losses))
        values, slopes = loss.measure(own, scores[:, k])
        totals[k, 0] += np.sum(values)
        totals[k, 1] += (loss.steepest(own) if isinstance(loss, ConvexLoss) else np.abs(slopes)) @ np.sqrt(squares)
        if not isinstance(loss, ConvexLoss):
            totals[k, 2] += loss.sharpest(own) @ squares
