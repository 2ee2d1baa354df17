"""Crammer-Singer with kernels by decomposition: one problem for all classes, out of core.

    max D(c) = sum_i C_i s_i - 1/2 sum_ik alpha_ik F_ik,    F_ik = sum_j alpha_jk (k(x_i, x_j) + s^2)
    0 <= c_ik for k != y_i,  s_i = sum_k c_ik <= 1,  alpha_ik = -C_i c_ik,  alpha_iy = C_i s_i

All rows are on disk, and the driver holds c_ik, F_ik, C_i and y_i of each row. A step is that of
decomposition.solver, with K shares a row in place of one multiplier:

    an active set is drawn from the rows that violate their condition and from rows whose shares may move both ways
    its rows are taken into memory, and one working set after another improves their shares (active_set.py)
    one pass updates F of all rows by the rows whose multipliers changed (sums.py)
    P, D and their gap follow from the shares and F over all rows (numeric.class_certificates)

Since no condition ties the shares of one row to those of another, there are no pairs and no sides. Active sets are
improved with float32 kernel values, and passes compute in float64, as there.

Sources: Crammer & Singer 2001, "On the algorithmic implementation of multiclass kernel-based vector machines", J.
Machine Learning Research 2; Keerthi, Sundararajan, Chang, Hsieh & Lin 2008, "A sequential dual method for large scale
multi-class linear SVMs", KDD; and the sources of decomposition.solver.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from streamsvm.methods.class_decomposition.active_set import ActiveRows, Rounds, improve
from streamsvm.methods.class_decomposition.state import (
    ClassDecomposition,
    State,
    prove_state,
    update_state,
)
from streamsvm.methods.class_decomposition.sums import ClassChange, add_class_sums, make_change, sum_change
from streamsvm.methods.decomposition.active_rows import ESCALATION_ROWS, is_escalated
from streamsvm.methods.decomposition.kernel_columns import ColumnCache
from streamsvm.methods.decomposition.proved_state import STUCK_STEPS, find_end
from streamsvm.methods.decomposition.row_sums import RowSums, combine_sums
from streamsvm.methods.decomposition.selection import LEAST_WEIGHT, draw_rows, find_largest
from streamsvm.methods.decomposition.settings import suits_float32
from streamsvm.methods.decomposition.state import require_range
from streamsvm.numeric.class_losses import read_costs
from streamsvm.numeric.class_shares import multiply_shares
from streamsvm.numeric.kernels import compute_squares, to_float64, type_of
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, Rows, take_rows
from streamsvm.requests import Scan, Solver, Step, Take

ACTIVE_TOL_SHARE = 0.1  # an active set is solved to this share of its violation
ALL_ACTIVE_TOL_SHARE = 1e-4  # the share if all rows are active, unless the gap is small enough before
MEMORY_GAP_SHARE = 0.5  # the gap in memory is this share of the gap asked for, as it is larger in float64
VIOLATION_SHARE = 0.01  # rows that violate by less than this share of the largest violation need not be active
MOST_REFINEMENTS = 10  # of a step in which all rows are active
NOISE_SHARE = 0.1  # if rounding exceeds this share of the violation, kernel values need more digits


def solve(settings: ClassDecomposition, state: State) -> Solver:
    """Go on from a state. Each `Step` carries the whole state, from which `solve` would go on to the same bits."""
    while True:
        chosen = _choose_active_rows(settings, state)
        active = _make_active(settings, state, chosen, (yield Take(chosen)))
        if len(chosen) == len(state.y):
            state = _solve_all(settings, state, active)
        else:
            before, F_before = active.alpha, active.F.copy()
            rounds = _make_rounds(settings, state, active, None)
            improve(active, rounds, _open_cache(settings, active), ACTIVE_TOL_SHARE * float(np.max(active.judge()[1])))
            change, shift = _find_change(settings, active, before)
            expected = F_before + (active.F - F_before) / rounds.damping
            first = state.passes == 0
            sums = yield Scan(RowSums, add_class_sums, combine_sums, (*change, first, settings.pass_threads))
            state = _add_up(settings, state, active, expected.T, sums, shift)
            del change, sums
        del active  # frees the memory before the next rows are taken
        end = find_end(state, settings.tol, settings.is_definite)
        is_stuck = len(chosen) == len(state.y) and state.stuck >= STUCK_STEPS  # other rows cannot change it
        yield Step(state, state.progress, end or ("stalled" if is_stuck else None))


def _choose_active_rows(settings: ClassDecomposition, state: State) -> I64:
    """Draw the rows of an active set, ascending: any rows at first, later violators, and rows that may move both ways.

    As in decomposition.selection, violators are drawn with the squares of their violations as weights, and the others
    make up half of the set, or what the violators leave. The rows that are nearest to another best class complete it.
    """
    n_rows, rng = len(state.y), np.random.default_rng((settings.seed, state.passes))
    size = settings.precise_rows if state.is_precise else settings.resident_rows
    if n_rows <= size:
        return np.arange(n_rows)
    if state.passes == 0:
        return np.sort(rng.choice(n_rows, size, replace=False))
    violations, ahead = state.judge()
    shares = violations / max(float(np.max(violations)), LEAST_WEIGHT)
    free = ahead == 0.0
    others = draw_rows(np.flatnonzero((shares > VIOLATION_SHARE) & ~free), shares**2, size, rng)
    some_free = draw_rows(np.flatnonzero(free), shares, max(size // 2, size - len(others)), rng)
    drawn = np.concatenate((some_free, others[: size - len(some_free)]))
    is_other = np.ones(n_rows, np.bool_)
    is_other[drawn] = False
    rest = np.flatnonzero(is_other)
    return np.sort(np.concatenate((drawn, rest[find_largest(-ahead[rest], size - len(drawn))])))


def _make_active(settings: ClassDecomposition, state: State, chosen: I64, taken: Rows) -> ActiveRows:
    """Return the active set of the chosen rows, in float32 or, if that is too coarse, in float64."""
    assert taken.y is not None
    costs = read_costs(np.array(settings.class_costs), taken)
    require_range(costs, "the costs")
    longest = max(state.longest, float(np.max(compute_squares(taken.X, np.float64), initial=0.0)))
    is_small = len(state.y) <= min(settings.working_rows, settings.resident_rows)
    precise = is_small or state.is_precise or not suits_float32(settings.kernel, longest)
    return ActiveRows(
        X=to_float64(taken.X) if precise else taken.X,
        y=np.require(taken.y, np.int32, requirements="W"),
        costs=costs,
        share=state.share[chosen],
        F=np.ascontiguousarray(state.F[chosen].T),
        rows=chosen,
    )


def _make_rounds(settings: ClassDecomposition, state: State, active: ActiveRows, gap: float | None) -> Rounds:
    """Return how the active set is improved in this step."""
    least = ESCALATION_ROWS if is_escalated(state, len(state.y)) else 0
    return Rounds(
        kernel=settings.kernel,
        constant=settings.constant,
        size=min(max(settings.working_rows, least), len(active.rows)),
        threads=settings.threads,
        rng=np.random.default_rng((settings.seed, state.passes, 1)),
        damping=_choose_damping(state, active),
        gap=gap,
    )


def _choose_damping(state: State, active: ActiveRows) -> float:
    """Return sqrt(1 + v / m) for m active rows, where v rows that violate have all their cost in one place.

    See decomposition.solver. It is 1 if all rows are active.
    """
    n_rows = n_violators = len(state.y)
    if len(active.rows) == n_rows:
        return 1.0
    if state.passes:
        violations, ahead = state.judge()
        least = VIOLATION_SHARE * float(np.max(violations))
        n_violators = int(np.count_nonzero((violations > least) & (ahead > 0.0)))
    return math.sqrt(1.0 + n_violators / len(active.rows))


def _open_cache(settings: ClassDecomposition, active: ActiveRows) -> ColumnCache:
    return ColumnCache.of_size(len(active.rows), settings.cache_bytes, type_of(active.X))


def _find_change(settings: ClassDecomposition, active: ActiveRows, before: F64) -> tuple[ClassChange, tuple[F64, F64]]:
    """Return by what a pass changes F, and what the constant adds to F of every row, (K,), with its error."""
    coefs = active.alpha - before
    changed = np.flatnonzero(np.any(coefs != 0.0, axis=1))
    coefs = np.ascontiguousarray(coefs[changed].T)
    shift = settings.constant * np.sum(coefs, axis=1)
    size = float(np.max(np.sum(np.abs(coefs), axis=1), initial=0.0))
    error = np.full(1, UNIT * (len(changed) + 4) * settings.constant * size)
    return make_change(settings.kernel, to_float64(take_rows(active.X, changed)), coefs), (shift, error)


def _solve_all(settings: ClassDecomposition, state: State, active: ActiveRows) -> State:
    """Return the state after a step in which all rows are active: F is brought up to date in memory."""
    longest = float(np.max(compute_squares(active.X, np.float64), initial=0.0))
    state = after = replace(state, y=active.y, costs=active.costs, longest=longest)
    if state.progress.rounding_bound > NOISE_SHARE * settings.tol * state.objective:
        blank = np.zeros_like(state.F)  # the rounding of earlier sums is too large: F is formed anew
        after = replace(after, share=blank, F=blank, errors=np.zeros_like(state.errors))
    rounds = _make_rounds(settings, state, active, MEMORY_GAP_SHARE * settings.tol)
    cache, noisy = _open_cache(settings, active), False
    for _ in range(MOST_REFINEMENTS):
        before, violation = multiply_shares(after.share, after.y, after.costs), float(np.max(active.judge()[1]))
        solved = improve(active, rounds, cache, ALL_ACTIVE_TOL_SHARE * violation)
        change, (shift, error) = _find_change(settings, active, before)
        F, errors = sum_change(change, active.X, settings.threads)
        F += after.F + shift
        errors += after.errors + error + _bound_additions(F, after.F + shift)
        noise = float(np.max(np.abs(F - active.F.T)))
        after = replace(after, share=active.share.copy(), F=F, errors=errors)
        active.F = np.ascontiguousarray(F.T)
        left = float(np.max(active.judge()[1]))
        noisy = noise > NOISE_SHARE * left
        if prove_state(settings, after).is_within(settings.tol):
            noisy = False
            break
        if not solved or not change.coefs.size + change.W.size or noisy:
            break
    return update_state(settings, state, after, noisy)


def _add_up(
    settings: ClassDecomposition,
    state: State,
    active: ActiveRows,
    expected: F64,
    sums: RowSums,
    shift: tuple[F64, F64],
) -> State:
    """Return the state after a pass. expected: F of the active rows as their own kernel values tell it, (m, K)."""
    if state.passes == 0:
        y, weight = sums.y, sums.sample_weight
        assert y is not None
        codes = np.require(y, np.int32, requirements="W")
        costs = np.array(settings.class_costs)[codes]
        costs = costs if weight is None else costs * weight
        state = replace(state, y=codes, costs=costs, longest=sums.longest)
    share = state.share.copy()
    share[active.rows] = active.share
    F = state.F + (sums.f + shift[0])
    errors = state.errors + sums.errors + shift[1] + _bound_additions(F, state.F)
    moved = replace(state, share=share, F=F, errors=errors)
    left = float(np.max(moved.judge()[0]))
    noisy = bool(np.max(np.abs(expected - F[active.rows])) > NOISE_SHARE * left)
    return update_state(settings, state, moved, noisy)


def _bound_additions(F: F64, part: F64) -> F64:
    """Bound the rounding of a + (b + c) = F, (n,). part: a or b + c, since each is at most |F| plus the other."""
    bound: F64 = UNIT * (2 * np.max(np.abs(F), axis=1) + np.max(np.abs(part), axis=1))
    return bound
