"""One training: by Algorithm 1 or 2, by a variant of these with a line search, or by LIBSVM or LIBLINEAR."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC, LinearSVC

from pipelines.papers.joachims_2006.problems import Codes, Matrix, Problem, Split
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

EPSILON = 1e-3
MOST_ITERATIONS = 2000
LIGHT_STEPS = 2_000_000  # LIBSVM ends after this number of steps
SHORT = 0.1  # a training of fewer seconds is timed three times
T = TypeVar("T")


class Method(NamedTuple):
    """A method, as options of `train`."""

    task: str
    acceleration: str


ALGORITHM_1, ALGORITHM_2 = Method("classify", "none"), Method("roc-area", "none")
SEARCH_1, SEARCH_2 = Method("classify", "line-search"), Method("roc-area", "line-search")


@dataclass(frozen=True)
class Run:
    """A training by streamsvm.

    Attributes
    ----------
    seconds : float
        CPU seconds.
    objective, lower_bound : float
        P at the best point, and the value of the master problem, which is the paper's objective.
    performance, area : float
        Accuracy or break-even point on the test rows, and the area under their ROC curve, in per cent.
    """

    n_rows: int
    seconds: float
    iterations: int
    passes: int
    objective: float
    lower_bound: float
    converged: bool
    performance: float
    area: float


@dataclass(frozen=True)
class Peer:
    """A training by LIBSVM or LIBLINEAR: CPU seconds; for LIBLINEAR also P (with a penalised bias) and performance."""

    n_rows: int
    seconds: float
    converged: bool
    objective: float | None = None
    performance: float | None = None


@dataclass
class Trainer:
    """A trainer that remembers its runs, and runs only once for the same arguments."""

    found: dict[tuple[str, Method, int, float, float], Run]

    def run(self, split: Split, method: Method, n: int | None = None, C: float = 0.0, epsilon: float = EPSILON) -> Run:
        """Train on the first n rows. C: the cost as in the paper; 0 stands for the C of the problem."""
        n = min(n or len(split.y), len(split.y))
        C = C or split.problem.C
        key = split.problem.name, method, n, C, epsilon
        if key not in self.found:
            self.found[key] = train_once(split, method, n, C, epsilon)
        return self.found[key]


def train_once(split: Split, method: Method, n: int, C: float, epsilon: float) -> Run:
    """Train. The C of streamsvm is C / n. A ranking makes two passes in an iteration."""
    options = TrainOptions(
        C=C / n,
        threads=1,
        task=method.task,
        max_passes=MOST_ITERATIONS * (1 if method.task == "classify" else 2),
        options={"acceleration": method.acceleration, "epsilon": str(epsilon)},
    )
    rows = split.first(n)
    seconds, result = measure(lambda: train(rows, options))
    assert isinstance(result.model, LinearModel)
    assert result.lower_bound is not None
    scores = score(split.X_test, result.model.coef, result.model.intercept)
    return Run(
        n,
        seconds,
        result.steps,
        result.passes,
        result.objective,
        result.lower_bound,
        result.finished,
        tell_performance(split.problem, scores, split.y_test),
        100 * float(roc_auc_score(split.y_test, scores)),
    )


def measure(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds and the result of some work. For short work, the seconds are the median of three calls."""
    spent: list[float] = []
    while not spent or (spent[0] < SHORT and len(spent) < 3):
        began = time.process_time()
        found = work()
        spent.append(time.process_time() - began)
    return median(spent), found


def score(X: Matrix, coef: F64, intercept: float | F64) -> F64:
    """Return the decision values."""
    return np.asarray(X @ coef.ravel() + intercept, np.float64)


def tell_performance(problem: Problem, scores: F64, y: Codes) -> float:
    """Return the performance in per cent: the accuracy or, for some problems, the break-even point of precision and
    recall. The break-even point is the precision among the n rows with the highest scores, where n is the number of
    positive rows.
    """
    if problem.by_break_even:
        return 100 * float(y[np.argsort(-scores, kind="stable")[: y.sum()]].mean())
    return 100 * float(((scores > 0) == y).mean())


def fit_libsvm(split: Split, n: int, C: float) -> Peer:
    """Train LIBSVM, in place of SVMlight, with a free bias and tol 1e-3."""
    model = SVC(kernel="linear", C=C / n, tol=EPSILON, cache_size=500, max_iter=LIGHT_STEPS)
    return Peer(n, *fit(model, split.X[:n], split.y[:n]))


def fit_liblinear(split: Split, n: int, C: float, tol: float = 0.1) -> Peer:
    """Train LIBLINEAR (-s 3), and compute P from its weights."""
    model = LinearSVC(loss="hinge", C=C / n, tol=tol, intercept_scaling=1.0, random_state=0)
    seconds, ended = fit(model, split.X[:n], split.y[:n])
    losses = np.maximum(0, 1 - (2.0 * split.y[:n] - 1) * score(split.X[:n], model.coef_, model.intercept_))
    square = float((model.coef_**2).sum() + (model.intercept_**2).sum())
    performance = tell_performance(split.problem, score(split.X_test, model.coef_, model.intercept_), split.y_test)
    return Peer(n, seconds, ended, square / 2 + C / n * float(losses.sum()), performance)


def fit(model: SVC | LinearSVC, X: Matrix, y: Codes | F64) -> tuple[float, bool]:
    """Return the CPU seconds of a fit, and whether it has converged."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        began = time.process_time()
        model.fit(X, y)
        return time.process_time() - began, not said


def fit_pairs(split: Split, n: int, C: float) -> Peer:
    """Classify all pairs of rows by LIBLINEAR (tol 1e-3): the paper's OP4.

    Algorithm 2 solves it without forming pairs.
    """
    X, y = csr_array(split.X[:n]), split.y[:n]
    began = time.process_time()
    i, j = (grid.ravel() for grid in np.meshgrid(np.flatnonzero(y == 1), np.flatnonzero(y == 0), indexing="ij"))
    sides = np.where(np.arange(len(i)) % 2, -1.0, 1.0)  # LIBLINEAR requires two classes
    differences = csr_array((X[i] - X[j]) * sides[:, None])
    model = LinearSVC(loss="hinge", C=C / len(i), tol=1e-3, fit_intercept=False, max_iter=5000, random_state=0)
    _, ended = fit(model, differences, sides)
    seconds = time.process_time() - began
    losses = np.maximum(0, 1 - sides * score(differences, model.coef_, 0.0))
    return Peer(n, seconds, ended, float((model.coef_**2).sum()) / 2 + C * float(losses.mean()))
