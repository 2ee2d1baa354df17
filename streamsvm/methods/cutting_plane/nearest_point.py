"""The point nearest the origin in a set of weighted sums of rows: a quadratic program in memory.

    min over a    1/2 |v|^2,   v = g + sum_i a_i x_i,     0 <= a_i <= C_i,   sum_i a_i = N

The method is a primal-dual interior-point method with Mehrotra's predictor and corrector. With the multipliers rho of
the sum and z, u of the limits, the conditions are

    v.x_i - rho - z_i + u_i = 0,     z_i a_i = mu,     u_i (C_i - a_i) = mu,     sum_i a_i = N

A step solves (X X' + Z/A + U/(C - A)) da - d_rho = h by the matrix of the features, or that of the rows if these are
fewer (Ferris & Munson 2002, "Interior-point methods for massive support vector machines", SIAM J. Optim. 13). What is
proved of a and rho is the gap  sum_i a_i max(0, v.x_i - rho) + sum_i (C_i - a_i) max(0, rho - v.x_i).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array

from streamsvm.numeric.rows import F64, CsrRows, Matrix

MOST_STEPS = 80
TOLERANCE = 1e-13  # of the gap, beside |v|^2
LEAST = 1e-24  # of the gap, where no row is longer than 1: |v| is rounding then
FALL, PATIENCE = 0.9, 12  # If so many steps in a row have not lowered the gap to FALL of itself, rounding is the limit.
TILE_ROWS = 256
BOUNDARY = 0.995  # how far a step may go towards the limits
Solve = Callable[[F64], F64]


class Nearest(NamedTuple):
    """a (n,), which is within its limits and sums to N but for rounding, v (d,), and rho."""

    a: F64
    v: F64
    rho: float


class Iterate(NamedTuple):
    """a (n,), rho, and the multipliers z, u (n,) of the limits; all but rho are positive."""

    a: F64
    rho: float
    z: F64
    u: F64


def find_nearest(X: Matrix | F64, costs: F64, total: float, g: F64 | None = None) -> Nearest:
    """Return the solution for rows X (n, d), C (n,), N with 0 < N <= sum C_i, and g (d,), which is 0 by default.

    Rows and costs of any scale are brought to a scale of about 1 before.
    """
    rows: Any = csr_array((X.data, X.indices, X.indptr), shape=X.shape) if isinstance(X, CsrRows) else X
    rows = rows.astype(np.float64)
    offset = np.zeros(rows.shape[1]) if g is None else g
    squares = rows.multiply(rows).sum(axis=1) if hasattr(rows, "multiply") else np.einsum("ij,ij->i", rows, rows)
    size = float(np.sqrt(np.max(squares))) or 1.0
    share, rho = _solve(rows / size, costs / total, offset / (total * size))
    a = _fill(share * total, costs, total)
    return Nearest(a, offset + rows.T @ a, rho * total * size**2)


def _solve(X: Any, C: F64, g: F64) -> tuple[F64, float]:
    """Return a, which sums to 1, and rho."""
    n = len(C)
    if float(np.sum(C)) <= 1.0:
        return C.copy(), float(np.max(X @ (g + X.T @ C), initial=0.0))
    a = C / np.sum(C)
    f = X @ (g + X.T @ a)
    rho = float(np.median(f))
    start = max(1e-3, float(np.mean(np.abs(f - rho))))
    at = Iterate(a, rho, np.maximum(f - rho, 0.0) + start, np.maximum(rho - f, 0.0) + start)
    products = _multiply(X) if X.shape[1] > n else None
    best, least, idle = at, np.inf, 0
    for _ in range(MOST_STEPS):
        v, room = g + X.T @ at.a, C - at.a
        f, square = X @ v, float(v @ v)
        gap = float(at.a @ np.maximum(f - at.rho, 0.0) + room @ np.maximum(at.rho - f, 0.0))
        idle = 0 if gap <= FALL * least else idle + 1
        if gap < least:
            best, least = at, gap
        is_inside = min(np.min(at.a), np.min(room), np.min(at.z), np.min(at.u)) > 0.0
        if gap <= TOLERANCE * square + LEAST or idle > PATIENCE or not is_inside:
            break
        try:
            with np.errstate(all="ignore"):
                solve = _factor(X, products, at.z / at.a + at.u / room)
                at = _step(at, room, f - at.rho - at.z + at.u, solve)
        except (LinAlgError, ValueError):  # the limits are so near that rounding, or the range of float64, is the limit
            break
    return best.a, best.rho


def _step(at: Iterate, room: F64, off: F64, solve: Solve) -> Iterate:
    """Return the iterate after Mehrotra's step. off (n,): what is left of the first condition."""
    n, lacking = len(room), 1.0 - float(np.sum(at.a))
    of_ones = solve(np.ones(n))
    share = float(np.sum(of_ones))

    def find(rz: F64, ru: F64) -> tuple[F64, float, F64, F64]:
        h = solve(-off + rz / at.a - ru / room)
        d_rho = (lacking - float(np.sum(h))) / share
        da = h + d_rho * of_ones
        return da, d_rho, (rz - at.z * da) / at.a, (ru + at.u * da) / room

    mu = float(at.z @ at.a + at.u @ room) / (2 * n)
    da, d_rho, dz, du = find(-at.z * at.a, -at.u * room)
    length = _find_length(at, room, da, dz, du)
    after = float((at.z + length * dz) @ (at.a + length * da) + (at.u + length * du) @ (room - length * da)) / (2 * n)
    target = (after / mu) ** 3 * mu
    da, d_rho, dz, du = find(target - at.z * at.a - da * dz, target - at.u * room + da * du)
    length = BOUNDARY * _find_length(at, room, da, dz, du)
    return Iterate(at.a + length * da, at.rho + length * d_rho, at.z + length * dz, at.u + length * du)


def _find_length(at: Iterate, room: F64, da: F64, dz: F64, du: F64) -> float:
    """Return the longest step, at most 1, that keeps all of them positive."""
    longest = 1.0
    for value, change in ((at.a, da), (room, -da), (at.z, dz), (at.u, du)):
        falls = change < 0.0
        if np.any(falls):
            longest = min(longest, float(np.min(-value[falls] / change[falls])))
    return longest


def _multiply(X: Any) -> F64:
    """Return X X', some rows at a time, as the product of sparse rows is sparse."""
    products = np.empty((X.shape[0], X.shape[0]))
    for at in range(0, X.shape[0], TILE_ROWS):
        part: Any = X[at : at + TILE_ROWS] @ X.T
        products[at : at + TILE_ROWS] = part.toarray() if hasattr(part, "toarray") else part
    return products


def _factor(X: Any, products: F64 | None, diagonal: F64) -> Solve:
    """Return the function that solves (X X' + diagonal) y = h. products: X X', if rows are fewer than features."""
    if products is not None:
        matrix = products.copy(order="F")
        matrix[np.diag_indices(len(matrix))] += diagonal
        whole = cho_factor(matrix, lower=True, overwrite_a=True)
        return lambda h: np.asarray(cho_solve(whole, h))
    d, q = X.shape[1], 1.0 / diagonal
    scaled = X.T.multiply(q).tocsr() if hasattr(X, "multiply") else X.T * q
    inner = scaled @ X
    inner = inner.toarray() if hasattr(inner, "toarray") else inner
    inner[np.diag_indices(d)] += 1.0
    factor = cho_factor(inner)

    def solve(h: F64) -> F64:
        y = q * (h - X @ cho_solve(factor, X.T @ (q * h)))
        rest = h - X @ (X.T @ y) - diagonal * y  # one step of refinement, since the costs of rows differ widely
        return np.asarray(y + q * (rest - X @ cho_solve(factor, X.T @ (q * rest))))

    return solve


def _fill(a: F64, costs: F64, total: float) -> F64:
    """Return a within its limits, with what lacks of its sum shared out where there is room."""
    a = np.clip(a, 0.0, costs)
    lacking = total - float(np.sum(a))
    room = costs - a if lacking > 0.0 else a
    most = float(np.sum(room))
    return np.clip(a + lacking * room / most, 0.0, costs) if most > 0.0 else a
