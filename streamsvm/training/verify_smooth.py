"""The objective of a linear model with a smooth loss, computed anew from the model, and how far it can be off."""

from __future__ import annotations

import operator
from functools import partial

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.models.model import LinearModel
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, Rows, compute_scores
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.problems.classification import make_smooth_loss
from streamsvm.requests import Scan
from streamsvm.training.verify_dual import single_out


def evaluate(model: LinearModel, engine: Engine, costs: F64, loss: str, bias_feature: float) -> tuple[float, float]:
    """Return P of the model, and how far rounding can have moved it; costs (K, 2): of the classes of each problem.

    A score is off by at most e |x_i| with e = gamma_(d+8) |w|, which moves a loss by its slope and its second
    derivative.
    """
    W = np.column_stack((np.atleast_2d(model.coef), np.atleast_1d(np.asarray(model.intercept, np.float64))))
    losses = [make_smooth_loss(loss, (float(own[0]), float(own[1]))) for own in costs]
    start = partial(np.zeros, (len(W), 3))
    totals = engine.scan(Scan(start, partial(_add_losses, losses), operator.add, (W,)))
    weights = np.column_stack((W[:, :-1], W[:, -1] / bias_feature))
    half = float(np.sum(weights**2)) / 2
    moved = bound_rounding(W.shape[1] + 12, 1.0) * np.linalg.norm(W, axis=1)
    of_scores = float(np.sum(moved * totals[:, 1] + moved**2 * totals[:, 2]))
    loss_sum, n_terms = float(np.sum(totals[:, 0])), engine.source.n_rows + 24
    return half + loss_sum, of_scores + bound_rounding(n_terms, loss_sum) + bound_rounding(W.size + 8, 2 * half)


def _add_losses(losses: list[SmoothLoss], totals: F64, rows: Rows, W: F64) -> None:
    """Add the losses of the rows in every problem, sum |l_i'| |x_i| and sum max l_i'' |x_i|^2."""
    scores, squares = compute_scores(rows.X, W[:, :-1]) + W[:, -1], compute_squares(rows.X, np.float64) + 1.0
    for k, loss in enumerate(losses):
        own = single_out(rows, k, len(losses))
        values, slopes = loss.measure(own, scores[:, k])
        totals[k] += np.sum(values), np.abs(slopes) @ np.sqrt(squares), loss.sharpest(own) @ squares
