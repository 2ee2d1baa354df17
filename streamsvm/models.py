"""Models: what training leaves behind. Saved as arrays and JSON, never pickled: loading one runs no code."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError
from streamsvm.files import pack_arrays, unpack_arrays, write_atomically
from streamsvm.numeric.kernel_values import KERNELS
from streamsvm.numeric.kernels import Kernel, add_kernel_sums, to_float64
from streamsvm.numeric.rows import F32, F64, CsrRows, Matrix, compute_scores, keep_features, to_dense
from streamsvm.numeric.scaling import Scaling

FORMAT = 1
Scorer = Callable[[Matrix], F64]


class _SavedModel(ABC):
    """What all models can do: score rows in memory, and be saved."""

    @abstractmethod
    def scorer(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return what computes f for rows of so many features that were scaled like that (None: raw).

        Sparse rows may have more features or fewer (unseen ones count nothing); dense rows must have d. InputError.
        """

    @abstractmethod
    def to_arrays(self) -> dict[str, Any]:
        """Return what is saved."""

    def decide(self, X: Matrix, scaling: Scaling | None = None) -> F64:
        """F for rows in memory: (n,) float64."""
        return self.scorer(X.shape[1], scaling, isinstance(X, CsrRows))(X)

    def to_bytes(self) -> bytes:
        """Return the model's file; the same bytes for the same model."""
        return pack_arrays(self.to_arrays())

    def save(self, path: str | Path) -> None:
        """Write the model's file, whole or not at all."""
        write_atomically(Path(path), self.to_bytes())


@dataclass(frozen=True)
class LinearModel(_SavedModel):
    """f(x) = w.x + b for rows scaled as in training; f > 0 means classes[1].

    coef: (d,) float64; classes: (2,); scaling: of the training rows (None: raw). info: how it was trained.
    """

    coef: F64
    intercept: float
    classes: npt.NDArray[Any]
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        """Features of the training rows."""
        return len(self.coef)

    def scorer(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return what computes f for rows of so many features that were scaled like that (None: raw)."""
        w, b = self.weights(n_features, scaling, sparse)
        return lambda X: compute_scores(X, w[None, :])[:, 0] + b

    def weights(self, n_features: int, scaling: Scaling | None, sparse: bool) -> tuple[F64, float]:
        """Weights (n_features,) and bias for rows of so many features that were scaled like that (None: raw).

        Sparse rows may have more features or fewer (unseen ones count nothing); dense rows must have d. InputError.
        """
        if not sparse and n_features != len(self.coef):
            raise InputError(f"rows of {n_features} features; the model was trained on {len(self.coef)}")
        if _same(scaling, self.scaling):
            w, b = self.coef, self.intercept
        else:
            w, b = self.scaling.to_raw(self.coef, self.intercept) if self.scaling else (self.coef, self.intercept)
            if scaling is not None:
                known = min(len(w), n_features)
                part = Scaling(scaling.kind, scaling.offset[:known], scaling.factor[:known])
                head, b = part.from_raw(w[:known], b)
                w = np.concatenate((head, w[known:]))
        fitted = np.zeros(n_features)
        fitted[: min(len(w), n_features)] = w[:n_features]
        return fitted, b

    def to_arrays(self) -> dict[str, Any]:
        """Return what is saved."""
        about = _describe(self, "linear") | {"intercept": self.intercept}
        arrays = {"coef": self.coef, "classes": self.classes, "about": json.dumps(about)}
        return arrays | _pack_scaling(self.scaling)


@dataclass(frozen=True)
class KernelModel(_SavedModel):
    """f(x) = sum_j dual_coef_j k(x, z_j) + b over the support vectors z_j; f > 0 means classes[1].

    support_vectors: (m, d) float32, dense or sparse, scaled as in training; dual_coef: (m,) float64, y_j a_j.
    """

    kernel: Kernel
    support_vectors: Matrix
    dual_coef: F64
    intercept: float
    classes: npt.NDArray[Any]
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        """Features of the training rows."""
        return int(self.support_vectors.shape[1])

    def scorer(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """See LinearModel; the scores are sums over the support vectors."""
        d = self.support_vectors.shape[1]
        if not sparse and n_features != d:
            raise InputError(f"rows of {n_features} features; the model was trained on {d}")
        change = None if _same(scaling, self.scaling) else _find_change(scaling, self.scaling, d)

        def score(X: Matrix) -> F64:
            rows = keep_features(X, d) if isinstance(X, CsrRows) else X
            if change is not None:
                rows = _rescale(rows, *change)
            rows = to_float64(rows)
            if not isinstance(rows, CsrRows) and isinstance(self.support_vectors, CsrRows):
                vectors: Matrix = to_dense(self.support_vectors)
            elif isinstance(rows, CsrRows) and not isinstance(self.support_vectors, CsrRows):
                rows, vectors = to_dense(rows), self.support_vectors
            else:
                vectors = self.support_vectors
            f = np.full(rows.shape[0], self.intercept)
            add_kernel_sums(self.kernel, rows, vectors, self.dual_coef, f)
            return f

        return score

    def to_arrays(self) -> dict[str, Any]:
        """Return what is saved."""
        about = _describe(self, "kernel") | {"intercept": self.intercept, "kernel": asdict(self.kernel)}
        arrays = {"dual_coef": self.dual_coef, "classes": self.classes}
        if isinstance(self.support_vectors, CsrRows):
            about["n_features"] = self.support_vectors.n_features
            arrays |= {name: getattr(self.support_vectors, name) for name in ("data", "indices", "indptr")}
        else:
            arrays["support_vectors"] = self.support_vectors
        return arrays | {"about": json.dumps(about)} | _pack_scaling(self.scaling)


Model = LinearModel | KernelModel


def load(path: str | Path) -> Model:
    """Load a model from its file or from a run's folder; runs no code. InputError if there is none."""
    file = Path(path)
    if file.is_dir():
        file = file / "model.npz"
    return from_arrays(unpack_arrays(file), file)


def from_arrays(arrays: dict[str, Any], name: str | Path) -> Model:
    """Return the model that was saved; InputError if it is none."""
    try:
        about = json.loads(str(arrays["about"]))
        if about["format"] != FORMAT:
            raise InputError(f"{name}: model format {about['format']!r}; this version of streamsvm reads {FORMAT}")
        scaling = Scaling(about["scaling"], arrays["offset"], arrays["factor"]) if about["scaling"] else None
        names = tuple(about["feature_names"]) if about["feature_names"] else None
        shared = (about["intercept"], arrays["classes"], scaling, names, about["info"])
        if about["kind"] == "linear":
            return LinearModel(arrays["coef"], *shared)
        kernel, vectors = Kernel(**about["kernel"]), _read_vectors(arrays, about)
        if kernel.name not in KERNELS or arrays["dual_coef"].shape != (vectors.shape[0],):
            raise ValueError(f"a {kernel.name} kernel of {vectors.shape[0]} support vectors")
        return KernelModel(kernel, vectors, arrays["dual_coef"], *shared)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise InputError(f"{name}: not a model of streamsvm ({error!r})") from error


def _read_vectors(arrays: dict[str, Any], about: dict[str, Any]) -> Matrix:
    """Return the support vectors; ValueError for indices that would lead compiled code out of its arrays."""
    if "support_vectors" in arrays:
        dense: F32 = arrays["support_vectors"]
        return dense
    rows = CsrRows(arrays["data"], arrays["indices"], arrays["indptr"], about["n_features"])
    ends, inside = rows.indptr, (rows.indices >= 0) & (rows.indices < rows.n_features)
    if ends[0] or np.any(np.diff(ends) < 0) or not (ends[-1] == len(rows.data) == len(inside) == inside.sum()):
        raise ValueError("indices of support vectors outside of their arrays")
    return rows


def _same(left: Scaling | None, right: Scaling | None) -> bool:
    if left is None or right is None:
        return left is right
    same = np.array_equal(left.offset, right.offset) and np.array_equal(left.factor, right.factor)
    return left.kind == right.kind and same


def _describe(model: Model, kind: str) -> dict[str, Any]:
    scaling = None if model.scaling is None else model.scaling.kind
    return {
        "format": FORMAT,
        "kind": kind,
        "scaling": scaling,
        "feature_names": model.feature_names,
        "info": model.info,
    }


def _pack_scaling(scaling: Scaling | None) -> dict[str, F64]:
    return {} if scaling is None else {"offset": scaling.offset, "factor": scaling.factor}


def _find_change(rows: Scaling | None, model: Scaling | None, d: int) -> tuple[F64, F64]:
    """Return factor and shift (d,) that take rows scaled in one way (None: raw) to another."""
    factor, shift = np.ones(d), np.zeros(d)
    if rows is not None:
        known = min(d, len(rows.factor))
        factor[:known], shift[:known] = 1.0 / rows.factor[:known], rows.offset[:known]
    if model is not None:
        factor, shift = factor * model.factor, (shift - model.offset) * model.factor
    return factor, shift


def _rescale(X: Matrix, factor: F64, shift: F64) -> Matrix:
    """Return x * factor + shift; dense where zeros do not stay zeros."""
    if isinstance(X, CsrRows) and not shift.any():
        return CsrRows((X.data * factor[X.indices]).astype(np.float32), X.indices, X.indptr, X.n_features)
    dense: F32 = to_dense(X) if isinstance(X, CsrRows) else X
    return (dense * factor + shift).astype(np.float32)
