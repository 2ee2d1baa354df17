"""Regression by Newton's method: independent optima, true certificates, the same bits, and kinks that rows lie on."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.optimize import minimize
from sklearn.svm import LinearSVR

from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import LinearModel
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import score_rows
from streamsvm.options import TrainOptions
from streamsvm.problems.regression import EpsilonInsensitive
from streamsvm.runs.records import flatten, restore
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
from streamsvm.solvers.cutting_plane.kink_path import drop_common
from streamsvm.solvers.newton import setup, solver
from streamsvm.solvers.newton.kinks import bound_by_kinks, find_beyond, scan_near_kinks
from streamsvm.solvers.newton.solver import IDLE_PASSES, PATIENCE, Newton, raise_by_kinks, solve
from streamsvm.solvers.newton.steps import State
from tests.conftest import F64, run_python
from tests.linear_problems import run_steps
from tests.regression_problems import LOSSES, Regression, make_regression

OPTIONS = TrainOptions(task="regress", threads=1)
KINDS = {
    "dense": make_regression(1),
    "sparse": make_regression(2, d=20, density=0.2),
    "weighted": make_regression(3, weighted=True),
    "on the kinks": make_regression(4, lattice=True),
    "wide": make_regression(5, n=60, d=100),
}


def find_minimum(problem: Regression, C: float, epsilon: float, loss: str) -> float:
    """The dual value of a box-constrained QP, solved by L-BFGS-B: below the minimum of P, and near it.

    max over u, v in [0, C_i]: sum (t - epsilon) u - (t + epsilon) v - 1/2 |Z'(u - v)|^2 (- |(u, v)|^2 / 4 C_i squared).
    """
    Z, t = np.column_stack((problem.X, np.ones(len(problem.target)))), problem.target
    costs = np.full(len(t), C) if problem.weight is None else C * problem.weight
    kept = costs > 0
    Z, t, costs = Z[kept], t[kept], costs[kept]
    bend = 0.0 if loss == LOSSES[0] else 0.5 / costs

    def value(x: F64) -> tuple[float, F64]:
        u, v = np.split(x, 2)
        w = Z.T @ (u - v)
        both = np.concatenate((t - epsilon - Z @ w - bend * u, -t - epsilon + Z @ w - bend * v))
        half = float(w @ w) / 2 + float(np.sum(bend * (u**2 + v**2))) / 2
        return half - float((t - epsilon) @ u) + float((t + epsilon) @ v), -both

    most = np.tile(costs if loss == LOSSES[0] else np.full(len(t), np.inf), 2)
    limits = [(0.0, float(limit)) for limit in most]
    found = minimize(value, np.zeros(2 * len(t)), jac=True, bounds=limits, method="L-BFGS-B", options={"maxiter": 3000})
    return -float(found.fun)


def check(problem: Regression, found: Result, options: TrainOptions, scaling: float = 1.0) -> None:
    """P is that of the model, and the lower bound is below P at LIBLINEAR's optimum and at the model."""
    model, loss = found.model, options.loss or LOSSES[0]
    assert isinstance(model, LinearModel)
    assert options.epsilon is not None
    asked = float(options.C), options.epsilon, loss, scaling
    P = problem.objective(model.coef, float(model.intercept), *asked)
    assert found.objective == pytest.approx(P, rel=1e-12)
    assert found.lower_bound is not None
    other = LinearSVR(
        C=options.C, epsilon=options.epsilon, loss=loss, intercept_scaling=scaling, tol=1e-8, max_iter=100_000
    )
    other.fit(problem.X, problem.target, problem.weight)
    least = problem.objective(other.coef_, float(other.intercept_[0]), *asked)
    assert found.lower_bound <= min(P, least)
    assert found.status == "converged"
    assert options.tol * P >= P - found.lower_bound
    assert least * (1 + options.tol) >= P


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_the_optimum_is_that_of_liblinear(name: str, epsilon: float, loss: str) -> None:
    """With fewer rows than features, all rows have to be in memory."""
    few = [(0.01, 1e-3, "10%"), (0.1, 1e-3, "20%")] if name != "wide" else []
    for C, tol, resident in ((1.0, 1e-5, "100%"), (10.0, 1e-3, "100%"), *few):
        options = replace(OPTIONS, loss=loss, epsilon=epsilon, C=C, tol=tol, resident_rows=resident)
        check(KINDS[name], train(KINDS[name].in_memory(), options), options)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["weighted", "on the kinks"])
def test_the_bound_is_that_of_the_dual_problem(name: str, loss: str) -> None:
    options = replace(OPTIONS, loss=loss, epsilon=0.25, C=0.1, tol=1e-5)
    found = train(KINDS[name].in_memory(), options)
    minimum = find_minimum(KINDS[name], 0.1, 0.25, loss)
    assert found.objective == pytest.approx(minimum, rel=2e-4)
    assert found.objective >= minimum * (1 - 1e-12)


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_the_constant_feature() -> None:
    options = replace(OPTIONS, epsilon=0.1, options={"intercept_scaling": "10"})
    check(KINDS["dense"], train(KINDS["dense"].in_memory(), options), options, 10.0)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_regression(7, n=5000, d=12, weighted=True).store(tmp_path_factory.mktemp("kinks") / "rows")


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("resident", ["10%", "100%"])
def test_the_same_bits_on_any_engine_and_resumed(
    resident: str, stored: Dataset, client: Client, tmp_path: Path, many_groups: None
) -> None:
    own = replace(OPTIONS, resident_rows=resident, tol=1e-5)
    found = [train(stored, replace(own, threads=threads)) for threads in (1, 2)]
    found.append(train(stored, own, client=client))
    train(stored, replace(own, max_passes=1), tmp_path / "run")
    found.append(train(stored, own, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"
    assert (found[0].passes > 1) == (resident == "10%")


@pytest.mark.parametrize("number", [0, 3])
def test_from_little_or_no_sample(number: int) -> None:
    """P never rises, nor does the bound fall, and a run that goes on from any state has the same bits."""
    source = KINDS["on the kinks"].in_memory()
    settings = Newton(EpsilonInsensitive(1.0, 0.5, np.empty(0)), number, 1e-5)
    steps = run_steps(source, solve(settings, settings.start(source.n_rows, source.n_features)), 100)
    assert steps[-1].status == "converged"
    objectives = [step.progress.objective for step in steps]
    bounds = [step.progress.lower_bound or 0.0 for step in steps]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    for step in steps[1:-1:4]:
        again = run_steps(source, solve(settings, step.state), 100)
        np.testing.assert_array_equal(again[-1].state.best_w, steps[-1].state.best_w)
        assert again[-1].progress == steps[-1].progress


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_to_learn(loss: str) -> None:
    """All targets within the tube: w = 0 is the optimum, and P is 0."""
    source = replace(KINDS["dense"], target=np.full(2000, 0.1)).in_memory()
    found = train(source, replace(OPTIONS, loss=loss, epsilon=0.2))
    assert found.status == "converged"
    assert found.objective == found.lower_bound == 0.0
    assert isinstance(found.model, LinearModel)
    assert not found.model.coef.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_tuned(loss: str, stored: Dataset) -> None:
    own = replace(OPTIONS, loss=loss, resident_rows="10%")
    found = tune(stored, own, (0.0001, 0.1), folds=3)
    assert all(trial.converged for trial in found.trials)
    assert found.best.C == 0.1
    assert found.best.mean < 0
    assert found.result.model_sha256 == train(stored, replace(own, C=0.1)).model_sha256


def make_hostile(seed: int) -> Regression:
    """Weights over 12 decades, on a lattice or far from the origin, and targets of any size."""
    random = np.random.default_rng(seed)
    n, d = int(random.choice([3, 10, 30, 80])), int(random.choice([2, 8, 30]))
    X = random.integers(-2, 3, (n, d)) if seed % 2 else random.normal(size=(n, d)) + 100.0
    target = random.normal(size=n) * 10.0 ** random.uniform(-3, 3)
    return Regression(X.astype(np.float32).astype(np.float64), target, 10.0 ** random.uniform(-6, 6, n))


@pytest.mark.parametrize(("tol", "passes"), [(1e-3, 2), (1e-6, 3)])
def test_few_reads_with_a_tenth_of_the_rows(tol: float, passes: int) -> None:
    """The bound of the smoothing alone takes four passes, and more than twenty."""
    options = replace(OPTIONS, epsilon=0.1, tol=tol, resident_rows="10%", max_passes=60)
    for seed in range(3):
        source = make_regression(seed, n=4000).in_memory()
        found, exact = train(source, options), train(source, replace(options, resident_rows=None, tol=1e-10))
        assert (found.status, found.passes) == ("converged", passes)
        assert found.lower_bound is not None
        assert found.lower_bound <= exact.objective


def test_a_sample_that_misses_the_rows_that_decide_is_replaced_by_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide tube and a small tolerance: the sample alone takes more than 60 passes."""
    monkeypatch.setattr(setup, "KINK_ROWS", 50)
    problem, epsilon = make_regression(7, n=3000), 3.0
    options = replace(OPTIONS, epsilon=epsilon, tol=1e-6, max_passes=60)
    found = train(problem.in_memory(), options)
    assert (found.status, found.passes) == ("converged", PATIENCE + 1)
    assert found.objective == pytest.approx(find_minimum(problem, 1.0, epsilon, LOSSES[0]), rel=2e-4)
    sampled = train(problem.in_memory(), replace(options, resident_rows=300, max_passes=PATIENCE + 1))
    assert sampled.status == "pass_limit", "where the number of rows is given, it holds"


def test_the_unit_of_the_targets_does_not_matter() -> None:
    """In a unit of 2^60, the targets are about 1e-18."""
    problem, unit = make_regression(0, n=4000), 2.0**-60
    options = replace(OPTIONS, epsilon=0.1, tol=1e-6, resident_rows="10%", max_passes=60)
    found = train(problem.in_memory(), options)
    tiny = replace(problem, target=unit * problem.target)
    again = train(tiny.in_memory(), replace(options, epsilon=unit * 0.1, C=unit))
    assert again.passes == found.passes == 3
    assert again.objective == pytest.approx(unit**2 * found.objective, rel=1e-6)
    assert again.lower_bound == pytest.approx(unit**2 * found.lower_bound, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e15, 1e21, 1e28])
@pytest.mark.parametrize("cost", [1e-3, 1e8])
def test_features_of_any_scale_raise_no_warning(cost: float, scale: float) -> None:
    """In tests, warnings are errors. The squares of large float32 features overflow, for example."""
    problem = make_regression(6)
    large = replace(problem, X=scale * problem.X, target=problem.target / scale)
    result = train(large.in_memory(), replace(OPTIONS, loss=LOSSES[0], C=cost, max_passes=20))
    assert result.lower_bound <= result.objective


def test_near_rows_that_do_not_raise_the_bound_are_seldom_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that repeat twelve points; the same bits are found from any state, also from one saved without `raised`."""
    random = np.random.default_rng(1)
    X = random.normal(size=(12, 5)).astype(np.float32).astype(np.float64)[random.integers(0, 12, 3000)]
    source = Regression(X, np.round(2 * X[:, 0]), random.integers(0, 3, 3000).astype(float)).in_memory()
    settings, tried = Newton(EpsilonInsensitive(0.5, 0.1, np.empty(0)), 200, 1e-6), []

    def note(settings: Newton, state: State, *others: Any, **follows: bool) -> State:
        tried.append(state.passes)
        return raise_by_kinks(settings, state, *others, **follows)

    monkeypatch.setattr(solver, "raise_by_kinks", note)
    steps = run_steps(source, solve(settings, settings.start(source.n_rows, 5)), 50)
    assert len(steps) == 50
    last = steps[-1].state.raised
    assert tried == [*range(last + IDLE_PASSES + 1), last + 16, last + 32]
    for at in (5, 20, 40):
        again = run_steps(source, solve(settings, steps[at].state), 49 - at)
        np.testing.assert_array_equal(again[-1].state.next_w, steps[-1].state.next_w)
        assert again[-1].progress == steps[-1].progress
    arrays = {name: np.asarray(value) for name, value in flatten(steps[20].state).items() if name != "raised"}
    assert restore(settings.start(source.n_rows, 5), arrays, source.n_rows).raised == 0


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@pytest.mark.parametrize(
    ("seed", "epsilon"),
    [(4, 0.0), (6, 0.0), (10, 0.0), (11, 0.0), (14, 0.0), (22, 0.0), (5, 1.0), (21, 1.0), (18, 1.0), (23, 1.0)],
)
def test_weights_over_many_decades(seed: int, epsilon: float) -> None:
    """Rounding hides the curvature of the smoothing. The last two also need more steps to the minimiser.

    LIBLINEAR finds some of these optima; P in long double is an upper bound of the others.
    """
    problem, options = make_hostile(seed), replace(OPTIONS, epsilon=epsilon, max_passes=100)
    found = train(problem.in_memory(), options)
    assert found.status == "converged"
    assert isinstance(found.model, LinearModel)
    P = problem.objective(found.model.coef, float(found.model.intercept), 1.0, epsilon, LOSSES[0])
    other = LinearSVR(epsilon=epsilon, tol=1e-10, max_iter=20_000).fit(problem.X, problem.target, problem.weight)
    least = problem.objective(other.coef_, float(other.intercept_[0]), 1.0, epsilon, LOSSES[0])
    assert abs(P - found.objective) <= found.rounding_bound
    assert least * (1 + options.tol) >= P
    assert (1 - options.tol) * P <= found.lower_bound <= min(P, least)


def compute_dual(problem: Regression, a: F64, epsilon: float, bias: float) -> Fraction:
    """The exact D at the best multiple, at most 1, of multipliers (2, n)."""
    terms = [[Fraction(float(m)) for m in row] for row in a]
    total = sum(
        (
            m * (Fraction(t) * (-sign) - Fraction(epsilon))
            for sign, row in zip((1, -1), terms, strict=True)
            for m, t in zip(row, problem.target.tolist(), strict=True)
        ),
        Fraction(0),
    )
    coefs = [down - up for up, down in zip(*terms, strict=True)]
    Z = np.column_stack((problem.X, np.full(len(coefs), bias))).T.tolist()
    square = sum(
        (sum((c * Fraction(x) for c, x in zip(coefs, z, strict=True)), Fraction(0)) ** 2 for z in Z), Fraction(0)
    )
    multiple = min(Fraction(1), max(Fraction(0), total) / square)
    return multiple * total - multiple**2 * square / 2


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_by_multipliers_is_below_the_exact_dual(seed: int) -> None:
    """And near it, although multipliers of 1e6 cancel."""
    random, bias = np.random.default_rng(seed), 3.0
    problem = make_hostile(seed)
    epsilon = float(np.median(np.abs(problem.target))) / 4
    rows = problem.in_memory().take(np.arange(len(problem.target)))
    kinks = EpsilonInsensitive(1.0, epsilon, np.empty(0)).find_kinks(rows)
    a = drop_common(kinks.costs * random.uniform(-0.1, 1.1, kinks.costs.shape), kinks)
    assert np.all((a >= 0.0) & (a <= kinks.costs) & (np.min(a, axis=0) == 0.0))
    if seed % 2:  # towards the targets, so that D is positive for a multiple
        a = np.where(kinks.signs * kinks.places < 0.0, a, 0.0)
    exact = compute_dual(problem, a, epsilon, bias)
    bound = bound_by_kinks(rows, kinks, a, bias)
    assert bound.value <= exact
    assert exact - bound.value <= 1e-12 * float(exact) + 1e-300


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_by_the_kept_rows_is_below_the_exact_dual(seed: int) -> None:
    """The other rows have the multiplier C_i beyond a kink, and 0 otherwise."""
    random, bias = np.random.default_rng(seed), 3.0
    problem = make_hostile(seed)
    n, d = problem.X.shape
    loss = EpsilonInsensitive(1.0, float(np.median(np.abs(problem.target))) / 4, np.empty(0))
    rows, w = problem.in_memory().take(np.arange(n)), random.normal(size=d + 1) * 10.0 ** random.uniform(-3, 1)
    scan = scan_near_kinks(loss, w, RowNorm(np.eye(d + 1)), 1 + n // 3, n, bias)
    totals = scan.start()
    scan.add(totals, rows, *scan.shared)
    kept, beyond = find_beyond(totals, *scan.shared)
    near = np.flatnonzero(np.isin(rows.weights, kept.weights))
    assert len(near) == kept.n_rows <= 1 + n // 3
    kinks, every = loss.find_kinks(kept), loss.find_kinks(rows)
    towards = kinks.signs * kinks.places < 0.0
    own = drop_common(kinks.costs * np.where(towards, random.uniform(0.0, 1.0, kinks.costs.shape), 0.0), kinks)
    a = every.costs * (every.signs * (score_rows(rows.X, w, bias) - every.places) > 0.0)
    a[:, near] = own
    bound, exact = bound_by_kinks(kept, kinks, own, bias, beyond), compute_dual(problem, a, loss.epsilon, bias)
    assert bound.value <= exact
    assert float(exact) - bound.value <= 2.0 * bound.rounding + 1e-12 * float(exact) + 1e-300


def test_cutting_planes_reach_the_same_optimum() -> None:
    options = replace(OPTIONS, epsilon=0.25, solver="cutting-plane")
    check(KINDS["dense"], train(KINDS["dense"].in_memory(), options), options)


PEAK = """
import re, sys
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak
from streamsvm.options import TrainOptions; from streamsvm.runs.train import train

path, resident = sys.argv[1:]

def run(budget):
    options = TrainOptions(task="regress", threads=2, memory_bytes=budget, resident_rows=resident)
    return train(open_dataset(path), options)

try:
    run(1)
except MemoryBudgetError as refusal:
    budget = parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1]) + (4 << 20)
reset_peak()
result = run(budget)
print(budget, result.projected_memory_bytes, peak_bytes(), result.passes)
"""


@pytest.mark.slow("measures the memory of trainings in processes of their own")
@pytest.mark.parametrize("resident", ["10%", "100%"])
def test_the_peak_stays_below_the_projection(resident: str, tmp_path: Path) -> None:
    """In a process of its own; the budget is the least there is."""
    source = make_regression(1, n=150_000, d=20).store(tmp_path / "rows", chunk_bytes=1_000_000)
    ended = run_python(PEAK, source.path, resident)
    assert ended.returncode == 0, ended.stderr
    budget, projected, peak, passes = map(float, ended.stdout.split())
    assert 60_000_000 < peak <= projected <= budget
    assert passes == 1
