"""The master problem of cutting planes: a small quadratic program over a simplex, by an active-set method.

    cuts    a_c = sum_i C_i c_i y_i x_i,  b_c = sum_i C_i c_i       loss(w) >= b_c - w.a_c;  m of them
    dual    D(z) = b'z - 1/2 z'Gz,   z >= 0,  sum z <= 1            G = A A';  D(z) <= the SVM's objective
    primal  M(z) = 1/2 z'Gz + max(0, max_c g_c)                     w = A'z,  g = b - Gz the gradient of D
    gap     M(z) - D(z) = max(0, max_c g_c) - z'g

(Joachims 2006, line 4 of Algorithm 1 by way of its dual OP3; C is in the cuts, so the simplex has size 1.)

What sum z leaves of 1 is the multiplier of one more cut, a = 0 and b = 0: the loss is never negative. Inside
this module it is the last of the m + 1 entries of z, which lies on the unit simplex; gap = max_c g_c - z'g.

Method: Wolfe 1976, "Finding the nearest point in a polytope" (Math. Programming 11), with a linear term. A
face is a set of cuts that may have z > 0. Newton's step on it either ends inside, at the face's optimum, and
the most promising cuts join; or it ends where a multiplier reaches zero, and that cut leaves. D always rises.
However many the cuts, few are on the last face (d + 1 suffice): a warm start takes some ten small Cholesky
factorisations, its multipliers are exact to rounding, and those of the other cuts are exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvm.numeric.rows import F64, I64

Face = npt.NDArray[np.bool_]

STEPS_PER_CUT = 10  # a bound on the work; real cuts took about 3 at most, from z = 0
EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class MasterSolution:
    """z (m,) feasible; value = D(z), a lower bound of the SVM's objective; gap = M(z) - D(z) >= 0."""

    z: F64
    value: float
    gap: float


@dataclass(frozen=True)
class _Cuts:
    """G (m, m) of the cuts proper; b and |a| (m+1,) with those of the zero cut."""

    gram: F64
    offsets: F64
    norms: F64


def solve_master(gram: F64, offsets: F64, start: F64, tol: float) -> MasterSolution:
    """Maximise D(z) = b'z - 1/2 z'Gz over z >= 0, sum z <= 1, until M(z) - D(z) <= tol.

    gram (m, m): G, finite, symmetric, positive semidefinite to rounding, singular or not; offsets (m,): b;
    start (m,): multipliers to go on from, made feasible first; tol: absolute, in the units of D. A gap that
    float64 cannot resolve is left standing and reported. Raises nothing; equal input gives equal bits.
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
        shares = np.divide(z, -step, out=np.ones(len(z)), where=-step > z)  # of the step, until z_c = 0
        leaving = int(shares.argmin())
        z = np.maximum(z + shares[leaving] * step, 0.0)
        at_optimum_of_face = bool(shares[leaving] == 1.0)
        if not at_optimum_of_face:
            z[leaving], face[leaving] = 0.0, False
    return _certify(cuts, z)


def make_feasible(start: F64) -> F64:
    """Drop what is negative or not a number, scale to a sum of at most 1, append the zero cut's share."""
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
    """Choose the cuts that join the face, given what is known of w = A'z: its products with the cuts."""
    return choose_joining(gradient, z, cuts.offsets, cuts.norms, float(cuts.norms @ z), face)


def choose_joining(gradient: F64, z: F64, offsets: F64, norms: F64, length: float, face: Face) -> I64:
    """Choose the cuts towards which D rises most; none if none is violated by more than rounding.

    On the line from z to the vertex of cut c, D has slope g_c - z'g and curvature |a_c - w|^2, and can rise
    by slope^2 / (2 curvature). Besides the best, cuts at least half as good join, up to a quarter of the
    face: where many are needed this saves most of the steps; among near copies it costs a few. The best may
    be on the face already, where rounding left it short: then another step on the face is all that is needed.
    length: of the terms that w is summed from, whose products with a cut have rounded its g_c.
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

    The cuts are measured from one of them, the reference r, whose multiplier follows from sum z = 1: the
    others are then free, with slope g_c - g_r and curvature (a_c - a_r).(a_d - a_r). The reference is the
    zero cut if that is on the face, else the largest multiplier: long cuts have small ones, and differences
    from a long vector would cost digits.
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

    size (k,): magnitude of the terms that the entries of row k were summed from. Where the matrix is singular
    and D has a slope, the shift makes the step so long that a cut leaves; elsewhere it does not matter: as
    z <= 1, it alters the gap by rounding. Where it is too small for a factor to exist it grows.
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
    """Evaluate D and M at z, afresh."""
    z = z[:-1] / max(1.0, z[:-1].sum())
    gradient = _compute_gradient(cuts, np.append(z, 0.0))
    value = z @ (cuts.offsets[:-1] + gradient[:-1]) / 2
    return MasterSolution(z, float(value), max(0.0, float(gradient.max() - z @ gradient[:-1])))
