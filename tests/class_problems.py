"""Rows of several classes, the objective of Crammer & Singer in long double, and independent optima."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import piqp
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.solver import Solver
from streamsvm.system.npz import pack_arrays
from tests.conftest import F64
from tests.linear_problems import Bracket, each_step

I32 = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class ClassProblem:
    """Rows X (n, d), float32 in value, codes of their classes, and weights or None."""

    X: F64
    y: I32
    weight: F64 | None = None
    sparse: bool = False

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.y.max()) + 1

    def in_memory(self) -> ArrayDataset:
        """The rows as a source."""
        X: Any = self.X.astype(np.float32)
        return ArrayDataset(csr_array(X) if self.sparse else X, self.y, np.arange(self.n_classes), self.weight)

    def store(self, path: Path, chunk_bytes: int = 20_000) -> Dataset:
        """The rows as a dataset, not shuffled."""
        X: Any = csr_array(self.X) if self.sparse else self.X
        return ingest(X, path, self.y, sample_weight=self.weight, chunk_bytes=chunk_bytes, shuffle=None)

    def costs(self, C: float, factors: Any = 1.0) -> F64:
        """C_i; factors: of the classes."""
        of_class: F64 = np.broadcast_to(C * np.asarray(factors, np.float64), self.n_classes)
        return of_class[self.y] * (1.0 if self.weight is None else self.weight)


def make_classes(
    seed: int, n: int = 60, d: int = 4, n_classes: int = 3, density: float = 1.0, weighted: bool = False
) -> ClassProblem:
    """Classes around points, which overlap; sparse below density 1."""
    random = np.random.default_rng(seed)
    y = np.concatenate((np.arange(n_classes), random.integers(0, n_classes, n - n_classes))).astype(np.int32)
    X = random.normal(size=(n_classes, d))[y] + random.normal(size=(n, d))
    X = np.where(random.random((n, d)) < density, X, 0.0).astype(np.float32).astype(np.float64)
    weight = random.choice([0.0, 0.5, 1.0, 3.0], size=n) if weighted else None
    return ClassProblem(X, y, weight, density < 1.0)


def read_weights(model: LinearModel, bias_feature: float = 1.0) -> F64:
    """W (K, d+1), whose last column weighs the constant feature; two classes have half of the one score each."""
    biases = np.atleast_1d(np.asarray(model.intercept, np.float64))
    W = np.column_stack((np.atleast_2d(model.coef), biases / bias_feature if bias_feature else biases))
    return W if len(W) > 1 else np.concatenate((-W, W)) / 2


def primal(problem: ClassProblem, costs: F64, W: F64, bias_feature: float = 1.0) -> float:
    """P(W) = 1/2 |W|^2 + sum_i C_i max_k ([k != y_i] + w_k.x_i) - w_{y_i}.x_i, in long double."""
    wide, every = np.longdouble, np.arange(len(problem.y))
    X = np.column_stack((problem.X, np.full(len(every), bias_feature))).astype(wide)
    scores = X @ W.astype(wide).T
    leads = 1 + scores - scores[every, problem.y][:, None]
    leads[every, problem.y] = 0
    return float(np.sum(W.astype(wide) ** 2) / 2 + costs.astype(wide) @ np.max(leads, axis=1))


def combine(problem: ClassProblem, costs: F64, share: F64, bias_feature: float = 1.0) -> F64:
    """W (K, d+1) of the shares c_ik (n, K), k != y_i."""
    every = np.arange(len(problem.y))
    alpha = -share.copy()
    alpha[every, problem.y] = 0.0
    alpha[every, problem.y] = -alpha.sum(axis=1)
    X = np.column_stack((problem.X, np.full(len(every), bias_feature)))
    return np.asarray((costs[:, None] * alpha).T @ X)


def dual(problem: ClassProblem, costs: F64, share: F64, bias_feature: float = 1.0) -> float:
    """D of the shares."""
    others = share.copy()
    others[np.arange(len(problem.y)), problem.y] = 0.0
    return float(costs @ others.sum(axis=1) - np.sum(combine(problem, costs, share, bias_feature) ** 2) / 2)


def bracket_by_qp(problem: ClassProblem, costs: F64, bias_feature: float = 1.0) -> Bracket:
    """Solve the dual by PIQP, in the shares c_ik >= 0, k != y_i, with sum_k c_ik <= 1."""
    n, K = len(problem.y), problem.n_classes
    pairs = [(i, k) for i in range(n) for k in range(K) if k != problem.y[i] and costs[i] > 0.0]
    rows, scale = np.array([i for i, _ in pairs]), costs.max()
    A = np.zeros((len(pairs), K * (problem.X.shape[1] + 1)))
    for at, (i, k) in enumerate(pairs):
        one = np.zeros((n, K))
        one[i, k] = 1.0
        A[at] = combine(problem, costs, one, bias_feature).ravel()
    sums = (np.arange(n)[:, None] == rows).astype(float)
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-12
    H, c = np.asfortranarray(A @ A.T / scale), -costs[rows] / scale
    limits = {"h_l": np.full(n, -np.inf), "h_u": np.ones(n), "x_l": np.zeros(len(pairs))}
    solver.setup(H, c, G=np.asfortranarray(sums), **limits)
    solver.solve()
    share = np.zeros((n, K))
    share[rows, [k for _, k in pairs]] = np.maximum(solver.result.x, 0.0)
    share /= np.maximum(share.sum(axis=1), 1.0)[:, None]
    W = combine(problem, costs, share, bias_feature)
    return Bracket(dual(problem, costs, share, bias_feature), primal(problem, costs, W, bias_feature))


def objective_by_liblinear(problem: ClassProblem, costs: F64) -> float:
    """P where LIBLINEAR (-s 4) ends."""
    settings: dict[str, Any] = {"C": 1.0, "tol": 1e-6, "max_iter": 1_000_000, "random_state": 0}
    model = LinearSVC(multi_class="crammer_singer", **settings).fit(problem.X, problem.y, sample_weight=costs)
    W = np.column_stack((model.coef_, model.intercept_))
    return primal(problem, costs, W if len(W) > 1 else np.concatenate((-W, W)) / 2)


def measure_driver(
    options: TrainOptions, n: int, d: int = 4, n_classes: int = 10, most: int = 3, totals: int = 1
) -> tuple[Solver, int, int]:
    """Train for `most` steps, with a checkpoint after each; return the solver, its peak of memory, and the planned one.

    The second of two trainings is measured, since the first compiles. totals: the number of planned totals of a task
    whose memory the solver may use.
    """
    X, y = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32), np.arange(n, dtype=np.int32) % n_classes
    for rows in (min(n, 1000), n):
        source = ArrayDataset(X[:rows], y[:rows], np.arange(n_classes))
        solver = set_up(source, options)
        tracemalloc.start()
        try:
            for step in islice(each_step(source, solver.solve(solver.start())), most):
                names = (part.name for part in fields(step.state) if part.name != "states")
                pack_arrays({name: getattr(step.state, name) for name in names})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    need = solver.memory(1)
    planned = need.driver_bytes + totals * need.totals_bytes + need.shared_bytes + need.walk_bytes + (4 << 20)
    return solver, peak, planned
