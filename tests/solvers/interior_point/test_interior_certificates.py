"""What interior-point tells of its models, against the saved model in extended precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm import InteriorPoint, LinearSVC
from streamsvm.solvers.options import InteriorPointOptions, name_options
from streamsvm.system.errors import InputError
from tests.conftest import F64, choose_examples

Extended = npt.NDArray[np.longdouble]
KINDS = ("normal", "separable", "duplicates", "constant", "offset", "zeros", "mixed")
WEIGHTS = ("none", "zeros", "ratios")
REDUCTIONS, RULES = (name_options(InteriorPointOptions)[name].words for name in ("reduction", "rule"))
UNIT = float(np.finfo(np.longdouble).eps)


def draw(seed: int, kind: str, scale: float, weights: str) -> tuple[Any, npt.NDArray[np.int64], F64]:
    """Rows of float32, labels 0 and 1, and weights."""
    random = np.random.default_rng(seed)
    n, d = int(random.choice([2, 3, 10, 40])), int(random.choice([1, 2, 8]))
    X, y = random.normal(size=(n, d)), random.integers(0, 2, n)
    y[0], y[-1] = 0, 1
    match kind:
        case "separable":
            X[:, 0] += 8 * (2 * y - 1)
        case "duplicates":
            X = X[random.integers(0, max(1, n // 3), n)]
        case "constant":
            X[:, -1] = 1
        case "offset":
            X += 10.0 ** random.integers(0, 5)
        case "zeros":
            X[random.random(n) < 0.7] = 0
        case "mixed":
            X *= 10.0 ** random.uniform(-4, 4, d)
    weight = np.ones(n)
    if weights == "zeros":
        weight[1:-1] = random.random(n - 2) < 0.6
    if weights == "ratios":
        weight = 10.0 ** random.uniform(-3, 3, n)
    return (X * scale).astype(np.float32), y, weight


def evaluate(X: Any, y: npt.NDArray[np.int64], costs: F64, w: F64, bias: float) -> tuple[float, float]:
    """P in extended precision, and how far this can be off."""
    signs, rows, exact = np.where(y == 1, 1, -1), X.astype(np.longdouble), w.astype(np.longdouble)
    slack = 1 - signs * (rows @ exact + np.longdouble(bias))
    P = exact @ exact / 2 + np.sum(costs.astype(np.longdouble) * np.maximum(slack, 0))
    size = float(costs @ (np.abs(X).astype(float) @ np.abs(w) + abs(bias) + 1))
    return P, (len(w) + len(y) + 8) * UNIT * (size + float(P))


def check(model: LinearSVC, X: Any, y: npt.NDArray[np.int64], costs: F64) -> None:
    """P within its rounding bound, D below P of points that anyone can make, and the gap what it is said to be."""
    P, off = evaluate(X, y, costs, model.coef_[0], model.intercept_[0])
    assert abs(model.objective_ - P) <= model.rounding_bound_ + off
    for bias in (-1.0, 0.0, 1.0):
        assert model.lower_bound_ <= evaluate(X, y, costs, np.zeros(X.shape[1]), bias)[0] * (1 + UNIT)
    assert model.lower_bound_ <= P + off
    if model.status_ == "converged":
        assert P - model.lower_bound_ <= model.tol * P + off
    else:
        assert model.status_ == "stalled"
        assert model.result_.status_reason


@settings(max_examples=choose_examples(20, 150, 1000))
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    weights=st.sampled_from(WEIGHTS),
    scale=st.integers(-8, 8),
    C=st.integers(-8, 8),
    sparse=st.booleans(),
    tol=st.sampled_from([1e-3, 1e-6]),
    reduction=st.sampled_from(REDUCTIONS),
    rule=st.sampled_from(RULES),
)
def test_the_certificate_is_that_of_the_model(
    seed: int, kind: str, weights: str, scale: int, C: int, sparse: bool, tol: float, reduction: str, rule: str
) -> None:
    """Whatever the features, the costs and the weights are like; and no bound of one model is above P of another."""
    X, y, weight = draw(seed, kind, 10.0**scale, weights)
    costs, rows = 10.0**C * weight, csr_array(X) if sparse else X
    models = [
        LinearSVC(C=10.0**C, tol=tol, n_jobs=1, solver=InteriorPoint(reduction=name, rule=rule, most_rows=most)).fit(
            rows, y, sample_weight=weight
        )
        for name, most in ((reduction, None), ("fixed", 10))
    ]
    for model, other in zip(models, models[::-1], strict=True):
        check(model, X, y, costs)
        P, off = evaluate(X, y, costs, other.coef_[0], other.intercept_[0])
        assert model.lower_bound_ <= P + off


def make_clusters(scale: float, offset: float, seed: int = 0) -> tuple[Any, npt.NDArray[np.int64]]:
    """100 rows of 4 features, two clusters."""
    random = np.random.default_rng(seed)
    y, X = random.integers(0, 2, 100), random.normal(size=(100, 4))
    X[:, 0] += 3 * (2 * y - 1)
    return ((X + offset) * scale).astype(np.float32), y


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize(("C", "scale"), [(1.0, 1e5), (1e2, 1e4), (1e4, 1e3), (1e6, 1e2), (1e6, 1e4)])
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_features_and_costs_of_any_scale_converge(C: float, scale: float, offset: float, tol: float) -> None:
    """Some of these leave no row in Q after a step, which once was a division by zero."""
    X, y = make_clusters(scale, offset)
    model = LinearSVC(C=C, solver="interior-point", tol=tol, n_jobs=1).fit(X, y)
    assert model.status_ == "converged"
    check(model, X, y, np.full(len(y), C))


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_far_from_the_origin_are_proved_by_corrected_multipliers(sparse: bool) -> None:
    """The multipliers' rows cancel to one part in 1e15: no step knows them that well, and D was a 30,000th of P."""
    random = np.random.default_rng(0)
    y, X = random.integers(0, 2, 80), ((random.normal(size=(80, 2)) + 1e4) * 1e7).astype(np.float32)
    model = LinearSVC(C=1e7, solver="interior-point", tol=1e-6, n_jobs=1).fit(csr_array(X) if sparse else X, y)
    assert model.status_ == "converged"
    assert model.n_passes_ <= 30
    check(model, X, y, np.full(80, 1e7))


@pytest.mark.parametrize("sparse", [False, True])
def test_margins_that_rounding_breaks_are_proved_in_twice_the_precision(sparse: bool) -> None:
    """With C of 1e24, what float64 makes of a margin of 1 costs far more than the whole objective."""
    X, y = make_clusters(1.0, 0.0, seed=1)
    X[:, 0] += 6 * (2 * y - 1)
    model = LinearSVC(C=1e24, solver="interior-point", tol=1e-6, n_jobs=1).fit(csr_array(X) if sparse else X, y)
    assert model.status_ == "converged"
    check(model, X, y, np.full(len(y), 1e24))
    moderate = LinearSVC(C=1e3, solver="interior-point", tol=1e-6, n_jobs=1).fit(X, y)
    assert model.objective_ == pytest.approx(moderate.objective_, rel=2e-6)


@pytest.mark.parametrize(("class_weight", "rows"), [({0: 0.0}, 100), ({1: 0.0}, 100), (None, 2)])
def test_what_costs_nothing_and_two_rows(class_weight: Any, rows: int) -> None:
    X, y = make_clusters(1.0, 0.0)
    order = np.argsort(y, kind="stable")[[0, -1]] if rows == 2 else np.arange(100)
    model = LinearSVC(solver="interior-point", class_weight=class_weight, n_jobs=1).fit(X[order], y[order])
    assert model.status_ == "converged"
    assert (model.objective_ == 0.0) == (class_weight is not None)
    assert model.rounding_bound_ <= 1e-12 * model.objective_


@pytest.mark.parametrize(("scale", "C", "weight"), [(1e19, 1e300, 1.0), (1.0, 1e308, 1.0), (1e30, 1e200, 1e100)])
def test_numbers_beyond_the_range_are_refused(scale: float, C: float, weight: float) -> None:
    X, y = make_clusters(scale, 0.0)
    model = LinearSVC(C=C, solver="interior-point", n_jobs=1)
    with pytest.raises(InputError, match=r"supported sum is|beyond the range of float64"):
        model.fit(X, y, sample_weight=np.full(len(y), weight))


@pytest.mark.parametrize(("scale", "C", "weight"), [(1e19, 1.0, 1.0), (1e-38, 1e97, 1.0), (1.0, 1.0, 1e-300)])
def test_numbers_at_the_ends_of_the_range(scale: float, C: float, weight: float) -> None:
    """All of them finite, and what is told true."""
    X, y = make_clusters(scale, 0.0)
    weights = np.full(len(y), weight)
    model = LinearSVC(C=C, solver="interior-point", n_jobs=1, max_passes=2000).fit(X, y, sample_weight=weights)
    assert np.isfinite([model.objective_, model.lower_bound_, model.rounding_bound_, *model.coef_[0]]).all()
    check(model, X, y, C * weights)
