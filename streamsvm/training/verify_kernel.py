"""Verification of a kernel model: P over all rows, and D of the model's coefficients, both in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.class_pairs import pick_pair
from streamsvm.data.source import RowSource
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.dual_points import Bound
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.many_kernel_sums import compute_kernel_sums
from streamsvm.numeric.pairs_of_classes import list_pairs
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, take_rows
from streamsvm.requests import Scan
from streamsvm.training.verify_dual import single_out
from streamsvm.training.verify_loss import Losses

Pick = Callable[[Rows, int], tuple[Rows, I64]]
SUM_SHARE = 1e-12  # largest |y'a| as a share of sum a_i: it need not be zero, as it is a sum of rounded numbers


def evaluate(model: KernelModel, engine: Engine, losses: Losses) -> tuple[float, float]:
    """Return P of a kernel model over the rows of an engine, and how far rounding can have moved it.

    losses: of each problem.
    """
    pick, model = choose_rows(model), separate(model)
    coefs, biases = np.atleast_2d(model.dual_coef), np.atleast_1d(np.asarray(model.intercept, np.float64))
    shared = (model.kernel, model.support_vectors, coefs, biases)
    add = partial(_add_kernel_losses, losses, pick)
    totals = engine.scan(Scan(partial(np.zeros, (len(coefs), 2)), add, np.add, shared))
    squares = measure_squares(model, coefs)
    loss, size = totals.sum(axis=0)
    terms = engine.source.n_rows + coefs.shape[1] + engine.source.n_features
    half = float(np.sum(squares)) / 2
    return half + float(loss), bound_rounding(terms, float(size) + 2 * half + float(np.sum(np.abs(coefs))))


def separate(model: KernelModel) -> KernelModel:
    """Return the model with the coefficients of each problem over all support vectors; InputError if it has none."""
    refuse_known_values(model)
    return model if model.n_support is None else model.list_pairs()


def refuse_known_values(model: KernelModel) -> None:
    """Raise InputError for a model that holds no support vectors."""
    if model.is_of_known_values:
        raise InputError("the objective of a model of known kernel values cannot be computed anew")


def choose_rows(model: KernelModel) -> Pick:
    """Return what tells the rows of each problem, with labels 1 and 0, and their numbers in a tile."""
    if model.n_support is not None:
        return partial(_pick_pair, list_pairs(len(model.n_support)))
    return partial(_pick_all, len(np.atleast_2d(model.dual_coef)))


def _pick_pair(pairs: Sequence[tuple[int, int]], rows: Rows, k: int) -> tuple[Rows, I64]:
    first, second = pairs[k]
    return pick_pair(rows, first=first, second=second), np.flatnonzero((rows.y == first) | (rows.y == second))


def _pick_all(n_problems: int, rows: Rows, k: int) -> tuple[Rows, I64]:
    return single_out(rows, k, n_problems), np.arange(rows.n_rows)


def _add_kernel_losses(
    losses: Losses,
    pick: Pick,
    totals: F64,
    rows: Rows,
    kernel: Kernel,
    vectors: Matrix,
    coefs: F64,
    biases: F64,
) -> None:
    """Add the losses l_i, and the sizes c_i (|f_i| + 1) + l_i that bound their rounding, in every problem.

    c_i: the steepest slope that the loss has; of a smooth loss, which only estimates have here, its slope at f_i.
    """
    X = to_float64(rows.X)
    F = compute_kernel_sums(kernel, X, vectors, coefs)
    for k in range(len(coefs)):
        one, mine = pick(rows, k)
        f = F[mine, k] + biases[k]
        loss = losses[k]
        values, slopes = loss.measure(one, f)
        steepest = loss.steepest(one) if isinstance(loss, ConvexLoss) else np.abs(slopes)
        totals[k] += np.sum(values), steepest @ (np.abs(f) + 1.0) + np.sum(values)


def measure_squares(model: KernelModel, coefs: F64) -> F64:
    """Return |w|^2 of each problem, (n_problems,), computed from the support vectors alone."""
    X = to_float64(model.support_vectors)
    squares = np.zeros(len(coefs))
    for k, coef in enumerate(coefs):
        f = np.zeros(len(coef))
        used = np.flatnonzero(coef)
        if len(used):
            add_kernel_sums(model.kernel, X, take_rows(X, used), coef[used], f)
        squares[k] = coef @ f
    return squares


def bound(model: KernelModel, source: RowSource, problem: dict[str, Any]) -> Bound | None:
    """Return D of the model's coefficients, less its rounding, or None for a kernel without a lower bound.

    Raises InputError for a regression, whose model does not hold the targets of its support vectors, and if the
    coefficients are no dual point: their sum is not zero, or one exceeds the cost of its class
    (which is checked only if the rows have no weights of their own).
    """
    if not model.problem.has_classes:
        raise InputError("the lower bound of a regression with kernels cannot be computed anew; leave out --dual")
    if model.info["lower_bound"] is None:
        return None
    model = separate(model)
    coefs, costs = np.atleast_2d(model.dual_coef), np.atleast_2d(np.asarray(problem["class_costs"], np.float64))
    total, squares = np.abs(coefs).sum(axis=1), measure_squares(model, coefs)
    if np.any(np.abs(coefs.sum(axis=1)) > SUM_SHARE * total):
        raise InputError("the model's coefficients are no dual point: they do not sum to zero")
    if source.column("sample_weight") is None and np.any((coefs > costs[:, 1:]) | (-coefs > costs[:, :1])):
        raise InputError("the model's coefficients are no dual point: one is above the cost of its row")
    rounding = bound_rounding(coefs.shape[1] + source.n_features + 8, float(np.sum(total + squares)))
    return Bound(float(np.sum(total - squares / 2)) - rounding, rounding)
