"""Rows that may change sides are set aside: certified, the same bits wherever they are read, fewer bytes, none left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.shared_files import make_scratch_folder
from streamsvm.engines import open as opening
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.engines.merge import answer
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.runs.calibrate import require_folds
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.one_read import solver as one_read_solver
from streamsvm.solvers.one_read.solver import solve
from streamsvm.solvers.one_read.state import OneRead, start_state
from streamsvm.system.errors import InputError, IntegrityError
from tests.conftest import Problem, make_problem
from tests.faults.instants import describe
from tests.linear_problems import bracket_by_qp, objective_by_liblinear, run_steps
from tests.solvers.one_read.test_one_read import primal

ONE_READ = OneRead((1.0, 1.0), 1000, 1e-6, sets_aside=True)
OPTIONS = TrainOptions(tol=1e-6, threads=1, resident_rows=1000, options={"acceleration": "one-read"})
pytestmark = pytest.mark.usefixtures("many_groups")


def draw(density: float = 1.0) -> Problem:
    """Rows of which a second read is needed."""
    return make_problem(3, n=20_000, d=4, density=density, weighted=density < 1)


@pytest.fixture(scope="module", params=[1.0, 0.6], ids=["dense", "sparse"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("rows")
    problem = draw(request.param)
    return ingest(problem.X, folder / "rows", problem.y, sample_weight=problem.weight, shuffle=1, chunk_bytes=8000)


@pytest.fixture
def nothing_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ThreadedEngine", lambda source, threads, *_: ThreadedEngine(source, threads))


def scratch_options(folder: Path) -> TrainOptions:
    return replace(OPTIONS, options={**OPTIONS.options, "scratch": str(folder)})


def carry_out(engine: Engine) -> list[Step]:
    """All steps of the solver alone."""
    state = start_state(ONE_READ, engine.source.n_rows, engine.source.n_features, is_shuffled=True)
    solver, steps = solve(ONE_READ, state), list[Step]()
    request: Any = next(solver)
    while not (steps and steps[-1].status):
        if isinstance(request, Step):
            steps.append(request)
            request = None if request.status else solver.send(None)
        else:
            request = solver.send(answer(engine, request))
    return steps


def test_the_same_bits_from_files_and_from_the_data(dataset: Dataset, client: Client, tmp_path: Path) -> None:
    """And fewer bytes from files: what was written and read again is less than a read."""
    with make_scratch_folder(tmp_path, "") as folder:
        engines: list[Engine] = [SerialEngine(dataset), SerialEngine(dataset), ThreadedEngine(dataset, 3)]
        engines.append(DistributedEngine(dataset, client))
        for k, engine in enumerate(engines[1:]):
            (folder / str(k)).mkdir()
            engine.scratch = str(folder / str(k))
        found = [carry_out(engine) for engine in engines]
    assert sum("undecided_rows" in step.figures for step in found[0]) >= 1
    for steps in found[1:]:
        assert steps[-1].state.best_w.tobytes() == found[0][-1].state.best_w.tobytes()
        assert [step.progress for step in steps] == [step.progress for step in found[0]]
        assert steps[-1].figures == found[0][-1].figures
    costs = [engine.costs for engine in engines]
    assert costs[0].written_bytes == 0
    for cost in costs[1:]:
        assert 0 < cost.written_bytes < dataset.nbytes / 2
        assert cost.read_bytes + cost.written_bytes < costs[0].read_bytes
        assert (cost.read_bytes, cost.written_bytes) == (costs[1].read_bytes, costs[1].written_bytes)
    for engine in engines:
        engine.close()


@pytest.mark.usefixtures("nothing_stays_in_memory")
def test_a_run_and_what_is_left_of_it(dataset: Dataset, tmp_path: Path) -> None:
    """Resumed after each step it has the bits of the whole run; no files are left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    options = scratch_options(scratch)
    result = train(dataset, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    without = train(dataset, OPTIONS)
    assert result.status == without.status == "converged"
    assert result.scratch_bytes > 0 == without.scratch_bytes
    assert result.read_bytes + result.scratch_bytes < without.read_bytes
    for step in range(1, result.steps):
        out = tmp_path / f"stopped-{step}"
        train(dataset, replace(options, max_passes=step), out=out)
        train(dataset, replace(options, threads=2), out=out, resume=True)
        assert describe(out) == whole
    assert list(scratch.iterdir()) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(40, 300),
    d=st.sampled_from([1, 4, 8]),
    density=st.sampled_from([1.0, 0.4]),
    weighted=st.booleans(),
    C=st.sampled_from([1e-3, 0.1, 10.0]),
    share=st.sampled_from([0.05, 0.2]),
    farther=st.sampled_from([0.05, 0.5, 1.5, 4.0]),
)
def test_every_step_is_certified(
    seed: int,
    n: int,
    d: int,
    density: float,
    weighted: bool,
    C: float,
    share: float,
    farther: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the radius was predicted well or not, P is that of the model, and no bound is above the optimum."""
    monkeypatch.setattr(one_read_solver, "FARTHER", farther)
    monkeypatch.setattr(one_read_solver, "MOST_SHARE", np.inf)
    problem = make_problem(seed, n=n, d=d, density=density, weighted=weighted)
    source, costs = problem.in_memory(), problem.costs(C, 1.0, 4.0)
    one_read = OneRead((C, 4.0 * C), max(2, int(share * n)), 1e-4, 3.0, sets_aside=True)
    optimum = bracket_by_qp(problem, costs, 3.0)
    for step in run_steps(source, solve(one_read, start_state(one_read, n, d))):
        progress = step.progress
        true = primal(problem, costs, step.state.best_w, 3.0)
        assert abs(progress.objective - true) <= progress.rounding_bound + 1e-15 * true
        assert progress.lower_bound is not None
        assert progress.lower_bound <= optimum.high * (1 + 1e-12)


def test_a_bad_prediction_costs_no_more_than_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw()
    source = problem.in_memory()
    usual = run_steps(source, solve(replace(ONE_READ, sets_aside=False), start_state(ONE_READ, source.n_rows, 4)))
    monkeypatch.setattr(one_read_solver, "FARTHER", 0.3)
    steps = run_steps(source, solve(ONE_READ, start_state(ONE_READ, source.n_rows, 4)))
    assert steps[-1].status == "converged"
    assert len(steps) <= len(usual) + 1
    assert steps[-1].progress.lower_bound is not None
    assert steps[-1].progress.lower_bound <= objective_by_liblinear(problem, problem.costs(1.0))


def after_the_first_step(do: Callable[[], None]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if event.line["step"] == 1:
            do()

    return listen


@pytest.mark.usefixtures("nothing_stays_in_memory")
@pytest.mark.parametrize("place", [40, -1, -2000])
def test_a_damaged_file_is_an_error_that_names_it(dataset: Dataset, tmp_path: Path, place: int) -> None:
    def spoil() -> None:
        (folder,) = tmp_path.iterdir()
        for path in folder.iterdir():
            content = bytearray(path.read_bytes())
            content[place] ^= 64
            path.write_bytes(content)

    with pytest.raises(IntegrityError, match=r"\.rows: the scratch file is damaged"):
        train(dataset, scratch_options(tmp_path), listener=after_the_first_step(spoil))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_stays_in_memory")
def test_removed_after_an_interrupt_and_after_a_kill(dataset: Dataset, tmp_path: Path) -> None:
    def interrupt() -> None:
        assert len(list(tmp_path.glob(".streamsvm-scratch-*/*.rows"))) > 1
        raise KeyboardInterrupt

    options, out = scratch_options(tmp_path), tmp_path / "run"
    assert train(dataset, options, out=out, listener=after_the_first_step(interrupt)).status == "interrupted"
    assert list(tmp_path.iterdir()) == [out]
    with (
        make_scratch_folder(tmp_path, str(out.resolve())) as killed,
        make_scratch_folder(tmp_path, "another run") as other,
    ):
        train(dataset, options, out=out, resume=True)
        assert not killed.exists()
        assert other.exists()
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_is_needed(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scratch .*nowhere: no such folder"):
        train(dataset, scratch_options(tmp_path / "nowhere"))


def test_where_it_has_no_effect_it_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    options = scratch_options(tmp_path)
    others = {"block-ascent": "block-ascent", "line-search": "line-search", "none": "acceleration=none"}
    for acceleration, told in others.items():
        given = {"acceleration": acceleration, "scratch": str(tmp_path)}
        with pytest.raises(InputError, match=f"scratch has no effect with .*{told}"):
            train(dataset, replace(options, options=given, resident_rows=None))
    with pytest.raises(InputError, match="scratch can hold the rows of only one training"):
        tune(dataset, options, [1.0, 2.0], [], folds=2)
    with pytest.raises(InputError, match="scratch can hold the rows of only one training"):
        require_folds(options, "sigmoid")
    codes = (np.arange(3000) % 3).astype(np.int32)
    with pytest.raises(InputError, match="3 classes: scratch can hold the rows of only one training"):
        train(ArrayDataset(np.random.default_rng(0).normal(size=(3000, 4)), codes, np.arange(3)), options)
    assert list(tmp_path.iterdir()) == []
