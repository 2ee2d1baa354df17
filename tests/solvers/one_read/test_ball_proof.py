"""What a pass of one read leaves behind of its proof, so that the dual point can be formed anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.numeric.rows import Rows
from streamsvm.solvers.cutting_plane.cuts import IDLE_STEPS
from streamsvm.solvers.cutting_plane.master import bound_dual
from streamsvm.solvers.cutting_plane.near_rows import Part
from streamsvm.solvers.keep_dual import find_certificate
from streamsvm.solvers.one_read import solver
from streamsvm.solvers.one_read.solver import MOST_OWN, make_room, note_shares
from streamsvm.solvers.one_read.state import OneRead, State, start_state
from tests.conftest import make_problem
from tests.linear_problems import run_steps

ONE_READ = OneRead((10.0, 10.0), 60, 1e-4)


def run(most: int = 40) -> list[State]:
    """The states of a run on a problem of several passes."""
    source = make_problem(4, n=300, d=4, weighted=True).in_memory()
    steps = run_steps(source, solver.solve(ONE_READ, start_state(ONE_READ, 300, 4)), most)
    return [step.state for step in steps]


def check_proofs(states: list[State]) -> None:
    """Wherever the bound has risen, the proof is that of the bound; find_certificate takes it."""
    before, risen = 0.0, 0
    for state in states:
        if state.lower_bound > before:
            value, rounding = bound_dual(state, state.proof)
            assert value - rounding == pytest.approx(state.lower_bound, rel=1e-12)
            assert find_certificate(state).bound == pytest.approx(state.lower_bound, rel=1e-12)
            risen += 1
        before = state.lower_bound
    assert risen > 2


def test_the_proof_is_that_of_the_bound() -> None:
    check_proofs(run())


def test_the_proof_of_the_cuts_at_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the dual point of F raises no bound, the one that the other cuts have raised before is known."""

    def keep_rows(_: OneRead, state: State, totals: Any, kept: Part, weight: Any, **_others: Any) -> Any:
        none = np.zeros(len(state.z))
        return replace(state, resident=kept.numbers, weight=weight, z=none, radius=kept.radius), {}

    monkeypatch.setattr(solver, "prove", keep_rows)
    check_proofs(run(10))


def test_the_proof_of_the_dual_point_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the master problem does not raise the bound that the dual point of F proves alone, that one is known."""

    prove = solver.prove

    def prove_alone(*given: Any, **named: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(solver, "minimise_master", lambda state, _: replace(state, z=np.zeros(len(state.z))))
            return prove(*given, **named)

    monkeypatch.setattr(solver, "prove", prove_alone)
    check_proofs(run(10))


def test_rows_whose_side_does_not_say_their_share() -> None:
    """Rows with another share than their side's, and rows for which rounding may choose the side."""
    rows = Rows(-1, np.ones((6, 1), np.float32), np.zeros(6, np.int32))
    margins = np.array([0.5, 0.5, 1.5, 1.5, 1.0 - 1e-16, 1.0])
    reach = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    kept = Part(rows, 10 * np.arange(6), margins, reach, reach)
    state = replace(run(1)[0], n_own=np.array([3, 0]))
    found = note_shares(state, kept, np.array([0, 1, 2, 3, 4, 5]), np.array([1.0, 0.4, 0.0, 1.0, 1.0, 0.0]))
    np.testing.assert_array_equal(found.own_rows, [10, 30, 40, 50])
    np.testing.assert_array_equal(found.own_shares, [0.4, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(found.n_own, [3, 4])
    some = note_shares(state, kept, np.array([0, 3]), np.array([0.0, 0.0]))
    np.testing.assert_array_equal(some.own_rows, [0])


def test_the_oldest_cuts_make_room() -> None:
    """Those that were idle for longest first, those behind the bound last, and no more than has to be."""
    many = 100 * (MOST_OWN - 1)
    state = replace(
        run(1)[0],
        n_own=np.array([50, 0, 50, 50, many - 100]),
        idle=np.array([9, 30, 2, 7, 0]),
        z=np.array([0.0, 0.0, 0.0, 0.0, 1.0]),
        proof=np.array([0.5, 0.0, 0.0, 0.0, 0.5]),
    )
    np.testing.assert_array_equal(make_room(state, 100).idle, [9, 30, 2, IDLE_STEPS + 1, 0])
    np.testing.assert_array_equal(make_room(state, 125).idle, state.idle)
    np.testing.assert_array_equal(make_room(state, 99).idle, [9, 30, IDLE_STEPS + 1, IDLE_STEPS + 1, 0])
