"""Problems of nu-SVC and nu-SVR on generated rows, their objectives in long double, and feasible points by PIQP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import piqp
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel
from tests.conftest import F64
from tests.one_class_problems import Long, fill
from tests.solvers.test_kernel_certificates import compute_long


@dataclass(frozen=True)
class NuProblem:
    """Rows X (n, d), float32 in value, labels y of -1 and +1 or targets; nu, C (1 for labels), weights or None."""

    X: F64
    nu: float
    y: F64 | None = None
    target: F64 | None = None
    C: float = 1.0
    weight: F64 | None = None
    sparse: bool = False

    @property
    def task(self) -> str:
        """The name of the problem."""
        return "nu-regress" if self.y is None else "nu-classify"

    def in_memory(self) -> ArrayDataset:
        """The rows as a source."""
        X = csr_array(self.X) if self.sparse else self.X
        if self.y is None:
            return ArrayDataset(X, None, None, self.weight, target=self.target)
        return ArrayDataset(X, (self.y > 0).astype(np.int32), np.array([-1, 1]), self.weight)

    def store(self, path: Path, chunk_bytes: int = 4000) -> Dataset:
        """The rows as a dataset, not shuffled."""
        rows = csr_array(self.X) if self.sparse else self.X.astype(np.float32)
        labels = self.target if self.y is None else self.y.astype(np.int64)
        about = {"regression": True} if self.y is None else {}
        return ingest(rows, path, labels, sample_weight=self.weight, chunk_bytes=chunk_bytes, shuffle=None, **about)

    @property
    def costs(self) -> Long:
        """C_i (n,)."""
        return np.asarray(np.ones(len(self.X)) if self.weight is None else self.weight, np.longdouble) * self.C

    @property
    def total(self) -> np.longdouble:
        """N = nu sum_i C_i."""
        return np.longdouble(np.longdouble(self.nu) * np.sum(self.costs))

    def matrix(self, kernel: Kernel) -> Long:
        """K (n, n) as the kernel is defined, in long double."""
        return compute_long(kernel, self.X, self.X)

    def read_coefficients(self, model: KernelModel) -> Long:
        """s_i = y_i a_i of all rows, (n,), before nu-SVC divides them by r."""
        assert model.support is not None
        s = np.zeros(len(self.X), np.longdouble)
        s[model.support] = model.dual_coef
        return s if self.y is None else s * (self.total / np.sum(np.abs(s)))

    def measure(self, K: Long, s: Long, bias: float) -> np.longdouble:
        """The objective: 1/2 |w|^2 of nu-SVC, or P of nu-SVR at the best epsilon for this bias."""
        half = s @ K @ s / 2
        if self.target is None:
            return np.longdouble(half)
        distances = np.abs(np.asarray(self.target, np.longdouble) - K @ s - np.longdouble(bias))
        order = np.argsort(-distances)  # the best epsilon is the distance beyond which costs of N lie
        at = min(int(np.searchsorted(np.cumsum(self.costs[order]), self.total * (1 - 1e-15))), len(order) - 1)
        width = distances[order][at]
        return np.longdouble(half + self.total * width + self.costs @ np.maximum(0, distances - width))

    def bound(self, K: Long, s: Long) -> np.longdouble:
        """D of a feasible point of nu-SVR."""
        return np.longdouble(np.asarray(self.target, np.longdouble) @ s - s @ K @ s / 2)

    def find_point(self, K: Long) -> Long:
        """A feasible point s (n,) by PIQP, put into the box and onto the sums."""
        n, unit = len(self.X), np.max(np.abs(np.diagonal(K))) or np.longdouble(1.0)
        size = float(np.max(self.costs))
        solver = piqp.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
        C, half = (self.costs / size).astype(np.float64), float(self.total / 2 / size)
        if self.y is None:
            target = np.asarray(self.target, np.float64)
            wide = (K / unit).astype(np.float64)
            shift = (target - target.mean()) / float(unit * size)
            both = np.block([[wide, -wide], [-wide, wide]])
            ones = np.ones((1, n))
            A = np.block([[ones, -ones]])
            G = np.ones((1, 2 * n))
            limits = {"x_l": np.zeros(2 * n), "x_u": np.concatenate((C, C))}
            solver.setup(both, np.concatenate((-shift, shift)), A, np.zeros(1), G, h_u=np.array([2 * half]), **limits)
            solver.solve()
            plus, minus = np.split(np.clip(np.nan_to_num(solver.result.x), 0, limits["x_u"]) * np.longdouble(size), 2)
            s = plus - minus
            level = min(np.sum(np.maximum(s, 0)), np.sum(np.maximum(-s, 0)), self.total / 2)
            above, below = (fill(np.maximum(part, 0), np.maximum(part, 0), level) for part in (s, -s))
            return np.asarray(above - below)
        wide = ((K * np.outer(self.y, self.y)) / unit).astype(np.float64)
        A = np.stack((self.y > 0, self.y < 0)).astype(np.float64)
        solver.setup(wide, np.zeros(n), A, np.full(2, half), x_l=np.zeros(n), x_u=C)
        solver.solve()
        point = np.clip(np.nan_to_num(solver.result.x) * np.longdouble(size), 0, self.costs)
        for side in (self.y > 0, self.y < 0):
            point[side] = fill(point[side], self.costs[side], self.total / 2)
        return np.asarray(point * self.y)
