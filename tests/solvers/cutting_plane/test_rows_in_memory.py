"""Arrays in memory: coordinate ascent, or Newton's method where it is slow, and one pass that proves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.numeric.rounding import add_row_magnitudes
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane import block_ascent, coordinate_ascent, setup, smoothed_newton
from streamsvm.solvers.cutting_plane.coordinate_ascent import Part
from streamsvm.solvers.cutting_plane.smoothed_newton import Optimum
from tests.conftest import compute_objective, make_problem
from tests.linear_problems import objective_by_liblinear
from tests.solvers.cutting_plane.test_against_line_search import make_rows

OPTIONS = TrainOptions(threads=1)
KINDS = {
    "dense": make_problem(1, n=900, d=12),
    "sparse": make_problem(2, n=900, d=30, density=0.2),
    "weighted": make_problem(3, n=900, d=12, weighted=True),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("C", "by_newton"), [(0.001, False), (100.0, True)])
def test_the_optimum_is_that_of_the_line_search(
    name: str, C: float, by_newton: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intervals of P and D of both overlap; high costs are for Newton's method, and low ones for the ascent."""
    calls, minimise = [], block_ascent.minimise
    monkeypatch.setattr(block_ascent, "minimise", lambda *a, **named: calls.append(1) or minimise(*a, **named))
    problem = KINDS[name]
    found = train(problem.in_memory(), replace(OPTIONS, C=C, tol=1e-5))
    other = train(problem.in_memory(), replace(OPTIONS, C=C, tol=1e-5, options={"acceleration": "line-search"}))
    assert (found.status, other.status) == ("converged", "converged")
    assert bool(calls) == by_newton
    assert found.passes <= 2
    assert found.lower_bound is not None
    assert other.lower_bound is not None
    assert found.lower_bound <= other.objective
    assert other.lower_bound <= found.objective
    assert found.objective == pytest.approx(compute_objective(problem, found.model, problem.costs(C)), rel=1e-9)


def test_threads_give_the_same_bits() -> None:
    problem = KINDS["sparse"]
    models = [
        train(problem.in_memory(), replace(OPTIONS, C=C, threads=threads)).model_sha256
        for C in (0.01, 100.0)
        for threads in (1, 3)
    ]
    assert models[0] == models[1]
    assert models[2] == models[3]


@pytest.mark.parametrize("name", KINDS)
def test_magnitudes_are_sums_and_maxima_of_sizes(name: str) -> None:
    rows = KINDS[name].in_memory().read(0)
    X, weight = np.abs(np.asarray(KINDS[name].X.todense() if name == "sparse" else KINDS[name].X)), np.arange(900.0)
    sums, largest = np.ones(X.shape[1]), np.zeros(X.shape[1])
    add_row_magnitudes(sums, largest, rows.X, weight)
    np.testing.assert_allclose(sums, 1.0 + weight @ X, rtol=1e-6)
    np.testing.assert_allclose(largest, X.max(axis=0), rtol=1e-6)


def test_few_rows_take_one_pass_or_two_if_newtons_method_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, options = make_problem(5, n=200, d=6, weighted=True), replace(OPTIONS, C=100.0)
    found = train(problem.in_memory(), options)
    assert (found.status, found.passes) == ("converged", 1)
    assert found.lower_bound is not None
    assert found.objective - found.lower_bound <= 0.02 * options.tol * found.objective
    monkeypatch.setattr(
        smoothed_newton, "minimise_few", lambda data, _, tol, w: Optimum(w, np.inf, np.zeros_like(data.y), -np.inf)
    )
    other = train(problem.in_memory(), options)
    assert (other.status, other.passes) == ("converged", 2)
    assert found.lower_bound <= other.objective <= (1 + options.tol) * found.objective


@pytest.mark.parametrize(("kind", "seed"), [("heavy", 0), ("heavy", 5), ("noise", 1)])
def test_costs_of_twelve_orders_of_magnitude_take_few_passes(kind: str, seed: int) -> None:
    """The interior-point method for w fails, and rounding raises P of the shares' w. Newton's method goes on there."""
    rows, weight = make_rows(kind, seed, 263, 59), 10.0 ** np.random.default_rng(seed).uniform(-6, 6, 263)
    found = train(replace(rows, sample_weight=weight), replace(OPTIONS, C=1e7, max_passes=12))
    assert (found.status, found.passes) == ("converged", 2)


WIDE = make_problem(4, n=900, d=420)
FEW = 40  # epochs that a step may take here


def count_epochs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a step have time for FEW epochs; return a list that gets how many each step has taken."""
    taken: list[int] = []

    def ascend(*given: Any, **named: Any) -> Any:
        visits, visit = [0], Part.visit
        with monkeypatch.context() as patch:
            patch.setattr(Part, "visit", lambda *own: visits.append(1) or visit(*own))
            found = coordinate_ascent.ascend(*given, **named)
        taken.append(sum(visits))
        return found

    monkeypatch.setattr(block_ascent, "MOST_NUMBERS", FEW * 900 * 420)
    monkeypatch.setattr(block_ascent, "NEWTON_FEATURES", 400)  # too few for Newton's method to take over
    monkeypatch.setattr(block_ascent, "ascend", ascend)
    return taken


@pytest.mark.parametrize("beside", [True, False])
def test_no_step_takes_many_epochs_over_long_rows(beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ascent would take hundreds. It gives up, and the line search proves; or, without one, it goes on in parts."""
    taken = count_epochs(monkeypatch)
    if not beside:
        monkeypatch.setattr(block_ascent, "MOST_BESIDE", 400)
        monkeypatch.setattr(setup, "MOST_BESIDE", 400)
    options = replace(OPTIONS, C=100.0, tol=1e-3, options={"acceleration": "block-ascent"})
    found = train(WIDE.in_memory(), options)
    assert found.status == "converged"
    assert max(taken) <= FEW
    assert (len(taken) == 1 < found.passes) if beside else len(taken) == found.passes > 1
    assert found.lower_bound is not None
    optimum = objective_by_liblinear(WIDE, WIDE.costs(100.0))
    assert found.lower_bound <= optimum * (1 + 1e-9)
    assert optimum <= found.objective * (1 + 1e-6)


def test_an_ascent_that_has_given_up_is_resumed_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_epochs(monkeypatch)
    options = replace(OPTIONS, C=100.0, options={"acceleration": "block-ascent"})
    whole = train(WIDE.in_memory(), options)
    train(WIDE.in_memory(), replace(options, max_passes=3), tmp_path / "run")
    resumed = train(WIDE.in_memory(), options, tmp_path / "run", resume=True)
    assert whole.passes > 3
    assert resumed.model_sha256 == whole.model_sha256
