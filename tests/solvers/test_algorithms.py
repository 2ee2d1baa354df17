"""Algorithms: what each solver owes to `train`, and that `train` knows no more of a solver than that."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import MemoryNeed, Progress, Requests, Scan, Step
from streamsvm.runs.folder import RunFolder, Saved
from streamsvm.runs.results import Event, Result
from streamsvm.runs.train import train
from streamsvm.solvers import registry
from streamsvm.solvers.registry import SolverRecord, name_solvers
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import Report, Solver, TakeRows
from tests.conftest import make_problem


def options_of(name: str) -> TrainOptions:
    """Budgeted SGD merges vectors of the rbf kernel, and ends after its epochs; Newton's is for smooth losses."""
    budgeted = TrainOptions(solver=name, kernel="rbf", gamma="auto", options={"epochs": "9"})
    if name == "budgeted-sgd":
        return budgeted
    return TrainOptions(solver=name, loss="logistic" if name == "newton" else None)


def drive(name: str, source: RowSource, state: Any, n_steps: int) -> Any:
    """The state after so many steps."""
    solver, engine = set_up(source, options_of(name)).solve(state), SerialEngine(source)
    request = next(solver)
    for _ in range(n_steps):
        while not isinstance(request, Step):
            request = solver.send(answer(engine, request))
        state, request = request.state, solver.send(None)
    return state


@pytest.mark.parametrize("name", name_solvers())
def test_what_a_solver_owes(name: str, tmp_path: Path) -> None:
    """A state that is saved as it is, gone on from to the same bits; a report; a model; bytes; settings as JSON."""
    source = make_problem(1).in_memory()
    fit = set_up(source, options_of(name))
    assert fit.name == name
    assert json.loads(json.dumps(fit.settings)) == fit.settings != {}
    need = fit.memory(1)
    assert need.totals_bytes + need.walk_bytes > 0
    assert need.driver_bytes >= need.turn_bytes > 0
    assert need.shared_bytes >= 0
    state = drive(name, source, fit.start(), 3)
    settings = {"solver": name}
    run = RunFolder(tmp_path / "run", settings, resume=False)
    run.begin(fit.start())
    run.save(Saved(state, [], "", 0.0, {}))
    run.close()
    saved = RunFolder(tmp_path / "run", settings, resume=True).begin(fit.start())
    assert saved is not None
    ends = [drive(name, source, start, 2) for start in (state, saved.state)]
    models = [fit.make_model(end, source.take) for end in ends]
    assert models[0].to_bytes() == models[1].to_bytes()
    reports = [fit.report(each) for each in (state, *ends)]
    assert reports[1] == reports[2] != reports[0]
    assert 0 < reports[1].objective < np.inf
    assert reports[1].objective <= reports[0].objective or reports[1].lower_bound is None
    assert reports[1].passes > reports[0].passes > 0


@dataclass
class Averages:
    """State of the toy below."""

    passes: int = 0
    sums: F64 = field(default_factory=lambda: np.zeros(0))
    chosen: I64 = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class ToyOptions:
    """None."""


class Toy(Solver):
    """Stands in for kernel solvers: proves nothing, and its model is made of rows of the data. (Two rows, in fact.)"""

    name, compiled = "toy", ("toy",)
    Options = ToyOptions

    def __init__(self, source: RowSource, *_: Any) -> None:
        self.source, self.settings = source, {"toys": 2}

    def start(self) -> Averages:
        return Averages()

    def solve(self, state: Averages) -> Requests:
        return solve_toy(state)

    def memory(self, threads: int) -> MemoryNeed:
        return MemoryNeed(3_000_000, 0, 8 * self.source.n_features, 0)

    def make_model(self, state: Averages, take: TakeRows) -> LinearModel:
        rows = take(state.chosen)
        return LinearModel(
            coef=np.asarray(rows.X, np.float64)[0] + state.sums, intercept=0.0, classes=np.asarray(self.source.classes)
        )

    def report(self, state: Averages) -> Report:
        return Report(7.5, None, state.passes)


def solve_toy(state: Averages) -> Requests:
    while True:
        totals = yield Scan(FewSums, add_rows, combine_sums)
        state = Averages(state.passes + 1, totals.sums, np.array([1, 0]))
        yield Step(state, Progress(7.5, None, state.passes), "converged" if state.passes == 4 else None)


def run_kernels(group: str, rows: Rows) -> None:
    """There are none."""


class FewSums:
    def __init__(self) -> None:
        self.sums: F64 = np.zeros(6)


def add_rows(totals: FewSums, rows: Rows) -> None:
    totals.sums += np.asarray(rows.X).sum(axis=0, dtype=np.float64)


def combine_sums(left: FewSums, right: FewSums) -> FewSums:
    both = FewSums()
    both.sums = left.sums + right.sums
    return both


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> TrainOptions:
    monkeypatch.setitem(sys.modules, "toy_solver", sys.modules[__name__])
    monkeypatch.setattr(registry, "SOLVERS", [*registry.SOLVERS, SolverRecord("toy", ("hinge",), "toy_solver:Toy")])
    return TrainOptions(solver="toy", threads=2)


def test_train_drives_whatever_solver_there_is(toy: TrainOptions, tmp_path: Path) -> None:
    """Without a lower bound, with support vectors, stopped and resumed; its memory is planned for."""
    problem, events = make_problem(1), list[Event]()
    dataset = problem.store(tmp_path / "rows", chunk_bytes=700)
    stopped = train(dataset, TrainOptions(solver="toy", max_passes=3), tmp_path / "run", listener=events.append)
    assert (stopped.status, stopped.passes) == ("pass_limit", 3)
    assert events[0].plan.parts["solver"] >= 3_000_000
    result: Result = train(dataset, toy, tmp_path / "run", resume=True)
    assert (result.status, result.solver, result.passes, result.steps) == ("converged", "toy", 4, 4)
    assert (result.objective, result.lower_bound, result.relative_gap) == (7.5, None, None)
    assert json.loads(json.dumps(result.as_json()))["n_support_vectors"] is None, "a linear model has none"
    np.testing.assert_allclose(result.model.coef, problem.X[1] + problem.X.sum(axis=0, dtype=float), rtol=1e-6)
    assert {"solver": "toy", "status": "converged", "lower_bound": None}.items() <= result.model.info.items()
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["toys"] == 2
