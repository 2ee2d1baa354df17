"""The state of an interior-point run (interior_point.solver), the proof of its best point, and its dual point.

Every pass `assemble` gives P at the best bias for its w, and D at a feasible multiple of its alpha, each with a bound
on its rounding error (`find_primal`, `find_lower_bound`). `settle` adds them to the state. If the gap is small enough
and only the rounding bounds prevent a proof, a pass in twice the precision computes D of this alpha, and P of this w
and of slightly longer multiples of it. Longer multiples help because rounding can put a row of high cost just below its
margin of 1; it then has a loss, which vanishes for a slightly longer w. If D is too low at the end of the central path,
the multipliers that lie strictly between their bounds are corrected (`correct_sums`). The dual point consists of the
shares alpha_i / C_i (certificates.dual_points).

    P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, s_i),   s_i = 1 - y_i (f_i + b),   f = X w
    D(c)    = 2 c l - c^2 / 2 |v|^2,   v = l / l_+ sum_{y_i > 0} alpha_i x_i - l / l_- sum_{y_i < 0} alpha_i x_i

P and D are the primal and dual objectives (2.11) and (2.14) of Jung, O'Leary & Tits 2008, whose tau_i is C_i. P is
evaluated at the best bias for w, and D at a feasible point made from alpha: l_+ and l_- are the sums of alpha over the
two classes, and l is the smaller sum. The multipliers of the heavier class are scaled down to the sum l, so that
y'alpha = 0 holds, and c then scales the multipliers of both classes.

Every bound on a rounding error is gamma_n times a sum of magnitudes (numeric.rounding). The first pass collects the
magnitudes of each feature of X: sum_i C_i |x_ij|, and the largest |x_ij|.

    |s_i - fl(s_i)| <= gamma (sum_j |w_j| |x_ij| + |b| + 1),   |v_j - fl(v_j)| <= gamma sum_i alpha_i |x_ij|

A row whose computed s_i is further below 0 than rounding can explain has no loss. So there are two bounds on the error
of the loss, and we take the smaller one: the worst row's bound times the costs of all other rows, or the sum of the
bounds of all rows.

Corrections of the multipliers between their bounds give lower bounds that the central path alone cannot prove:

    v = sum_i alpha_i y_i x_i,   delta = argmin |w - v - sum_{i in F} delta_i y_i x_i|   where y'(alpha + delta) = 0

At the optimum, v = w (Jung, O'Leary & Tits 2008, (3.1)). A step computes alpha only to a few units in the last place.
If the rows are long and |w| is short, as with features far from the origin, v then differs much from w, and D of alpha
is far below P even close to the optimum. So the multipliers of a set F of rows, which are far from their bounds, are
corrected by delta until v equals w. The corrections are not added to alpha, because the sum would be rounded. They are
summed separately, in twice the precision, and each is returned as a pair of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import lstsq

from streamsvm.certificates import double_double
from streamsvm.certificates.double_double import ExactLosses, ExactSums, start_exact_sums
from streamsvm.certificates.dual_points import DualPoint
from streamsvm.numeric.rounding import UNIT, add_pairs, bound_rounding
from streamsvm.numeric.rows import F64, I64, Rows, to_dense
from streamsvm.passes import All, Progress, RowState, Scan, Take, axes, grows
from streamsvm.solvers.interior_point import passes
from streamsvm.solvers.interior_point.passes import N_SUMS, NEGATIVE, POSITIVE, AssembledSums, Measures, Smallest
from streamsvm.solvers.interior_point.steps import COSTS, Course, T, check_changes, list_changes, unwarned
from streamsvm.system.errors import CertificateError

# After this many steps at the end of the path without a lower gap, alpha is not precise enough for a proof.
LOST_STEPS = 3
FALLS = 0.99  # A run is stuck until its gap falls to this share of the last gap that counted as a fall.
IN_PAIRS = 64  # an upper limit of the additions to a term of np.sum: blocks of 128 in eight sums, then pairwise sums
FEW = 8  # an upper limit of the number of roundings in the computation of a term, before it is added
LEAST = 5e-324  # the additional error of a product below the smallest normal number
LENGTHS = (0.0, 2.0**-48, 2.0**-36)  # An exact pass evaluates w lengthened by these shares, and by tol / 16.
MOST_FREE_ROWS = 512  # With 5,000 features, their matrix takes 20 MB.
MOST_CORRECTIONS = 20  # the maximum number of corrections; each moves a multiplier at most halfway to its bound
PATIENCE = 3  # Corrections end when more than this many in a row did not halve the error.


@dataclass
class State:
    """The state of a run, saved as it is; its size does not depend on the number of rows.

    gram, sums, ones and chosen_rows are those of AssembledSums at this point; magnitudes, total_cost, positive_cost,
    largest_cost and counted_rows are those of the first pass. complementarity and residual: sum C (s t + xi r), and
    the largest residual. change_kinds (m,), change_numbers (m, 7), change_vectors (v, d): all changes of the row
    states since the start (interior_point.steps); every step appends to them. objective and lower_bound are the best P
    and D so far; rounding and lower_rounding bound their rounding errors, and lower_rounding is already subtracted from
    lower_bound. last_gap: P - D when it last fell. exact_step: the first step that may request another exact pass.
    corrected_rows (k,) and corrections (k, 2): the rows whose multipliers were corrected for lower_bound, and their
    corrections (`correct_sums`).
    """

    w: F64 = axes("d")
    best_w: F64 = axes("d")
    gram: F64 = axes("d", "d")
    sums: F64 = axes("6", "d")
    change_vectors: F64 = axes("v", "d")
    n_rows: int = 0
    change_kinds: I64 = grows("m", dtype=np.int64)
    change_numbers: F64 = grows("m", "7")
    ones: F64 = field(default_factory=lambda: np.zeros(N_SUMS))
    bias: float = 0.0
    best_bias: float = 0.0
    magnitudes: F64 = grows("2", "d")
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
    corrected_rows: I64 = grows("k", dtype=np.int64)
    corrections: F64 = grows("k", "2")
    row_numbers: ClassVar = ("corrected_rows",)
    added: ClassVar = ("corrected_rows", "corrections")

    def check(self) -> None:
        """Raise ValueError if the changes are invalid, or if the state cannot result from them."""
        check_changes(self.change_kinds, self.change_vectors)
        if self.n_rows < 1 or (self.passes > 0 and not len(self.change_kinds)):
            raise ValueError("n_rows, passes: a state after passes over the rows must list changes of the row states")
        if self.passes > 0 and self.total_cost <= 0 < self.objective:
            raise ValueError("total_cost: it must be positive if the objective is")

    def hold(self, name: str) -> RowState:
        """Return the row states at this point. name: a name that is unique to the run."""
        return RowState(name, list_changes(self.change_kinds, self.change_numbers, self.change_vectors))

    def change(self, kind: int, given: Sequence[float] = (), vectors: F64 | None = None) -> State:
        """Return the state with one more change of the row states. given: the scalars of the change."""
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
        """The complementarity measure mu."""
        return self.complementarity / (2 * self.total_cost) if self.total_cost > 0 else 0.0

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
        """The best P and D so far, with their rounding errors, and the number of passes."""
        both = self.rounding + self.lower_rounding
        return Progress(self.objective, self.lower_bound, self.passes, both, taken_off=self.lower_rounding)


def start_state(n_rows: int, n_features: int) -> State:
    """Return the state at w = 0; the row states start as in steps.begin."""
    none, empty = np.zeros(n_features), np.zeros((0, 0))
    return State(none, none, empty, empty, np.zeros((0, n_features)), n_rows)


def settle(
    state: State, name: str, sums: AssembledSums, class_costs: F64, tol: float
) -> Generator[All | Scan | Take, Any, State]:
    """Return the state with the sums of its point and the P and D they prove; run an exact pass if that may help.

    name: the name of the row states.
    """
    of_point = {name: getattr(sums, name) for name in ("sums", "ones", "chosen_rows")}
    state = replace(state, gram=sums.gram.finish(), **of_point, passes=state.passes + 1, steps=state.steps + 1)
    held = state.hold(name)
    bias_error = float(np.finfo(float).eps * state.n_rows * state.total_cost)
    bias = yield from passes.find_bias(held, state.n_rows, -state.positive_cost, bias_error)
    about = state.bias, bias, bound_slack(state, bias)
    measured: Measures = yield passes.scan_states(held, Measures, passes.add_measures, *about)
    found = find_primal(state, bias, measured)
    state = replace(state, complementarity=measured.complementarity, residual=measured.residual)
    if not (measured.is_finite and all(np.isfinite(part).all() for part in (state.sums, np.diag(state.gram)))):
        return replace(state, objective=float("nan"))
    most, found_sums = max(1.0, measured.most), (sums.sums[[POSITIVE, NEGATIVE]], sums.ones[[POSITIVE, NEGATIVE]])
    bound = find_lower_bound(*found_sums, most, state.magnitudes, sums.depth, sums.additions)
    state = _keep_best(state, found, bound)
    if _needs_exact_pass(state, found, bound, tol):
        state = yield from _prove_exactly(state, held, found, most, class_costs, tol)
    return _note_progress(state)


def _prove_exactly(
    state: State, held: RowState, found: Primal, most: float, class_costs: F64, tol: float
) -> Generator[All | Scan | Take, Any, State]:
    """Return the state with the P and D that an exact pass proves. found: P at this point; most: the largest t."""
    lengths = 1.0 + np.array([*LENGTHS, tol / 16])
    W, biases = lengths[:, None] * found.w, lengths * found.bias
    start_losses, shared = partial(double_double.start_exact, len(W)), (W, biases, class_costs)
    losses = Scan(start_losses, double_double.add_exact, add, shared)
    start = partial(start_exact_sums, len(state.w))
    multipliers = Scan(start, passes.add_exact_multipliers, add, states=(held,))
    exact_losses, exact_sums = yield All([losses, multipliers])
    again = state.steps + 2**state.exact_passes
    state = replace(state, passes=state.passes + 1, exact_passes=state.exact_passes + 1, exact_step=again)
    found, bound = choose_exact(W, biases, exact_losses), find_exact_lower_bound(exact_sums, most, state.magnitudes)
    state = _keep_best(state, found, bound)
    if not state.progress.is_proved(tol) and _is_at_end_of_path(state, tol):
        smallest = partial(Smallest, MOST_FREE_ROWS)
        free, numbers = (yield passes.scan_states(held, smallest, passes.add_free)).by_row()
        alpha, highest = numbers[COSTS] * numbers[T], most * numbers[COSTS]
        corrected = correct_sums(exact_sums, (yield Take(free)), state.w, alpha, highest)
        bound = find_exact_lower_bound(corrected.sums, most, state.magnitudes, corrected.magnitude)
        state = _keep_best(state, found, replace(bound, rows=free, corrections=corrected.corrections))
    return state


def _needs_exact_pass(state: State, found: Primal, bound: Dual, tol: float) -> bool:
    """Return whether an exact pass is due, because only rounding prevents the proof of a gap of tol at this point.

    Every exact pass doubles the number of steps until the next one.
    """
    allowed = tol * found.objective
    near = found.objective - max(state.lower_bound, bound.computed) <= allowed
    lost = state.stuck >= LOST_STEPS and _is_at_end_of_path(state, tol)
    useful = (near or lost or state.progress.is_rounded) and not state.progress.is_proved(tol)
    return useful and state.steps >= state.exact_step


def _is_at_end_of_path(state: State, tol: float) -> bool:
    """Return whether the central path's own gap is at most tol P. If so, any larger gap is due to rounding."""
    return state.complementarity <= tol * state.objective


def _keep_best(state: State, found: Primal, bound: Dual) -> State:
    """Return the state with the new point and the new bound, each only if it is better than the stored one."""
    if not np.isfinite([found.objective, found.rounding, bound.bound, bound.rounding]).all():
        return replace(state, objective=float("nan"))
    if found.objective + found.rounding < state.objective + state.rounding:
        state = replace(state, best_w=found.w, best_bias=found.bias, objective=found.objective, rounding=found.rounding)
    if bound.bound > state.lower_bound:
        state = replace(
            state,
            lower_bound=bound.bound,
            lower_rounding=bound.rounding,
            corrected_rows=bound.rows,
            corrections=bound.corrections,
        )
    if state.objective - state.lower_bound < -state.rounding:
        raise CertificateError(
            f"the lower bound {state.lower_bound} is above the objective {state.objective}: this is a bug in "
            "streamsvm; please report it with the data and command"
        )
    return state


def _note_progress(state: State) -> State:
    """Return the state with an updated count of consecutive steps in which the gap has not fallen."""
    gap = state.objective - state.lower_bound
    if state.last_gap > 0 and gap <= FALLS * state.last_gap:
        return replace(state, last_gap=gap, stuck=0)
    return replace(state, stuck=state.stuck + 1)


def read_point(state: State, share: F64) -> DualPoint:
    """Return the dual point C t of a state whose lower bound has just risen, with the corrections behind the bound.

    share (n,): t of all rows. If some t exceeds 1, all shares and corrections are divided by a power of two. Division
    by max t would change the last digits of alpha, and the corrections are valid only for these very digits.
    """
    most, exponent = math.frexp(max(1.0, float(np.max(share))))
    if (most, exponent) == (0.5, 1):
        return DualPoint(share=share, rows=state.corrected_rows, corrections=state.corrections)
    factor = 2.0**-exponent
    corrections = factor * state.corrections
    return DualPoint(share=factor * share, most=most, rows=state.corrected_rows, corrections=corrections)


@dataclass(frozen=True)
class Primal:
    """A point (w, bias) and its objective P, whose error is at most `rounding`."""

    w: F64
    bias: float
    objective: float
    rounding: float


@dataclass(frozen=True)
class Dual:
    """A lower bound on the optimum that holds in spite of rounding, and the computed D.

    `bound` is below `computed` for two reasons: the rounding error is subtracted from D, and the multiple of alpha is
    chosen for the largest |v| that rounding allows. rows (k,), corrections (k, 2): the rows whose multipliers were
    corrected for the bound, and their corrections.
    """

    bound: float
    computed: float
    rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    corrections: F64 = field(default_factory=lambda: np.empty((0, 2)))

    @property
    def rounding(self) -> float:
        """The amount by which rounding lowers the bound."""
        return self.computed - self.bound


def gamma(n_terms: int) -> float:
    """Return gamma_n for n = n_terms (numeric.rounding)."""
    return bound_rounding(n_terms, 1.0)


@unwarned
def bound_slack(state: State, bias: float) -> float:
    """Return a bound, for every row, on the error of 1 - y (f + b) with the computed f = X w."""
    return gamma(len(state.w) + FEW) * (float(np.abs(state.w) @ state.magnitudes[1]) + abs(bias) + 1.0)


@unwarned
def find_primal(state: State, bias: float, measures: Measures) -> Primal:
    """Return P at this bias, and a bound on its rounding error.

    measures: the measures of the point, computed with this bias; their rounding bound is the `bound_slack` of this
    bias.
    """
    w, losses, half_square = state.w, measures.losses, float(state.w @ state.w) / 2
    rounding = gamma(IN_PAIRS + measures.additions + FEW) * losses
    if w.any():  # If w is 0, so is f, and s is exact.
        of_all = gamma(len(w) + FEW) * (float(np.abs(w) @ state.magnitudes[0]) + (abs(bias) + 1.0) * state.total_cost)
        rounding += min(of_all, bound_slack(state, bias) * measures.losing)
        rounding += gamma(len(w) + FEW) * half_square + (state.n_rows + len(w)) * LEAST
    return Primal(w, bias, half_square + losses, rounding)


@unwarned
def find_lower_bound(sums: F64, ones: F64, most: float, magnitudes: F64, depth: int, additions: int = 0) -> Dual:
    """Return D at a feasible point made from alpha (n,), where 0 <= alpha <= most C.

    The multipliers of the heavier class are scaled down until y'alpha = 0; then D is maximised over the multiples
    c alpha. sums (2, d), ones (2,): sum alpha_i x_i and sum alpha_i of the classes +1 and -1. Every term of `sums` went
    through `depth` additions. The terms of `ones` were added by np.sum, tile by tile, and the sums of the tiles went
    through `additions` more. magnitudes (2, d): sum_i C_i |x_ij|, and the largest |x_ij|, over all rows of positive
    cost.
    """
    up, down = ones.tolist()
    lighter = min(up, down)
    if lighter <= 0:
        return Dual(0.0, 0.0)
    v = lighter / up * sums[0] - lighter / down * sums[1]
    in_pairs = IN_PAIRS + additions
    missed = gamma(depth + 2 * in_pairs + FEW) * _bound_sums(2 * lighter, most, magnitudes)
    return _maximise(v, 2 * lighter, most, missed, in_pairs)


@unwarned
def find_exact_lower_bound(sums: ExactSums, most: float, magnitudes: F64, corrections: float = 0.0) -> Dual:
    """Return the bound of `find_lower_bound` from sums in twice the precision.

    most: alpha is at most this multiple of C. corrections: the sum of the magnitudes of all changes of alpha that are
    part of the sums (`correct_sums`).
    """
    lighter, v = sums.balance()
    terms = _bound_sums(2 * lighter, most, magnitudes) + 2 * corrections * magnitudes[1]
    return _maximise(v, 2 * lighter, most, sums.share * terms)


def _bound_sums(total: float, most: float, magnitudes: F64) -> F64:
    """Return bounds (d,) on sum_i alpha_i |x_ij|, given alpha_i <= most C_i and sum_i alpha_i = total."""
    bounds: F64 = np.minimum(most * magnitudes[0], total * magnitudes[1])
    return bounds


def _maximise(v: F64, total: float, most: float, missed: F64, in_pairs: int = IN_PAIRS) -> Dual:
    """Return the largest D(c) for 0 <= c <= 1 / most, less its rounding.

    missed (d,): bounds of the errors of v (d,). in_pairs: the number of additions that a term of `total` went through.
    """
    peak, share = float(np.max(np.abs(v) + missed)), gamma(2 * in_pairs + FEW)
    if peak == 0.0:
        return Dual((1.0 - share) * total / most, total / most)
    length, computed = (np.abs(v) + missed) / peak, v / peak  # Without the scaling, |v|^2 may overflow.
    square = float(length @ length) * (1.0 + gamma(len(v) + FEW))
    bound, multiple = _choose_multiple(square, peak, total, most)
    return Dual(bound - share * multiple * total, _choose_multiple(float(computed @ computed), peak, total, most)[0])


def _choose_multiple(square: float, peak: float, total: float, most: float) -> tuple[float, float]:
    """Return the largest c total - (c peak)^2 / 2 square over 0 <= c <= 1 / most, and the c that attains it."""
    multiple = min(1.0 / most, total / peak / square / peak) if square > 0 else 1.0 / most
    short = multiple * peak
    return multiple * total - short * short / 2 * square, multiple


@unwarned
def choose_exact(W: F64, biases: F64, totals: ExactLosses) -> Primal:
    """Return the point with the least P + rounding bound. totals: the losses of all points in twice the precision."""
    losses, missed = totals.read(W.shape[1])
    half_squares = np.sum(W * W, axis=1) / 2
    objectives = half_squares + losses
    missed = missed + gamma(W.shape[1] + FEW) * half_squares + UNIT * objectives
    best = int(np.argmin(objectives + missed))
    return Primal(W[best].copy(), float(biases[best]), float(objectives[best]), float(missed[best]))


class Corrected(NamedTuple):
    """The sums over all rows after the correction, and the corrections of the free rows.

    corrections (k, 2): for each free row two numbers, whose sum is the correction in twice the precision. magnitude:
    the sum of the magnitudes of all corrections, including those that were later undone.
    """

    sums: ExactSums
    corrections: F64
    magnitude: float


@unwarned
def correct_sums(sums: ExactSums, rows: Rows, w: F64, alpha: F64, highest: F64) -> Corrected:
    """Correct the multipliers of `rows` so that v approaches w; return the corrected sums and the corrections.

    sums: the sums over all rows before the correction. alpha (k,): the multipliers of `rows`. highest (k,): their upper
    bounds. The corrected multipliers stay between 0 and `highest`.
    """
    X = to_dense(rows.X)
    length, n_features = float(np.max(np.abs(X), initial=0.0)) or 1.0, len(w)
    room = np.maximum(np.minimum(alpha, highest - alpha), 0.0)
    y = np.where(rows.y == 1, 1.0, -1.0)
    columns = (y * room)[:, None] * np.column_stack((X.astype(np.float64), np.full(len(alpha), length)))
    moved, rest, magnitude = np.zeros(len(alpha)), np.zeros(len(alpha)), 0.0
    best, least, idle = Corrected(sums, np.zeros((len(alpha), 2)), magnitude), np.inf, 0
    if not np.isfinite(columns).all():
        return best
    for _ in range(MOST_CORRECTIONS):
        total, rounded = add_pairs(sums.totals[1], sums.rests[1], -sums.totals[0], -sums.rests[0])
        difference = total + rounded  # v = sum alpha_i y_i x_i and y'alpha, each rounded only once
        lacking = np.append(w - difference[:-1], -length * float(difference[-1]))
        size = float(np.linalg.norm(lacking))
        idle = 0 if size <= least / 2 else idle + 1
        if idle > PATIENCE or not np.isfinite(size):
            break
        if size < least:
            best, least = Corrected(sums, np.stack((moved, rest), axis=1), magnitude), size
        found = lstsq(columns.T, lacking, check_finite=False, lapack_driver="gelsy")[0]
        at = alpha + moved
        change = np.clip(room * found, -at / 2, np.maximum(highest - at, 0.0) / 2)
        own = start_exact_sums(n_features)
        double_double.add_exact_sums(own, rows, change)
        sums = sums + own
        moved, rest = add_pairs(moved, rest, change, np.zeros(len(alpha)))
        magnitude += float(np.sum(np.abs(change)))
    return best
