"""SMO and IRWLS as `train` drives them: options, memory that is planned, and what a run leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine
from streamsvm.models.model import KernelModel, load
from streamsvm.options import TrainOptions, make_kernel
from streamsvm.runs.gamma_scale import measure_gamma
from streamsvm.runs.train import train
from streamsvm.solvers.decomposition.setup import _choose_parameters
from streamsvm.solvers.decomposition.state import Decomposition
from streamsvm.solvers.registry import KERNEL_OTHER_BYTES
from streamsvm.solvers.set_up import read_own_options, set_up
from streamsvm.solvers.solver import Budget
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.conftest import Problem, make_problem, run_python
from tests.kernel_problems import bracket_by_libsvm, matrix_of, measure

MIB = 1 << 20
DENSE = make_problem(1, n=300, weighted=True)
SPARSE = make_problem(2, n=300, d=30, density=0.2)
OPTIONS = TrainOptions(solver="smo", kernel="rbf", gamma=0.2, threads=1)


def settings_of(source: Any, options: TrainOptions) -> Decomposition:
    settings = _choose_parameters(source, options, read_own_options(options), Budget.of(options, KERNEL_OTHER_BYTES))
    told = set_up(source, options).settings
    assert {name: getattr(settings, name) for name in ("inner", "resident_rows")}.items() <= told.items()
    return settings


def large_source(n: int, d: int = 10) -> ArrayDataset:
    """Of n rows, which take no memory, as rows on disk do."""
    X = np.broadcast_to(np.zeros(1, np.float32), (n, d))
    source = ArrayDataset(X, np.arange(n, dtype=np.int32) % 2, np.array([0, 1]))
    source.on_disk = True
    return source


@pytest.mark.parametrize("solver", ["smo", "irwls"])
@pytest.mark.parametrize("problem", [DENSE, SPARSE])
def test_trained_as_libsvm_trains(problem: Problem, solver: str, tmp_path: Path) -> None:
    """Class weights, sample weights and a free bias; the model's scores are f + b of its multipliers."""
    options = replace(OPTIONS, solver=solver, C=2.0, class_weight={-1: 0.5, 1: 3.0}, tol=1e-4)
    result = train(problem.store(tmp_path / "rows", chunk_bytes=2000), options, tmp_path / "run")
    costs, y = problem.costs(2.0, 0.5, 3.0), problem.y.astype(float)
    kernel = make_kernel(problem.in_memory(), options)
    K = matrix_of(problem, kernel)
    theirs = bracket_by_libsvm(K, y, costs)
    assert (result.status, result.solver) == ("converged", solver)
    assert result.objective == pytest.approx(theirs.high, rel=2e-4)
    assert result.lower_bound is not None
    assert 0 <= result.objective - result.lower_bound <= 1e-4 * result.objective
    model = load(tmp_path / "run")
    assert isinstance(model, KernelModel)
    assert len(model.dual_coef) == result.n_support_vectors
    scores = model.decide(problem.in_memory().take(np.arange(300)).X)
    half_square = np.sum(np.abs(model.dual_coef)) - result.lower_bound
    primal = half_square + costs @ np.maximum(0.0, 1 - y * scores)
    assert primal == pytest.approx(result.objective, rel=1e-5)
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["kernel"]["name"] == "rbf"


def test_support_vectors_and_weights_are_those_rows_with_multipliers() -> None:
    result = train(DENSE.in_memory(), OPTIONS)
    assert isinstance(result.model, KernelModel)
    weights = DENSE.costs(1.0)
    rows = [int(np.flatnonzero((x == DENSE.X).all(axis=1))[0]) for x in np.asarray(result.model.support_vectors)]
    assert len(set(rows)) == len(rows) == result.n_support_vectors
    np.testing.assert_array_equal(np.sign(result.model.dual_coef), DENSE.y[rows])
    assert np.all(np.abs(result.model.dual_coef) <= weights[rows])
    K, alpha = matrix_of(DENSE, result.model.kernel), np.zeros(300)
    alpha[rows] = np.abs(result.model.dual_coef)
    primal, dual = measure(K, DENSE.y.astype(float), weights, alpha, result.model.intercept)
    assert (result.objective, result.lower_bound) == pytest.approx((primal, dual), rel=1e-6)


@pytest.mark.parametrize("problem", [DENSE, SPARSE])
def test_gamma(problem: Problem) -> None:
    """scale: 1 / (d variance of all values), zeros included and rows counted by their weights; auto: 1 / d."""
    source, d = problem.in_memory(), problem.X.shape[1]
    weight = np.ones(300) if problem.weight is None else problem.weight
    mean = np.average(problem.dense().mean(axis=1), weights=weight)
    variance = np.average(((problem.dense() - mean) ** 2).mean(axis=1), weights=weight)
    assert measure_gamma(SerialEngine(source)) == pytest.approx(1 / (d * variance), rel=1e-6)
    assert make_kernel(source, replace(OPTIONS, gamma="auto")).gamma == 1 / d
    assert make_kernel(source, replace(OPTIONS, gamma=3)).gamma == 3.0


@pytest.mark.parametrize("offset", [1000.0, 30_000.0])
def test_gamma_of_values_far_from_zero(offset: float) -> None:
    """Squares of them hide the variance from float32."""
    X = (np.random.default_rng(1).normal(size=(200, 3)) + offset).astype(np.float32)
    source = Problem(X, np.tile([1, -1], 100)).in_memory()
    expected = 1 / (3 * X.astype(np.float64).var())
    assert measure_gamma(SerialEngine(source)) == pytest.approx(expected, rel=1e-6)


def test_gamma_of_rows_that_are_all_equal() -> None:
    source = Problem(np.full((4, 2), 0.5, np.float32), np.array([1, -1, 1, -1])).in_memory()
    assert measure_gamma(SerialEngine(source)) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "cosine"}, "kernel 'cosine': choose from linear, rbf, poly, sigmoid"),
        ({"gamma": -1.0}, "gamma is -1.0; it must be at least 0 and finite, or scale, or auto"),
        ({"gamma": "large"}, "gamma is 'large'"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"kernel": "poly", "degree": -1}, "degree is -1; a whole number from 0 to 1,000,000 is expected"),
        ({"kernel": "poly", "degree": 2.5}, "degree is 2.5"),
        ({"kernel": "poly", "coef0": float("inf")}, "coef0 is inf; it must be finite"),
        ({"resident_rows": "many"}, "resident rows 'many': a number of rows, or a share like 10%"),
        ({"resident_rows": "-5"}, "resident rows '-5'"),
        ({"resident_rows": 1}, "resident rows '1': at least two are needed"),
        ({"resident_rows": "0.1%"}, "resident rows '0.1%': at least two are needed"),
        ({"options": {"selection": "best"}}, "selection 'best': choose from second-order, largest"),
        ({"options": {"inner": "irwls2"}}, "inner 'irwls2': choose from smo, irwls, qp"),
        ({"options": {"working_rows": "1"}}, "option working_rows=1: a whole number of at least 2"),
        ({"options": {"working_rows": "ten"}}, "option working_rows=ten: a whole number of at least 2"),
        ({"options": {"working_rows": "inf"}}, "option working_rows=inf: a whole number of at least 2"),
        ({"options": {"cache_bytes": "-1"}}, "option cache_bytes=-1: a whole number of at least 0"),
        ({"options": {"cache_bytes": "much"}}, "'much' is not a size in bytes"),
        (
            {"options": {"cache": "1"}},
            "option 'cache' is unknown to smo; its options are selection, inner, working_rows",
        ),
    ],
)
def test_what_cannot_be_trained(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        train(DENSE.in_memory(), replace(OPTIONS, **change))


@pytest.mark.parametrize(
    ("asked", "n", "found"),
    [
        (None, 1000, 1000),
        (None, 5000, 5000),
        (None, 20_000, 4000),
        (None, 100_000, 20_000),
        ("10%", 5000, 500),
        (70, 5000, 70),
        ("70", 5000, 70),
        ("12.5%", 1000, 125),
        (10**6, 5000, 5000),
        ("100%", 5000, 5000),
    ],
)
def test_rows_in_memory(asked: int | str | None, n: int, found: int) -> None:
    options = replace(OPTIONS, resident_rows=asked, memory_bytes=4 << 30)
    assert settings_of(large_source(n), options).resident_rows == found


@pytest.mark.parametrize(
    ("d", "n", "memory", "found"), [(600, 40_000, 12, 40_000), (600, 40_000, 2, None), (500, 40_000, 12, 8000)]
)
def test_long_rows_are_all_in_memory_if_a_tenth_of_their_columns_fits(
    d: int, n: int, memory: int, found: int | None
) -> None:
    rows = settings_of(large_source(n, d=d), replace(OPTIONS, memory_bytes=memory << 30)).resident_rows
    assert rows == found if found else rows <= n // 5


def test_working_sets_grow_with_the_active_set() -> None:
    found = [settings_of(large_source(n), replace(OPTIONS, resident_rows=n)).working_rows for n in (9, 50_000, 90_000)]
    assert found == [1024, 1562, 2048]


def test_rows_in_memory_fit_the_budget() -> None:
    """A fifth of a million rows would take 800 MB, thrice."""
    source = large_source(10**6, d=1000)
    for budget in (1 << 30, 4 << 30):
        rows = settings_of(source, replace(OPTIONS, memory_bytes=budget)).resident_rows
        assert 0.05 * budget <= rows * (3 * 4000 + 8 * 16) <= budget / 4
    assert settings_of(source, replace(OPTIONS, memory_bytes=MIB)).resident_rows == 2048


@pytest.mark.parametrize("solver", ["smo", "irwls"])
def test_options_reach_the_solver(solver: str) -> None:
    source = DENSE.in_memory()
    default = settings_of(source, replace(OPTIONS, solver=solver))
    assert (default.inner, default.selection) == (solver, "second-order")
    given = {"inner": "qp", "selection": "chunking", "working_rows": "33", "cache_bytes": "0"}
    found = settings_of(source, replace(OPTIONS, solver=solver, options=given))
    assert (found.inner, found.selection, found.working_rows, found.cache_bytes) == ("qp", "chunking", 33, 0)
    for size in ("5e6", "5MB"):
        assert settings_of(source, replace(OPTIONS, options={"cache_bytes": size})).cache_bytes == 5_000_000
    platt = replace(OPTIONS, resident_rows=50, options={"selection": "platt"})
    assert settings_of(source, platt).resident_rows == 300


@pytest.mark.parametrize("options", [{}, {"cache_bytes": "0"}, {"inner": "qp"}, {"selection": "platt"}])
def test_options_do_not_change_the_optimum(options: dict[str, str]) -> None:
    result = train(DENSE.in_memory(), replace(OPTIONS, tol=1e-4, options=options))
    reference = train(DENSE.in_memory(), replace(OPTIONS, tol=1e-6))
    assert result.status == "converged"
    assert result.objective == pytest.approx(reference.objective, rel=1.1e-4)


def test_rows_in_float64_are_planned_for() -> None:
    """Twice the memory of what is sent, and of what is held where all rows are one working set."""
    source = large_source(1000, d=5000)
    exact, single = (
        set_up(source, replace(OPTIONS, options={"working_rows": rows})).memory(1) for rows in ("1000", "999")
    )
    assert exact.shared_bytes == single.shared_bytes == 2 * source.nbytes
    assert exact.driver_bytes >= single.driver_bytes + 3 * source.nbytes


def test_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The active rows do not fit; the same folder can be used with fewer."""
    dataset = make_problem(1, n=3000, d=500).store(tmp_path / "rows")
    options = replace(OPTIONS, memory_bytes=150 * MIB, resident_rows="100%")
    with monkeypatch.context() as patch:
        for name in ("tiles", "read", "take", "advise"):
            patch.setattr(Dataset, name, lambda self, index: pytest.fail("the rows were touched"))
        with pytest.raises(MemoryBudgetError, match="--memory"):
            train(dataset, options, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    ended = train(dataset, replace(options, memory_bytes=None, resident_rows="10%", tol=0.1), out=tmp_path / "run")
    assert ended.status == "converged"


WITHIN_LEAST = """
import json, re, sys
import streamsvm.runs.train
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import parse_bytes, peak_bytes, reset_peak

def train(path, budget, more):
    options = streamsvm.runs.train.TrainOptions(max_passes=3, memory_bytes=budget, threads=2, **more)
    return streamsvm.runs.train.train(open_dataset(path), options)

path, more = sys.argv[1], json.loads(sys.argv[2])
budget = 100_000_000
for _ in range(2):  # what the refusal names is enough
    try:
        result = train(path, budget, more)
        break
    except MemoryBudgetError as refusal:
        budget = 2_000_000 + parse_bytes(re.search(r"--memory to at least ([^ ,]+)", str(refusal))[1])
print(json.dumps({"peak": peak_bytes(), "budget": budget, **result.as_json()}))
"""


@pytest.mark.slow("takes many seconds to converge")
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("dense", {"solver": "smo", "kernel": "rbf", "gamma": 0.01, "resident_rows": 3000}),
        ("dense", {"solver": "smo", "kernel": "linear", "resident_rows": 10_000}),
        ("sparse", {"solver": "smo", "kernel": "rbf", "gamma": 0.01, "resident_rows": 3000}),
        ("wide", {"solver": "smo", "kernel": "rbf", "gamma": 1e-4}),
        ("wide", {"solver": "irwls", "kernel": "rbf", "gamma": 1e-4}),
        ("long", {"solver": "smo", "kernel": "rbf", "gamma": 1e-4, "options": {"working_rows": "200"}}),
        ("dense", {"task": "one-class", "kernel": "rbf", "gamma": 0.01, "nu": 0.3, "resident_rows": 3000}),
        ("dense", {"task": "one-class", "kernel": "linear", "nu": 0.9, "resident_rows": 40_000}),
    ],
)
def test_a_run_stays_below_its_projection(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    """In a process of its own, with little more than the least budget; `wide` rows are solved in float64."""
    random = np.random.default_rng(1)
    n, d, density = {
        "dense": (40_000, 100, 1.0),
        "sparse": (40_000, 100, 0.3),
        "wide": (500, 20_000, 1.0),
        "long": (400, 60_000, 0.1),
    }[kind]
    X = random.normal(size=(n, d)).astype(np.float32)
    if density < 1:
        X[random.random((n, d), np.float32) > density] = 0.0
    y = np.where(X[:, 0] + random.normal(size=n) > 0, 1, -1)
    layout = "sparse" if density < 1 else "dense"
    dataset = Problem(X, y).store(tmp_path / "rows", layout=layout, chunk_bytes=2_000_000)
    del X
    ended = run_python(WITHIN_LEAST, dataset.path, json.dumps(more))
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert 60_000_000 < result["peak"] <= result["projected_memory_bytes"] <= result["budget"]
