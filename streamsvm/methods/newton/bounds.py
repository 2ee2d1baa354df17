"""Lower bounds of P = 1/2 |w|^2 + L(w) from its value, gradient and curvature at one point w, with their rounding.

By strong convexity (it is D of the dual point a_i = -l_i'(f_i)):

    P(w + v) >= P(w) - 1/2 |grad|^2                                       for every v,   grad = w + g

In a ball |u| <= r, v = A'u, no score moves by more than r |A x_i|. Let H_r have the least second derivative of each
loss on that way, and M = I + H_r. Then

    P(w + v) >= P(w) + grad.v + 1/2 v'Mv                                                       for |u| <= r

If the right side is at least P(w) on the whole sphere |u| = r, then P is at least P(w) outside the ball, because it is
convex. So the minimiser lies inside, and P is at least P(w) - 1/2 grad'M^-1 grad. This bound is far higher than the
first one, which does not know the curvature of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.methods.newton.sums import Look, Totals
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64

BISECTIONS = 60
SAFE = 1e-9  # relative: the rounding of eigenvalues and of norms


@dataclass(frozen=True)
class Point:
    """A point w with P there, its gradient, and how far both can be off.

    gradient_error: the length of the gradient's error; error_in_ball: its length times A, if the pass had a ball.
    """

    w: F64
    objective: float
    gradient: F64
    objective_error: float
    gradient_error: float
    error_in_ball: float


def make_point(w: F64, totals: Totals, look: Look, n_rows: int) -> Point:
    """Return the point at which a pass has looked, the end of its line.

    The scores' rounding moves the slopes by the second derivatives. Sums of n terms are off by gamma_n times the sizes
    of their terms, in every entry, and A times an error v is no longer than sum_j |A e_j| |v_j|.
    """
    objectives, errors = measure_line(np.stack((w, w)), np.ones(len(totals.losses)), totals, n_rows)
    gradient, terms = w + totals.gradient, bound_rounding(n_rows + 24, 1.0)
    larger, sizes = 1.0 + 2 * terms + SAFE, np.abs(w) + np.abs(totals.gradient)
    of_sum = bound_rounding(len(w) + 24, float(look.norm.measure_columns() @ sizes))
    return Point(
        w=w,
        objective=float(objectives[-1]),
        gradient=gradient,
        objective_error=float(errors[-1]),
        gradient_error=larger * (terms * totals.steep + totals.moved) + bound_rounding(4, float(np.linalg.norm(sizes))),
        error_in_ball=larger * (terms * totals.steep_in_ball + totals.moved_in_ball) + of_sum,
    )


def measure_line(ends: F64, steps: F64, totals: Totals, n_rows: int) -> tuple[F64, F64]:
    """Return P at the steps (k,) of the line between the ends (2, d+1), and how far it can be off, (k,) each."""
    squares = np.sum((ends[0] + steps[:, None] * (ends[1] - ends[0])) ** 2, axis=1)
    largest = float(np.max(np.sum(ends**2, axis=1)))  # the point is rounded, too
    of_sums = bound_rounding(n_rows + 24, 1.0) * totals.losses
    errors = (1.0 + 2 * bound_rounding(n_rows + 24, 1.0) + SAFE) * totals.errors
    return squares / 2 + totals.losses, errors + of_sums + bound_rounding(ends.shape[1] + 24, largest)


def bound_by_gradient(point: Point) -> tuple[float, float]:
    """Return P - 1/2 |grad|^2, and how far it can be off."""
    length, error = float(np.linalg.norm(point.gradient)), point.gradient_error
    rounding = point.objective_error + error * length + error**2 / 2 + bound_rounding(len(point.w) + 8, length**2)
    return point.objective - length**2 / 2, rounding


def bound_in_ball(point: Point, look: Look, least: F64, n_rows: int) -> tuple[float, float]:
    """Return P - 1/2 grad'M^-1 grad, and how far it can be off; 0 if it is not known that the minimiser is in the ball.

    least (d+1, d+1): H_r. With N = A M A', s = A grad and v = A'u, the bound is a minimum of s.u + 1/2 u'Nu. If no
    eigenvalue of N is below l > 0, this minimum is, for every u, at least s.u + 1/2 u'Nu - |Nu + s|^2 / (2 l).
    """
    none, width, error = (0.0, 0.0), len(point.w), point.error_in_ball
    if not look.reach > 0.0:
        return none
    with np.errstate(all="ignore"):
        N, off = _transform(look.norm.A, least, n_rows)
        slope = look.norm.A @ point.gradient
    if not np.isfinite(off + error + float(np.linalg.norm(slope))):
        return none
    try:
        values, vectors = np.linalg.eigh((N + N.T) / 2)
    except np.linalg.LinAlgError:
        return none
    off += SAFE * float(np.max(np.abs(values)))
    values = values - 2 * off  # those of N - off, whatever was rounded
    unsure = SAFE * float(np.linalg.norm(slope)) + error
    if not values[0] > 0.0 or not bound_on_sphere(values, vectors.T @ slope, look.reach) >= unsure * look.reach:
        return none
    u = -vectors @ ((vectors.T @ slope) / values)
    sizes, bent = np.abs(N) @ np.abs(u) + off * np.abs(u) + np.abs(slope), N @ u - off * u
    value = point.objective + float(slope @ u) + float(u @ bent) / 2
    left = float(np.linalg.norm(bent + slope)) + bound_rounding(width + 16, float(np.linalg.norm(sizes)))
    rounding = point.objective_error + error * float(np.linalg.norm(u)) + (left + error) ** 2 / (2 * float(values[0]))
    own = bound_rounding(2 * width + 16, float(np.abs(u) @ sizes) + abs(point.objective))
    return value, (1.0 + SAFE) * rounding + own


def _transform(A: F64, least: F64, n_rows: int) -> tuple[F64, float]:
    """Return N = A M A', and how far it can be off, as a matrix norm; M is lower by the rounding of H_r's sums.

    This is at most gamma_n d times the diagonal of H_r, in the order of matrices.
    """
    width = len(A)
    taken_off = bound_rounding(n_rows + 2 * width + 40, 1.0) * width * np.diagonal(least)
    M = np.eye(width) + least - np.diag(taken_off)
    sizes = float(np.linalg.norm(np.abs(A) @ np.abs(M) @ np.abs(A).T))
    return A @ M @ A.T, bound_rounding(3 * width + 16, sizes)


def bound_on_sphere(values: F64, slopes: F64, radius: float) -> float:
    """Return a lower bound of s.u + 1/2 sum_k l_k u_k^2 on the sphere |u| = radius; l: values, ascending, s: slopes.

    For every v > -l_1 the Lagrangian gives the lower bound -1/2 sum_k s_k^2 / (l_k + v) - 1/2 v radius^2. The best v is
    sought by bisection of its derivative, but any v would do.
    """
    low, high = -float(values[0]), float(np.linalg.norm(slopes)) / radius
    high = max(high - float(values[0]), low + SAFE)
    best = float("-inf")
    for _ in range(BISECTIONS):
        v = (low + high) / 2
        shifted = values + v
        if not shifted[0] > 0.0:
            break
        best = max(best, -float(np.sum(slopes**2 / shifted) + v * radius**2) / 2)
        low, high = (v, high) if float(np.sum((slopes / shifted) ** 2)) > radius**2 else (low, v)
    return best
