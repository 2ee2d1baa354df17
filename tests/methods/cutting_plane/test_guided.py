"""Cutting planes guided by resident rows: certified at every step, on any data, with the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.dataset import Dataset
from streamsvm.data.groups import plan_groups
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.methods.cutting_plane.guided import Guided, State, solve, start_state
from streamsvm.methods.cutting_plane.point_cuts import add_points, read_cuts, start_points
from streamsvm.numeric.rows import F64
from streamsvm.requests import Step
from streamsvm.training.train import TrainOptions, train
from tests.conftest import Problem, make_problem
from tests.faults.instants import describe
from tests.linear_problems import bracket_by_qp, primal, run_steps

OPTIONS = TrainOptions(tol=1e-5, threads=1, resident_rows="20%", options={"acceleration": "guided"})


def run(source: ArrayDataset, guided: Guided, state: State | None = None) -> list[Step]:
    """All steps of a run."""
    return run_steps(source, solve(guided, state or start_state(guided, source.n_rows, source.n_features)))


@settings(max_examples=40, deadline=None)
@given(
    problem=st.builds(
        make_problem, seed=st.integers(0, 10**6), n=st.integers(20, 120), d=st.integers(1, 8),
        density=st.sampled_from([1.0, 0.4]), weighted=st.booleans(),
    ),
    C=st.sampled_from([1e-3, 0.1, 10.0]), share=st.sampled_from([0.05, 0.3, 1.0]),
    bias_feature=st.sampled_from([1.0, 3.0]),
)  # fmt: skip
def test_every_step_is_certified(problem: Problem, C: float, share: float, bias_feature: float) -> None:
    """P is that of the model, and the bounds hold, however few rows guide."""
    costs = problem.costs(C, C, C) / C
    optimum = bracket_by_qp(problem, costs, bias_feature)
    guided = Guided((C, C), max(2, int(share * len(problem.y))), 1e-5, bias_feature)
    steps = run(problem.in_memory(), guided)
    assert steps[-1].status == "converged"
    before = (np.inf, 0.0)
    for step in steps:
        objective, lower_bound = step.state.objective, step.state.lower_bound
        assert objective == pytest.approx(primal(problem, costs, step.state.best_w, bias_feature), rel=1e-9)
        assert lower_bound <= optimum.high * (1 + 1e-9)
        assert objective >= optimum.low * (1 - 1e-9)
        assert objective <= before[0]
        assert lower_bound >= before[1] * (1 - 1e-12)
        before = (objective, lower_bound)


@pytest.mark.parametrize("kind", ["sorted", "repeated", "rare", "heavy", "wide"])
def test_awkward_rows(kind: str) -> None:
    """A class that the first sample lacks, rows sorted by label or all alike, values of all sizes, d > n."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((160, 200) if kind == "wide" else (600, 6))
    y = (X[:, 0] + rng.standard_normal(len(X)) > 0).astype(np.int32)
    if kind == "sorted":
        X, y = X[np.argsort(y, kind="stable")], np.sort(y)
    elif kind == "repeated":
        X, y = np.repeat(X[:20], 30, axis=0), np.repeat(y[:20], 30)
    elif kind == "rare":
        y = (np.arange(600) < 3).astype(np.int32)
    elif kind == "heavy":
        X = X * rng.pareto(1.0, (600, 1))
    source = ArrayDataset(X.astype(np.float32), y, np.array([-1, 1]))
    last = run(source, Guided((0.1, 0.1), 60))[-1]
    usual = train(source, TrainOptions(C=0.1, threads=1, tol=1e-6, options={"acceleration": "line-search"}))
    assert last.status == "converged"
    assert last.state.objective <= usual.objective * (1 + 1.1e-3)
    assert last.state.lower_bound <= usual.objective


def test_a_sample_of_all_rows_needs_no_search() -> None:
    """The corrected sample is the problem: what it says is so."""
    source = make_problem(5, n=300, d=5).in_memory()
    steps = run(source, Guided((0.1, 0.1), 300))
    assert steps[-1].status == "converged"
    assert len(steps) <= 2


def test_far_fewer_passes_than_by_line_search() -> None:
    source = make_problem(6, n=20_000, d=20).in_memory()
    usual = train(source, replace(OPTIONS, tol=1e-3, resident_rows=None, options={"acceleration": "line-search"}))
    found = train(source, replace(OPTIONS, tol=1e-3))
    assert found.status == usual.status == "converged"
    assert found.passes <= usual.passes / 3


def test_cuts_at_points_by_force() -> None:
    problem = make_problem(7, n=50, d=4, weighted=True)
    W = np.random.default_rng(0).standard_normal((3, 5))
    totals = start_points(3, 5)
    for index in range(problem.in_memory().n_chunks):
        add_points(totals, problem.in_memory().read(index), W, np.array([0.5, 2.0]), 1.5)
    costs = problem.costs(1.0, 0.5, 2.0)
    Z: F64 = problem.y[:, None] * np.column_stack((problem.dense(), np.full(50, 1.5)))
    gradients, offsets = read_cuts(totals)
    for k in range(3):
        margins = Z @ np.append(W[k, :-1], W[k, -1])
        active = margins < 1
        assert totals.losses[k] == pytest.approx(costs @ np.maximum(0, 1 - margins))
        assert offsets[k] == pytest.approx(costs @ active)
        np.testing.assert_allclose(gradients[k], (costs * active) @ Z, atol=1e-10)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    problem = make_problem(8, n=900, d=6, weighted=True)
    return problem.store(tmp_path_factory.mktemp("rows") / "rows", layout="dense", chunk_bytes=2000)


@pytest.mark.usefixtures("many_groups")
def test_the_same_bits_on_any_engine(dataset: Dataset, client: Client) -> None:
    assert len(plan_groups(dataset)) >= 5
    results = [train(dataset, replace(OPTIONS, threads=threads)) for threads in (1, 2, 4)]
    results.append(train(dataset, OPTIONS, client=client))
    assert results[0].status == "converged"
    for other in results[1:]:
        assert other.model_sha256 == results[0].model_sha256
        assert (other.lower_bound, other.passes) == (results[0].lower_bound, results[0].passes)


@pytest.mark.usefixtures("many_groups")
def test_resumed_after_each_step(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, OPTIONS, out=tmp_path / "whole")
    whole = describe(tmp_path / "whole")
    n_steps = len(whole["history"])
    assert n_steps > 2
    for step in range(1, n_steps):
        out = tmp_path / f"stopped-{step}"
        train(dataset, replace(OPTIONS, max_passes=step), out=out)
        train(dataset, replace(OPTIONS, threads=2), out=out, resume=True)
        assert describe(out) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resident_rows": "x%"}, "a number of rows, or a share"),
        ({"resident_rows": 1}, "at least two are needed"),
        (
            {"options": {"acceleration": "guided", "epsilon": "0.1"}},
            "epsilon and max_cuts are not for",
        ),
        ({"options": {"acceleration": "line-search"}}, "resident rows are not for acceleration=line-search"),
    ],
)
def test_refused(change: dict[str, Any], message: str, dataset: Dataset) -> None:
    with pytest.raises(ValueError, match=message):
        train(dataset, replace(OPTIONS, **change))
