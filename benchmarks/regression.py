"""Support-vector regression, compared with LIBLINEAR: reads, gap, R2 and CPU seconds. Prints a Markdown table.

    python -m benchmarks.regression --data FOLDER [--sets NAME...] [--costs C...] [--rounds N]

FOLDER holds wine/winequality-white.csv and covtype/covtype.csv, whose first column (the elevation) is predicted from
the others; `made` has 400,000 generated rows of 50 features with heavy-tailed noise. Features and targets are
standardised. The trainers take turns N times in this process, on one thread, and the table has medians. The files are
read beforehand. Reads are counted in a separate run with a tenth of the rows in the sample. Seconds are measured in
runs with the default sample, on arrays in memory. LIBLINEAR's tolerance is the largest power of ten at which its P is
within 1e-3 of the optimum; a dash means that it is not within 1e-3 after 1,000 iterations.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVR as Liblinear

from benchmarks.smooth_losses import measure
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.models.evaluate import evaluate
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

TOL, EPSILON = 1e-3, 0.1
LOSSES = ("epsilon_insensitive", "squared_epsilon_insensitive")


def main() -> None:
    """Print a line for each set, loss and C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=["wine", "covtype", "made"])
    parser.add_argument("--costs", nargs="*", type=float, default=[0.01, 1.0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| data | loss | C | reads, a tenth resident | gap | R2 | CPU seconds | gap | LIBLINEAR's | its distance |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.sets:
        source = load(options.data, name)
        for loss in LOSSES:
            for C in options.costs:
                print(f"| {name} | {loss} | {C:g} | {compare(source, loss, C, options.rounds)} |", flush=True)


def load(folder: Path, name: str) -> ArrayDataset:
    """Return rows with targets, standardised."""
    if name == "wine":
        rows = np.loadtxt(folder / "wine/winequality-white.csv", delimiter=";", skiprows=1)
        return _standardise(rows[:, :-1], rows[:, -1])
    if name == "covtype":
        rows = np.loadtxt(folder / "covtype/covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
        return _standardise(rows[:, 1:-1].astype(np.float64), rows[:, 0].astype(np.float64))
    random = np.random.default_rng(0)
    X = random.standard_normal((400_000, 50))
    return _standardise(X, X @ random.standard_normal(50) + 3.0 * random.standard_t(2, len(X)))


def _standardise(X: npt.NDArray[Any], target: npt.NDArray[Any]) -> ArrayDataset:
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-6)
    return ArrayDataset(X.astype(np.float32), None, None, target=(target - target.mean()) / target.std())


def compare(source: ArrayDataset, loss: str, C: float, rounds: int) -> str:
    """Train by both trainers, and return the cells of a line of the table."""
    settings = {"task": "regress", "C": C, "loss": loss, "epsilon": EPSILON, "threads": 1}
    few = train(source, TrainOptions(**settings, resident_rows="10%"))
    best = train(source, TrainOptions(**settings, tol=1e-6)).objective
    tolerance, distance = find_tolerance(source, loss, C, best)
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, whole = measure(lambda: train(source, TrainOptions(**settings)))
        ours.append(seconds)
        if tolerance is not None:
            theirs.append(measure(lambda: fit_liblinear(source, loss, C, tolerance))[0])
    cells = [f"{few.passes + 0.1:.1f}", f"{few.relative_gap:.0e}", f"{evaluate(whole.model, source)['r2']:.3f}"]
    cells += [f"{np.median(ours):.2f}", f"{whole.relative_gap:.0e}"]
    return " | ".join([*cells, f"{np.median(theirs):.2f}" if theirs else "-", f"{distance:.0e}"])


def find_tolerance(source: ArrayDataset, loss: str, C: float, best: float) -> tuple[float | None, float]:
    """Return the largest sufficient tolerance of LIBLINEAR, or None, and the distance of its P from the optimum."""
    for exponent in range(1, 5):
        model = fit_liblinear(source, loss, C, 10.0**-exponent)
        distance = measure_objective(source, loss, C, model) / best - 1.0
        if distance <= TOL:
            return 10.0**-exponent, distance
    return None, distance


def fit_liblinear(source: ArrayDataset, loss: str, C: float, tol: float) -> Liblinear:
    """Return LIBLINEAR's model: by the dual method for the first loss, and by the primal method for the second."""
    dual = loss == LOSSES[0]
    return Liblinear(C=C, epsilon=EPSILON, loss=loss, dual=dual, tol=tol).fit(source.X, source.target)


def measure_objective(source: ArrayDataset, loss: str, C: float, model: Any) -> float:
    """Return P of a model."""
    w, b = model.coef_, float(model.intercept_[0])
    outside = np.maximum(0.0, np.abs(source.target - (source.X @ w + b)) - EPSILON)
    return float(w @ w + b**2) / 2 + C * float(np.sum(outside if loss == LOSSES[0] else outside**2))


if __name__ == "__main__":
    main()
