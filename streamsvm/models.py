"""Models: what training leaves behind. Saved as arrays and JSON, never pickled: loading one runs no code."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError
from streamsvm.files import pack_arrays, unpack_arrays, write_atomically
from streamsvm.numeric.rows import F64, CsrRows, Matrix, compute_scores
from streamsvm.numeric.scaling import Scaling

FORMAT = 1


@dataclass(frozen=True)
class LinearModel:
    """f(x) = w.x + b for rows scaled as in training; f > 0 means classes[1].

    coef: (d,) float64; classes: (2,); scaling: of the training rows (None: raw). info: how it was trained.
    """

    coef: F64
    intercept: float
    classes: npt.NDArray[Any]
    scaling: Scaling | None = None
    feature_names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def scorer(self, n_features: int, scaling: Scaling | None, sparse: bool) -> tuple[F64, float]:
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

    def decide(self, X: Matrix, scaling: Scaling | None = None) -> F64:
        """F for rows in memory: (n,) float64."""
        w, b = self.scorer(X.shape[1], scaling, isinstance(X, CsrRows))
        return compute_scores(X, w[None, :])[:, 0] + b

    def to_bytes(self) -> bytes:
        """Return the model's file; the same bytes for the same model."""
        return pack_arrays(self.to_arrays())

    def save(self, path: str | Path) -> None:
        """Write the model's file, whole or not at all."""
        write_atomically(Path(path), self.to_bytes())

    def to_arrays(self) -> dict[str, Any]:
        """Return what is saved."""
        about = {
            "format": FORMAT,
            "kind": "linear",
            "intercept": self.intercept,
            "scaling": None if self.scaling is None else self.scaling.kind,
            "feature_names": self.feature_names,
            "info": self.info,
        }
        arrays = {"coef": self.coef, "classes": self.classes, "about": json.dumps(about)}
        if self.scaling is not None:
            arrays |= {"offset": self.scaling.offset, "factor": self.scaling.factor}
        return arrays


def load(path: str | Path) -> LinearModel:
    """Load a model from its file or from a run's folder; runs no code. InputError if there is none."""
    file = Path(path)
    if file.is_dir():
        file = file / "model.npz"
    return from_arrays(unpack_arrays(file), file)


def from_arrays(arrays: dict[str, Any], name: str | Path) -> LinearModel:
    """Return the model that was saved; InputError if it is none."""
    try:
        about = json.loads(str(arrays["about"]))
        if about["format"] != FORMAT:
            raise InputError(f"{name}: model format {about['format']!r}; this version of streamsvm reads {FORMAT}")
        scaling = Scaling(about["scaling"], arrays["offset"], arrays["factor"]) if about["scaling"] else None
        names = tuple(about["feature_names"]) if about["feature_names"] else None
        return LinearModel(arrays["coef"], about["intercept"], arrays["classes"], scaling, names, about["info"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"{name}: not a model of streamsvm ({error!r})") from error


def _same(left: Scaling | None, right: Scaling | None) -> bool:
    if left is None or right is None:
        return left is right
    same = np.array_equal(left.offset, right.offset) and np.array_equal(left.factor, right.factor)
    return left.kind == right.kind and same
