"""The gap after each read of the data, for trainers that prove a gap and for trainers that prove nothing.

A curve of streamsvm is one training from a dataset on the disk, with only the resident rows in memory. Its points are
the bytes read so far (including the sample and single rows), and the proved gap (P - D) / P. A curve of another trainer
shows the distance (P - D*) / D* of its model from the optimum, where D* is the highest lower bound that streamsvm has
proved; the trainer itself computes neither P nor D*. An epoch, or an iteration of LIBLINEAR over all rows, counts as
one read, although LIBLINEAR reads fewer rows if it shrinks the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

import streamsvm
from pipelines.compare.linear_trainers import add_one, split_bias
from pipelines.compare.objectives import evaluate
from pipelines.compare.problems import Part, Problem, count_bytes
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.runs.train import Training, open_for
from streamsvm.solvers.set_up import set_up

TOL = 1e-6
CHUNKS = 64  # the number of chunks of a dataset, large enough that small data are read like large data
THREADS = 2
Model = dict[str, Any]


@dataclass(frozen=True)
class Proof:
    """A configuration of streamsvm's cutting planes: acceleration, resident rows, and the maximum number of passes."""

    name: str
    acceleration: str
    resident: str | None = None
    most_passes: int = 200


@dataclass(frozen=True)
class Descent:
    """A trainer that proves nothing: fit(problem, rows, reads) trains from scratch for this number of reads."""

    name: str
    fit: Callable[[Problem, Part, int], Model]
    reads: tuple[int, ...]


@dataclass(frozen=True)
class Curve:
    """Numbers of reads of the data, and after each the proved gap or the (unproved) distance from the optimum."""

    name: str
    is_proved: bool
    reads: tuple[float, ...]
    gaps: tuple[float, ...]

    def reach(self, gap: float) -> float | None:
        """Return the number of reads after which the gap stays at most `gap`; None if there is no such number."""
        found = None
        for read, own in zip(reversed(self.reads), reversed(self.gaps), strict=True):
            if own > gap:
                break
            found = read
        return found


def store(rows: Part, path: Path) -> Dataset:
    """Store the rows as a shuffled dataset."""
    X, y = rows
    return streamsvm.ingest(X, path, y, shuffle=0, chunk_bytes=max(1, count_bytes(X) // CHUNKS))


def prove(way: Proof, problem: Problem, data: Dataset) -> tuple[Curve, float]:
    """Train without chunks in memory; return the curve of the gap, and the lower bound."""
    options = TrainOptions(
        C=problem.C,
        tol=TOL,
        threads=THREADS,
        max_passes=way.most_passes,
        resident_rows=way.resident,
        options={"acceleration": way.acceleration},
    )
    fit = set_up(data, options)
    with one_blas_thread(), open_for(data, options, [[fit]], None) as (engine, plan):
        assert isinstance(engine, ThreadedEngine)
        engine.pin_bytes = 0
        result = Training(data, options, fit, engine, plan, None, lambda _: None).carry_out()
    assert result.lower_bound is not None
    points = [(line["read_bytes"] / data.nbytes, line["relative_gap"]) for line in result.history]
    reads, gaps = zip(*points, strict=True)
    return Curve(way.name, True, reads, gaps), result.lower_bound


def descend(way: Descent, problem: Problem, rows: Part, lower_bound: float) -> Curve:
    """Train anew for each number of reads; return the curve of the distance from the optimum."""
    X, y = rows
    gaps = []
    for n in way.reads:
        objective = evaluate(problem, way.fit(problem, rows, n), X, y, (X[:1], y[:1])).objective
        gaps.append(objective / lower_bound - 1)
    return Curve(way.name, False, tuple(map(float, way.reads)), tuple(gaps))


def compute_curves(
    problem: Problem, rows: Part, path: Path, proofs: Sequence[Proof], descents: Sequence[Descent]
) -> list[Curve]:
    """Return the curves of all trainers; the dataset is written to a path."""
    data = store(rows, path)
    proved = [prove(way, problem, data) for way in proofs]
    lower_bound = max(bound for _, bound in proved)
    return [curve for curve, _ in proved] + [descend(way, problem, rows, lower_bound) for way in descents]


def fit_liblinear(problem: Problem, rows: Part, iterations: int) -> Model:
    """Run this number of iterations of LIBLINEAR's dual coordinate descent.

    Longer runs begin with the steps of shorter ones.
    """
    model = LinearSVC(loss="hinge", C=problem.C, tol=1e-9, max_iter=iterations, random_state=0)
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)  # the run is stopped on purpose before it converges
        model.fit(*rows)
    return {"w": model.coef_, "b": model.intercept_[0]}


def fit_sgd(problem: Problem, rows: Part, epochs: int) -> Model:
    """Run this number of epochs of averaged stochastic gradients, with a penalised bias."""
    X, y = rows
    alpha = 1 / (problem.C * len(y))
    model = SGDClassifier(
        "hinge", alpha=alpha, fit_intercept=False, max_iter=epochs, tol=None, average=True, random_state=0
    )
    model.fit(add_one(X), y)
    return split_bias(model.coef_)
