"""One step of Platt's SMO: two multipliers, solved in closed form (Platt 1998, eqs. (7) to (9)).

The names a1, a2, y1, y2, E1, E2 and s = y1 y2 are the paper's. Its test for steps that are too small,
|a2' - a2| < eps (a2' + a2 + eps), depends on the scale of the multipliers and refuses nearly all steps if the costs are
large. Here a pair is refused if |E1 - E2| <= tol: both rows then meet their conditions within tol for some b.
"""

from __future__ import annotations

from typing import NamedTuple

from numba.extending import register_jitable

from streamsvm.methods.decomposition.platt_state import (
    Problem,
    State,
    claim_slot,
    compute_kernel_value,
    fill_kernel_values,
    find_error,
    set_multiplier,
    update_errors,
)

FLAT_CURVATURE = 1e-12  # a curvature below this share of |k11| + |k22| is rounding, and counts as 0
BOUND_TOLERANCE = 1e-15  # a multiplier this close to a bound, as a share of the pair's sum, is put on it


class PairStep(NamedTuple):
    """A step: rows i1 and i2, their new multipliers, their errors before the step, and their kernel values."""

    i1: int
    i2: int
    new1: float
    new2: float
    E1: float
    E2: float
    k11: float
    k12: float
    k22: float


@register_jitable
def find_best(a2: float, slope: float, curvature: float, low: float, high: float) -> float:
    """Return the minimiser over [low, high] of curvature/2 (a - a2)^2 - slope (a - a2), or a2 if no end is better."""
    if curvature > 0.0:
        return min(max(a2 + slope / curvature, low), high)
    at_low = (low - a2) * (0.5 * curvature * (low - a2) - slope)
    at_high = (high - a2) * (0.5 * curvature * (high - a2) - slope)
    if min(at_low, at_high) >= 0.0:
        return a2
    return low if at_low < at_high else high


@register_jitable
def _snap(a: float, cost: float, slack: float) -> float:
    """Return the bound, 0 or C_i, that is within `slack` of the multiplier, else the multiplier."""
    if a <= slack:
        return 0.0
    return cost if a >= cost - slack else a


@register_jitable
def take_step(problem: Problem, state: State, i1: int, i2: int, E2: float) -> bool:
    """Optimise the pair by equations (7) to (9); return False if it cannot be improved."""
    a1, a2, y1, y2 = state.alpha[i1], state.alpha[i2], problem.y[i1], problem.y[i2]
    cost1, cost2, s = problem.costs[i1], problem.costs[i2], y1 * y2
    if s > 0.0:
        low, high = max(0.0, a2 + a1 - cost1), min(cost2, a2 + a1)
    else:
        low, high = max(0.0, a2 - a1), min(cost2, a2 - a1 + cost1)
    if i1 == i2 or low >= high:
        return False
    E1 = find_error(problem, state, i1)
    if abs(E1 - E2) <= problem.tol:
        return False
    k11 = compute_kernel_value(problem, i1, i1, problem.squares[i1])
    k22 = compute_kernel_value(problem, i2, i2, problem.squares[i2])
    state.single[0] = i2
    fill_kernel_values(problem, state, i1, state.single, state.buffer[0])
    k12 = state.buffer[0, 0]
    curvature = k11 + k22 - 2.0 * k12
    if abs(curvature) <= FLAT_CURVATURE * (abs(k11) + abs(k22)):
        curvature = 0.0
    slack = BOUND_TOLERANCE * (a1 + a2)
    new2 = _snap(find_best(a2, y2 * (E1 - E2), curvature, low, high), cost2, slack)
    new1 = _snap(a1 + s * (a2 - new2), cost1, slack)
    if new1 == a1 or new2 == a2:
        return False
    _apply_step(problem, state, PairStep(i1, i2, new1, new2, E1, E2, k11, k12, k22))
    return True


@register_jitable
def _apply_step(problem: Problem, state: State, step: PairStep) -> None:
    """Change the pair and b.

    b makes the error of a row of the pair zero if the row is now free; otherwise it lies half-way between the values
    that would do so for either row.
    """
    i1, i2 = step.i1, step.i2
    c1 = problem.y[i1] * (step.new1 - state.alpha[i1])
    c2 = problem.y[i2] * (step.new2 - state.alpha[i2])
    b1, b2 = -step.E1 - c1 * step.k11 - c2 * step.k12, -step.E2 - c1 * step.k12 - c2 * step.k22
    set_multiplier(problem, state, i1, step.new1, step.E1)
    set_multiplier(problem, state, i2, step.new2, step.E2)
    b_change = 0.5 * (b1 + b2)
    if state.free.where[i1] >= 0:
        b_change = b1
    elif state.free.where[i2] >= 0:
        b_change = b2
    state.b[0] += b_change
    state.n_steps[0] += 1
    claim_slot(state, i1)
    claim_slot(state, i2)
    update_errors(problem, state, i1, i2, c1, c2, b_change)
