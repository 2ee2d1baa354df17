"""The interior-point method against a QP library and LIBSVM; its passes, steps and bits."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan, Step, Take
from streamsvm.runs.records import flatten
from streamsvm.solvers.interior_point import passes
from streamsvm.solvers.interior_point import solver as interior_point
from streamsvm.solvers.interior_point.equations import Reduction
from streamsvm.solvers.interior_point.passes import Smallest, add_number, is_drawn, join_gathered, scan_states
from streamsvm.solvers.interior_point.solver import InteriorPoint, solve
from streamsvm.solvers.interior_point.state import State, start_state
from streamsvm.solvers.interior_point.steps import N_NUMBERS, Course, R, S
from streamsvm.solvers.options import InteriorPointOptions, name_options
from streamsvm.solvers.set_up import set_up
from streamsvm.system.npz import pack_arrays, unpack_arrays
from tests.conftest import Problem, make_problem
from tests.kernel_problems import KINDS, Bracket, bracket_by_libsvm, bracket_by_qp, matrix_of

REDUCTIONS, RULES = (name_options(InteriorPointOptions)[name].words for name in ("reduction", "rule"))


def drive(
    source: RowSource, settings: InteriorPoint, state: State | None = None, most_steps: int = 300
) -> list[tuple[list[Scan | Take], Step]]:
    """All steps to the end, and what each asked for."""
    engine = SerialEngine(source)
    solver = solve(settings, state or start_state(source.n_rows, source.n_features))
    steps: list[tuple[list[Scan | Take], Step]] = []
    asked: list[Scan | Take] = []
    request = next(solver)
    while True:
        if isinstance(request, Step):
            steps.append((asked, request))
            if request.status or len(steps) == most_steps:
                return steps
            asked, request = [], solver.send(None)
        else:
            assert isinstance(request, Scan | Take)
            asked.append(request)
            request = solver.send(answer(engine, request))


def list_reads(asked: list[Scan | Take]) -> list[Scan]:
    """The passes that read rows."""
    return [request for request in asked if isinstance(request, Scan) and not request.of_states]


def read_numbers(source: RowSource, state: State) -> F64:
    """The numbers of all rows at a state, (10, n), made from the rows and the changes that the state knows."""
    held, engine = state.hold("another run"), SerialEngine(source)
    return np.stack([join_gathered(engine.scan(scan_states(held, list, add_number, k))) for k in range(N_NUMBERS)])


def evaluate(problem: Problem, costs: F64, state: State) -> float:
    """P at the best point, written out."""
    margins = problem.y * (problem.dense() @ state.best_w + state.best_bias)
    return float(state.best_w @ state.best_w / 2 + costs @ np.maximum(0.0, 1.0 - margins))


def check_end(problem: Problem, costs: F64, step: Step, optimum: Bracket) -> None:
    """Within 1e-6 of the optimum that others found, and the paper's own measures of it."""
    state = step.state
    assert step.status == "converged"
    assert state.objective == pytest.approx(evaluate(problem, costs, state), rel=1e-10)
    assert state.lower_bound <= optimum.high * (1 + 1e-9)
    assert optimum.low * (1 - 1e-9) <= state.objective <= optimum.high * (1 + 1e-6)
    assert step.figures["mu"] <= 1e-8
    assert step.figures["residual"] <= 1e-8


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    density=st.sampled_from([1.0, 0.3]),
    weighted=st.booleans(),
    C=st.sampled_from([0.01, 1.0, 30.0]),
    name=st.sampled_from(REDUCTIONS),
    rule=st.sampled_from(RULES),
)
def test_optimum_of_a_qp_library(seed: int, density: float, weighted: bool, C: float, name: str, rule: str) -> None:
    """Rows of cost 0 among them; half the rows for the reductions."""
    problem = make_problem(seed, n=80, d=5, density=density, weighted=weighted)
    costs = problem.costs(1.0, C, 2 * C)
    reduction = Reduction(name, rule, most_rows=40)
    steps = drive(problem.in_memory(), InteriorPoint((C, 2 * C), 1e-11, reduction))
    check_end(problem, costs, steps[-1][1], bracket_by_qp(matrix_of(problem, KINDS["linear"]), problem.y, costs))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("density", [1.0, 0.3])
def test_optimum_of_libsvm(density: float, weighted: bool) -> None:
    problem = make_problem(11, n=300, d=10, density=density, weighted=weighted)
    costs = problem.costs(1.0, 0.5, 1.5)
    optimum = bracket_by_libsvm(matrix_of(problem, KINDS["linear"]), problem.y, costs)
    steps = drive(problem.in_memory(), InteriorPoint((0.5, 1.5), 1e-11))
    check_end(problem, costs, steps[-1][1], optimum)
    assert optimum.high == pytest.approx(optimum.low, rel=1e-6)


def test_every_bound_is_true() -> None:
    """At each step, far from the optimum, too; and the objective is that of the model."""
    problem = make_problem(4, n=200, weighted=True)
    costs = problem.costs(3.0)
    optimum = bracket_by_qp(matrix_of(problem, KINDS["linear"]), problem.y, costs)
    for _, step in drive(problem.in_memory(), InteriorPoint((3.0, 3.0), 1e-9)):
        assert step.progress.lower_bound is not None
        assert step.progress.lower_bound <= optimum.high
        assert step.progress.objective >= optimum.low
        assert step.progress.objective == pytest.approx(evaluate(problem, costs, step.state), rel=1e-12)


def test_two_passes_an_iteration() -> None:
    """And a few rows; the first step makes one pass. Passes over what rows keep are no reads."""
    problem = make_problem(5, n=3000, d=8)
    steps = drive(problem.in_memory(), InteriorPoint((1.0, 1.0), 1e-8))
    passes = [len(list_reads(asked)) for asked, _ in steps]
    assert passes[0] == 1
    assert set(passes[1:]) <= {2, 3}
    assert sum(passes) / len(passes) <= 2.2
    assert [step.progress.passes for _, step in steps] == np.cumsum(passes).tolist()
    taken = [len(request.rows) for asked, _ in steps for request in asked if isinstance(request, Take)]
    assert taken == [64] * (len(steps) - 1)
    assert len(steps) <= 25


def test_a_step_that_would_lead_outside_is_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rows that were taken tell nothing of the step, others stop early, or it is made again."""
    problem = make_problem(6, n=200)
    usual = drive(problem.in_memory(), InteriorPoint((1.0, 1.0), 1e-9))
    monkeypatch.setattr(passes, "add_critical", add_first)
    monkeypatch.setattr(interior_point, "count_critical", lambda _: 1)
    blind = drive(problem.in_memory(), InteriorPoint((1.0, 1.0), 1e-9))
    assert blind[-1][1].status == "converged"
    assert not any(len(list_reads(asked)) == 3 for asked, _ in usual)
    assert sum(len(list_reads(asked)) == 3 for asked, _ in blind) >= 2
    assert blind[-1][1].progress.objective == pytest.approx(usual[-1][1].progress.objective, rel=1e-8)
    for _, step in blind:
        assert read_numbers(problem.in_memory(), step.state)[S : R + 1].min() > 0


def add_first(totals: Smallest, rows: Rows, course: Course, coefs: F64, numbers: F64) -> None:
    """The first row is the one that is taken."""
    totals.add(
        np.arange(rows.start, rows.start + rows.n_rows, dtype=float), rows.start + np.arange(rows.n_rows), numbers
    )


def test_rows_that_matter_are_few_at_the_end() -> None:
    """The reduced method needs about as many steps, and ends with few rows."""
    problem = make_problem(7, n=4000, d=10)
    whole, reduced = (
        drive(problem.in_memory(), InteriorPoint((1.0, 1.0), 1e-8, Reduction(name)))
        for name in ("none", "adaptive-balanced")
    )
    used = [step.figures["chosen_rows"] for _, step in reduced]
    assert used[0] == 4000
    assert used[-1] < 400
    assert {step.figures["chosen_rows"] for _, step in whole} == {4000.0}
    assert len(reduced) <= 1.2 * len(whole)


@pytest.mark.parametrize(("seed", "n", "d", "most_rows"), [(1, 600, 8, 30), (2, 1000, 10, 50)])
def test_more_rows_are_taken_where_mu_rises(seed: int, n: int, d: int, most_rows: int) -> None:
    """So few rows stall for ever by steps of 0.2 to 0.5 that lead away from the optimum."""
    reduction = Reduction("fixed", most_rows=most_rows)
    steps = drive(make_problem(seed, n=n, d=d).in_memory(), InteriorPoint((1.0, 1.0), 1e-8, reduction))
    assert steps[-1][1].status == "converged"
    assert max(step.figures["chosen_rows"] for _, step in steps[2:]) > most_rows


def test_most_rows_are_drawn_at_first() -> None:
    """Of any stretch of rows about as many; others with another seed."""
    problem = make_problem(8, n=500)
    grams = []
    for seed in (0, 0, 1):
        settings = InteriorPoint((1.0, 1.0), reduction=Reduction(most_rows=100), seed=seed)
        ((_, step),) = drive(problem.in_memory(), settings, most_steps=1)
        grams.append(step.state.gram)
        assert abs(step.figures["chosen_rows"] - 100) <= 2
    np.testing.assert_array_equal(grams[0], grams[1])
    assert (grams[0] != grams[2]).any()
    drawn = is_drawn(10**12, 10**5, 0.01, 3)
    np.testing.assert_allclose(drawn.reshape(10, -1).sum(axis=1), 100, atol=3)
    np.testing.assert_array_equal(is_drawn(10**12 + 500, 100, 0.01, 3), drawn[500:600])


@pytest.mark.parametrize("weight", [0, 2])
def test_a_row_of_weight_none_is_none_and_of_weight_two_is_two_rows(weight: int) -> None:
    """None at every step; two rows at the optimum, where each has half of what the one row of weight two has."""
    problem = make_problem(9, n=60)
    weights = np.tile([1, weight, 1], 20)
    settings = InteriorPoint((1.0, 1.0), 1e-10, Reduction("none"))
    weighted = drive(Problem(problem.X, problem.y, weights.astype(np.float64)).in_memory(), settings)
    rows = np.repeat(np.arange(60), weights)
    repeated = drive(Problem(problem.X[rows], problem.y[rows]).in_memory(), settings)
    assert weight == 2 or len(weighted) == len(repeated)
    for (_, left), (_, right) in list(zip(weighted, repeated, strict=weight == 0))[-1 if weight else 0 :]:
        assert left.progress.objective == pytest.approx(right.progress.objective, rel=1e-6)


def test_costs_of_twelve_orders_of_magnitude_take_few_steps_more_than_equal_ones() -> None:
    """On a central path of the shares of the costs it takes hundreds."""
    problem, random = make_problem(9, n=80), np.random.default_rng(0)
    lengths = []
    for weight in (None, 10 ** random.uniform(-6, 6, 80)):
        steps = drive(Problem(1e3 * problem.X, problem.y, weight).in_memory(), InteriorPoint((1.0, 1.0), 1e-6))
        assert steps[-1][1].status == "converged"
        lengths.append(len(steps))
    assert lengths[1] <= 4 * lengths[0]


@pytest.mark.parametrize("costs", [(0.0, 1.0), (0.0, 0.0)])
def test_a_class_without_cost(costs: tuple[float, float]) -> None:
    """Nothing is lost by calling all rows by the other class: P = 0."""
    problem = make_problem(10, n=40)
    steps = drive(problem.in_memory(), InteriorPoint(costs))
    assert steps[-1][1].status == "converged"
    assert steps[-1][1].progress.objective == 0.0


def test_separable_rows_and_columns_of_zeros() -> None:
    X = np.zeros((40, 4), np.float32)
    X[:, 1] = np.repeat([-1.0, 1.0], 20)
    X[0, 1] = -0.5
    y = np.repeat([-1, 1], 20)
    steps = drive(Problem(X, y).in_memory(), InteriorPoint((100.0, 100.0), 1e-9))
    assert steps[-1][1].status == "converged"
    np.testing.assert_allclose(steps[-1][1].state.best_w, [0, 4 / 3, 0, 0], atol=1e-6)
    assert steps[-1][1].progress.objective == pytest.approx((4 / 3) ** 2 / 2, rel=1e-8)


def test_every_step_is_a_place_to_go_on_from(tmp_path: Path) -> None:
    """A state that was saved and loaded makes the same steps, to the last bit; and later ones leave it alone."""
    problem, settings = make_problem(2, n=120, weighted=True), InteriorPoint((1.0, 2.0), 1e-8)
    whole = drive(problem.in_memory(), settings)
    copies = []
    for at in range(len(whole) - 1):
        file = tmp_path / f"{at}.npz"
        file.write_bytes(pack_arrays({part.name: getattr(whole[at][1].state, part.name) for part in fields(State)}))
        saved = {name: value if value.ndim else value.item() for name, value in unpack_arrays(file).items()}
        rest = drive(problem.in_memory(), settings, State(**saved))
        copies.append(file.read_bytes())
        for (_, step), (_, expected) in zip(rest, whole[at + 1 :], strict=True):
            assert (step.progress, step.status, step.figures) == (expected.progress, expected.status, expected.figures)
            assert step.state.w.tobytes() == expected.state.w.tobytes()
    for (_, step), copy in zip(whole, copies, strict=False):
        assert pack_arrays({part.name: getattr(step.state, part.name) for part in fields(State)}) == copy


def test_equations_that_cannot_be_factored_end_the_run() -> None:
    """The failure is named in the history; the best model so far stays."""
    problem, settings = make_problem(3, n=50), InteriorPoint((1.0, 1.0), 1e-9)
    step = drive(problem.in_memory(), settings, most_steps=3)[-1][1]
    broken = replace(step.state, gram=np.full_like(step.state.gram, np.nan))
    (asked, end), *_ = drive(problem.in_memory(), settings, broken)
    assert (end.status, end.figures, end.progress, asked) == ("stalled", {"cholesky_failed": 1.0}, step.progress, [])


def test_the_driver_holds_what_is_planned() -> None:
    """Measured over whole iterations; the rows themselves, and what a task adds up, are planned elsewhere."""
    source = make_problem(1, n=50_000, d=40).in_memory()
    settings = InteriorPoint((1.0, 1.0), 1e-8)
    need = set_up(source, TrainOptions(solver="interior-point")).memory(1)
    state = drive(source, settings, most_steps=2)[-1][1].state
    tracemalloc.start()
    try:
        drive(source, settings, state, most_steps=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    planned = need.driver_bytes + need.shared_bytes + 3 * need.totals_bytes
    assert peak <= planned + need.state_bytes + source.nbytes
    assert planned + need.state_bytes <= 4 * peak


def test_a_state_does_not_grow_with_the_rows() -> None:
    """But for vectors of d entries: four a step."""
    sizes = []
    for n in (300, 3000):
        ((_, step),) = drive(make_problem(1, n=n, d=4).in_memory(), InteriorPoint((1.0, 1.0), 1e-8), most_steps=6)[-1:]
        sizes.append(len(pack_arrays(flatten(step.state))))
        assert len(step.state.change_vectors) == 2 + 4 * 5
    assert sizes[0] == sizes[1]


def test_a_sample_of_the_rows_tells_which_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twelfth of them leads to the optimum in about as many steps, and to few rows in the end."""
    problem = make_problem(7, n=4000, d=10)
    usual = drive(problem.in_memory(), InteriorPoint((1.0, 1.0), 1e-8))
    monkeypatch.setattr(passes, "SAMPLE_ROWS", 333)
    monkeypatch.setattr(passes, "FEW_ROWS", 100)
    sampled = drive(problem.in_memory(), InteriorPoint((1.0, 1.0), 1e-8))
    assert sampled[-1][1].status == "converged"
    assert sampled[-1][1].figures["chosen_rows"] < 400
    assert len(sampled) <= len(usual) + 3
    assert sampled[-1][1].progress.objective == pytest.approx(usual[-1][1].progress.objective, rel=2e-8)
