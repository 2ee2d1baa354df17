"""A working set's problem by a QP library: the place that LOQO and others have in Osuna's and Joachims' decomposition.

    min over d    1/2 d'(Q + ridge I) d + g'd      subject to   -a0 <= d <= C - a0,   y'd = 0          d = a - a0

PIQP (Schwan, Jiang, Kuhn & Jones 2023) solves it by a proximal interior-point method, dense. The ridge is the least of
0, 1e-12, 1e-11, ... (of the largest |K_ii|) for which Q + ridge I has a Cholesky factor. It is centred on a0, so where
K is indefinite (sigmoid kernel) the problem solved bounds F from above and touches it at a0: F still falls.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf

from streamsvm.errors import InputError
from streamsvm.methods.decomposition.pair_updates import solve_by_few_pairs
from streamsvm.methods.decomposition.working_set import WorkingSet
from streamsvm.numeric.rows import F64


def solve_by_qp(problem: WorkingSet, tol: float) -> F64:
    """Return alpha (q,) of the working set with m(alpha) - M(alpha) <= tol, by PIQP.

    tol: absolute, in units of the errors. The library's point lies a little inside the box and misses y'a = y'a0 a
    little: rows whose bound has the larger multiplier go to it, the others make up the sum, and pair steps
    (`solve_by_few_pairs`) remove what violation is left; with an indefinite K these do the larger part of the work.
    F never rises above the start's; equal input gives equal bits. Raises InputError if PIQP is not installed.
    """
    if problem.violation() <= tol:
        return problem.alpha.copy()
    best = problem.best_towards(problem.repair(_solve_with_piqp(problem, tol)))
    if not problem.objective(best) < 0.0:  # rounding has the better of it
        best = problem.alpha
    return solve_by_few_pairs(problem.moved_to(best), tol)


def _solve_with_piqp(problem: WorkingSet, tol: float) -> F64:
    """Return the library's multipliers, those near a bound put on it; a0 where it finds none."""
    try:
        import piqp
    except ImportError as error:
        raise InputError("the inner solver 'qp' needs the package PIQP: install streamsvm[qp]") from error
    rows = np.flatnonzero(problem.costs > 0)
    alpha, y, costs = problem.alpha[rows], problem.y[rows], problem.costs[rows]
    hessian = _make_definite(problem.K[np.ix_(rows, rows)].astype(np.float64) * np.outer(y, y))
    solver = piqp.DenseSolver()
    solver.settings.eps_abs, solver.settings.eps_rel = min(1e-8, tol / 100), 1e-10
    solver.settings.eps_duality_gap_abs, solver.settings.eps_duality_gap_rel = min(1e-8, tol / 100), 1e-10
    gradient = y * problem.f[rows] - 1.0
    solver.setup(hessian, gradient, y[None, :], np.zeros(1), x_l=-alpha, x_u=costs - alpha)
    solver.solve()
    result = solver.result
    point = alpha + result.x
    point[result.z_bl > np.maximum(point, 0.0)] = 0.0
    upper = result.z_bu > np.maximum(costs - point, 0.0)
    point[upper] = costs[upper]
    target = problem.alpha.copy()
    if np.all(np.isfinite(point)):
        target[rows] = point
    return target


def _make_definite(hessian: F64) -> F64:
    """Add the least ridge of the ladder that makes the matrix positive definite."""
    size = float(np.max(np.abs(np.diagonal(hessian)))) or 1.0
    for ridge in size * np.append(0.0, 10.0 ** np.arange(-12, 12)):
        ridged = hessian.copy(order="F")
        ridged.flat[:: len(hessian) + 1] += ridge
        if dpotrf(ridged, lower=1)[1] == 0:
            break
    return ridged
