"""Crammer-Singer with kernels by decomposition: one problem for all classes, out of core.

    max D(c) = sum_i C_i s_i - 1/2 sum_ik alpha_ik F_ik,    F_ik = sum_j alpha_jk (k(x_i, x_j) + s^2)
    0 <= c_ik for k != y_i,  s_i = sum_k c_ik <= 1,  alpha_ik = -C_i c_ik,  alpha_iy = C_i s_i

All rows are on disk, and the driver holds c_ik, F_ik, C_i and y_i of each row. A step works as in decomposition.solver,
with K shares per row instead of one multiplier:

    an active set is drawn from the rows that violate their condition and from the divided rows, whose cost belongs to
    more than one class
    its rows are read into memory, and their shares improved one working set at a time (kernel_active_set.py)
    one pass updates F of all rows by the rows whose multipliers changed (decomposition.state), and the driver adds
    the contribution of the constant s^2, which is the same for all rows
    P, D and their gap are computed from the shares and F of all rows (certificates.kernel)

No constraint couples the shares of different rows, so there are no pairs and no sides. As in decomposition.solver,
active sets are improved with float32 kernel values, and passes compute in float64.

Sources: Crammer & Singer 2001, "On the algorithmic implementation of multiclass kernel-based vector machines", J.
Machine Learning Research 2; Keerthi, Sundararajan, Chang, Hsieh & Lin 2008, "A sequential dual method for large scale
multi-class linear SVMs", KDD; and the sources of decomposition.solver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import add

import numpy as np

from streamsvm.certificates.kernel import Proof, prove_classes
from streamsvm.kernels.kernel import compute_squares, to_float64, type_of
from streamsvm.losses.classes import multiply_shares, read_costs
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I32, I64, Rows, take_rows
from streamsvm.passes import Requests, Scan, Step, Take
from streamsvm.solvers.crammer_singer.kernel_active_set import ActiveRows, Rounds, improve, judge_rows
from streamsvm.solvers.decomposition import all_active
from streamsvm.solvers.decomposition import solver as two_classes
from streamsvm.solvers.decomposition import state as decomposition
from streamsvm.solvers.decomposition.active_set import ColumnCache
from streamsvm.solvers.decomposition.state import ActiveRowSettings, Change, ProvedState, RowSums
from streamsvm.solvers.decomposition.working_set import LEAST_WEIGHT, complete_draw, draw_rows

STUCK_STEPS = 3  # with all rows active, a run ends after this many steps without progress: more would only repeat them


@dataclass(frozen=True)
class ClassDecomposition(ActiveRowSettings):
    """Settings of a training.

    bias_feature: the constant feature s, whose weights are the biases; the kernel is k(x, z) + s^2.
    """

    bias_feature: float = 1.0

    @property
    def n_classes(self) -> int:
        """The number K of classes."""
        return len(self.class_costs)

    @property
    def constant(self) -> float:
        """The constant s^2 in each kernel value."""
        return self.bias_feature**2

    @property
    def is_definite(self) -> bool:
        """Whether k + s^2 is known to be positive semidefinite, so that there is a lower bound."""
        return self.kernel.is_definite and not (self.kernel.name == "poly" and self.kernel.coef0 < 0.0)

    def bound_values(self, longest: float) -> float:
        """Return an upper bound of |k(x, z) + s^2| for rows with |x|^2 and |z|^2 of at most `longest`."""
        return self.kernel.bound_values(longest) + self.constant


@dataclass
class State(ProvedState):
    """All variables of a training on n rows. Checkpoints store the fields by name.

    share (n, K): c_ik, and s_i for k = y_i (losses.classes). F (n, K): the sums F_ik, including the constant s^2.
    errors (n,): for each row, a bound of the errors of its F_ik. y, costs (n,): class codes and costs, known after the
    first pass. longest: the largest |x_i|^2.
    """

    share: F64
    F: F64
    errors: F64
    y: I32
    costs: F64
    longest: float = 0.0

    def judge(self) -> tuple[F64, F64]:
        """Return the violations (n,), and the lead of each row's best class (n,); see kernel_active_set.judge_rows."""
        _, violations, ahead = judge_rows(np.ascontiguousarray(self.F.T), self.y, self.costs, self.share)
        return violations, ahead

    def prove(self, settings: ClassDecomposition) -> Proof:
        """Return the proof of P and D; raise InputError for numbers beyond the range of float64."""
        decomposition.require_ranges({"the costs": self.costs, "the sums f": self.F, "their errors": self.errors})
        largest = settings.bound_values(self.longest)
        return prove_classes(self.share, self.y, self.costs, self.F, self.errors, largest, settings.is_definite)


def start_state(n_rows: int, n_classes: int, is_definite: bool = True) -> State:
    """Return the state before any row is read, in which all shares are 0."""
    share, F = np.zeros((2, n_rows, n_classes))
    errors, costs = np.zeros((2, n_rows))
    bound = 0.0 if is_definite else math.nan
    return State(share, F, errors, np.zeros(n_rows, np.int32), costs, lower_bound=bound)


def solve(settings: ClassDecomposition, state: State) -> Requests:
    """Train from a state. A run resumed from the state in any `Step` gives the same bits."""
    while True:
        chosen = _choose_active_rows(settings, state)
        active = _make_active(settings, state, chosen, (yield Take(chosen)))
        if len(chosen) == len(state.y):
            state = _solve_all(settings, state, active)
        else:
            before, F_before = active.alpha, active.F.copy()
            rounds = _make_rounds(settings, state, active, None)
            tol = two_classes.ACTIVE_TOL_SHARE * float(np.max(active.judge()[1]))
            improve(active, rounds, ColumnCache.of_size(len(chosen), settings.cache_bytes, type_of(active.X)), tol)
            change, shift = _find_change(settings, active, before)
            expected = F_before + (active.F - F_before) / rounds.damping
            first = state.passes == 0
            tiles = yield Scan(list, decomposition.add_sums, add, (first, settings.pass_threads, *change))
            state = _add_up(settings, state, active, expected.T, decomposition.join_tiles(tiles), shift)
            del change, tiles
        del active  # free the memory before the next rows are taken
        end = decomposition.find_end(settings, state)
        is_stuck = len(chosen) == len(state.y) and state.stuck >= STUCK_STEPS  # no other rows can help
        yield Step(state, state.progress, end or ("stalled" if is_stuck else None))


def _choose_active_rows(settings: ClassDecomposition, state: State) -> I64:
    """Draw the rows of an active set; return their numbers, ascending.

    The first draw is from all rows. Later draws are similar to those of decomposition.working_set. Violators are drawn
    with weights that are the squares of their violations. Divided rows fill half of the set, or more if there are few
    violators. If the set is still not full, it is completed by the rows whose best class has the smallest lead.
    """
    n_rows, rng = len(state.y), np.random.default_rng((settings.seed, state.passes))
    size = settings.count_active(state.is_precise)
    if n_rows <= size:
        return np.arange(n_rows)
    if state.passes == 0:
        return np.sort(rng.choice(n_rows, size, replace=False))
    violations, ahead = state.judge()
    shares = violations / max(float(np.max(violations)), LEAST_WEIGHT)
    free = ahead == 0.0
    others = draw_rows(np.flatnonzero((shares > two_classes.VIOLATION_SHARE) & ~free), shares**2, size, rng)
    some_free = draw_rows(np.flatnonzero(free), shares, max(size // 2, size - len(others)), rng)
    drawn = np.concatenate((some_free, others[: size - len(some_free)]))
    return complete_draw(drawn, ahead, size)


def _make_active(settings: ClassDecomposition, state: State, chosen: I64, taken: Rows) -> ActiveRows:
    """Return the active set of the chosen rows, in float32, or in float64 if float32 is too coarse."""
    costs = read_costs(np.array(settings.class_costs), taken)
    decomposition.require_ranges({"the costs": costs})
    longest = max(state.longest, float(np.max(compute_squares(taken.X, np.float64), initial=0.0)))
    precise = decomposition.needs_float64(settings, state, len(state.y), longest)
    X, y = to_float64(taken.X) if precise else taken.X, np.require(taken.codes, np.int32, requirements="W")
    return ActiveRows(X, y, costs, state.share[chosen], np.ascontiguousarray(state.F[chosen].T), chosen)


def _make_rounds(settings: ClassDecomposition, state: State, active: ActiveRows, gap: float | None) -> Rounds:
    """Return the settings of the rounds that improve the active set in this step."""
    least = two_classes.ESCALATION_ROWS if two_classes.is_escalated(state, len(state.y)) else 0
    size = min(max(settings.working_rows, least), len(active.rows))
    rng, damping = np.random.default_rng((settings.seed, state.passes, 1)), _choose_damping(state, active)
    return Rounds(settings.kernel, settings.constant, size, settings.threads, rng, damping, gap)


def _choose_damping(state: State, active: ActiveRows) -> float:
    """Return sqrt(1 + v / m) for m active rows and v undivided violators, or 1 if all rows are active.

    decomposition.solver explains damping.
    """
    n_rows = n_violators = len(state.y)
    if len(active.rows) == n_rows:
        return 1.0
    if state.passes:
        violations, ahead = state.judge()
        least = two_classes.VIOLATION_SHARE * float(np.max(violations))
        n_violators = int(np.count_nonzero((violations > least) & (ahead > 0.0)))
    return math.sqrt(1.0 + n_violators / len(active.rows))


def _find_change(settings: ClassDecomposition, active: ActiveRows, before: F64) -> tuple[Change, tuple[F64, F64]]:
    """Return the change of F that a pass applies to each row, and the contribution of the constant s^2.

    The contribution, (K,), is the same for all rows; it is returned with a bound of its error, (1,).
    """
    coefs = active.alpha - before
    changed = np.flatnonzero(np.any(coefs != 0.0, axis=1))
    coefs = np.ascontiguousarray(coefs[changed].T)
    shift = settings.constant * np.sum(coefs, axis=1)
    size = float(np.max(np.sum(np.abs(coefs), axis=1), initial=0.0))
    error = np.full(1, UNIT * (len(changed) + 4) * settings.constant * size)
    return decomposition.make_change(settings.kernel, to_float64(take_rows(active.X, changed)), coefs), (shift, error)


def _solve_all(settings: ClassDecomposition, state: State, active: ActiveRows) -> State:
    """Return the state after a step in which all rows are active. F is updated in memory, without a pass."""
    longest = float(np.max(compute_squares(active.X, np.float64), initial=0.0))
    state = after = replace(state, y=active.y, costs=active.costs, longest=longest)
    if state.progress.rounding_bound > all_active.NOISE_SHARE * settings.tol * state.objective:
        blank = np.zeros_like(state.F)  # the rounding of earlier sums is too large: recompute F
        after = replace(after, share=blank, F=blank, errors=np.zeros_like(state.errors))
    rounds = _make_rounds(settings, state, active, two_classes.FLOAT32_GAP_SHARE * settings.tol)
    cache, noisy = ColumnCache.of_size(len(active.rows), settings.cache_bytes, type_of(active.X)), False
    for _ in range(all_active.MOST_REFINEMENTS):
        before, violation = multiply_shares(after.share, after.y, after.costs), float(np.max(active.judge()[1]))
        solved = improve(active, rounds, cache, two_classes.ALL_ACTIVE_TOL_SHARE * violation)
        change, (shift, error) = _find_change(settings, active, before)
        F, errors = decomposition.sum_change(change, active.X, settings.threads)
        F += after.F + shift
        errors += after.errors + error + _bound_additions(F, after.F + shift)
        noise = float(np.max(np.abs(F - active.F.T)))
        after = replace(after, share=active.share.copy(), F=F, errors=errors)
        active.F = np.ascontiguousarray(F.T)
        left = float(np.max(active.judge()[1]))
        noisy = noise > all_active.NOISE_SHARE * left
        if after.prove(settings).is_within(settings.tol):
            noisy = False
            break
        if not solved or not change.coefs.size + change.W.size or noisy:
            break
    return decomposition.move(settings, state, after, noisy)[0]


def _add_up(
    settings: ClassDecomposition, state: State, active: ActiveRows, expected: F64, sums: RowSums, shift: tuple[F64, F64]
) -> State:
    """Return the state after a pass. expected (m, K): F of the active rows, computed with their kernel matrix."""
    if state.passes == 0:
        y, weight = sums.y, sums.sample_weight
        assert y is not None
        codes = np.require(y, np.int32, requirements="W")
        costs = read_labels(settings.class_costs, codes, weight)[1]
        state = replace(state, y=codes, costs=costs, longest=sums.longest)
    share = state.share.copy()
    share[active.rows] = active.share
    F = state.F + (sums.f + shift[0])
    errors = state.errors + sums.errors + shift[1] + _bound_additions(F, state.F)
    moved = replace(state, share=share, F=F, errors=errors)
    left = float(np.max(moved.judge()[0]))
    noisy = bool(np.max(np.abs(expected - F[active.rows])) > all_active.NOISE_SHARE * left)
    return decomposition.move(settings, state, moved, noisy)[0]


def _bound_additions(F: F64, part: F64) -> F64:
    """Bound the rounding error of F = a + (b + c) in each row, (n,).

    part: either a or b + c; the magnitude of either is at most |F| plus the magnitude of the other.
    """
    bound: F64 = UNIT * (2 * np.max(np.abs(F), axis=1) + np.max(np.abs(part), axis=1))
    return bound
