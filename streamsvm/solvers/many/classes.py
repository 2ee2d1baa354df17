"""Many two-class problems that share the reads of the data: each class against the rest, or all pairs.

One against the rest: problem k of K separates the rows of class k (+1) from all other rows (-1). A row of class k has
C_i = C * class_weight[k] * sample_weight_i, and any other row has C_i = C * sample_weight_i whatever the weight of its
class, as in LIBLINEAR and scikit-learn's LinearSVC. A row is assigned to the class whose model gives it the highest
score. Problems that do not fit into memory side by side are trained in rounds.

One against one: there are K (K - 1) / 2 problems. Each has only the rows of its two classes, so all problems together
have (K - 1) n rows. A row of class k has C_i = C * class_weight[k] * sample_weight_i in each of its problems, as in
LIBSVM. Each problem votes for a class, and a row is assigned to the class with the most votes (numeric.labels). Knerr,
Personnaz & Dreyfus (1990), Single-layer learning revisited; Hsu & Lin (2002), A comparison of methods for multiclass
support vector machines.

The requests of all solvers are answered together, and the solvers proceed in lockstep: a problem that has made its step
waits for the others. The state of every problem is therefore known at each step, and a run resumed there repeats the
same passes. A problem is done once its own relative gap is proved, and then makes no more requests. The relative gap
computed from the summed objectives and bounds is at most the largest relative gap of a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource, plan_groups, read_codes
from streamsvm.data.rows.views import ONE, REST, OneVsRest, PairOfClasses, View, sum_label_weights
from streamsvm.models.model import N_SUPPORT, KernelModel, LinearModel, Model
from streamsvm.numeric.labels import list_pairs
from streamsvm.numeric.rows import F64, I64, Rows, stack_rows, take_rows
from streamsvm.options import TrainOptions, compute_class_factors, compute_label_factors
from streamsvm.passes import All, MemoryNeed, Progress, Requests, Step, only_takes
from streamsvm.problems.registry import find_problem
from streamsvm.solvers.many.transformed import OnTransformedRows
from streamsvm.solvers.solver import ONE_TRAINING, Budget, Report, Solver, TakeRows, share_memory, sum_memory
from streamsvm.system.errors import InputError

Make = Callable[[RowSource, TrainOptions], Solver]

ONE_LABEL = "classify"  # the task of the problem of one label, which has two classes
THREADS = 2  # memory is planned for this many threads on any machine, since models must not depend on the machine
SLACK_BYTES = 64 << 20  # memory that is not planned for; it exceeds the amount that the engine leaves free
MODELS = 4  # copies of all models: in two states, in a checkpoint, and in the saved model
IN_ROUNDS = "{} problems are trained in rounds, as the memory limit allows at most {} of them side by side. Each of "
IN_ROUNDS += "the {} rounds reads the data again. With more memory, fewer rounds would be enough."
KNOWN = ("statuses", "objectives", "lower_bounds", "rounding_bounds", "counts", "steps")  # arrays of `Known`
DONE = ("converged", "paper_stop", "stationary", "stalled")  # final statuses, best first; a reached limit is not final


def make_one_against_rest(
    source: RowSource, options: TrainOptions, make: Make, process_bytes: int, may_take_rounds: bool, n_fits: int
) -> Solver:
    """Return the solver of all classes against the rest.

    make: a function that returns a two-class solver, or raises InputError. may_take_rounds: whether problems that do
    not fit into memory together may be trained in rounds, which requires linear models. n_fits: the number of such
    solvers that share a process, and with it the fixed memory of a process.
    """
    views = view_classes(source)
    size = _count_side_by_side(source, options, make, process_bytes, n_fits) if may_take_rounds else len(views)
    shared = share_options(source, options, process_bytes, size)
    parts = [make(view, each) for view, each in zip(views, shared, strict=True)]
    if any(part.scratch for part in parts):
        raise InputError(f"{len(parts)} classes: {ONE_TRAINING}")
    if size == len(views):
        return AgainstRest(source, views, parts)
    at_zero = np.array([_measure_zero(view, each) for view, each in zip(views, shared, strict=True)])
    return Rounds(source, views, parts, at_zero, size)


def _count_side_by_side(source: RowSource, options: TrainOptions, make: Make, process_bytes: int, n_fits: int) -> int:
    """Return the number of classes to train side by side: all classes, or this number halved until they fit."""
    budget, n_classes = Budget.of(options, process_bytes), len(np.asarray(source.classes))
    size = n_classes
    while size > 1:
        part = make(view_classes(source)[0], share_options(source, options, process_bytes, size)[0])
        needed = count_needed_bytes(source, _need_memory([part] * size, THREADS), n_fits)
        if size < n_classes:
            needed += MODELS * 8 * n_classes * (source.n_features + 1)
        if needed <= budget.spare_bytes:
            break
        size = -(-size // 2)
    return size


def count_needed_bytes(source: RowSource, need: MemoryNeed, n_fits: int = 1) -> int:
    """Return the bytes of a solver on THREADS threads. need: the memory that it needs.

    The result includes the solver's part of the memory that n_fits solvers share.
    """
    levels, once = (len(plan_groups(source)) - 1).bit_length(), SLACK_BYTES + THREADS * source.stream_bytes()
    return once // n_fits + need.driver_bytes + need.walk_bytes + (3 * THREADS + levels) * need.totals_bytes


def _measure_zero(view: View, options: TrainOptions) -> float:
    """Return the sum of all losses at score 0. It is computed from one row per class, with the weight of the class."""
    loss = find_problem(options.task).make_loss(view, options)
    rows = Rows(0, np.zeros((2, 1), np.float32), np.arange(2, dtype=np.int32), view.sum_weights())
    return float(np.sum(loss.measure(rows, np.zeros(2))[0]))


def view_classes(source: RowSource) -> Sequence[View]:
    """Return the two-class problem of each class or label, as a view of the rows."""
    if source.has_label_sets:
        return [OneVsRest(source, code, sums) for code, sums in enumerate(sum_label_weights(source))]
    return [OneVsRest(source, code) for code in range(len(np.asarray(source.classes)))]


def share_options(
    source: RowSource, options: TrainOptions, process_bytes: int = 0, size: int | None = None
) -> list[TrainOptions]:
    """Return the options for the problem of each class, with its class weight and an equal part of the memory.

    size: the number of problems that share the memory; None for all.
    """
    if source.has_label_sets:
        each = [dict(zip((REST, ONE), own, strict=True)) for own in compute_label_factors(source, options).tolist()]
        options = replace(options, task=ONE_LABEL)
    else:
        each = [{ONE: float(factor)} for factor in compute_class_factors(source, options)]
    given = share_memory(options, size or len(each), process_bytes)
    return [replace(given, class_weight=weights) for weights in each]


@dataclass(kw_only=True)
class Known:
    """The progress of several problems. Each array has one entry per problem.

    statuses: "" for an unfinished problem. objectives: the best P. lower_bounds: the best D; NaN for a problem without
    a bound. rounding_bounds: see Progress. counts: the number of passes that the problem's own solver reports. steps:
    the number of steps of the problem. passes: the number of reads of the data.
    """

    statuses: npt.NDArray[np.str_]
    objectives: F64
    lower_bounds: F64
    rounding_bounds: F64
    counts: I64
    steps: I64
    passes: int = 0
    added: ClassVar = ("steps",)

    def sum_up(self, passes: int) -> Progress:
        """Return the sums over the problems, with the given number of passes."""
        bound, rounding = float(np.sum(self.lower_bounds)), float(np.sum(self.rounding_bounds))
        return Progress(float(np.sum(self.objectives)), None if np.isnan(bound) else bound, passes, rounding)


def _begin(objectives: F64, bound: float) -> dict[str, Any]:
    """Return the fields of `Known` for problems that have made no step."""
    n = len(objectives)
    counts, steps = np.zeros((2, n), np.int64)
    known = np.full(n, "", "<U16"), objectives, np.full(n, bound), np.zeros(n), counts, steps
    return dict(zip(KNOWN, known, strict=True))


@dataclass(kw_only=True)
class State(Known):
    """All variables of a training, as checkpoints store them. problems: the state of each problem."""

    problems: list[Any]

    @property
    def progress(self) -> Progress:
        """The sums over the problems; passes are the reads of the data in which any problem took part."""
        return self.sum_up(self.passes)


def start_state(problems: Sequence[Any]) -> State:
    """Return the state with every problem in its given start state."""
    return State(problems=list(problems), **_begin(np.full(len(problems), np.inf), np.nan))


def solve(solvers: Sequence[Callable[[Any], Requests]], state: State) -> Requests:
    """Train all problems from a state. solvers: for each problem, the function that continues from its state."""
    open_problems = [k for k, status in enumerate(state.statuses.tolist()) if status not in DONE]
    running = {k: solvers[k](state.problems[k]) for k in open_problems}
    while running:
        steps = yield from _make_step(running)
        state = _update(state, steps)
        running = {k: solver for k, solver in running.items() if not state.statuses[k]}
        status = None if running else find_worst(state.statuses.tolist())
        yield Step(state, state.progress, status, _sum_figures(steps) | {"open_problems": len(running)})


def _make_step(running: Mapping[int, Requests]) -> Any:
    """Return the next step of every solver, after making the requests of all solvers together.

    Requests for single rows go first, while passes wait, so that all solvers make their passes together.
    """
    requests: dict[int, Any] = {k: next(solver) for k, solver in running.items()}
    while waiting := {k: one for k, one in requests.items() if not isinstance(one, Step)}:
        asked = {k: one for k, one in waiting.items() if only_takes(one)} or waiting
        answers = yield All(list(asked.values()))
        found = dict(zip(asked, answers, strict=True))
        del answers
        for k in asked:
            requests[k] = running[k].send(found.pop(k))
    return requests


def _update(state: State, steps: Mapping[int, Step]) -> State:
    """Return the state after these steps. The problem with the most new passes determines the reads of the data."""
    copies = {name: getattr(state, name).copy() for name in KNOWN}
    after = replace(state, problems=list(state.problems), **copies)
    for k, step in steps.items():
        bound = step.progress.lower_bound
        after.problems[k], after.statuses[k] = step.state, step.status or ""
        after.objectives[k], after.lower_bounds[k] = step.progress.objective, np.nan if bound is None else bound
        after.steps[k] += 1
        after.rounding_bounds[k], after.counts[k] = step.progress.rounding_bound, step.progress.passes
    after.passes += int(np.max(after.counts - state.counts))
    return after


def _sum_figures(steps: Mapping[int, Step]) -> dict[str, float]:
    """Return the history entries of problems that learn one stream: the rows learned, and all support vectors."""
    figures = [step.figures for step in steps.values()]
    if "rows" not in figures[0]:
        return {}
    return {"rows": figures[0]["rows"], "n_support_vectors": sum(one["n_support_vectors"] for one in figures)}


def find_worst(statuses: Sequence[str]) -> str:
    """Return the worst of these statuses. Statuses that are not in DONE are worse than all statuses in DONE."""
    return max(statuses, key=lambda one: DONE.index(one) if one in DONE else len(DONE))


class ManyProblems(Solver):
    """The solvers of several problems combined into one; each step is a step of every problem."""

    def __init__(self, source: RowSource, views: Sequence[View], parts: Sequence[Solver]) -> None:
        first, self.source = parts[0], source
        self.parts = [OnTransformedRows(part, view.transform) for view, part in zip(views, parts, strict=True)]
        self.name, self.sample, self.settings = first.name, first.sample, _join_settings([p.settings for p in parts])
        self.compiled = tuple(dict.fromkeys(group for part in parts for group in part.compiled))
        self.note = next((part.note for part in parts if part.note), "")
        self.reason = parts[0].reason
        self.n_starts = len(parts) if all(part.n_starts for part in parts) else 0
        self.starts_warm = all(part.starts_warm for part in parts)

    def start(self) -> Any:
        """Return the state in which every problem is at its start."""
        return start_state([part.start() for part in self.parts])

    def warm_start(self, before: Any, factor: float) -> Any:
        """Return the state with every problem warm-started from its state in `before`."""
        pairs = zip(self.parts, before.problems, strict=True)
        return start_state([part.warm_start(one, factor) for part, one in pairs])

    def start_each(self, weights: Sequence[F64 | None]) -> State:
        """Return the state in which each problem starts at its weights, or at its usual start if they are None."""
        pairs = zip(self.parts, weights, strict=True)
        return start_state([part.start() if w is None else part.start_at(w) for part, w in pairs])

    def solve(self, state: Any) -> Requests:
        """Yield the requests of all problems together."""
        return solve([part.solve for part in self.parts], state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of all problems together."""
        return _need_memory(self.parts, threads)

    def report(self, state: Any) -> Report:
        """Return the sums of all problems, and the progress of each."""
        reports = [part.report(one) for part, one in zip(self.parts, state.problems, strict=True)]
        passes = state.passes + max(report.passes - int(n) for report, n in zip(reports, state.counts, strict=True))
        bounds = [report.lower_bound for report in reports if report.lower_bound is not None]
        P, rounding = sum(one.objective for one in reports), sum(one.rounding_bound for one in reports)
        D = sum(bounds) if len(bounds) == len(reports) else None
        tried = sum(max(one.rounding_bound, one.tried_bound) for one in reports)
        each = tuple(map(describe_problem, state.statuses.tolist(), reports, state.steps.tolist()))
        finished = all(one.finished for one in reports)
        return Report(P, D, passes, rounding, tried, finished=finished, problems=each)

    def _make_models(self, state: Any, take: TakeRows) -> tuple[list[Any], list[I64]]:
        """Return the models of all problems without support vectors, and the row numbers of these vectors, by model."""
        chosen: list[I64] = []
        pairs = zip(self.parts, state.problems, strict=True)
        return [part.make_model(one, partial(_note_rows, chosen, take)) for part, one in pairs], chosen


class AgainstRest(ManyProblems):
    """The problems of all classes, each against the rest."""

    def make_model(self, state: State, take: TakeRows) -> Model:
        """Return the models of all classes as one."""
        models, chosen = self._make_models(state, take)
        return join_models(models, np.asarray(self.source.classes), chosen, take)


def _join_settings(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of all problems: common values as they are, others as lists with a value per problem."""
    columns = {name: [one[name] for one in each] for name in each[0]}
    same = {name: all(value == values[0] for value in values) for name, values in columns.items()}
    return {"problems": len(each)} | {name: v[0] if same[name] else v for name, v in columns.items()}


def _need_memory(parts: Sequence[Solver], threads: int) -> MemoryNeed:
    """Return the memory of several problems together.

    The solvers take turns using the working memory of a task. In sequential passes, which have no totals, they also
    share one buffer of rows, and each model is in memory three times: before the pass, after the pass, and while it is
    being changed.
    """
    needs = [part.memory(threads) for part in parts]
    others = 3 * sum(need.shared_bytes for need in needs[1:] if not need.totals_bytes)
    return replace(sum_memory(needs), walk_bytes=needs[0].walk_bytes + others)


def describe_problem(status: str, progress: Progress, steps: int | None = None) -> dict[str, Any]:
    """Return the progress of a problem as JSON. The status is "" until the problem is done."""
    names = ("objective", "lower_bound", "relative_gap", "passes")
    told = {"status": status, **{name: getattr(progress, name) for name in names}}
    more = {"steps": steps, "pairs": getattr(progress, "pairs", None)}  # only some solvers count pairs
    return told | {name: value for name, value in more.items() if value is not None}


def _note_rows(chosen: list[I64], take: TakeRows, rows: I64) -> Rows:
    """Append a model's row numbers to `chosen`; return no rows, since the rows are read later, once for all models."""
    chosen.append(rows)
    return take(rows[:0])


def join_models(models: list[Any], classes: npt.NDArray[Any], chosen: list[I64], take: TakeRows) -> Model:
    """Join the models of all classes.

    chosen: for each model, the row numbers of its support vectors; empty for linear models.
    """
    first = replace(models[0], intercept=np.array([model.intercept for model in models]), classes=classes)
    if isinstance(first, LinearModel):
        return replace(first, coef=np.stack([model.coef for model in models]))
    rows: I64 | None = None
    info: dict[str, Any] = {}
    if chosen:
        rows = np.unique(np.concatenate(chosen))
        taken = take(rows)
        places, vectors = [np.searchsorted(rows, mine) for mine in chosen], first.keep_vectors(taken.X)
        # The rows have to be counted: the coefficients do not reveal the class of a vector that belongs only to the
        # rest.
        info = {N_SUPPORT: np.bincount(taken.codes, minlength=len(classes)).tolist()}
    else:
        ends = np.cumsum([0, *(len(model.dual_coef) for model in models)])
        places = [np.arange(at, end) for at, end in pairwise(ends.tolist())]
        vectors = stack_rows([model.support_vectors for model in models])
    dual_coef = np.zeros((len(models), vectors.shape[0] if rows is None else len(rows)))
    for model, mine, coef in zip(models, places, dual_coef, strict=True):
        coef[mine] = model.dual_coef
    kernels: KernelModel = first
    return replace(kernels, support_vectors=vectors, dual_coef=dual_coef, support=rows, info=info)


@dataclass(kw_only=True)
class RoundsState(Known):
    """All variables of a training in rounds, as checkpoints store them.

    coefs (K, d) and intercepts (K,): the models of problems whose round has ended, and 0 for all others. The arrays of
    `Known` also describe the problems of ended rounds. tried_bounds (K,): see Progress. passes: the number of reads of
    the data in ended rounds. first: the first problem of the current round. under_way: a list with the state of the
    current round as its only entry. If the last round has fewer problems, it is padded with problems that are done.
    """

    coefs: F64
    intercepts: F64
    tried_bounds: F64
    first: int
    under_way: list[State]

    def check(self) -> None:
        """Raise ValueError for numbers that no run can reach."""
        if not 0 <= self.first <= len(self.statuses) or self.passes < 0:
            raise ValueError(f"no round begins at problem {self.first} after {self.passes} passes")

    @property
    def members(self) -> slice:
        """The problems of the current round."""
        return slice(self.first, min(self.first + len(self.under_way[0].problems), len(self.statuses)))

    def gather(self) -> RoundsState:
        """Return the state in which the arrays also hold the progress of the problems of the current round."""
        inner, mine = self.under_way[0], self.members
        known, n = {name: getattr(self, name).copy() for name in KNOWN}, mine.stop - mine.start
        for name, values in known.items():
            values[mine] = np.where(np.isfinite(inner.objectives[:n]), getattr(inner, name)[:n], values[mine])
        return replace(self, **known)

    @property
    def progress(self) -> Progress:
        """The sums over all problems."""
        return self.gather().sum_up(self.passes + self.under_way[0].passes * (self.first < len(self.statuses)))


class Rounds(ManyProblems):
    """Problems trained in rounds. A round trains as many problems side by side as fit into memory.

    When a round ends, the models and certificates of its problems are kept, and the solvers' states are discarded. The
    memory of the driver therefore grows only by one model per problem. A problem whose round has not begun has the
    model w = 0; its objective is the sum of the losses of all rows at score 0. at_zero: (K,), the objectives at w = 0.
    size: the number of problems in a round.
    """

    def __init__(self, source: RowSource, views: Sequence[View], parts: list[Solver], at_zero: F64, size: int) -> None:
        super().__init__(source, views, parts)
        self.at_zero, self.size, self.n_starts = at_zero, size, 0
        self.settings = {**self.settings, "side_by_side": size}
        self.note = IN_ROUNDS.format(len(parts), size, -(-len(parts) // size))

    warm_start = Solver.warm_start  # the ordinary start, since the solvers' states of ended rounds were discarded

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of the largest round, and of the models of all problems."""
        need, model_bytes = _need_memory(self.parts[: self.size], threads), 8 * len(self.parts)
        model_bytes *= MODELS * (self.source.n_features + 1)
        return replace(need, driver_bytes=need.driver_bytes + model_bytes)

    def start(self) -> RoundsState:
        """Return the state before the first pass."""
        known, under_way, K = _begin(self.at_zero.copy(), 0.0), [self._start_round(0)], len(self.parts)
        coefs, (intercepts, tried) = np.zeros((K, self.source.n_features)), np.zeros((2, K))
        arrays = {**known, "coefs": coefs, "intercepts": intercepts, "tried_bounds": tried}
        return RoundsState(first=0, under_way=under_way, **arrays)

    def _start_round(self, first: int) -> State:
        """Return the state at the start of a round. A short round is padded with problems that are done."""
        n = min(self.size, len(self.parts) - first)
        state = start_state([self.parts[first + min(k, n - 1)].start() for k in range(self.size)])
        state.statuses[n:] = DONE[0]
        for name in ("objectives", "lower_bounds"):
            getattr(state, name)[n:] = 0.0
        return state

    def solve(self, state: RoundsState) -> Requests:
        """Train from a state. A run resumed from the state in any `Step` gives the same bits."""
        while state.first < len(self.parts):
            inner = solve([part.solve for part in self.parts[state.members]], state.under_way[0])
            answer, is_over = None, False
            while not is_over:
                request = inner.send(answer)
                if isinstance(request, Step):
                    state, is_over = replace(state, under_way=[request.state]), request.status is not None
                    state = self._end_round(state) if is_over else state
                    request = self._make_step(state, request)
                answer = yield request

    def _make_step(self, state: RoundsState, inner: Step) -> Step:
        """Return the step of all problems, given the step `inner` of the current round."""
        is_last = state.first == len(self.parts)
        n_open, n_later = int(np.count_nonzero(state.gather().statuses == "")), len(self.parts) - state.members.stop
        status = find_worst(state.statuses.tolist()) if is_last else None
        figures = {**inner.figures, "open_problems": n_open, "waiting_problems": n_later}
        return Step(state, state.progress, status, figures)

    def _end_round(self, state: RoundsState) -> RoundsState:
        """Return the state at the start of the next round, or after the last one."""
        model = self.make_model(state)
        known, mine, tried = state.gather(), state.members, state.tried_bounds.copy()
        ended = zip(self.parts[mine], state.under_way[0].problems, strict=False)
        tried[mine] = [part.report(one).tried_bound for part, one in ended]
        passes, first = state.passes + state.under_way[0].passes, mine.stop
        under_way = [self._start_round(first)] if first < len(self.parts) else state.under_way
        points: dict[str, Any] = {"coefs": model.coef, "intercepts": np.asarray(model.intercept), "tried_bounds": tried}
        return replace(known, passes=passes, first=first, under_way=under_way, **points)

    def make_model(self, state: RoundsState, take: Any = None) -> LinearModel:
        """Return the models of all problems as one; linear models need no rows."""
        coefs, intercepts, mine = state.coefs.copy(), state.intercepts.copy(), state.members
        first: Any = None
        for k, one in zip(range(mine.start, mine.stop), state.under_way[0].problems, strict=False):
            first = self.parts[k].make_model(one, take)
            coefs[k], intercepts[k] = first.coef, first.intercept
        first = first or self.parts[0].make_model(self.parts[0].start(), take)
        classes = np.asarray(self.source.classes)
        model: LinearModel = replace(first, coef=coefs, intercept=intercepts, classes=classes)
        return model

    def report(self, state: RoundsState) -> Report:
        """Return the sums of all problems, and the progress of each."""
        known = state.gather()
        columns = zip(*(getattr(known, name).tolist() for name in KNOWN), strict=True)
        problems = [(s, Progress(p, d, passes, e), steps) for s, p, d, e, passes, steps in columns]
        tried = float(np.sum(np.maximum(known.rounding_bounds, known.tried_bounds)))
        each = tuple(describe_problem(*one) for one in problems)
        return replace(Solver.report(self, state), tried_bound=tried, problems=each)


def make_one_against_one(source: RowSource, options: TrainOptions, make: Make, process_bytes: int) -> Solver:
    """Return the solver of all pairs of classes; `make` returns a two-class solver, or raises InputError."""
    factors, y = compute_class_factors(source, options), read_codes(source)
    views = [PairOfClasses(source, y, *pair) for pair in list_pairs(len(factors))]
    budget, n_rows = Budget.of(options, process_bytes), sum(view.n_rows for view in views)
    parts = []
    for view in views:
        weights = {label: float(factors[view.codes[label]]) for label in (REST, ONE)}
        own_bytes = budget.part(view.n_rows, n_rows)
        parts.append(make(view, replace(options, class_weight=weights, memory_bytes=own_bytes)))
    return Pairs(source, views, parts)


class Pairs(ManyProblems):
    """The problems of all pairs of classes."""

    def __init__(self, source: RowSource, views: Sequence[PairOfClasses], parts: Sequence[Solver]) -> None:
        super().__init__(source, views, parts)
        self.views, self.settings = views, {**self.settings, "multi_class": "ovo"}

    def make_model(self, state: State, take: TakeRows) -> KernelModel:
        """Return the models of all pairs as one, with the support vectors sorted by class."""
        models, chosen = self._make_models(state, take)
        numbers = [view.transform.to_source(rows) for view, rows in zip(self.views, chosen, strict=True)]
        support = np.unique(np.concatenate(numbers))
        taken = take(support)
        order = np.argsort(taken.codes, kind="stable")
        place = np.argsort(order)
        classes = np.asarray(self.source.classes)
        K = len(classes)
        dual_coef = np.zeros((K - 1, len(support)))
        for view, model, mine in zip(self.views, models, numbers, strict=True):
            second, first = view.codes.tolist()
            of_first = model.dual_coef > 0
            at = place[np.searchsorted(support, mine)]
            dual_coef[second - 1, at[of_first]] = model.dual_coef[of_first]
            dual_coef[first, at[~of_first]] = model.dual_coef[~of_first]
        intercept, counts = np.array([model.intercept for model in models]), np.bincount(taken.codes, minlength=K)
        joined: KernelModel = replace(models[0], intercept=intercept, classes=classes, n_support=counts)
        vectors = joined.keep_vectors(taken.X)
        vectors = vectors if vectors.shape[0] == 0 else take_rows(vectors, order)
        return replace(joined, support_vectors=vectors, dual_coef=dual_coef, support=support[order])
