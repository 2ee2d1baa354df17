"""Hostile problems of every loss, drawn by seeds: the same loss and seed make the same rows, costs and parameters.

Scales and costs go from 1e-8 to 1e8, weights over 12 decades and to 0; rows are duplicates, zeros, lattices, offset,
separable, one column, wide; arrays are dense and sparse, float32 and float64.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm import Eigenmap, IncompleteCholesky, Nystroem
from streamsvm.estimators import (
    SVC,
    SVR,
    LinearOneClassSVM,
    LinearSVC,
    LinearSVR,
    LogisticRegression,
    NuSVC,
    NuSVR,
    OneClassSVM,
    RankSVM,
)

F64 = np.typing.NDArray[np.float64]
ROWS = ("normal", "binary", "separable", "one column", "duplicates", "offset", "mixed", "zeros", "lattice")
IN_MEMORY = ("dense", "sparse", "few resident", "sparse, few resident", "threads")
STORED = ("stored dense", "stored sparse", "stored, few resident", "stored, threads")
KERNELS = ("rbf", "rbf", "poly", "linear")


@dataclass(frozen=True)
class Family:
    """An estimator, the parameters that make the loss, and what a row is labelled with."""

    estimator: Any
    labels: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


CS = {"multi_class": "crammer_singer"}
FAMILIES = {
    "squared hinge": Family(LinearSVC, "two", {"loss": "squared_hinge"}),
    "logistic": Family(LogisticRegression, "two"),
    "l1 squared hinge": Family(LinearSVC, "two", {"loss": "squared_hinge", "penalty": "l1"}),
    "l1 logistic": Family(LogisticRegression, "two", {"penalty": "l1"}),
    "tube": Family(LinearSVR, "numbers"),
    "squared tube": Family(LinearSVR, "numbers", {"loss": "squared_epsilon_insensitive"}),
    "interior point": Family(LinearSVC, "two", {"solver": "interior-point"}),
    "Crammer-Singer": Family(LinearSVC, "classes", CS),
    "one against the rest": Family(LinearSVC, "classes"),
    "label sets": Family(LinearSVC, "sets"),
    "few ranks": Family(RankSVM, "ranks"),
    "histograms": Family(RankSVM, "ranks"),
    "low rank": Family(LinearSVC, "two"),
    "tune": Family(LinearSVC, "two"),
    "SVR": Family(SVR, "numbers"),
    "NuSVC": Family(NuSVC, "two"),
    "NuSVR": Family(NuSVR, "numbers"),
    "one class": Family(OneClassSVM, "none"),
    "linear one class": Family(LinearOneClassSVM, "none"),
    "one against one": Family(SVC, "classes"),
    "kernel Crammer-Singer": Family(SVC, "classes", CS),
    "edits": Family(LinearSVC, "two"),
}
NO_CLASS_WEIGHT = ("edits", "label sets", "tune")


@dataclass(frozen=True)
class Hostile:
    """A problem: rows X, float32 in value, their labels y, weights or None, parameters, and the layouts to fit."""

    loss: str
    seed: int
    rows: str
    X: F64
    y: Any
    weight: F64 | None
    parameters: dict[str, Any]
    layouts: tuple[str, ...]
    dtype: str

    @property
    def family(self) -> Family:
        """What the loss is made by."""
        return FAMILIES[self.loss]

    @property
    def tol(self) -> float:
        """The gap that is asked for."""
        return float(self.parameters["tol"])

    @property
    def is_kernel(self) -> bool:
        """Whether the model is a sum of kernels."""
        return self.family.estimator in (SVC, SVR, NuSVC, NuSVR, OneClassSVM)

    @property
    def holds_rows(self) -> bool:
        """Whether rows can stay in memory: Newton's method and others that hold none refuse to be told how many."""
        is_smooth = self.family.estimator is LogisticRegression or "squared" in self.parameters.get("loss", "")
        return not is_smooth and self.loss not in ("interior point", "few ranks", "histograms")

    def take(self, rows: Any) -> Hostile:
        """The same problem of some rows."""
        return replace(self, X=self.X[rows], y=self.y[rows], weight=None if self.weight is None else self.weight[rows])

    def relabel(self) -> Hostile:
        """The same rows with the other of two labels."""
        return replace(self, y=1 - self.y)

    def join(self, other: Hostile) -> Hostile:
        """The rows of both."""
        weight = None if self.weight is None else np.append(self.weight, other.weight)
        return replace(self, X=np.vstack([self.X, other.X]), y=np.append(self.y, other.y), weight=weight)

    def is_like(self, other: Hostile) -> bool:
        """Whether the optimum is the same."""
        mine, others = ((each.X, each.y, each.weight) for each in (self, other))
        same = self.parameters == other.parameters
        return same and all(np.array_equal(*pair) for pair in zip(mine, others, strict=True))

    def describe(self) -> dict[str, Any]:
        """What is printed of it."""
        weights = "none" if self.weight is None else f"{np.min(self.weight):.0e}..{np.max(self.weight):.0e}"
        about = {"rows": self.rows, "n": len(self.X), "d": self.X.shape[1], "weights": weights, "dtype": self.dtype}
        given = {name: repr(each) if name == "feature_map" else each for name, each in self.parameters.items()}
        return {**about, "largest": f"{np.max(np.abs(self.X)):.0e}", **given}


def draw(loss: str, seed: int) -> Hostile:
    """The problem of a seed."""
    rng = np.random.default_rng([zlib.crc32(loss.encode()), seed])
    rows, X, side = _draw_rows(rng, loss)
    y = _draw_labels(rng, FAMILIES[loss].labels, X, side)
    scale = 10.0 ** rng.uniform(-8, 8) if rng.random() < 0.6 else 1.0
    X = (X * scale).astype(np.float32).astype(np.float64)
    n, weight = len(X), None
    chosen = rng.random()
    if chosen < 0.2:
        weight = (rng.random(n) < 0.7).astype(np.float64)
    elif chosen < 0.4:
        weight = 10.0 ** rng.uniform(-6, 6, size=n)
    elif chosen < 0.5:
        weight = rng.random(n) * (rng.random(n) < 0.8)
    if weight is not None and not np.any(weight):  # which scikit-learn's own validation refuses
        weight[0] = 1.0
    layouts = str(rng.choice(IN_MEMORY)), str(rng.choice(STORED))
    parameters = {**FAMILIES[loss].parameters, **_draw_parameters(rng, loss, y)}
    return Hostile(loss, seed, rows, X, y, weight, parameters, layouts, str(rng.choice(["float32", "float64"])))


def _draw_rows(rng: np.random.Generator, loss: str) -> tuple[str, F64, np.typing.NDArray[np.int64]]:
    """The kind of the rows, the rows, and on which of two sides each lies."""
    n, d = int(rng.choice([2, 3, 5, 10, 30, 80, 200])), int(rng.choice([1, 2, 3, 8, 30]))
    if loss in ("histograms", "edits", "tune"):
        n = int(rng.choice([60, 200]))
    elif rng.random() < 0.03:
        n, d = min(n, 30), 2000
    kind, X, side = str(rng.choice(ROWS)), rng.normal(size=(n, d)), rng.integers(0, 2, n)
    side[0], side[-1] = 0, 1
    if kind == "binary":
        X = (rng.random((n, d)) < 0.3).astype(np.float64)
    elif kind == "lattice":
        X = rng.integers(-2, 3, size=(n, d)).astype(np.float64)
    elif kind == "separable":
        X[:, 0] += (2 * side - 1) * rng.choice([0.1, 1.0, 10.0])
    elif kind == "one column":
        X[:, 1:] = 0.0
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, n // 3), n)]
    elif kind == "offset":
        X += rng.choice([1.0, 100.0, 1e4])
    elif kind == "mixed":
        X *= 10.0 ** rng.uniform(-4, 4, size=d)
    elif kind == "zeros":
        X[rng.random(n) < 0.7] = 0.0
    if rng.random() < 0.3:
        X[:, -1] = 1.0
    return kind, X, side


def _draw_labels(rng: np.random.Generator, labels: str, X: F64, side: np.typing.NDArray[np.int64]) -> Any:
    n = len(X)
    if labels == "two":
        return side
    if labels == "numbers":
        target = X @ rng.normal(size=X.shape[1]) + rng.normal(size=n) + rng.choice([0.0, 100.0])
        return target * 10.0 ** rng.choice([-4, 0, 0, 4])
    if labels == "sets":
        return (rng.random((n, int(rng.choice([2, 4])))) < 0.4).astype(np.int64)
    if labels == "none":
        return None
    y = rng.integers(0, int(rng.choice([2, 3, 6] if labels == "ranks" else [3, 3, 5])), n)
    y[0], y[-1] = 0, 1
    return y


def _draw_parameters(rng: np.random.Generator, loss: str, y: Any) -> dict[str, Any]:
    family, found = FAMILIES[loss], {"tol": float(rng.choice([1e-3, 1e-6]))}
    takes_C = loss not in ("NuSVC", "one class", "linear one class")
    if takes_C:
        found["C"] = 10.0 ** rng.uniform(-8, 8) if rng.random() < 0.7 else 1.0
    if loss in ("NuSVC", "NuSVR", "one class", "linear one class"):
        found["nu"] = float(rng.choice([0.01, 0.1, 0.3, 0.5, 1.0]))
    if family.labels in ("two", "classes") and loss not in NO_CLASS_WEIGHT and rng.random() < 0.2:
        found["class_weight"] = {int(k): float(rng.choice([0.0, 0.1, 1.0, 100.0])) for k in np.unique(y)}
    if family.labels == "numbers" and loss != "NuSVR":
        found["epsilon"] = float(rng.choice([0.0, 0.1, 1.0]) * np.std(y))
    if family.estimator in (SVC, SVR, NuSVC, NuSVR, OneClassSVM) or loss == "low rank":
        found |= {"kernel": str(rng.choice(KERNELS)), "gamma": rng.choice(["scale", "auto", 1.0, 1e-3, 100.0])}
        found["gamma"] = found["gamma"] if found["gamma"] in ("scale", "auto") else float(found["gamma"])
        found |= {"degree": int(rng.choice([1, 2, 3, 5])), "coef0": float(rng.choice([0.0, 1.0]))}
    if loss == "low rank":
        maps = {"nystrom": Nystroem, "cholesky": IncompleteCholesky, "eigen": Eigenmap}
        kind = maps[str(rng.choice([*maps]))]
        own = {name: found.pop(name) for name in ("kernel", "gamma", "degree", "coef0")}
        found |= {"feature_map": kind(**own, n_components=int(rng.choice([2, 8]))), "n_jobs": 1}
    if loss in ("one against the rest", "label sets", "low rank", "tune"):
        found["loss"] = str(rng.choice(["hinge", "squared_hinge"]))
    if family.estimator in (LinearSVC, LinearSVR, LogisticRegression) and loss not in (
        "interior point",
        "edits",
        "tune",
    ):
        found["intercept_scaling"] = float(rng.choice([1.0, 1.0, 0.1, 100.0]))
    return found
