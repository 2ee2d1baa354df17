"""A smooth loss with several classes and many dense features: three of our methods, and scikit-learn's.

    python -m benchmarks.classes_and_features [--rows 10000] [--classes 3,10,26] [--features 100,500,1000,1500]
        [--data isolet|mnist|pixels --folder FOLDER] [--loss squared_hinge|logistic] [--C 1] [--most-passes 1000]
        [--memory 8GB,700MB] [--ways classes,curvatures,products,chosen] [--without-theirs]

The rows are generated, or they are the first rows of isolet, of MNIST with pixels scaled to 0..1, or of MNIST with
pixels from 0 to 255. "classes" is Newton's method for each class; "curvatures" and "products" are the two forms of the
method for all labels (streamsvm.solvers.label_newton); "chosen" is the default of streamsvm. Each of these trains from
disk, in a separate process, with each of the memory limits. With the larger limit, the rows stay in memory after the
first read. A cell has the CPU seconds of the whole process, and the number of reads of all rows. If a training has not
converged, the cell also has its status and the gap of all classes. "theirs" is LinearSVC (LIBLINEAR), or
LogisticRegression for each class.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression as Logistic
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC as Liblinear

import streamsvm
from streamsvm import LinearSVC, LogisticRegression
from streamsvm.solvers import set_up
from streamsvm.solvers.label_newton import setup
from streamsvm.solvers.registry import SolverRecord, find_solver
from streamsvm.system.errors import MemoryBudgetError

WAYS = ("classes", "curvatures", "products", "chosen")
UNLIMITED = 1 << 60


def make_rows(n: int, d: int, n_classes: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return rows of length 1 whose directions have different variances, as embeddings have, and their classes."""
    rng = np.random.default_rng(0)
    y, centres = rng.integers(0, n_classes, n), 0.6 * d**-0.25 * rng.normal(size=(n_classes, d))
    X = (centres[y] + rng.normal(size=(n, d))) / np.sqrt(1.0 + np.arange(d) / 10.0)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def load_rows(folder: Path, name: str, n: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the first n rows of isolet or MNIST and their classes."""
    if name == "isolet":
        table = np.loadtxt(folder / "isolet/isolet1+2+3+4.csv", delimiter=",", dtype=np.float32, max_rows=n)
        return np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64)
    X = np.fromfile(folder / "mnist/train-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)[:n]
    y = np.fromfile(folder / "mnist/train-labels-idx1-ubyte", np.uint8, offset=8)[:n]
    return X.astype(np.float32) / np.float32(1 if name == "pixels" else 255), y.astype(np.int64)


def choose(way: str) -> None:
    """Make streamsvm use the method with this name (see the module's docstring)."""

    def find(method: SolverRecord, *_: object) -> SolverRecord:
        return method if way == "classes" else find_solver(method.name, ("labels",))

    if way != "chosen":
        set_up.choose_for_many = find
        setup.MOST_WEIGHTS = 0 if way == "products" else UNLIMITED


def train(path: str, way: str, memory: str, given: argparse.Namespace) -> None:
    """Train in this process, and print a cell of the table."""
    choose(way)
    options = {"C": given.C, "memory": memory, "max_passes": given.most_passes}
    is_logistic = given.loss == "logistic"
    model = LogisticRegression(multi_class="ovr", **options) if is_logistic else LinearSVC(loss=given.loss, **options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(path)
    except MemoryBudgetError as error:
        print("needs " + str(error).partition(" of memory")[0])
        return
    spent, result = resource.getrusage(resource.RUSAGE_SELF), model.result_
    ended = "" if result.status == "converged" else f" {result.status}, gap {result.relative_gap:.1g}"
    print(f"{spent.ru_utime + spent.ru_stime:.1f} s, {result.passes}{ended}")


def train_theirs(X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], given: argparse.Namespace) -> str:
    """Train by scikit-learn, and return the cell of this training."""
    theirs = OneVsRestClassifier(Logistic(C=given.C)) if given.loss == "logistic" else Liblinear(C=given.C)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(X, y)
    return f"{time.process_time() - began:.1f} s"


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--classes", default="3,10,26")
    parser.add_argument("--features", default="100,500,1000,1500")
    parser.add_argument("--data", choices=("isolet", "mnist", "pixels"))
    parser.add_argument("--folder", type=Path, default=os.environ.get("STREAMSVM_DATA"))
    parser.add_argument("--loss", choices=("squared_hinge", "logistic"), default="squared_hinge")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--most-passes", type=int, default=1000)
    parser.add_argument("--memory", default="8GB,700MB")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--without-theirs", action="store_true")
    parser.add_argument("--train", nargs=3, metavar=("DATASET", "WAY", "MEMORY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    given = read_options()
    if given.train:
        path, way, memory = given.train
        train(path, way, memory, given)
        return
    ways = given.ways.split(",")
    print(f"| memory | classes | features | {' | '.join(ways)} | theirs |\n" + "|---" * (4 + len(ways)) + "|")
    if given.data:
        compare(*load_rows(given.folder, given.data, given.rows), ways, given)
        return
    for n_classes in map(int, given.classes.split(",")):
        for d in map(int, given.features.split(",")):
            compare(*make_rows(given.rows, d, n_classes), ways, given)


def compare(X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], ways: list[str], given: argparse.Namespace) -> None:
    """Print a line for each memory limit."""
    theirs = "" if given.without_theirs else train_theirs(X, y, given)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.zarr")
        streamsvm.ingest(X, path, y)
        for memory in given.memory.split(","):
            cells = [_run(path, way, memory, given) for way in ways]
            classes, d = len(np.unique(y)), X.shape[1]
            print(f"| {memory} | {classes} | {d:,} | {' | '.join(cells)} | {theirs} |", flush=True)


def _run(path: str, way: str, memory: str, given: argparse.Namespace) -> str:
    """Train in a separate process, and return the cell that the process prints."""
    command = [sys.executable, "-m", "benchmarks.classes_and_features", "--train", path, way, memory]
    command += ["--loss", given.loss, "--C", str(given.C), "--most-passes", str(given.most_passes)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
