"""Explicit features: rows x become rows Phi(x) for which a linear solver does what a kernel solver does with x.

PolynomialMap, Jung, O'Leary & Tits 2008 (5.1), (5.2): Phi(x).Phi(z) = (x.z + 1)^2 / largest^2,

    Phi(x) = (x_1^2 .. x_d^2, sqrt2 x_i x_j for i < j, sqrt2 x_1 .. sqrt2 x_d, 1) / largest,  (d + 1)(d + 2) / 2 of them

KernelMap, ibid. section 4: Phi(x) = T' k(Z, x) for m rows Z and a matrix T (m, r), so that Phi(x).Phi(z) is an
approximation of k(x, z) of rank r. A w for Phi is a kernel expansion: w.Phi(x) = sum_j (T w)_j k(z_j, x).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, compute_scores, to_dense

LEAST_PIVOT = 1e-10  # of the largest diagonal element: what is less is rounding


@dataclass(frozen=True)
class PolynomialMap:
    """Second-order features of d. largest: what they are divided by."""

    d: int
    largest: float = 1.0

    @property
    def n_features(self) -> int:
        """Number of features."""
        return (self.d + 1) * (self.d + 2) // 2

    def apply(self, X: Matrix) -> F64:
        """Phi of rows (n, d): (n, n_features)."""
        x = (to_dense(X) if isinstance(X, CsrRows) else X).astype(np.float64)
        i, j = np.triu_indices(self.d, 1)
        root = np.sqrt(2.0)
        return np.hstack((x**2, root * x[:, i] * x[:, j], root * x, np.ones((len(x), 1)))) / self.largest


@dataclass(frozen=True)
class KernelMap:
    """Features by the kernel with m rows. rows: Z (m, d); matrix: T (m, r)."""

    kernel: Kernel
    rows: Matrix
    matrix: F64 = field(repr=False)

    @property
    def n_features(self) -> int:
        """Number of features: the rank."""
        return int(self.matrix.shape[1])

    def apply(self, X: Matrix) -> F64:
        """Phi of rows (n, d): (n, n_features)."""
        return compute_block(self.kernel, X, self.rows) @ self.matrix


FeatureMap = PolynomialMap | KernelMap


def compute_block(kernel: Kernel, X: Matrix, Z: Matrix) -> F64:
    """k(x_i, z_j): (n, m) float64."""
    n, m = X.shape[0], Z.shape[0]
    if isinstance(Z, CsrRows) != isinstance(X, CsrRows):
        X, Z = (to_dense(part) if isinstance(part, CsrRows) else part for part in (X, Z))
    if kernel.name == "linear":
        return compute_scores(X, np.asarray(to_dense(Z) if isinstance(Z, CsrRows) else Z, np.float64))
    values: Any = np.empty((m, n))
    add_kernel_sums(kernel, to_float64(X), to_float64(Z), np.zeros(m), np.zeros(n), keep=(values, np.arange(m)))
    found: F64 = values.T
    return found


def compute_diagonal(kernel: Kernel, squares: F64) -> F64:
    """k(x, x) of rows with these squared lengths."""
    if kernel.name == "rbf":
        return np.ones(len(squares))
    if kernel.name == "poly":
        return np.asarray((kernel.gamma * squares + kernel.coef0) ** kernel.degree)
    return np.asarray(np.tanh(kernel.gamma * squares + kernel.coef0) if kernel.name == "sigmoid" else squares)


def choose_pivots(residual: F64, number: int, least: float) -> I64:
    """Pivots of the Cholesky factor of a residual Gram matrix (m, m): the largest diagonal first, at least `least`."""
    rest, pivots = residual.copy(), []
    for _ in range(min(number, len(rest))):
        diagonal = np.diag(rest)
        k = int(np.argmax(diagonal))
        if diagonal[k] <= least:
            break
        pivots.append(k)
        column = rest[:, k] / np.sqrt(diagonal[k])
        rest -= np.outer(column, column)
    return np.array(pivots, np.int64)


def make_cholesky_map(kernel: Kernel, rows: Matrix) -> KernelMap:
    """K(x, Z) L^-T, where L L' = K(Z, Z): columns of the pivoted incomplete Cholesky factor of all rows' K."""
    K = compute_block(kernel, rows, rows)
    jitter = LEAST_PIVOT * float(np.max(np.diag(K)))
    L = cholesky(K + jitter * np.eye(len(K)), lower=True)
    return KernelMap(kernel, rows, solve_triangular(L, np.eye(len(L)), lower=True).T)


def make_nystrom_map(kernel: Kernel, rows: Matrix) -> KernelMap:
    """K(x, Z) U Lambda^-1/2, where U Lambda U' = K(Z, Z), eigenvalues of rounding left out."""
    values, vectors = np.linalg.eigh(compute_block(kernel, rows, rows))
    kept = values > LEAST_PIVOT * values[-1]
    return KernelMap(kernel, rows, vectors[:, kept] / np.sqrt(values[kept]))


def truncate(feature_map: KernelMap, gram: F64, rank: int) -> KernelMap:
    """Keep the eigenvectors of largest eigenvalue; gram: Phi'Phi over all rows, whole."""
    _, vectors = np.linalg.eigh(gram)
    return KernelMap(feature_map.kernel, feature_map.rows, feature_map.matrix @ vectors[:, ::-1][:, :rank])
