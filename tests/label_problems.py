"""Rows with sets of labels, made for tests: labels of very different frequencies, one that no row has among them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, random_array

import streamsvm
from streamsvm.data.store.dataset import Dataset
from tests.conftest import F64

SHARES = (0.02, 0.1, 0.3, 0.5, 0.9)


@dataclass(frozen=True)
class LabelProblem:
    """Rows (n, d), dense or CSR, which labels they have (n, L), and their weights, if they have any."""

    X: Any
    Y: npt.NDArray[np.bool_]
    weight: F64 | None = None

    def store(self, path: Path, **options: Any) -> Dataset:
        """The rows as a dataset."""
        return streamsvm.ingest(self.X, path, self.Y, sample_weight=self.weight, shuffle=None, **options)

    def dense(self) -> F64:
        """The rows as float64 with the constant feature 1."""
        X = self.X.toarray() if isinstance(self.X, csr_array) else self.X
        return np.column_stack((X, np.ones(len(self.Y)))).astype(np.float64)

    def value(self, label: int, w: F64, loss: str, costs: tuple[float, float]) -> np.longdouble:
        """P of a label in long double; costs: of rows without and with it."""
        y = np.where(self.Y[:, label], 1.0, -1.0)
        C = np.where(self.Y[:, label], costs[1], costs[0]) * (1.0 if self.weight is None else self.weight)
        long = np.longdouble
        missing = long(1) - y * (self.dense().astype(long) @ w.astype(long))
        losses = np.maximum(missing, 0) ** 2 if loss == "squared_hinge" else np.logaddexp(long(0), missing - 1)
        return long(0.5) * np.sum(w.astype(long) ** 2) + np.sum(C * losses)


def make_labels(
    seed: int, n: int = 800, d: int = 6, density: float = 1.0, weighted: bool = False, empty: bool = True
) -> LabelProblem:
    """Noisy thresholds of linear scores; the last label is had by no row if `empty`."""
    rng = np.random.default_rng(seed)
    X: Any = rng.normal(size=(n, d)).astype(np.float32)
    if density < 1.0:
        X = csr_array(random_array((n, d), density=density, rng=rng, dtype=np.float32, format="csr"))
    scores = X @ rng.normal(size=(d, len(SHARES))) + 0.5 * rng.normal(size=(n, len(SHARES)))
    Y = np.column_stack([s > np.quantile(s, 1 - share) for s, share in zip(scores.T, SHARES, strict=True)])
    Y = np.column_stack((Y, np.zeros(n, np.bool_))) if empty else Y
    return LabelProblem(X, Y, rng.choice([0.0, 0.5, 2.0], n) if weighted else None)
