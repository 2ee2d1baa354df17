"""Newton's method for many labels against LIBLINEAR, scikit-learn and long double; its status, its bits, its memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from streamsvm.data.rows.source import plan_groups
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers import set_up as set_up_module
from streamsvm.solvers.label_newton import setup, solver, sums
from streamsvm.solvers.label_newton.setup import AT_ZERO
from streamsvm.solvers.label_newton.steps import LabelNewton, start_state
from streamsvm.solvers.label_newton.sums import CODES
from streamsvm.solvers.set_up import set_up, settle_task
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import resident_bytes
from streamsvm.verify.verify import verify
from tests.conftest import F64, make_problem
from tests.faults.killed import kill_after
from tests.label_problems import LabelProblem, make_labels
from tests.solvers.many.test_one_against_rest import make_classes

OPTIONS = TrainOptions(threads=1, loss="squared_hinge")
MANY_GROUPS = {("streamsvm.data.rows.source", "SMALLEST_GROUP_BYTES"): 1, ("streamsvm.data.rows.source", "GROUPS"): 5}
SETUP = "streamsvm.solvers.label_newton.setup"
BY_PRODUCTS = {(SETUP, "MOST_WEIGHTS"): 1, (SETUP, "MOST_SAMPLE_BYTES"): 4096}
LOSSES = ("squared_hinge", "logistic")
KINDS = {
    "dense": make_labels(1),
    "sparse": make_labels(2, d=30, density=0.2),
    "weighted": make_labels(3, weighted=True),
    "more features than rows": make_labels(4, n=60, d=100),
}


@pytest.fixture(params=["curvatures", "products"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How steps are found: by products after a start from a few rows, so that steps are needed."""
    if request.param == "products":
        for (module, name), value in BY_PRODUCTS.items():
            monkeypatch.setattr(f"{module}.{name}", value)
    return str(request.param)


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def many_groups_of_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dataset:
    """Rows of two classes in some groups of chunks."""
    for (module, name), value in MANY_GROUPS.items():
        monkeypatch.setattr(f"{module}.{name}", value)
    return make_problem(5, n=900, d=12).store(tmp_path / "two.zarr", chunk_bytes=4000)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows and labels are added at a time."""
    monkeypatch.setattr(sums, "BLOCK_ROWS", 64)
    monkeypatch.setattr(sums, "BLOCK_LABELS", 4)


def find_weights(result: Result, label: int, bias_feature: float = 1.0) -> F64:
    assert isinstance(result.model, LinearModel)
    return np.append(result.model.coef[label], np.asarray(result.model.intercept)[label] / bias_feature)


def fit_by_sklearn(problem: LabelProblem, label: int, loss: str, costs: tuple[float, float]) -> F64:
    """w of LIBLINEAR's or of scikit-learn's Newton method."""
    y = problem.Y[:, label]
    weight = np.where(y, costs[1], costs[0]) * (1.0 if problem.weight is None else problem.weight)
    model: Any = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    if loss == "squared_hinge":
        model = LinearSVC(C=1.0, loss="squared_hinge", dual=False, tol=1e-10, fit_intercept=False, max_iter=10_000)
    return np.asarray(model.fit(problem.dense(), y, sample_weight=weight).coef_[0])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_every_label_is_at_the_optimum_of_liblinear(name: str, C: float, loss: str, way: str, tmp_path: Path) -> None:
    """P is that of the model, in long double; D is not above the minimum; both are within the tolerance."""
    problem, costs, tol = KINDS[name], (C * 1.0, C * 3.0), 1e-6
    options = replace(OPTIONS, C=C, loss=loss, tol=tol, class_weight={0: 1.0, 1: 3.0})
    found = train(problem.store(tmp_path / "rows", chunk_bytes=4000), options)
    assert found.status == "converged"
    for label, told in enumerate(found.problems):
        w = find_weights(found, label)
        value = problem.value(label, w, loss, costs)
        assert told["label"] == label
        assert told["objective"] == pytest.approx(float(value), rel=1e-12)
        assert (value - told["lower_bound"]) <= tol * value
        if problem.Y[:, label].any():
            other = problem.value(label, fit_by_sklearn(problem, label, loss, costs), loss, costs)
            assert told["lower_bound"] <= other * (1 + 1e-12)
            assert told["objective"] <= other * (1 + tol)
    assert found.objective == pytest.approx(sum(one["objective"] for one in found.problems))


@pytest.mark.parametrize("C", [10.0, 1e4])
def test_large_costs_of_about_as_many_rows_as_features_take_few_reads(C: float, loss: str, tmp_path: Path) -> None:
    """The sample has all rows, so its minimiser is that of all, and a pass or two prove it.

    With the larger costs LIBLINEAR does not converge.
    """
    problem = make_labels(6, n=200, d=120)
    found = train(problem.store(tmp_path / "rows"), replace(OPTIONS, C=C, loss=loss, max_passes=4))
    assert found.status == "converged"
    label = int(np.argmax(problem.Y.sum(axis=0)))
    value = problem.value(label, find_weights(found, label), loss, (C, C))
    assert value - found.problems[label]["lower_bound"] <= 1e-3 * value
    if C == 10.0:
        theirs = problem.value(label, fit_by_sklearn(problem, label, loss, (C, C)), loss, (C, C))
        assert found.problems[label]["lower_bound"] <= theirs * (1 + 1e-12)
        assert value <= theirs * (1 + 1e-3)


def test_the_start_of_a_label_does_not_depend_on_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large costs are reached with the curvature of more rows, also where a block with small costs came first."""
    monkeypatch.setattr(solver, "BLOCK_LABELS", 1)
    random = np.random.default_rng(0)
    X = random.normal(size=(800, 6)).astype(np.float32)
    y = np.argmax(X[:, :3] + random.normal(size=(800, 3)), axis=1).astype(np.int32)
    costs = np.repeat([[1e-3], [10.0]], 2, axis=1)
    settings = LabelNewton(CODES["squared_hinge"], costs, 800 * costs[:, 0], 1e-3, 1.0, 448, 2, 800, 6, 24)
    both, alone = (
        solver.minimise_sample(settings, start_state(settings), codes, Rows(0, X, y)).next_w
        for codes in (np.arange(2), np.array([1]))
    )
    assert np.any(both[0])
    np.testing.assert_array_equal(both[1], alone[1])


def test_a_start_worse_than_no_weights_is_given_up(loss: str, way: str, tmp_path: Path) -> None:
    """One row that is unlike all others has nearly all of the weight, and is not in the sample of 20 rows."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(600, 30)).astype(np.float32), np.ones(600)
    Y = X[:, :3] > 0
    X[599], Y[599], weight[599] = 4.0, False, 1e4
    dataset, at_zero = LabelProblem(X, Y, weight).store(tmp_path / "rows"), weight.sum() * AT_ZERO[CODES[loss]]
    options = replace(OPTIONS, loss=loss, options={"sample_rows": "20"})
    first, second = (
        [one["objective"] for one in train(dataset, replace(options, max_passes=m)).problems] for m in (1, 2)
    )
    assert min(first) > 2 * at_zero
    assert max(second) <= at_zero * (1 + 1e-12)


@pytest.mark.parametrize("C", [0.001, 0.03])
def test_one_pass_proves_labels_with_many_weights_whose_rows_are_all_in_memory(
    C: float, loss: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup, "MOST_WEIGHTS", 1)
    for problem in (make_labels(2, n=400, d=300, density=0.1), make_labels(4, n=60, d=100, weighted=True)):
        found = train(problem.store(tmp_path / str(len(problem.Y))), replace(OPTIONS, C=C, loss=loss, tol=1e-4))
        assert (found.status, found.passes) == ("converged", 1)


def test_coordinate_ascent_reaches_the_optimum_of_liblinear(
    loss: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So it does for rows whose costs differ, sparse and dense, some labels at a time."""
    for name, value in {"BLOCK_LABELS": 2, "MOST_EPOCHS": 2000, "SLOW": np.inf}.items():
        monkeypatch.setattr(solver, name, value)
    for problem in (make_labels(2, n=300, d=40, density=0.2), make_labels(3, n=300, d=8, weighted=True)):
        n, d = problem.X.shape
        costs = np.repeat([[0.2, 0.5]], problem.Y.shape[1], axis=0)
        zeros = np.zeros(len(costs))
        settings = LabelNewton(CODES[loss], costs, zeros, 1e-6, 1.0, 1, len(costs), n, d, 1, by_products=True)
        rows = problem.store(tmp_path / str(d)).take(np.arange(n))
        state = solver.ascend_sample(settings, start_state(settings), np.arange(len(costs)), rows)
        for label, w in enumerate(state.next_w):
            if problem.Y[:, label].any():
                other = problem.value(label, fit_by_sklearn(problem, label, loss, (0.2, 0.5)), loss, (0.2, 0.5))
                assert problem.value(label, w, loss, (0.2, 0.5)) <= other * (1 + 1e-5)


def test_features_whose_squares_overflow_float32(loss: str, tmp_path: Path) -> None:
    problem = make_labels(7, n=60, d=3)
    rows = LabelProblem(problem.X * np.float32(1e20), problem.Y).store(tmp_path / "rows")
    found = train(rows, replace(OPTIONS, C=1e-8, loss=loss, max_passes=3))
    assert 0.0 <= found.lower_bound <= found.objective < np.inf


def test_balanced_weights_are_those_of_each_label(loss: str, tmp_path: Path) -> None:
    problem = make_labels(5, weighted=True, empty=False)
    assert problem.weight is not None
    found = train(problem.store(tmp_path / "rows"), replace(OPTIONS, loss=loss, class_weight="balanced"))
    for label, told in enumerate(found.problems):
        with_it, total = problem.weight[problem.Y[:, label]].sum(), problem.weight.sum()
        costs = total / (2 * (total - with_it)), total / (2 * with_it)
        value = problem.value(label, find_weights(found, label), loss, costs)
        assert told["objective"] == pytest.approx(float(value), rel=1e-10)


@pytest.mark.parametrize("scaling", [0.1, 100.0])
def test_the_constant_feature(scaling: float, way: str, tmp_path: Path) -> None:
    problem = KINDS["dense"]
    found = train(problem.store(tmp_path / "rows"), replace(OPTIONS, options={"intercept_scaling": str(scaling)}))
    scaled = LabelProblem(np.column_stack((problem.X, np.full(len(problem.Y), scaling))), problem.Y)
    for label, told in enumerate(found.problems):
        w = find_weights(found, label, scaling)
        value = scaled.value(label, np.append(w, 0.0), "squared_hinge", (1.0, 1.0))
        assert told["objective"] == pytest.approx(float(value), rel=1e-10)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rows = make_labels(7, n=3000, d=12, weighted=True)
    return rows.store(tmp_path_factory.mktemp("labels") / "rows", chunk_bytes=8_000)


@pytest.mark.slow("trains on every engine")
@pytest.mark.usefixtures("many_groups", "workers_import_tests")
def test_the_same_bits_on_any_engine(way: str, stored: Dataset, client: Client) -> None:
    assert len(plan_groups(stored)) > 4
    options = replace(OPTIONS, tol=1e-6)
    found = [train(stored, replace(options, threads=threads)) for threads in (1, 2)] + [
        train(stored, options, client=client)
    ]
    assert len({one.model_sha256 for one in found}) == 1
    assert len({str(one.problems) for one in found}) == 1


@pytest.mark.slow("stops and resumes at every step")
@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_if_a_run_is_killed_after_any_step(way: str, stored: Dataset, tmp_path: Path) -> None:
    options = replace(OPTIONS, tol=1e-5)
    whole = train(stored, options)
    changed = {**MANY_GROUPS, **(BY_PRODUCTS if way == "products" else {})}
    for step in sorted({1, whole.steps // 2, whole.steps - 1}):
        out = tmp_path / str(step)
        kill_after(step, stored.path, options, out, changed)
        again = train(stored, options, out, resume=True)
        assert again.model_sha256 == whole.model_sha256
        assert again.problems == whole.problems


@pytest.mark.usefixtures("many_groups")
def test_labels_are_worked_on_in_blocks_if_memory_is_short(
    way: str, stored: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each label has the bits of the run where all labels are side by side, and the note tells of the blocks."""
    together = train(stored, OPTIONS)
    monkeypatch.setattr(setup, "_count_side_by_side", lambda *_: 2)
    fit = set_up(stored, settle_task(stored, OPTIONS))
    assert "at most 2 of them side by side" in fit.note
    assert "3 blocks" in fit.note
    apart = train(stored, OPTIONS)
    assert apart.status == "converged"
    assert apart.passes > together.passes
    assert {line["waiting_problems"] for line in together.history} == {0}
    waiting = [line["waiting_problems"] for line in apart.history]
    assert set(waiting) == {4, 2, 0}
    assert waiting == sorted(waiting, reverse=True)
    for one, other in zip(together.problems, apart.problems, strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=1e-3)


def test_the_number_side_by_side_follows_from_the_memory(tmp_path: Path) -> None:
    problem = make_labels(8, n=300, d=300)
    dataset = LabelProblem(problem.X, np.tile(problem.Y, 40)).store(tmp_path / "rows")
    sizes = {}
    for memory in (450 << 20, 600 << 20, 4 << 30):
        options = settle_task(dataset, replace(OPTIONS, memory_bytes=memory))
        sizes[memory] = set_up(dataset, options).settings["side_by_side"]
    assert 1 < sizes[450 << 20] < sizes[600 << 20] < sizes[4 << 30] == 240
    with pytest.raises(MemoryBudgetError):
        train(dataset, replace(OPTIONS, memory_bytes=resident_bytes() + (10 << 20)))


def test_a_settled_label_leaves_the_passes(stored: Dataset) -> None:
    """Labels take different numbers of passes, and none takes part after it is proved."""
    found = train(stored, replace(OPTIONS, tol=1e-6, options={"sample_rows": "20", "curvature_rows": "200"}))
    counts = [one["passes"] for one in found.problems]
    assert max(counts) == found.passes
    assert min(counts) < max(counts)
    still_open = [line["open_problems"] for line in found.history]
    assert still_open == [sum(count > k for count in counts) for k in range(1, found.passes + 1)]


def test_labels_that_are_not_proved_are_named(stored: Dataset) -> None:
    found = train(stored, replace(OPTIONS, tol=1e-9, max_passes=2, options={"sample_rows": "20"}))
    gaps = found.as_json()["gaps"]
    assert found.status == "pass_limit"
    assert gaps["unproved"] == [one["label"] for one in found.problems if one["relative_gap"] > 1e-9]
    assert gaps["unproved"]
    assert gaps["worst"] == max(one["relative_gap"] for one in found.problems)
    assert gaps["mean"] == pytest.approx(np.mean([one["relative_gap"] for one in found.problems]))


def test_verify_computes_the_objective_anew(stored: Dataset, loss: str) -> None:
    found = train(stored, replace(OPTIONS, loss=loss))
    told = verify(found.model, stored)
    assert told.agrees
    assert told.objective == pytest.approx(found.objective, rel=1e-12)


def test_classes_with_many_features_are_trained_so(loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class against the rest has the optimum that the method for one class at a time proves."""
    rows = make_classes(5, n=600)
    dataset, options = rows.store(tmp_path / "rows"), replace(OPTIONS, loss=loss, tol=1e-6)
    one_by_one = train(dataset, options)
    assert "resident_rows" in set_up(dataset, options).settings
    monkeypatch.setattr("streamsvm.solvers.set_up.MANY_DENSE_FEATURES", 2)
    monkeypatch.setattr(setup, "MOST_WEIGHTS", 2)
    found = train(dataset, options)
    assert found.status == "converged"
    for one, other in zip(found.problems, one_by_one.problems, strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=2e-6)
        assert one["lower_bound"] <= other["objective"]


@pytest.mark.parametrize(
    ("n_features", "sparse", "of_all"), [(399, False, False), (400, False, True), (400, True, False)]
)
def test_dense_rows_of_some_classes_need_no_hessian_of_each(n_features: int, sparse: bool, of_all: bool) -> None:
    X = np.zeros((9, n_features), np.float32)
    source = ArrayDataset(csr_array(X) if sparse else X, np.arange(9, dtype=np.int32) % 3, np.arange(3))
    fit = set_up(source, replace(OPTIONS, loss="squared_hinge"))
    assert (fit.compiled == ("label-newton",)) == of_all


@pytest.mark.parametrize("class_weight", [None, {"yes": 3.0}, "balanced"], ids=str)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_two_classes_of_many_features_need_no_hessian(
    sparse: bool, class_weight: Any, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimum of scikit-learn's solvers, in memory that has no room for a matrix of features x features."""
    monkeypatch.setattr(set_up_module, "MANY_FEATURES" if sparse else "MOST_FEATURES", 100)
    monkeypatch.setattr(setup, "MOST_WEIGHTS", 1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 120)).astype(np.float32) * (rng.random((300, 120)) < 0.3)
    y = np.where(X[:, :9].sum(axis=1) + rng.normal(size=300) > 0.5, "yes", "no")
    source = ArrayDataset(csr_array(X) if sparse else X, (y == "yes").astype(np.int32), np.array(["no", "yes"]))
    options = replace(OPTIONS, loss=loss, class_weight=class_weight, tol=1e-6)
    fit, result = set_up(source, options), train(source, options)
    assert fit.compiled == ("label-newton",)
    assert (result.status, result.problems) == ("converged", [])
    assert isinstance(result.model, LinearModel)
    assert verify(result.model, source).objective_agrees
    factor = {
        None: np.ones(300),
        "balanced": 300 / (2 * np.where(y == "yes", *[np.sum(y == c) for c in ("yes", "no")])),
    }
    costs = factor[class_weight] if not isinstance(class_weight, dict) else np.where(y == "yes", 3.0, 1.0)
    Z, exact = np.column_stack((X, np.ones(300))).astype(np.float64), {"fit_intercept": False, "max_iter": 100_000}
    if loss == "logistic":
        other: Any = LogisticRegression(tol=1e-10, **exact).fit(Z, y, sample_weight=costs)
    else:
        other = LinearSVC(dual=False, tol=1e-10, **exact).fit(Z, y, sample_weight=costs)
    margins = np.where(y == "yes", 1, -1) * (Z @ other.coef_[0])
    losses = np.logaddexp(0, -margins) if loss == "logistic" else np.maximum(0, 1 - margins) ** 2
    optimum = 0.5 * other.coef_[0] @ other.coef_[0] + costs @ losses
    assert result.lower_bound is not None
    assert result.lower_bound <= optimum * (1 + 1e-9)
    assert result.objective == pytest.approx(optimum, rel=2e-6)


@pytest.mark.slow("trains on every engine")
def test_two_classes_have_the_same_bits_on_any_engine_and_resumed(
    client: Client, many_groups_of_two: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(set_up_module, "MOST_FEATURES", 1)
    options = replace(OPTIONS, loss="logistic")
    found = [train(many_groups_of_two, replace(options, threads=threads)) for threads in (1, 2)]
    found.append(train(many_groups_of_two, options, client=client))
    train(many_groups_of_two, replace(options, max_passes=2), tmp_path / "run")
    found.append(train(many_groups_of_two, options, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"
