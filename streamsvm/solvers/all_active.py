"""All rows are active: they are solved in memory to the gap asked for, and f is made exact on the way.

    repeat: improve the active set with float32 kernel values, until its gap seems small enough
            form f anew in float64, and so P and D
    until they prove it

f is exact where it has a share in P or D: in rows with a multiplier, and those that float32 does not put well beyond
the margin (MNIST: one row in six). The kernel columns in the cache serve until the end.
"""

from __future__ import annotations

import numpy as np

from streamsvm import interrupts
from streamsvm.numeric.certificates import certify, find_best_bias
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, add_linear_sums, fold, to_float64
from streamsvm.numeric.rows import I64, take_rows
from streamsvm.solvers.active_set import MOST_ROUNDS, ActiveSet, ColumnCache, Rounds, improve
from streamsvm.solvers.selection import find_conditions

REFINEMENTS = 10
FAR = 0.1  # well beyond the margin, in units of the margin
ROUNDING = 8  # times the largest error of float32 that was seen is less than FAR, or nothing is far
PART_ROWS = 4096  # so many are held in float64 at once


def solve_all(active: ActiveSet, rounds: Rounds, cache: ColumnCache, share: float, gap: float) -> None:
    """Improve alpha until the relative gap is proved, by a share of the violation at least; f becomes exact."""
    for _ in range(REFINEMENTS):
        before = active.alpha.copy()
        violation = find_conditions(active.y, active.costs, active.alpha, active.f).violation
        improve(active, rounds, cache, share * violation, MOST_ROUNDS)
        form_exact_sums(active, rounds.kernel, rounds.threads)
        proved = certify(active.y, active.costs, active.alpha, active.f)
        if proved.relative_gap <= gap or np.array_equal(active.alpha, before):
            return


def form_exact_sums(active: ActiveSet, kernel: Kernel, threads: int) -> None:
    """f_i = sum_j a_j y_j k(x_i, x_j) in float64, of all rows but those that are far beyond the margin."""
    margins = active.y * (active.f + find_best_bias(active.y, active.costs, active.f))
    far = (active.alpha == 0) & (margins > 1 + FAR)
    before, near = active.f.copy(), np.flatnonzero(~far)
    _form_sums(active, kernel, near, threads)
    error = float(np.max(np.abs(active.f - before)))
    if ROUNDING * error > FAR:
        _form_sums(active, kernel, np.flatnonzero(far), threads)


def _form_sums(active: ActiveSet, kernel: Kernel, rows: I64, threads: int) -> None:
    support = np.flatnonzero(active.alpha)
    columns, coef = to_float64(take_rows(active.X, support)), (active.alpha * active.y)[support]
    w = fold(columns, coef) if kernel.name == "linear" else np.empty(0)
    for at in range(0, len(rows), PART_ROWS):
        interrupts.check()
        part = rows[at : at + PART_ROWS]
        X, f = take_rows(active.X, part), np.zeros(len(part))
        if len(w):
            add_linear_sums(X, w, f, threads)
        else:
            add_kernel_sums(kernel, X, columns, coef, f, threads)
        active.f[part] = f
