"""One-class SVM with the Gaussian kernel, compared with LIBSVM. Prints a Markdown table.

    python -m benchmarks.one_class --data FOLDER [--rows 10000] [--rounds 1]
    python -m benchmarks.one_class --out-of-core FOLDER [--rows 210000]

FOLDER holds covtype/covtype.csv and mnist/*-ubyte. From Covertype, rows of the second cover type are drawn and
standardised; from MNIST, all images of the digit 1 are used. gamma is 1 over the number of features (0.01 for mnist),
and tol is 1e-3. The objective is 1/2 |w|^2. The heads of the columns of passes give the share of the rows that is in
memory. Seconds are CPU seconds on one thread, medians of the rounds, with all rows in memory. "false alarms": the share
of held-out rows of the class that the model calls novel. "detected": the share of rows of other classes that it calls
novel. The last column is the objective of LIBSVM, with its default tolerance, divided by the lower bound that streamsvm
proved.

With --out-of-core, rows of 4,096 features are generated in FOLDER. Each row is a linear function of 5 numbers. The rows
are eight times as large as the memory budget, and are removed at the end. A separate process trains on them, and its
memory peak is printed.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.svm import OneClassSVM as Libsvm

from benchmarks.smooth_losses import measure
from benchmarks.wide_rows import run_out_of_core
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

Split = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]


def main() -> None:
    """Print a line for each dataset, nu and solver, or the line of the out-of-core run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out-of-core", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    if given.out_of_core:
        arguments = ["--task", "one-class", "--kernel", "rbf", "--gamma", "0.1", "--nu", "0.0005"]
        run_out_of_core(given.out_of_core / "one_class", given.rows or 210_000, arguments)
        return
    print(
        "| data | nu | solver | passes, 50% | 20% | support vectors | objective | lower bound | gap | CPU s "
        "| LIBSVM's CPU s | false alarms | detected | its objective / our bound |"
    )
    print("|" + "---|" * 14)
    for name, load, gamma in (("covtype", load_covtype, 1 / 54), ("mnist", load_ones, 0.01)):
        split = load(given.data, given.rows or 10_000)
        for nu in (0.01, 0.1, 0.5):
            for solver in ("smo", "irwls"):
                print(f"| {name} | {nu:g} | {solver} | {compare(split, nu, gamma, solver, given.rounds)} |", flush=True)


def load_covtype(folder: Path, n_rows: int) -> Split:
    """Return training rows and held-out rows of the second cover type, and rows of other types."""
    cells = np.loadtxt(folder / "covtype/covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    cells = cells[np.random.default_rng(0).permutation(len(cells))]
    X, is_of_class = cells[:, :-1], cells[:, -1] == 2
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-6)
    own = X[is_of_class]
    return own[:n_rows], own[n_rows : 2 * n_rows], X[~is_of_class][:n_rows]


def load_ones(folder: Path, n_rows: int) -> Split:
    """Return the training and test images of the digit 1, and images of other digits."""
    parts = []
    for name in ("train", "t10k"):
        X = np.fromfile(folder / f"mnist/{name}-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
        y = np.fromfile(folder / f"mnist/{name}-labels-idx1-ubyte", np.uint8, offset=8)
        parts.append(((X / np.float32(255)).astype(np.float32), y))
    (X, y), (X_test, y_test) = parts
    return X[y == 1], X_test[y_test == 1], X_test[y_test != 1]


def compare(split: Split, nu: float, gamma: float, solver: str, rounds: int) -> str:
    """Train by us and by LIBSVM, and return the cells of a line of the table."""
    X, held_out, novel = split
    source = ArrayDataset(X, None, None)
    options: dict[str, Any] = {"task": "one-class", "solver": solver, "kernel": "rbf", "gamma": gamma, "nu": nu}
    few = [train(source, TrainOptions(**options, threads=1, resident_rows=share)) for share in ("50%", "20%")]
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, whole = measure(lambda: train(source, TrainOptions(**options, threads=1, resident_rows="100%")))
        ours.append(seconds)
        other = Libsvm(nu=nu, gamma=gamma, cache_size=1000)
        theirs.append(measure(partial(other.fit, X))[0])
    bound = whole.lower_bound or 0.0
    least = float(other.dual_coef_[0] @ other.score_samples(other.support_vectors_)) / 2
    rates = [np.mean(whole.model.decide(rows) <= 0.0) for rows in (held_out, novel)]
    cells = [*(str(run.passes) for run in few), f"{whole.n_support_vectors:,}", f"{whole.objective:.6g}"]
    cells += [f"{bound:.6g}", f"{whole.relative_gap or 0.0:.0e}", f"{np.median(ours):.2f}", f"{np.median(theirs):.2f}"]
    return " | ".join([*cells, *(f"{rate:.3f}" for rate in rates), f"{least / bound:.6f}"])


if __name__ == "__main__":
    main()
