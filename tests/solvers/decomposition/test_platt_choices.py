"""Platt's rules: which row is first and which second, what a step solves, what is kept, and when b moves by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from streamsvm.kernels.kernel import Kernel
from streamsvm.solvers.decomposition import platt
from streamsvm.solvers.decomposition import platt as platt_steps
from streamsvm.solvers.decomposition.platt import State, describe_problem, make_state, solve_by_platt
from tests.solvers.decomposition.test_platt import F64, KERNELS, find_violation, gram, make_rows


def start(
    X: npt.NDArray[np.float32], y: F64, costs: F64, kernel: Kernel, alpha: F64, seed: int = 0, n_slots: int = 0
) -> tuple[Any, State]:
    problem = describe_problem(X, y, costs, kernel, 1e-3, fold=True)
    state = make_state(alpha, X.shape[1], n_slots, seed)
    platt._start(problem, state)
    return problem, state


def test_the_rows_of_the_last_steps_are_kept() -> None:
    X, y, costs = make_rows(2)
    K, n_slots = gram(X, KERNELS[1]), 6
    alpha = solve_by_platt(X, y, costs, KERNELS[1], max_sweeps=2).alpha
    problem, state = start(X, y, costs, KERNELS[1], alpha, n_slots=n_slots)
    last: list[int] = []
    for i2 in range(len(y)):
        before = state.alpha.copy()
        if platt._examine(problem, state, i2):
            last += np.flatnonzero(state.alpha != before).tolist()
            assert set(last[-4:]) <= set(np.flatnonzero(state.slot >= 0).tolist()), "both rows of the last two steps"
    assert len(set(last)) > 2 * n_slots
    assert np.count_nonzero(state.slot >= 0) == n_slots
    for slot, row in enumerate(state.holder):
        known = ~np.isnan(state.cached[slot])
        assert known.any()
        assert np.allclose(state.cached[slot, known], K[row, known], rtol=1e-12)


def test_the_second_choice_is_the_free_row_with_the_most_distant_error() -> None:
    X, y, costs = make_rows(5)
    kernel = KERNELS[1]
    alpha = solve_by_platt(X, y, costs, kernel, max_sweeps=2).alpha
    free = np.flatnonzero((alpha > 0) & (alpha < costs))
    assert len(free) > 5
    tried = 0
    for i2 in range(len(y)):
        problem, state = start(X, y, costs, kernel, alpha)
        errors = gram(X, kernel) @ (alpha * y) + state.b[0] - y
        if platt._examine(problem, state, i2):
            partner = free[np.argmax(np.abs(errors[free] - errors[i2]))]
            if {i2, int(partner)} == set(np.flatnonzero(state.alpha != alpha).tolist()):
                tried += 1
            else:  # the second choice could not move: its multiplier, and this one, are where no segment is left
                assert not platt_steps.take_step(*start(X, y, costs, kernel, alpha), partner, i2, errors[i2])
    assert tried > 20


def test_without_free_rows_the_partner_is_the_first_from_a_random_start() -> None:
    X, y, costs = make_rows(6)
    y[:] = -1
    y[[10, 40, 90]] = 1  # at zero, rows of the same class have no segment to move on
    partners, nothing = [], np.zeros(len(y))
    for seed in range(60):
        problem, state = start(X, y, costs, KERNELS[1], nothing, seed)
        assert platt._examine(problem, state, 0)
        (partner,) = set(np.flatnonzero(state.alpha).tolist()) - {0}
        partners.append(partner)
    count = {row: partners.count(row) for row in (10, 40, 90)}
    assert sum(count.values()) == 60
    assert count[90] > count[40] > count[10] > 0, "starts fall into the gaps before them: 50, 30 and 40 rows"


def test_sweeps_over_all_rows_alternate_with_sweeps_over_free_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, costs = make_rows(7)
    sweeps: list[tuple[npt.NDArray[np.int64], bool, int]] = []
    sweep = platt._sweep

    def watch(problem: Any, state: State, rows: npt.NDArray[np.int64]) -> int:
        free = np.flatnonzero((state.alpha > 0) & (state.alpha < problem.costs))
        n_changed = int(sweep(problem, state, rows))
        sweeps.append((rows, np.array_equal(rows, free), n_changed))
        return n_changed

    monkeypatch.setattr(platt, "_sweep", watch)
    result = solve_by_platt(X, y, costs, KERNELS[1])
    assert len(sweeps) == result.n_sweeps
    everything = np.arange(len(y))
    assert np.array_equal(sweeps[0][0], everything)
    assert np.array_equal(sweeps[-1][0], everything)
    assert sweeps[-1][2] == 0
    for (_, _, n_before), (rows, over_free, _) in pairwise(sweeps):
        assert over_free or n_before == 0, f"{len(rows)} rows after a sweep that changed something"
        assert n_before > 0 or len(rows) > 0
    assert any(not over_free and len(rows) < len(y) for rows, over_free, _ in sweeps), "shrinking"
    assert any(over_free for _, over_free, _ in sweeps)


@run_with(max_examples=200)
@given(
    slope=st.floats(-5, 5),
    curvature=st.sampled_from([-3.0, -0.1, 0.0, 0.1, 4.0]),
    low=st.floats(-2, 0),
    high=st.floats(0, 2),
)
def test_the_best_point_of_a_segment_is_found(slope: float, curvature: float, low: float, high: float) -> None:
    def value(d: float) -> float:
        return 0.5 * curvature * d * d - slope * d

    best = platt_steps.find_best(0.5, slope, curvature, low + 0.5, high + 0.5) - 0.5
    assert low - 1e-12 <= best <= high + 1e-12
    assert value(best) <= min(value(d) for d in [*np.linspace(low, high, 101), 0.0]) + 1e-9


@pytest.mark.parametrize("shift", [0.5, -0.5])
def test_where_no_partner_helps_b_is_what_moves(shift: float) -> None:
    X, y, costs = make_rows(14)
    solved = solve_by_platt(X, y, costs, KERNELS[1], tol=1e-4)
    problem, state = start(X, y, costs, KERNELS[1], solved.alpha)
    state.b[0] += shift
    state.errors[:] += shift
    before = int(state.n_evaluations[0])
    assert platt._sweep(problem, state, np.arange(len(y))) == 0
    assert find_violation(solved.alpha, float(state.b[0]), y, costs, gram(X, KERNELS[1])) <= 1.1e-3
    n_free = np.count_nonzero((solved.alpha > 0) & (solved.alpha < costs))
    errors = gram(X, KERNELS[1]) @ (solved.alpha * y) + state.b[0] - y
    assert n_free > 5
    assert np.allclose(state.errors[: len(y)][state.free.rows[:n_free]], errors[state.free.rows[:n_free]], atol=1e-9)
    assert state.n_evaluations[0] - before < 4 * len(y) ** 2, "one search among all partners, not one for every row"
