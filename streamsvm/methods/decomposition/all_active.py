"""All rows are active: they are solved in memory until the gap asked for is proved.

    repeat: improve the active set until its gap seems small enough
            form f anew in float64, and from it P and D with bounds of their rounding
    until P and D prove the gap

f is formed in float64 where it enters P or D: in rows with a multiplier, and in rows that may not be beyond the margin
if the error of their float32 sum is allowed for. Kernel columns stay in the cache until the end.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm import interrupts
from streamsvm.methods.decomposition.active_set import MOST_ROUNDS, ActiveSet, Rounds, fill, improve
from streamsvm.methods.decomposition.balance import restore_balance
from streamsvm.methods.decomposition.dual_interior_point import (
    factor_kernel,
    solve_in_factor,
    solve_sides_in_factor,
)
from streamsvm.methods.decomposition.exact_kernels import EXACT_KERNELS, sum_exactly
from streamsvm.methods.decomposition.kernel_columns import ColumnCache
from streamsvm.methods.decomposition.tube import Hinges
from streamsvm.numeric import known_values
from streamsvm.numeric.certificates import choose_stretch
from streamsvm.numeric.kernel_rounding import FAINT
from streamsvm.numeric.kernels import (
    Kernel,
    add_kernel_sums,
    add_linear_sums,
    bound_combination,
    bound_linear_sums,
    combine_rows,
    compute_kernel,
    compute_squares,
    count_items,
    to_float64,
    type_of,
)
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, take_rows, to_dense

MOST_REFINEMENTS = 10
MOST_STRETCHES = 3  # of the multipliers, until all rows on the margin are there for certain
# Rows that are beyond the margin by this, besides twice their error, do not enter P. The unit of a regression is the
# standard deviation of the targets, and that of one class the standard deviation of the scores.
FAR_BEYOND = 0.1
FLOAT64_ROWS = 4096  # rows that are held in float64 at once
UNIT_32 = 2.0**-24  # half the spacing of float32 numbers, as UNIT is that of float64
SMALLEST_32 = 2.0**-126  # the smallest float32 number with all digits
LARGEST_LOSS = 0.1  # beyond, a relative error is not bounded
LARGEST_EXPONENT_LOSS = 100.0  # e^100 times the least float32 value of a Gaussian kernel, e^-87, exceeds any value
MOST_PRODUCTS = 4e8  # of numbers, in a QR factorisation or in kernel values of twice the precision
NOISE_SHARE = 0.1  # if rounding exceeds this share of the violation, kernel values need more digits


def solve_all(
    active: ActiveSet, rounds: Rounds, cache: ColumnCache, share: float, gap: float, largest: float = np.inf
) -> tuple[F64, bool]:
    """Improve alpha until the relative gap is proved to be at most `gap`; f is formed anew in float64.

    share: each improvement goes on until this share of the violation is left; largest: the greatest k_ii.
    Return a bound of the errors of f, (n,), and whether kernel values of more digits would help.
    """
    fill(active, rounds, cache)
    for _ in range(MOST_REFINEMENTS):
        violation = active.settle().violation
        before = active.alpha.copy()
        solved = improve(active, rounds, cache, share * violation, MOST_ROUNDS)
        active.restore_balance(np.empty(0))
        expected = active.f.copy()
        errors = form_exact_sums(active, rounds.kernel, rounds.threads)
        if not np.all(np.isfinite(active.f)):
            return errors, True
        left = active.settle().violation
        noisy = bool(np.max(np.abs(active.f - expected)) > NOISE_SHARE * left)
        proof = active.hinges.prove(errors, largest, gap, rounds.kernel.is_definite)
        if proof.is_within(gap) or np.array_equal(active.alpha, before):
            return errors, noisy and not proof.is_within(gap)
        if not solved or (noisy and type_of(active.X) == np.float32):
            break
    return errors, noisy


def suits_factor(active: ActiveSet, kernel: Kernel) -> bool:
    """Whether the kernel has a factor with which a step of the interior-point method takes well under a second.

    Of fixed sums of multipliers the method is for those that both sides have (nu-SVC and nu-SVR).
    """
    n, d = active.X.shape
    rank = min(n, d) if is_linear(kernel) else n
    is_able = active.totals is None or min(active.totals) > 0.0
    return is_able and kernel.is_definite and max((n + rank) * rank**2, n * n * d) <= MOST_PRODUCTS


def is_linear(kernel: Kernel) -> bool:
    """Whether K is gamma X X' plus a constant. The constant does not enter s'Ks, since sum s = 0."""
    return kernel.name == "linear" or (kernel.name == "poly" and kernel.degree == 1)


def solve_by_interior_point(active: ActiveSet, kernel: Kernel, threads: int, gap: float) -> F64:
    """Replace alpha by the multipliers of `dual_interior_point` and form f; return a bound of the errors of f, (n,)."""
    rows = to_float64(active.X)
    X = np.asarray(to_dense(rows) if isinstance(rows, CsrRows) else rows, np.float64)
    if is_linear(kernel):
        Z = X if kernel.name == "linear" else math.sqrt(kernel.gamma) * X
    else:
        Z = factor_kernel(np.asarray(compute_kernel(kernel, rows, threads), np.float64))
    if active.tube is not None:
        _solve_both_sides(active, Z, gap)
    elif active.totals is not None:
        found = solve_sides_in_factor(Z, active.y, active.costs, gap, active.totals)
        active.alpha[:] = np.minimum(found, active.costs)
        active.restore_balance(np.empty(0))
    else:
        active.alpha[:] = solve_in_factor(Z, active.y, active.costs, gap)
    if kernel.name in EXACT_KERNELS:
        return _form_sums_exactly(active, kernel, X)
    errors = np.zeros(len(X))
    _form_sums(active, kernel, np.arange(len(X)), errors, threads)
    return errors


def _solve_both_sides(active: ActiveSet, Z: F64, gap: float) -> None:
    """Replace sides and multipliers of a regression. The corners are moved to -1 to 1, which shifts the bias alone."""
    both = Hinges(active.y, active.costs, active.alpha, active.f, active.tube).list_both()
    low, high = float(np.min(both.corners)), float(np.max(both.corners))
    scale = (high - low) / 2 or 1.0
    corners = (both.corners - (low + scale)) / scale
    rows = np.vstack((Z, Z)), both.y, both.costs / scale, gap
    if active.totals is None:
        found = scale * solve_in_factor(*rows, corners)
    else:
        found = scale * solve_sides_in_factor(*rows, [total / scale for total in active.totals], corners)
    moved = np.subtract(*np.split(found, 2))
    active.y, active.alpha[:] = np.where(moved < 0, -1.0, 1.0), np.minimum(np.abs(moved), active.costs)
    active.restore_balance(np.empty(0))


def _form_sums_exactly(active: ActiveSet, kernel: Kernel, X: F64) -> F64:
    """Form f in twice the precision; return a bound of its errors, (n,).

    The multipliers are stretched (see numeric.certificates) as long as that lowers the proved P.
    """
    y, costs, largest = active.y, active.costs, kernel.bound_values(float(np.max(np.sum(X * X, axis=1))))
    least_objective, errors, alpha = np.inf, np.empty(0), active.alpha.copy()
    for _ in range(MOST_STRETCHES):
        support = np.flatnonzero(alpha)
        f, f_errors = sum_exactly(kernel, X, X[support], (alpha * y)[support])
        proof = active.hinges._replace(alpha=alpha, f=f).prove(f_errors, largest, 0.0)
        proved_objective = proof.objective + proof.objective_error
        if not proved_objective < least_objective:
            break
        least_objective, errors, active.alpha[:], active.f[:] = proved_objective, f_errors, alpha, f
        if not active.has_labels:
            break
        alpha = np.minimum(choose_stretch(y, costs, alpha, f, f_errors, proof) * alpha, costs)
        restore_balance(y, alpha, costs, np.empty(0))
    return errors


def form_exact_sums(active: ActiveSet, kernel: Kernel, threads: int) -> F64:
    """Form f_i = sum_j a_j y_j k(x_i, x_j) in float64, except for rows that are certainly beyond the margin.

    Return a bound of the errors of f, (n,).
    """
    slacks, errors = active.hinges.find_slacks(), _bound_working_sums(active, kernel)
    far = FAR_BEYOND * _find_unit(active)
    near = np.flatnonzero((active.alpha > 0) | ~(slacks < -(far + 2 * errors)))
    _form_sums(active, kernel, near, errors, threads)
    if len(near) == len(errors):
        active.moved, active.additions = 0.0, 0
    active.errors[near] = errors[near]
    if len(active.terms):
        active.terms[near] = 0.0
    return errors


def bounds_by_terms(kernel: Kernel, X: Matrix) -> bool:
    """Whether each kernel value has a small relative error, so that errors of sums follow from their terms.

    Those of a Gaussian kernel have, and those of a polynomial kernel if nothing is subtracted: no value of X or coef0
    is negative.
    """
    if kernel.name == "poly":
        return kernel.coef0 >= 0.0 and bool(np.min(X.data if isinstance(X, CsrRows) else X, initial=0.0) >= 0.0)
    return kernel.name == "rbf"


def _find_unit(active: ActiveSet) -> float:
    """Return the unit of the slacks: that of labels, of the targets, or of the scores of one class."""
    if active.tube is not None:
        return float(np.std(active.tube.targets))
    return 1.0 if active.totals is None else float(np.std(active.f))


def _bound_working_sums(active: ActiveSet, kernel: Kernel) -> F64:
    """Return a bound, (n,), of the errors of an f that the rounds have updated, each with its own kernel values.

    A kernel value of two rows with `items` stored values each is off by at most `unit` times `shares`. A power of a sum
    of positive terms is off by a share of itself, besides what is lost below SMALLEST_32.
    """
    squares: F64 = compute_squares(active.X, np.float64).astype(np.float64, copy=False)
    longest = float(np.max(squares, initial=0.0))
    items, unit = count_items(active.X), UNIT_32 if type_of(active.X) == np.float32 else UNIT
    shares: F64
    if kernel.name == "linear":  # f comes from w, which is float64
        shares = UNIT / unit * np.sqrt(squares * longest) * (2 * items + len(squares))
    elif kernel.name == known_values.NAME:  # they are as exact as the rows
        shares = np.full(len(squares), UNIT / unit * 2 * len(squares) * kernel.bound_values(longest))
    elif kernel.name == "rbf":
        length_items = 0 if unit == UNIT_32 else items  # the lengths of float32 rows are summed in float64
        lost = unit * ((items + length_items + 10) * kernel.gamma * (squares + longest) + 12)
        shares = 1.01 * np.expm1(np.minimum(lost, LARGEST_EXPONENT_LOSS))
        return active.errors + shares * active.terms + 3 * FAINT * active.moved + _bound_additions(active, active.terms)
    elif len(active.terms):
        of_powers = unit * kernel.degree * (items + 6)
        share = of_powers / (1 - 2 * of_powers) if of_powers < LARGEST_LOSS else np.inf
        below = SMALLEST_32 * kernel.degree * (1 + kernel.gamma * items) * max(1.0, active.largest)
        return active.errors + share * active.terms + below * active.moved + _bound_additions(active, active.terms)
    else:
        sizes = kernel.gamma * np.sqrt(squares * longest) + abs(kernel.coef0)
        degree = kernel.degree if kernel.name == "poly" else 1
        with np.errstate(over="ignore"):
            shares = 2 * (items + degree + 12) * degree * np.maximum(sizes, 1.0) ** degree
    changes = active.largest * active.moved
    errors: F64 = active.errors + unit * shares * active.moved + _bound_additions(active, changes)
    return errors


def _bound_additions(active: ActiveSet, changes: F64 | float) -> F64:
    """Bound the rounding of the additions to f, (n,), given the sum of the magnitudes of what was added.

    Each intermediate sum is f less the later changes, and is rounded once.
    """
    bound: F64 = UNIT * active.additions * (np.abs(active.f) + changes)
    return bound


def _form_sums(active: ActiveSet, kernel: Kernel, rows: I64, errors: F64, threads: int) -> None:
    """Form f of these rows in float64, in place, and write the bounds of their errors into `errors`, (n,)."""
    support = np.flatnonzero(active.alpha)
    columns, coef = to_float64(take_rows(active.X, support)), (active.alpha * active.y)[support]
    w = combine_rows(columns, coef) if kernel.name == "linear" else np.empty(0)
    for at in range(0, len(rows), FLOAT64_ROWS):
        interrupts.check()
        part = rows[at : at + FLOAT64_ROWS]
        X, f, f_errors = take_rows(active.X, part), np.zeros(len(part)), np.zeros(len(part))
        if len(w):
            add_linear_sums(X, w, f, threads)
            f_errors = bound_linear_sums(X, bound_combination(columns, coef))
        else:
            add_kernel_sums(kernel, X, columns, coef, f, threads, errors=f_errors)
        active.f[part], errors[part] = f, f_errors
