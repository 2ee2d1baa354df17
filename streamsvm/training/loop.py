"""A run as it goes: a solver that is driven step by step, its history, its checkpoints, and what it comes to."""

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
from streamsvm.training.run_folder import RunFolder
from streamsvm.training.statuses import DONE, FINAL, explain, require_finite, require_proved


@dataclass(frozen=True)
class Result:
    """A trained model, its certificate, and what it cost. `as_json` is the object that `train --json` prints.

    lower_bound and relative_gap are None if the solver proves nothing, n_support_vectors if the model holds none.
    rounding_bound: the most by which rounding can have moved objective and lower bound together; None if the solver
    bounds neither.
    status_reason: why a run ended with another status than "converged", in a sentence; empty otherwise.
    finished: nothing cut the solver short; it has converged, or made the passes that it was told to make.
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
    peak_memory_bytes: int
    projected_memory_bytes: int
    file_page_bytes: int | None
    finished: bool
    n_rows: int
    n_features: int
    n_support_vectors: int | None
    model_sha256: str
    history: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Return the result without the model and the history."""
        return {name: value for name, value in vars(self).items() if name not in ("model", "history")}


@dataclass
class Event:
    """What a listener is told after each step."""

    line: dict[str, Any]
    plan: MemoryPlan


Listener = Callable[[Event], None]
Requests = Generator[Question, Any, None]


class Training:
    """One run: drives the solver, step by step."""

    def __init__(
        self,
        source: RowSource,
        options: TrainOptions,
        fit: Fit,
        engine: Engine,
        plan: MemoryPlan,
        run: RunFolder | None,
        listener: Listener,
    ) -> None:
        self.source, self.options, self.fit, self.engine = source, options, fit, engine
        self.plan, self.run, self.listener = plan, run, listener
        self.history: list[dict[str, Any]] = []
        self.state, self.status = fit.start(), ""
        self.seconds_before, self.read_before = 0.0, 0
        self.began = time.monotonic()

    def carry_out(self) -> Result:
        """Go on from the checkpoint, if there is one, to the end."""
        self.begin()
        try:
            if not self.is_over():
                self.status = ""
                drive(self.engine, [self.requests()])
        except KeyboardInterrupt:
            if self.run is None or not self.history:
                raise
            interrupts.accept()
            self.status = self.status or "interrupted"  # it may have come just after the last step
        except ConnectionError:  # the cluster is lost, but not what it has computed
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
        """Make the run's folder, if there is one, and take over what its checkpoint holds."""
        saved = self.run.begin(self.state, self.source.n_rows) if self.run else None
        if saved is not None:
            self.state, self.history = saved.state, saved.history
            self.status, self.seconds_before = saved.status, saved.seconds
            self.read_before = self.history[-1]["read_bytes"] if self.history else 0

    def is_over(self) -> bool:
        """Tell whether the solver has nothing left to do."""
        finished = bool(self.history) and self.fit.report(self.state).finished
        return self.status in FINAL or finished

    def save(self) -> None:
        """Write a checkpoint of the last step, if there is a folder."""
        if self.run:
            self.run.save(self.state, len(self.history), self.status, self._seconds(), now=True)

    def requests(self) -> Requests:
        """Go on with the solver until it is done, or a limit is reached; what it asks for is asked here."""
        if self.history:  # one pass at least: there would be no objective
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
        progress = step.progress
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
        """Return what the run has come to; support vectors are taken from the source."""
        report, model = self.fit.report(self.state), self._make_model()
        return Result(
            model=model,
            status=self.status,
            status_reason=explain(self.status, report, self.options),
            solver=self.fit.method,
            objective=report.objective,
            lower_bound=report.lower_bound,
            relative_gap=report.relative_gap,
            rounding_bound=report.told_rounding_bound,
            passes=report.passes,
            steps=len(self.history),
            seconds=self._seconds(),
            read_bytes=self.read_before + self.engine.costs.read_bytes,
            peak_memory_bytes=max(peak_bytes(), *self.engine.costs.peaks.values(), 0),
            projected_memory_bytes=self.plan.projected_bytes,
            file_page_bytes=file_page_bytes(),
            finished=report.finished or self.status in DONE,
            n_rows=self.source.n_rows,
            n_features=self.source.n_features,
            n_support_vectors=model.support_vectors.shape[0] if isinstance(model, KernelModel) else None,
            model_sha256=hashlib.sha256(model.to_bytes()).hexdigest(),
            history=self.history,
        )

    def _make_model(self) -> Model:
        report = self.fit.report(self.state)
        info: dict[str, Any] = {
            "solver": self.fit.method,
            "task": self.options.task,
            "C": float(self.options.C),
            "version": __version__,
            "status": self.status,
            "objective": report.objective,
            "lower_bound": report.lower_bound,
            "rounding_bound": report.told_rounding_bound,
        }
        told = self.fit.settings
        known = {name: told[name] for name in ("class_costs", "bias_feature", "pair_cost") if name in told}
        if "class_weights" in told:  # budgeted-sgd keeps C apart
            known["class_costs"] = (np.asarray(told["C"]) * np.asarray(told["class_weights"])).tolist()
        if known:  # what `verify` computes the objective anew from
            info["problem"] = {**known, "n_rows": self.source.n_rows}
        model = self.fit.make_model(self.state, lambda rows: self.engine.take(Take(rows)))
        features = self.source.features
        if features is not None:  # the model takes raw rows, and these names are theirs
            return replace(model, info=info, features=features, feature_names=features.feature_names)
        return replace(model, info=info)


def drive(engine: Engine, runs: Sequence[Requests]) -> None:
    """Drive several runs to their ends; in each round, what they ask for is answered in one read of the data."""
    waiting = {k: request for k, run in enumerate(runs) if (request := next(run, None)) is not None}
    while waiting:
        answers = answer_all(engine, list(waiting.values()))
        following = {k: _send(runs[k], one) for k, one in zip(waiting, answers, strict=True)}
        waiting = {k: request for k, request in following.items() if request is not None}


def _send(run: Requests, found: Any) -> Question | None:
    """Return the next request of a run, None if it has ended."""
    try:
        return run.send(found)
    except StopIteration:
        return None
