"""Support-vector regression with the Gaussian kernel, compared with LIBSVM. Prints a Markdown table.

    python -m benchmarks.kernel_regression --data FOLDER [--rows 10000] [--rounds 1]
    python -m benchmarks.kernel_regression --out-of-core FOLDER [--rows 210000]

FOLDER holds wine/winequality-white.csv and covtype/covtype.csv (the elevation is predicted). From each file, --rows
rows are drawn at random and standardised; gamma is 1 over the number of features, epsilon is 0.1, and tol is 1e-3. The
heads of the columns of passes give the share of the rows that is in memory. Seconds are CPU seconds on one thread,
medians of the rounds, with all rows in memory. The last column is the P of LIBSVM, with its default tolerance, divided
by the lower bound that streamsvm proved.

With --out-of-core, rows of 4,096 features are generated in FOLDER. Each row is a linear function of 5 numbers, and the
first of these numbers is the target. The rows are eight times as large as the memory budget, and are removed at the
end.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVR as Libsvm  # noqa: N811

from benchmarks.regression import EPSILON, load
from benchmarks.smooth_losses import measure
from benchmarks.wide_rows import run_out_of_core
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train


def main() -> None:
    """Print a line for each dataset, C and solver, or the line of the out-of-core run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out-of-core", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    if given.out_of_core:
        arguments = ["--task", "regress", "--kernel", "rbf", "--gamma", "0.1", "--epsilon", "0.3"]
        run_out_of_core(given.out_of_core / "regression", given.rows or 210_000, arguments, has_target=True)
        return
    print("| data | C | solver | passes, 50% | 20% | support vectors | CPU s | gap | LIBSVM's CPU s | its P / our D |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in ("wine", "covtype"):
        source = _take(load(given.data, name), given.rows or 10_000)
        for C in (0.1, 1.0):
            for solver in ("smo", "irwls"):
                cells = compare(source, C, solver, given.rounds)
                print(f"| {name} | {C:g} | {solver} | {cells} |", flush=True)


def _take(source: ArrayDataset, n_rows: int) -> ArrayDataset:
    rows = np.random.default_rng(0).permutation(source.n_rows)[:n_rows]
    assert source.target is not None
    return ArrayDataset(source.X[rows], None, None, target=source.target[rows])


def compare(source: ArrayDataset, C: float, solver: str, rounds: int) -> str:
    """Train by us and by LIBSVM, and return the cells of a line of the table."""
    gamma = 1.0 / source.n_features
    options: dict[str, Any] = {
        "task": "regress",
        "solver": solver,
        "kernel": "rbf",
        "gamma": gamma,
        "C": C,
        "epsilon": EPSILON,
    }
    few = [train(source, TrainOptions(**options, threads=1, resident_rows=share)) for share in ("50%", "20%")]
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, whole = measure(lambda: train(source, TrainOptions(**options, threads=1, resident_rows="100%")))
        ours.append(seconds)
        other = Libsvm(C=C, gamma=gamma, epsilon=EPSILON, cache_size=1000)
        theirs.append(measure(partial(other.fit, source.X, source.target))[0])
    assert whole.lower_bound is not None
    share = measure_objective(source, other, gamma) / whole.lower_bound
    cells = [*(str(run.passes) for run in few), f"{whole.n_support_vectors:,}", f"{np.median(ours):.2f}"]
    return " | ".join([*cells, f"{whole.relative_gap or 0.0:.0e}", f"{np.median(theirs):.2f}", f"{share:.6f}"])


def measure_objective(source: ArrayDataset, model: Libsvm, gamma: float) -> float:
    """Return the P of LIBSVM's model. The kernel values of all its support vectors are in memory at once."""
    s = model.dual_coef_[0]
    assert source.target is not None
    outside = np.maximum(0.0, np.abs(source.target - model.predict(source.X)) - EPSILON)
    K = rbf_kernel(model.support_vectors_, gamma=gamma)
    return float(s @ K @ s / 2 + model.C * np.sum(outside))


if __name__ == "__main__":
    main()
