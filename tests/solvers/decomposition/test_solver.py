"""Decomposition against LIBSVM and a QP library: the optimum, its certificate, and what happens at the edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import streamsvm
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.kernels.kernel import Kernel
from streamsvm.passes import MORE_PATIENCE, Step, Take
from streamsvm.solvers.decomposition import active_set, all_active
from streamsvm.solvers.decomposition import solver as decomposition
from streamsvm.solvers.decomposition.state import STUCK_STEPS, Decomposition, start_state
from tests.conftest import Problem, make_problem
from tests.kernel_problems import KINDS, Bracket, bracket_by_libsvm, bracket_by_qp, drive, matrix_of, measure

DEFINITE = ["linear", "rbf", "poly"]
PROBLEMS = {
    "dense": make_problem(1, n=200),
    "sparse": make_problem(2, n=200, d=30, density=0.2),
    "weighted": make_problem(4, n=200, d=8, weighted=True),
    "wide": make_problem(3, n=80, d=300, density=0.05),
}


def check_certificate(
    problem: Problem, settings: Decomposition, last: Step, optimum: Bracket | None, rounding: float
) -> None:
    """P and D are those of the multipliers and the bias by their definitions; the optimum lies between; tol apart."""
    state, progress = last.state, last.progress
    y, costs = problem.y.astype(np.float64), problem.costs(1.0, *settings.class_costs)
    K = matrix_of(problem, settings.kernel)
    primal, _ = measure(K, y, costs, state.stretch * state.alpha, state.bias)
    _, dual = measure(K, y, costs, state.alpha, state.bias)
    assert progress.objective == pytest.approx(primal, rel=rounding)
    assert state.dual == pytest.approx(dual, rel=rounding, abs=rounding * primal)
    assert progress.objective - state.dual <= settings.tol * progress.objective
    if settings.kernel.is_definite:
        assert last.status == "converged"
        assert progress.lower_bound is not None
        assert progress.lower_bound <= dual * (1 + rounding)
        assert progress.lower_bound >= dual * (1 - rounding) - progress.rounding_bound
        assert progress.is_proved(settings.tol)
    else:
        assert (last.status, progress.lower_bound) == ("stationary", None)
    assert np.all((state.alpha >= 0) & (state.alpha <= costs))
    assert abs(state.alpha @ y) <= 1e-10 * (1e-300 + state.alpha.sum())
    np.testing.assert_allclose(state.costs, costs)
    if optimum is not None:
        assert progress.objective >= optimum.low * (1 - rounding)
        assert state.dual <= optimum.high * (1 + rounding)
        assert abs(progress.objective - optimum.high) <= (settings.tol + rounding) * optimum.high


def rounding_told(last: Step) -> float:
    """Share of P that the step itself says rounding can have moved, besides what the evaluation here rounds off."""
    return 1e-9 + last.progress.rounding_bound / max(last.progress.objective, 1e-300)


def solve_and_check(problem: Problem, plane: Decomposition, rounding: float, optimum: Bracket | None = None) -> Step:
    K, y = matrix_of(problem, plane.kernel), problem.y.astype(np.float64)
    if optimum is None and plane.kernel.name != "sigmoid":
        optimum = bracket_by_qp(K, y, problem.costs(1.0, *plane.class_costs))
        assert optimum.high - optimum.low <= max(1e-7, 0.1 * plane.tol) * optimum.high, "the reference is no reference"
    last = drive(problem.in_memory(), plane)[-1]
    check_certificate(problem, plane, last, optimum, rounding)
    return last


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", DEFINITE)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_small_problems_are_solved_to_the_rounding_of_float64(kind: str, name: str, C: float) -> None:
    """All rows are one working set."""
    solve_and_check(PROBLEMS[kind], Decomposition((C, 0.5 * C), KINDS[name], tol=1e-8), 1e-8)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", DEFINITE)
@pytest.mark.parametrize("class_costs", [(1.0, 1.0), (0.2, 3.0)])
@pytest.mark.parametrize("inner", ["smo", "irwls", "qp"])
def test_a_fifth_of_the_rows_resident(kind: str, name: str, class_costs: tuple[float, float], inner: str) -> None:
    """Small working sets in float32: the same optimum to some 1e-6. (Of 80 rows half are resident.)"""
    n = len(PROBLEMS[kind].y)
    resident = 40
    plane = Decomposition(
        class_costs,
        KINDS[name],
        inner=inner,
        tol=1e-6 if name != "poly" else 2e-6,
        working_rows=n // 10,
        resident_rows=resident,
        cache_bytes=4 * resident * (n // 10),
    )
    solve_and_check(PROBLEMS[kind], plane, 4e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted"])
@pytest.mark.parametrize("name", KINDS)
def test_the_optimum_is_that_of_libsvm(kind: str, name: str) -> None:
    """Where the sigmoid kernel is indefinite, both stop at a stationary point: these ones agree."""
    problem, C = PROBLEMS[kind], 0.05 if name == "sigmoid" else 2.0
    K, y, costs = matrix_of(problem, KINDS[name]), problem.y.astype(float), problem.costs(C)
    theirs, rounding = bracket_by_libsvm(K, y, costs), 2e-5 if name == "poly" else 4e-6  # its values reach 200
    for inner in ("smo", "irwls"):
        plane = Decomposition((C, C), KINDS[name], inner=inner, tol=1e-6, working_rows=64, resident_rows=120)
        last = solve_and_check(problem, plane, rounding, theirs if name != "sigmoid" else None)
        assert last.progress.objective == pytest.approx(theirs.high, rel=2e-5)


@st.composite
def drawn_problems(draw: st.DrawFn) -> tuple[Problem, dict[str, Any]]:
    """Dense or sparse, weighted or not, copies of rows, one row of a class, costs of classes from 1e-2 to 1e4."""
    seed, n, d = draw(st.integers(0, 2**31)), draw(st.integers(2, 60)), draw(st.integers(1, 8))
    problem = make_problem(seed, n, d, draw(st.sampled_from((1.0, 0.4))), draw(st.booleans()))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, 1 + n // 3, n) if draw(st.booleans()) else np.arange(n)
    chosen[:2] = 0, 1
    y = problem.y[chosen] if draw(st.booleans()) else np.where(np.arange(n) == 1, 1, -1)
    weight = None if problem.weight is None else problem.weight[chosen]
    C = 10.0 ** draw(st.integers(-2, 4))
    name = draw(st.sampled_from(DEFINITE))
    kernel = replace(KINDS[name], gamma=draw(st.sampled_from((0.05, 0.5))))
    options = {"kernel": kernel, "class_costs": (C, C * draw(st.sampled_from((1.0, 0.1)))), "seed": seed % 100}
    return Problem(problem.X[chosen], y, weight), options


@given(drawn_problems())
@settings(max_examples=120)
def test_any_small_problem_and_any_cost(drawn: tuple[Problem, dict[str, Any]]) -> None:
    problem, options = drawn
    plane = Decomposition(**options, tol=1e-7)
    last = drive(problem.in_memory(), plane)[-1]
    check_certificate(problem, plane, last, None, 1e-7)


@given(drawn_problems(), st.integers(2, 30), st.integers(8, 60), st.sampled_from(["irwls", "smo", "qp"]))
@settings(max_examples=60)
def test_any_division_of_the_work(
    drawn: tuple[Problem, dict[str, Any]], working: int, resident: int, inner: str
) -> None:
    """Working sets from 2 rows, active sets from 8; IRWLS does not diverge. Float32, so 1e-3 is what is promised."""
    problem, options = drawn
    plane = Decomposition(**options, inner=inner, tol=1e-3, working_rows=working, resident_rows=resident)
    last = drive(problem.in_memory(), plane)[-1]
    check_certificate(problem, plane, last, None, rounding_told(last))


@given(drawn_problems())
@settings(max_examples=60)
def test_irwls_and_smo_find_the_same_objective(drawn: tuple[Problem, dict[str, Any]]) -> None:
    problem, options = drawn
    planes = [Decomposition(**options, inner=inner, tol=5e-4) for inner in ("smo", "irwls")]
    found = [drive(problem.in_memory(), plane)[-1] for plane in planes]
    rounding = sum(rounding_told(last) for last in found)
    assert found[0].progress.objective == pytest.approx(found[1].progress.objective, rel=1e-3 + rounding)


@pytest.mark.parametrize("selection", ["second-order", "largest", "smallest", "random", "chunking", "platt"])
@pytest.mark.parametrize("name", DEFINITE)
def test_every_selection_rule(selection: str, name: str) -> None:
    plane = Decomposition(
        (1.0, 2.0),
        KINDS[name],
        selection=selection,
        tol=1e-4,
        working_rows=60 if selection == "smallest" else 16,
        resident_rows=200 if selection == "platt" else 60,
    )
    steps = drive(PROBLEMS["weighted"].in_memory(), plane)
    check_certificate(PROBLEMS["weighted"], plane, steps[-1], None, 2e-5 if name == "poly" else 2e-6)


def test_lower_bounds_rise_and_passes_are_counted() -> None:
    problem = make_problem(6, n=600)
    plane = Decomposition((1.0, 1.0), KINDS["rbf"], tol=1e-3, working_rows=30, resident_rows=60)
    steps = drive(problem.in_memory(), plane)
    bounds = [step.progress.lower_bound or 0.0 for step in steps]
    assert bounds == sorted(bounds)
    assert [step.progress.passes for step in steps] == list(range(1, len(steps) + 1))
    assert [step.status for step in steps] == [None] * (len(steps) - 1) + ["converged"]
    assert 2 < len(steps) <= 80


def test_few_passes_where_violators_follow_each_other() -> None:
    """4,000 rows, half of them in the model, a tenth resident: 18 passes if active violators damp nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4)).astype(np.float32)
    y = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=4000) > 0).astype(np.int32)
    source = ArrayDataset(X, y, np.array([-1, 1]))
    last = drive(source, Decomposition((1.0, 1.0), Kernel("rbf", gamma=0.5), working_rows=400, resident_rows=400))[-1]
    assert last.status == "converged"
    assert last.progress.passes <= 16


def test_one_class_missing_among_the_first_rows() -> None:
    """One row of a class in 400, ten of them resident: the first draw has none, and nothing can move."""
    y = np.full(400, -1)
    y[300] = 1
    problem = Problem(make_problem(1, n=400).X, y)
    plane = Decomposition((1.0, 1.0), KINDS["rbf"], tol=1e-6, working_rows=5, resident_rows=10)
    steps = drive(problem.in_memory(), plane)
    assert not steps[0].state.alpha.any(), "the draw had both classes: choose another row"
    check_certificate(problem, plane, steps[-1], None, 2e-6)


@pytest.mark.parametrize("inner", ["smo", "irwls", "qp"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [2, 3])
def test_two_rows_and_three(n: int, name: str, inner: str) -> None:
    X = np.array([[0.0, 1.0], [1.0, 0.5], [0.9, 0.7]], np.float32)[:n]
    problem = Problem(X, np.array([-1, 1, -1])[:n])
    plane = Decomposition((1.0, 1.0), KINDS[name], inner=inner, tol=1e-5, resident_rows=2, working_rows=2)
    solve_and_check(problem, plane, 1e-6)


def test_two_copies_of_one_row_in_both_classes() -> None:
    """K is singular and the rows cannot be told apart: w = 0, every multiplier at its bound."""
    problem = Problem(np.ones((10, 3), np.float32), np.tile([1, -1], 5))
    for inner in ("smo", "irwls", "qp"):
        for name in DEFINITE:
            plane = Decomposition((2.0, 2.0), KINDS[name], inner=inner, tol=1e-6)
            last = solve_and_check(problem, plane, 1e-6)
            assert last.progress.objective == pytest.approx(20.0)


@pytest.mark.parametrize("class_costs", [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("resident", [20, 400])
def test_costs_of_zero(class_costs: tuple[float, float], resident: int) -> None:
    """The rows of a class, or all of them, count nothing: w = 0 and nothing is lost."""
    plane = Decomposition(class_costs, KINDS["rbf"], resident_rows=resident)
    last = drive(PROBLEMS["dense"].in_memory(), plane)[-1]
    assert (last.status, last.progress.objective, last.progress.lower_bound) == ("converged", 0.0, 0.0)
    assert not last.state.alpha.any()


@pytest.mark.parametrize("options", [{}, {"working_rows": 8}, {"resident_rows": 40, "working_rows": 8}])
@pytest.mark.parametrize("inner", ["smo", "irwls", "qp"])
def test_what_rounding_does_not_allow_ends_as_stalled(options: dict[str, Any], inner: str) -> None:
    """tol = 0 cannot be met but by chance; the best is kept, and its certificate."""
    problem = make_problem(8, n=60)
    plane = Decomposition((5.0, 5.0), KINDS["rbf"], inner=inner, tol=0.0, **options)
    steps = drive(problem.in_memory(), plane)
    assert steps[-1].status in ("stalled", "converged")
    if steps[-1].status == "stalled":
        assert steps[-1].state.stuck == STUCK_STEPS
    assert len(steps) < 100
    check_certificate(problem, replace(plane, tol=1e-5), replace(steps[-1], status="converged"), None, 1e-5)


def test_a_solver_that_does_nothing_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "improve", lambda *_: None)
    steps = drive(PROBLEMS["dense"].in_memory(), Decomposition((1.0, 1.0), KINDS["rbf"], resident_rows=100))
    assert [step.status for step in steps] == [None] * (MORE_PATIENCE * STUCK_STEPS) + ["stalled"]
    assert steps[-1].progress.lower_bound == 0.0


def test_steps_with_all_rows_active_are_not_repeated_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large gap that rounding does not explain gives a solver more time only where other rows may help."""
    monkeypatch.setattr(all_active, "improve", lambda *_: False)
    monkeypatch.setattr(all_active, "suits_factor", lambda *_: False)
    steps = drive(PROBLEMS["dense"].in_memory(), Decomposition((1.0, 1.0), KINDS["rbf"]))
    assert [step.status for step in steps] == [None] * STUCK_STEPS + ["stalled"]
    assert steps[-1].progress.lower_bound == 0.0


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("selection", ["random", "second-order"])
def test_going_on_from_any_step_gives_the_same_bits(name: str, selection: str) -> None:
    """From a copy of the state after each step: nothing else is carried over."""
    source, C = PROBLEMS["weighted"].in_memory(), 0.05 if name == "sigmoid" else 1.0
    plane = Decomposition((C, C), KINDS[name], tol=1e-5, selection=selection, working_rows=30, resident_rows=60)
    steps = drive(source, plane)
    assert len(steps) > 2
    for step in steps[:-1:2]:
        state = replace(step.state, alpha=step.state.alpha.copy(), f=step.state.f.copy())
        again = drive(source, plane, state)[-1]
        assert again.progress == steps[-1].progress
        assert again.state.alpha.tobytes() == steps[-1].state.alpha.tobytes()
        assert again.state.f.tobytes() == steps[-1].state.f.tobytes()


@pytest.mark.parametrize("selection", ["random", "second-order"])
@pytest.mark.parametrize("name", DEFINITE)
def test_sums_of_all_rows_are_those_of_the_multipliers_where_float64_lets_all_be_active(
    name: str, selection: str
) -> None:
    """The first step has few active rows, and is damped; from then on all are, in float64."""
    problem = PROBLEMS["weighted"]
    K, y = matrix_of(problem, KINDS[name]), problem.y.astype(np.float64)
    plane = Decomposition(
        (1.0, 1.0), KINDS[name], selection=selection, tol=1e-6, working_rows=10, resident_rows=20, precise_rows=len(y)
    )
    source = problem.in_memory()
    first = drive(source, plane, most_steps=1)[-1].state
    for step in drive(source, plane, replace(first, is_precise=True)):
        f = K @ (step.state.alpha * y)
        assert np.all(np.abs(step.state.f - f) <= step.state.errors + 1e-10 * np.max(np.abs(f)))


def test_dense_and_sparse_agree() -> None:
    problem = make_problem(2, n=300, d=12, density=0.4)
    dense = Problem(problem.dense().astype(np.float32), problem.y)
    assert isinstance(problem.X, csr_array)
    for name in DEFINITE:
        plane = Decomposition((1.0, 1.0), KINDS[name], tol=1e-6, working_rows=40, resident_rows=100)
        ends = [drive(each.in_memory(), plane)[-1].progress.objective for each in (problem, dense)]
        assert ends[0] == pytest.approx(ends[1], rel=3e-6)


def test_a_linear_kernel_sends_one_vector_to_the_pass() -> None:
    """No support vectors travel, and no kernel value is formed in the pass."""
    source, sent = PROBLEMS["dense"].in_memory(), []
    for name in ("linear", "rbf"):
        plane = Decomposition((1.0, 1.0), KINDS[name], resident_rows=50)
        solver = decomposition.solve(plane, start_state(source.n_rows))
        scan = next(solver)
        while isinstance(scan, Take):
            scan = solver.send(source.take(scan.rows))
        sent.append([np.shape(value) for value in scan.shared[3:6]])  # type: ignore[union-attr]
    assert sent[0] == [(0, 6), (0,), (1, 6)]
    assert sent[1][0][0] == sent[1][1][0] > 0
    assert sent[1][2] == (0, 0)


def test_one_round_solves_a_small_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[None] = []
    improve = active_set._improve_working_set
    monkeypatch.setattr(active_set, "_improve_working_set", lambda *args: (rounds.append(None), improve(*args))[1])
    problem = PROBLEMS["dense"]
    streamsvm.SVC().fit(problem.X, problem.y)
    assert len(rounds) == 1
