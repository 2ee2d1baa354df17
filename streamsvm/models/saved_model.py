"""What all models share: they score rows in memory, and they are saved as arrays and JSON."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.errors import InputError
from streamsvm.files import pack_arrays, write_atomically
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.feature_maps import Features, split_rows
from streamsvm.numeric.overflow import refuse_overflow
from streamsvm.numeric.rows import F64, CsrRows, Matrix, slice_rows
from streamsvm.numeric.scaling import Scaling, make_rescaling
from streamsvm.problems.problem import Problem
from streamsvm.problems.registry import find_problem
from streamsvm.shown import Shown, tell_certificate

FORMAT = 1
ENCODED_FORMAT = 2  # of a model that encodes tables (info["encoding"]), which earlier versions cannot
Scorer = Callable[[Matrix], F64]
Intercept = float | F64


class SavedModel(Shown, ABC):
    """What all models share: they score rows in memory, and they are saved.

    features: the map that produced the training rows, or None for rows as they were. A model with a map takes raw rows
    and maps them; it takes rows of features only if it is told that the same map produced them.
    """

    features: Features | None
    classes: npt.NDArray[Any]
    info: dict[str, Any]
    scaling: Scaling | None
    feature_names: tuple[str, ...] | None
    kind: ClassVar[str]
    default_task: ClassVar[str] = "classify"

    def _list_facts(self) -> dict[str, str | None]:
        told, vectors = self.info, getattr(self, "dual_coef", None)
        problem, coef = told.get("problem"), np.asarray(getattr(self, "coef", ()))
        is_sparse = isinstance(problem, dict) and problem.get("penalty") == "l1"
        known = {"objective", "lower_bound"} <= set(told) and told["objective"] is not None
        return {
            "task": self.problem.name,
            "classes": f"{len(self.classes):,}" if len(self.classes) else None,
            "features": f"{self.n_features:,}",
            "support vectors": None if vectors is None else f"{vectors.shape[-1]:,}",
            "weights": f"{np.count_nonzero(coef):,} of {coef.size:,} weights are not 0" if is_sparse else None,
            "map": None if self.features is None else f"{self.n_trained:,} features",
            "scaling": None if self.scaling is None else self.scaling.kind,
            "solver": told.get("solver"),
            "C": str(told["C"]) if "C" in told else None,
            "status": told.get("status"),
            **(tell_certificate(told["objective"], told["lower_bound"]) if known else {}),
        }

    @property
    def problem(self) -> Problem:
        """The problem that it solves, which says what its scores stand for."""
        return find_problem(self.info.get("task", self.default_task))

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of a table become the features, before any map, or None if they are numbers."""
        about = self.info.get("encoding")
        return None if about is None else read_encoding(about)

    @property
    def row_scaling(self) -> Scaling | None:
        """The scaling of raw rows, before any map, or None."""
        return self.scaling if self.features is None else self.features.scaling

    @property
    def score_shape(self) -> tuple[int, ...]:
        """The shape of the scores of a row: () for one score, or (K,)."""
        n_scores = self.problem.count_scores(len(self.classes))
        return () if n_scores == 1 else (n_scores,)

    @property
    @abstractmethod
    def n_trained(self) -> int:
        """The number of features of the training rows, after the map if there is one."""

    @property
    def n_features(self) -> int:
        """The number of features of the rows that the model takes, before the map if there is one."""
        return self.n_trained if self.features is None else self.features.map.d

    def scorer(
        self, n_features: int, scaling: Scaling | None, sparse: bool, features: Features | None = None
    ) -> Scorer:
        """Return a function that computes f for rows of n_features features with this scaling (None: raw rows).

        features: the map that produced the rows, or None for raw rows. Sparse rows may have more or fewer features than
        the model, whose other features are 0; dense rows must have as many. InputError for rows that do not suit.
        """
        if self.features is None and features is None:
            return refuse_overflow(self._score_rows(n_features, scaling, sparse))
        if self.features is None or (features is not None and features.sha256 != self.features.sha256):
            raise InputError("another map than the model's produced these rows of features; give the model raw rows")
        known = refuse_overflow(self._score_rows(self.n_trained, None, False))
        return known if features is not None else map_first(self.features, known, n_features, scaling, sparse)

    @abstractmethod
    def _score_rows(self, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
        """Return a function that computes f for rows like the training rows, without a map."""

    @abstractmethod
    def to_arrays(self) -> dict[str, Any]:
        """Return the contents of the model's file by name."""

    def decide(self, X: Matrix, scaling: Scaling | None = None) -> F64:
        """Return f(x) for rows in memory, (n,) float64, or (n, K) for K > 2 classes.

        Raw float64 rows are scaled before they are rounded to float32, as the training rows were.
        """
        return self.scorer(X.shape[1], scaling, isinstance(X, CsrRows))(X)

    def to_bytes(self) -> bytes:
        """Return the bytes of the model's file, which are equal for equal models."""
        packed = pack_arrays(self.to_arrays())
        vars(self)["sha256"] = hashlib.sha256(packed).hexdigest()  # whoever writes the file tells it, too
        return packed

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes of the model's file, in hexadecimal digits."""
        return hashlib.sha256(pack_arrays(self.to_arrays())).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the model's file, wholly or not at all."""
        write_atomically(Path(path), self.to_bytes())


def describe(model: SavedModel, kind: str) -> dict[str, Any]:
    """Return what the file's JSON says of every kind of model."""
    scaling = None if model.scaling is None else model.scaling.kind
    return {
        "format": ENCODED_FORMAT if "encoding" in model.info else FORMAT,
        "kind": kind,
        "scaling": scaling,
        "feature_names": model.feature_names,
        "info": model.info,
        "n_features": model.n_trained,
        **({} if model.features is None else {"features": model.features.pack()[0]}),
    }


def pack_features(features: Features | None) -> dict[str, Any]:
    """Return the arrays of the map, with a prefix before their names."""
    arrays = {} if features is None else features.pack()[1]
    return {f"features_{name}": values for name, values in arrays.items()}


def map_first(features: Features, score: Scorer, n_features: int, scaling: Scaling | None, sparse: bool) -> Scorer:
    """Return a function that maps raw rows a few at a time, since features may take more memory, and computes f."""
    prepare = make_rescaling(n_features, scaling, sparse, features.map.d, features.scaling)

    def score_mapped(X: Matrix) -> F64:
        rows = prepare(X)
        parts = [score(features.apply(slice_rows(rows, part))) for part in split_rows(features.map, rows.shape[0])]
        return np.concatenate(parts) if parts else score(features.apply(rows))

    return score_mapped


def pack_scaling(scaling: Scaling | None) -> dict[str, F64]:
    """Return the arrays of a scaling, none for raw rows."""
    return {} if scaling is None else {"offset": scaling.offset, "factor": scaling.factor}
