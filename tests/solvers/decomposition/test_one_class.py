"""One class by SMO and IRWLS: proofs in long double, few rows in memory, same bits, unsuitable input."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import svm

from streamsvm import OneClassSVM
from streamsvm.certificates.kernel import BOUNDARY_SHARE, FixedSum, Proof, find_offset, prove_sums
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.decomposition.hinges import SummedRows
from streamsvm.solvers.decomposition.solver import _find_status
from streamsvm.solvers.decomposition.state import STUCK_STEPS, Decomposition, start_state
from streamsvm.system.errors import InputError
from tests.conftest import F64
from tests.one_class_problems import OneClass

OPTIONS = TrainOptions(task="one-class", solver="smo", kernel="rbf", gamma=0.2, nu=0.2, threads=1)
SCALES = (1e-8, 1e-3, 1.0, 1e3, 1e8)
NUS = (0.01, 0.3, 0.5, 0.9, 1.0)
KERNELS = (("rbf", "scale", 1.0), ("linear", 1.0, 0.0), ("poly", "scale", 1.0), ("rbf", 1.0, 0.0))
RULES = ("second-order", "largest", "smallest", "random", "chunking")
RING = OneClass(np.random.default_rng(3).normal(size=(600, 4)).astype(np.float32).astype(np.float64), 0.2)


def draw(seed: int) -> tuple[OneClass, TrainOptions]:
    """Draw a problem: each seed another shape and scale of features, nu, weights, kernel, solver and rule."""
    rng = np.random.default_rng([31, seed])
    n, d = int(rng.choice([1, 3, 12, 50])), int(rng.choice([1, 4]))
    X = rng.normal(size=(n, d))
    match seed % 7:
        case 0:
            X = X[rng.integers(0, max(1, n // 3), n)]
        case 1:
            X += 100.0
        case 2:
            X = np.ones((n, d))
        case 3:
            X = X * 10.0 ** rng.uniform(-4, 4, d)
        case 4:
            X = (rng.random((n, d)) < 0.3).astype(float)
    X = (X * SCALES[seed % 5]).astype(np.float32).astype(np.float64)
    weight = (None, (rng.random(n) < 0.7).astype(float) + np.eye(1, n)[0], 10.0 ** rng.uniform(-3, 3, n))[seed % 3]
    kernel, gamma, coef0 = KERNELS[seed % 4]
    asked = TrainOptions(
        task="one-class",
        solver=("smo", "irwls")[seed % 2],
        kernel=kernel,
        gamma=gamma,
        degree=2,
        coef0=coef0,
        nu=NUS[seed // 2 % 5],
        tol=(1e-3, 1e-6)[seed // 2 % 2],
        resident_rows=(None, "50%", "20%")[seed // 3 % 3] if n > 10 else None,
        max_passes=300,
        options={"selection": RULES[seed % 5]},
    )
    return OneClass(X, NUS[seed // 2 % 5], weight, sparse=seed % 3 == 1), asked


@pytest.mark.parametrize("seed", range(120))
def test_what_is_told_of_the_saved_model_is_true(seed: int) -> None:
    problem, options = draw(seed)
    result = train(problem.in_memory(), options)
    assert isinstance(result.model, KernelModel)
    assert result.lower_bound is not None
    assert result.rounding_bound is not None
    alpha, K = problem.read_multipliers(result.model), problem.matrix(result.model.kernel)
    assert np.all((alpha >= 0) & (alpha <= problem.costs))
    assert abs(np.sum(alpha) - problem.total) <= 1e-14 * problem.total
    true, noise = float(alpha @ K @ alpha / 2), 1e-18 * float(alpha @ np.abs(K) @ alpha)
    assert abs(result.objective - true) <= result.rounding_bound + 1e-15 * true + noise
    other = problem.find_point(K)
    assert abs(np.sum(other) - problem.total) <= 1e-15 * problem.total
    assert result.lower_bound <= float(other @ K @ other / 2) * (1 + 1e-13) + 1e-18 * float(other @ np.abs(K) @ other)
    assert result.lower_bound <= true * (1 + 1e-15) + noise
    if result.status == "converged":
        assert true - result.lower_bound <= options.tol * true * (1 + 1e-9)
    else:  # the origin is among the rows, so that w is 0 but for rounding
        assert result.status == "stalled"
        assert options.kernel == "linear"
        assert true <= result.rounding_bound
        assert "the origin lies among the rows" in result.status_reason


@pytest.mark.parametrize("solver", ["smo", "irwls"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("nu", [0.1, 0.7])
def test_few_rows_in_memory_reach_the_minimum_of_libsvm(nu: float, rule: str, solver: str, tmp_path: Path) -> None:
    problem = replace(RING, nu=nu)
    options = replace(OPTIONS, nu=nu, solver=solver, resident_rows="30%", options={"selection": rule}, tol=1e-4)
    result = train(problem.store(tmp_path / "rows.zarr"), options)
    other = svm.OneClassSVM(nu=nu, gamma=0.2, tol=1e-9).fit(RING.X)
    assert isinstance(result.model, KernelModel)
    least = float(other.dual_coef_[0] @ other.score_samples(other.support_vectors_)) / 2
    assert result.status == "converged"
    assert result.passes > 1
    assert result.lower_bound is not None
    assert result.lower_bound <= least * (1 + 1e-9)
    assert result.objective == pytest.approx(least, rel=1.1e-4)
    # The rows between both boundaries are few.
    assert np.mean((result.model.decide(RING.X) > 0) == (other.predict(RING.X) > 0)) > 0.97


def test_the_multipliers_that_no_active_set_can_hold_are_filled_in_a_few_passes(tmp_path: Path) -> None:
    """With nu = 0.9 and a tenth of the rows in memory, nine steps at least must fill; most steps are these."""
    result = train(replace(RING, nu=0.9).store(tmp_path / "rows.zarr"), replace(OPTIONS, nu=0.9, resident_rows="10%"))
    assert result.status == "converged"
    assert 9 <= result.passes <= 25
    told = [line["objective"] for line in result.history]
    assert told == sorted(told, reverse=True)
    assert all(line["lower_bound"] <= told[-1] for line in result.history)


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("nu", [0.1, 0.8])
def test_the_same_bits_on_workers_and_after_an_interruption(nu: float, tmp_path: Path) -> None:
    """The run is interrupted while its multipliers are filled, and after that."""
    dataset = RING.store(tmp_path / "rows.zarr")
    options = replace(OPTIONS, nu=nu, resident_rows="30%")
    whole = train(dataset, options)
    assert whole.passes > 3
    for others in ({"threads": 2}, {"threads": None, "workers": 2}):
        assert train(dataset, replace(options, **others)).model_sha256 == whole.model_sha256  # type: ignore[arg-type]
    for passes in (1, 3):
        first = train(dataset, replace(options, max_passes=passes), tmp_path / f"run{passes}")
        assert first.status == "pass_limit"
        resumed = train(dataset, options, tmp_path / f"run{passes}", resume=True)
        assert (resumed.status, resumed.model_sha256) == ("converged", whole.model_sha256)


def test_labels_are_not_read_and_weights_count_rows() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 4, len(RING.X))
    weighted = train(ArrayDataset(RING.X, None, None, counts.astype(float)), replace(OPTIONS, tol=1e-8))
    repeated = np.repeat(RING.X, counts, axis=0)
    labels = rng.integers(0, 3, len(repeated)).astype(np.int32)
    other = train(ArrayDataset(repeated, labels, np.array(["a", "b", "c"])), replace(OPTIONS, tol=1e-8))
    assert weighted.objective == pytest.approx(other.objective, rel=2e-8)
    np.testing.assert_allclose(weighted.model.decide(RING.X), other.model.decide(RING.X), atol=1e-3)


@pytest.mark.parametrize("kernel", [{"kernel": "sigmoid", "gamma": 0.5}, {"kernel": "poly", "coef0": -1.0}])
@pytest.mark.parametrize(("n_rows", "resident"), [(120, None), (120, "40%"), (600, "400")])
def test_an_indefinite_kernel_has_no_bound(kernel: dict[str, Any], n_rows: int, resident: str | None) -> None:
    problem = replace(RING, X=RING.X[:n_rows])
    options = replace(OPTIONS, resident_rows=resident, max_passes=200, **kernel)
    result = train(problem.in_memory(), options)
    assert isinstance(result.model, KernelModel)
    assert (result.status, result.lower_bound) == ("stationary", None)
    alpha, K = problem.read_multipliers(result.model), problem.matrix(result.model.kernel)
    f, rho = K @ alpha, -result.model.intercept
    shares = problem.costs * np.maximum(0, rho - f) - alpha * (rho - f)
    assert np.sum(shares) <= 1e-3 * abs(result.objective) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nu": 0.0}, "nu is 0.0"),
        ({"nu": -0.1}, "nu is"),
        ({"nu": 1.1}, "nu is"),
        ({"nu": np.nan}, "nu is nan"),
        ({"C": 2.0}, "nu replaces it"),
        ({"epsilon": 0.1}, "has no tube"),
        ({"loss": "hinge"}, "one_class"),
        ({"class_weight": "balanced"}, "no costs by class"),
        ({"solver": "newton"}, "use --solver smo or irwls"),
        ({"solver": "budgeted-sgd"}, "use --solver smo or irwls"),
        ({"options": {"selection": "platt"}}, "two classes"),
        ({"task": "classify"}, "nu"),
        ({"kernel": "cosine"}, "choose from"),
    ],
    ids=str,
)
def test_unsuitable_options_are_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        train(RING.in_memory(), replace(OPTIONS, **change))


@pytest.mark.parametrize("resident", [None, "30%"])
def test_rows_without_any_weight_are_refused(resident: str | None) -> None:
    weights = np.zeros(len(RING.X))
    with pytest.raises(InputError, match="weights of all rows are zero"):
        train(replace(RING, weight=weights).in_memory(), replace(OPTIONS, resident_rows=resident))


def test_few_rows_with_weights_among_rows_without() -> None:
    """The first active set may have no weight at all."""
    weights = np.zeros(len(RING.X))
    weights[[5, 100, 400]] = 1.0, 3.0, 0.5
    problem = replace(RING, weight=weights, nu=0.5)
    result = train(problem.in_memory(), replace(OPTIONS, nu=0.5, resident_rows=2))
    assert isinstance(result.model, KernelModel)
    assert result.status == "converged"
    assert float(np.sum(result.model.dual_coef)) == pytest.approx(2.25, rel=1e-14)
    K = problem.matrix(result.model.kernel)
    other = problem.find_point(K)
    assert result.objective == pytest.approx(float(other @ K @ other / 2), rel=1e-3)


def test_the_offset_is_a_quantile_of_the_scores() -> None:
    f, costs = np.array([3.0, 1.0, 2.0, 5.0]), np.array([1.0, 1.0, 2.0, 1.0])
    assert find_offset(costs, f, 1.5) == 2.0
    assert find_offset(costs, f, 1.0) == 1.5  # every rho from 1 to 2 is as good
    assert find_offset(costs, f, 5.0) >= 5.0


def prove_one_class(
    costs: F64, alpha: F64, f: F64, total: float, errors: F64, largest: float, is_definite: bool
) -> Proof:
    """The proof where one sum has all rows."""
    return prove_sums(costs, alpha, f, [FixedSum(np.arange(len(f)), total)], errors, largest, is_definite)


def test_the_proof_of_two_rows_by_hand() -> None:
    """k is the identity and N = 1: a = (1/2, 1/2), w = a, both scores are 1/2, and Q = 1/4."""
    half, none = np.array([0.5, 0.5]), np.zeros(2)
    proof = prove_one_class(np.ones(2), half, half, 1.0, none, 1.0, True)
    assert proof.objective == pytest.approx(0.25, rel=1e-15)
    assert proof.dual == pytest.approx(0.25, rel=1e-15)
    assert proof.bias == pytest.approx(-0.5 * (1 - BOUNDARY_SHARE), rel=1e-15)
    assert 0.0 < proof.rounding_bound <= 1e-14
    start = prove_one_class(np.ones(2), none, none, 1.0, none, 1.0, True)  # nothing is known but |w| <= N
    assert (start.objective, start.dual) == (pytest.approx(0.5, rel=0.03), 0.0)
    worse = prove_one_class(np.ones(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]), 1.0, none, 1.0, True)
    assert worse.objective == pytest.approx(0.5, rel=1e-15)
    assert worse.dual <= 0.25
    wrong = prove_one_class(np.ones(2), half, half + 0.1, 1.0, none + 0.1, 1.0, True)
    assert wrong.objective - wrong.objective_error <= 0.25 <= wrong.objective + wrong.objective_error
    assert wrong.dual - wrong.dual_error <= 0.25 < wrong.dual


def test_the_lowest_scores_rise_first_and_no_further_than_their_costs() -> None:
    costs, alpha, f = np.array([1.0, 2.0, 1.0, 1.0]), np.array([0.5, 0.0, 0.0, 1.0]), np.array([3.0, 1.0, 2.0, 0.0])
    for total, expected in ((4.0, [0.0, 2.0, 0.5, 0.0]), (1.5, np.zeros(4)), (5.0, [0.5, 2.0, 1.0, 0.0])):
        rows = SummedRows(np.ones(4), costs, alpha, f, None, (total, 0.0))
        np.testing.assert_array_equal(rows.find_rises(), expected)
        assert bool(rows.list_lacking()) == (total != 1.5)
    np.testing.assert_array_equal(rows.choose_lowest(2), [1, 2])


def test_rows_of_one_class_have_the_corner_0() -> None:
    rows = SummedRows(np.ones(3), np.ones(3), np.array([1.0, 0.5, 0.0]), np.array([0.1, 0.4, 0.9]), None, (1.5, 0.0))
    np.testing.assert_array_equal(rows.corners, np.zeros(3))
    np.testing.assert_allclose(rows.find_slacks(), 0.4 - rows.f)
    assert rows.find_conditions().violation == 0.0
    assert rows.certify().bias == -0.4


@pytest.mark.parametrize("missing", [2e-16, -2e-16, 1e-12, -1e-12])
@pytest.mark.parametrize("length", [1.0, 1e6])
def test_a_long_row_is_not_charged_for_what_rounding_has_left_of_the_sum(length: float, missing: float) -> None:
    """Where another row makes up for it, Q in exact fractions is within the proof, which is as sharp as without it."""
    X = [[1.0, 0.25], [1.0, -0.5], [1.0, 0.125], [length, 0.0]]
    alpha, costs, total = [0.75, 0.25, 0.5 * (1 - missing), 0.0], np.ones(4), 1.5
    K = [[sum(Fraction(p) * Fraction(q) for p, q in zip(a, b, strict=True)) for b in X] for a in X]
    f = [sum(k * Fraction(a) for k, a in zip(row, alpha, strict=True)) for row in K]
    lacking, sums = Fraction(total) - sum(map(Fraction, alpha)), np.array([float(value) for value in f])
    proof = prove_one_class(costs, np.array(alpha), sums, total, 1e-15 * np.abs(sums), float(K[3][3]), True)
    square = sum(Fraction(a) * value for a, value in zip(alpha, f, strict=True))
    reached = [float(square / 2 + lacking * f[i] + lacking**2 * K[i][i] / 2) for i in range(3)]
    assert min(reached) <= proof.objective + proof.objective_error
    assert proof.objective == pytest.approx(float(square) / 2, rel=2 * abs(missing) + 1e-15)
    assert proof.objective_error <= 1e-14 * proof.objective


def test_what_a_sum_lacks_is_no_part_of_p_where_it_is_most_of_it() -> None:
    """The row that makes up for the missing part is so long that Q would grow from almost nothing: P is that of a."""
    alpha, f = np.array([1.0 - 2.0**-40, 0.0]), np.array([1e-20, 1e-10])
    proof = prove_one_class(np.ones(2), alpha, f, 1.0, np.zeros(2), 1e12, True)
    grown = float(alpha[0] * f[0] / 2 + 2.0**-40 * f[0] + 2.0**-80 * 1e12 / 2)
    assert proof.objective == pytest.approx(float(alpha[0] * f[0]) / 2, rel=1e-12, abs=0.0)
    assert proof.objective + proof.objective_error >= grown


def test_the_objective_of_a_stalled_run_is_that_of_the_saved_model() -> None:
    """Most rows are 0, which are a model of one class with P = 0; the kernel value of the longest row is 1e18 times."""
    rng = np.random.default_rng(1030)
    X = rng.normal(size=(200, 8)) * 1e3
    X[rng.random(200) < 0.7] = 0.0
    X = X.astype(np.float32).astype(np.float64)
    model = OneClassSVM(nu=0.01, kernel="poly", gamma=100.0, degree=3, coef0=0.0, resident_rows=20)
    with pytest.warns(UserWarning, match="rounding can move the objective"):
        model.fit(X)
    K = (100.0 * model.support_vectors_ @ model.support_vectors_.T) ** 3
    P = float(model.dual_coef_[0] @ K @ model.dual_coef_[0]) / 2
    assert abs(model.objective_ - P) <= model.rounding_bound_ + 1e-9 * P
    assert model.objective_ == pytest.approx(P, rel=1e-9)


def make_settings(kernel: Kernel) -> Decomposition:
    return Decomposition(class_costs=(1.0, 1.0), kernel=kernel, nu=0.5, tol=1e-3)


@pytest.mark.parametrize("kernel", [Kernel("rbf", gamma=0.5), Kernel("sigmoid", gamma=0.5)])
def test_multipliers_that_lack_a_part_of_their_sum_are_never_converged(kernel: Kernel) -> None:
    """The gap is proved all the same, and the run is stuck, so it ends as stalled."""
    state = replace(
        start_state(2), y=np.ones(2), alpha=np.array([0.25, 0.25]), total=1.0, objective=1.0, dual=1.0, lower_bound=1.0
    )
    assert state.progress.is_proved(1e-3)
    assert _find_status(make_settings(kernel), state) is None
    assert _find_status(make_settings(kernel), replace(state, stuck=STUCK_STEPS)) == "stalled"
    full = replace(state, alpha=np.array([0.5, 0.5]))
    assert _find_status(make_settings(kernel), full) in ("converged", "stationary")


@pytest.mark.parametrize("resident", [None, "30%"])
def test_rows_of_zeros_end_as_stalled_since_w_is_0(resident: str | None) -> None:
    """The gap is 0, and yet the model says nothing of rows (docs/solvers/decomposition.md, "One class")."""
    rows = replace(RING, X=np.zeros((60, 2)), nu=0.5)
    options = replace(OPTIONS, kernel="linear", gamma="scale", nu=0.5, resident_rows=resident)
    result = train(rows.in_memory(), options)
    assert (result.status, result.objective) == ("stalled", 0.0)
    assert "the origin lies among the rows" in result.status_reason
    assert float(np.sum(result.model.dual_coef)) == pytest.approx(30.0)  # type: ignore[union-attr]
