"""The optimum of softmax is scikit-learn's, its certificate is never false, and a resumed run gives the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up
from streamsvm.verify.verify import verify
from tests.class_problems import ClassProblem, make_classes, read_weights
from tests.conftest import F64
from tests.linear_problems import run_steps

OPTIONS = TrainOptions(task="multinomial", threads=1, tol=1e-6)


def primal(problem: ClassProblem, costs: F64, W: F64, bias_feature: float = 1.0) -> float:
    """P(W) in long double."""
    wide, every = np.longdouble, np.arange(len(problem.y))
    X = np.column_stack((problem.X, np.full(len(every), bias_feature))).astype(wide)
    scores = X @ W.astype(wide).T
    scores -= scores.max(axis=1, keepdims=True)
    losses = np.log(np.sum(np.exp(scores), axis=1)) - scores[every, problem.y]
    return float(np.sum(W.astype(wide) ** 2) / 2 + costs.astype(wide) @ losses)


def solve_by_scikit_learn(problem: ClassProblem, costs: F64) -> float:
    """P at the optimum that scikit-learn finds. Its penalty of the one weight vector of two classes is halved."""
    X = np.column_stack((problem.X, np.ones(len(problem.y))))
    C = 2.0 if problem.n_classes == 2 else 1.0
    model = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10_000)
    coef = model.fit(X, problem.y, sample_weight=costs).coef_
    return primal(problem, costs, coef if len(coef) > 1 else np.concatenate((-coef, coef)) / 2)


CASES: list[tuple[int, dict[str, Any], float, dict[str, Any]]] = [
    (1, {"n": 300, "n_classes": 3}, 1.0, {}),
    (2, {"n": 300, "n_classes": 3, "weighted": True}, 0.1, {}),
    (3, {"n": 500, "d": 8, "n_classes": 5, "density": 0.3}, 10.0, {}),
    (4, {"n": 2000, "d": 5, "n_classes": 4}, 1.0, {"resident_rows": "20%"}),
    (5, {"n": 2000, "d": 6, "n_classes": 3, "weighted": True, "density": 0.5}, 0.01, {"resident_rows": 150}),
]


@pytest.mark.parametrize(("seed", "about", "C", "own"), CASES)
def test_the_optimum_is_that_of_scikit_learn(seed: int, about: dict[str, Any], C: float, own: dict[str, Any]) -> None:
    problem = make_classes(seed, **about)
    costs = problem.costs(C)
    known = solve_by_scikit_learn(problem, costs)
    source = problem.in_memory()
    result = train(source, replace(OPTIONS, C=C, **own))
    assert result.status == "converged"
    P = primal(problem, costs, read_weights(result.model))
    assert pytest.approx(result.objective, rel=1e-12) == P
    assert (1 + 1e-6) * known >= P
    assert result.lower_bound <= known
    checked = verify(result.model, source, dual=True)
    assert checked.agrees
    assert P - 1e-4 * P <= checked.lower_bound <= known


def test_gone_on_from_any_state_to_the_same_bits() -> None:
    source = make_classes(6, n=3000, d=8, n_classes=4).in_memory()
    solver = set_up(source, replace(OPTIONS, resident_rows="10%"))
    steps = run_steps(source, solver.solve(solver.start()))
    assert len(steps) > 2
    for step in steps[:-1]:
        after = run_steps(source, solver.solve(step.state))[-1].state
        assert np.array_equal(after.best_w, steps[-1].state.best_w)
        assert after.lower_bound == steps[-1].state.lower_bound
