"""Verification of a kernel model: P over all rows, and D of the model's coefficients, both in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamsvm.data.class_pairs import pick_pair
from streamsvm.data.source import RowSource
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel
from streamsvm.numeric.compact import match_layouts
from streamsvm.numeric.dual_points import Bound
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, compute_squares, to_float64
from streamsvm.numeric.many_kernel_sums import prove_kernel_sums
from streamsvm.numeric.pairs_of_classes import list_pairs
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, take_rows
from streamsvm.requests import Scan
from streamsvm.training.verify_dual import single_out
from streamsvm.training.verify_loss import Loss, Losses

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
    squares, errors = measure_squares(model, coefs)
    loss, moved = totals.sum(axis=0).tolist()
    half = float(np.sum(squares)) / 2
    of_sums = bound_rounding(engine.source.n_rows + 24, loss) + bound_rounding(len(coefs) + 8, half)
    return half + loss, moved + float(np.sum(errors)) / 2 + of_sums


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
    """Add the losses of the rows, and how far they can be off, in every problem."""
    F, errors = prove_kernel_sums(kernel, *match_layouts(to_float64(rows.X), to_float64(vectors)), coefs)
    for k in range(len(losses)):
        one, mine = pick(rows, k)
        totals[k] += sum_losses(losses[k], one, F[mine, k] + biases[k], errors[mine])


def sum_losses(loss: Loss, rows: Rows, f: F64, errors: F64) -> tuple[float, float]:
    """Return the sum of the losses of the rows, and how far the errors e of their scores f can move it.

    A convex loss l moves by at most max(l(f - e), l(f + e)) - l(f). The rounding of 1 - y f counts as an error of f.
    """
    off = 1.01 * errors + 4 * UNIT * (1.0 + np.abs(f))
    values, below, above = (loss.measure(rows, scores)[0] for scores in (f, f - off, f + off))
    return float(np.sum(values)), 1.01 * float(np.sum(np.maximum(below, above) - values))


def measure_squares(model: KernelModel, coefs: F64) -> tuple[F64, F64]:
    """Return |w|^2 of each problem, and how far each can be off, (n_problems,), by the support vectors alone."""
    X = to_float64(model.support_vectors)
    squares, errors = np.zeros((2, len(coefs)))
    for k, coef in enumerate(coefs):
        used = np.flatnonzero(coef)
        if len(used):
            own, s, (f, off) = take_rows(X, used), coef[used], np.zeros((2, len(used)))
            add_kernel_sums(model.kernel, own, own, s, f, errors=off)
            squares[k] = s @ f
            errors[k] = 1.01 * np.abs(s) @ (off + bound_rounding(len(s) + 4, 1.0) * np.abs(f))
    return squares, errors


def bound(model: KernelModel, source: RowSource, problem: dict[str, Any]) -> Bound | None:
    """Return D of the model's coefficients, less its rounding, or None for a kernel without a lower bound.

    Raises InputError for a regression, whose model does not hold the targets of its support vectors, and if the
    coefficients are no dual point: their sum is not zero, or one exceeds the cost of its class
    (which is checked only if the rows have no weights of their own).

    A small sum s that rounding leaves vanishes if coefficients of its sign shrink. This lowers D by at most
    |s| (1 + max |f_j|) + s^2 / 2 max k_jj, with |f_j| <= |w| sqrt(k_jj).
    """
    if not model.problem.has_classes:
        raise InputError("the lower bound of a regression with kernels cannot be computed anew; leave out --dual")
    if model.info["lower_bound"] is None:
        return None
    model = separate(model)
    coefs, costs = np.atleast_2d(model.dual_coef), np.atleast_2d(np.asarray(problem["class_costs"], np.float64))
    total, (squares, errors) = np.abs(coefs).sum(axis=1), measure_squares(model, coefs)
    lacking = np.array([abs(math.fsum(coef.tolist())) for coef in coefs])
    if np.any(lacking > SUM_SHARE * total):
        raise InputError("the model's coefficients are no dual point: they do not sum to zero")
    if source.column("sample_weight") is None and np.any((coefs > costs[:, 1:]) | (-coefs > costs[:, :1])):
        raise InputError("the model's coefficients are no dual point: one is above the cost of its row")
    reach = float(np.max(compute_squares(model.support_vectors, np.float64), initial=0.0))
    largest = 1.01 * model.kernel.bound_values(reach)
    of_point = lacking * (1.0 + np.sqrt(largest * np.maximum(squares + errors, 0.0)) + lacking * largest)
    rounding = float(np.sum(errors / 2 + 1.01 * of_point))
    rounding += bound_rounding(coefs.size + 8, float(np.sum(total + np.abs(squares))))
    return Bound(float(np.sum(total - squares / 2)) - rounding, rounding)
