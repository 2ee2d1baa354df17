"""Feature maps Phi: a linear solver on the rows Phi(x) learns what a kernel solver learns on the rows x.

PolynomialMap has (d + 1)(d + 2) / 2 features (Jung, O'Leary & Tits 2008, (5.1) and (5.2)):

    Phi(x) = (x_1^2 .. x_d^2, sqrt2 x_i x_j for i < j, sqrt2 x_1 .. sqrt2 x_d, 1) / largest
    Phi(x).Phi(z) = (x.z + 1)^2 / largest^2

KernelMap has r features, and approximates k(x, z) by a product Phi(x).Phi(z) of rank r (ibid., section 4):

    Phi(x) = T' k(Z, x)                       for m rows Z and a matrix T (m, r)
    w.Phi(x) = sum_j (T w)_j k(z_j, x)        so that a weight vector w is a kernel expansion

Features holds a map with the scaling and the names of the raw features. A dataset carries it with the rows that it
produced, and so does every model trained on them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from streamsvm.numeric import known_values
from streamsvm.numeric.compact import match_layouts
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, compute_squares, to_float64
from streamsvm.numeric.overflow import round_rows
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F32, F64, I64, CsrRows, Matrix, pack_rows, to_dense
from streamsvm.numeric.saved_parts import (
    MOST_FEATURES,
    read_count,
    read_floats,
    read_kernel,
    read_names,
    read_number,
    read_part,
    read_rows,
    read_scaling,
)
from streamsvm.numeric.scaling import Scaling

LEAST_PIVOT = 1e-10  # as a share of the largest diagonal element; smaller pivots are rounding
PART_VALUES = 1 << 20  # float64 values (8 MB) of the rows that are mapped at a time
APPROXIMATIONS = ("cholesky", "eigen", "nystrom")


@dataclass(frozen=True)
class PolynomialMap:
    """The second-order map of d features, divided by `largest`."""

    d: int
    largest: float = 1.0

    @property
    def n_features(self) -> int:
        """Number of features."""
        return (self.d + 1) * (self.d + 2) // 2

    @property
    def row_values(self) -> int:
        """Float64 values that `apply` holds for a row: x, intermediate values and the features."""
        return self.n_features + 3 * self.d

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the map, which has none."""
        return 0

    def apply(self, X: Matrix) -> F64:
        """Return Phi of rows (n, d): (n, n_features)."""
        x = (to_dense(X) if isinstance(X, CsrRows) else X).astype(np.float64)
        d, root = self.d, np.sqrt(2.0)
        phi = np.empty((len(x), self.n_features))
        np.square(x, out=phi[:, :d])
        at = d
        for i in range(d - 1):
            np.multiply(root * x[:, i : i + 1], x[:, i + 1 :], out=phi[:, at : at + d - 1 - i])
            at += d - 1 - i
        np.multiply(root, x, out=phi[:, at:-1])
        phi[:, -1] = 1.0
        phi /= self.largest
        return phi


@dataclass(frozen=True)
class KernelMap:
    """The map by a kernel, m rows Z (`rows`, (m, d)) and the matrix T (`matrix`, (m, r)).

    T is kept row by row, as a saved map is loaded, since a product with columns in a row may have other last bits.
    approximation: how it was found, one of APPROXIMATIONS; None for maps of earlier versions. It changes no feature.
    """

    kernel: Kernel
    rows: Matrix
    matrix: F64 = field(repr=False)
    approximation: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", np.ascontiguousarray(self.matrix))

    @property
    def d(self) -> int:
        """Number of features of the rows that are mapped."""
        return int(self.rows.shape[1])

    @property
    def n_features(self) -> int:
        """Number of features, which is the rank."""
        return int(self.matrix.shape[1])

    @property
    def rank(self) -> int:
        """The rank that was asked for. Nystroem's map has fewer features if some eigenvalues were rounding alone."""
        return self.rows.shape[0] if self.approximation == "nystrom" else self.n_features

    @property
    def row_values(self) -> int:
        """Float64 values that `apply` holds for a row: x if it is dense, its kernel values and its features."""
        return (0 if isinstance(self.rows, CsrRows) else self.d) + sum(self.matrix.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the map."""
        return int(self.rows.nbytes + self.matrix.nbytes)

    def apply(self, X: Matrix) -> F64:
        """Return Phi of rows (n, d): (n, n_features)."""
        return compute_block(self.kernel, X, self.rows) @ self.matrix


FeatureMap = PolynomialMap | KernelMap


def count_rows_at_a_time(feature_map: FeatureMap) -> int:
    """Return how many rows can be mapped at a time, so that PART_VALUES values suffice; it is at least one row."""
    return max(1, PART_VALUES // feature_map.row_values)


def split_rows(feature_map: FeatureMap, n_rows: int) -> Iterator[slice]:
    """Yield slices of rows to map at a time."""
    step = count_rows_at_a_time(feature_map)
    for at in range(0, n_rows, step):
        yield slice(at, min(at + step, n_rows))


@dataclass(frozen=True)
class Features:
    """A feature map with the scaling (None: raw) and the names of the features that it takes."""

    map: FeatureMap
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None

    def apply(self, X: Matrix) -> F32:
        """Return Phi(x) as float32, (n, n_features), of rows (n, d) that are scaled as `scaling` says."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.map.apply(X)
        return round_rows(found, "the features of some rows")

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a description for JSON, and arrays by name, from which `unpack_features` restores it."""
        kind = None if self.scaling is None else self.scaling.kind
        names = None if self.feature_names is None else list(self.feature_names)
        about: dict[str, Any] = {"d": self.map.d, "scaling": kind, "feature_names": names}
        arrays = {} if self.scaling is None else {"offset": self.scaling.offset, "factor": self.scaling.factor}
        if isinstance(self.map, PolynomialMap):
            return about | {"map": "polynomial", "largest": self.map.largest}, arrays
        arrays["matrix"] = self.map.matrix
        about |= {} if self.map.approximation is None else {"approximation": self.map.approximation}
        return about | {"map": "kernel", "kernel": asdict(self.map.kernel)}, arrays | pack_rows(self.map.rows, "rows")

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the packed map, scaling and names."""
        about, arrays = self.pack()
        about.pop("approximation", None)
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(f"{name} {arrays[name].shape}".encode() + np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()


def unpack_features(about: Any, arrays: Mapping[str, Any]) -> Features:
    """Return the Features that were packed, every part of them checked. Raises ValueError for all else."""
    if not isinstance(about, Mapping):
        raise ValueError("features are no object")
    d = read_count(about, "d", MOST_FEATURES)
    scaling, names = read_scaling(about, arrays, d), read_names(about, d)
    kind = read_part(about, "map")
    if kind == "polynomial":
        largest = read_number(about, "largest")
        if largest <= 0:
            raise ValueError(f"largest is {largest}; a positive number is expected")
        return Features(PolynomialMap(d, largest), scaling, names)
    if kind != "kernel":
        raise ValueError(f"map is {str(kind)[:40]!r}; polynomial or kernel is expected")
    kernel, rows, matrix = read_kernel(about), read_rows(arrays, "rows", d), read_part(arrays, "matrix")
    if kernel.name == known_values.NAME:
        raise ValueError(f"the kernel {kernel.name} has no features")
    if np.ndim(matrix) != 2 or np.shape(matrix)[1] < 1:
        raise ValueError("matrix does not have two dimensions")
    approximation = about.get("approximation")
    if approximation not in (None, *APPROXIMATIONS):
        raise ValueError(f"approximation is {str(approximation)[:40]!r}; {', '.join(APPROXIMATIONS)} are known")
    matrix = read_floats(arrays, "matrix", (rows.shape[0], matrix.shape[1]))
    return Features(KernelMap(kernel, rows, matrix, approximation), scaling, names)


def compute_block(kernel: Kernel, X: Matrix, Z: Matrix) -> F64:
    """Return k(x_i, z_j), (n, m) float64."""
    n, m = X.shape[0], Z.shape[0]
    X, Z = match_layouts(X, Z)
    if kernel.name == "linear":
        return compute_scores(X, np.asarray(to_dense(Z) if isinstance(Z, CsrRows) else Z, np.float64))
    values: Any = np.empty((m, n))
    add_kernel_sums(kernel, to_float64(X), to_float64(Z), np.zeros(m), np.zeros(n), keep=(values, np.arange(m)))
    found: F64 = values.T
    return found


def compute_diagonal(kernel: Kernel, squares: F64) -> F64:
    """Return k(x, x), (n,), for rows of the given squared lengths."""
    if kernel.name == "rbf":
        return np.ones(len(squares))
    if kernel.name == "poly":
        return np.asarray((kernel.gamma * squares + kernel.coef0) ** kernel.degree)
    return np.asarray(np.tanh(kernel.gamma * squares + kernel.coef0) if kernel.name == "sigmoid" else squares)


def measure_diagonal(kernel: Kernel, X: Matrix) -> F64:
    """k(x, x) of rows (n, d), float64."""
    return compute_diagonal(kernel, compute_squares(to_float64(X)).astype(np.float64))


def choose_pivots(residual: F64, number: int, least: float) -> I64:
    """Return up to `number` pivots of a residual Gram matrix (m, m), largest diagonal first, all above `least`."""
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
    """Return Phi(x) = L^-1 k(Z, x) with L L' = K(Z, Z): the pivoted incomplete Cholesky factor of all rows' K."""
    K = compute_block(kernel, rows, rows)
    jitter = LEAST_PIVOT * float(np.max(np.diag(K)))
    L = cholesky(K + jitter * np.eye(len(K)), lower=True)
    return KernelMap(kernel, rows, solve_triangular(L, np.eye(len(L)), lower=True).T)


def make_nystrom_map(kernel: Kernel, rows: Matrix) -> KernelMap:
    """Return Phi(x) = Lambda^-1/2 U' k(Z, x) with U Lambda U' = K(Z, Z), without eigenvalues that are rounding."""
    values, vectors = np.linalg.eigh(compute_block(kernel, rows, rows))
    kept = values > LEAST_PIVOT * values[-1]
    return KernelMap(kernel, rows, vectors[:, kept] / np.sqrt(values[kept]))


def truncate(feature_map: KernelMap, gram: F64, rank: int) -> KernelMap:
    """Return the map onto the `rank` leading eigenvectors of gram, which is Phi'Phi over all rows."""
    _, vectors = np.linalg.eigh(gram)
    return KernelMap(feature_map.kernel, feature_map.rows, feature_map.matrix @ vectors[:, ::-1][:, :rank])
