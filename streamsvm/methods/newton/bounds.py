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
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from streamsvm.methods.newton.sums import Look, Totals
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64

BISECTIONS = 60
SAFE = 1e-9  # relative: the rounding of eigenvalues and of norms


@dataclass(frozen=True)
class Point:
    """A point w with P there, its gradient, and how far both can be off; the gradient by its length."""

    w: F64
    objective: float
    gradient: F64
    objective_error: float
    gradient_error: float


def make_point(w: F64, totals: Totals, n_rows: int) -> Point:
    """Return the point at which a pass has looked, the end of its line.

    A score is off by at most e |x_i| with e = gamma_(d+8) |w|, which moves slopes by the second derivatives; sums of n
    terms are off by gamma_n times the sizes of their terms.
    """
    length = float(np.linalg.norm(w))
    moved = bound_rounding(len(w) + 8, length)
    objectives, errors = measure_line(np.stack((w, w)), np.ones(len(totals.losses)), totals, n_rows)
    return Point(
        w=w,
        objective=float(objectives[-1]),
        gradient=w + totals.gradient,
        objective_error=float(errors[-1]),
        gradient_error=bound_rounding(n_rows + 24, totals.steep) + moved * totals.sharp + bound_rounding(4, length),
    )


def measure_line(ends: F64, steps: F64, totals: Totals, n_rows: int) -> tuple[F64, F64]:
    """Return P at the steps (k,) of the line between the ends (2, d+1), and how far it can be off, (k,) each.

    A score is off by at most e |x_i| with e = gamma_(d+8) |w|, which moves a loss by its slope and its second
    derivative. A slope is at most that at the line's end and the second derivative times the way from there.
    """
    squares = np.sum((ends[0] + steps[:, None] * (ends[1] - ends[0])) ** 2, axis=1)
    moved = bound_rounding(ends.shape[1] + 12, 1.0) * float(np.max(np.linalg.norm(ends, axis=1)))
    way = (1.0 - steps) * float(np.linalg.norm(ends[1] - ends[0])) + moved
    of_sums = bound_rounding(n_rows + 24, 1.0) * totals.losses
    errors = moved * (totals.steep + way * totals.sharp) + of_sums + bound_rounding(ends.shape[1] + 8, 1.0) * squares
    return squares / 2 + totals.losses, errors


def bound_by_gradient(point: Point) -> tuple[float, float]:
    """Return P - 1/2 |grad|^2, and how far it can be off."""
    length, error = float(np.linalg.norm(point.gradient)), point.gradient_error
    rounding = point.objective_error + error * length + error**2 / 2 + bound_rounding(len(point.w) + 8, length**2)
    return point.objective - length**2 / 2, rounding


def bound_in_ball(point: Point, look: Look, least: F64, n_rows: int) -> tuple[float, float]:
    """Return P - 1/2 grad'M^-1 grad, and how far it can be off; 0 if it is not known that the minimiser is in the ball.

    least (d+1, d+1): H_r. The rounding of its sums is at most gamma_n d times its diagonal, which is taken off M.
    """
    none, width = (0.0, 0.0), len(point.w)
    if not look.reach > 0.0:
        return none
    taken_off = bound_rounding(n_rows + 2 * width + 40, 1.0) * width * np.diagonal(least)
    if not float(np.max(taken_off)) <= 0.5:
        return none
    M = np.eye(width) + least - np.diag(taken_off)
    try:
        factor = cho_factor(M)
        if not _is_inside(point, look, M):
            return none
    except (LinAlgError, ValueError):
        return none
    move = -cho_solve(factor, point.gradient)
    left = M @ move + point.gradient
    value = point.objective + float(point.gradient @ move) + float(move @ M @ move) / 2
    sizes = float(np.abs(point.gradient) @ np.abs(move)) + float(np.abs(move) @ np.abs(M) @ np.abs(move))
    unsolved = abs(float(left @ cho_solve(factor, left)))
    error = point.gradient_error  # M has no eigenvalue below 1/2
    rounding = point.objective_error + error * float(np.linalg.norm(move)) + error**2 + unsolved
    return value, rounding + bound_rounding(2 * width + 16, sizes)


def _is_inside(point: Point, look: Look, M: F64) -> bool:
    """Return whether P is at least P(w) on the whole sphere, whatever was rounded; LinAlgError if that is not found."""
    A, width, length = look.norm.A, len(point.w), float(np.linalg.norm(point.gradient))
    values, vectors = np.linalg.eigh(A @ M @ A.T)
    sizes = float(np.linalg.norm(np.abs(A) @ np.abs(M) @ np.abs(A).T))
    values = values - (bound_rounding(2 * width + 8, sizes) + SAFE * values[-1])
    slope = A @ point.gradient
    rounded = bound_rounding(width + 8, length) + point.gradient_error
    unsure = SAFE * float(np.linalg.norm(slope)) + look.norm.size * rounded
    return bound_on_sphere(values, vectors.T @ slope, look.reach) >= unsure * look.reach


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
