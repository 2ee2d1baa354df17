"""Certificates of kernel SVMs on hostile data, in long double from the saved model: P, D, and the gap are true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array

from streamsvm import IRWLS, SMO, SVC
from streamsvm.kernels.kernel import Kernel, add_kernel_sums
from streamsvm.numeric.rows import F64
from streamsvm.system.errors import InputError
from tests.kernel_problems import to_csr

Long = npt.NDArray[np.longdouble]
SHAPES = ("normal", "binary", "separable", "duplicates", "offset", "mixed", "constant")
RULES = ("second-order", "largest", "smallest", "random", "chunking", "platt")
SCALES = (1e-8, 1e-4, 1.0, 1e4, 1e8)
KERNELS = (("rbf", "scale", 3, 0.0), ("linear", 1.0, 3, 0.0), ("poly", "scale", 2, 1.0), ("rbf", 1.0, 3, 0.0))


@dataclass(frozen=True)
class Hostile:
    """Rows (n, d) float32, labels 0 and 1, weights or None, and the estimator's parameters."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    weight: F64 | None
    is_sparse: bool
    parameters: dict[str, Any]


def draw(seed: int) -> Hostile:
    """Draw a problem: each seed another shape, scale of features and costs, kernel, solver and rule."""
    rng = np.random.default_rng([12, seed])
    n, d = int(rng.choice([3, 10, 40])), int(rng.choice([1, 3, 8]))
    y, X, shape = rng.integers(0, 2, n), rng.normal(size=(n, d)), SHAPES[seed % len(SHAPES)]
    y[0], y[-1] = 0, 1
    match shape:
        case "binary":
            X = (rng.random((n, d)) < 0.3).astype(float)
        case "separable":
            X[:, 0] += 10 * (2 * y - 1)
        case "duplicates":
            X = X[rng.integers(0, max(1, n // 3), n)]
        case "offset":
            X += 100.0
        case "mixed":
            X = X * 10.0 ** rng.uniform(-4, 4, d)
        case "constant":
            X[:, -1] = 1.0
    weights = (None, (rng.random(n) < 0.7).astype(float), 10.0 ** rng.uniform(-3, 3, n))
    name, gamma, degree, coef0 = KERNELS[seed % len(KERNELS)]
    parameters = {
        "kernel": name,
        "gamma": gamma,
        "degree": degree,
        "coef0": coef0,
        "C": float(10.0 ** rng.integers(-8, 9)),
        "solver": (SMO, IRWLS)[seed % 2](selection=RULES[seed % len(RULES)]),
        "tol": (1e-3, 1e-6)[seed // 2 % 2],
    }
    X32 = (X * SCALES[seed % len(SCALES)]).astype(np.float32)
    return Hostile(X32, y, weights[seed % 3], bool(rng.random() < 0.4), parameters)


def compute_long(kernel: Kernel, X: Any, Z: Any) -> Long:
    """K (n, m) as the kernels are defined, in long double."""
    X, Z = np.asarray(X, np.longdouble), np.asarray(Z, np.longdouble)
    if kernel.name == "rbf":
        squares = np.array([np.sum((Z - x) ** 2, axis=1) for x in X], np.longdouble).reshape(len(X), len(Z))
        return np.exp(-np.longdouble(kernel.gamma) * squares)
    products: Long = X @ Z.T
    if kernel.name == "linear":
        return products
    products = np.longdouble(kernel.gamma) * products + np.longdouble(kernel.coef0)
    return products**kernel.degree if kernel.name == "poly" else np.tanh(products)


def fit(problem: Hostile) -> SVC:
    rows = csr_array(problem.X) if problem.is_sparse else problem.X
    model = SVC(n_jobs=1, memory="2GB", max_passes=200, **problem.parameters)
    fitted: SVC = model.fit(rows, problem.y, sample_weight=problem.weight)
    return fitted


def measure_saved(problem: Hostile, model: SVC) -> tuple[float, float]:
    """P of the saved model, and the least P of some models: D may not exceed it."""
    costs = np.full(len(problem.y), np.longdouble(problem.parameters["C"]))
    costs = costs if problem.weight is None else costs * problem.weight
    y, vectors = np.where(problem.y == 1, 1, -1), model.support_vectors_
    vectors = vectors.toarray() if hasattr(vectors, "toarray") else vectors
    coef, kernel = model.dual_coef_[0].astype(np.longdouble), model.model_.kernel
    f = compute_long(kernel, problem.X, vectors) @ coef
    square = coef @ compute_long(kernel, vectors, vectors) @ coef

    def lose(bias: Any) -> Any:
        return np.sum(costs * np.maximum(0, 1 - y * (f + bias)))

    objective = square / 2 + lose(np.longdouble(model.intercept_[0]))
    balanced = 2 * min(np.sum(costs[y > 0]), np.sum(costs[y < 0]))  # w = 0
    return float(objective), float(min(balanced, objective, *(square / 2 + lose(corner) for corner in y - f)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(120))
def test_what_is_told_of_the_saved_model_is_true(seed: int) -> None:
    problem = draw(seed)
    if problem.weight is not None and len(np.unique(problem.y[problem.weight > 0])) < 2:
        with pytest.raises(InputError, match="same class"):
            fit(problem)
        return
    model = fit(problem)
    objective, least = measure_saved(problem, model)
    rounding = model.rounding_bound_ + 1e-15 * objective
    assert abs(model.objective_ - objective) <= rounding
    assert model.lower_bound_ <= least * (1 + 1e-15)
    assert model.status_ in ("converged", "stalled", "pass_limit")
    if model.status_ == "converged":
        assert objective - model.lower_bound_ <= problem.parameters["tol"] * objective * (1 + 1e-12)
    if model.status_ == "stalled":
        assert model.objective_ - model.lower_bound_ <= 10 * model.rounding_bound_


@pytest.mark.parametrize(("C", "scale", "seed"), [(1e10, 1e2, 2), (1e6, 1e4, 1), (1e6, 1e3, 0)])
def test_no_bound_is_above_what_a_separating_plane_costs(C: float, scale: float, seed: int) -> None:
    """Multipliers that are put on their bounds must not unbalance the sum of y a."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 60)
    X = rng.normal(size=(60, 4))
    X[:, 0] += 3 * (2 * y - 1)
    problem = Hostile(((X + 5) * scale).astype(np.float32), y, None, False, {"kernel": "linear", "C": C})
    model = fit(problem)
    objective, least = measure_saved(problem, model)
    assert abs(model.objective_ - objective) <= model.rounding_bound_ + 1e-15 * objective
    assert model.lower_bound_ <= least
    coef = model.dual_coef_[0].astype(np.longdouble)
    assert abs(np.sum(coef)) <= 1e-15 * np.sum(np.abs(coef))


@pytest.mark.parametrize("kernel", [{"kernel": "sigmoid"}, {"kernel": "poly", "coef0": -1.0}])
@pytest.mark.parametrize("solver", ["smo", "irwls"])
def test_an_indefinite_kernel_has_no_bound_and_does_not_converge(kernel: dict[str, Any], solver: str) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)).astype(np.float32), rng.integers(0, 3, 80)
    for labels in (y > 0, y):
        model = SVC(C=0.1, solver=solver, n_jobs=1, memory="2GB", **kernel).fit(X, labels)
        assert (model.status_, model.lower_bound_, model.gap_) == ("stationary", None, None)


def test_which_kernels_are_definite() -> None:
    """A matrix with a negative eigenvalue on sum s = 0 is found for each kernel that is not."""
    rng = np.random.default_rng(3)
    X = np.concatenate((rng.normal(size=(30, 2)), 0.1 * rng.normal(size=(30, 2))))
    centre = np.eye(60) - 1 / 60
    for name, degree, coef0, definite in (
        ("linear", 3, 0.0, True),
        ("rbf", 3, 0.0, True),
        ("poly", 3, 0.0, True),
        ("poly", 2, 1.0, True),
        ("poly", 1, -1.0, True),
        ("poly", 3, -1.0, False),
        ("poly", 2, -1.0, False),
        ("sigmoid", 3, -1.0, False),
    ):
        kernel = Kernel(name, 0.7, degree, coef0)
        values = np.linalg.eigvalsh(centre @ compute_long(kernel, X, X).astype(float) @ centre)
        assert kernel.is_definite == definite == bool(values.min() > -1e-10 * values.max())


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3])
def test_sums_are_within_their_bounds(is_sparse: bool, scale: float, offset: float) -> None:
    """Of rows with copies, zeros and any scale; and the bounds are not much more than rounding."""
    rng = np.random.default_rng(0)
    X = ((rng.normal(size=(50, 7)) + offset) * scale).astype(np.float32).astype(float)
    X[rng.random(X.shape) < 0.3] = 0.0
    X[10:20] = X[:10]
    coef = rng.normal(size=35) * 10.0 ** rng.uniform(-3, 3, 35)
    for kernel in (
        Kernel("linear"),
        Kernel("rbf", 1 / 7 / scale**2),
        Kernel("rbf", 1.0),
        Kernel("poly", 1 / scale**2, 3, -1.0),
        Kernel("poly", 1.0, 2, 1.0),
        Kernel("sigmoid", 1 / scale**2, 3, -1.0),
        Kernel("sigmoid", 0.01 / scale**2),
    ):
        rows, columns = (to_csr(part, np.float64) if is_sparse else part for part in (X, X[5:40]))
        f, errors = np.zeros(50), np.zeros(50)
        add_kernel_sums(kernel, rows, columns, coef, f, errors=errors)  # type: ignore[arg-type]
        K = compute_long(kernel, X, X[5:40])
        assert np.all(np.abs(f - K @ coef) <= errors)
        if kernel.name == "rbf":
            assert np.all(errors <= 1e-12 * np.sum(np.abs(coef)))


@pytest.mark.parametrize(
    "change", [{"scale": 1e30, "kernel": "poly", "degree": 7}, {"weight": 1e308}, {"C": 1e308}], ids=str
)
def test_numbers_beyond_range_are_refused(change: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 3)) * change.pop("scale", 1.0), rng.integers(0, 2, 30)
    weight = np.full(30, change.pop("weight", 1.0))
    with pytest.raises(InputError, match=r"scale the features|lower C"):
        SVC(n_jobs=1, memory="2GB", gamma=1.0, **change).fit(X.astype(np.float32), y, sample_weight=weight)


@pytest.mark.parametrize("solver", ["smo", "irwls"])
def test_features_beyond_the_squares_of_float32(solver: str) -> None:
    """|x|^2 is infinite in float32: the rows are told apart all the same."""
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    fitted = [
        SVC(solver=solver, n_jobs=1, memory="2GB").fit((X * scale).astype(np.float32), y) for scale in (1.0, 2.0**70)
    ]
    assert [model.status_ for model in fitted] == ["converged"] * 2
    assert fitted[0].objective_ == pytest.approx(fitted[1].objective_, rel=2e-3)


def test_platt_ends_on_features_of_mixed_scales() -> None:
    """Features of 1e-38 beside features of 1e38, and a sigmoid kernel that tells no rows apart."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 4)) * 10.0 ** np.array([-38, -10, 10, 37]), rng.integers(0, 2, 60)
    for kernel in ("rbf", "sigmoid"):
        model = SVC(kernel=kernel, n_jobs=1, memory="2GB", max_passes=200, solver=SMO(selection="platt"))
        assert model.fit(X.astype(np.float32), y).status_ in ("converged", "stationary", "stalled")
