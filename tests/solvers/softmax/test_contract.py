"""Softmax owes what every solver does: the same bits, few reads, memory as planned, and bounds that are never false."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up
from streamsvm.solvers.softmax import lbfgs, setup, solver
from streamsvm.solvers.softmax.setup import LEAST_TOTALS
from tests.class_problems import ClassProblem, make_classes, measure_driver
from tests.linear_problems import run_steps
from tests.solvers.softmax.test_optimum import primal

OPTIONS = TrainOptions(task="multinomial", threads=1, C=0.1)
PROBLEM = make_classes(1, n=6000, d=10, n_classes=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return PROBLEM.store(tmp_path_factory.mktemp("softmax") / "rows.zarr", chunk_bytes=10_000)


@pytest.mark.slow("trains on every engine")
@pytest.mark.parametrize("most", [lbfgs.MOST_CURVED, 0], ids=["few weights", "many weights"])
def test_the_same_bits_on_any_engine_and_resumed(
    most: int, data: Dataset, client: Client, many_groups: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("lbfgs", "solver"):
        monkeypatch.setattr(f"streamsvm.solvers.softmax.{module}.MOST_CURVED", most)
    options = replace(OPTIONS, tol=1e-5, resident_rows="10%")
    found = [train(data, replace(options, threads=threads)) for threads in (1, 2)]
    found.append(train(data, options, client=client))
    train(data, replace(options, max_passes=1), tmp_path / "run")
    found.append(train(data, options, tmp_path / "run", resume=True))
    assert len({result.model_sha256 for result in found}) == 1
    assert found[0].status == "converged"
    assert found[0].passes > 2


@pytest.mark.parametrize("most", [lbfgs.MOST_CURVED, 0], ids=["few weights", "many weights"])
def test_gone_on_from_any_state_to_the_same_bits(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lbfgs", "solver"):
        monkeypatch.setattr(f"streamsvm.solvers.softmax.{module}.MOST_CURVED", most)
    monkeypatch.setattr("streamsvm.data.sources.in_memory.CHUNK_BYTES", 10_000)
    source = replace(PROBLEM, sparse=True).in_memory()
    solver = set_up(source, replace(OPTIONS, tol=1e-6, resident_rows=300))
    steps = run_steps(source, solver.solve(solver.start()))
    assert len(steps) > 3
    for step in steps[:-1]:
        after = run_steps(source, solver.solve(step.state))[-1]
        assert np.array_equal(after.state.best_w, steps[-1].state.best_w)
        assert after.progress == steps[-1].progress


def test_few_reads(data: Dataset, without_pins: None) -> None:
    """Nothing is kept in memory but the sample, so the bytes are reads."""
    result = train(data, replace(OPTIONS, resident_rows="10%"))
    assert result.status == "converged"
    assert result.read_bytes <= 4.3 * data.nbytes  # the rows are not shuffled, so each pass also reads the sample
    assert train(data, OPTIONS).passes == 1


@pytest.mark.parametrize("most", [lbfgs.MOST_CURVED, 0], ids=["few weights", "many weights"])
def test_a_larger_cost_starts_from_the_model_of_a_smaller_one(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lbfgs", "solver"):
        monkeypatch.setattr(f"streamsvm.solvers.softmax.{module}.MOST_CURVED", most)
    source = PROBLEM.in_memory()
    solvers = [set_up(source, replace(OPTIONS, C=C, resident_rows=600)) for C in (0.1, 0.2)]
    small = run_steps(source, solvers[0].solve(solvers[0].start()))[-1].state
    start = solvers[1].warm_start(small, 2.0)
    costs = PROBLEM.costs(0.2)
    assert start.objective == pytest.approx(primal(PROBLEM, costs, small.best_w.reshape(5, -1)), rel=1e-12)
    assert 0.0 < start.lower_bound < start.objective
    warm = run_steps(source, solvers[1].solve(start))
    cold = run_steps(source, solvers[1].solve(solvers[1].start()))
    assert len(warm) < len(cold)
    assert warm[-1].progress.objective == pytest.approx(cold[-1].progress.objective, rel=1e-3)


@pytest.mark.parametrize("own", [{}, {"resident_rows": 2000}, {"resident_rows": 2000, "tol": 1e-6}])
@pytest.mark.parametrize("d", [4, 150])
def test_the_driver_holds_what_is_planned(own: dict[str, Any], d: int) -> None:
    _, peak, planned = measure_driver(replace(OPTIONS, **own), 20_000, d, totals=LEAST_TOTALS)
    assert peak <= planned


def test_a_model_that_is_not_convex_ends_early() -> None:
    """At high costs, a sample has more curvature in some directions than all rows have."""
    problem = make_classes(1, n=3000, d=10, n_classes=5)
    result = train(problem.in_memory(), replace(OPTIONS, C=1e5, resident_rows=400))
    assert result.status == "converged"
    assert result.passes <= 25  # 500 steps in memory lead so far away that 150 passes do not suffice


@pytest.mark.parametrize(("seed", "d", "C"), [(4, 47, 750.0), (13, 43, 100.0)])
def test_a_model_falls_no_farther_than_the_objective_can(
    seed: int, d: int, C: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an end of its fall, a model of few rows leads to points that cost about twice as many passes."""
    for module in ("lbfgs", "solver"):
        monkeypatch.setattr(f"streamsvm.solvers.softmax.{module}.MOST_CURVED", 0)
    source, passes = make_classes(seed, n=160, d=d, n_classes=7).in_memory(), []
    for most in (solver.MOST_FALL, np.inf):
        monkeypatch.setattr("streamsvm.solvers.softmax.solver.MOST_FALL", most)
        passes.append(train(source, replace(OPTIONS, C=C, tol=1e-6, resident_rows=16)).passes)
    assert passes[0] < 0.7 * passes[1]


def test_a_step_that_falls_too_far_is_shortened() -> None:
    """Early on, the first step in memory falls far. Without any of it, these rows take 20 passes."""
    random = np.random.default_rng(0)
    y, centres = random.integers(0, 40, 2000), 0.4 * random.standard_normal((40, 100))
    problem = ClassProblem(centres[y] + random.standard_normal((2000, 100)), y.astype(np.int32))
    result = train(problem.in_memory(), replace(OPTIONS, C=0.2, resident_rows="10%"))
    assert result.status == "converged"
    assert result.passes <= 15


def test_numbers_too_large_for_float32_products_end_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The squares of these features overflow, so a matrix of the preconditioner has no eigenvalues."""
    monkeypatch.setattr("streamsvm.solvers.softmax.setup.SMALL_BYTES", 0)
    problem = make_classes(3, n=9000, d=20, n_classes=60)
    large = replace(problem, X=1e30 * problem.X)
    assert train(large.in_memory(), replace(OPTIONS, max_passes=3)).status == "pass_limit"


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_heavy_tailed_rows_in_memory_take_few_passes(tol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few secants, or where F can only fall by its rounding, L-BFGS would end far from the minimiser."""
    for module in ("lbfgs", "solver"):
        monkeypatch.setattr(f"streamsvm.solvers.softmax.{module}.MOST_CURVED", 0)
    problem = make_classes(2, n=1000, d=6, n_classes=9)
    heavy = replace(problem, X=problem.X * np.random.default_rng(0).pareto(0.7, (1000, 1)))
    result = train(heavy.in_memory(), replace(OPTIONS, C=1e4, tol=tol, options={"intercept_scaling": 100.0}))
    assert result.status == "converged"
    assert result.passes <= 2


def test_vectors_of_many_weights_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of what is planned is small here: scores and rows of few rows, and few cuts.

    The weights are planned in the driver and, as they are sent to workers, once more.
    """
    for module in (setup, lbfgs):
        monkeypatch.setattr(module, "PART_ROWS", 32)
    monkeypatch.setattr(setup, "LEAST_CUTS", 4)
    monkeypatch.setattr(setup, "CUTS_BYTES", 1)
    fit, peak, planned = measure_driver(replace(OPTIONS, resident_rows="80%"), 200, 3000, 80, 6, LEAST_TOTALS)
    vector = 8 * 80 * 3001
    unused = (4 << 20) + fit.memory(1).shared_bytes
    assert planned - unused - 12 * vector < peak <= planned - unused


def make_problem(seed: int) -> tuple[ClassProblem, TrainOptions]:
    """Random rows, at any scale, some of them with weights, and random options."""
    random = np.random.default_rng(seed)
    n, d, n_classes = (int(random.choice(each)) for each in ((20, 60, 300), (1, 3, 10, 40), (3, 5, 7)))
    density, weighted = float(random.choice([1.0, 0.3])), bool(random.integers(2))
    problem = make_classes(seed, n, d, n_classes, density, weighted)
    scale = 10.0 ** random.integers(-3, 4, size=d if random.integers(2) else 1)
    X = (problem.X * scale + 10.0 * random.integers(2)).astype(np.float32).astype(np.float64)
    C, tol = 10.0 ** float(random.integers(-3, 3)), float(random.choice([1e-3, 1e-5]))
    own = {"resident_rows": "30%"} if random.integers(2) else {}
    about = {"class_weight": "balanced" if random.integers(2) else None, "tol": tol, **own}
    feature = {"intercept_scaling": float(random.choice([0.0, 1.0, 10.0]))}
    return replace(problem, X=X), replace(OPTIONS, C=C, options=feature, **about)


@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_false_in_long_double(seed: int) -> None:
    problem, options = make_problem(seed)
    source = problem.in_memory()
    solver = set_up(source, options)
    steps = run_steps(source, solver.solve(solver.start()), 12)
    factors = np.asarray(solver.settings["class_costs"])
    costs, feature = problem.costs(1.0, factors), options.options["intercept_scaling"]
    lowest = np.inf
    for step in steps:
        step.progress.check()
        P = primal(problem, costs, step.state.best_w.reshape(problem.n_classes, -1), feature)
        assert abs(P - step.progress.objective) <= step.state.objective_rounding + 1e-15 * P
        lowest = min(lowest, P)
    assert max(step.progress.lower_bound for step in steps) <= lowest * (1 + 1e-15)
