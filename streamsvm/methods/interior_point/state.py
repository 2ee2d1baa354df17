"""The state of an interior-point run (interior_point.solver), and the proof of its best point so far.

Every pass `assemble` gives P at the best bias for its w, and D at a feasible multiple of its alpha, both with a bound
of their rounding (interior_point.bounds). `settle` adds them to the state. Where the gap is small enough and only the
rounding bound stands in the way of a proof, a pass in twice the precision finds D of this alpha, and P of this w and of
slightly longer ones. Longer ones help because rounding can put a row of high cost just below its margin of 1, and it
then has a loss that a slightly longer w does not have. Where D is too low at the end of the central path, multipliers
between their bounds are corrected (interior_point.free_multipliers).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streamsvm.errors import CertificateError
from streamsvm.methods.interior_point.best_bias import find_bias
from streamsvm.methods.interior_point.bounds import (
    Dual,
    Magnitudes,
    Primal,
    bound_slack,
    choose_exact,
    find_exact_lower_bound,
    find_lower_bound,
    find_primal,
    lengthen,
)
from streamsvm.methods.interior_point.free_multipliers import MOST_FREE_ROWS, correct_sums
from streamsvm.methods.interior_point.row_numbers import COSTS, Course, T, check_changes, list_changes
from streamsvm.methods.interior_point.row_passes import Measures, add_free, find_smallest, measure
from streamsvm.methods.interior_point.sums import N_SUMS, NEGATIVE, POSITIVE, AssembledSums, add_exact_multipliers
from streamsvm.numeric.exact_losses import add_exact, combine_exact, start_exact
from streamsvm.numeric.exact_sums import combine_exact_sums, start_exact_sums
from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import All, Progress, RowState, Scan, Take

# If the gap has not fallen in so many steps at the end of the path, alpha is not known well enough for a proof.
LOST_STEPS = 3
FALLS = 0.99  # A run is stuck while its gap is above this share of what it was when it last fell.


@dataclass
class State:
    """All that changes from step to step; it is saved as it is. It does not grow with the rows.

    gram, sums, ones and chosen_rows are those of AssembledSums at this point; magnitudes, total_cost, positive_cost,
    largest_cost and counted_rows those of the first pass. complementarity and residual: sum C (s t + xi r), and
    the largest residual.
    change_kinds (m,), change_numbers (m, 7), change_vectors (v, d): all changes of the rows' numbers since the start
    (row_numbers), which a step adds to. objective and lower_bound are the best P and D so far; rounding and
    lower_rounding bound their rounding errors, and the latter is taken off lower_bound already. last_gap: P - D when it
    last fell. exact_step: the first step that may ask for an exact pass again. corrected_rows (k,) and corrections
    (k, 2): the rows whose multipliers were corrected for lower_bound, and their corrections (free_multipliers).
    """

    w: F64
    best_w: F64
    gram: F64
    sums: F64
    change_vectors: F64
    n_rows: int = 0
    change_kinds: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    change_numbers: F64 = field(default_factory=lambda: np.empty((0, len(Course._fields))))
    ones: F64 = field(default_factory=lambda: np.zeros(N_SUMS))
    bias: float = 0.0
    best_bias: float = 0.0
    magnitudes: F64 = field(default_factory=lambda: np.empty((2, 0)))
    total_cost: float = 0.0
    positive_cost: float = 0.0
    largest_cost: float = 0.0
    counted_rows: int = 0
    complementarity: float = 0.0
    residual: float = 0.0
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
        "w": ("d",),
        "best_w": ("d",),
        "gram": ("d", "d"),
        "sums": ("6", "d"),
        "change_kinds": ("m",),
        "change_numbers": ("m", "7"),
        "change_vectors": ("v", "d"),
        "magnitudes": ("2", "d"),
        "corrected_rows": ("k",),
        "corrections": ("k", "2"),
    }
    row_numbers: ClassVar = ("corrected_rows",)
    added: ClassVar = ("corrected_rows", "corrections")

    def check(self) -> None:
        """Raise ValueError if there cannot be such changes, or such a state after them."""
        check_changes(self.change_kinds, self.change_vectors)
        if self.n_rows < 1 or (self.passes > 0 and not len(self.change_kinds)):
            raise ValueError("n_rows, passes: a state with passes over rows has changes of their numbers")
        if self.passes > 0 and self.total_cost <= 0 < self.objective:
            raise ValueError("total_cost: rows without costs have no losses")

    def hold(self, name: str) -> RowState:
        """Return the numbers of the rows at this point, under a name that no other run has."""
        return RowState(name, list_changes(self.change_kinds, self.change_numbers, self.change_vectors))

    def change(self, kind: int, given: Sequence[float] = (), vectors: F64 | None = None) -> State:
        """Return the state with one more change of the rows' numbers."""
        numbers = np.zeros((1, len(Course._fields)))
        numbers[0, : len(given)] = given
        both = self.change_vectors if vectors is None else np.concatenate((self.change_vectors, vectors))
        return replace(
            self,
            change_kinds=np.append(self.change_kinds, kind),
            change_numbers=np.concatenate((self.change_numbers, numbers)),
            change_vectors=both,
        )

    @property
    def mu(self) -> float:
        """The complementarity measure."""
        return self.complementarity / (2 * self.total_cost) if self.total_cost > 0 else 0.0

    @property
    def mean_cost(self) -> float:
        """The mean of the positive costs."""
        return self.total_cost / max(1, self.counted_rows)

    @property
    def r_w(self) -> F64:
        """The residual w - X'Y alpha."""
        missed: F64 = self.w - (self.sums[POSITIVE] - self.sums[NEGATIVE])
        return missed

    @property
    def r_b(self) -> float:
        """The residual y'alpha."""
        return float(self.ones[POSITIVE] - self.ones[NEGATIVE])

    @property
    def progress(self) -> Progress:
        """The best P and D so far, and the passes that found them."""
        both = self.rounding + self.lower_rounding
        return Progress(self.objective, self.lower_bound, self.passes, both, taken_off=self.lower_rounding)


def start_state(n_rows: int, n_features: int) -> State:
    """Return w = 0. The rows begin at the numbers of row_numbers.begin."""
    none, empty = np.zeros(n_features), np.zeros((0, 0))
    return State(none, none, empty, empty, np.zeros((0, n_features)), n_rows)


def settle(
    state: State, name: str, sums: AssembledSums, class_costs: F64, tol: float
) -> Generator[All | Scan | Take, Any, State]:
    """Return the state with the sums of its point and the P and D that they prove; ask for an exact pass if useful.

    name: of the numbers of the rows.
    """
    state = replace(
        state,
        gram=sums.gram.finish(),
        sums=sums.sums,
        ones=sums.ones,
        chosen_rows=sums.chosen_rows,
        passes=state.passes + 1,
        steps=state.steps + 1,
    )
    held, magnitudes = state.hold(name), Magnitudes(*state.magnitudes)
    measured, found = yield from _measure(state, held)
    state = replace(state, complementarity=measured.complementarity, residual=measured.residual)
    if not (measured.is_finite and all(np.isfinite(part).all() for part in (state.sums, np.diag(state.gram)))):
        return replace(state, objective=float("nan"))
    most = max(1.0, measured.most)
    classes = [POSITIVE, NEGATIVE]
    bound = find_lower_bound(sums.sums[classes], sums.ones[classes], most, magnitudes, sums.depth, sums.additions)
    state = _keep_best(state, found, bound)
    if not _needs_exact_pass(state, found, bound, tol):
        return _note_progress(state)
    return _note_progress((yield from _prove_exactly(state, held, found, most, class_costs, tol)))


def _prove_exactly(
    state: State, held: RowState, found: Primal, most: float, class_costs: F64, tol: float
) -> Generator[All | Scan | Take, Any, State]:
    """Return the state with the P and D that an exact pass proves. found: P of this point; most: the largest t."""
    magnitudes, (W, biases) = Magnitudes(*state.magnitudes), lengthen(found, tol)
    losses = Scan(partial(start_exact, len(W)), add_exact, combine_exact, (W, biases, class_costs))
    start = partial(start_exact_sums, len(state.w))
    multipliers = Scan(start, add_exact_multipliers, combine_exact_sums, states=(held,))
    exact_losses, exact_sums = yield All([losses, multipliers])
    again = state.steps + 2**state.exact_passes
    state = replace(state, passes=state.passes + 1, exact_passes=state.exact_passes + 1, exact_step=again)
    found, bound = choose_exact(W, biases, exact_losses), find_exact_lower_bound(exact_sums, most, magnitudes)
    state = _keep_best(state, found, bound)
    if not state.progress.is_proved(tol) and _is_at_end_of_path(state, tol):
        free, numbers = (yield find_smallest(held, MOST_FREE_ROWS, add_free)).by_row()
        alpha, highest = numbers[COSTS] * numbers[T], most * numbers[COSTS]
        corrected = correct_sums(exact_sums, (yield Take(free)), state.w, alpha, highest)
        bound = find_exact_lower_bound(corrected.sums, most, magnitudes, corrected.magnitude)
        state = _keep_best(state, found, bound, free, corrected.corrections)
    return state


def _measure(state: State, held: RowState) -> Generator[Scan, Any, tuple[Measures, Primal]]:
    """Return what the point is, and P at the bias that is best for its w."""
    magnitudes, rounding = Magnitudes(*state.magnitudes), np.finfo(float).eps * state.n_rows * state.total_cost
    bias = yield from find_bias(held, state.n_rows, -state.positive_cost, float(rounding))
    below = bound_slack(state.w, bias, magnitudes)
    measured = yield measure(held, state.bias, bias, below)
    return measured, find_primal(state.w, bias, measured, state.total_cost, state.n_rows, magnitudes)


def _needs_exact_pass(state: State, found: Primal, bound: Dual, tol: float) -> bool:
    """Return whether an exact pass is due: rounding is what stands between this point and the proof that tol asks for.

    An exact pass that proves nothing doubles the number of steps until the next one.
    """
    allowed = tol * found.objective
    near = found.objective - max(state.lower_bound, bound.computed) <= allowed
    lost = state.stuck >= LOST_STEPS and _is_at_end_of_path(state, tol)
    useful = (near or lost or state.progress.is_rounded) and not state.progress.is_proved(tol)
    return useful and state.steps >= state.exact_step


def _is_at_end_of_path(state: State, tol: float) -> bool:
    """Return whether the gap of the central path itself is at most tol P, so that the rest of the gap is rounding."""
    return state.complementarity <= tol * state.objective


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
