"""Training: the loop that drives a solver over the rows of a source and makes a model.

The loop runs a solver step by step on an engine, keeps its history and checkpoints in the folder of the run, and makes
the result. Several runs can proceed side by side: in each round, one read of the data answers the requests of all runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamsvm import __version__
from streamsvm.data.rows.source import RowSource
from streamsvm.data.store.shared_files import make_scratch_folder
from streamsvm.engines.engine import Costs, Engine, TaskSeconds
from streamsvm.engines.merge import answer_all
from streamsvm.engines.open import Client, MemoryPlan, Opened, open_engine
from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.compilation import MIXED, Arithmetic, list_kinds, name_differences, one_blas_thread
from streamsvm.numeric.labels import list_pairs
from streamsvm.numeric.rows import I64, Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import NOTHING, MemoryNeed, Request, Requests, Step, Take, only_takes
from streamsvm.problems.registry import find_problem
from streamsvm.runs.folder import OnWritten, RunFolder, Saved, open_place, write_result
from streamsvm.runs.gamma_scale import needs_scale, resolve_gamma, stand_in_for_gamma
from streamsvm.runs.held_out import EvalSet
from streamsvm.runs.results import DONE, NO_COST, STATUSES, Event, Listener, PriorCost, Result, describe_status
from streamsvm.solvers.set_up import choose_solver, compile_all, set_up, settle_task
from streamsvm.solvers.solver import ONE_TRAINING, Report, Solver, Wrapper, need_in_turn, share_memory, sum_memory
from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import InputError, TimeLimitError
from streamsvm.system.files import Lock, hide_secrets, is_remote
from streamsvm.system.machine import default_budget_bytes, file_page_bytes, peak_bytes, resident_bytes

if TYPE_CHECKING:
    from streamsvm.runs.calibrate import FoldFits


@dataclass
class Clock:
    """The seconds that a run has spent in passes and in its solver. A shared pass counts in full for each run."""

    pass_seconds: float = 0.0
    solver_seconds: float = 0.0

    def watch(self, solver: Requests, is_late: Callable[[], bool]) -> Requests:
        """Yield the requests of a solver; count its seconds until each request, and the seconds until each answer.

        Work after a step, such as a checkpoint or a measure on held-out rows, counts as neither. While the solver
        computes, `deadline.is_over` calls `is_late`.
        """
        answer = None
        while True:
            began = time.monotonic()
            with deadline.held(is_late):
                request = solver.send(answer)
            asked = time.monotonic()
            self.solver_seconds += asked - began
            answer = yield request
            if not isinstance(request, Step):
                self.pass_seconds += time.monotonic() - asked

    def as_json(self) -> dict[str, float]:
        """Return the seconds by name, for a line of the history."""
        return {name: round(seconds, 4) for name, seconds in vars(self).items()}


T = TypeVar("T")


def drive(engine: Engine, runs: Sequence[Generator[Request, Any, T]]) -> list[T]:
    """Drive several runs to their ends, and return the value that each returns.

    In each round, one read of the data answers the requests of all runs. Requests for rows by number are answered
    first, while passes wait, so that the passes of all runs coincide.
    """
    waiting: dict[int, Any] = dict.fromkeys(range(len(runs)))
    answers, ended = dict(waiting), dict[int, T]()  # None starts a generator
    while waiting:
        for k, found in answers.items():
            try:
                waiting[k] = runs[k].send(found)
            except StopIteration as end:
                ended[k] = end.value
                del waiting[k]
        takes = [k for k, request in waiting.items() if only_takes(request)]
        asked = {k: waiting[k] for k in takes or list(waiting)}
        answers = dict(zip(asked, answer_all(engine, list(asked.values())), strict=True))
    return [ended[k] for k in range(len(runs))]


def take_steps(solver: Requests, on_step: Callable[[Step], object]) -> Generator[Request, Any, None]:
    """Yield the requests of a solver, and pass its steps to `on_step`, which returns True to end the solver."""
    answer = None
    while True:
        request = solver.send(answer)
        if not isinstance(request, Step):
            answer = yield request
        elif on_step(request):
            return
        else:
            answer = None


# Settings of a fit that are stored in the model, so that `verify` can recompute its objective
MODEL_SETTINGS = ("class_costs", "bias_feature", "pair_cost", "loss", "penalty", "row_cost", "tube", "nu")
LOGGER = logging.getLogger("streamsvm")


@dataclass(eq=False)
class Training:
    """One run, which drives its solver step by step. Without a folder (`run` is None), nothing is saved.

    options: as given by the user; gamma "scale" takes one read before the reads of the solver, and this read is
    counted. enough: a gap above tol that suffices to end the run (None: only tol ends it). eval_set: held-out rows on
    which the model of each step is measured.
    """

    source: RowSource
    options: TrainOptions
    fit: Solver
    engine: Engine
    plan: MemoryPlan
    run: RunFolder | None
    listener: Callable[[Event], object]
    spent: PriorCost = NO_COST
    enough: float | None = None
    eval_set: EvalSet | None = None

    def __post_init__(self) -> None:
        spent, engine = self.spent, self.engine
        self.passes_before = spent.passes + int(needs_scale(self.options))
        self.seconds_before, self.costs_before, self.steps_before = spent.seconds, Costs(spent.read_bytes), 0
        self.history: list[dict[str, Any]] = []
        self.state, self.status = self.fit.start(), ""
        self.began, self.clock = time.monotonic(), Clock()
        self.take_rows: Callable[[I64], Rows] = lambda rows: engine.take(Take(rows))

    def carry_out(self, folds: FoldFits | None = None, fits: Sequence[Solver] = ()) -> Result:
        """Carry out the run to its end, from its checkpoint if there is one, and return the result.

        folds, fits: side fits that share the reads of this run, are saved with it, and calibrate the probabilities of
        its model. This method writes the last checkpoint. The caller writes the model, after the files next to it.
        """
        self.begin()
        if len(kinds := self._list_arithmetic()) > 1:
            LOGGER.warning(MIXED, name_differences(kinds))
        others = []
        if folds is not None:
            place = (None, None) if self.run is None else (self.run.path, self.run.lock)
            others = folds.open(fits, self.options, (self.engine, self.plan), *place)
        group = [self, *others]
        try:
            with deadline.held(lambda: all(one.is_late() for one in group)):
                drive(self.engine, [one.requests() for one in group])
                save_all(group)
                result = self.make_result() if folds is None else folds.complete(self, others)
        except (KeyboardInterrupt, ConnectionError) as error:
            by_signal, is_late = isinstance(error, KeyboardInterrupt), isinstance(error, TimeLimitError)
            if not self.history or (by_signal and self.run is None):
                raise
            if by_signal:
                interrupts.accept()
            self.status = self.status or ("time_limit" if is_late else "interrupted")  # may be set by the last step
            save_all(group)
            if not by_signal and not (is_late and folds is None):
                raise
            self.take_rows = self.source.take  # the workers may be lost
            result = self.make_result()
            if folds is not None:  # this run may have ended, but not its folds
                reason = describe_status("interrupted", self.fit.report(self.state), self.options)
                result = replace(result, status="interrupted", status_reason=reason, finished=False)
        return result

    def begin(self) -> None:
        """Make the folder of the run, if it has one, and restore its checkpoint."""
        saved = self.run.begin(self.state, self.source.n_rows, self.engine.arithmetic) if self.run else None
        if saved is not None:
            self.state, self.history = saved.state, saved.history
            self.status, self.seconds_before = saved.status, self.seconds_before + saved.seconds
            self.steps_before, last = len(self.history), self.history[-1] if self.history else {}
            earlier = last.get("read_bytes", 0), last.get("scratch_bytes", 0)
            self.costs_before.add(Costs(*earlier, seconds=TaskSeconds(**saved.task_seconds)))
            self.clock = Clock(last.get("pass_seconds", 0.0), last.get("solver_seconds", 0.0))

    def _list_arithmetic(self) -> list[Arithmetic]:
        """Return the kinds of arithmetic of the run, including the part before the run was resumed."""
        return list_kinds([*(self.run.arithmetic if self.run else ()), *self.engine.arithmetic])

    def is_done(self) -> bool:
        """Return whether the solver has nothing left to do."""
        finished = bool(self.history) and self.fit.report(self.state).finished
        return finished or (self.status != "" and STATUSES[self.status].is_final)

    def save(self, now: bool = True) -> None:
        """Write a checkpoint of the last step, if there is a folder. now: whether to write it even if none is due."""
        if self.run and (now or self.run.is_due()):
            task_seconds = self._sum_costs().seconds.as_json()
            self.run.save(Saved(self.state, self.history, self.status, self._seconds(), task_seconds))

    def requests(self) -> Generator[Request, Any, None]:
        """Yield the solver's requests until it is done or a limit is reached. The caller sends the answers."""
        if self.is_done():
            return
        if self.history:  # limits apply after the first step, which gives the objective
            self.status = self._limit(self.history[-1])
        if self.status:
            return
        yield from take_steps(self.clock.watch(self.fit.solve(self.state), self.is_late), self._record)

    def _record(self, step: Step) -> bool:
        """Add a step to the history; return whether the run ends with it."""
        progress = replace(step.progress, passes=self.passes_before + step.progress.passes)
        progress.check()
        costs = self._sum_costs()
        line = {
            "step": len(self.history) + 1,
            "passes": progress.passes,
            "objective": progress.objective,
            "lower_bound": progress.lower_bound,
            "relative_gap": progress.relative_gap,
            "rounding_bound": progress.rounding_bound,
            "seconds": round(self._seconds(), 4),
            **self.clock.as_json(),
            "read_bytes": costs.read_bytes,
            "scratch_bytes": costs.written_bytes,
            "memory_bytes": resident_bytes(),
            **step.figures,
        }
        if self.eval_set is not None:
            model = self._make_model(step.state)
            task = {"task": self.options.task}  # it determines the measure
            line["eval_score"] = self.eval_set.measure(replace(model, info=model.info | task))
        if self.run:
            self.run.record(line)
        self.state = step.state
        self.history.append(line)
        self.status = step.status or self._limit(line)
        self.save(now=False)  # save before the listener is called, since it may fail
        if self.listener(Event(line, self.plan, self.status, self._make_last_model)) is True and not self.status:
            self.status = "early_stop"
            self.save(now=False)
        interrupts.check()
        return bool(self.status)

    def _limit(self, line: dict[str, Any]) -> str:
        gap = line["relative_gap"]
        if self.enough is not None and gap is not None and gap <= self.enough:
            return "early_stop"
        if self.eval_set is not None and self.eval_set.has_waited(self._list_eval_scores()):
            return "early_stop"
        if self.options.max_passes is not None and line["passes"] >= self.options.max_passes:
            return "pass_limit"
        if self.is_late():
            return "time_limit"
        return ""

    def _list_eval_scores(self) -> list[float]:
        """Return the score on the held-out rows after each step."""
        return [line["eval_score"] for line in self.history if "eval_score" in line]

    def is_late(self) -> bool:
        """Return whether the run has no time left."""
        return self.options.max_seconds is not None and self._seconds() >= self.options.max_seconds

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def _sum_costs(self) -> Costs:
        """Return the costs of the run, including the part before the run was resumed."""
        return self.costs_before + self.engine.costs

    def make_result(self) -> Result:
        """Return the result of the run so far. Support vectors are read from the source."""
        report, model, costs = self.fit.report(self.state), self._make_last_model(), self._sum_costs()
        problems = name_problems(report.problems, self.source.classes, self.fit.settings.get("multi_class") == "ovo")
        report = replace(report, passes=self.passes_before + report.passes, problems=tuple(problems))
        return Result(
            model=model,
            status=self.status,
            status_reason=self._explain(report),
            solver=self.fit.name,
            objective=report.objective,
            lower_bound=report.lower_bound,
            relative_gap=report.relative_gap,
            rounding_bound=report.report_rounding(self.status),
            passes=report.passes,
            steps=len(self.history),
            seconds=self._seconds(),
            read_bytes=costs.read_bytes,
            scratch_bytes=costs.written_bytes,
            task_seconds=costs.seconds.as_json(),
            peak_memory_bytes=max(peak_bytes(), *costs.peaks.values(), 0),
            projected_memory_bytes=max(self.plan.projected_bytes, self.spent.projected_bytes),
            file_page_bytes=file_page_bytes(),
            finished=report.finished or self.status in DONE,
            n_rows=self.source.n_rows,
            n_features=self.source.n_features,
            n_support_vectors=model.dual_coef.shape[-1] if isinstance(model, KernelModel) else None,
            arithmetic=self._list_arithmetic(),
            problems=problems,
            history=list(self.history),
        )

    def _explain(self, report: Report) -> str:
        """Return why the run has ended."""
        scores = self._list_eval_scores()
        if self.status == "early_stop" and self.eval_set is not None and self.eval_set.has_waited(scores):
            return self.eval_set.explain(scores)
        return describe_status(self.status, report, self.options, is_resumed=self.steps_before > 0)

    def _make_model(self, state: Any) -> Model:
        """Return the model of a state. If the run was trained on mapped features, the model accepts raw rows."""
        model = self.fit.make_model(state, self.take_rows)
        features = self.source.features
        return model if features is None else replace(model, features=features, feature_names=features.feature_names)

    def _make_last_model(self) -> Model:
        """Return the model of the last state, with the facts of its training."""
        report = self.fit.report(self.state)
        info: dict[str, Any] = {
            "solver": self.fit.name,
            "task": self.options.task,
            **({} if self.options.loss is None else {"loss": self.options.loss}),
            "C": float(self.options.C),
            "tol": float(self.options.tol),
            "version": __version__,
            "status": self.status,
            "objective": report.objective,
            "lower_bound": report.lower_bound,
            "rounding_bound": report.report_rounding(self.status),
        }
        told = self.fit.settings
        known = {name: told[name] for name in MODEL_SETTINGS if name in told}
        if "class_weights" in told:  # budgeted-sgd stores C and the class weights separately
            known["class_costs"] = (np.asarray(told["C"]) * np.asarray(told["class_weights"])).tolist()
        if known:  # `verify` recomputes the objective from these
            info["problem"] = {**known, "n_rows": self.source.n_rows}
        if self.source.encoding is not None:
            info["encoding"] = self.source.encoding.as_json()
        for name in ("label_column", "qid_column", "read_as"):
            if (column := getattr(self.source, name)) is not None:
                info[name] = column
        model = self._make_model(self.state)
        return replace(model, info=model.info | info)


def name_problems(problems: Sequence[dict[str, Any]], classes: Any, of_pairs: bool) -> list[dict[str, Any]]:
    """Add labels to the certificates of problems, if each class, label or pair of classes has one certificate."""
    labels = [] if classes is None else classes.tolist()
    if of_pairs:
        labels = [f"{labels[first]} against {labels[second]}" for first, second in list_pairs(len(labels))]
    if len(problems) != len(labels):
        return list(problems)
    return [{"label": label, **one} for label, one in zip(labels, problems, strict=True)]


def save_all(group: Sequence[Training]) -> None:
    """Write a checkpoint of the last step of each run."""
    for one in group:
        one.save()


NEEDS_FOLDER = "{} to the folder of the run: name this folder with out (--out)"
EXCLUSIVE = "start_from (--start-from) and keep_dual (--keep-dual) cannot be combined"
KeepBeside = Callable[[Path, Result], Result]


def train(
    source: RowSource,
    options: TrainOptions,
    out: str | Path | None = None,
    resume: bool = False,
    client: Client | None = None,
    listener: Listener = lambda _: None,
    overwrite: bool = False,
    lock: Lock | None = None,
    keep_dual: bool = False,
    spent: PriorCost = NO_COST,
    start_from: Model | None = None,
    keep_beside: KeepBeside | None = None,
    beside: FoldFits | None = None,
    on_written: OnWritten = lambda _: None,
    eval_set: EvalSet | None = None,
) -> Result:
    """Train a model on all rows of a source.

    Parameters
    ----------
    source : RowSource
        The rows, in chunks.
    options : TrainOptions
        The solver, its settings, and the limits of memory, passes and time.
    out : str or Path, optional
        The folder for the checkpoints, the model and the result, or its URL in an object store. By default nothing is
        written.
    resume : bool, default False
        Whether to resume from the checkpoint in `out`. The result has the same bits as that of an uninterrupted run.
    client : distributed.Client, optional
        A Dask cluster that carries out the passes. By default `options` determines the engine.
    listener : callable, optional
        Called with an Event after each step.
    overwrite : bool, default False
        Whether to replace a run in `out`.
    lock : Lock, optional
        The lock of a caller that already writes to `out`.
    keep_dual : bool, default False
        Whether to store in `out` the dual point behind the lower bound, from which `verify` recomputes the bound.
    spent : PriorCost, optional
        The cost of earlier work on the rows, such as the passes that found their feature map. The result includes it.
    start_from : Model, optional
        A linear model with the same classes and features. Training starts from its weights; the certificate does not
        rely on them.
    keep_beside : callable, optional
        Called with the folder and the result before the model is written. It writes further files to the folder, and
        returns the result with their cost added.
    beside : FoldFits, optional
        Side fits that share the reads and calibrate the probabilities of the model.
    on_written : callable, optional
        Called with the names of the files written to a local `out`, whenever a checkpoint is complete.
    eval_set : EvalSet, optional
        Held-out rows on which the model is measured after each step. With a patience, training stops with the status
        "early_stop" once the measure has not risen for that many steps. The result has the model of the last step.

    Returns
    -------
    Result
        The model, its certificate, and its cost. After Ctrl-C, the status is "interrupted" if there is a folder.

    Raises
    ------
    InputError
        If no model can be trained with these settings or on these data.
    MemoryBudgetError
        If the projected memory exceeds the budget. It is raised before anything runs.
    ConnectionError
        If the scheduler of a cluster is lost. The checkpoint of the last step is in `out`. The subclass TimeLimitError
        is raised if `max_seconds` has passed before the first step and no worker of the cluster runs the training.
    KeyboardInterrupt
        After Ctrl-C, if there is no folder or no finished step.
    """
    _refuse(out, keep_dual, start_from, keep_beside is not None or beside is not None)
    options, is_settled = settle_task(source, options), not needs_scale(options)
    if options.max_passes == 1 and not is_settled:
        raise InputError(
            "max_passes is 1, but gamma 'scale' alone takes a pass: allow 2 passes (--max-passes 2, max_passes=2 in "
            "Python), or give a number for gamma"
        )
    options = replace(options, memory_bytes=options.memory_bytes or default_budget_bytes())  # the machine is asked once
    with open_place(out, overwrite, on_written) as (place, report), interrupts.caught(), one_blas_thread():
        fits = set_up_group(source, stand_in_for_gamma(options), keep_dual, start_from, beside, eval_set)
        run, scratch, owner = None, fits[0].scratch, "" if place is None else str(place.resolve())
        if place is not None:
            settings = describe(source, options, fits[0])
            run = RunFolder(place, settings, resume, overwrite, lock, is_settled=is_settled, on_written=report)
        with nullcontext() if run is None else closing(run):
            spooled = nullcontext() if scratch is None else make_scratch_folder(scratch, owner)
            with spooled as folder, open_for(source, options, [[fit] for fit in fits], client) as opened:
                opened[0].scratch = None if folder is None else str(folder)
                if not is_settled:
                    if run:
                        run.acquire()  # lock the folder before the read
                    settled = resolve_gamma(opened[0], options)
                    fits = set_up_group(source, settled, keep_dual, start_from, beside, eval_set)
                    if run:
                        run.settle(describe(source, options, fits[0]))
                training = Training(source, options, fits[0], *opened, run, listener, spent, eval_set=eval_set)
                for text in filter(None, (fits[0].reason, fits[0].note)):
                    LOGGER.info(text)
                result = training.carry_out(beside, fits[1:])
            return _finish(training, result, keep_beside, keep_dual)


def _refuse(out: str | Path | None, keep_dual: bool, start_from: Model | None, writes_locally: bool) -> None:
    """Raise InputError for arguments that exclude one another."""
    if writes_locally and out is not None and is_remote(out):
        place = hide_secrets(out)
        raise InputError(f"{place}: probabilities and a kept ball (--keep-ball) need a run in a local folder")
    if keep_dual and out is None:
        raise InputError(NEEDS_FOLDER.format("keep_dual (--keep-dual) writes the dual point"))
    if keep_dual and start_from is not None:
        raise InputError(EXCLUSIVE)


def set_up_group(
    source: RowSource,
    options: TrainOptions,
    keep_dual: bool = False,
    start_from: Model | None = None,
    beside: FoldFits | None = None,
    eval_set: EvalSet | None = None,
) -> list[Solver]:
    """Return the fit of a training and its side fits. All of them share the memory."""
    n_fits = 1 if beside is None else 1 + beside.n_fits
    shared = options if beside is None else share_memory(options, n_fits, choose_solver(options).process_bytes)
    fit = set_up(source, shared, keep_dual, n_fits)
    if start_from is not None:
        from streamsvm.solvers.start_from import StartedFrom  # loads the solver that reads rows once

        fit = StartedFrom(fit, start_from, source)
    if eval_set is not None:
        problem = find_problem(options.task)
        eval_set.check(source, problem)
        fit = Wrapper(fit, driver_bytes=eval_set.count_bytes(problem, source.classes))
    return [fit, *(() if beside is None else beside.set_up(options, n_fits))]


def _finish(training: Training, result: Result, keep_beside: KeepBeside | None, keep_dual: bool) -> Result:
    """Write the requested files, then the model and the result, which complete the run."""
    run = training.run
    if run is None:
        return result
    if keep_beside is not None and result.status != "interrupted":
        result = keep_beside(run.path, result)
    packed = result.model.to_bytes()  # packed once, since the other files hold its SHA-256
    if keep_dual:
        from streamsvm.solvers.keep_dual import read_dual_points  # loads compiled functions of all solvers
        from streamsvm.verify.dual_file import write_dual_points

        write_dual_points(run.path, read_dual_points(training.state), result.model, training.source)
    write_result(run.path, packed, result.as_json())
    return result


@contextmanager
def open_for(
    source: RowSource,
    options: TrainOptions,
    chains: Sequence[Sequence[Solver]],
    client: Client | None,
    afterwards: MemoryNeed = NOTHING,
) -> Iterator[Opened]:
    """Compile the kernels of the fits, and open an engine with memory for all chains of successive fits.

    The memory does not depend on gamma, so it also suffices for fits with another gamma. afterwards: the memory of what
    follows the fits.
    """
    if sum(map(len, chains)) > 1 and any(fit.scratch for chain in chains for fit in chain):
        raise InputError(ONE_TRAINING)
    groups = sorted({group for chain in chains for fit in chain for group in fit.compiled})
    load = partial(compile_all, groups, source.is_sparse)
    load()

    def memory(threads: int) -> MemoryNeed:
        need = sum_memory([need_in_turn(chain, threads) for chain in chains])
        return MemoryNeed(*map(max, astuple(need), astuple(afterwards)))

    with ExitStack() as stack:
        with deadline.limit(options.max_seconds):
            opened = stack.enter_context(open_engine(source, options, memory, load, client))
        yield opened


def describe(source: RowSource, options: TrainOptions, fit: Solver) -> dict[str, Any]:
    """Return, as JSON, the settings that a resumed run must share with its earlier part."""
    data = {"data": source.name, "fingerprint": source.fingerprint}
    return {"solver": fit.name, "seed": options.seed, **data, **fit.settings}
