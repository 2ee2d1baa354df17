"""Feature maps Phi. A linear solver on features Phi(x) takes the place of a kernel solver on rows x.

PolynomialMap has (d + 1)(d + 2) / 2 features (Jung, O'Leary & Tits 2008, (5.1) and (5.2)):

    Phi(x) = (x_1^2 .. x_d^2, sqrt2 x_i x_j for i < j, sqrt2 x_1 .. sqrt2 x_d, 1) / largest
    Phi(x).Phi(z) = (x.z + 1)^2 / largest^2

KernelMap has r features, and approximates k(x, z) by a product Phi(x).Phi(z) of rank r (ibid., section 4):

    Phi(x) = T' k(Z, x)                       for m rows Z and a matrix T (m, r)
    w.Phi(x) = sum_j (T w)_j k(z_j, x)        so that a weight vector w is a kernel expansion

Features holds a map together with the scaling and the names of the raw features. A mapped dataset stores its Features,
and so does every model trained on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from streamsvm.kernels import precomputed, stored_parts
from streamsvm.kernels.kernel import Kernel, add_kernel_sums, compute_squares, to_float64
from streamsvm.kernels.layouts import match_layouts
from streamsvm.numeric.equations import finish_matrix
from streamsvm.numeric.rows import F32, F64, I64, CsrRows, Matrix, compute_scores, pack_rows, to_dense
from streamsvm.numeric.stored_types import Scaling, round_rows

LEAST_PIVOT = 1e-10  # relative to the largest diagonal element; smaller pivots are rounding error
PART_VALUES = 1 << 20  # float64 values (8 MB) that mapping one batch of rows may take
APPROXIMATIONS = ("cholesky", "eigen", "nystrom")


@dataclass(frozen=True)
class PolynomialMap:
    """The second-order map of d features, divided by `largest`."""

    d: int
    largest: float = 1.0
    nbytes: ClassVar[int] = 0  # the map has no arrays

    @property
    def n_features(self) -> int:
        """Number of features."""
        return (self.d + 1) * (self.d + 2) // 2

    @property
    def row_values(self) -> int:
        """Number of float64 values that `apply` holds per row: x, intermediate values and the features."""
        return self.n_features + 3 * self.d

    def apply(self, X: Matrix) -> F64:
        """Return Phi of rows (n, d): (n, n_features)."""
        x = to_dense(X).astype(np.float64)
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
    """The map given by a kernel, m rows Z (`rows`, (m, d)) and the matrix T (`matrix`, (m, r)).

    T is stored in C order, as in a map loaded from disk: products with T in Fortran order may differ in the last bits.
    approximation: the method that computed T, one of APPROXIMATIONS, or None for maps of earlier versions. It does not
    affect the features.
    """

    kernel: Kernel
    rows: Matrix
    matrix: F64 = field(repr=False)
    approximation: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", np.ascontiguousarray(self.matrix))

    @property
    def d(self) -> int:
        """Number of features of the input rows."""
        return int(self.rows.shape[1])

    @property
    def n_features(self) -> int:
        """Number of mapped features: the columns of T."""
        return int(self.matrix.shape[1])

    @property
    def rank(self) -> int:
        """The requested rank. A Nystroem map has fewer features if some eigenvalues were only rounding error."""
        return self.rows.shape[0] if self.approximation == "nystrom" else self.n_features

    @property
    def row_values(self) -> int:
        """Number of float64 values that `apply` holds per row: x (if dense), its kernel values and its features."""
        return (0 if isinstance(self.rows, CsrRows) else self.d) + sum(self.matrix.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the map's arrays."""
        return int(self.rows.nbytes + self.matrix.nbytes)

    def apply(self, X: Matrix) -> F64:
        """Return Phi of rows (n, d): (n, n_features)."""
        return compute_block(self.kernel, X, self.rows) @ self.matrix


FeatureMap = PolynomialMap | KernelMap


def count_rows_at_a_time(feature_map: FeatureMap) -> int:
    """Return the number of rows, at least 1, that can be mapped at once with PART_VALUES values."""
    return max(1, PART_VALUES // feature_map.row_values)


def split_rows(feature_map: FeatureMap, n_rows: int) -> Iterator[slice]:
    """Yield slices of the rows. The rows of a slice can be mapped at once."""
    step = count_rows_at_a_time(feature_map)
    for at in range(0, n_rows, step):
        yield slice(at, min(at + step, n_rows))


@dataclass(frozen=True)
class Features:
    """A feature map with the scaling (None: unscaled) and the names of its input features."""

    map: FeatureMap
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None

    def apply(self, X: Matrix) -> F32:
        """Return Phi(x), (n, n_features) float32, of rows (n, d) to which `scaling` has already been applied."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.map.apply(X)
        return round_rows(found, "the features of some rows")

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a JSON description and named arrays, from which `unpack_features` restores the Features."""
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
    """Return the packed Features after checking every part; raise ValueError if a part is invalid."""
    stored_parts.require(isinstance(about, Mapping), "features are not an object")
    d = stored_parts.read_count(about, "d", stored_parts.MOST_FEATURES)
    scaling, names = stored_parts.read_scaling(about, arrays, d), stored_parts.read_names(about, d)
    kind = stored_parts.read_part(about, "map")
    if kind == "polynomial":
        largest = stored_parts.read_number(about, "largest")
        stored_parts.require(largest > 0, f"largest is {largest}; a positive number is expected")
        return Features(PolynomialMap(d, largest), scaling, names)
    stored_parts.require(kind == "kernel", f"map is {str(kind)[:40]!r}; polynomial or kernel is expected")
    kernel, rows = stored_parts.read_kernel(about), stored_parts.read_rows(arrays, "rows", d)
    matrix = stored_parts.read_part(arrays, "matrix")
    stored_parts.require(kernel.name != precomputed.NAME, f"the kernel {kernel.name} has no features")
    stored_parts.require(np.ndim(matrix) == 2 and np.shape(matrix)[1] > 0, "matrix does not have two dimensions")
    approximation, known = about.get("approximation"), ", ".join(APPROXIMATIONS)
    fault = f"approximation is {str(approximation)[:40]!r}; one of {known} is expected"
    stored_parts.require(approximation in (None, *APPROXIMATIONS), fault)
    matrix = stored_parts.read_floats(arrays, "matrix", (rows.shape[0], matrix.shape[1]))
    return Features(KernelMap(kernel, rows, matrix, approximation), scaling, names)


def compute_block(kernel: Kernel, X: Matrix, Z: Matrix) -> F64:
    """Return k(x_i, z_j), (n, m) float64."""
    n, m = X.shape[0], Z.shape[0]
    X, Z = match_layouts(X, Z)
    if kernel.name == "linear":
        return compute_scores(X, np.asarray(to_dense(Z), np.float64))
    values: Any = np.empty((m, n))
    add_kernel_sums(kernel, to_float64(X), to_float64(Z), np.zeros(m), np.zeros(n), keep=(values, np.arange(m)))
    return np.asarray(values.T)


def measure_diagonal(kernel: Kernel, X: Matrix) -> F64:
    """Return k(x, x) of each row of X (n, d), (n,) float64."""
    if kernel.name == "rbf":
        return np.ones(X.shape[0])
    squares = compute_squares(to_float64(X)).astype(np.float64)
    if kernel.name == "poly":
        return np.asarray((kernel.gamma * squares + kernel.coef0) ** kernel.degree)
    return np.asarray(np.tanh(kernel.gamma * squares + kernel.coef0) if kernel.name == "sigmoid" else squares)


def choose_pivots(residual: F64, number: int, least: float) -> I64:
    """Return up to `number` pivots of a residual Gram matrix (m, m), each with a residual above `least`.

    Each pivot is the row with the largest residual left by the pivots before it.
    """
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
    """Return Phi(x) = L^-1 k(Z, x) with L L' = K(Z, Z).

    The features of all rows form the pivoted incomplete Cholesky factor of K.
    """
    K = compute_block(kernel, rows, rows)
    jitter = LEAST_PIVOT * float(np.max(np.diag(K)))
    L = cholesky(K + jitter * np.eye(len(K)), lower=True)
    return KernelMap(kernel, rows, finish_matrix(len(L), partial(solve_triangular, lower=True), L, np.eye(len(L))).T)


def make_nystrom_map(kernel: Kernel, rows: Matrix) -> KernelMap:
    """Return Phi(x) = Lambda^-1/2 U' k(Z, x) with U Lambda U' = K(Z, Z).

    Eigenvalues that are only rounding error are dropped.
    """
    values, vectors = finish_matrix(rows.shape[0], np.linalg.eigh, compute_block(kernel, rows, rows))
    kept = values > LEAST_PIVOT * values[-1]
    return KernelMap(kernel, rows, vectors[:, kept] / np.sqrt(values[kept]))


def truncate(feature_map: KernelMap, gram: F64, rank: int) -> KernelMap:
    """Return the map projected onto the `rank` leading eigenvectors of `gram`, which is Phi'Phi over all rows."""
    _, vectors = finish_matrix(len(gram), np.linalg.eigh, gram)
    return KernelMap(feature_map.kernel, feature_map.rows, feature_map.matrix @ vectors[:, ::-1][:, :rank])
