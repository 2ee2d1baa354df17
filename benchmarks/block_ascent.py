"""Reads of the data until a gap is certified, by ascent on blocks and by line search.

    python -m benchmarks.block_ascent --data FOLDER [--tol 1e-3] [--seeds 3] [--only few memory]

FOLDER holds the unpacked data. `few`: for each seed, the rows are shuffled and stored, and only the resident rows are
kept in memory. Reads are the bytes read (including single rows), divided by the bytes of the dataset. `memory`: all
rows are in memory. The other trainers are the solver with one read (for up to 400 features) and LIBLINEAR
(scikit-learn's LinearSVC, at the largest tolerance that comes as near the optimum). CPU seconds are medians on one
thread; the trainers take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

from benchmarks.one_read import store
from benchmarks.two_classes import load
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import F64, CsrRows
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane.setup import MOST_FEATURES

FEW = (
    ("news20", 1.0, "10%"),
    ("news20", 1.0, "3%"),
    ("news20", 100.0, "10%"),
    ("bydate", 1.0, "10%"),
    ("bydate", 0.01, "10%"),
    ("mnist", 0.01, "10%"),
    ("mnist", 1.0, "10%"),
    ("isolet", 1.0, "30%"),
    ("mushrooms", 1.0, "10%"),
    ("w8a", 0.1, "10%"),
    ("a9a", 0.05, "10%"),
    ("a9a", 1.0, "10%"),
)  # data, C, resident rows
MEMORY = (*dict.fromkeys((name, C) for name, C, _ in FEW if C <= 1.0), ("covtype", 0.01), ("ijcnn1", 1.0))
WAYS = ("block-ascent", "line-search")
MOST_PASSES = 150
TOLERANCES = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)


def load_any(folder: Path, name: str) -> ArrayDataset:
    """Return rows with labels of two classes, such as even and odd digits, or letters A to M and N to Z."""
    if name == "mnist":
        X = np.fromfile(folder / "mnist/train-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
        odd = np.fromfile(folder / "mnist/train-labels-idx1-ubyte", np.uint8, offset=8) % 2
        return ArrayDataset((X / 255).astype(np.float32), odd.astype(np.int32), np.array([-1, 1]))
    if name == "isolet":
        rows = np.loadtxt(folder / "isolet/isolet1+2+3+4.csv", delimiter=",", dtype=np.float32)
        return ArrayDataset(rows[:, :-1].copy(), (rows[:, -1] <= 13).astype(np.int32), np.array([-1, 1]))
    return load(folder, name)


def measure(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its CPU seconds."""
    began = time.process_time()
    return call(), time.process_time() - began


def run(source: Any, C: float, tol: float, way: str, resident_rows: str | None) -> tuple[Result, float]:
    """Train by one method, and return the result and the CPU seconds."""
    own = None if way == "line-search" else resident_rows
    options = TrainOptions(
        C=C, tol=tol, threads=1, max_passes=MOST_PASSES, resident_rows=own, options={"acceleration": way}
    )
    return measure(lambda: train(source, options))


def compare_few(folder: Path, tol: float, seeds: int) -> None:
    """Print the table of reads, where only a share of the rows is resident."""
    opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # type: ignore[misc, assignment]
    print("| data | C | resident | reads, ascent | line search | CPU s, ascent | line search |")
    print("|---|---|---|---|---|---|---|")
    for name, C, resident in FEW:
        with tempfile.TemporaryDirectory() as out:
            datasets = [store(load_any(folder, name), seed, Path(out)) for seed in range(seeds)]
            found = {way: [run(data, C, tol, way, resident) for data in datasets] for way in WAYS}
        size = datasets[0].nbytes
        reads = [" ".join(_tell_reads(result, size) for result, _ in found[way]) for way in WAYS]
        seconds = [f"{median(used for _, used in found[way]):.1f}" for way in WAYS]
        print("|", " | ".join([name, f"{C:g}", resident, *reads, *seconds]), "|", flush=True)


def _tell_reads(result: Result, size: int) -> str:
    more = "" if result.status == "converged" else "+"
    return f"{result.read_bytes / size:.0f}{more}"


def compare_in_memory(folder: Path, tol: float) -> None:
    """Print the table of CPU seconds, where all rows are in memory."""
    print("| data | C | CPU s, ascent | one read | LIBLINEAR | its tol |")
    print("|---|---|---|---|---|---|")
    for name, C in MEMORY:
        source = load_any(folder, name)
        ways = ("block-ascent", "one-read") if source.n_features <= MOST_FEATURES else ("block-ascent",)
        rounds = [[run(source, C, tol, way, "100%") for way in ways] for _ in range(3)]
        seconds = [f"{median(used for _, used in found):.2f}" for found in zip(*rounds, strict=True)]
        seconds += ["-"] * (2 - len(ways))
        bound = rounds[0][0][0].lower_bound
        assert bound is not None
        print("|", " | ".join([name, f"{C:g}", *seconds, *_run_liblinear(source, C, tol, bound)]), "|", flush=True)


def _run_liblinear(source: ArrayDataset, C: float, tol: float, bound: float) -> tuple[str, str]:
    """Return LIBLINEAR's CPU seconds at the largest tolerance with which P is within `tol` of the bound."""
    rows = source.take(np.arange(source.n_rows))
    assert rows.y is not None
    y: F64 = np.where(rows.y == 1, 1.0, -1.0)
    X: Any = rows.X
    if isinstance(X, CsrRows):
        X = csr_array((X.data, X.indices, X.indptr.astype(np.int32)), shape=X.shape)
    X = X.astype(np.float64)
    for own in TOLERANCES:
        model, seconds = measure(lambda own=own: LinearSVC(C=C, loss="hinge", tol=own, max_iter=20_000).fit(X, y))
        w, b = model.coef_[0], model.intercept_[0]
        P = float(w @ w + b * b) / 2 + C * float(np.sum(np.maximum(0.0, 1.0 - y * (X @ w + b))))
        if P - bound <= tol * P:
            return f"{seconds:.2f}", f"{own:g}"
    return "-", "-"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=["few", "memory"])
    own = parser.parse_args()
    with one_blas_thread():
        if "memory" in own.only:
            compare_in_memory(own.data, own.tol)
        if "few" in own.only:
            compare_few(own.data, own.tol, own.seeds)


if __name__ == "__main__":
    main()
