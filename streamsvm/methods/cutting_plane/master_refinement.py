"""The master problem of cutting planes, solved with the cuts themselves if their products have too few digits.

`master_qp` knows the cuts a_c only by their products G = A A'. If the cuts are long and w = A'z is short, the curvature
that matters is a small difference of large entries of G. With costs of 1e6 and features of 1e4, products of 1e26 have
to give |w|^2 of 1e8, and no digit of it is left. This module goes on with the same active-set method (Wolfe 1976; see
master_qp for z, b, g, D and M) and the vectors a_c. It solves for a step by a QR factorisation, which is to Cholesky's
factor of G what QR is to the normal equations in least squares:

    face      the cuts that may have z > 0, measured from one of them, r:  B has the rows a_c - a_r
    step      u with (B B') u = g_c - g_r,  by  [B' ; diag(shift)] = Q R,  R' R u = g_c - g_r
    minimiser w + B'u, carried beside z, because long cuts magnify the error eps sum z_c |a_c| of A'z

So M(w) = 1/2 |w|^2 + max(0, max_c b_c - a_c.w) is evaluated at the w that is carried, and D(z) at the multipliers z.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr, solve_triangular

from streamsvm.methods.cutting_plane.master_qp import EPS, TINY, Face, MasterSolution, choose_joining, make_feasible
from streamsvm.numeric.rows import F64

STEPS_PER_CUT = 4
PATIENCE = 30  # If so many steps in a row have not lowered the gap to PROGRESS of itself, rounding is the limit.
PROGRESS = 0.9


def refine_master(cuts: F64, offsets: F64, start: F64, tol: float) -> tuple[MasterSolution, F64]:
    """Go on from `start` until M(w) - D(z) <= tol; return the solution, and the minimiser w, (width,).

    cuts (m, width), offsets (m,): a_c and b_c, finite; start (m,): multipliers. If float64 cannot resolve the gap, the
    solution tells the gap that is left. Nothing is raised, and equal input gives equal bits.
    """
    if cuts.shape[1] > len(cuts):  # in the span of the cuts, a cut has fewer coordinates
        basis, coordinates = qr(np.array(cuts.T, order="F"), mode="economic", overwrite_a=True, check_finite=False)
        solution, w = _refine(np.ascontiguousarray(coordinates.T), offsets, start, tol)
        return solution, basis @ w
    return _refine(cuts, offsets, start, tol)


def _refine(cuts: F64, offsets: F64, start: F64, tol: float) -> tuple[MasterSolution, F64]:
    vectors, b = np.vstack((cuts, np.zeros(cuts.shape[1]))), np.append(offsets, 0.0)
    norms = np.linalg.norm(vectors, axis=1)
    z = make_feasible(start)
    face, w, at_optimum_of_face = z > 0, z @ vectors, True
    best_z, best_w, value, model, idle = z, w, -np.inf, np.inf, 0
    for _ in range(STEPS_PER_CUT * len(z) + PATIENCE):
        gradient = b - vectors @ w
        combined = z @ vectors
        new_value, new_model = float(z @ b - combined @ combined / 2), float(w @ w / 2 + gradient.max())
        before = model - value
        best_z, value = (z, new_value) if new_value > value else (best_z, value)
        best_w, model = (w, new_model) if new_model < model else (best_w, model)
        idle = 0 if model - value < PROGRESS * before else idle + 1
        if model - value <= tol or idle > PATIENCE:
            break
        if at_optimum_of_face:
            joining = choose_joining(gradient, z, b, norms, float(np.sqrt(w @ w)), face)
            if not joining.size:
                break
            face[joining] = True
        step, moved = _find_step(vectors, norms, z, gradient, face)
        shares = np.divide(z, -step, out=np.ones(len(z)), where=-step > z)
        leaving = int(shares.argmin())
        z, w = np.maximum(z + shares[leaving] * step, 0.0), w + shares[leaving] * moved
        at_optimum_of_face = bool(shares[leaving] == 1.0)
        if not at_optimum_of_face:
            z[leaving], face[leaving] = 0.0, False
    shares = best_z[:-1] / max(1.0, best_z[:-1].sum())
    return MasterSolution(shares, value, max(0.0, model - value)), best_w


def _find_step(vectors: F64, norms: F64, z: F64, gradient: F64, face: Face) -> tuple[F64, F64]:
    """Return the step of z to the optimum of the face, whose sum is zero, and the step of w that goes with it."""
    step, last = np.zeros(len(z)), len(z) - 1
    reference = last if face[last] else int(np.where(face, z, -1.0).argmax())
    others = np.flatnonzero(face)
    others = others[others != reference]
    if not others.size:
        return step, np.zeros(vectors.shape[1])
    B = vectors[others] - vectors[reference]
    slope = gradient[others] - gradient[reference]
    shift = 4 * EPS * (norms[others] + norms[reference]) + TINY**0.5
    features = np.argsort(-np.max(np.abs(B), axis=0), kind="stable")  # With long rows first, QR is accurate row by row.
    stacked = np.concatenate((B.T[features], np.diag(shift)))
    Q, R, order = qr(stacked, mode="economic", pivoting=True, check_finite=False)
    found = solve_triangular(R, slope[order], trans="T", check_finite=False)
    step[others[order]] = solve_triangular(R, found, check_finite=False)
    step[reference] = -step.sum()
    moved = np.empty(vectors.shape[1])
    moved[features] = Q[: len(moved)] @ found  # B'u would be less accurate, as u is solved with R once more
    return step, moved
