"""One-class problems on generated rows, their objective in long double, and feasible points by a QP library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import piqp
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel
from tests.conftest import F64
from tests.solvers.test_kernel_certificates import compute_long

Long = npt.NDArray[np.longdouble]


@dataclass(frozen=True)
class OneClass:
    """Rows X (n, d), float32 in value, nu, and weights or None."""

    X: F64
    nu: float
    weight: F64 | None = None
    sparse: bool = False

    def in_memory(self) -> ArrayDataset:
        """The rows as a source without labels."""
        return ArrayDataset(csr_array(self.X) if self.sparse else self.X, None, None, self.weight)

    def store(self, path: Path, chunk_bytes: int = 4000) -> Dataset:
        """The rows as a dataset without labels, not shuffled."""
        rows = csr_array(self.X) if self.sparse else self.X.astype(np.float32)
        return ingest(rows, path, sample_weight=self.weight, chunk_bytes=chunk_bytes, shuffle=None)

    @property
    def costs(self) -> Long:
        """C_i (n,)."""
        return np.asarray(np.ones(len(self.X)) if self.weight is None else self.weight, np.longdouble)

    @property
    def total(self) -> np.longdouble:
        """N, the sum of the multipliers."""
        return np.longdouble(np.longdouble(self.nu) * np.sum(self.costs))

    def read_multipliers(self, model: KernelModel) -> Long:
        """The multipliers of all rows, (n,)."""
        assert model.support is not None
        alpha = np.zeros(len(self.X), np.longdouble)
        alpha[model.support] = model.dual_coef
        return alpha

    def matrix(self, kernel: Kernel) -> Long:
        """K (n, n) as the kernel is defined, in long double."""
        return compute_long(kernel, self.X, self.X)

    def find_point(self, K: Long) -> Long:
        """Multipliers by PIQP, put into the box and onto the sum."""
        used = np.flatnonzero(self.costs > 0)
        C, scale = self.costs[used].astype(np.float64), float(np.max(self.costs))
        wide = K[np.ix_(used, used)]
        unit = np.max(np.abs(np.diagonal(wide))) or np.longdouble(1.0)
        solver = piqp.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
        n = len(used)
        ones, zeros = np.ones((1, n)), np.zeros(n)
        total = np.array([float(self.total) / scale])
        solver.setup((wide / unit).astype(np.float64), zeros, A=ones, b=total, x_l=zeros, x_u=C / scale)
        solver.solve()
        point = np.clip(np.nan_to_num(solver.result.x) * np.longdouble(scale), 0, self.costs[used])
        alpha = np.zeros(len(self.X), np.longdouble)
        alpha[used] = fill(point, self.costs[used], self.total)
        return alpha


def fill(alpha: Long, costs: Long, total: Any) -> Long:
    """Multipliers of the box that sum to the total: all fall, or all rise, in proportion to their room."""
    lacking = total - np.sum(alpha)
    room = costs - alpha if lacking > 0 else alpha
    return np.asarray(np.clip(alpha + room * (lacking / max(np.sum(room), np.longdouble(1e-300))), 0, costs))
