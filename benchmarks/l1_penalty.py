"""The l1 penalty, compared with LIBLINEAR's: objectives, non-zero weights, passes and CPU seconds, as a table.

    python benchmarks/l1_penalty.py --data FOLDER [--rounds 3]

FOLDER holds adult/a9a, web/w8a, ijcnn1/ijcnn1.trn, phishing/phishing and covtype/covtype.csv (54 features divided by
their maxima, 60,000 rows, class 2 against the rest). "in memory" trains on arrays; "2,000 rows" keeps only 2,000 rows
in memory, so it makes as many passes as for data on disk. LIBLINEAR is scikit-learn's LinearSVC or LogisticRegression,
with a tolerance of 1e-4 and at most 1,000 sweeps. This script computes the objective of its model. The trainers take
turns, each on one thread.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

SETS = {"a9a": "adult/a9a", "w8a": "web/w8a", "ijcnn1": "ijcnn1/ijcnn1.trn", "phishing": "phishing/phishing"}
COSTS = (0.01, 1.0)
ROWS = (None, 2000)


def read_sets(data: Path) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the rows, and the labels (0 or 1) of each dataset."""
    for name, place in SETS.items():
        if (data / place).exists():
            X, y = load_svmlight_file(str(data / place), dtype=np.float32)
            arrays = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
            yield name, csr_matrix(arrays, shape=X.shape), (y == y.max()).astype(np.int32)
    table = np.loadtxt(data / "covtype" / "covtype.csv", delimiter=",", dtype=np.float32, skiprows=1, max_rows=60_000)
    yield "Covertype", table[:, :54] / np.maximum(table[:, :54].max(axis=0), 1), (table[:, 54] == 2).astype(np.int32)


def time_it(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds and the result of a call."""
    began = time.process_time()
    found = run()
    return time.process_time() - began, found


def measure(model: Any, X: Any, y: Any, C: float, loss: str) -> float:
    """Return P of a scikit-learn model."""
    margins = (2 * y - 1) * (X @ model.coef_[0] + model.intercept_[0])
    losses = np.maximum(0, 1 - margins) ** 2 if loss == "squared_hinge" else np.logaddexp(0, -margins)
    return float(np.abs(model.coef_).sum() + np.abs(model.intercept_).sum() + C * losses.sum())


def make_other(loss: str, C: float) -> Any:
    """Return the estimator of scikit-learn that calls LIBLINEAR."""
    if loss == "logistic":
        return LogisticRegression(l1_ratio=1.0, solver="liblinear", C=C, max_iter=1000)
    return LinearSVC(penalty="l1", dual=False, C=C, max_iter=1000)


def compare(X: Any, y: Any, loss: str, C: float, rounds: int) -> list[str]:
    """Train by both trainers, and return the cells of a problem."""
    source = ArrayDataset(X if isinstance(X, np.ndarray) else csr_array(X), y, np.array([0, 1]))
    options = TrainOptions(C=C, loss=loss, penalty="l1", threads=1, max_passes=100)
    runs: list[Callable[[], Any]] = [partial(train, source, replace(options, resident_rows=rows)) for rows in ROWS]
    runs.append(lambda: make_other(loss, C).fit(X, y))
    spent = [[time_it(run) for run in runs] for _ in range(rounds)]
    seconds = [median(each[k][0] for each in spent) for k in range(3)]
    whole, part, other = (found for _, found in spent[-1])
    return [
        f"{whole.objective:.6g}, {whole.relative_gap:.0e}, {np.count_nonzero(whole.model.coef)}, {seconds[0]:.2f}",
        f"{part.passes}, {part.relative_gap:.0e}, {seconds[1]:.2f}",
        f"{measure(other, X, y, C, loss):.6g}, {np.count_nonzero(other.coef_)}, {seconds[2]:.2f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ("data, loss, C", "in memory: P, gap, not 0, CPU s", "2,000 rows: passes, gap, CPU s")
    print(f"| {' | '.join(head)} | LIBLINEAR: P, not 0, CPU s |\n|---|---|---|---|")
    for name, X, y in read_sets(options.data):
        for loss in ("squared_hinge", "logistic"):
            for C in COSTS:
                print(f"| {name}, {loss}, {C:g} | {' | '.join(compare(X, y, loss, C, options.rounds))} |", flush=True)


if __name__ == "__main__":
    main()
