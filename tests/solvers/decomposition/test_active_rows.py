"""The turns of a step: rows that do not move leave, others take their places, and the pass has all that moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.certificates.kernel import find_best_bias
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import I64
from streamsvm.passes import Scan, Step, Take
from streamsvm.solvers.decomposition.active_set import ActiveSet
from streamsvm.solvers.decomposition.solver import (
    MOST_TURNS,
    Draw,
    Turn,
    exchange_rows,
    find_best_conditions,
    make_active,
    solve,
)
from streamsvm.solvers.decomposition.state import Decomposition, State, start_state
from tests.kernel_problems import compute_matrix, drive

N_ROWS, RESIDENT = 600, 60
PLANE = Decomposition((1.0, 1.0), Kernel("rbf", gamma=0.5), working_rows=30, resident_rows=RESIDENT)
KINDS: dict[str, dict[str, Any]] = {
    "classes": {},
    "regression": {"tube": 0.1, "numbers": np.array([-1.0, 1.0])},
    "one class": {"nu": 0.3},
    "nu classes": {"nu": 0.3, "two_sums": True},
    "nu regression": {"nu": 0.3, "tube": 0.0, "numbers": np.array([-1.0, 1.0])},
}


def make_rows() -> ArrayDataset:
    """Rows of two classes that overlap."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 4)).astype(np.float32)
    y = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=N_ROWS) > 0).astype(np.int32)
    return ArrayDataset(X, y, np.array([-1, 1]))


def list_steps(plane: Decomposition) -> list[tuple[list[I64], int, Step]]:
    """Of each step the rows that it took, the number of columns of its pass, and its end."""
    source, steps, taken, columns = make_rows(), [], [], 0
    engine, solver = SerialEngine(source), solve(plane, start_state(N_ROWS))
    request = next(solver)
    while True:
        if isinstance(request, Step):
            steps.append((taken, columns, request))
            taken = []
            if request.status:
                return steps
            request = solver.send(None)
            continue
        if isinstance(request, Take):
            taken.append(request.rows)
        else:
            assert isinstance(request, Scan)
            columns = len(request.shared[4])
        request = solver.send(answer(engine, request))


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_taken_twice_in_a_turn_and_columns_fit_the_active_set(kind: str) -> None:
    steps = list_steps(replace(PLANE, **KINDS[kind]))
    assert steps[-1][2].status == "converged"
    for taken, columns, _ in steps:
        assert all(len(np.unique(rows)) == len(rows) for rows in taken)
        assert len(taken) <= MOST_TURNS
        assert len(taken[0]) == RESIDENT
        assert columns <= RESIDENT
    assert max(len(taken) for taken, _, _ in steps) > 1
    first = np.concatenate(steps[0][0])  # in the first step no row is known to be near
    assert len(np.unique(first)) == len(first)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_left_come_again_when_others_have_moved_their_sums(kind: str) -> None:
    """Once all violators have been active, the places go to the rows that are near, of which some were active."""
    source, settings = make_rows(), replace(PLANE, **KINDS[kind])
    state: State = drive(source, settings, most_steps=5)[-1].state
    draw = Draw(settings, state)
    rows = draw.first()
    draw.was_active[:] = True
    turn, came = start_turn(draw, make_active(settings, state, rows, source.take(rows))), []
    for _ in range(3):
        move(turn, np.arange(0, RESIDENT // 2))
        stay = turn.active.rows[turn.moves != 0.0]
        came.append(draw.next(turn))
        assert len(came[-1]) == RESIDENT - len(stay)
        assert not np.intersect1d(came[-1], turn.active.rows).size
        fresh = make_active(settings, state, came[-1], source.take(came[-1]))
        turn = exchange_rows(settings, state, draw, turn, fresh)
        X = np.asarray(source.take(turn.active.rows).X, np.float64)
        f = state.f[turn.active.rows] + compute_matrix(settings.kernel, X, X) @ turn.moves
        np.testing.assert_allclose(turn.expected, f, atol=1e-5)
    left = np.concatenate((rows, came[0]))
    assert np.intersect1d(left, np.concatenate(came[1:])).size


def test_early_passes_are_full() -> None:
    """More than nine in ten rows of the first passes have moved: without turns, it is two in three."""
    columns = [columns for _, columns, _ in list_steps(PLANE)]
    assert min(columns[:3]) >= 0.9 * RESIDENT


@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_rows_that_moved_stay_and_sums_are_those_of_all_that_moved(kind: str) -> None:
    source, settings = make_rows(), replace(PLANE, **KINDS[kind])
    state: State = drive(source, settings, most_steps=2)[-1].state
    draw = Draw(settings, state)
    rows = draw.first()
    turn = start_turn(draw, make_active(settings, state, rows, source.take(rows)))
    move(turn, np.arange(0, RESIDENT, 3))
    again = draw.next(turn)
    assert len(again) == RESIDENT - len(range(0, RESIDENT, 3))
    after = exchange_rows(settings, state, draw, turn, make_active(settings, state, again, source.take(again)))
    np.testing.assert_array_equal(after.active.rows, np.concatenate((rows[::3], again)))
    assert not np.intersect1d(rows, again).size
    np.testing.assert_array_equal(after.moves, np.concatenate((turn.moves[::3], np.zeros(len(again)))))
    X = np.asarray(source.take(after.active.rows).X, np.float64)
    change = compute_matrix(settings.kernel, X, X) @ after.moves
    np.testing.assert_allclose(after.f, state.f[after.active.rows], rtol=0, atol=0)
    np.testing.assert_allclose(after.active.f, after.f + after.damping * change, atol=1e-5)
    np.testing.assert_allclose(after.expected, after.f + change, atol=1e-5)
    assert 1.0 < after.damping < turn.damping


def start_turn(draw: Draw, active: ActiveSet) -> Turn:
    return Turn(active, active.y * active.alpha, active.f.copy(), draw.choose_damping(0))


def move(turn: Turn, places: I64) -> None:
    """Move multipliers as a round does, with the sums of the active rows."""
    active = turn.active
    halves = np.where(active.alpha[places] > 0.5, -0.25, 0.25) * np.linspace(0.5, 1.0, len(places))
    active.alpha[places] += halves
    X = np.asarray(active.X, np.float64)
    moved = active.y[places] * halves
    active.f += turn.damping * (compute_matrix(PLANE.kernel, X, X[places]) @ moved)


def test_conditions_are_about_the_best_bias() -> None:
    """Their bias is not decided by one far row, as the one half-way between the extremes is."""
    state = drive(make_rows(), PLANE, most_steps=3)[-1].state
    far = replace(state, f=state.f.copy())
    far.f[np.flatnonzero((state.y > 0) & (state.alpha == 0))[0]] -= 40.0
    biases = [find_best_conditions(found).bias for found in (state, far)]
    assert biases[1] == pytest.approx(biases[0], abs=0.1)
    assert biases[1] == find_best_bias(far.y, far.costs, far.f)
    assert far.hinges.find_conditions().bias > state.hinges.find_conditions().bias + 10


@pytest.mark.slow("trains each kernel problem several times")
@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_change_the_bits(kind: str) -> None:
    plane = replace(PLANE, **KINDS[kind])
    one, two = (drive(make_rows(), replace(plane, threads=threads, pass_threads=threads))[-1] for threads in (1, 2))
    assert one.progress == two.progress
    assert one.state.alpha.tobytes() == two.state.alpha.tobytes()
    assert one.state.f.tobytes() == two.state.f.tobytes()
