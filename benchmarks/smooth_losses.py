"""Squared hinge and logistic loss, compared with LIBLINEAR: reads, gap, CPU seconds. Prints a Markdown table.

    python -m benchmarks.smooth_losses --data FOLDER [--sets NAME...] [--costs C...] [--rounds N]

FOLDER holds the public sets that benchmarks/two_classes.py reads; letter26 is letter with all its classes, one against
the rest. The trainers take turns N times in this process, on one thread, and the table has medians. The files are read
beforehand. Reads are counted in a separate run with a tenth of the rows in the sample. Seconds are measured in runs
with the default sample, on arrays in memory. LIBLINEAR's tolerance is the largest power of ten at which its P is within
1e-3 of the optimum.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Logistic
from sklearn.svm import LinearSVC as Liblinear

from benchmarks.two_classes import load
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

TOL = 1e-3
SETS = ["a9a", "w8a", "ijcnn1", "phishing", "skin", "covtype", "letter26"]


def main() -> None:
    """Print a line for each set, loss and C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--costs", nargs="*", type=float, default=[0.01, 1.0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| data | loss | C | reads, a tenth resident | gap | CPU seconds | gap | LIBLINEAR's | its distance |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.sets:
        source = load_letter(options.data) if name == "letter26" else load(options.data, name)
        losses = ("squared_hinge",) if name == "letter26" else ("squared_hinge", "logistic")  # of LIBLINEAR
        for loss in losses:
            for C in options.costs:
                print(f"| {name} | {loss} | {C:g} | {compare(source, loss, C, options.rounds)} |", flush=True)


def load_letter(folder: Path) -> ArrayDataset:
    """Return the rows of all 26 letters."""
    X, y = load_svmlight_file(str(folder / "letter/letter.scale"))
    return ArrayDataset(X.toarray().astype(np.float32), (y - 1).astype(np.int32), np.arange(26))


def compare(source: ArrayDataset, loss: str, C: float, rounds: int) -> str:
    """Train by both trainers, and return the cells of a line of the table."""
    settings = TrainOptions(C=C, loss=loss, threads=1)
    few = train(source, TrainOptions(C=C, loss=loss, threads=1, resident_rows="10%"))
    best = train(source, TrainOptions(C=C, loss=loss, threads=1, tol=1e-9)).objective
    make, distance = find_tolerance(source, loss, C, best)
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, whole = measure(lambda: train(source, settings))
        ours.append(seconds)
        theirs.append(measure(lambda: make().fit(source.X, source.y))[0])
    reads = few.passes + 0.1
    cells = [f"{reads:.1f}", f"{few.relative_gap:.0e}", f"{np.median(ours):.2f}", f"{whole.relative_gap:.0e}"]
    return " | ".join([*cells, f"{np.median(theirs):.2f}", f"{distance:.0e}"])


def find_tolerance(source: ArrayDataset, loss: str, C: float, best: float) -> tuple[Callable[[], Any], float]:
    """Find the largest sufficient tolerance of LIBLINEAR.

    Return a function that makes the estimator with this tolerance, and the distance of its P from the optimum.
    """
    for exponent in range(1, 8):
        make = make_liblinear(loss, C, 10.0**-exponent)
        distance = measure_objective(source, loss, C, make().fit(source.X, source.y)) / best - 1.0
        if distance <= TOL:
            break
    return make, distance


def make_liblinear(loss: str, C: float, tol: float) -> Callable[[], Any]:
    """Return a function that makes the estimator of LIBLINEAR for the primal problem."""
    if loss == "logistic":
        return lambda: Logistic(C=C, solver="liblinear", tol=tol, max_iter=10_000)
    return lambda: Liblinear(C=C, dual=False, tol=tol, max_iter=10_000)


def measure_objective(source: ArrayDataset, loss: str, C: float, model: Any) -> float:
    """Return P of a model, summed over its problems."""
    total = 0.0
    for k in range(len(model.coef_)):
        y = np.where(source.y == (1 if len(model.coef_) == 1 else k), 1.0, -1.0)
        margins = y * (source.X @ model.coef_[k] + model.intercept_[k])
        losses = np.logaddexp(0.0, -margins) if loss == "logistic" else np.maximum(0.0, 1.0 - margins) ** 2
        total += (model.coef_[k] @ model.coef_[k] + model.intercept_[k] ** 2) / 2 + C * float(np.sum(losses))
    return total


def measure(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds that a call takes, and its result."""
    started = time.process_time()
    result = run()
    return time.process_time() - started, result


if __name__ == "__main__":
    main()
