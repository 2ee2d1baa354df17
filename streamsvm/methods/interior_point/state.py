"""The state of an interior-point run (interior_point.solver), and the proof of its best point so far.

Every pass `assemble` gives P at the best bias for its w, and D at a feasible multiple of its alpha, both with a bound
of their rounding (interior_point.bounds). `settle` adds them to the state. Where the gap is small enough and only the
rounding bound stands in the way of a proof, a pass in twice the precision finds D of this alpha, and P of this w and of
slightly longer ones. Longer ones help because rounding can put a row of high cost just below its margin of 1, and it
then has a loss that a slightly longer w does not have. Where D is too low at the end of the central path, multipliers
between their bounds are corrected (interior_point.free_multipliers).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.errors import CertificateError
from streamsvm.methods.interior_point.bounds import (
    Dual,
    Magnitudes,
    Primal,
    choose_exact,
    find_exact_lower_bound,
    find_lower_bound,
    find_primal,
    lengthen,
)
from streamsvm.methods.interior_point.free_multipliers import choose_free_rows, correct_sums
from streamsvm.methods.interior_point.steps import Point, unwarned
from streamsvm.methods.interior_point.sums import MAPPED, NEGATIVE, POSITIVE, AssembledSums, gather
from streamsvm.numeric.exact_losses import add_exact, combine_exact, start_exact
from streamsvm.numeric.exact_sums import add_exact_sums, combine_exact_sums, start_exact_sums
from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import All, Progress, Scan, Take

# If the gap has not fallen in so many steps at the end of the path, alpha is not known well enough for a proof.
LOST_STEPS = 3
FALLS = 0.99  # A run is stuck while its gap is above this share of what it was when it last fell.


@dataclass
class State:
    """All that changes from step to step; it is saved as it is.

    f, s, t, xi, r, y and costs are (n,). gram, sums, chosen_weight and chosen_rows are those of AssembledSums at this
    point, and magnitudes those of the first pass. objective and lower_bound are the best P and D so far; rounding and
    lower_rounding bound their rounding errors, and the latter is taken off lower_bound already. last_gap: P - D when it
    last fell. exact_step: the first step that may ask for an exact pass again. corrected_rows (k,) and corrections
    (k, 2): the rows whose multipliers were corrected for lower_bound, and their corrections (free_multipliers).
    """

    f: F64
    s: F64
    t: F64
    xi: F64
    r: F64
    w: F64
    best_w: F64
    gram: F64
    sums: F64
    y: F64 = field(default_factory=lambda: np.empty(0))
    costs: F64 = field(default_factory=lambda: np.empty(0))
    bias: float = 0.0
    best_bias: float = 0.0
    magnitudes: F64 = field(default_factory=lambda: np.empty((2, 0)))
    chosen_weight: float = 0.0
    chosen_rows: int = 0
    step_length: float = 0.0
    growth: float = 1.0
    objective: float = float("inf")
    rounding: float = 0.0
    lower_bound: float = 0.0
    lower_rounding: float = 0.0
    last_gap: float = float("inf")
    exact_passes: int = 0
    exact_step: int = 0
    passes: int = 0
    steps: int = 0
    stuck: int = 0
    corrected_rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    corrections: F64 = field(default_factory=lambda: np.empty((0, 2)))
    shapes: ClassVar = {
        "f": ("n",),
        "y": ("n",),
        "costs": ("n",),
        "w": ("d",),
        "best_w": ("d",),
        "gram": ("d", "d"),
        "sums": ("6", "d"),
        "magnitudes": ("2", "d"),
        "corrected_rows": ("k",),
        "corrections": ("k", "2"),
    }
    row_numbers: ClassVar = ("corrected_rows",)
    added: ClassVar = ("corrected_rows", "corrections")

    @property
    def point(self) -> Point:
        """The variables of the rows."""
        return Point(self.f, self.s, self.t, self.xi, self.r)

    @property
    def r_w(self) -> F64:
        """The residual w - X'Y alpha."""
        missed: F64 = self.w - (self.sums[POSITIVE] - self.sums[NEGATIVE])
        return missed

    @property
    def progress(self) -> Progress:
        """The best P and D so far, and the passes that found them."""
        both = self.rounding + self.lower_rounding
        return Progress(self.objective, self.lower_bound, self.passes, both, taken_off=self.lower_rounding)


def start_state(n_rows: int, n_features: int) -> State:
    """Return w = 0 and s = xi = 2 as in the paper (section 5), and t = r = 1, which are multipliers within bounds."""
    two, one, none = np.full(n_rows, 2.0), np.ones(n_rows), np.zeros(n_features)
    return State(np.zeros(n_rows), two, one, two, one, none, none, np.zeros((0, 0)), np.zeros((0, 0)))


def settle(state: State, sums: AssembledSums, class_costs: F64, tol: float) -> Generator[All | Take, Any, State]:
    """Return the state with the sums of its point and the P and D that they prove; ask for an exact pass if useful."""
    state = replace(
        state,
        f=gather(sums.tiles, MAPPED)[:, 1].copy(),
        gram=sums.gram.finish(),
        sums=sums.sums,
        chosen_weight=sums.chosen_weight,
        chosen_rows=sums.chosen_rows,
        passes=state.passes + 1,
        steps=state.steps + 1,
    )
    if not all(np.isfinite(part).all() for part in (state.f, state.sums, np.diag(state.gram))):
        return replace(state, objective=float("nan"))
    most, magnitudes = max(1.0, float(np.max(state.t))), Magnitudes(*state.magnitudes)
    alpha = state.costs * state.t
    found = find_primal(state.w, state.f, state.y, state.costs, magnitudes)
    bound = find_lower_bound(state.sums[[POSITIVE, NEGATIVE]], state.y, alpha, most, magnitudes, sums.depth)
    state = _keep_best(state, found, bound)
    if not _needs_exact_pass(state, found, bound, tol):
        return _note_progress(state)
    W, biases = lengthen(found, tol)
    losses = Scan(partial(start_exact, len(W)), add_exact, combine_exact, (W, biases, class_costs))
    start = partial(start_exact_sums, len(state.w))
    exact_losses, exact_sums = yield All([losses, Scan(start, add_exact_sums, combine_exact_sums, (), (alpha,))])
    again = state.steps + 2**state.exact_passes
    state = replace(state, passes=state.passes + 1, exact_passes=state.exact_passes + 1, exact_step=again)
    found, bound = choose_exact(W, biases, exact_losses), find_exact_lower_bound(exact_sums, most, magnitudes)
    state = _keep_best(state, found, bound)
    if not state.progress.is_proved(tol) and _is_at_end_of_path(state, tol):
        free = choose_free_rows(state.point, state.costs)
        corrected = correct_sums(exact_sums, (yield Take(free)), state.w, alpha[free], most * state.costs[free])
        bound = find_exact_lower_bound(corrected.sums, most, magnitudes, corrected.magnitude)
        state = _keep_best(state, found, bound, free, corrected.corrections)
    return _note_progress(state)


def _needs_exact_pass(state: State, found: Primal, bound: Dual, tol: float) -> bool:
    """Return whether an exact pass is due: rounding is what stands between this point and the proof that tol asks for.

    An exact pass that proves nothing doubles the number of steps until the next one.
    """
    allowed = tol * found.objective
    near = found.objective - max(state.lower_bound, bound.computed) <= allowed
    lost = state.stuck >= LOST_STEPS and _is_at_end_of_path(state, tol)
    useful = (near or lost or state.progress.is_rounded) and not state.progress.is_proved(tol)
    return useful and state.steps >= state.exact_step


@unwarned
def _is_at_end_of_path(state: State, tol: float) -> bool:
    """Return whether the gap of the central path itself is at most tol P, so that the rest of the gap is rounding."""
    return float(state.costs @ (state.s * state.t + state.xi * state.r)) <= tol * state.objective


def _keep_best(
    state: State, found: Primal, bound: Dual, corrected_rows: I64 | None = None, corrections: F64 | None = None
) -> State:
    """Return the state with the better of its point and the found one, and the better of its bound and the new one."""
    if not np.isfinite([found.objective, found.rounding, bound.bound, bound.rounding]).all():
        return replace(state, objective=float("nan"))
    if found.objective + found.rounding < state.objective + state.rounding:
        state = replace(state, best_w=found.w, best_bias=found.bias, objective=found.objective, rounding=found.rounding)
    if bound.bound > state.lower_bound:
        state = replace(
            state,
            lower_bound=bound.bound,
            lower_rounding=bound.rounding,
            corrected_rows=np.empty(0, np.int64) if corrected_rows is None else corrected_rows,
            corrections=np.empty((0, 2)) if corrections is None else corrections,
        )
    if state.objective - state.lower_bound < -state.rounding:
        raise CertificateError(f"the lower bound {state.lower_bound} is above the objective {state.objective}")
    return state


def _note_progress(state: State) -> State:
    """Return the state with a new count of the steps in a row in which the gap has not fallen."""
    gap = state.objective - state.lower_bound
    if state.last_gap > 0 and gap <= FALLS * state.last_gap:
        return replace(state, last_gap=gap, stuck=0)
    return replace(state, stuck=state.stuck + 1)
