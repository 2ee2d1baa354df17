"""One read: every step is certified, P is known within the ball, few reads prove small gaps, bits are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.rows.source import plan_groups
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane import setup
from streamsvm.solvers.cutting_plane.smoothed_newton import HingeRows, Linear, minimise
from streamsvm.solvers.one_read.solver import solve
from streamsvm.solvers.one_read.state import OneRead, State, start_state
from streamsvm.solvers.one_read.trust_region import _evaluate, _pull
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import sum_memory
from streamsvm.system.errors import InputError
from tests.conftest import F64, Problem, choose_examples, make_problem
from tests.faults.instants import describe
from tests.linear_problems import bracket_by_qp, objective_by_liblinear, run_steps, with_bias

LONG = np.longdouble
OPTIONS = TrainOptions(tol=1e-5, threads=1, resident_rows="20%", options={"acceleration": "one-read"})


def run(source: ArrayDataset, one_read: OneRead) -> list[Step]:
    """All steps of a run of this solver alone."""
    return run_steps(source, solve(one_read, start_state(one_read, source.n_rows, source.n_features)))


def primal(problem: Problem, costs: F64, w: F64, bias_feature: float) -> float:
    """P in long double."""
    Z = (problem.y[:, None] * with_bias(problem, bias_feature)).astype(LONG)
    own = w.astype(LONG)
    return float(own @ own / 2 + costs.astype(LONG) @ np.maximum(0, 1 - Z @ own))


def test_what_all_groups_keep_is_counted_where_it_is_added_up() -> None:
    """Groups keep twice their share; a worker holds the sum and sends it, and the driver of workers is sent it."""
    source = make_problem(1, n=30_000, d=4).in_memory()
    need = set_up(source, replace(OPTIONS, resident_rows=3000)).memory(1)
    assert need.gathered_bytes >= 2 * 3000 * 4 * source.n_features
    assert sum_memory([need, need]).gathered_bytes == 2 * need.gathered_bytes


@settings(max_examples=choose_examples(20, 60, 60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(20, 300),
    d=st.sampled_from([1, 4, 8]),
    density=st.sampled_from([1.0, 0.4]),
    weighted=st.booleans(),
    C=st.sampled_from([1e-3, 0.1, 10.0]),
    positive=st.sampled_from([1.0, 4.0]),
    share=st.sampled_from([0.1, 0.3, 1.0]),
    bias_feature=st.sampled_from([1.0, 3.0]),
)
def test_every_step_is_certified(
    seed: int,
    n: int,
    d: int,
    density: float,
    weighted: bool,
    C: float,
    positive: float,
    share: float,
    bias_feature: float,
) -> None:
    """However few rows are kept, P is that of the model, and no bound is above the optimum."""
    problem = make_problem(seed, n=n, d=d, density=density, weighted=weighted)
    costs = problem.costs(C, 1.0, positive)
    one_read = OneRead((C, positive * C), max(2, int(share * n)), 1e-4, bias_feature)
    optimum, before = bracket_by_qp(problem, costs, bias_feature), (np.inf, 0.0)
    for step in run(problem.in_memory(), one_read):
        progress = step.progress
        assert progress.lower_bound is not None
        true = primal(problem, costs, step.state.best_w, bias_feature)
        assert abs(progress.objective - true) <= progress.rounding_bound + 1e-15 * true
        assert progress.lower_bound <= optimum.high * (1 + 1e-12)
        assert progress.objective <= before[0]
        assert progress.lower_bound >= before[1] * (1 - 1e-12)
        assert len(step.state.resident) <= max(one_read.resident_rows, 1)
        before = (progress.objective, progress.lower_bound)


@pytest.mark.parametrize("density", [1.0, 0.4])
def test_one_read_proves_a_small_gap(density: float) -> None:
    """Rows without structure: a fifth of them is enough for a single read, without rows that are drawn."""
    problem = make_problem(1, n=20_000, d=5, density=density)
    steps = run(problem.in_memory(), OneRead((0.01, 0.01), 4000))
    assert len(steps) == 1
    step = steps[0]
    assert step.status == "converged"
    assert step.figures["moved"] < step.figures["radius"]
    assert step.figures["near_rows"] == step.figures["resident_rows"]
    assert step.progress.relative_gap is not None
    assert step.progress.relative_gap < 1e-5


def test_what_lies_in_the_ball_was_not_read_again() -> None:
    """The minimiser of the near rows is the model, its P is that of all rows, and no pass has looked there."""
    problem = make_problem(2, n=20_000, d=5)
    costs = problem.costs(0.01)
    step = run(problem.in_memory(), OneRead((0.01, 0.01), 4000))[0]
    state: State = step.state
    assert not np.array_equal(state.best_w, state.centre)
    true = primal(problem, costs, state.best_w, 1.0)
    assert abs(state.objective - true) <= state.objective_rounding
    assert state.objective < primal(problem, costs, state.centre, 1.0)


def test_where_the_minimiser_is_outside_the_ball_the_way_there_is_taken_as_far_as_p_is_known() -> None:
    """P falls on it, and is known without another read. The best point lies on the border of the ball."""
    problem = make_problem(3, n=20_000, d=12)
    costs = problem.costs(1.0)
    for step in run(problem.in_memory(), OneRead((1.0, 1.0), 1500, 1e-6))[:2]:
        state: State = step.state
        assert step.figures["moved"] > step.figures["radius"] > 0.0
        went = RowNorm(state.A).bound_move(state.best_w - state.centre)[0]
        assert went == pytest.approx(state.radius, rel=1e-6)
        assert state.objective < primal(problem, costs, state.centre, 1.0)
        assert abs(state.objective - primal(problem, costs, state.best_w, 1.0)) <= state.objective_rounding


def test_outside_the_ball_the_next_read_goes_on() -> None:
    """Far fewer rows are kept: several reads, each nearer the optimum, with rows that stand for many."""
    problems = [make_problem(seed, n=20_000, d=12) for seed in (0, 1, 2, 4, 5, 3)]
    runs = [run(problem.in_memory(), OneRead((1.0, 1.0), 400, 1e-4)) for problem in problems]
    assert all(len(steps) > 1 and steps[-1].status == "converged" for steps in runs)
    assert sum(map(len, runs)) <= 6 * len(runs)
    problem, steps = problems[-1], runs[-1]
    costs = problem.costs(1.0)
    first = steps[0]
    assert first.figures["moved"] > first.figures["radius"]
    assert first.figures["near_rows"] < first.figures["resident_rows"]
    assert first.state.weight.sum() == pytest.approx(20_000, rel=0.2)
    assert steps[-1].progress.lower_bound is not None
    assert steps[-1].progress.lower_bound <= objective_by_liblinear(problem, costs)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    problem = make_problem(8, n=1500, d=6, density=0.5, weighted=True)
    return problem.store(tmp_path_factory.mktemp("rows") / "rows", chunk_bytes=3000)


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_on_any_engine(dataset: Dataset, client: Client) -> None:
    assert len(plan_groups(dataset)) >= 5
    results = [train(dataset, replace(OPTIONS, threads=threads)) for threads in (1, 2, 4)]
    results.append(train(dataset, OPTIONS, client=client))
    assert results[0].status == "converged"
    for other in results[1:]:
        assert other.model_sha256 == results[0].model_sha256
        assert (other.objective, other.lower_bound) == (results[0].objective, results[0].lower_bound)
        assert other.passes == results[0].passes


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.usefixtures("many_groups")
def test_resumed_after_each_step(dataset: Dataset, tmp_path: Path) -> None:
    options = replace(OPTIONS, resident_rows="5%", tol=1e-6)
    train(dataset, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    assert n_steps > 2
    for step in range(1, n_steps):
        out = tmp_path / f"stopped-{step}"
        train(dataset, replace(options, max_passes=step), out=out)
        train(dataset, replace(options, threads=2), out=out, resume=True)
        assert describe(out) == whole


def test_many_features_or_few_rows_are_for_ascent_on_blocks(dataset: Dataset) -> None:
    few = replace(OPTIONS, resident_rows="2%")
    assert set_up(dataset, few).settings["acceleration"] == "block-ascent"
    wide = make_problem(9, n=60, d=setup.MOST_FEATURES + 1).in_memory()
    assert set_up(wide, replace(OPTIONS, resident_rows="100%")).settings["acceleration"] == "block-ascent"
    assert set_up(dataset, OPTIONS).settings["acceleration"] == "one-read"


@pytest.mark.parametrize("option", ["epsilon", "max_cuts"])
def test_options_of_other_solvers_are_refused(option: str, dataset: Dataset) -> None:
    options = replace(OPTIONS, options={"acceleration": "one-read", option: 5})
    with pytest.raises(InputError, match="epsilon and max_cuts cannot be used with acceleration=one-read"):
        train(dataset, options)


def test_each_resident_row_is_in_the_projection(tmp_path: Path) -> None:
    """With its copies, and with the vectors of the problems in memory."""
    data = write_generated(tmp_path / "rows.zarr", 60_000, Truth(n_features=40))
    needs = [
        set_up(data, replace(OPTIONS, resident_rows=share)).memory(1).driver_bytes for share in ("10%", "20%", "40%")
    ]
    kept = 6000 * (data.nbytes // data.n_rows)
    assert needs[1] - needs[0] > 3 * kept
    assert needs[2] - needs[1] == pytest.approx(2 * (needs[1] - needs[0]), rel=0.01)


def test_a_step_beyond_the_trust_radius_is_shortened_and_lowers_the_model() -> None:
    """It ends at the radius, and lies lower than a step of the same length straight to the minimiser."""
    problem, random = make_problem(4, n=100, d=3), np.random.default_rng(0)
    data = HingeRows(problem.in_memory().read(0), problem.y.astype(np.float64), problem.costs(10.0), 1.0)
    none, best = Linear(np.zeros(4), 0.0), random.normal(size=4)
    free = minimise(data, none, 1e-9, np.zeros(4)).w
    root = random.normal(size=(4, 4))
    M, state = root @ root.T, replace(State.at_zero(4), best_w=best, objective=_evaluate(data, none, best))
    far = float(np.sqrt((free - best) @ M @ (free - best)))
    for share in (0.1, 0.5, 0.9):
        near = replace(state, trust=share * far)
        w = _pull(near, data, none, M, free)
        assert np.sqrt((w - best) @ M @ (w - best)) == pytest.approx(near.trust, rel=1e-6)
        straight = best + share * (free - best)
        assert _evaluate(data, none, w) < _evaluate(data, none, straight) < state.objective
    np.testing.assert_array_equal(_pull(replace(state, trust=1.1 * far), data, none, M, free), free)
