"""One against the rest: K classes make K problems of two classes, and one read of the data serves all of them.

Problem k separates the rows of class k (+1) from all other rows (-1). A row of class k has C_i = C * class_weight[k] *
sample_weight_i, and any other row has C_i = C * sample_weight_i whatever the weight of its class, as in LIBLINEAR and
scikit-learn's LinearSVC. The class of a row is the one whose model gives it the highest score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.groups import plan_groups
from streamsvm.data.label_view import OneLabel, sum_label_weights
from streamsvm.data.source import RowSource
from streamsvm.data.view import ONE, REST, OneClass, View
from streamsvm.errors import InputError
from streamsvm.machine import default_budget_bytes
from streamsvm.methods import many_problems, rounds
from streamsvm.methods.altered_rows import alter_rows
from streamsvm.methods.fit import ONE_TRAINING, Fit, Report, TakeRows, share_memory, sum_memory
from streamsvm.methods.many_problems import State
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.rows import F64, I64, Rows, stack_rows
from streamsvm.options import TrainOptions, compute_class_factors, compute_label_factors
from streamsvm.problems.multi_label import count_problems as count_labels
from streamsvm.problems.registry import find_problem
from streamsvm.requests import MemoryNeed, Solver

Make = Callable[[RowSource, TrainOptions], Fit]

ONE_LABEL = "classify"  # the task of the problem of one label, which has two classes
THREADS = 2  # memory is left for the totals of so many threads, since models must not depend on the machine
SLACK_BYTES = 64 << 20  # what the engine leaves free, and more
IN_ROUNDS = "{} problems are trained, at most {} of them side by side, as the memory has room for no more; {} rounds "
IN_ROUNDS += "read the data one after the other. With more memory, fewer rounds would do."


def make_one_against_rest(
    source: RowSource,
    options: TrainOptions,
    make: Make,
    process_bytes: int,
    may_take_rounds: bool = False,
    n_fits: int = 1,
) -> Fit:
    """Return the fit of all classes; `make` makes the fit of two classes, and its InputError is raised.

    may_take_rounds: whether classes whose problems do not fit into memory together are trained in rounds, which needs
    linear models. n_fits: how many fits share a process, and with it what any of them needs once.
    """
    views = view_classes(source)
    size = _count_side_by_side(source, options, make, process_bytes, n_fits) if may_take_rounds else len(views)
    shared = share_options(source, options, process_bytes, size)
    parts = [make(view, each) for view, each in zip(views, shared, strict=True)]
    if any(part.scratch for part in parts):
        raise InputError(f"{len(parts)} classes: {ONE_TRAINING}")
    if size == len(views):
        return join_fits(views, parts, partial(_make_model, source, parts))
    at_zero = np.array([_measure_zero(view, each) for view, each in zip(views, shared, strict=True)])
    return _join_in_rounds(source, views, parts, at_zero, size)


def _count_side_by_side(source: RowSource, options: TrainOptions, make: Make, process_bytes: int, n_fits: int) -> int:
    """Return how many classes are trained side by side: all of them, or half as many until they fit into memory."""
    budget = options.memory_bytes or default_budget_bytes()
    views = view_classes(source)
    view, levels = views[0], (len(plan_groups(source)) - 1).bit_length()
    size = n_classes = len(views)
    once = (SLACK_BYTES + THREADS * source.stream_bytes()) // n_fits
    while size > 1:
        part = make(view, share_options(source, options, process_bytes, size)[0])
        need = _need_memory([part] * size, THREADS)
        needed = process_bytes + once + need.driver_bytes + need.walk_bytes
        needed += (3 * THREADS + levels) * need.totals_bytes
        if size < n_classes:
            needed += rounds.MODELS * 8 * n_classes * (source.n_features + 1)
        if needed <= budget:
            break
        size = -(-size // 2)
    return size


def _measure_zero(view: View, options: TrainOptions) -> float:
    """Return the losses of all rows at the score 0. Each class is one row here, with the weight of all its rows."""
    sums, make_loss = view.sum_weights(), find_problem(options.task).make_loss
    assert sums is not None
    assert make_loss is not None
    loss = make_loss(view, options)
    assert loss is not None
    rows = Rows(0, np.zeros((2, 1), np.float32), np.arange(2, dtype=np.int32), sums)
    return float(np.sum(loss.measure(rows, np.zeros(2))[0]))


def _join_in_rounds(source: RowSource, views: Sequence[View], parts: Sequence[Fit], at_zero: F64, size: int) -> Fit:
    """Return the fits of all problems as one fit, `size` of which are made side by side."""
    solvers = [partial(_solve_part, view, part) for view, part in zip(views, parts, strict=True)]
    many = rounds.Rounds(parts, solvers, at_zero, size, source.n_features)
    return Fit(
        method=parts[0].method,
        settings={**_join_settings([part.settings for part in parts]), "side_by_side": size},
        memory=lambda threads: many.need_memory(_need_memory(parts[:size], threads)),
        start=many.start,
        solve=many.solve,
        make_model=lambda state, _: replace(many.make_models(state), classes=np.asarray(source.classes)),
        report=many.report,
        compiled=tuple(dict.fromkeys(group for part in parts for group in part.compiled)),
        note=IN_ROUNDS.format(len(parts), size, -(-len(parts) // size)),
        sample=parts[0].sample,
    )


def view_classes(source: RowSource) -> Sequence[View]:
    """Return the view of the rows that the problem of each class, or of each label, has."""
    assert source.classes is not None
    if source.has_label_sets:
        return [OneLabel(source, code, sums) for code, sums in enumerate(sum_label_weights(source))]
    return [OneClass(source, code) for code in range(len(source.classes))]


def share_options(
    source: RowSource, options: TrainOptions, process_bytes: int = 0, size: int | None = None
) -> list[TrainOptions]:
    """Return the options of each class's problem: the costs of the class, and an equal part of the memory for rows.

    size: the number of problems that share the memory; None is all of them.
    """
    if source.has_label_sets:
        given = share_memory(options, size or count_labels(source), process_bytes)
        each = compute_label_factors(source, options).tolist()
        return [replace(given, task=ONE_LABEL, class_weight=dict(zip((REST, ONE), own, strict=True))) for own in each]
    factors = compute_class_factors(source, options)
    given = replace(share_memory(options, size or len(factors), process_bytes), class_weight=None)
    return [replace(given, class_weight={ONE: float(factor)}) for factor in factors]


def join_fits(views: Sequence[View], parts: Sequence[Fit], make_model: Callable[[State, TakeRows], Model]) -> Fit:
    """Return the fits of all problems as one fit; one step of it is a step of every problem's fit."""
    return Fit(
        method=parts[0].method,
        settings=_join_settings([part.settings for part in parts]),
        memory=partial(_need_memory, parts),
        start=lambda: many_problems.start_state([part.start() for part in parts]),
        warm_start=partial(_start_warm, parts),
        start_each=partial(_start_each, parts) if all(part.start_at for part in parts) else None,
        solve=partial(_solve, views, parts),
        make_model=make_model,
        report=partial(_report, parts),
        compiled=tuple(dict.fromkeys(group for part in parts for group in part.compiled)),
        note=next((part.note for part in parts if part.note), ""),
        sample=parts[0].sample,
    )


def _join_settings(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that all problems share, and the others as lists of the problems' values."""
    columns = {name: [one[name] for one in each] for name in each[0]}
    same = {name: all(value == values[0] for value in values) for name, values in columns.items()}
    return {"problems": len(each)} | {name: v[0] if same[name] else v for name, v in columns.items()}


def _need_memory(parts: Sequence[Fit], threads: int) -> MemoryNeed:
    """Return the memory of all fits together.

    The fits take turns with the working memory of a task, and in walks, which have no totals, with one buffer of rows.
    There each of their models is in memory three times: as it was before the pass, as it is after it, and as it is
    being changed.
    """
    needs = [part.memory(threads) for part in parts]
    others = 3 * sum(need.shared_bytes for need in needs[1:] if not need.totals_bytes)
    return replace(sum_memory(needs), walk_bytes=needs[0].walk_bytes + others)


def _start_warm(parts: Sequence[Fit], before: State, factor: float) -> State:
    pairs = zip(parts, before.problems, strict=True)
    return many_problems.start_state([part.start_after(one, factor) for part, one in pairs])


def _start_each(parts: Sequence[Fit], weights: Sequence[F64 | None]) -> State:
    """Return the state in which each problem starts from its weights, or anew."""
    pairs = zip(parts, weights, strict=True)
    return many_problems.start_state(
        [part.start() if w is None or part.start_at is None else part.start_at(w) for part, w in pairs]
    )


def _solve(views: Sequence[View], parts: Sequence[Fit], state: State) -> Solver:
    solvers = [partial(_solve_part, view, part) for view, part in zip(views, parts, strict=True)]
    return many_problems.solve(solvers, state)


def _solve_part(view: View, part: Fit, state: Any) -> Solver:
    return alter_rows(part.solve(state), view.alteration)


def _make_model(source: RowSource, parts: Sequence[Fit], state: State, take: TakeRows) -> Model:
    chosen: list[I64] = []
    pairs = zip(parts, state.problems, strict=True)
    models = [part.make_model(one, partial(note_rows, chosen, take)) for part, one in pairs]
    return join_models(models, np.asarray(source.classes), chosen, take)


def _report(parts: Sequence[Fit], state: State) -> Report:
    reports = [part.report(one) for part, one in zip(parts, state.problems, strict=True)]
    passes = state.passes + max(report.passes - int(n) for report, n in zip(reports, state.counts, strict=True))
    bounds = [report.lower_bound for report in reports if report.lower_bound is not None]
    return Report(
        objective=sum(report.objective for report in reports),
        lower_bound=sum(bounds) if len(bounds) == len(reports) else None,
        passes=passes,
        rounding_bound=sum(report.rounding_bound for report in reports),
        tried_bound=sum(max(report.rounding_bound, report.tried_bound) for report in reports),
        finished=all(report.finished for report in reports),
        problems=tuple(map(_describe, reports, state.statuses.tolist(), state.steps.tolist())),
    )


def _describe(report: Report, status: str, steps: int) -> dict[str, Any]:
    """Return the certificate of a problem; the status is "" while its solver goes on."""
    return {
        "status": status,
        "objective": report.objective,
        "lower_bound": report.lower_bound,
        "relative_gap": report.relative_gap,
        "passes": report.passes,
        "steps": steps,
        **({} if report.pairs is None else {"pairs": report.pairs}),
    }


def note_rows(chosen: list[I64], take: TakeRows, rows: I64) -> Rows:
    """Add the rows that a model takes to `chosen`, and return none; they are taken once for all models."""
    chosen.append(rows)
    return take(rows[:0])


def join_models(models: list[Any], classes: npt.NDArray[Any], chosen: list[I64], take: TakeRows) -> Model:
    """Return the models of all classes as one; chosen: numbers of each model's support vectors, if these are rows."""
    first, intercept = models[0], np.array([model.intercept for model in models])
    if isinstance(first, LinearModel):
        return replace(first, coef=np.stack([model.coef for model in models]), intercept=intercept, classes=classes)
    rows: I64 | None = None
    if chosen:
        rows = np.unique(np.concatenate(chosen))
        places, vectors = [np.searchsorted(rows, mine) for mine in chosen], first.keep_vectors(take(rows).X)
    else:
        ends = np.cumsum([0, *(len(model.dual_coef) for model in models)])
        places = [np.arange(at, end) for at, end in pairwise(ends.tolist())]
        vectors = stack_rows([model.support_vectors for model in models])
    dual_coef = np.zeros((len(models), vectors.shape[0] if rows is None else len(rows)))
    for model, mine, coef in zip(models, places, dual_coef, strict=True):
        coef[mine] = model.dual_coef
    kernels: KernelModel = first
    return replace(
        kernels, support_vectors=vectors, dual_coef=dual_coef, intercept=intercept, classes=classes, support=rows
    )
