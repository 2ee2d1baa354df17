"""Verification of a model: its objective P is recomputed in one read of its training rows.

The lower bound D can be recomputed as well, from a dual point: the coefficients of a kernel model, or the file that the
training of a linear model writes on request (verify.dual_file).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.certificates.dual_points import Bound, DualPoint
from streamsvm.data.rows.source import RowSource, find_largest_tile
from streamsvm.data.rows.views import Mapped
from streamsvm.engines.open import open_engine
from streamsvm.losses.softmax import score_bytes
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import CsrRows
from streamsvm.numeric.stored_types import Scaling, require_width, same_scaling
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed, Progress
from streamsvm.problems.registry import find_entry
from streamsvm.solvers.registry import can_keep_dual
from streamsvm.solvers.set_up import compile_all
from streamsvm.system.errors import CertificateError, InputError, naming
from streamsvm.verify import kernel, linear, ranking
from streamsvm.verify.dual_file import read_dual_points
from streamsvm.verify.linear import Found

VECTORS = 16  # 8-byte numbers per row of a tile: its norms, costs, losses and slopes
AGREEMENT = 1e-9  # allowed relative difference between the two P of a kernel model, on top of their rounding bounds


@dataclass(frozen=True)
class Verification:
    """P and D of a model, as recomputed and as reported by the training.

    Attributes
    ----------
    objective, rounding_bound : float
        P, and a bound on its rounding error.
    told_objective, told_is_estimate : float, bool
        P as reported by the training, and whether this P is an estimate from a sample of the rows, which proves
        nothing.
    told_lower_bound, lower_bound, relative_gap : float or None
        The reported D; the recomputed D less its rounding error, or the reported D if none was recomputed; (P - D) / P.
    objective_agrees : bool
        Whether the two P agree within their rounding bounds, and the number of rows is that of the training.
    lower_bound_agrees : bool or None
        Whether the recomputed D reaches the reported bound, up to rounding; None if no D was recomputed from a kept
        dual point.
    n_rows : int
        Number of rows.
    reason : str or None
        Why this verification cannot confirm the model: rounding may have moved P or D by more than the tolerance of the
        training times P. None if the verification is accurate enough.
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
        """Whether the recomputed P and D agree with the reported ones, and are accurate enough."""
        return self.objective_agrees and self.lower_bound_agrees is not False and self.reason is None

    def as_json(self) -> dict[str, Any]:
        """Return the verification as `verify --json` prints it."""
        return {**vars(self), "agrees": self.agrees}


def verify(
    model: Model,
    source: RowSource,
    dual: bool = False,
    memory_bytes: int | None = None,
    threads: int | None = None,
    dual_file: Path | None = None,
    scheduler: str | None = None,
) -> Verification:
    """Recompute the objective of a model over its training rows and, with `dual`, its lower bound.

    Parameters
    ----------
    model, source : Model, RowSource
        The model, and its training rows. A model with a feature map accepts raw rows or features.
    dual, dual_file : bool, Path
        Whether to recompute D, and the file with the dual point. A kernel model needs no file.
    memory_bytes, threads : int, optional
        The memory budget (default: half of the memory), and the number of threads (default: one per core).
    scheduler : str, optional
        The address of a Dask cluster whose workers read the rows.

    Returns
    -------
    Verification
        P and D as recomputed and as reported, and whether they agree.

    Raises
    ------
    InputError, CertificateError
        If the model stores no costs (version 0.1), if the rows or the dual point belong to another model, or if D
        exceeds P.
    """
    source = _map_raw_rows(model, source)
    problem = _read_problem(model, source)
    if model.info.get("objective") is None:
        raise InputError(
            "the model does not store its objective, so there is nothing to compare with: train it again to verify it"
        )
    is_softmax = find_entry(model.problem.name).has_kind("softmax")
    in_model = isinstance(model, KernelModel) or model.problem.has_nu or is_softmax  # the bound follows from the model
    points = None if not dual or in_model else _read_points(model, source, dual_file)
    if dual and isinstance(model, KernelModel) and not model.problem.has_classes:  # the model lacks the targets
        raise InputError(
            "the lower bound of a regression with kernels cannot be recomputed; use `verify` without --dual"
        )
    size = model.support_vectors.nbytes * 4 if isinstance(model, KernelModel) else 16 * model.coef.nbytes
    held, totals = _count_bytes(model, source, points or [])
    tile = _count_tile_bytes(model, source)
    groups, evaluate = _choose(model, source, dual, points)
    # kernels are computed in the layout of the support vectors
    is_sparse = isinstance(model.support_vectors, CsrRows) if isinstance(model, KernelModel) else source.is_sparse
    need, load = MemoryNeed(held + size, 0, (1 << 20) + totals, size), partial(compile_all, groups, is_sparse)
    load()
    limits = TrainOptions(memory_bytes=memory_bytes, threads=threads, scheduler=scheduler)
    opening = open_engine(source, limits, lambda threads: replace(need, walk_bytes=threads * tile), load)
    with one_blas_thread(), opening as (engine, _):
        objective, rounding, bound = evaluate(model, engine, problem)
    told = model.info["objective"], model.info["lower_bound"], model.info.get("rounding_bound") or 0.0
    is_estimate = model.info.get("rounding_bound", told[2]) is None  # a solver without a rounding bound estimates P
    slack = rounding + told[2] + (AGREEMENT * abs(objective) if isinstance(model, KernelModel) else 0.0)
    agrees = (is_estimate or abs(objective - told[0]) <= slack) and problem["n_rows"] == source.n_rows
    bound_agrees, reason = None, _find_inaccuracy(model, objective, rounding, bound)
    if points is not None and bound is not None:
        bound_agrees = bool(bound.value + bound.rounding + told[2] >= told[1])
    if bound is not None and bound.value > objective + slack:
        raise CertificateError(
            f"the lower bound {bound.value} is above the objective {objective}: a fault of streamsvm; please report it"
        )
    value = told[1] if bound is None else bound.value
    gap = Progress(objective, value, 0).relative_gap
    numbers = objective, rounding, told[0], is_estimate, told[1], value, gap
    return Verification(*numbers, bool(agrees), bound_agrees, source.n_rows, reason)


def _find_inaccuracy(model: Model, objective: float, rounding: float, bound: Bound | None) -> str | None:
    """Return why the verification is too inaccurate to confirm the model, or None if it is accurate enough."""
    tol = float(model.info.get("tol", TrainOptions.tol))  # older models lack it
    bounds = {"the objective": rounding, "the lower bound": 0.0 if bound is None else bound.rounding}
    what, off = max(bounds.items(), key=lambda each: np.nan_to_num(each[1], nan=np.inf))  # NaN: no bound is known
    if off <= tol * abs(objective):
        return None
    told = f"rounding may have changed {what} by up to {off:.1e}, more than the tolerance {tol:g} times the objective"
    return f"{told}, so this verification cannot confirm the model"


def _map_raw_rows(model: Model, source: RowSource) -> RowSource:
    """Map raw rows to the features on which the model was trained. Raises InputError for unsuitable rows.

    The features have the same bits as in a training that maps the rows in every pass.
    """
    if model.features is None or source.features is not None:
        return source
    _require_alike(source, model.features.map.d, model.features.scaling)
    return Mapped(source, model.features)


def _require_alike(source: RowSource, n_features: int, scaling: Scaling | None) -> None:
    """Raise InputError unless the rows have the number of features and the scaling of the training rows."""
    with naming(source.name):
        require_width(source.n_features, n_features)
    if not same_scaling(scaling, source.scaling):
        raise InputError(
            f"{source.name}: its rows are scaled differently from the training rows; give the rows of the training"
        )


def _read_problem(model: Model, source: RowSource) -> dict[str, Any]:
    """Return the problem that the model solves. Raises InputError if it is not stored, or for unsuitable rows."""
    problem = model.info.get("problem")
    if not isinstance(problem, dict):
        raise InputError("the model does not store the costs of its training: train it again to verify it")
    if not {"class_costs", "pair_cost", "row_cost"} & set(problem):
        raise InputError(f"the objective of a model for the task {model.problem.name} cannot be recomputed")
    first = next(iter(find_entry(model.problem.name).losses))
    if (problem.get("loss") or first) != (model.info.get("loss") or first):
        raise InputError("the model file contradicts itself: it names two different losses")
    is_like = model.problem.has_label_sets == source.has_label_sets
    if model.problem.has_classes:  # the classes of a one-class model are not training labels
        is_like = is_like and np.array_equal(model.classes, () if source.classes is None else source.classes)
    if model.problem.needs_labels and not is_like:
        raise InputError(
            f"{source.name}: its labels differ from the labels of the training rows; give the rows of the training"
        )
    _require_alike(source, model.n_trained, model.scaling)
    return problem


def _read_points(model: Model, source: RowSource, dual_file: Path | None) -> list[DualPoint]:
    solver, loss, penalty = model.info["solver"], model.info.get("loss"), model.info["problem"].get("penalty", "l2")
    if not can_keep_dual(solver, model.problem.name, loss, penalty):
        named = f"for the task {model.problem.name}" if loss is None else f"with the loss {loss}"
        raise InputError(
            f"--dual: the solver {solver} {named} keeps no dual point, so the lower bound cannot be recomputed; "
            "`verify` without --dual computes the objective"
        )
    if dual_file is None:
        raise InputError(
            "a linear model holds no dual point, so its lower bound cannot be recomputed from the model alone; train "
            "with --keep-dual, and pass the folder of the run"
        )
    return read_dual_points(dual_file, model, source)


def _count_bytes(model: Model, source: RowSource, points: list[DualPoint]) -> tuple[int, int]:
    """Return the bytes that the driver holds in addition to the model, and the bytes of the totals of one task."""
    entry = find_entry(model.problem.name)
    if entry.has_kind("pairs"):
        return ranking.count_bytes(source, str(model.info["task"]), points)
    if entry.has_kind("softmax"):
        return 0, 16 * (len(model.classes) + 1) * max(4, source.n_features + 1)
    compares_all = model.problem.has_nu and not model.problem.has_classes
    held, totals = linear.count_bytes(points, source.n_features) if points else (0, 0)
    return held + (ranking.ALL_BYTES * source.n_rows if compares_all else 0), totals


def _count_tile_bytes(model: Model, source: RowSource) -> int:
    """Return the bytes of the scores of a tile and of its vectors."""
    n_rows, n_scores = find_largest_tile(source), np.size(model.intercept)
    all_scores = 16 * n_rows * n_scores  # of a kernel model, and a copy; a linear model scores smaller parts
    scores = all_scores if isinstance(model, KernelModel) else score_bytes(n_scores, n_rows)
    return scores + 8 * VECTORS * n_rows


def _choose(
    model: Model, source: RowSource, dual: bool, points: list[DualPoint] | None
) -> tuple[tuple[str, ...], Callable[..., Found]]:
    """Return the groups of compiled functions that are needed, and the function that recomputes P and, if possible, D.

    D is recomputed if the model or the points determine it. The function takes the model, an engine and the problem
    that the model solves.
    """
    entry, problem = find_entry(model.problem.name), model.problem
    is_one_class = problem.own_classes is not None
    if entry.has_kind("pairs"):
        return ranking.list_kernels(source, str(model.info["task"])), partial(ranking.evaluate, points=points)
    if isinstance(model, LinearModel):
        if entry.has_kind("classes"):
            return ("crammer-singer",), linear.evaluate_classes
        if entry.has_kind("softmax"):
            return ("crammer-singer",), partial(linear.evaluate_softmax, dual=dual)
        own: Callable[..., Found] = partial(linear.evaluate, points=points)
        return ("cutting-plane",), linear.evaluate_one_class if is_one_class else own
    if entry.has_kind("classes"):
        return ("smo-classes",), partial(kernel.evaluate_classes, dual=dual)
    if is_one_class:
        return ("kernel-sums",), kernel.evaluate_one_class
    if problem.has_nu:
        return ("kernel-sums",), kernel.evaluate_nu_classes if problem.has_classes else kernel.evaluate_tube
    return ("kernel-sums",), partial(kernel.evaluate, dual=dual)
