"""Regressions on generated rows, and their P in long double; independent minima by LIBLINEAR and a linear program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from tests.conftest import F64

LOSSES = ("epsilon_insensitive", "squared_epsilon_insensitive")


@dataclass(frozen=True)
class Regression:
    """Rows X (n, d), float32 in value, their targets, and weights or None."""

    X: F64
    target: F64
    weight: F64 | None = None
    sparse: bool = False

    def in_memory(self) -> ArrayDataset:
        """The rows as a source."""
        return ArrayDataset(csr_array(self.X) if self.sparse else self.X, None, None, self.weight, target=self.target)

    def store(self, path: Path, chunk_bytes: int = 20_000) -> Dataset:
        """The rows as a dataset, not shuffled."""
        rows = csr_array(self.X) if self.sparse else self.X
        more = {"chunk_bytes": chunk_bytes, "shuffle": None, "regression": True}
        return ingest(rows, path, self.target, sample_weight=self.weight, **more)

    def objective(self, w: F64, b: float, C: float, epsilon: float, loss: str, scaling: float = 1.0) -> float:
        """P in long double."""
        wide, costs = np.longdouble, np.full(len(self.target), C) if self.weight is None else C * self.weight
        scores = self.X.astype(wide) @ w.astype(wide) + wide(b)
        outside = np.maximum(0, np.abs(self.target.astype(wide) - scores) - wide(epsilon))
        losses = outside if loss == LOSSES[0] else outside**2
        half = (w.astype(wide) @ w.astype(wide) + (wide(b) / wide(scaling)) ** 2) / 2
        return float(half + costs.astype(wide) @ losses)


def make_regression(
    seed: int, n: int = 2000, d: int = 8, density: float = 1.0, weighted: bool = False, lattice: bool = False
) -> Regression:
    """Targets of a linear function with noise; on a lattice, many rows lie exactly on a kink."""
    random = np.random.default_rng(seed)
    X = random.integers(-2, 3, (n, d)) if lattice else random.standard_normal((n, d))
    X = np.where(random.random((n, d)) < density, X, 0.0).astype(np.float32).astype(np.float64)
    target = X @ random.standard_normal(d) + 0.7 + 0.5 * random.standard_t(3, n)
    weight = 10.0 ** random.uniform(-1, 1, n) * (random.random(n) > 0.1) if weighted else None
    return Regression(X, np.round(target) if lattice else target, weight, density < 1.0)
