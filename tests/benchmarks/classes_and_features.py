"""Squared hinge with several classes and many dense features: three ways to train it, beside scikit-learn's LinearSVC.

    python -m tests.benchmarks.classes_and_features [--rows 10000] [--classes 3,10,26] [--features 100,500,1000,1500]
        [--memory 8GB,700MB] [--without-theirs]

"classes" is Newton's method for each class, "curvatures" and "products" are the two ways of the method for all labels
(streamsvm.methods.label_newton), and "chosen" is what streamsvm chooses. Each is trained from disk in a process of its
own, with each memory: of the larger one the rows stay in memory after the first read. A cell has CPU seconds, those of
the start of Python included, and reads of all rows.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm import LinearSVC
from streamsvm.errors import MemoryBudgetError
from streamsvm.methods import set_up
from streamsvm.methods.label_newton import setup
from streamsvm.methods.method import Method
from streamsvm.methods.registry import find_method

WAYS = ("classes", "curvatures", "products", "chosen")
UNLIMITED = 1 << 60


def make_rows(n: int, d: int, n_classes: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return rows of length 1 whose directions have different variances, as embeddings have, and their classes."""
    rng = np.random.default_rng(0)
    y, centres = rng.integers(0, n_classes, n), 0.6 * d**-0.25 * rng.normal(size=(n_classes, d))
    X = (centres[y] + rng.normal(size=(n, d))) / np.sqrt(1.0 + np.arange(d) / 10.0)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def choose(way: str) -> None:
    """Let streamsvm train in this way."""

    def find(method: Method, *_: object) -> Method:
        return method if way == "classes" else find_method(method.name, ("labels",))

    if way != "chosen":
        set_up.choose_for_many = find
        setup.MOST_WEIGHTS = 0 if way == "products" else UNLIMITED


def train(path: str, way: str, memory: str) -> None:
    """Train in this process, and print a cell of the table."""
    choose(way)
    try:
        model = LinearSVC(loss="squared_hinge", memory=memory).fit(path)
    except MemoryBudgetError as error:
        print("needs " + str(error).partition(" of memory")[0])
        return
    spent, ended = resource.getrusage(resource.RUSAGE_SELF), "" if model.status_ == "converged" else model.status_
    print(f"{spent.ru_utime + spent.ru_stime:.1f} s, {model.n_passes_} {ended}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--classes", default="3,10,26")
    parser.add_argument("--features", default="100,500,1000,1500")
    parser.add_argument("--memory", default="8GB,700MB")
    parser.add_argument("--without-theirs", action="store_true")
    parser.add_argument("--train", nargs=3, metavar=("DATASET", "WAY", "MEMORY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(*given.train)
        return
    print(f"| memory | classes | features | {' | '.join(WAYS)} | LIBLINEAR |\n" + "|---" * (4 + len(WAYS)) + "|")
    for n_classes in map(int, given.classes.split(",")):
        for d in map(int, given.features.split(",")):
            X, y = make_rows(given.rows, d, n_classes)
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs = "" if given.without_theirs else Liblinear().fit(X, y)
            theirs = theirs and f"{time.process_time() - began:.1f} s"
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder) / "rows.zarr")
                streamsvm.ingest(X, path, y)
                for memory in given.memory.split(","):
                    cells = [_run(path, way, memory) for way in WAYS]
                    print(f"| {memory} | {n_classes} | {d:,} | {' | '.join(cells)} | {theirs} |", flush=True)


def _run(path: str, way: str, memory: str) -> str:
    """Return the cell that a process of its own prints."""
    command = [sys.executable, "-m", "tests.benchmarks.classes_and_features", "--train", path, way, memory]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
