"""Independent optima and objectives of Crammer & Singer's problem with a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel
from tests.class_problems import ClassProblem, bracket_by_qp, primal
from tests.conftest import F64
from tests.linear_problems import Bracket

KERNELS = {"rbf": Kernel("rbf", 0.3), "poly": Kernel("poly", 0.5, 2, 1.0), "linear": Kernel("linear")}


def compute_long(kernel: Kernel, X: Any, Z: Any) -> Any:
    """K (n, m) as the kernels are defined, in long double."""
    X, Z = np.asarray(X, np.longdouble), np.asarray(Z, np.longdouble)
    if kernel.name == "rbf":
        squares = np.array([np.sum((Z - x) ** 2, axis=1) for x in X], np.longdouble).reshape(len(X), len(Z))
        return np.exp(-np.longdouble(kernel.gamma) * squares)
    products = X @ Z.T
    if kernel.name == "linear":
        return products
    return (np.longdouble(kernel.gamma) * products + np.longdouble(kernel.coef0)) ** kernel.degree


def bracket(problem: ClassProblem, kernel: Kernel, costs: F64, bias_feature: float = 1.0) -> Bracket:
    """The optimum by a QP library, of rows that are the factor of the kernel matrix."""
    values, vectors = np.linalg.eigh(compute_long(kernel, problem.X, problem.X).astype(np.float64))
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    return bracket_by_qp(replace(problem, X=factor), costs, bias_feature)


def split_model(model: KernelModel) -> tuple[F64, F64]:
    """Coefficients (K, m) and biases (K,); two classes have half of the one score each."""
    coefs, biases = np.atleast_2d(model.dual_coef), np.atleast_1d(np.asarray(model.intercept))
    return (coefs, biases) if len(coefs) > 1 else (np.concatenate((-coefs, coefs)) / 2, np.append(-biases, biases) / 2)


def measure(problem: ClassProblem, model: KernelModel, costs: F64, bias_feature: float = 1.0) -> tuple[float, float]:
    """P and D of a model by its coefficients alone, in long double."""
    coefs, biases = (part.astype(np.longdouble) for part in split_model(model))
    Z = np.asarray(problem.X)[model.support]
    weights = biases / bias_feature if bias_feature else np.zeros(len(biases))
    square = np.sum(coefs * (coefs @ compute_long(model.kernel, Z, Z))) + np.sum(weights**2)
    F = compute_long(model.kernel, problem.X, Z) @ coefs.T + biases
    every = np.arange(len(problem.y))
    leads = 1 + F - F[every, problem.y][:, None]
    leads[every, problem.y] = 0
    P = square / 2 + costs.astype(np.longdouble) @ np.max(leads, axis=1)
    own = coefs[problem.y[model.support], np.arange(len(Z))]
    return float(P), float(np.sum(own) - square / 2)


def objective_by_liblinear(problem: ClassProblem, costs: F64) -> float:
    """P where LIBLINEAR (-s 4) ends, without a bias."""
    settings: dict[str, Any] = {"tol": 1e-6, "max_iter": 1_000_000, "random_state": 0, "fit_intercept": False}
    model = LinearSVC(multi_class="crammer_singer", **settings).fit(problem.X, problem.y, sample_weight=costs)
    W = np.column_stack((model.coef_, np.zeros(len(model.coef_))))
    return primal(problem, costs, W if len(W) > 1 else np.concatenate((-W, W)) / 2, 0.0)
