"""A working set's problem solved by a QP library, as Osuna's and Joachims' decompositions use LOQO.

    min over d    1/2 d'(Q + ridge I) d + g'd      subject to   -a0 <= d <= C - a0,   y'd = 0          d = a - a0

PIQP (Schwan, Jiang, Kuhn & Jones 2023) solves this problem by a proximal interior-point method with dense matrices. The
ridge is the least of 0, 1e-12, 1e-11, ... times the largest |K_ii| for which Q + ridge I has a Cholesky factor. The
ridge penalises the distance from a0. Where K is indefinite (sigmoid kernel), the solved problem therefore bounds F from
above and equals it at a0, so that F still falls.
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

    tol: absolute, in units of the errors. The library's point lies slightly inside the box and misses y'a = y'a0
    slightly. A row goes to a bound if the bound's own multiplier is larger than the distance from it; the other rows
    make up the sum; and pair steps (`solve_by_few_pairs`) remove the remaining violation, which is the larger part of
    the work if K is indefinite. F is never above its value at the start, and equal input gives equal bits.
    InputError if PIQP is not installed.
    """
    if problem.violation() <= tol:
        return problem.alpha.copy()
    best = problem.best_towards(problem.repair(_solve_with_piqp(problem, tol)))
    if not problem.objective(best) < 0.0:  # rounding has hidden the gain
        best = problem.alpha
    return solve_by_few_pairs(problem.moved_to(best), tol)


def _solve_with_piqp(problem: WorkingSet, tol: float) -> F64:
    """Return the library's multipliers, with those near a bound put on it, or a0 if they are not finite."""
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
    gradient = -y * problem.errors[rows]
    solver.setup(hessian, gradient, y[None, :], np.zeros(1), x_l=-alpha, x_u=costs - alpha)
    solver.solve()
    result = solver.result
    point = alpha + result.x
    point[result.z_bl > np.maximum(point, 0.0)] = 0.0
    at_cost = result.z_bu > np.maximum(costs - point, 0.0)
    point[at_cost] = costs[at_cost]
    target = problem.alpha.copy()
    if np.all(np.isfinite(point)):
        target[rows] = point
    return target


def _make_definite(hessian: F64) -> F64:
    """Return the matrix plus the least ridge of the list for which a Cholesky factor exists."""
    largest = float(np.max(np.abs(np.diagonal(hessian)))) or 1.0
    for ridge in largest * np.append(0.0, 10.0 ** np.arange(-12, 12)):
        ridged = hessian.copy(order="F")
        ridged.flat[:: len(hessian) + 1] += ridge
        if dpotrf(ridged, lower=1)[1] == 0:
            break
    return ridged
