"""Training of qaadan_glasmachers_2018: the exact SVM, one epoch within a budget, and the time of merging.

Each training is one epoch on one thread, and times are CPU seconds. Each seed gives another order of the rows. The time
of merging is not measured within the epoch. Instead, one budget maintenance is timed repeatedly on the trained model,
and its seconds are multiplied by the number of maintenances.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from pipelines.data import to_scipy
from pipelines.papers.qaadan_glasmachers_2018.problems import PROBLEMS, Problem, Split
from pipelines.papers.qaadan_glasmachers_2018.results import Measured, Run
from streamsvm import SVC
from streamsvm.kernels.kernel import add_kernel_sums
from streamsvm.numeric.rows import F32, CsrRows
from streamsvm.solvers.budgeted_sgd.maintenance import (
    MAINTAINED,
    VECTORS,
    BudgetRules,
    BudgetState,
    build_table,
    keep_budget,
    make_state,
    read_model,
)
from streamsvm.solvers.budgeted_sgd.solver import Maintenance, learn_rows, make_rules

REPEATS = 200


def solve_exactly(problem: Problem, split: Split) -> tuple[float, int]:
    """Return the accuracy of the exact SVM in per cent, and its number of support vectors."""
    model = SVC(C=problem.C, gamma=problem.gamma, n_jobs=1).fit(to_scipy(split.X), split.y)
    return 100.0 * float(model.score(to_scipy(split.X_test), split.y_test)), model.dual_coef_.shape[1]


def measure(
    problem: Problem, split: Split, budget: int, merge: int, seeds: range, maintenance: Maintenance = "merge"
) -> Measured:
    """Train for one epoch with each seed."""
    return Measured([train_once(problem, split, budget, merge, seed, maintenance) for seed in seeds])


def train_once(problem: Problem, split: Split, budget: int, merge: int, seed: int, maintenance: Maintenance) -> Run:
    """Train for one epoch; return the accuracy, the CPU seconds, and the CPU seconds of merging."""
    n = len(split.y)
    rules = make_rules(problem.kernel, budget, merge, maintenance, regularisation=1 / (n * problem.C), period=n)
    state, order = make_state(split.n_features, budget), np.random.default_rng(seed).permutation(n)
    cost = np.ones(n)
    start = time.process_time()
    learn_rows(state, rules, split.X, split.y, cost, order)
    seconds = time.process_time() - start
    vectors, coef, bias = read_model(state)
    scores = np.full(len(split.y_test), bias)
    columns = from_dense(vectors) if isinstance(split.X, CsrRows) else vectors
    add_kernel_sums(problem.kernel, split.X_test, columns, coef, scores)
    accuracy = 100.0 * float(np.mean(np.where(scores > 0, 1.0, -1.0) == split.y_test))
    return Run(accuracy, seconds, int(state.counts[MAINTAINED]) * time_maintenance(state, rules))


def from_dense(vectors: F32) -> CsrRows:
    """Return dense rows as sparse rows."""
    X = csr_array(vectors)
    return CsrRows(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64), X.shape[1])


def time_maintenance(state: BudgetState, rules: BudgetRules) -> float:
    """Return the CPU seconds of one maintenance of a full model."""
    if state.counts[MAINTAINED] == 0:
        return 0.0
    model = BudgetState._make(part.copy() for part in state)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        maintain_often(model, rules, build_table(), REPEATS)
        seconds.append((time.process_time() - start) / REPEATS)
    return median(seconds)


@njit
def maintain_often(state: BudgetState, rules: BudgetRules, table: F32, repeats: int) -> None:
    """Reduce a model to its budget repeatedly.

    Before each repetition, the freed places count as newly added vectors.
    """
    no_rows = np.empty((0, state.alpha.size), np.float32)
    for _ in range(repeats):
        state.counts[VECTORS] = rules.budget + 1
        keep_budget(state, rules, table, no_rows)


def warm_up() -> None:
    """Compile the functions that the trainings use."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)).astype(np.float32), rng.choice([-1.0, 1.0], 60)
    for rows in (X, from_dense(X)):
        split = Split(rows, y, rows, y)
        for maintenance in ("merge", "gradient-merge"):
            train_once(replace(PROBLEMS[0], gamma=1.0), split, 10, 3, 0, maintenance)
