"""The start of labels with many weights at large costs: one pass proves it where all rows are in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.label_newton import setup, solver
from tests.label_problems import LabelProblem, make_labels

OPTIONS = TrainOptions(threads=1, loss="squared_hinge")
KINDS = {
    "more rows than features": make_labels(6, n=400, d=30),
    "more features than rows": make_labels(4, n=90, d=200, weighted=True),
    "sparse": make_labels(2, n=300, d=200, density=0.1),
}


@pytest.fixture(autouse=True)
def by_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few weights are many, and labels are worked on in groups of two."""
    monkeypatch.setattr(setup, "MOST_WEIGHTS", 1)
    monkeypatch.setattr(solver, "LABELS", 2)
    monkeypatch.setattr(solver, "LOOKED_ROWS", 64)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("C", [30.0, 1e4])
def test_one_pass_proves_large_costs_where_all_rows_are_in_memory(name: str, C: float, tmp_path: Path) -> None:
    """The objective is that of the model, in long double, and the gap of every label is proved."""
    problem, tol = KINDS[name], 1e-4
    found = train(problem.store(tmp_path / "rows"), replace(OPTIONS, C=C, tol=tol, class_weight={0: 1.0, 1: 2.0}))
    assert (found.status, found.passes) == ("converged", 1)
    for label, told in enumerate(found.problems):
        w = np.append(found.model.coef[label], np.broadcast_to(found.model.intercept, len(found.problems))[label])
        value = problem.value(label, w, "squared_hinge", (C, 2 * C))
        assert told["objective"] == pytest.approx(float(value), rel=1e-10)
        assert value - told["lower_bound"] <= tol * value


def test_rows_of_low_rank_on_which_coordinate_ascent_is_slow(tmp_path: Path) -> None:
    """Their costs are small, and they are not centred."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(400, 4)) @ rng.normal(size=(4, 60)) + 3.0).astype(np.float32) / np.float32(40.0)
    rows = LabelProblem(X, make_labels(1, n=400).Y).store(tmp_path / "rows")
    found = train(rows, replace(OPTIONS, C=2.0))
    assert (found.status, found.passes) == ("converged", 1)


def test_labels_whose_matrix_is_too_large_are_left_to_the_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = KINDS["more rows than features"].store(tmp_path / "rows")
    monkeypatch.setattr(setup, "MOST_FACTOR_ROWS", 20)
    monkeypatch.setattr(setup, "FACTOR_ROWS_STEP", 20)
    found = train(rows, replace(OPTIONS, C=30.0))
    assert found.status == "converged"
    assert found.passes > 1
