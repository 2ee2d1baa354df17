"""The minimiser of a quadratic model with a penalty of |z|_1, by coordinate descent and by steps on faces.

    q(z) = g.(z - w) + 1/2 (z - w)'H(z - w) + |z|_1

A few rounds of coordinate descent find which entries of z are 0, and the signs of the others. On the face where these
stay as they are, q is a quadratic function, whose minimiser is found with a Cholesky factor. The way there ends where
an entry becomes 0. So strong correlations of features, which make coordinate descent slow, cost nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg import cho_solve

from streamsvm.numeric.factors import factorise
from streamsvm.numeric.rows import F64

TOL = 1e-8  # of the gradient's entries at the minimiser, which are from -1 to 1
ROUNDS = 8  # of coordinate descent before a step on a face
MOST_FACES = 500
DAMPING = 1e-12  # of the largest second derivative, which is added to all


def minimise_model(H: F64, gradient: F64, w: F64) -> F64:
    """Return the minimiser z of q (m,), or a point where q is lower, if MOST_FACES are not enough."""
    H = H + DAMPING * float(np.max(np.diagonal(H), initial=0.0)) * np.eye(len(w))
    z, slopes = w.copy(), gradient.copy()
    for _ in range(MOST_FACES):
        largest = descend(H, z, slopes, ROUNDS)
        if largest <= TOL:
            break
        _move_on_face(H, z, slopes)
    return z


def _move_on_face(H: F64, z: F64, slopes: F64) -> None:
    """Move z, in place, to the minimiser on its face, or to where an entry becomes 0; slopes: g + H (z - w)."""
    free = np.flatnonzero(z)
    _, factor = factorise(H[np.ix_(free, free)])
    if factor is None or not len(free):
        return
    step = -cho_solve((factor, False), slopes[free] + np.sign(z[free]))
    ends = np.divide(-z[free], step, out=np.full(len(free), np.inf), where=step * z[free] < 0.0)
    first = int(np.argmin(ends))
    length = min(1.0, float(ends[first]))
    z[free] += length * step
    if length < 1.0:
        z[free[first]] = 0.0
    slopes += length * (H[:, free] @ step)


@njit(cache=True, nogil=True)
def descend(H: F64, z: F64, slopes: F64, rounds: int) -> float:
    """Lower q by rounds of coordinate descent, in place. Return by how much the last changed the gradient, at most."""
    largest = 0.0
    for _ in range(rounds):
        largest = 0.0
        for j in range(z.size):
            h = H[j, j]
            if h <= 0.0:
                continue
            middle, new = z[j] * h - slopes[j], 0.0
            if middle > 1.0:
                new = (middle - 1.0) / h
            elif middle < -1.0:
                new = (middle + 1.0) / h
            step = new - z[j]
            if step != 0.0:
                z[j] = new
                slopes += step * H[j]
                largest = max(largest, abs(step) * h)
        if largest == 0.0:
            break
    return largest
