"""Newton's equations, and the steps of primal-dual interior-point methods.

`RowQR` solves least squares problems min_x |A x - b| whose rows differ by many powers of ten. A Householder QR
factorisation with column pivoting keeps such rows apart if they are sorted by their largest entries: the error of each
row is then proportional to the size of this row, even if other rows are far larger (Cox & Higham 1998, Stability of
Householder QR factorization for weighted least squares problems). In A'A, the products of large rows would hide the
products of all other rows.

A point of an interior-point method is a tuple of arrays, and a direction holds their changes in the same order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numba.extending import get_cython_function_address
from scipy.linalg.lapack import dgeqp3, dormqr, dpotrf, dpotrs, dtrtrs

from streamsvm.numeric.rows import F64
from streamsvm.system import deadline
from streamsvm.system.errors import TimeLimitError

T = TypeVar("T")
Point = TypeVar("Point", bound=tuple[F64, ...])
BOUNDARY_SHARE = 0.995  # a step goes this share of the way to the boundary
MOST_SECOND_ORDER = 3.0  # the largest second-order product of the corrector, in units of mu


def find_length(values: Sequence[F64], changes: Sequence[F64]) -> float:
    """Return the longest step, at most 1, that leaves all values at 0 or above. Before the step they are positive."""
    fastest = max(float(np.max(-change / value)) for value, change in zip(values, changes, strict=True))
    return min(1.0, 1.0 / fastest) if fastest > 0 else 1.0


def move(point: Point, direction: Point, length: float) -> Point:
    """Return point + length * direction; both are named tuples of one type."""
    make: Any = type(point)
    moved: Point = make(*(old + length * change for old, change in zip(point, direction, strict=True)))
    return moved


LONG_WIDTH = 1000  # the factorisation of a wider matrix may take longer than a tenth of a second


def _open_lapack(name: str, n_arguments: int) -> Callable[..., None]:
    """Return a function of LAPACK; SciPy's wrappers hold Python's lock, which hides the time limit and Ctrl-C."""
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


_DPOTRF, _DTRTRS = _open_lapack("dpotrf", 5), _open_lapack("dtrtrs", 10)


def finish_matrix(width: int, function: Callable[..., T], *arguments: Any) -> T:
    """Return function(*arguments), which computes with matrices of this width.

    If they are wide, the call ends in time: see `system.deadline.finish`, also for the errors.
    """
    return deadline.finish(function, *arguments) if width > LONG_WIDTH else function(*arguments)


def find_factor(M: F64) -> F64 | None:
    """Return the upper Cholesky factor of a symmetric matrix, or None if it is not positive definite and finite."""
    U, info = np.array(M, order="F"), ctypes.c_int()
    width, stride = ctypes.c_int(len(M)), ctypes.c_int(max(1, len(M)))
    if not np.isfinite(U).all():
        return None
    _DPOTRF(b"U", ctypes.byref(width), U.ctypes.data, ctypes.byref(stride), ctypes.byref(info))
    return None if info.value else np.tril(U.T).T


def invert_factor(U: F64) -> F64:
    """Return the inverse of an upper triangular matrix in Fortran order whose diagonal has no zeros."""
    X, width, info = np.eye(len(U), order="F"), ctypes.byref(ctypes.c_int(len(U))), ctypes.c_int()
    _DTRTRS(b"U", b"N", b"N", width, width, U.ctypes.data, width, X.ctypes.data, width, ctypes.byref(info))
    return X


RIDGES = (0.0, 1e-14, 1e-12, 1e-9, 1e-6)  # shares of a matrix's diagonal to add to it; the first that works is used


def factorise(M: F64) -> tuple[F64, F64 | None]:
    """Return a matrix and its upper Cholesky factor, which is None if the factorisation fails or the time is over.

    If rounding has made the matrix singular, its diagonal is raised by the least share in RIDGES that repairs it.
    Dropping the large curvature of the losses instead would make a step too long by many orders of magnitude.
    """
    for ridge in RIDGES:
        try:
            raised, factor = finish_matrix(len(M), _factorise_raised, M, ridge)
        except TimeLimitError:
            break
        if factor is not None:
            return raised, factor
    return M, None


@np.errstate(invalid="ignore")  # a matrix that is not finite has no factor
def _factorise_raised(M: F64, ridge: float) -> tuple[F64, F64 | None]:
    raised = M + np.diag(ridge * np.diagonal(M))
    return raised, find_factor(raised)


def find_raised_factor(matrix: F64, diagonal: Any, size: Any, shares: Sequence[float]) -> tuple[F64, float | None]:
    """Return the lower Cholesky factor of a matrix with a raised diagonal, and the share of `size` that was needed.

    The diagonal is raised by `diagonal`, and by the first of the `shares` of `size` with which a factor exists; both
    are (n,) or a number. If no factor exists with any of them, the share is None.
    """
    for share in shares:
        raised = matrix.copy(order="F")
        raised.flat[:: len(matrix) + 1] += diagonal + share * size
        factor, failed_at = dpotrf(raised, lower=1, overwrite_a=1)
        if failed_at == 0:
            return factor, share
    return factor, None


def solve_definite(matrix: F64, right: F64) -> F64 | None:
    """Return the x with A x = right, or None if the Cholesky factorisation fails. matrix: the upper triangle of A."""
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        return None
    factor, info = dpotrf(matrix, clean=0)
    return dpotrs(factor, right)[0] if info == 0 else None


BLOCK = 64  # number of columns that LAPACK processes at once


class RowQR:
    """The QR factorisation of a finite matrix A (m, n), m >= n, for weighted least squares."""

    def __init__(self, matrix: F64) -> None:
        self.order = np.argsort(-np.max(np.abs(matrix), axis=1), kind="stable")
        sorted_rows, width = np.asfortranarray(matrix[self.order]), matrix.shape[1]
        self.factors, self.columns, self.tau, _, _ = dgeqp3(sorted_rows, lwork=2 * width + (width + 1) * BLOCK)

    def solve(self, right: F64) -> F64:
        """Return the least-squares solution (n,) for b (m,); NaN if A is singular."""
        width = len(self.columns)
        turned = dormqr("L", "T", self.factors, self.tau, right[self.order][:, None], BLOCK * (1 + BLOCK))[0]
        solution, singular = dtrtrs(np.asfortranarray(self.factors[:width]), turned[:width])
        found = np.full(width, np.nan)
        if not singular:
            found[self.columns - 1] = solution[:, 0]
        return found
