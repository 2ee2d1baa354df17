"""A solver holds no more rows than the memory limit leaves room for: what fits a lower limit also fits a higher one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.open import REMEDY, Planner
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.solvers.set_up import set_up
from streamsvm.system.errors import MemoryBudgetError
from tests.conftest import run_python

CASES: dict[str, dict[str, Any]] = {
    "hinge": {},
    "one read": {"options": {"acceleration": "one-read"}},
    "block ascent": {"options": {"acceleration": "block-ascent"}},
    "logistic": {"loss": "logistic"},
    "sparse weights": {"loss": "logistic", "penalty": "l1"},
    "squared hinge": {"loss": "squared_hinge"},
    "tube": {"task": "regress", "loss": "epsilon_insensitive"},
    "ranking": {"task": "roc-area"},
    "one class": {"task": "one-class"},
    "classes": {"task": "crammer-singer"},
    "softmax": {"task": "multinomial"},
    "softmax, float64": {"task": "multinomial", "tol": 1e-6},
    "kernel": {"kernel": "rbf", "gamma": 0.1},
    "budgeted SGD": {"solver": "budgeted-sgd", "kernel": "rbf", "gamma": 0.1},
}
MIB = 1 << 20
HOLDS_DATA = """
import warnings
import numpy as np
from streamsvm import LinearSVC, LogisticRegression
from streamsvm.system.machine import peak_bytes
warnings.simplefilter("ignore")
X, y = np.random.default_rng(0).standard_normal((600_000, 60), np.float32), np.arange(600_000) % 30
for estimator in (LogisticRegression, LinearSVC):
    estimator(memory="800MB", max_iter=1, max_seconds=20).fit(X, y)
print(peak_bytes())
"""
LIMITS = [round(280 * MIB * 1.2**k) for k in range(12)]
SHAPES = [(6, 3, 1.0), (6, 40, 1.0), (300, 3, 1.0), (300, 40, 0.1)]


def make_source(case: str, d: int, n_classes: int, density: float) -> ArrayDataset:
    """Rows of zeros, or sparse rows of ones, of 48 MiB if they were dense."""
    problem, n = find_problem(CASES[case].get("task", "classify")), round(12 * MIB / d)
    X: Any = np.zeros((n, d), np.float32)
    if density < 1.0:
        each = round(density * d)
        indices, starts = np.tile(np.arange(each), n), each * np.arange(n + 1)
        X = csr_array((np.ones(n * each, np.float32), indices, starts), (n, d))
    n_classes = n_classes if problem.name in ("classify", "crammer-singer", "multinomial") else 2
    y = (np.arange(n) % n_classes).astype(np.int32)
    if not problem.has_classes:
        return ArrayDataset(X, None, None, target=y.astype(np.float64))
    return ArrayDataset(X, y, np.arange(n_classes))


@pytest.mark.parametrize(
    ("case", "d", "n_classes", "density"),
    [(case, *shape) for case in CASES for shape in SHAPES if case != "kernel" or shape[1] == 3],
)
def test_what_fits_a_lower_limit_fits_a_higher_one(
    case: str, d: int, n_classes: int, density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, fits = make_source(case, d, n_classes, density), []
    monkeypatch.setattr("streamsvm.engines.open.resident_bytes", lambda: 200 * MIB + source.nbytes)
    for limit in LIMITS:
        solver = set_up(source, TrainOptions(**CASES[case], memory_bytes=limit))
        planner = Planner(source, solver.memory, limit, REMEDY)
        try:
            planner.open_threads(None)[0].close()
            fits.append(case == "kernel" or planner.plan_driver(2).refusal is None)  # the driver of a cluster
        except MemoryBudgetError:
            fits.append(False)
    assert fits == sorted(fits)
    assert fits[-1]


@pytest.mark.slow("trains on 144 MB")
def test_a_process_with_data_of_its_own_holds_fewer_rows() -> None:
    done = run_python(HOLDS_DATA)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 800_000_000
