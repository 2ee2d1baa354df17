"""Linear one-class SVM by cutting planes, by SMO, and by scikit-learn's SGDOneClassSVM. Prints a Markdown table.

    python -m benchmarks.linear_one_class --data FOLDER [--names a9a skin covtype] [--nus 0.01 0.1 0.5]

FOLDER holds the unpacked data. Labels are not used. streamsvm reads the rows from a dataset on disk, and tol is 1e-3.
SGDOneClassSVM gets the rows in memory, and has its default settings. Seconds are CPU seconds on one thread. The last
column is the distance of SGD's objective, nu/2 |w|^2 - nu rho + mean max(0, rho - w.x), from the lower bound of
streamsvm, divided by this bound.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.linear_model import SGDOneClassSVM

from benchmarks.two_classes import load
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train


def measure(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and its CPU seconds."""
    began = time.process_time()
    found = run()
    return found, time.process_time() - began


def compare(source: Any, rows: Dataset, nu: float) -> str:
    """Return the cells of a line."""
    options: dict[str, Any] = {"task": "one-class", "kernel": "linear", "nu": nu, "threads": 1}
    cells = []
    for solver in ("cutting-plane", "smo"):
        found, seconds = measure(partial(train, rows, TrainOptions(solver=solver, **options)))
        cells += [str(found.passes), f"{found.relative_gap:.0e}", f"{seconds:.2f}"]
        if solver == "cutting-plane":
            bound = -found.objective / (nu * rows.n_rows**2)  # of SGD's objective; ours is the dual's
    theirs, seconds = measure(partial(SGDOneClassSVM(nu=nu, random_state=0).fit, source.X))
    rho = float(theirs.offset_[0])
    loss = float(np.mean(np.maximum(0.0, rho - theirs.score_samples(source.X))))
    value = nu / 2 * float(theirs.coef_ @ theirs.coef_) - nu * rho + loss
    return " | ".join([*cells, f"{seconds:.2f}", f"{(value - bound) / abs(bound):+.1e}"])


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="+", default=["a9a", "skin", "covtype"])
    parser.add_argument("--nus", nargs="+", type=float, default=[0.01, 0.1, 0.5])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | nu | reads | gap | CPU s | reads of smo | its gap | its CPU s | SGD's CPU s | SGD's objective |")
    print("|" + "---|" * 10)
    for name in given.names:
        source = load(given.data, name)
        with TemporaryDirectory() as place:
            rows = ingest(source.X, f"{place}/rows.zarr")
            for nu in given.nus:
                print(f"| {name} | {nu:g} | {compare(source, rows, nu)} |", flush=True)


if __name__ == "__main__":
    main()
