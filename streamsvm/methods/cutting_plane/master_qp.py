"""The master problem of cutting planes: a small quadratic program over a simplex, by an active-set method.

    cuts    a_c = sum_i C_i c_i y_i x_i,  b_c = sum_i C_i c_i       loss(w) >= b_c - w.a_c;  m of them
    dual    D(z) = b'z - 1/2 z'Gz,   z >= 0,  sum z <= 1            G = A A';  D(z) <= the SVM's objective
    primal  M(z) = 1/2 z'Gz + max(0, max_c g_c)                     w = A'z,  g = b - Gz the gradient of D
    gap     M(z) - D(z) = max(0, max_c g_c) - z'g

This is line 4 of Algorithm 1 of Joachims 2006, solved by its dual OP3. C is in the cuts, so the simplex has size 1.

The loss is never negative, which is one more cut, with a = 0 and b = 0. Its multiplier is 1 - sum z. Inside this module
it is the last of the m + 1 entries of z, which then lies on the unit simplex, and the gap is max_c g_c - z'g.

Method: Wolfe 1976, "Finding the nearest point in a polytope" (Math. Programming 11), with a linear term. A face is a
set of cuts that may have z > 0. Newton's step on it either ends inside, at the face's optimum, and the most promising
cuts join the face; or it ends where a multiplier reaches zero, and that cut leaves the face. D always rises. However
many cuts there are, few are on the last face (d + 1 suffice). So a warm start takes some ten small Cholesky
factorisations, the multipliers on the face are exact to rounding, and all other multipliers are exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm.numeric.rows import F64, I64

Face = npt.NDArray[np.bool_]

STEPS_PER_CUT = 10  # This bounds the work. Cuts of real data took about 3 at most, from z = 0.
EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class MasterSolution:
    """Feasible multipliers z (m,); value = D(z), a lower bound of the SVM's objective; gap = M(z) - D(z) >= 0."""

    z: F64
    value: float
    gap: float


@dataclass(frozen=True)
class _Cuts:
    """The products G (m, m) of the cuts without the zero cut; offsets b and norms |a|, (m+1,), the zero cut's last."""

    gram: F64
    offsets: F64
    norms: F64


def solve_master(gram: F64, offsets: F64, start: F64, tol: float) -> MasterSolution:
    """Maximise D(z) = b'z - 1/2 z'Gz over z >= 0, sum z <= 1, until M(z) - D(z) <= tol.

    gram (m, m): G, finite, symmetric, positive semidefinite to rounding, singular or not; offsets (m,): b;
    start (m,): multipliers to go on from, which are made feasible first; tol: an absolute gap, in the units of D. If
    float64 cannot resolve the gap, the solution tells the gap that is left. Nothing is raised, and equal input gives
    equal bits.
    """
    cuts = _Cuts(gram, np.append(offsets, 0.0), np.sqrt(np.append(np.maximum(gram.diagonal(), 0.0), 0.0)))
    z = make_feasible(start)
    face = z > 0
    at_optimum_of_face = True
    for _ in range(STEPS_PER_CUT * len(z)):
        gradient = _compute_gradient(cuts, z)
        if gradient.max() - z @ gradient <= tol:
            break
        if at_optimum_of_face:
            joining = _choose_joining(cuts, z, gradient, face)
            if not joining.size:
                break
            face[joining] = True
        step = _find_newton_step(cuts, z, gradient, face)
        shares = np.divide(z, -step, out=np.ones(len(z)), where=-step > z)  # of the step, to where z_c reaches 0
        leaving = int(shares.argmin())
        z = np.maximum(z + shares[leaving] * step, 0.0)
        at_optimum_of_face = bool(shares[leaving] == 1.0)
        if not at_optimum_of_face:
            z[leaving], face[leaving] = 0.0, False
    return _certify(cuts, z)


def make_feasible(start: F64) -> F64:
    """Return multipliers (m+1,) on the unit simplex, the zero cut's last.

    Entries that are negative or not a number become zero, and the others are scaled to a sum of at most 1.
    """
    z = np.where(start > 0, start, 0.0)
    z /= max(1.0, z.sum())
    rest = 1.0 - z.sum()
    return np.append(z, rest if rest > EPS * len(z) else 0.0)


def _compute_gradient(cuts: _Cuts, z: F64) -> F64:
    """Return g = b - Gz, from the rows of the cuts with z > 0 only: they are few, and G is large."""
    gradient = cuts.offsets.copy()
    used = np.flatnonzero(z[:-1])
    gradient[:-1] -= z[used] @ cuts.gram[used]
    return gradient


def _choose_joining(cuts: _Cuts, z: F64, gradient: F64, face: Face) -> I64:
    """Choose the cuts that join the face. The products of w = A'z with the cuts are known, and w is not."""
    return choose_joining(gradient, z, cuts.offsets, cuts.norms, float(cuts.norms @ z), face)


def choose_joining(gradient: F64, z: F64, offsets: F64, norms: F64, length: float, face: Face) -> I64:
    """Choose the cuts towards which D rises most, or none if none is violated by more than rounding.

    On the line from z to the vertex of cut c, D has slope g_c - z'g and curvature |a_c - w|^2, and can rise by
    slope^2 / (2 curvature). The best cut joins, and so do cuts that are at least half as good, up to a quarter of the
    face. This saves most of the steps if many cuts are needed, and costs a few steps if cuts are near copies. The best
    cut may be on the face already, if rounding kept it from the face's optimum: then one more step on the face is
    needed. length: the sum of the lengths of the terms that w is summed from; it bounds the rounding of g_c.
    """
    slope = gradient - z @ gradient
    products = offsets - gradient
    size = np.abs(offsets) + norms * length
    rounding = 8 * EPS * (size + z @ size)
    curvature = np.maximum(norms**2 - 2 * products + z @ products, rounding + TINY)
    rise = np.where(slope > rounding, slope * (slope / curvature), 0.0)
    best = np.argsort(rise, kind="stable")[-1 - np.count_nonzero(face) // 4 :]
    joining: I64 = best[(rise[best] > 0) & (rise[best] >= rise.max() / 2)]
    return joining


def _find_newton_step(cuts: _Cuts, z: F64, gradient: F64, face: Face) -> F64:
    """Find the step, of sum zero, from z to the optimum of the face (disregarding z >= 0).

    The cuts are measured from one of them, the reference r, whose multiplier follows from sum z = 1. The other
    multipliers are then free, with slope g_c - g_r and curvature (a_c - a_r).(a_d - a_r). The reference is the zero cut
    if that is on the face, or else the cut with the largest multiplier: long cuts have small multipliers, and
    differences from a long vector would cost digits.
    """
    step = np.zeros(len(z))
    zero_cut = len(z) - 1
    reference = zero_cut if face[zero_cut] else int(np.where(face, z, -1.0).argmax())
    others = np.flatnonzero(face)
    others = others[others != reference]
    if not others.size:
        return step
    slope = gradient[others] - gradient[reference]
    curvature = cuts.gram[np.ix_(others, others)]
    if reference != zero_cut:
        shared = cuts.gram[reference, others]
        curvature += cuts.gram[reference, reference] - shared - shared[:, None]
    size = cuts.norms**2 + np.abs(cuts.offsets)
    step[others] = _solve_semidefinite(curvature, slope, size[others] + size[reference])
    step[reference] = -step.sum()
    return step


def _solve_semidefinite(matrix: F64, right: F64, size: F64) -> F64:
    """Solve (matrix + shift) x = right by Cholesky; the shift is diagonal, of the order of rounding.

    size (k,): magnitude of the terms that the entries of each row were summed from. If the matrix is singular and D has
    a slope in that direction, the shift makes the step long but finite, and a cut leaves the face. Otherwise the shift
    changes the gap by no more than rounding, since z <= 1. It grows until a factor exists.
    """
    for shift in 4 * EPS * 10.0 ** np.arange(0, 18, 2):
        shifted = matrix.copy()
        shifted.flat[:: len(right) + 1] += shift * size + TINY
        factor, failed_at = dpotrf(shifted, lower=1)
        if failed_at == 0:
            break
    solution: F64 = dpotrs(factor, right, lower=1)[0]
    return solution


def _certify(cuts: _Cuts, z: F64) -> MasterSolution:
    """Return the multipliers of the cuts, with D and the gap evaluated from them alone."""
    z = z[:-1] / max(1.0, z[:-1].sum())
    gradient = _compute_gradient(cuts, np.append(z, 0.0))
    value = z @ (cuts.offsets[:-1] + gradient[:-1]) / 2
    return MasterSolution(z, float(value), max(0.0, float(gradient.max() - z @ gradient[:-1])))
