"""The minimiser of a quadratic model with a penalty of |z|_1, by coordinate descent and by steps on faces.

    q(z) = g.(z - w) + 1/2 (z - w)'H(z - w) + |z|_1

A few rounds of coordinate descent find which entries of z are 0, and the signs of the others. On the face where these
stay as they are, q is a quadratic function, whose minimiser is found with a Cholesky factor. So strong correlations of
features, which make coordinate descent slow, cost nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg import cho_solve

from streamsvm.numeric.factors import factorise
from streamsvm.numeric.rows import F64

TOL = 1e-7  # by how much the last round of descent may change an entry of the gradient, at most 1 at the minimum
ROUNDS = 8  # of coordinate descent before a step on a face
FEW_FACES, MOST_FACES = 20, 200
DAMPING = 1e-12  # of each second derivative, by which it is raised


def minimise_model(H: F64, gradient: F64, w: F64) -> F64:
    """Return the minimiser z of q (m,), or after MOST_FACES a point where q is lower than at w."""
    H = H + np.diag(DAMPING * np.diagonal(H))
    z, slopes = w.copy(), gradient.copy()
    for k in range(MOST_FACES):
        largest = descend(H, z, slopes, ROUNDS)
        if largest <= TOL:
            break
        while _move_on_face(H, z, slopes) and k >= FEW_FACES:  # the entries that became 0 would come back in descent
            pass
    return z


def _move_on_face(H: F64, z: F64, slopes: F64) -> bool:
    """Move z, in place, towards the minimiser on its face; return whether an entry has become 0.

    slopes: g + H (z - w). Entries that would change their sign become 0 if q is lower then; otherwise the way ends at
    the first of them.
    """
    free = np.flatnonzero(z)
    factor = factorise(H[np.ix_(free, free)])[1] if len(free) else None
    if factor is None:
        return False
    step = -cho_solve((factor, False), slopes[free] + np.sign(z[free]))
    ends = np.divide(-z[free], step, out=np.full(len(free), np.inf), where=step * z[free] < 0.0)
    first = int(np.argmin(ends))
    shorter = min(1.0, float(ends[first])) * step
    if ends[first] <= 1.0:
        shorter[first] = -z[free[first]]
    columns = H[:, free]
    changes = [np.where(ends <= 1.0, -z[free], step), shorter]
    moved = [columns @ change for change in changes]
    lower = [_compare(slopes[free], own[free], z[free], change) for own, change in zip(moved, changes, strict=True)]
    best = int(np.argmin(lower))
    z[free] += changes[best]
    slopes += moved[best]
    return int(np.count_nonzero(z)) < len(free)


def _compare(slopes: F64, moved: F64, z: F64, change: F64) -> float:
    """Return q at z + change less q at z; moved: H change."""
    return float(slopes @ change + moved @ change / 2 + np.sum(np.abs(z + change) - np.abs(z)))


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
