"""What the bound of D charges for rounding, in exact arithmetic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from streamsvm.solvers.cutting_plane.cuts import CutState, RowSums, add_cuts
from streamsvm.solvers.cutting_plane.master import bound_dual, scale_costs

X = 2.0**-20


def make_state(cost: float) -> CutState:
    """The state with the cut of one row of one feature, whose loss at 0 is its cost."""
    none = np.zeros(1)
    state = CutState(none, none, np.empty((0, 1)), objective=cost, terms=1.0, total_cost=cost)
    state = replace(state, magnitudes=np.array([cost * X]), largest=np.array([X]))
    return add_cuts(state, RowSums(np.array([[cost * X]]), np.array([cost]), np.array([cost])), 4)


def test_costs_that_are_scaled_again_and_again() -> None:
    """Each of many costs is the one at which rounding raises the offset most; the bound is that of the cost meant."""
    cost = 1.7
    state, candidates = make_state(cost), 1.0 + np.arange(1, 400) / 401.0
    for step in range(60):
        costs = cost * candidates if step % 2 else cost / candidates
        scaled = costs / cost * state.offsets[0]
        best = int(np.argmax([float(Fraction(s) / Fraction(c) - 1) for s, c in zip(scaled, costs, strict=True)]))
        cost, factor = float(costs[best]), float(costs[best] / cost)
        state = scale_costs(state, factor, 1e-3)
        value, rounding = bound_dual(state, np.ones(1))
        exact = Fraction(cost) - (Fraction(cost) * Fraction(X)) ** 2 / 2
        assert Fraction(value) - Fraction(rounding) <= exact
        assert abs(Fraction(state.objective) - Fraction(cost)) <= Fraction(state.objective_rounding)
    assert Fraction(float(state.offsets[0])) > (1 + Fraction(30, 2**53)) * Fraction(cost)


def test_multipliers_that_sum_to_more_than_one() -> None:
    """They are no dual point, and their nearest multiple that is one proves less."""
    state = make_state(1.0)
    value, rounding = bound_dual(state, np.array([1.0 + 1e-9]))
    assert Fraction(value) - Fraction(rounding) <= 1 - Fraction(X) ** 2 / 2
