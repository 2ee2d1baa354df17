"""The loop of a run: it drives a solver step by step, keeps its history and checkpoints, and makes the result."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm import __version__, interrupts
from streamsvm.data.source import RowSource
from streamsvm.engines.memory import MemoryPlan
from streamsvm.engines.one_read import answer_all
from streamsvm.engines.protocol import Engine
from streamsvm.machine import file_page_bytes, peak_bytes, resident_bytes
from streamsvm.methods.fit import Fit
from streamsvm.models.model import KernelModel, Model
from streamsvm.options import TrainOptions
from streamsvm.requests import Question, Step, Take
from streamsvm.training.gaps import name_problems, sum_up_gaps
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.spent import NOTHING, Spent
from streamsvm.training.statistics import needs_scale
from streamsvm.training.statuses import DONE, FINAL, explain, require_finite, require_proved

# The settings of a fit that a model tells, so that `verify` can compute its objective anew
TOLD = ("class_costs", "bias_feature", "pair_cost", "loss", "row_cost", "tube", "nu")


@dataclass(frozen=True)
class Result:
    """A trained model, its certificate, and what it cost.

    Attributes
    ----------
    model : Model
        The best model that the solver found.
    status, status_reason : str
        How the run ended (training.statuses), and a sentence with the reason; it is empty if the run has converged.
    solver : str
        Name of the method.
    objective, lower_bound : float, float or None
        The primal objective P of the model, and a proved lower bound D of the optimum (None: nothing is proved).
    relative_gap : float or None
        (P - D) / P, or None without a lower bound.
    rounding_bound : float or None
        The most by which rounding can have moved P and D together, or None if the solver bounds no rounding.
    passes, steps : int
        Full reads of the rows that led to the model, the one for gamma "scale" included, and outer iterations. What
        an interrupted run has to read once more is in read_bytes alone.
    seconds : float
        Time of the run, the parts before it was resumed included.
    read_bytes, scratch_bytes : int
        Bytes read from storage, and written to files for rows that are set aside, by all processes.
    peak_memory_bytes, projected_memory_bytes : int
        Resident memory of the process that needed the most, as measured and as projected before the run.
    file_page_bytes : int or None
        Resident bytes of mapped files, such as libraries, in this process; None if the system does not tell.
    finished : bool
        Whether nothing cut the solver short: it has converged, or made the passes that it was told to make.
    n_rows, n_features : int
        Shape of the data.
    n_support_vectors : int or None
        Support vectors of the model, or None for a linear model.
    model_sha256 : str
        SHA-256 of the model's file.
    problems : list of dict
        Of many classes or labels, the certificate of the problem of each, or of each pair in their order.
    history : list of dict
        One line for each step, as in `history.jsonl`.
    """

    model: Model
    status: str
    status_reason: str
    solver: str
    objective: float
    lower_bound: float | None
    relative_gap: float | None
    rounding_bound: float | None
    passes: int
    steps: int
    seconds: float
    read_bytes: int
    scratch_bytes: int
    peak_memory_bytes: int
    projected_memory_bytes: int
    file_page_bytes: int | None
    finished: bool
    n_rows: int
    n_features: int
    n_support_vectors: int | None
    model_sha256: str
    problems: list[dict[str, Any]]
    history: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Return the result without model and history: the object that `train --json` prints."""
        told = {name: value for name, value in vars(self).items() if name not in ("model", "history")}
        gaps = sum_up_gaps(self.problems)
        return told if gaps is None else {**told, "gaps": gaps}


@dataclass
class Event:
    """What a listener is told after each step: the step's line of the history, and the memory plan of the run."""

    line: dict[str, Any]
    plan: MemoryPlan


Listener = Callable[[Event], None]
Requests = Generator[Question, Any, None]


class Training:
    """One run, which drives its solver step by step. Without a folder (`run` is None) nothing is saved.

    The options are as they were given: with gamma "scale" a read of the rows precedes the solver's first, and counts.
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
    ) -> None:
        self.source, self.options, self.fit, self.engine = source, options, fit, engine
        self.plan, self.run, self.listener = plan, run, listener
        self.passes_before = spent.passes + int(needs_scale(options))
        self.history: list[dict[str, Any]] = []
        self.state, self.status = fit.start(), ""
        self.seconds_before, self.read_before, self.written_before = spent.seconds, spent.read_bytes, 0
        self.projected_bytes = max(plan.projected_bytes, spent.projected_bytes)
        self.began = time.monotonic()

    def carry_out(self) -> Result:
        """Carry the run out to its end, from its checkpoint if there is one, and return the result."""
        self.begin()
        try:
            if not self.is_over():
                self.status = ""
                drive(self.engine, [self.requests()])
        except KeyboardInterrupt:
            if self.run is None or not self.history:
                raise
            interrupts.accept()
            self.status = self.status or "interrupted"  # a signal just after the last step leaves its status
        except ConnectionError:  # the cluster is lost, but the state after the last step is not
            if self.history:
                self.status = self.status or "interrupted"
                self.save()
            raise
        self.save()
        result = self.make_result()
        if self.run:
            self.run.finish(result.model.to_bytes(), result.as_json())
        return result

    def begin(self) -> None:
        """Make the run's folder, if there is to be one, and take over what its checkpoint holds."""
        saved = self.run.begin(self.state, self.source.n_rows) if self.run else None
        if saved is not None:
            self.state, self.history = saved.state, saved.history
            self.status, self.seconds_before = saved.status, self.seconds_before + saved.seconds
            last = self.history[-1] if self.history else {}
            self.read_before += last.get("read_bytes", 0)
            self.written_before = last.get("scratch_bytes", 0)

    def is_over(self) -> bool:
        """Tell whether the solver has nothing left to do."""
        finished = bool(self.history) and self.fit.report(self.state).finished
        return self.status in FINAL or finished

    def save(self) -> None:
        """Write a checkpoint of the last step, if there is a folder."""
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds(), now=True)

    def requests(self) -> Requests:
        """Yield the solver's requests until it is done or a limit is reached. The caller sends the answers."""
        if self.history:  # limits hold from the first step on, since before it there is no objective
            self.status = self._limit(self.history[-1]["passes"])
        if self.status:
            return
        solver = self.fit.solve(self.state)
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
            "read_bytes": self.read_before + self.engine.costs.read_bytes,
            "scratch_bytes": self.written_before + self.engine.costs.written_bytes,
            "memory_bytes": resident_bytes(),
            **step.figures,
        }
        if self.run:
            self.run.record(line)
        status = step.status or self._limit(progress.passes)
        self.state, self.history, self.status = step.state, [*self.history, line], status
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds())
        self.listener(Event(line, self.plan))
        interrupts.check()

    def _limit(self, passes: int) -> str:
        if self.options.max_passes is not None and passes >= self.options.max_passes:
            return "pass_limit"
        if self.options.max_seconds is not None and self._seconds() >= self.options.max_seconds:
            return "time_limit"
        return ""

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def make_result(self) -> Result:
        """Return the result of the run so far. Support vectors are taken from the source."""
        report, model = self.fit.report(self.state), self._make_model()
        report = replace(report, passes=self.passes_before + report.passes)
        return Result(
            model=model,
            status=self.status,
            status_reason=explain(self.status, report, self.options, report.finished),
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
            peak_memory_bytes=max(peak_bytes(), *self.engine.costs.peaks.values(), 0),
            projected_memory_bytes=self.projected_bytes,
            file_page_bytes=file_page_bytes(),
            finished=report.finished or self.status in DONE,
            n_rows=self.source.n_rows,
            n_features=self.source.n_features,
            n_support_vectors=model.dual_coef.shape[-1] if isinstance(model, KernelModel) else None,
            model_sha256=hashlib.sha256(model.to_bytes()).hexdigest(),
            problems=name_problems(report.problems, self.source.classes),
            history=self.history,
        )

    def _make_model(self) -> Model:
        report = self.fit.report(self.state)
        info: dict[str, Any] = {
            "solver": self.fit.method,
            "task": self.options.task,
            **({} if self.options.loss is None else {"loss": self.options.loss}),
            "C": float(self.options.C),
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
        model = self.fit.make_model(self.state, lambda rows: self.engine.take(Take(rows)))
        features = self.source.features
        if features is not None:  # the model takes raw rows, so it has the names of the raw features
            return replace(model, info=info, features=features, feature_names=features.feature_names)
        return replace(model, info=info)


def drive(engine: Engine, runs: Sequence[Requests]) -> None:
    """Drive several runs to their ends. In each round one read of the data answers the requests of all of them."""
    waiting = {k: request for k, run in enumerate(runs) if (request := next(run, None)) is not None}
    while waiting:
        answers = answer_all(engine, list(waiting.values()))
        following = {k: _send(runs[k], one) for k, one in zip(waiting, answers, strict=True)}
        waiting = {k: request for k, request in following.items() if request is not None}


def _send(run: Requests, found: Any) -> Question | None:
    """Send a run its answer, and return its next request, or None if the run has ended."""
    try:
        return run.send(found)
    except StopIteration:
        return None
