"""Text of many classes and features: squared hinge, one class against the rest, compared with scikit-learn's LinearSVC.

    python -m benchmarks.text_of_many_classes [--rows 9619] [--features 55197] [--classes 105]
        [--memory 1GB,2GB] [--times 3]

The text is generated: words are drawn by Zipf's law, and 15% of them are from 600 words of the row's class. Rows are
weighted by tf-idf and scaled to length 1. Every training is a separate process; streamsvm and LinearSVC take turns, and
a cell is the median of all turns. Only `fit` is measured, in CPU seconds of the process and in wall seconds. Each
process first trains on a few rows, so that functions are compiled. "in memory" trains on a matrix, "stored" on a
dataset on disk. LinearSVC uses one thread, streamsvm two.

streamsvm ends when the gap of every class is proved to be at most 1e-3, and LinearSVC ends by its own rule, with tol
1e-4. "P" is the sum of the objectives of all classes at the returned weights, recomputed in float64. "P above D" is the
distance of P from the highest lower bound that streamsvm proved, relative to P; the distance from the optimum cannot be
larger.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix, load_npz, save_npz
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC as Liblinear

import streamsvm

WORDS, OWN_WORDS, OWN_SHARE, LEAST_WORDS, SPREAD = 163, 600, 0.15, 20, 0.4
FEW_ROWS, FEW_FEATURES, FEW_CLASSES = 240, 4000, 60  # smaller data, for which streamsvm uses the same method
TOL = 1e-3


def make_text(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[csr_array, npt.NDArray[np.int64]]:
    """Return the rows and their classes."""
    rng = np.random.default_rng(seed)
    y, shares = rng.integers(0, n_classes, n), 1 / (np.arange(d) + 10.0)
    limits = np.cumsum(shares / shares.sum())
    own_words = [rng.permutation(d)[:OWN_WORDS] for _ in range(n_classes)]
    words = []
    for label in y.tolist():
        m = max(LEAST_WORDS, int(rng.lognormal(np.log(WORDS), SPREAD)))
        found, own = np.searchsorted(limits, rng.random(m)), rng.random(m) < OWN_SHARE
        found[own] = own_words[label][rng.integers(0, OWN_WORDS, int(own.sum()))]
        words.append(np.minimum(found, d - 1))
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in words])))
    counts = csr_matrix((np.ones(indptr[-1]), np.concatenate(words), indptr), shape=(n, d))
    counts.sum_duplicates()
    return csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts), dtype=np.float32), y


def train(folder: Path, way: str, memory: str) -> None:
    """Train in this process, write the weights, and print the measurements."""
    X: Any = load_npz(folder / "X.npz")
    y = np.load(folder / "y.npy")
    few, classes_of_few = make_text(FEW_ROWS, FEW_FEATURES, FEW_CLASSES)
    if way == "LinearSVC":
        X = csr_matrix((X.data.astype(np.float64), X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)
        model: Any = Liblinear(C=1.0)
        model.fit(csr_matrix(few), classes_of_few)
    else:
        model = streamsvm.LinearSVC(loss="squared_hinge", tol=TOL, memory=memory, n_jobs=2)
        model.fit(few, classes_of_few)
        X, y = (X, y) if way == "in memory" else (str(folder / "text.zarr"), None)
    cpu, began = time.process_time(), time.perf_counter()
    model.fit(X, y)
    found = {"cpu": time.process_time() - cpu, "clock": time.perf_counter() - began}
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    np.savez(folder / "model.npz", coef=model.coef_, intercept=model.intercept_)
    if way != "LinearSVC":
        found |= {"passes": model.n_passes_, **model.result_.as_json()}
    print(json.dumps(found))


def measure(X: csr_array, y: npt.NDArray[np.int64], folder: Path, way: str, memory: str) -> dict[str, Any]:
    """Return the measurements of a training in a separate process, with P, the sum of its objectives."""
    command = [sys.executable, "-m", "benchmarks.text_of_many_classes", "--train", str(folder), way, memory]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    with np.load(folder / "model.npz") as model:
        coef, intercept = model["coef"], model["intercept"]
    scores = X.astype(np.float64) @ coef.T + intercept
    signs = np.where(y[:, None] == np.unique(y), 1.0, -1.0)
    losses = np.maximum(0.0, 1.0 - signs * scores) ** 2
    return {**found, "P": float((np.sum(coef**2) + np.sum(intercept**2)) / 2 + losses.sum())}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=9619)
    parser.add_argument("--features", type=int, default=55_197)
    parser.add_argument("--classes", type=int, default=105)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--train", nargs=3, metavar=("FOLDER", "WAY", "MEMORY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(Path(given.train[0]), *given.train[1:])
        return
    X, y = make_text(given.rows, given.features, given.classes)
    ways = [(way, memory) for memory in given.memory.split(",") for way in ("stored", "in memory")]
    ways.append(("LinearSVC", ""))
    found: dict[tuple[str, str], list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        save_npz(Path(folder) / "X.npz", X, compressed=False)
        np.save(Path(folder) / "y.npy", y)
        streamsvm.ingest(X, Path(folder) / "text.zarr", y)
        for _ in range(given.times):
            for way in ways:
                found[way].append(measure(X, y, Path(folder), *way))
    print_table(found)


def print_table(found: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    """Print a line for each way: medians, and the minimum and maximum of the CPU seconds."""
    bound = max(turn["lower_bound"] for turns in found.values() for turn in turns if "lower_bound" in turn)
    heads = "way", "memory", "status", "passes", "CPU s", "least, most", "s by the clock", "peak", "P", "P above D"
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for (way, memory), turns in found.items():
        cpu, last = [turn["cpu"] for turn in turns], turns[-1]
        clock, peak = median(turn["clock"] for turn in turns), median(turn["peak"] for turn in turns)
        cells = way, memory, last.get("status", ""), last.get("passes", ""), f"{median(cpu):.1f}"
        times = f"{min(cpu):.1f}, {max(cpu):.1f}", f"{clock:.1f}", f"{peak / 1e6:.0f} MB"
        print("| " + " | ".join((*map(str, cells), *times, f"{last['P']:.3f}", f"{1 - bound / last['P']:.1e}")) + " |")


if __name__ == "__main__":
    main()
