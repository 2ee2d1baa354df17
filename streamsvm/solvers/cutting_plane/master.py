"""The master problem over the cuts: line 4 of Algorithms 1 and 2 of Joachims 2006, solved through its dual OP3.

    cuts    loss(w) >= b_c - w.a_c;  a_c = sum_i C_i c_i y_i x_i,  b_c = sum_i C_i c_i;  m of them
    dual    D(z) = b'z - 1/2 z'Gz,   z >= 0,  sum z <= 1            G = A A';  D(z) <= the SVM's objective
    primal  M(z) = 1/2 z'Gz + max(0, max_c g_c)                     w = A'z,  g = b - Gz the gradient of D
    gap     M(z) - D(z) = max(0, max_c g_c) - z'g

The cuts include the costs, so the simplex has size 1. The bound loss >= 0 is one more cut, the zero cut: a = 0, b = 0,
with multiplier 1 - sum z. In `solve_master` this multiplier is the last of the m + 1 entries of z. Then z lies on the
unit simplex, and the gap is max_c g_c - z'g.

Method: Wolfe 1976, "Finding the nearest point in a polytope" (Math. Programming 11), with a linear term. A face is a
set of cuts that may have z > 0. If Newton's step on a face ends inside the face, it ends at the face's optimum, and the
most promising cuts join the face. If a multiplier reaches zero first, its cut leaves the face. D always rises. The last
face has few cuts (d + 1 suffice), so a warm start takes about ten small Cholesky factorisations. The multipliers on the
face are exact to rounding, and all others are exactly zero.

Any feasible z gives a lower bound D(z) of P over all rows. D is evaluated from the cuts rather than from their
products, and a bound of its rounding error is subtracted.

If the cuts are long and w = A'z is short, G has too few digits: with costs of 1e6 and features of 1e4, products of size
1e26 must yield |w|^2 = 1e8. The same active-set method then continues with the vectors a_c and computes each step by a
QR factorisation. This replaces the Cholesky factor of G, as QR replaces the normal equations in least squares:

    face      the cuts that may have z > 0, relative to one of them, r:  B has the rows a_c - a_r
    step      u with (B B') u = g_c - g_r,  by  [B' ; diag(shift)] = Q R,  R' R u = g_c - g_r
    minimiser w + B'u, stored with z: for long cuts, A'z would have a large error, eps sum z_c |a_c|

M(w) = 1/2 |w|^2 + max(0, max_c b_c - a_c.w) is evaluated at this w, and D(z) at the multipliers z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import qr, qr_multiply, solve_triangular
from scipy.linalg.lapack import dpotrs

from streamsvm.numeric.equations import find_raised_factor
from streamsvm.numeric.rounding import bound_rounding, sum_exactly
from streamsvm.numeric.rows import F64, I64, Flags
from streamsvm.solvers.cutting_plane.cuts import CutState, RowSums, S, add_cuts, count_parts, count_pass, raise_bound

STEPS_PER_CUT = 10  # the maximum; from z = 0, cuts of real data took at most about 3 steps per cut
EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)
SHIFTS = (4 * EPS * 10.0 ** np.arange(0, 18, 2)).tolist()  # tried in turn on the diagonal of a singular matrix
REFINEMENT_STEPS_PER_CUT = 4
PATIENCE = 30  # Rounding is the limit after this many successive steps that left the gap above PROGRESS of its value.
PROGRESS = 0.9
DOUBTFUL_STEPS = 5  # If neither P nor D has moved for this many steps, the products are no longer trusted.
CUT_ROUNDINGS = 12  # roundings of a term in addition to its n additions; a row added and subtracted has 2 n + 19 in all
SCALING_ROUNDINGS = 8.0  # more roundings of a term with a scaled cost: factor, product, magnitude, true cost
MASTER_SHARE = 0.05  # The master problem is solved to this share of the larger of the current and requested gaps.


@dataclass(frozen=True)
class MasterSolution:
    """Feasible multipliers z (m,); value = D(z), a lower bound of the SVM's objective; gap = M(z) - D(z) >= 0."""

    z: F64
    value: float
    gap: float


def solve_master(gram: F64, offsets: F64, start: F64, tol: float) -> MasterSolution:
    """Maximise D(z) = b'z - 1/2 z'Gz over z >= 0, sum z <= 1, until M(z) - D(z) <= tol.

    gram (m, m): G, finite, symmetric, positive semidefinite to rounding, singular or not; offsets (m,): b; start (m,):
    initial multipliers, which are first made feasible; tol: an absolute gap, in the units of D. If float64 cannot
    resolve the gap, the solution reports the gap reached. Nothing is raised, and equal input gives equal bits.
    """
    b, norms = np.append(offsets, 0.0), np.sqrt(np.append(np.maximum(gram.diagonal(), 0.0), 0.0))
    z = make_feasible(start)
    face, at_optimum_of_face = z > 0, True
    for _ in range(STEPS_PER_CUT * len(z)):
        gradient = _compute_gradient(gram, b, z)
        if gradient.max() - z @ gradient <= tol:
            break
        if at_optimum_of_face:
            joining = choose_joining(gradient, z, b, norms, float(norms @ z), face)
            if not joining.size:
                break
            face[joining] = True
        step = _find_newton_step(gram, norms**2 + np.abs(b), z, gradient, face)
        z, length = _go(z, step, face)
        at_optimum_of_face = length == 1.0
    return _certify(gram, b, z)


def make_feasible(start: F64) -> F64:
    """Return multipliers (m+1,) on the unit simplex, made from `start` (m,); the multiplier of the zero cut is last.

    Negative entries and NaN become zero. The other entries are scaled so that their sum is at most 1.
    """
    z = np.where(start > 0, start, 0.0)
    z /= max(1.0, z.sum())
    rest = 1.0 - z.sum()
    return np.append(z, rest if rest > EPS * len(z) else 0.0)


def _compute_gradient(gram: F64, b: F64, z: F64) -> F64:
    """Return g = b - Gz. Only the rows of G with z > 0 are read, because they are few and G is large."""
    gradient = b.copy()
    used = np.flatnonzero(z[:-1])
    gradient[:-1] -= z[used] @ gram[used]
    return gradient


def _go(z: F64, step: F64, face: Flags) -> tuple[F64, float]:
    """Move z along the step until a multiplier reaches 0; return the new z and the fraction of the step made.

    The cut whose multiplier reaches 0 leaves the face. The fraction is 1 if no multiplier reaches 0.
    """
    shares = np.divide(z, -step, out=np.ones(len(z)), where=-step > z)
    leaving = int(shares.argmin())
    length, z = float(shares[leaving]), np.maximum(z + shares[leaving] * step, 0.0)
    if length != 1.0:
        z[leaving], face[leaving] = 0.0, False
    return z, length


def _measure_from(face: Flags, z: F64) -> tuple[int, I64]:
    """Return the reference cut of a face and the other cuts on the face.

    The reference is the zero cut if it is on the face, and otherwise the cut with the largest multiplier: long cuts
    have small multipliers, and differences from a long vector would lose digits.
    """
    reference = len(z) - 1 if face[-1] else int(np.where(face, z, -1.0).argmax())
    others = np.flatnonzero(face)
    return reference, others[others != reference]


def choose_joining(gradient: F64, z: F64, offsets: F64, norms: F64, length: float, face: Flags) -> I64:
    """Choose the cuts that promise the largest rise of D; choose none if no cut is violated by more than rounding.

    On the line from z to the vertex of cut c, D has slope g_c - z'g and curvature |a_c - w|^2, and can rise by
    slope^2 / (2 curvature). The best cut joins the face, along with cuts at least half as good, up to a quarter of the
    size of the face. This saves most of the steps if many cuts are needed, and costs a few extra steps if cuts are
    nearly equal. The best cut may already be on the face if rounding stopped the last step short of the face's optimum;
    one more step on the face is then needed. length: the sum of the lengths of the terms of w, which bounds the
    rounding of g_c.
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


def _find_newton_step(gram: F64, size: F64, z: F64, gradient: F64, face: Flags) -> F64:
    """Return the step from z to the optimum of the face, disregarding z >= 0. The entries of the step sum to zero.

    Each cut is taken relative to a reference cut r, whose multiplier follows from sum z = 1. The other multipliers are
    then free, with slope g_c - g_r and curvature (a_c - a_r).(a_d - a_r). size (m+1,): |a_c|^2 + |b_c|.
    """
    step, (reference, others) = np.zeros(len(z)), _measure_from(face, z)
    if not others.size:
        return step
    slope = gradient[others] - gradient[reference]
    curvature = gram[np.ix_(others, others)]
    if reference != len(z) - 1:
        shared = gram[reference, others]
        curvature += gram[reference, reference] - shared - shared[:, None]
    step[others] = _solve_semidefinite(curvature, slope, size[others] + size[reference])
    step[reference] = -step.sum()
    return step


def _solve_semidefinite(matrix: F64, right: F64, size: F64) -> F64:
    """Solve (matrix + shift) x = right by Cholesky, with a diagonal shift of the order of rounding.

    size (k,): for each row of the matrix, the magnitude of the terms that are summed in its entries. If the matrix is
    singular and D has a slope along its null space, the shift makes the step long but finite, and a cut leaves the
    face. Otherwise the shift changes the gap by no more than rounding, since z <= 1. The shift grows until a factor
    exists.
    """
    solution: F64 = dpotrs(find_raised_factor(matrix, TINY, size, SHIFTS)[0], right, lower=1)[0]
    return solution


def _certify(gram: F64, b: F64, z: F64) -> MasterSolution:
    """Return the multipliers of the cuts, with D and the gap computed from these multipliers alone."""
    z = z[:-1] / max(1.0, z[:-1].sum())
    gradient = _compute_gradient(gram, b, np.append(z, 0.0))
    value = z @ (b[:-1] + gradient[:-1]) / 2
    return MasterSolution(z, float(value), max(0.0, float(gradient.max() - z @ gradient[:-1])))


def refine_master(cuts: F64, offsets: F64, start: F64, tol: float) -> tuple[MasterSolution, F64]:
    """Improve `start` until M(w) - D(z) <= tol, without G; return the solution and the minimiser w, (width,).

    cuts (m, width), offsets (m,): a_c and b_c, finite; start (m,): multipliers. If float64 cannot resolve the gap, the
    solution reports the gap reached. Nothing is raised, and equal input gives equal bits.
    """
    m, width = cuts.shape
    if width <= m:
        return _refine(cuts, offsets, start, tol)
    # In the span of the cuts, a cut has fewer coordinates. Their QR factorisation is made part by part, since a copy of
    # the cuts may take most of the memory.
    parts = np.array_split(cuts.T, count_parts(width, m))
    tops = np.empty((m * len(parts), m), order="F")
    for top, part in zip(np.split(tops, len(parts)), parts, strict=True):
        top[:] = qr(np.array(part, order="F"), mode="raw", overwrite_a=True, check_finite=False)[1]
    basis, coordinates = qr(tops, mode="economic", overwrite_a=True, check_finite=False)
    solution, w = _refine(np.ascontiguousarray(coordinates.T), offsets, start, tol)
    pieces = zip(parts, np.split(basis @ w, len(parts)), strict=True)
    found = [qr_multiply(np.array(part, order="F"), piece, "left", overwrite_a=True)[0] for part, piece in pieces]
    return solution, np.concatenate(found)


def _refine(cuts: F64, offsets: F64, start: F64, tol: float) -> tuple[MasterSolution, F64]:
    vectors, b = np.vstack((cuts, np.zeros(cuts.shape[1]))), np.append(offsets, 0.0)
    norms = np.linalg.norm(vectors, axis=1)
    z = make_feasible(start)
    face, w, at_optimum_of_face = z > 0, z @ vectors, True
    best_z, best_w, value, model, idle = z, w, -np.inf, np.inf, 0
    for _ in range(REFINEMENT_STEPS_PER_CUT * len(z) + PATIENCE):
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
        z, length = _go(z, step, face)
        w, at_optimum_of_face = w + length * moved, length == 1.0
    shares = best_z[:-1] / max(1.0, best_z[:-1].sum())
    return MasterSolution(shares, value, max(0.0, model - value)), best_w


def _find_step(vectors: F64, norms: F64, z: F64, gradient: F64, face: Flags) -> tuple[F64, F64]:
    """Return the step of z to the optimum of the face, whose entries sum to zero, and the corresponding step of w."""
    step, (reference, others) = np.zeros(len(z)), _measure_from(face, z)
    if not others.size:
        return step, np.zeros(vectors.shape[1])
    B = vectors[others] - vectors[reference]
    slope = gradient[others] - gradient[reference]
    shift = 4 * EPS * (norms[others] + norms[reference]) + TINY**0.5
    features = np.argsort(-np.max(np.abs(B), axis=0), kind="stable")  # With long rows first, QR is accurate row by row.
    stacked = np.concatenate((B[:, features], np.diag(shift)), axis=1).T
    Q, R, order = qr(stacked, mode="economic", overwrite_a=True, pivoting=True, check_finite=False)
    found = solve_triangular(R, slope[order], trans="T", check_finite=False)
    step[others[order]] = solve_triangular(R, found, check_finite=False)
    step[reference] = -step.sum()
    moved = np.empty(vectors.shape[1])
    moved[features] = Q[: len(moved)] @ found  # B'u would be less accurate: u takes one more solve with R
    return step, moved


def minimise_master(state: S, tol: float) -> S:
    """Solve the master problem; return the state with its multipliers, its minimiser, and the highest lower bound."""
    wanted = MASTER_SHARE * max(state.objective - state.lower_bound, tol * state.objective)
    trusted = state.stuck < DOUBTFUL_STEPS
    z, master_w = solve_cuts(state.cuts, state.offsets, state.gram, state.z, wanted, trusted)
    slack = max(0.0, float(np.max(state.offsets - state.cuts @ master_w)))
    after = replace(state, z=z, master_w=master_w, slack=slack, idle=np.where(z > 0, 0, state.idle + 1))
    return raise_bound(after, *bound_dual(state, z))


def take_cuts(state: S, before: S, found: RowSums, most: int | None, tol: float, passes: int = 1) -> S:
    """Return the state after a step: add the cuts `found` by the passes, solve the master problem, count the passes."""
    return count_pass(minimise_master(add_cuts(state, found, most), tol), before, passes)


def solve_cuts(cuts: F64, offsets: F64, gram: F64, start: F64, wanted: float, trusted: bool = True) -> tuple[F64, F64]:
    """Solve the master problem over these cuts to a gap of `wanted` if rounding allows; return z and the minimiser w.

    trusted: whether the products of the cuts may be used. They are used if their rounding, of the order of eps |a_c|^2,
    is below `wanted`. Otherwise the cuts themselves are used, which takes longer.
    """
    lengths, z = np.sqrt(np.maximum(gram.diagonal(), 0.0)), start
    if trusted and 8 * EPS * float(lengths @ z) ** 2 <= wanted:
        solution = solve_master(gram, offsets, start, wanted)
        z = solution.z
        if solution.gap <= wanted and 8 * EPS * float(lengths @ z) ** 2 <= wanted:
            return z, z @ cuts
    refined, w = refine_master(cuts, offsets, z, wanted)
    return refined.z, w


def bound_dual(state: CutState, z: F64) -> tuple[float, float]:
    """Return D(z) from the computed cuts, and a bound of the rounding error of this D(z)."""
    used, w = np.flatnonzero(z), z @ state.cuts
    shares, offsets, lengths = z[used], state.offsets[used], np.abs(w)
    value = float(shares @ offsets - w @ w / 2)
    products = [float(np.abs(state.cuts[k]) @ lengths) for k in used]  # one by one: cuts may be most of the memory
    combined = float(shares @ (np.abs(offsets) + products))
    missed = _bound_combination(state, used, shares)
    most_cost, most = state.repeats * state.total_cost, state.repeats * float(lengths @ state.magnitudes)
    sizes = state.sizes[used]
    summed = float(shares @ (np.minimum(most_cost, sizes) + np.minimum(most, sizes * float(lengths @ state.largest))))
    own = bound_rounding(len(used) + len(w) + 8, combined)
    own += max(0.0, sum_exactly(shares) - 1.0) * abs(value)  # D is concave: a feasible multiple of z loses no more
    return value, own + bound_rounding(state.terms + CUT_ROUNDINGS, summed) + float(missed @ missed) / 2


def _bound_combination(state: CutState, used: I64, shares: F64) -> F64:
    """Return a bound of the rounding error of each entry of w = shares @ cuts[used], (width,).

    The square of this error is part of the error of |w|^2. It matters if long cuts cancel in w.
    """
    summed, combined = np.zeros(len(state.magnitudes)), np.zeros(len(state.magnitudes))
    for k, share in zip(used.tolist(), shares.tolist(), strict=True):
        summed += share * np.minimum(state.repeats * state.magnitudes, state.sizes[k] * state.largest)
        combined += share * np.abs(state.cuts[k])
    missed: F64 = bound_rounding(state.terms + CUT_ROUNDINGS, 1.0) * summed
    return missed + bound_rounding(len(used) + 8, 1.0) * combined


def scale_costs(state: S, factor: float, tol: float) -> S:
    """Return the initial state for costs `factor` times larger. The cuts times `factor` are valid for these costs."""
    half, none = float(state.best_w @ state.best_w) / 2, np.zeros(len(state.z))
    moved = bound_rounding(len(state.best_w) + SCALING_ROUNDINGS, 2 * half + state.objective)
    in_proportion = ("cuts", "offsets", "sizes", "magnitudes", "total_cost")
    changed: dict[str, Any] = {name: factor * getattr(state, name) for name in in_proportion}
    changed |= {"passes": 0, "stuck": 0, "z": none, "idle": none.astype(np.int64)}
    changed |= dict.fromkeys(("lower_bound", "slack", "bound_rounding", "tried_rounding"), 0.0)
    changed |= {"gram": factor**2 * state.gram, "terms": state.terms + SCALING_ROUNDINGS}
    changed |= {"objective": half + factor * (state.objective - half)}
    changed |= {"objective_rounding": max(1.0, factor) * (state.objective_rounding + moved)}
    return minimise_master(replace(state, **changed), tol)
