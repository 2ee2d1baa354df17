"""Verification of a model: its objective P is computed anew, in one read of the rows that it was trained on.

P of a linear model or a ranking is evaluated in twice the precision, P of a kernel model in float64. The lower bound D
can be computed anew as well, from a dual point: the coefficients y_i a_i of a kernel model, if y'a = 0 and no a_i
exceeds its cost, or the file that a linear model's training writes on request (training.dual_file).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from streamsvm.data.mapped import Mapped
from streamsvm.data.source import RowSource
from streamsvm.engines.one_read import answer
from streamsvm.engines.opening import open_engine
from streamsvm.engines.protocol import Engine
from streamsvm.errors import CertificateError, InputError, say_count
from streamsvm.methods.registry import can_keep_dual
from streamsvm.methods.warm_up import compile_all
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.dual_points import Bound, DualPoint
from streamsvm.numeric.exact_losses import ExactLosses, add_exact, combine_exact, start_exact
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, CsrRows, Rows
from streamsvm.numeric.scaling import same_scaling
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_entry
from streamsvm.requests import All, MemoryNeed, Progress, Scan
from streamsvm.training import (
    verify_classes,
    verify_dual,
    verify_kernel,
    verify_kernel_classes,
    verify_loss,
    verify_nu,
    verify_one_class,
    verify_ranking,
)
from streamsvm.training.dual_file import count_problems, read_dual_points
from streamsvm.training.verify_dual import single_out

AGREEMENT = 1e-9  # relative difference that is allowed, beside the rounding bounds, between two P of a kernel model


@dataclass(frozen=True)
class Verification:
    """P and D of a model, as they were computed anew and as the training told them.

    Attributes
    ----------
    objective, rounding_bound : float
        P, and how far rounding can have moved it.
    told_objective, told_is_estimate : float, bool
        P as the training told it; it is no number to compare with if it was estimated on a sample of the rows.
    told_lower_bound, lower_bound, relative_gap : float or None
        D as it was told, D less its rounding (the told one, if it was not computed), and (P - D) / P.
    objective_agrees : bool
        Whether both P agree within their rounding bounds, and there are as many rows as in training.
    lower_bound_agrees : bool or None
        Whether D reaches the told bound, rounding aside; None if it was not computed from a kept dual point.
    n_rows : int
        Number of rows.
    reason : str or None
        Why nothing agrees: rounding in this verification can have moved P or D by more than the tolerance of the
        training times P. None if it cannot.
    """

    objective: float
    rounding_bound: float
    told_objective: float
    told_is_estimate: bool
    told_lower_bound: float | None
    lower_bound: float | None
    relative_gap: float | None
    objective_agrees: bool
    lower_bound_agrees: bool | None
    n_rows: int
    reason: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether P and D agree with what the training told, as far as they were computed, and are accurate enough."""
        return self.objective_agrees and self.lower_bound_agrees is not False and self.reason is None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `verify --json` prints."""
        return {**vars(self), "agrees": self.agrees}


Found = tuple[float, float, Bound | None]  # P, how far rounding can have moved it, and D


def verify(
    model: Model,
    source: RowSource,
    dual: bool = False,
    memory_bytes: int | None = None,
    threads: int | None = None,
    dual_file: Path | None = None,
) -> Verification:
    """Compute the objective of a model over the rows that it was trained on; with `dual`, its lower bound as well.

    Parameters
    ----------
    model, source : Model, RowSource
        The model, and the rows; a model that maps rows takes raw rows and rows of features.
    dual, dual_file : bool, Path
        Whether to compute D, and the file of the dual point. A kernel model needs no file.
    memory_bytes, threads : int, optional
        The budget of memory (default: half of the machine's), and the threads (default: all cores).

    Returns
    -------
    Verification
        P and D as they were computed and as the training told them, and whether they agree.

    Raises
    ------
    InputError, CertificateError
        If the model holds no costs (version 0.1), or the rows or the dual point are not its own; if D exceeds P.
    """
    source = _map_raw_rows(model, source)
    problem = _read_problem(model, source)
    if model.info.get("objective") is None:
        raise InputError("the model does not tell its objective, so there is nothing to compare with")
    _compile(model, source)
    in_model = isinstance(model, KernelModel) or model.problem.has_nu  # which holds what its bound needs
    points = None if not dual or in_model else _read_points(model, source, dual_file)
    with one_blas_thread(), _open(model, source, points or [], memory_bytes, threads) as (engine, _):
        objective, rounding, bound = _evaluate(model, engine, problem, points)
    if dual and isinstance(model, KernelModel) and not (model.problem.has_nu and model.problem.has_classes):
        bound = (verify_kernel_classes if _joins_classes(model) else verify_kernel).bound(model, source, problem)
    told = model.info["objective"], model.info["lower_bound"], model.info.get("rounding_bound") or 0.0
    is_estimate = model.info.get("rounding_bound", told[2]) is None  # a solver without a rounding bound estimates P
    slack = rounding + told[2] + (AGREEMENT * objective if isinstance(model, KernelModel) else 0.0)
    agrees = (is_estimate or abs(objective - told[0]) <= slack) and problem["n_rows"] == source.n_rows
    bound_agrees, reason = None, _find_inaccuracy(model, objective, rounding, bound)
    if points is not None and bound is not None:
        bound_agrees = bool(bound.value + bound.rounding + told[2] >= told[1])
    if bound is not None and bound.value > objective + slack:
        raise CertificateError(f"the lower bound {bound.value} is above the objective {objective}")
    value = told[1] if bound is None else bound.value
    gap = Progress(objective, value, 0).relative_gap
    numbers = objective, rounding, told[0], is_estimate, told[1], value, gap
    return Verification(*numbers, bool(agrees), bound_agrees, source.n_rows, reason)


def _find_inaccuracy(model: Model, objective: float, rounding: float, bound: Bound | None) -> str | None:
    """Return why the verification is too inaccurate to confirm the model, or None if it is accurate enough."""
    tol = float(model.info.get("tol", TrainOptions.tol))  # older models do not tell it
    off, what = max((rounding, "the objective"), (0.0 if bound is None else bound.rounding, "the lower bound"))
    if off <= tol * abs(objective):
        return None
    told = f"rounding can have moved {what} by {off:.1e}, which is more than the tolerance {tol:g} times the objective"
    return f"{told}, so this verification cannot confirm the model"


def _map_raw_rows(model: Model, source: RowSource) -> RowSource:
    """Return the features that the model was trained on if it maps rows and these are raw; InputError for other rows.

    The features of the rows have the bits that they had in the training, if it mapped the rows in each pass.
    """
    if model.features is None or source.features is not None:
        return source
    known = model.features
    if known.map.d != source.n_features:
        rows = f"{source.name}: rows of {say_count(source.n_features, 'feature')}"
        raise InputError(f"{rows}; the model was trained on {known.map.d:,}")
    if not same_scaling(known.scaling, source.scaling):
        raise InputError(f"{source.name}: the rows are scaled in another way than the rows that the model maps")
    return Mapped(source, known)


def _read_problem(model: Model, source: RowSource) -> dict[str, Any]:
    """Return the problem that the model solves. Raises InputError if the model does not hold it, or for other rows."""
    problem = model.info.get("problem")
    if not isinstance(problem, dict):
        raise InputError("the model does not tell the costs that it was trained with: train it anew to verify it")
    if not {"class_costs", "pair_cost", "row_cost"} & set(problem):
        raise InputError(f"the objective of a model for the task {model.problem.name} cannot be computed anew")
    first = next(iter(find_entry(model.problem.name).losses))
    if (problem.get("loss") or first) != (model.info.get("loss") or first):
        raise InputError("the model tells two losses that it was trained with")
    if model.problem.has_label_sets != source.has_label_sets:
        raise InputError(f"{source.name}: its rows have not the kind of labels that the model was trained on")
    if source.has_label_sets and not np.array_equal(model.classes, np.asarray(source.classes)):
        raise InputError(f"{source.name}: its labels are not those that the model was trained on")
    if model.n_trained != source.n_features:
        found = say_count(source.n_features, "feature")
        raise InputError(f"{source.name}: rows of {found}; the model was trained on {model.n_trained:,}")
    if not same_scaling(model.scaling, source.scaling):
        raise InputError(f"{source.name}: its rows are scaled in another way than those that the model was trained on")
    return problem


def _read_points(model: Model, source: RowSource, dual_file: Path | None) -> list[DualPoint]:
    solver, loss, penalty = model.info["solver"], model.info.get("loss"), model.info["problem"].get("penalty", "l2")
    if not can_keep_dual(solver, model.problem.name, loss, penalty):
        named = f"for the task {model.problem.name}" if loss is None else f"with the loss {loss}"
        raise InputError(
            f"--dual: a training by {solver} {named} keeps no dual point, so that its lower bound cannot be computed "
            "anew; `verify` without --dual computes the objective"
        )
    if dual_file is None:
        raise InputError(
            "a linear model holds no dual point: its lower bound cannot be computed from the model alone; train with "
            "--keep-dual, and give the folder of the run"
        )
    return read_dual_points(dual_file, model, source)


def _open(
    model: Model, source: RowSource, points: list[DualPoint], memory_bytes: int | None, threads: int | None
) -> Any:
    """Open an engine with room for the model, the dual points, and the scores of all rows where it needs them."""
    size = model.support_vectors.nbytes * 4 if isinstance(model, KernelModel) else 16 * model.coef.nbytes
    held, totals = _count_bytes(model, source, points)
    return open_engine(
        source,
        load=partial(_compile, model, source),
        memory=lambda _: MemoryNeed(held + size, 0, (1 << 20) + totals, size),
        budget_bytes=memory_bytes,
        threads=threads,
    )


def _count_bytes(model: Model, source: RowSource, points: list[DualPoint]) -> tuple[int, int]:
    """Return the bytes that the driver holds beside the model, and the bytes of the totals of one task."""
    if _compares_pairs(model):
        return verify_ranking.count_bytes(source, str(model.info["task"]), points)
    compares_all = model.problem.has_nu and not model.problem.has_classes
    held, totals = (0, 0) if not points else verify_dual.count_bytes(points, source.n_rows, source.n_features, False)
    return held + (verify_ranking.ALL_BYTES * source.n_rows if compares_all else 0), totals


def _compile(model: Model, source: RowSource) -> None:
    """Load the compiled functions; kernels are computed in the layout of the support vectors."""
    is_sparse = isinstance(model.support_vectors, CsrRows) if isinstance(model, KernelModel) else source.is_sparse
    compile_all(_list_kernels(model, source), is_sparse)


def _list_kernels(model: Model, source: RowSource) -> tuple[str, ...]:
    """Return the groups of compiled functions that are called."""
    if isinstance(model, KernelModel):
        return ("smo-classes",) if _joins_classes(model) else ("kernel-sums",)
    if _joins_classes(model):
        return ("crammer-singer",)
    if _compares_pairs(model):
        return verify_ranking.list_kernels(source, str(model.info["task"]))
    return ("cutting-plane",)


def _compares_pairs(model: Model) -> bool:
    return find_entry(model.problem.name).compares_pairs


def _joins_classes(model: Model) -> bool:
    return find_entry(model.problem.name).joins_classes


def _evaluate(model: Model, engine: Engine, problem: dict[str, Any], points: list[DualPoint] | None) -> Found:
    if _compares_pairs(model):
        assert isinstance(model, LinearModel)
        return verify_ranking.evaluate(model, engine, float(problem["pair_cost"]), points)
    if _joins_classes(model):
        return *verify_classes.evaluate(model, engine, problem), None
    if model.problem.has_nu and model.problem.own_classes is None:
        assert isinstance(model, KernelModel)
        if model.problem.has_classes:
            return verify_nu.evaluate(model, engine, problem)
        return *verify_nu.evaluate_tube(model, engine, problem), None
    if model.problem.has_nu and isinstance(model, KernelModel):
        return verify_one_class.evaluate(model, engine, problem)
    if model.problem.has_nu:
        assert isinstance(model, LinearModel)
        return verify_one_class.evaluate_linear(model, engine, problem)
    n_problems, loss = count_problems(model), problem.get("loss", "hinge")
    assert model.problem.read_losses is not None
    losses = model.problem.read_losses(problem, engine.source, n_problems)
    if isinstance(model, KernelModel):
        return *verify_kernel.evaluate(model, engine, cast("list[ConvexLoss]", losses)), None
    if loss != "hinge":
        if points is not None:
            raise InputError(f"the lower bound with the loss {loss} cannot be computed anew; leave out --dual")
        return *verify_loss.evaluate(
            model, engine, losses, float(problem["bias_feature"]), str(problem.get("penalty", "l2"))
        ), None
    costs = np.broadcast_to(np.atleast_2d(np.asarray(problem["class_costs"], np.float64)), (n_problems, 2))
    return _evaluate_linear(model, engine, costs, problem.get("bias_feature"), points)


def _evaluate_linear(
    model: LinearModel, engine: Engine, costs: F64, bias_feature: float | None, points: list[DualPoint] | None
) -> Found:
    W, biases = np.atleast_2d(model.coef), np.atleast_1d(np.asarray(model.intercept, np.float64))
    start = partial(_start_problems, len(W))
    scans = [Scan(start, _add_problems, _combine_problems, (W, biases, costs))]
    problems = [verify_dual.Problem(k, len(W), point, costs[k], bias_feature) for k, point in enumerate(points or [])]
    if problems:
        scans.append(verify_dual.make_scan(problems, W.shape[1]))
    totals, *sums = answer(engine, All(scans))
    found = [total.read(W.shape[1]) for total in totals]
    half = float(np.sum(W**2)) / 2
    if bias_feature:
        half += float(np.sum((biases / bias_feature) ** 2)) / 2
    rounding = bound_rounding(W.size + 8, 2 * half) + sum(float(bound[0]) for _, bound in found)
    bound = verify_dual.sum_bounds(problems, sums[0]) if problems else None
    return half + sum(float(loss[0]) for loss, _ in found), rounding, bound


def _start_problems(n_problems: int) -> list[ExactLosses]:
    return [start_exact(1) for _ in range(n_problems)]


def _add_problems(totals: list[ExactLosses], rows: Rows, W: F64, biases: F64, costs: F64) -> None:
    """Add the losses of the rows in the two-class problem, or in each problem of a class against the rest."""
    for k, total in enumerate(totals):
        add_exact(total, single_out(rows, k, len(totals)), W[k : k + 1], biases[k : k + 1], costs[k])


def _combine_problems(left: list[ExactLosses], right: list[ExactLosses]) -> list[ExactLosses]:
    return [combine_exact(a, b) for a, b in zip(left, right, strict=True)]
