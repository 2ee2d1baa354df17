"""Cutting planes that multipliers guide: certified at every step, the dual point and its parts agree, the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.dataset import Dataset
from streamsvm.data.groups import plan_groups
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.engines.one_read import answer
from streamsvm.engines.serial import SerialEngine
from streamsvm.methods.cutting_plane import guided_dual
from streamsvm.methods.cutting_plane.guided_dual import GuidedDual, State, solve, start_state, warm_state
from streamsvm.methods.set_up import set_up
from streamsvm.requests import All, Scan, Step, Take
from streamsvm.training.train import TrainOptions, train
from tests.conftest import F64, Problem, make_problem
from tests.faults.instants import describe
from tests.linear_problems import bracket_by_qp, primal, run_steps, with_bias

OPTIONS = TrainOptions(tol=1e-5, threads=1, resident_rows="20%", options={"acceleration": "guided"})


def run(source: ArrayDataset, guided: GuidedDual, state: State | None = None) -> list[Step]:
    """All steps of a run."""
    return run_steps(source, solve(guided, state or start_state(guided, source.n_rows, source.n_features)))


def check_steps(problem: Problem, costs: F64, steps: list[Step], bias_feature: float) -> None:
    """P is that of the model, and the bounds hold and never worsen."""
    optimum = bracket_by_qp(problem, costs, bias_feature)
    before = (np.inf, 0.0)
    for step in steps:
        objective, lower_bound = step.state.objective, step.state.lower_bound
        assert (objective, lower_bound) == (step.progress.objective, step.progress.lower_bound)
        assert objective == pytest.approx(primal(problem, costs, step.state.best_w, bias_feature), rel=1e-9)
        assert lower_bound <= optimum.high * (1 + 1e-9)
        assert objective >= optimum.low * (1 - 1e-9)
        assert objective <= before[0]
        assert lower_bound >= before[1] * (1 - 1e-12)
        before = (objective, lower_bound)


def check_parts(problem: Problem, costs: F64, state: State, bias_feature: float = 1.0) -> None:
    """Shares make the first cut, bits the others; products are those of the cuts."""
    rows = (costs * problem.y)[:, None] * with_bias(problem, bias_feature)
    size = np.sqrt(np.sum(rows**2, axis=1)).sum() + 1e-300
    assert np.all((state.share >= 0.0) & (state.share <= 1.0))
    assert not state.share[costs == 0].any()
    np.testing.assert_allclose(state.cuts[0], state.share @ rows, rtol=0, atol=1e-9 * size)
    assert state.offsets[0] == pytest.approx(costs @ state.share, rel=1e-9)
    active = np.unpackbits(state.active, axis=1, count=len(costs))
    assert len(state.cuts) == len(state.offsets) == len(state.z) == len(state.idle) == 1 + len(active)
    np.testing.assert_allclose(state.cuts[1:], active @ rows, rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(state.offsets[1:], active @ costs, rtol=1e-9, atol=1e-14 * costs.sum())
    np.testing.assert_allclose(state.gram, state.cuts @ state.cuts.T, rtol=0, atol=1e-9 * size**2)


@settings(max_examples=60, deadline=None)
@given(
    problem=st.builds(
        make_problem, seed=st.integers(0, 10**6), n=st.integers(20, 120), d=st.sampled_from([1, 4, 8, 150]),
        density=st.sampled_from([1.0, 0.4, 0.1]), weighted=st.booleans(),
    ),
    C=st.sampled_from([1e-3, 0.1, 10.0]), positive=st.sampled_from([1.0, 4.0]),
    share=st.sampled_from([0.05, 0.3, 1.0]), bias_feature=st.sampled_from([1.0, 3.0]),
)  # fmt: skip
def test_every_step_is_certified(
    problem: Problem, C: float, positive: float, share: float, bias_feature: float
) -> None:
    """However few rows guide; and what a state holds agrees."""
    costs = problem.costs(C, 1.0, positive)
    guided = GuidedDual((C, positive * C), max(2, int(share * len(problem.y))), 1e-4, bias_feature)
    steps = run(problem.in_memory(), guided)
    assert steps[-1].status == "converged"
    check_steps(problem, costs, steps, bias_feature)
    for step in steps:
        check_parts(problem, costs, step.state, bias_feature)
        assert len(step.state.resident) == min(guided.resident_rows, len(costs))


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_more_cuts_than_are_kept(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows in several chunks."""
    monkeypatch.setattr(guided_dual, "KEPT_CUTS", 12)
    monkeypatch.setattr("streamsvm.data.in_memory.CHUNK_BYTES", 4000)
    problem = make_problem(4, n=300, d=12, weighted=True)
    costs = problem.costs(10.0)
    steps = run(problem.in_memory(), GuidedDual((10.0, 10.0), int(share * 300), 1e-9))
    assert max(len(step.state.cuts) for step in steps) == 12
    assert len(steps) > 10
    check_steps(problem, costs, steps, 1.0)
    for step in steps:
        check_parts(problem, costs, step.state)


def test_all_rows_resident_need_few_passes() -> None:
    """Coordinate ascent on all of them solves the problem; passes prove it."""
    problem = make_problem(5, n=400, d=300, density=0.1)
    steps = run(problem.in_memory(), GuidedDual((0.1, 0.1), 400))
    assert steps[-1].status == "converged"
    assert len(steps) <= 3


def test_the_rows_that_violate_their_condition_most_are_taken() -> None:
    """Written out, at the end of the pass' line; the dual point is the master's combination."""
    problem, guided = make_problem(6, n=200, d=5), GuidedDual((1.0, 1.0), 20, 1e-6)
    engine = SerialEngine(problem.in_memory())
    solver = solve(guided, start_state(guided, 200, 5))
    take = next(solver)
    for _ in range(3):
        assert isinstance(take, Take)
        request = solver.send(engine.take(take))
        assert isinstance(request, All)
        scan = request.requests[0]
        assert isinstance(scan, Scan)
        step = solver.send(answer(engine, request))
        assert isinstance(step, Step)
        share, end = sum_shares(step.state), scan.shared[0][1]
        slope = 1.0 - problem.y * (with_bias(problem, 1.0) @ end)
        inside = np.where(share >= 1, np.maximum(-slope, 0), np.abs(slope))
        violation = np.where(share <= 0, np.maximum(slope, 0), inside)
        expected = np.sort(np.argsort(-violation)[:20])
        np.testing.assert_array_equal(step.state.resident, expected)
        assert not np.array_equal(take.rows, expected)
        take = solver.send(None)
        assert isinstance(take, Take)
        np.testing.assert_array_equal(take.rows, expected)


def sum_shares(state: State) -> F64:
    """c of the master's optimum."""
    active = np.unpackbits(state.active, axis=1, count=len(state.share))
    shares: F64 = np.minimum(1.0, state.z[0] * state.share + state.z[1:] @ active)
    return shares


def test_warm_states_are_those_of_the_larger_costs() -> None:
    """What a state holds agrees at once, and the bounds hold from there on."""
    problem = make_problem(7, n=200, d=6, weighted=True)
    source = problem.in_memory()
    last = run(source, GuidedDual((0.1, 0.1), 40))[-1].state
    guided = GuidedDual((2.0, 2.0), 40)
    costs, state = problem.costs(2.0), warm_state(guided, last, 20.0)
    check_parts(problem, costs, state)
    assert state.objective == pytest.approx(primal(problem, costs, state.best_w), rel=1e-9)
    optimum = bracket_by_qp(problem, costs)
    assert 0.0 < state.lower_bound <= optimum.high
    steps = run(source, guided, state)
    assert steps[-1].status == "converged"
    check_steps(problem, costs, steps, 1.0)
    for step in steps:
        check_parts(problem, costs, step.state)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    problem = make_problem(8, n=500, d=12, density=0.5, weighted=True)
    return problem.store(tmp_path_factory.mktemp("rows") / "rows", chunk_bytes=3000)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch, dataset: Dataset) -> None:
    """Multipliers guide however few the features."""
    monkeypatch.setattr("streamsvm.methods.cutting_plane.guided_setup.WIDE", 1)
    assert isinstance(set_up(dataset, OPTIONS).start().states[0], State)


@pytest.mark.usefixtures("many_groups", "wide")
@pytest.mark.parametrize("resident", ["20%", "100%"])
def test_the_same_bits_on_any_engine(resident: str, dataset: Dataset, client: Client) -> None:
    assert len(plan_groups(dataset)) >= 5
    options = replace(OPTIONS, resident_rows=resident)
    results = [train(dataset, replace(options, threads=threads)) for threads in (1, 2, 4)]
    results.append(train(dataset, options, client=client))
    assert results[0].status == "converged"
    for other in results[1:]:
        assert other.model_sha256 == results[0].model_sha256
        assert (other.objective, other.lower_bound) == (results[0].objective, results[0].lower_bound)
        assert other.passes == results[0].passes


@pytest.mark.usefixtures("many_groups", "wide")
@pytest.mark.parametrize("resident", ["20%", "100%"])
def test_resumed_after_each_step(resident: str, dataset: Dataset, tmp_path: Path) -> None:
    """With all rows resident, too: they are taken once by a run, and again by one that goes on."""
    options = replace(OPTIONS, resident_rows=resident, tol=1e-4)
    train(dataset, options, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    assert n_steps > 2
    for step in range(1, n_steps):
        out = tmp_path / f"stopped-{step}"
        train(dataset, replace(options, max_passes=step), out=out)
        train(dataset, replace(options, threads=2), out=out, resume=True)
        assert describe(out) == whole


@pytest.mark.parametrize(("resident", "most"), [(60, 20), (30, 199)])
def test_few_rows_that_are_nearly_parallel_need_few_passes(resident: int, most: int) -> None:
    """Rows far from the origin, on which coordinate ascent alone has gaps of 98% after 150 passes."""
    random = np.random.default_rng(1)
    X = (random.normal(size=(60, 100)) + 1000.0).astype(np.float32)
    problem = Problem(X, np.where(np.arange(60) % 2, 1, -1), 10.0 ** random.uniform(-6, 6, 60))
    steps = run(problem.in_memory(), GuidedDual((1e4, 1e4), resident, 1e-6))
    assert steps[-1].status == "converged"
    assert len(steps) <= most
    state = steps[-1].state
    assert state.objective == pytest.approx(primal(problem, problem.costs(1e4), state.best_w), rel=1e-3)
    check_parts(problem, problem.costs(1e4), state)
