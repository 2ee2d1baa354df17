"""Newton's method against scikit-learn and long double; its status, its bits, and what it keeps in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import LinearModel
from streamsvm.numeric import equations
from streamsvm.options import TrainOptions
from streamsvm.passes import Step
from streamsvm.problems.classification import Logistic, SquaredHinge
from streamsvm.runs.results import Result
from streamsvm.runs.train import Training, train
from streamsvm.runs.tune import tune
from streamsvm.solvers.newton.solver import Newton, solve
from tests.conftest import F64, Problem, make_problem, run_python
from tests.linear_problems import run_steps
from tests.regression_problems import make_regression
from tests.smooth_problems import LOSSES, make_smooth
from tests.solvers.many.test_one_against_rest import make_classes

OPTIONS = TrainOptions(threads=1, options={"intercept_scaling": "1"})
KINDS = {
    "dense": make_problem(1, n=3000, d=8),
    "sparse": make_problem(2, n=3000, d=20, density=0.2),
    "weighted": make_problem(3, n=3000, d=8, weighted=True),
    "wide": make_problem(5, n=60, d=100),
    "rows-of-zeros": make_problem(6, n=2000, d=6, density=0.1, weighted=True),
}
MAKE = {"squared_hinge": SquaredHinge, "logistic": Logistic}


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def find_weights(model: Any, bias_feature: float = 1.0) -> F64:
    """w, whose last entry weighs the constant feature."""
    assert isinstance(model, LinearModel)
    return np.append(model.coef, model.intercept / bias_feature)


def fit_by_sklearn(problem: Problem, loss: str, costs: F64) -> F64:
    """w of LIBLINEAR's or of scikit-learn's Newton method."""
    Z, kept = np.column_stack((problem.dense(), np.ones(len(problem.y)))), costs > 0
    model: Any = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    if loss == "squared_hinge":
        model = LinearSVC(C=1.0, loss="squared_hinge", dual=False, tol=1e-10, fit_intercept=False, max_iter=10_000)
    model.fit(Z[kept], problem.y[kept], sample_weight=costs[kept])
    return np.asarray(model.coef_[0])


def check(problem: Problem, loss: str, found: Result, costs: F64, tol: float, bias_feature: float = 1.0) -> None:
    """P is that of the model, D is not above the minimum, and the gap is at most tol; all of them in long double."""
    smooth = make_smooth(problem, loss, costs, bias_feature)
    value, (_, least) = smooth.value(find_weights(found.model, bias_feature)), smooth.minimise()
    assert found.lower_bound is not None
    assert found.status == "converged"
    assert found.objective == pytest.approx(float(value), rel=1e-12)
    assert 0.0 < found.lower_bound <= min(least, value)
    assert (value - found.lower_bound) / value <= tol


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_the_optimum_is_that_of_scikit_learn(name: str, C: float, loss: str) -> None:
    problem = KINDS[name]
    costs = problem.costs(C, 1.0, 3.0)
    found = train(problem.in_memory(), replace(OPTIONS, C=C, loss=loss, class_weight={-1: 1.0, 1: 3.0}, tol=1e-7))
    check(problem, loss, found, costs, 1e-7)
    other = make_smooth(problem, loss, costs).value(fit_by_sklearn(problem, loss, costs))
    assert found.objective == pytest.approx(float(other), rel=1e-6)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("resident", [None, "10%", 2])
def test_converged_is_true_at_any_tolerance(tol: float, resident: Any, loss: str) -> None:
    for name in ("sparse", "weighted"):
        problem = KINDS[name]
        found = train(problem.in_memory(), replace(OPTIONS, loss=loss, tol=tol, resident_rows=resident))
        check(problem, loss, found, problem.costs(1.0), tol)
        assert found.passes <= (1 if resident is None else 15)


@pytest.mark.parametrize("scaling", [0.1, 100.0])
def test_the_constant_feature(scaling: float, loss: str) -> None:
    problem, own = KINDS["dense"], {"intercept_scaling": str(scaling)}
    found = train(problem.in_memory(), replace(OPTIONS, loss=loss, tol=1e-8, options=own))
    check(problem, loss, found, problem.costs(1.0), 1e-8, scaling)


def test_balanced_classes_and_weights(loss: str) -> None:
    """The factor of a class is n / (2 n_k) by the weights' sums."""
    problem = KINDS["weighted"]
    assert problem.weight is not None
    sums = np.array([problem.weight[problem.y < 0].sum(), problem.weight[problem.y > 0].sum()])
    found = train(problem.in_memory(), replace(OPTIONS, loss=loss, class_weight="balanced", resident_rows="10%"))
    check(problem, loss, found, problem.costs(1.0, *(sums.sum() / (2 * sums))), 1e-3)


def test_each_class_against_the_rest(loss: str, tmp_path: Path) -> None:
    rows = make_classes(5, n=1500)
    found = train(rows.store(tmp_path / "rows"), replace(OPTIONS, C=0.5, loss=loss, tol=1e-7))
    assert found.status == "converged"
    assert isinstance(found.model, LinearModel)
    values, least = [], []
    for code in range(4):
        problem = Problem(rows.X, np.where(rows.y == code, 1, -1), rows.weight)
        smooth = make_smooth(problem, loss, problem.costs(0.5))
        values.append(smooth.value(np.append(found.model.coef[code], np.asarray(found.model.intercept)[code])))
        least.append(smooth.minimise()[1])
    np.testing.assert_allclose(np.array(values, float), np.array(least, float), rtol=1e-6)
    assert found.objective == pytest.approx(float(sum(values)), rel=1e-9)
    assert found.lower_bound is not None
    assert found.lower_bound <= sum(least)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_problem(7, n=5000, d=12, density=0.5).store(
        tmp_path_factory.mktemp("newton") / "rows", chunk_bytes=20_000
    )


@pytest.mark.parametrize("resident", ["10%", "100%"])
def test_the_same_bits_on_any_engine_and_resumed(
    resident: str, loss: str, stored: Dataset, client: Client, tmp_path: Path, many_groups: None
) -> None:
    own = replace(OPTIONS, loss=loss, resident_rows=resident, tol=1e-8)
    found = [train(stored, replace(own, threads=threads)) for threads in (1, 2)]
    found.append(train(stored, own, client=client))
    train(stored, replace(own, max_passes=1), tmp_path / "run")
    found.append(train(stored, own, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"
    assert (found[0].passes > 1) == (resident == "10%")


def run(problem: Problem, settings: Newton, most: int = 60) -> list[Step]:
    source = problem.in_memory()
    return run_steps(source, solve(settings, settings.start(source.n_rows, source.n_features)), most)


def test_gone_on_from_any_state_to_the_same_bits(loss: str) -> None:
    problem = KINDS["sparse"]
    settings = Newton(MAKE[loss]((5.0, 5.0)), 20, 1e-9)
    steps = run(problem, settings)
    assert len(steps) >= 3
    for step in steps[:-1]:
        again = run_steps(problem.in_memory(), solve(settings, step.state), 60)
        np.testing.assert_array_equal(again[-1].state.best_w, steps[-1].state.best_w)
        assert again[-1].progress == steps[-1].progress


def test_from_a_bad_start_each_step_lowers_the_objective_or_looks_closer(loss: str) -> None:
    """Two rows tell little of 3,000, so that first steps are too long; P never rises, nor D falls."""
    settings = Newton(MAKE[loss]((100.0, 100.0)), 2, 1e-9)
    steps = run(KINDS["sparse"], settings)
    assert steps[-1].status == "converged"
    objectives = [step.progress.objective for step in steps]
    bounds = [step.progress.lower_bound or 0.0 for step in steps]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)


def test_a_minimiser_is_a_start_for_larger_costs(loss: str) -> None:
    problem = KINDS["dense"]
    small = run(problem, Newton(MAKE[loss]((0.9, 0.9)), 100, 1e-6))[-1].state
    settings = Newton(MAKE[loss]((1.0, 1.0)), 0, 1e-6)
    warm = run_steps(problem.in_memory(), solve(settings, small.restart()), 60)
    cold = run(problem, settings)
    assert warm[-1].status == cold[-1].status == "converged"
    assert warm[0].progress.objective < cold[0].progress.objective
    assert len(warm) < len(cold)
    assert warm[-1].progress.objective == pytest.approx(cold[-1].progress.objective, rel=2e-6)


def test_tuned(loss: str, stored: Dataset) -> None:
    """The best C is trained as it would be alone, and every fit of a chain converges."""
    own = replace(OPTIONS, loss=loss, resident_rows="10%")
    found = tune(stored, own, (0.001, 0.1, 10.0), folds=3)
    assert all(trial.converged for trial in found.trials)
    assert found.result.model_sha256 == train(stored, replace(own, C=found.best.C)).model_sha256


@pytest.mark.parametrize("scale", [1e-6, 3e6])
@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_extreme_scales_are_proved(scale: float, spread: float, loss: str) -> None:
    """The rounding of the gradient as a Euclidean length, times that of A, left no lower bound here."""
    drawn, random = make_problem(4, n=80, d=8), np.random.default_rng(0)
    problem = Problem((drawn.X * scale * 10.0 ** random.uniform(-spread, spread, 8)).astype(np.float32), drawn.y)
    found = train(problem.in_memory(), replace(OPTIONS, loss=loss, C=10.0, tol=1e-6, max_passes=100))
    assert found.status == "converged"
    assert found.passes <= 10
    assert found.lower_bound is not None
    assert found.lower_bound <= make_smooth(problem, loss, problem.costs(10.0)).minimise()[1]


def test_where_rounding_hides_the_bound_a_run_soon_stalls() -> None:
    """Fewer rows than features with products of 1e13, beside which the 1 of I + H is lost; the charge explains it."""
    drawn = make_problem(4, n=3, d=30)
    problem = Problem((drawn.X * 250.0).astype(np.float32), drawn.y)
    found = train(problem.in_memory(), replace(OPTIONS, loss="squared_hinge", C=7.7e7, tol=1e-6, max_passes=200))
    assert found.status == "stalled"
    assert found.passes < 50  # 100 steps are made where rounding does not explain the gap
    assert found.lower_bound is not None
    assert found.rounding_bound is not None
    assert found.objective - found.lower_bound <= 10 * found.rounding_bound


@pytest.mark.parametrize("rows", [[[1, 2], [2, 1]], [[1, 2], [2, 1], [3, 3]]])
def test_rounding_that_hides_the_whole_gradient_is_told(rows: list[list[int]]) -> None:
    """A score's last bit is more than its row's slack at the minimum, and so no multiplier can be told from 0."""
    problem = Problem(np.array(rows, np.float32) * np.float32(1e6), np.array([-1, 1, -1])[: len(rows)])
    found = train(problem.in_memory(), replace(OPTIONS, loss="squared_hinge", C=1e5, tol=1e-3, max_passes=200))
    assert found.lower_bound is not None
    assert found.rounding_bound is not None
    assert found.status == "stalled"
    assert found.objective - found.lower_bound <= 10 * found.rounding_bound
    assert found.objective <= 1.01 * make_smooth(problem, "squared_hinge", problem.costs(1e5)).minimise()[1]


def test_a_matrix_that_rounding_has_made_singular() -> None:
    """Rows of one large offset: a step along the gradient was so long that 2,000 passes did not bring P down."""
    random = np.random.default_rng(1)
    X = (random.normal(size=(30, 30)) + 1e4).astype(np.float32)
    problem = Problem(X, np.where(np.arange(30) % 2, 1, -1), 10.0 ** random.uniform(-6, 6, 30))
    found = train(problem.in_memory(), replace(OPTIONS, C=2e5, loss="logistic", max_passes=300))
    least = make_smooth(problem, "logistic", problem.costs(2e5)).minimise()[1]
    assert found.objective <= 1.001 * float(least)


PEAK = """
import re, sys
from streamsvm.runs import folder as run_folder
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train

run_folder.CHECKPOINT_SECONDS, run_folder.MOST_CHECKPOINT_SHARE = 0.0, float("inf")
path, out, resident = sys.argv[1:]

def run(budget, out):
    options = TrainOptions(loss="logistic", tol=1e-9, threads=2, memory_bytes=budget, resident_rows=resident)
    return train(open_dataset(path), options, out)

try:
    run(1, None)
except MemoryBudgetError as refusal:
    budget = parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1]) + (4 << 20)
reset_peak()
result = run(budget, out)
print(budget, result.projected_memory_bytes, peak_bytes(), result.passes)
"""


@pytest.mark.slow("measures the memory of trainings in processes of their own")
@pytest.mark.parametrize(
    ("kind", "resident"), [("narrow", "10%"), ("narrow", "100%"), ("wide", "10%"), ("sparse", "20%")]
)
def test_the_peak_stays_below_the_projection(kind: str, resident: str, tmp_path: Path) -> None:
    """In a process of its own, a checkpoint a step; the budget is the least there is."""
    n, d, density = {"narrow": (110_000, 50, 1.0), "wide": (6_000, 500, 1.0), "sparse": (10_000, 500, 0.2)}[kind]
    source = make_problem(1, n, d, density).store(tmp_path / "rows", chunk_bytes=1_000_000)
    ended = run_python(PEAK, source.path, tmp_path / "run", resident)
    assert ended.returncode == 0, ended.stderr
    budget, projected, peak, passes = map(float, ended.stdout.split())
    assert 60_000_000 < peak <= projected <= budget
    assert passes >= (1 if resident == "100%" else 2)


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_the_time_may_end_at_any_check_of_a_step_on_wide_matrices(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last point is certified and returned, whichever call is given up; a call in time has the same bits."""
    options = replace(
        OPTIONS, task=task, loss="epsilon_insensitive" if task == "regress" else "squared_hinge", tol=1e-6
    )
    source = (make_regression(3, n=60, d=4) if task == "regress" else make_problem(3, n=60, d=4)).in_memory()
    plain = train(source, options)
    monkeypatch.setattr(equations, "LONG_WIDTH", 1)
    checks = count()
    monkeypatch.setattr(Training, "is_late", lambda _: next(checks) < 0)
    assert train(source, options).model.coef.tobytes() == plain.model.coef.tobytes()
    n_checks = next(checks)
    assert n_checks > 10
    for last in range(n_checks):
        checks = count()
        monkeypatch.setattr(Training, "is_late", lambda _, checks=checks, last=last: next(checks) >= last)
        found = train(source, options)
        assert found.status in ("time_limit", "converged")
        assert found.lower_bound is not None
        assert plain.lower_bound is not None
        assert found.lower_bound <= plain.objective
        assert plain.lower_bound <= found.objective
