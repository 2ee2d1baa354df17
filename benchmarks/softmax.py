"""Multinomial logistic regression: reads of the data with few rows in memory, and CPU seconds beside scikit-learn.

    python -m benchmarks.softmax --data FOLDER [--only NAME ...] [--tol 1e-3] [--memory]
    python -m benchmarks.softmax --data FOLDER --only "1,000 classes" [--rows 128000] [--threads 2]

FOLDER holds the unpacked data. The first table is for data on disk: the bytes read, divided by the stored bytes, if
only a tenth of the rows is kept in memory, the seconds of a processor, and the peak of the resident memory. The last
line is a tenth of 1,280,000 embeddings of 1,024 float16 numbers in 1,000 classes, with 2 GB; --rows changes the number
of its rows.

With --memory, the second table compares CPU seconds if all rows are in memory, on one thread. scikit-learn gets the
constant feature as a column, and as few iterations as reach the objective of streamsvm, but for NEAR of it.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.crammer_singer import load_letter, make_source, measure
from streamsvm.data.open import open_dataset
from streamsvm.engines import open as opening
from streamsvm.engines.open import plan_memory
from streamsvm.ingestion.readers import ingest
from streamsvm.losses.softmax import measure as find_losses
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.machine import reset_peak

CHUNKS, THOUSAND = 64, "1,000 classes"
ITERATIONS = {"lbfgs": (10, 20, 40, 80, 160, 320, 640), "newton-cholesky": (2, 3, 4, 5, 6, 8, 10, 14, 20)}
NEAR = 1e-5  # scikit-learn computes in float32
MOST_CURVED = 2000  # with more weights, the matrices of newton-cholesky take too long


def load_covtype(folder: Path) -> tuple[Any, Any]:
    """Return the seven classes of Covertype, with each feature divided by its largest value."""
    rows = np.loadtxt(folder / "covtype/covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    return rows[:, :-1] / np.abs(rows[:, :-1]).max(axis=0), rows[:, -1] - 1


def load_mnist(folder: Path) -> tuple[Any, Any]:
    """Return the 60,000 training images, 0 to 1."""
    X = np.fromfile(folder / "mnist/train-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
    return X.astype(np.float32) / 255, np.fromfile(folder / "mnist/train-labels-idx1-ubyte", np.uint8, offset=8)


def make_embeddings(n: int, d: int, n_classes: int, spread: float) -> tuple[Any, Any]:
    """Return normal rows around random centres, whose distances from each other are about spread * sqrt(2 d)."""
    random = np.random.default_rng(0)
    y, centres = random.integers(0, n_classes, n), spread * random.standard_normal((n_classes, d), np.float32)
    return centres[y] + random.standard_normal((n, d), np.float32), y


def make_many(_: Path) -> tuple[Any, Any]:
    """Return 60,000 rows of 256 features in 100 classes."""
    return make_embeddings(60_000, 256, 100, 0.2)


def make_thousand(_: Path, n: int = 128_000) -> tuple[Any, Any]:
    """Return n embeddings of 1,024 features in 1,000 classes."""
    X, y = make_embeddings(n, 1024, 1000, 0.15)
    return X.astype(np.float16), y


def load_isolet(folder: Path) -> tuple[Any, Any]:
    """Return the 6,238 training rows of 617 features in 26 classes."""
    rows = np.loadtxt(folder / "isolet/isolet1+2+3+4.csv", delimiter=",", dtype=np.float32)
    return rows[:, :-1], rows[:, -1] - 1


def make_drawn(_: Path) -> tuple[Any, Any]:
    """Return 40,000 rows of 150 heavy-tailed features, and classes drawn from a multinomial logistic model of 40."""
    random = np.random.default_rng(2)
    X = random.standard_t(4, (40_000, 150)).astype(np.float32)
    scores = 0.3 * X @ random.standard_normal((150, 40)) + random.standard_normal(40)
    return X, np.argmax(scores + random.gumbel(size=scores.shape), axis=1)


def make_uneven(_: Path) -> tuple[Any, Any]:
    """Return 50,000 rows of 300 correlated features, in 60 classes whose sizes fall like 1 / k."""
    random = np.random.default_rng(5)
    sizes = 1.0 / np.arange(1, 61)
    y = random.choice(60, 50_000, p=sizes / sizes.sum())
    factors = random.standard_normal((60, 30))[y] + random.standard_normal((50_000, 30))
    X = factors @ random.standard_normal((30, 300)) / 6 + random.standard_normal((50_000, 300)) / 2
    return X.astype(np.float32), y


SETS: dict[str, tuple[Callable[[Path], tuple[Any, Any]], tuple[float, ...], dict[str, Any]]] = {
    "covtype": (load_covtype, (0.01, 1.0), {"resident_rows": "10%"}),
    "letter": (lambda folder: load_letter(folder)[:2], (0.1, 1.0), {"resident_rows": "10%"}),
    "mnist": (load_mnist, (0.001,), {"resident_rows": "10%"}),
    "100 classes": (make_many, (0.1,), {"resident_rows": "10%"}),
    "isolet": (load_isolet, (0.1, 1.0), {"resident_rows": "10%"}),
    "drawn classes": (make_drawn, (0.1,), {"resident_rows": "10%"}),
    "uneven classes": (make_uneven, (0.01, 1.0), {"resident_rows": "10%"}),  # run once, after constants were chosen
    THOUSAND: (make_thousand, (0.01,), {"memory_bytes": 2_000_000_000}),
}


def show_reads(name: str, path: Path, costs: tuple[float, ...], options: TrainOptions) -> None:
    """Print a line of the first table for each C, in a process that holds no data of its own."""
    opening.plan_memory, data = plan_without_pins, open_dataset(path)
    for C in costs:
        reset_peak()
        result, cpu = measure(lambda C=C: train(data, replace(options, C=C)))
        reads = f"{result.passes} | {result.read_bytes / data.stored_bytes:.2f} | {cpu:.1f}"
        reads += f" | {result.peak_memory_bytes / 1e6:.0f}"
        print(f"| {name} | {C:g} | {result.status} | {result.relative_gap:.1e} | {reads} |", flush=True)


def run_scikit_learn(solver: str, X: Any, y: Any, C: float, limit: float) -> str:
    """Return the CPU seconds of the fewest iterations that reach P <= limit."""
    for most in ITERATIONS[solver]:
        model = LogisticRegression(C=C, solver=solver, max_iter=most, tol=1e-12, fit_intercept=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, cpu = measure(lambda model=model: model.fit(X, y))
        loss = find_losses(X.astype(np.float64) @ model.coef_.T, y, np.full(len(y), C)).loss
        if np.sum(model.coef_**2) / 2 + loss <= limit:
            return f"{cpu:.2f} ({most})"
    return f"not in {most}"


def show_memory(name: str, X: Any, y: Any, costs: tuple[float, ...], options: TrainOptions) -> None:
    """Print a line of the second table for each C."""
    train(make_source(X[:1000], y[:1000]), options)  # loads the compiled functions
    wide = np.column_stack((X, np.ones(len(X), np.float32)))
    for C in costs:
        result, cpu = measure(lambda C=C: train(make_source(X, y), replace(options, C=C, resident_rows=None)))
        told = [f"{cpu:.2f}"]
        for solver in ITERATIONS:
            is_large = solver != "lbfgs" and wide.shape[1] * (y.max() + 1) > MOST_CURVED
            told.append("-" if is_large else run_scikit_learn(solver, wide, y, C, (1 + NEAR) * result.objective))
        print(f"| {name} | {C:g} | {result.relative_gap:.1e} | {' | '.join(told)} |", flush=True)


def plan_without_pins(*about: Any, **named: Any) -> Any:
    """Return the plan of memory, in which no chunk stays in memory between passes."""
    return replace(plan_memory(*about, **named), pin_bytes=0)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(SETS))
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=128_000)
    given = parser.parse_args()
    titles = "status | gap | passes | reads | CPU s | peak MB"
    if given.memory:
        titles = "P's gap | streamsvm | lbfgs | newton-cholesky"
    print(f"| data | C | {titles} |\n|{'---|' * (2 + titles.count('|') + 1)}")
    for name in given.only:
        load, costs, own = SETS[name]
        X, y = load(given.data) if name != THOUSAND else make_thousand(given.data, given.rows)
        order = np.random.default_rng(1).permutation(len(y))
        X, y = np.asarray(X, np.float32)[order], np.asarray(y)[order].astype(np.int32)
        options = TrainOptions(task="multinomial", threads=given.threads, tol=given.tol, **own)
        if given.memory:
            show_memory(name, X, y, costs, options)
            continue
        with tempfile.TemporaryDirectory() as out:
            dtype = "float16" if name == THOUSAND else "float32"
            path = Path(out) / "rows.zarr"
            ingest(X, path, y, chunk_bytes=max(20_000, X.nbytes // CHUNKS), dtype=dtype)
            del X, y
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                pool.submit(show_reads, name, path, costs, options).result()


if __name__ == "__main__":
    main()
