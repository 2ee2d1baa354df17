"""The loop of a run: it drives a solver step by step, keeps its history and checkpoints, and makes the result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm import __version__, deadline, interrupts
from streamsvm.data.source import RowSource
from streamsvm.engines.memory import MemoryPlan
from streamsvm.engines.protocol import Engine
from streamsvm.engines.task_seconds import TaskSeconds
from streamsvm.machine import file_page_bytes, peak_bytes, resident_bytes
from streamsvm.methods.fit import Fit, Report
from streamsvm.models.model import KernelModel, Model
from streamsvm.numeric.arithmetic import MIXED, Arithmetic, list_kinds, name_differences
from streamsvm.options import TrainOptions
from streamsvm.requests import Step, Take
from streamsvm.training.clock import Clock
from streamsvm.training.drive import Requests, drive
from streamsvm.training.eval_set import EvalSet
from streamsvm.training.gaps import name_problems
from streamsvm.training.result import Event, Listener, Result
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.spent import NOTHING, Spent
from streamsvm.training.statistics import needs_scale
from streamsvm.training.statuses import DONE, FINAL, explain, require_finite, require_proved

# The settings of a fit that a model tells, so that `verify` can compute its objective anew
TOLD = ("class_costs", "bias_feature", "pair_cost", "loss", "penalty", "row_cost", "tube", "nu")
LOGGER = logging.getLogger("streamsvm")

BeginOthers = Callable[["Training"], "list[Training]"]
Complete = Callable[["Training", Sequence["Training"]], Result]


class Training:
    """One run, which drives its solver step by step. Without a folder (`run` is None) nothing is saved.

    The options are as they were given: with gamma "scale" a read of the rows precedes the solver's first, and counts.
    enough: a gap at which the run ends, although the solver goes on to tol; None is for no such gap. eval_set: rows on
    which the model of each step is measured.
    """

    def __init__(
        self,
        source: RowSource,
        options: TrainOptions,
        fit: Fit,
        engine: Engine,
        plan: MemoryPlan,
        run: RunFolder | None,
        listener: Listener,
        spent: Spent = NOTHING,
        enough: float | None = None,
        eval_set: EvalSet | None = None,
    ) -> None:
        self.source, self.options, self.fit, self.engine = source, options, fit, engine
        self.plan, self.run, self.listener, self.enough, self.eval_set = plan, run, listener, enough, eval_set
        self.passes_before = spent.passes + int(needs_scale(options))
        self.history: list[dict[str, Any]] = []
        self.state, self.status = fit.start(), ""
        self.seconds_before, self.read_before, self.written_before = spent.seconds, spent.read_bytes, 0
        self.tasks_before, self.steps_before = TaskSeconds(), 0
        self.projected_bytes = max(plan.projected_bytes, spent.projected_bytes)
        self.began, self.clock = time.monotonic(), Clock()

    def carry_out(self, begin_others: BeginOthers | None = None, complete: Complete | None = None) -> Result:
        """Carry the run out to its end, from its checkpoint if there is one, and return the result.

        begin_others: begins runs on the same engine, which share its reads, and are saved with this run. complete:
        returns the result of this run with what the others add to it, when all are at their ends; it may read the rows
        once more. The last checkpoint is written then. The model is not, since what is kept beside it has to be there
        before.
        """
        self.begin()
        if len(kinds := self._list_arithmetic()) > 1:
            LOGGER.warning(MIXED, name_differences(kinds))
        others = [] if begin_others is None else begin_others(self)
        group = [self, *others]
        try:
            drive(self.engine, [one.go_on() for one in group])
            save_all(group)
            result = self.make_result() if complete is None else complete(self, others)
        except KeyboardInterrupt:
            if self.run is None or not self.history:
                raise
            interrupts.accept()
            self.status = self.status or "interrupted"  # a signal just after the last step leaves its status
            save_all(group)
            result = self.make_result()
            result = result if complete is None else self._tell_of_interrupt(result)
        except ConnectionError:  # the cluster is lost, but the state after the last step is not
            if self.history:
                self.status = self.status or "interrupted"
                save_all(group)
            raise
        return result

    def begin(self) -> None:
        """Make the run's folder, if there is to be one, and take over what its checkpoint holds."""
        saved = self.run.begin(self.state, self.source.n_rows, self.engine.arithmetic) if self.run else None
        if saved is not None:
            self.state, self.history = saved.state, saved.history
            self.status, self.seconds_before = saved.status, self.seconds_before + saved.seconds
            self.tasks_before, self.steps_before = TaskSeconds(**saved.task_seconds), len(self.history)
            last = self.history[-1] if self.history else {}
            self.read_before += last.get("read_bytes", 0)
            self.written_before = last.get("scratch_bytes", 0)
            self.clock.go_on_from(last)

    def _list_arithmetic(self) -> list[Arithmetic]:
        """Return the kinds of arithmetic of the run, also before it was resumed."""
        return list_kinds([*(self.run.arithmetic if self.run else ()), *self.engine.arithmetic])

    def is_over(self) -> bool:
        """Tell whether the solver has nothing left to do."""
        finished = bool(self.history) and self.fit.report(self.state).finished
        return self.status in FINAL or finished

    def go_on(self) -> Requests:
        """Yield the requests of the run until it is over."""
        if not self.is_over():
            self.status = ""
            yield from self.requests()

    def save(self) -> None:
        """Write a checkpoint of the last step, if there is a folder."""
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds(), self._task_seconds(), now=True)

    def requests(self) -> Requests:
        """Yield the solver's requests until it is done or a limit is reached. The caller sends the answers."""
        if self.history:  # limits hold from the first step on, since before it there is no objective
            self.status = self._limit(self.history[-1])
        if self.status:
            return
        solver = self.clock.watch(deadline.keep(self.fit.solve(self.state), self._is_late))
        request = next(solver)
        while True:
            if isinstance(request, Step):
                self._note(request)
                if self.status:
                    return
                request = solver.send(None)
            else:
                request = solver.send((yield request))

    def _note(self, step: Step) -> None:
        progress = replace(step.progress, passes=self.passes_before + step.progress.passes)
        require_finite(progress)
        require_proved(progress)
        line = {
            "step": len(self.history) + 1,
            "passes": progress.passes,
            "objective": progress.objective,
            "lower_bound": progress.lower_bound,
            "relative_gap": progress.relative_gap,
            "rounding_bound": progress.rounding_bound,
            "seconds": round(self._seconds(), 4),
            **self.clock.tell(),
            "read_bytes": self.read_before + self.engine.costs.read_bytes,
            "scratch_bytes": self.written_before + self.engine.costs.written_bytes,
            "memory_bytes": resident_bytes(),
            **step.figures,
        }
        if self.eval_set is not None:
            line["eval_score"] = self.eval_set.measure(self._make_model(step.state))
        if self.run:
            self.run.record(line)
        self.state = step.state
        self.history.append(line)
        self.status = step.status or self._limit(line)
        self._save()  # whatever the listener does, the step is kept
        if self.listener(Event(line, self.plan, self.status, self._make_last_model)) is True and not self.status:
            self.status = "early_stop"
            self._save()
        interrupts.check()

    def _save(self) -> None:
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds(), self._task_seconds())

    def _limit(self, line: dict[str, Any]) -> str:
        gap = line["relative_gap"]
        if self.enough is not None and gap is not None and gap <= self.enough:
            return "early_stop"
        if self.eval_set is not None and self.eval_set.has_waited(self._list_eval_scores()):
            return "early_stop"
        if self.options.max_passes is not None and line["passes"] >= self.options.max_passes:
            return "pass_limit"
        if self._is_late():
            return "time_limit"
        return ""

    def _list_eval_scores(self) -> list[float]:
        """Return the measures of the steps on held-out rows."""
        return [line["eval_score"] for line in self.history if "eval_score" in line]

    def _is_late(self) -> bool:
        return self.options.max_seconds is not None and self._seconds() >= self.options.max_seconds

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def _task_seconds(self) -> dict[str, float]:
        return (self.tasks_before + self.engine.costs.seconds).tell()

    def make_result(self) -> Result:
        """Return the result of the run so far. Support vectors are taken from the source."""
        report, model = self.fit.report(self.state), self._make_last_model()
        report = replace(report, passes=self.passes_before + report.passes)
        return Result(
            model=model,
            status=self.status,
            status_reason=self._explain(report),
            solver=self.fit.method,
            objective=report.objective,
            lower_bound=report.lower_bound,
            relative_gap=report.relative_gap,
            rounding_bound=report.tell_rounding(self.status),
            passes=report.passes,
            steps=len(self.history),
            seconds=self._seconds(),
            read_bytes=self.read_before + self.engine.costs.read_bytes,
            scratch_bytes=self.written_before + self.engine.costs.written_bytes,
            task_seconds=self._task_seconds(),
            peak_memory_bytes=max(peak_bytes(), *self.engine.costs.peaks.values(), 0),
            projected_memory_bytes=self.projected_bytes,
            file_page_bytes=file_page_bytes(),
            finished=report.finished or self.status in DONE,
            n_rows=self.source.n_rows,
            n_features=self.source.n_features,
            n_support_vectors=model.dual_coef.shape[-1] if isinstance(model, KernelModel) else None,
            arithmetic=self._list_arithmetic(),
            problems=name_problems(report.problems, self.source.classes),
            history=list(self.history),
        )

    def _explain(self, report: Report) -> str:
        """Return why the run has ended."""
        scores = self._list_eval_scores()
        if self.status == "early_stop" and self.eval_set is not None and self.eval_set.has_waited(scores):
            return self.eval_set.explain(scores)
        return explain(self.status, report, self.options, report.finished, is_resumed=self.steps_before > 0)

    def _tell_of_interrupt(self, result: Result) -> Result:
        """Return the result of this run as that of a group which a signal has ended."""
        reason = explain("interrupted", self.fit.report(self.state), self.options)
        return replace(result, status="interrupted", status_reason=reason, finished=False)

    def _make_model(self, state: Any) -> Model:
        """Return the model of a state, which takes raw rows if the run has learned from features."""
        model = self.fit.make_model(state, lambda rows: self.engine.take(Take(rows)))
        features = self.source.features
        return model if features is None else replace(model, features=features, feature_names=features.feature_names)

    def _make_last_model(self) -> Model:
        return self._describe_model(self._make_model(self.state))

    def _describe_model(self, model: Model) -> Model:
        """Return the model of the last state with what it tells of its training."""
        report = self.fit.report(self.state)
        info: dict[str, Any] = {
            "solver": self.fit.method,
            "task": self.options.task,
            **({} if self.options.loss is None else {"loss": self.options.loss}),
            "C": float(self.options.C),
            "tol": float(self.options.tol),
            "version": __version__,
            "status": self.status,
            "objective": report.objective,
            "lower_bound": report.lower_bound,
            "rounding_bound": report.tell_rounding(self.status),
        }
        told = self.fit.settings
        known = {name: told[name] for name in TOLD if name in told}
        if "class_weights" in told:  # budgeted-sgd keeps C and the class weights apart
            known["class_costs"] = (np.asarray(told["C"]) * np.asarray(told["class_weights"])).tolist()
        if known:  # `verify` computes the objective anew from these
            info["problem"] = {**known, "n_rows": self.source.n_rows}
        if self.source.encoding is not None:
            info["encoding"] = self.source.encoding.as_json()
        for name in ("label_column", "qid_column"):
            if (column := getattr(self.source, name)) is not None:
                info[name] = column
        return replace(model, info=info)


def save_all(group: Sequence[Training]) -> None:
    """Write a checkpoint of the last step of each run."""
    for one in group:
        one.save()
