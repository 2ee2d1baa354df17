"""A model's objective on all training rows, and its accuracy, computed by the same code for every trainer.

    linear   P(w, b) = 1/2 |w|^2 + 1/2 b^2 + C sum max(0, 1 - y_i (w.x_i + b))
    kernel   P(f, b) = 1/2 beta'K beta + C sum max(0, 1 - y_i (f(x_i) + b)),   f(x) = sum_j beta_j k(x, v_j)

k(x, v) = exp(-gamma |x - v|^2). The v_j are support vectors, the vectors of a budgeted model, or the landmarks of
Nystroem, so all of these models are functions of the same space. Everything is computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from pipelines.compare.problems import Labels, Matrix, Problem

F64 = npt.NDArray[np.float64]
LINEAR_ROWS, KERNEL_ROWS = 1 << 16, 100  # The kernel values of 100 rows stay in the processor's cache.
THREADS = 2
Saved = Mapping[str, Any]


class Worth(NamedTuple):
    """The objective on the training rows, and the share of test rows that are classified correctly."""

    objective: float
    accuracy: float


def evaluate(problem: Problem, model: Saved, X: Matrix, y: Labels, test: tuple[Matrix, Labels]) -> Worth:
    """Evaluate a model. model: the saved arrays: w and b, or sparse vectors, their coefficients beta, and b."""
    decide, square = (open_linear if problem.gamma is None else open_kernel)(problem, model)
    step = LINEAR_ROWS if problem.gamma is None else KERNEL_ROWS
    hinge = np.maximum(0, 1 - y * score(decide, X, step)).sum()
    right = (score(decide, test[0], step) > 0) == (test[1] > 0)
    return Worth(square / 2 + problem.C * float(hinge), float(right.mean()))


def score(decide: Callable[[Matrix], F64], X: Matrix, step: int) -> F64:
    """Return the scores of all rows, computed for `step` rows at a time."""
    with threadpool_limits(1), ThreadPoolExecutor(THREADS) as pool:
        return np.concatenate(list(pool.map(lambda at: decide(X[at : at + step]), range(0, X.shape[0], step))))


def open_linear(problem: Problem, model: Saved) -> tuple[Callable[[Matrix], F64], float]:  # noqa: ARG001
    """Return the function that scores rows, and |w|^2 + b^2."""
    w, b = np.asarray(model["w"], np.float64).ravel(), float(model["b"])
    return lambda X: np.asarray(X @ w + b, np.float64), float(w @ w) + b**2


def open_kernel(problem: Problem, model: Saved) -> tuple[Callable[[Matrix], F64], float]:
    """Return the function that scores rows, and beta'K beta."""
    beta, b, gamma = np.asarray(model["beta"], np.float64).ravel(), float(model["b"]), problem.gamma
    assert gamma is not None
    sparse = csr_array((model["data"], model["indices"], model["indptr"]), (len(beta), int(model["width"])))
    vectors = sparse.toarray().astype(np.float64)
    squares = (vectors**2).sum(axis=1)

    def sum_kernels(X: F64) -> F64:
        K = X @ vectors.T
        K *= 2
        K -= squares
        K -= (X**2).sum(axis=1)[:, None]
        np.minimum(K, 0, out=K)
        K *= gamma
        return np.asarray(np.exp(K, out=K) @ beta)

    parts = [slice(at, at + KERNEL_ROWS) for at in range(0, len(beta), KERNEL_ROWS)]
    square = sum(float(beta[part] @ sum_kernels(vectors[part])) for part in parts)
    return lambda X: sum_kernels((X.toarray() if isinstance(X, csr_array) else X).astype(np.float64)) + b, square
