"""From text to a model: `train FILE`, compared with the commands of LIBLINEAR and Vowpal Wabbit. Prints a table.

    python -m benchmarks.file_to_model --data FOLDER --liblinear PROGRAM [--sets NAME...] [--rounds 3]

FOLDER holds the public sets that benchmarks/two_classes.py reads, and PROGRAM is LIBLINEAR's `train`. The rows are
first written as svmlight text of about --megabytes, in several copies. C is divided by the number of copies, so that
the optimum stays the same. Vowpal Wabbit (`pip install vowpalwabbit`) gets the same rows in its own text format. Whole
commands are timed: the start of the program, reading, training, and writing the model. `train FILE` also writes a
dataset; when the command is repeated, it trains from this dataset. CPU and elapsed seconds are medians; the commands
take turns. LIBLINEAR has its default tolerance of 0.1; Vowpal Wabbit makes --epochs passes. Distances are (P - D) / P,
with the lower bound D that streamsvm proved. P of each model is computed by this script, in float64.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file

import streamsvm
from benchmarks.two_classes import load
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64, CsrRows

COSTS = {"a9a": 0.05, "ijcnn1": 1.0, "covtype": 0.1, "news20": 1.0}


def write_texts(rows: ArrayDataset, folder: Path, n_bytes: float) -> tuple[int, csr_array, F64]:
    """Write rows.svm and rows.vw; return the number of copies, and the rows and labels of one copy."""
    taken = rows.take(np.arange(rows.n_rows))
    assert taken.y is not None
    X = taken.X
    if isinstance(X, CsrRows):
        X = csr_array((X.data, X.indices, X.indptr), shape=(rows.n_rows, rows.n_features))
    X, y = csr_array(X), np.where(taken.y == 1, 1.0, -1.0)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # scikit-learn's writer requires int32
    with (folder / "once.svm").open("wb") as file:
        dump_svmlight_file(X, y.astype(int), file, zero_based=False)
    text = (folder / "once.svm").read_bytes()
    copies = max(1, round(n_bytes / len(text)))
    (folder / "rows.svm").write_bytes(text * copies)
    lines = b"".join(line.replace(b" ", b" | ", 1) + b" 0:1\n" for line in text.splitlines())
    (folder / "rows.vw").write_bytes(lines * copies)  # the constant is feature 0; svmlight's features begin at 1
    return copies, X, y


def train_ours(folder: Path, C: float, again: bool) -> F64:
    """Train on the text; return the weights, with the bias at the end. again: whether a dataset exists already."""
    for made in ["run"] if again else ["run", "rows.svm.cache.zarr"]:
        shutil.rmtree(folder / made, ignore_errors=True)
    command = [sys.executable, "-m", "streamsvm", "train", str(folder / "rows.svm"), "--C", repr(C)]
    told = call([*command, "--out", str(folder / "run"), "--json"])
    (folder / "bound").write_text(repr(json.loads(told.splitlines()[-1])["lower_bound"]))
    model = streamsvm.load(folder / "run")
    return np.append(model.coef_, model.intercept_)


def train_liblinear(program: Path, folder: Path, C: float) -> F64:
    """Run LIBLINEAR's dual solver for the hinge loss, with a constant feature, and read the model that it writes."""
    call([str(program), "-q", "-s", "3", "-c", repr(C), "-B", "1", str(folder / "rows.svm"), str(folder / "model")])
    head, _, weights = (folder / "model").read_text().partition("\nw\n")
    first = next(line for line in head.splitlines() if line.startswith("label")).split()[1]
    return np.array(weights.split(), float) * (1 if first == "1" else -1)


def train_vowpal_wabbit(epochs: int, size: float, rate: float, folder: Path) -> F64:
    """Run stochastic gradients with steps 1 / (lambda (t + t0)) and lambda = 1 / size.

    Vowpal Wabbit first writes a cache. It shrinks w only at rows that have a loss, and therefore has a
    different optimum (pipelines/compare).
    """
    (folder / "rows.vw.cache").unlink(missing_ok=True)
    options = (
        f"-d {folder}/rows.vw --passes {epochs} --cache_file {folder}/rows.vw.cache --loss_function hinge --sgd "
        f"--l2 {1 / size} --learning_rate {rate} --power_t 1 --initial_t {size / rate} --noconstant --holdout_off "
        f"--bit_precision 18 --quiet --predict_only_model --readable_model {folder}/model.vw"
    )
    call([sys.executable, "-m", "vowpalwabbit", *options.split()])
    weights: dict[int, float] = {}
    for line in (folder / "model.vw").read_text().splitlines():
        place, _, value = line.partition(":")
        if place.isdecimal():
            weights[int(place)] = float(value)
    found = np.zeros(max(weights) + 1)
    found[list(weights)] = list(weights.values())
    return np.append(found[1:], found[0])


def call(command: list[str]) -> str:
    """Run a command, and return its output."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def compute_objective(X: csr_array, y: F64, w: F64, C: float) -> float:
    """Return P of a model, with the cost C for each row of X. Features without a weight are ignored."""
    full = np.zeros(X.shape[1])
    full[: len(w) - 1] = w[:-1][: X.shape[1]]
    margins = y * (X.astype(np.float64) @ full + w[-1])
    return float(full @ full + w[-1] ** 2) / 2 + C * float(np.maximum(0, 1 - margins).sum())


def compare(name: str, data: Path, program: Path, megabytes: float, epochs: int, rounds: int) -> None:
    """Print the lines of one dataset."""
    with TemporaryDirectory() as work:
        folder, C = Path(work), COSTS[name]
        copies, X, y = write_texts(load(data, name), folder, megabytes * 1e6)
        size, cost = (folder / "rows.svm").stat().st_size, C / copies
        rate = len(y) / float((X**2).sum() + len(y))
        commands: dict[str, Callable[[], F64]] = {
            "streamsvm train FILE": lambda: train_ours(folder, cost, again=False),
            "streamsvm train FILE, again": lambda: train_ours(folder, cost, again=True),
            "LIBLINEAR": lambda: train_liblinear(program, folder, cost),
            f"Vowpal Wabbit, {epochs} passes": lambda: train_vowpal_wabbit(epochs, C * len(y), rate, folder),
        }
        spent: dict[str, list[tuple[float, float]]] = {trainer: [] for trainer in commands}
        objectives = {}
        for _ in range(rounds):
            for trainer, command in commands.items():
                began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                objectives[trainer] = compute_objective(X, y, command(), C)
                now = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
                spent[trainer].append((cpu, time.perf_counter() - began))
        bound = float((folder / "bound").read_text())
        for trainer, seconds in spent.items():
            cpu, elapsed = (median(values) for values in zip(*seconds, strict=True))
            distance = (objectives[trainer] - bound) / objectives[trainer]
            print(f"| {name} | {size / 1e6:.0f} | {trainer} | {cpu:.2f} | {elapsed:.2f} | {distance:.0e} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--liblinear", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=COSTS, default=list(COSTS))
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print("| data | MB of text | commands | CPU s | s | distance from the proved bound |\n|---|---|---|---|---|---|")
    for name in given.sets:
        compare(name, given.data, given.liblinear, given.megabytes, given.epochs, given.rounds)


if __name__ == "__main__":
    main()
