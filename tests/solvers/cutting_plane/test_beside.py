"""Line search beside a solver with resident rows: as if alone where rows teach nothing, left out where it is behind."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.numeric.rows import F64, Rows
from streamsvm.passes import MORE_PATIENCE, All, Progress, Requests, Scan, Step, Take
from streamsvm.solvers.cutting_plane import line_search
from streamsvm.solvers.cutting_plane.block_ascent import BlockAscent
from streamsvm.solvers.cutting_plane.cuts import STUCK_STEPS, CutState
from streamsvm.solvers.cutting_plane.line_search import KEEPS_UP, RETURNS, SMALL, BothStates, CuttingPlane, Maker
from streamsvm.solvers.cutting_plane.setup import BlockAscentSolver
from streamsvm.solvers.one_read import setup
from streamsvm.solvers.one_read.state import OneRead
from streamsvm.solvers.solver import Solver
from tests.conftest import make_problem
from tests.linear_problems import bracket_by_qp, primal, run_steps

PROBLEM = make_problem(1, n=2000, d=12)
D = 12


def ignore(totals: F64, rows: Rows) -> None:
    """Look at the rows and learn nothing."""


def know(values: Sequence[tuple[float, float]], takes: bool, state: CutState) -> Requests:
    """Look at the rows, and say that P and bound are those of the pass' number; the last ones from then on."""
    while True:
        if takes:
            rows = yield Take(np.arange(3))
            assert rows.n_rows == 3
        yield Scan(partial(np.zeros, 1), ignore, np.add)
        objective, bound = values[min(state.passes, len(values) - 1)]
        best_w = np.full(D + 1, objective)  # tells whose it is
        state = replace(state, best_w=best_w, objective=objective, lower_bound=bound, passes=state.passes + 1)
        yield Step(state, Progress(objective, bound, state.passes), figures={"of": 1.0})


def nothing() -> CutState:
    """A state of `know`."""
    return CutState(np.zeros(D + 1), np.zeros(D + 1), np.ones((4, D + 1)))


def run_known(first: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]], most: int) -> list[Step]:
    makers: list[Maker] = [partial(know, first, False), partial(know, other, False)]
    state = BothStates([nothing(), nothing()], np.zeros(D + 1))
    return run_steps(PROBLEM.in_memory(), line_search.solve_both(makers, 1e-9, state), most)


@pytest.mark.parametrize("takes", [False, True])
@pytest.mark.parametrize(
    "known", [[(np.inf, 0.0)], [(1e9, 0.0)], [(np.inf, 0.0), (1e6, 1.0), (1e5, 2.0)]], ids=["inf", "poor", "slow"]
)
def test_beside_one_that_learns_nothing_it_is_as_if_alone(known: list[tuple[float, float]], takes: bool) -> None:
    """To the bit of every pass."""
    source, settings = PROBLEM.in_memory(), CuttingPlane((0.1, 0.1), tol=1e-4)
    alone = run_steps(source, line_search.solve(settings, line_search.LineState.at_zero(D + 1)))
    makers: list[Maker] = [partial(know, known, takes), partial(line_search.solve, settings)]
    state = BothStates([nothing(), line_search.LineState.at_zero(D + 1)], np.zeros(D + 1))
    steps = run_steps(source, line_search.solve_both(makers, 1e-4, state))
    assert len(steps) > 10
    assert [step.progress for step in steps] == [step.progress for step in alone]
    assert [step.status for step in steps] == [step.status for step in alone]
    assert all(step.figures == {"of": 1.0, "beside": 1.0} for step in steps)
    np.testing.assert_array_equal(steps[-1].state.best_w, alone[-1].state.best_w)


BEHIND = 1.01 * KEEPS_UP
GAP = 0.9 * SMALL * 100.0


@pytest.mark.parametrize(
    ("first", "other", "left_out"),
    [
        ((100.0, 100.0 - GAP), (100.0, 100.0 - BEHIND * GAP), True),
        ((100.0, 100.0 - GAP), (100.0 + BEHIND * GAP / 2, 100.0 - BEHIND * GAP / 2), True),
        ((100.0, 100.0 - GAP), (100.0, 100.0 - 0.99 * KEEPS_UP * GAP), False),
        ((100.0, 100.0 - 1.3 * GAP), (100.0, 1.0), False),
        ((100.0, 100.0 - BEHIND * GAP), (100.0, 100.0 - GAP), False),
        ((100.0, 100.0 - GAP), (200.0, 100.0 - 0.9 * GAP), False),
        ((np.inf, 0.0), (100.0, 99.9), False),
        ((100.0, 100.0 - GAP), (np.inf, 0.0), True),
    ],
    ids=["bound", "objective", "keeps-up", "too-soon", "ahead", "proves-more", "knows-nothing", "other-knows-nothing"],
)
def test_left_out_if_far_behind_and_the_gap_is_small(
    first: tuple[float, float], other: tuple[float, float], left_out: bool
) -> None:
    steps = run_known([first], [other], 3)
    assert steps[0].state.alone is left_out
    assert [step.figures["beside"] for step in steps] == [0.0 if left_out else 1.0] * 3
    states = steps[0].state.states
    assert len(states) == 2
    assert len(states[1].cuts) == (0 if left_out else 4)  # no memory is held for it
    assert steps[2].state.states[1].passes == (1 if left_out else 3)
    assert [step.progress.passes for step in steps] == [1, 2, 3]


def test_what_is_left_out_computes_nothing() -> None:
    """A pass asks for what the first solver needs only."""
    engine = SerialEngine(PROBLEM.in_memory())
    makers: list[Maker] = [partial(know, [(100.0, 99.9)], False), partial(know, [(100.0, 9.0)], False)]
    solver = line_search.solve_both(makers, 1e-9, BothStates([nothing(), nothing()], np.zeros(D + 1)))
    request, asked = next(solver), []
    for _ in range(3):
        assert isinstance(request, All)
        asked.append(len(request.requests))
        step = solver.send(answer(engine, request))
        assert isinstance(step, Step)
        request = solver.send(None)
    assert asked == [2, 1, 1]


def test_neither_bound_worsens_as_it_is_left_out() -> None:
    """The line search has the better P, and earlier had the better bound: both stay, and so does its point."""
    first = [(120.0, 50.0), (100.0, 99.8), (100.0, 99.85), (99.88, 98.9)]
    other = [(110.0, 98.0), (99.9, 98.5)]
    steps = run_known(first, other, 4)
    assert [step.figures["beside"] for step in steps] == [1.0, 0.0, 0.0, 0.0]
    assert [step.state.objective for step in steps] == [110.0, 99.9, 99.9, 99.88]
    assert [step.state.lower_bound for step in steps] == [98.0, 99.8, 99.85, 99.85]
    assert [step.state.best_w[0] for step in steps] == [110.0, 99.9, 99.9, 99.88]
    for step in steps:
        assert step.progress == Progress(step.state.objective, step.state.lower_bound, step.state.passes)


def test_converged_by_what_both_know_together() -> None:
    """The bound of one and P of the other."""
    makers: list[Maker] = [partial(know, [(100.0, 90.0), (100.0, 98.0)], False), partial(know, [(98.05, 80.0)], False)]
    state = BothStates([nothing(), nothing()], np.zeros(D + 1))
    steps = run_steps(PROBLEM.in_memory(), line_search.solve_both(makers, 1e-3, state))
    assert [step.status for step in steps] == [None, "converged"]


def get_stuck(first: int, last: int, state: CutState) -> Requests:
    """As `know`, of one that is stuck from one pass to another, and has a small gap."""
    solver, sent = know([(100.0, 99.9)], False, state), None
    while True:
        request = solver.send(sent)
        if isinstance(request, Step):
            passes = request.state.passes
            request = replace(request, state=replace(request.state, stuck=RETURNS * (first <= passes <= last)))
        sent = yield request


def begin(seen: list[CutState], state: CutState) -> Requests:
    """As `know`, of one that is far behind; notes the states that it begins from."""
    seen.append(state)
    yield from know([(99.99, 10.0), (99.98, 50.0)], False, state)


def test_where_the_first_solver_is_stuck_the_line_search_returns() -> None:
    """From the best point of both, which was its own; and is left out again once the first solver goes on."""
    seen: list[CutState] = []
    makers: list[Maker] = [partial(get_stuck, 3, 4), partial(begin, seen)]
    steps = run_steps(
        PROBLEM.in_memory(),
        line_search.solve_both(makers, 1e-9, BothStates([nothing(), nothing()], np.zeros(D + 1))),
        7,
    )
    assert [step.figures["beside"] for step in steps] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert [state.objective for state in seen] == [np.inf, 99.99]
    assert seen[1].best_w[0] == 99.99
    assert len(seen[1].cuts) == 0
    for k, step in enumerate(steps[:-1]):
        makers = [partial(get_stuck, 3, 4), partial(begin, [])]
        rest = run_steps(PROBLEM.in_memory(), line_search.solve_both(makers, 1e-9, deepcopy(step.state)), 6 - k)
        assert list_bytes(rest[-1].state) == list_bytes(steps[-1].state)


def start_at(w: F64) -> CutState:
    return replace(nothing(), best_w=w)


def lead(values: Sequence[tuple[float, float]], most: int) -> list[Step]:
    """Run a line search that leads; the first solver proves a gap of 1e-3 at once."""
    makers: list[Maker] = [partial(know, [(100.0, 99.9)], True), partial(know, values, False)]
    state = BothStates([nothing(), nothing()], np.zeros(D + 1), leads=True)
    return run_steps(PROBLEM.in_memory(), line_search.solve_both(makers, 1e-6, state, start_at), most)


@pytest.mark.parametrize(("bound", "passes"), [(1.0, 4), (89.0, 4), (91.0, 8)])
def test_a_line_search_leads_for_a_few_passes(bound: float, passes: int) -> None:
    """For twice as many if its gap is small. The first solver then begins at its best point; every pass counts once."""
    steps = lead([(100.0, bound)], passes + 2)
    assert [step.state.leads for step in steps] == [True] * (passes - 1) + [False] * 3
    assert [step.progress.passes for step in steps] == list(range(1, passes + 3))
    assert [step.state.states[0].passes for step in steps[-3:]] == [0, 1, 2]
    assert steps[-3].state.states[0].best_w[0] == steps[-3].state.best_w[0] == 100.0
    assert [step.state.lower_bound for step in steps[-3:]] == [bound, 99.9, 99.9]


def test_a_run_that_a_line_search_leads_is_resumed_at_any_step() -> None:
    steps = lead([(100.0, 50.0)], 7)
    for k, step in enumerate(steps[:-1]):
        makers: list[Maker] = [partial(know, [(100.0, 99.9)], True), partial(know, [(100.0, 50.0)], False)]
        solver = line_search.solve_both(makers, 1e-6, deepcopy(step.state), start_at)
        rest = run_steps(PROBLEM.in_memory(), solver, 6 - k)
        assert list_bytes(rest[-1].state) == list_bytes(steps[-1].state)


def stall(state: CutState) -> Requests:
    """As `know`, of one that says that it is stuck."""
    solver, sent = know([(1e9, 0.0)], False, state), None
    while True:
        request = solver.send(sent)
        sent = yield replace(request, status="stalled") if isinstance(request, Step) else request


def test_one_that_is_stuck_does_not_end_the_other() -> None:
    source, settings = PROBLEM.in_memory(), CuttingPlane((0.1, 0.1), tol=1e-4)
    makers: list[Maker] = [stall, partial(line_search.solve, settings)]
    state = BothStates([nothing(), line_search.LineState.at_zero(D + 1)], np.zeros(D + 1))
    assert run_steps(source, line_search.solve_both(makers, 1e-4, state))[-1].status == "converged"


@pytest.mark.parametrize(("rounding", "passes"), [(0.0, MORE_PATIENCE * STUCK_STEPS), (6.0, STUCK_STEPS)])
def test_a_solver_that_crawls_towards_what_the_other_knows_goes_on_for_no_one(rounding: float, passes: int) -> None:
    """The gap of 50 is rounding alone if that is 6. The first pass is progress."""
    crawling = [(1e3 - k, 10.0 + 1e-3 * k) for k in range(500)]
    makers: list[Maker] = [partial(know, crawling, False), partial(know, [(100.0, 50.0)], False)]
    state = BothStates([nothing(), nothing()], np.zeros(D + 1), objective_rounding=rounding)
    state.states = [replace(own, objective_rounding=rounding) for own in state.states]
    steps = run_steps(PROBLEM.in_memory(), line_search.solve_both(makers, 1e-9, state), 500)
    assert [step.status for step in steps] == [None] * passes + ["stalled"]


def solve_pair(way: str, source: ArrayDataset) -> tuple[Solver, list[Step]]:
    """A run of a solver with resident rows and the line search, which is left out on the way."""
    costs = (0.1, 0.1)
    if way != "block-ascent":
        fit = setup.make_solver(source, OneRead(costs, 60, 1e-6), leads=way == "led")
    else:
        starts = tuple(source.chunk_starts.tolist())
        fit = BlockAscentSolver(source, BlockAscent(costs, source.n_rows, starts, 1e-6)).beside_line_search()
    steps = run_steps(source, fit.solve(fit.start()))
    assert steps[-1].status == "converged"
    assert steps[-1].figures["beside"] == 0.0
    return fit, steps


WAYS = {
    "one-read": make_problem(2, n=700, d=12),
    "led": make_problem(3, n=700, d=12),
    "block-ascent": make_problem(2, n=400, d=12),
}


@pytest.mark.parametrize("way", WAYS)
def test_bounds_hold_before_and_after(way: str) -> None:
    problem = WAYS[way]
    costs = problem.costs(0.1)
    optimum = bracket_by_qp(problem, costs)
    _, steps = solve_pair(way, problem.in_memory())
    before = (np.inf, 0.0)
    for step in steps:
        objective, bound = step.state.objective, step.state.lower_bound
        assert objective == pytest.approx(primal(problem, costs, step.state.best_w), rel=1e-9)
        assert optimum.low * (1 - 1e-9) <= objective <= before[0]
        assert before[1] * (1 - 1e-12) <= bound <= min(objective, optimum.high * (1 + 1e-9))
        before = (objective, bound)


def test_one_read_begins_where_the_line_search_has_led() -> None:
    """At its best point, and it needs fewer passes than from w = 0."""
    _, alone = solve_pair("one-read", WAYS["led"].in_memory())
    _, led = solve_pair("led", WAYS["led"].in_memory())
    k = next(k for k, step in enumerate(led) if not step.state.leads)
    assert led[k].state.states[0].centre.tobytes() == led[k].state.best_w.tobytes()
    assert len(led) - k - 1 < len(alone)


@pytest.mark.parametrize("way", WAYS)
def test_gone_on_from_any_state_to_the_same_bits(way: str) -> None:
    """Before the line search is left out, as it is, and after."""
    source = WAYS[way].in_memory()
    fit, steps = solve_pair(way, source)
    for k, step in enumerate(steps[:-1]):
        rest = run_steps(source, fit.solve(deepcopy(step.state)))
        assert [one.progress for one in rest] == [one.progress for one in steps[k + 1 :]]
        assert [one.figures for one in rest] == [one.figures for one in steps[k + 1 :]]
        assert list_bytes(rest[-1].state) == list_bytes(steps[-1].state)


def list_bytes(state: Any) -> list[Any]:
    """All that a state holds."""
    values: list[Any] = []
    for value in vars(state).values():
        parts = value if isinstance(value, list) else [value]
        values += [list_bytes(part) if hasattr(part, "__dict__") else np.asarray(part).tobytes() for part in parts]
    return values
