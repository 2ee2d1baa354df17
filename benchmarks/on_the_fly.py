"""A Gaussian SVM by features computed in each pass, by stored features, and by scikit-learn.

    python -m benchmarks.on_the_fly [--rows 500000] [--rank 300] [--memory 2GB] [--ways NAME...] [--folder DIR]

The rows are generated and never stored (benchmarks/made_rows.py); the classes differ in the distance of their rows from
the centre, so no linear function separates them. Each way runs in a separate process, and prints a line of a Markdown
table: bytes written, passes of the training, gap, CPU and elapsed seconds, peak memory, and accuracy on other rows.

    fly         --map nystrom: rows are mapped in each pass
    line        the same, by cutting planes with a line search
    stored      the features are written as a dataset (in DIR, or a temporary folder), which is trained on
    sklearn     Nystroem and five epochs of SGDClassifier (hinge), a chunk at a time
    map         mapping alone: CPU microseconds a row for kernel values, and for the mapped features
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier

from benchmarks.made_rows import CHUNK_ROWS, FEATURES, FLIPPED, MadeRows
from streamsvm.data.rows.views import Mapped
from streamsvm.kernels.feature_maps import Features, KernelMap, compute_block
from streamsvm.models.model import Model
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.numeric.rows import F32, Rows
from streamsvm.options import TrainOptions
from streamsvm.runs.features import find_feature_map, make_features
from streamsvm.runs.on_the_fly import open_rows
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.machine import parse_bytes, peak_bytes

WAYS = ("map", "fly", "line", "stored", "sklearn")
SPREAD = 0.12  # the share by which one class is farther from the centre, and the other nearer
GAMMA = 1 / (2 * FEATURES)
C, TOL, EPOCHS = 1.0, 1e-3, 5
HEAD = "| way | bytes written | passes | gap | CPU s | s | peak memory | accuracy |\n|---|---|---|---|---|---|---|---|"


class Shells(MadeRows):
    """Rows of two classes about one centre: x_i = (1 + SPREAD s_i) z_i, with z_i and s_i as in MadeRows."""

    def __init__(self, n_rows: int, seed: int = 0) -> None:
        super().__init__(n_rows, seed)
        self.fingerprint = f"shells {n_rows} {seed}"

    def read(self, index: int) -> Rows:
        """Compute chunk `index`, and return it."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        random, y = np.random.Generator(np.random.SFC64((self.seed, 1, index))), self._draw_labels(index)
        side = np.where(random.random(CHUNK_ROWS)[: stop - start] < FLIPPED, 1 - 2 * y, 2 * y - 1)
        X: F32 = random.standard_normal((stop - start, FEATURES), np.float32)
        X *= (1 + SPREAD * side).astype(np.float32)[:, None]
        return Rows(start, X, y)


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rank", type=int, default=300)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measure(options.one, options), flush=True)
        return
    print(f"{options.rows:,} rows of {FEATURES} features, rank {options.rank}, {options.memory}\n\n{HEAD}", flush=True)
    for way in options.ways:
        subprocess.run([sys.executable, "-m", "benchmarks.on_the_fly", *sys.argv[1:], "--one", way], check=True)


def train_on_features(source: Any, features: FeatureOptions, settings: TrainOptions) -> Result:
    """Train on features that are computed again in each pass."""
    with open_rows(source, features, settings) as rows:
        return train(rows.source, rows.options, **rows.arguments)


def measure(way: str, options: argparse.Namespace) -> str:
    """Return the table's line for one way."""
    source, memory = Shells(options.rows), parse_bytes(options.memory)
    settings = TrainOptions(C=C, tol=TOL, kernel="rbf", gamma=GAMMA, memory_bytes=memory, threads=options.threads)
    features = FeatureOptions("nystrom", options.rank)
    if way == "map":
        return measure_map(source, features, settings)
    train_on_features(Shells(2000), FeatureOptions("nystrom", min(options.rank, 500)), settings)  # compiles
    cpu, began = time.process_time(), time.perf_counter()
    if way == "sklearn":
        scorer = train_sklearn(source, options.rank)
        cost = tell(cpu, began)
        return f"| {way} | 0 | {EPOCHS} | none | {cost} | {scorer:.4f} |"
    written = 0
    if way == "stored":
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            made = make_features(source, Path(folder) / "features.zarr", features, settings)
            print(f"<!-- features: {time.perf_counter() - began:.0f} s -->", flush=True)
            written = made.dataset.nbytes
            linear = TrainOptions(C=C, tol=TOL, memory_bytes=memory, threads=options.threads)
            result = train(made.dataset, linear)
    else:
        own = {"acceleration": "line-search"} if way == "line" else {}
        result = train_on_features(source, features, TrainOptions(**{**vars(settings), "options": own}))
    cost = tell(cpu, began)
    return describe(way, written, result, cost, options.rows)


def tell(cpu: float, began: float) -> str:
    """Return CPU seconds, wall seconds and peak memory as cells of a table."""
    seconds = f"{time.process_time() - cpu:.0f} | {time.perf_counter() - began:.0f}"
    return f"{seconds} | {peak_bytes() / 1e6:.0f} MB"


def describe(way: str, written: int, result: Result, cost: str, n_rows: int) -> str:
    """Return the line of a training of streamsvm."""
    accuracy = measure_accuracy(result.model, n_rows)
    gap = f"{result.relative_gap:.1e}" if result.status == "converged" else result.status
    return f"| {way} | {written / 1e6:.0f} MB | {result.passes} | {gap} | {cost} | {accuracy:.4f} |"


def take_other_rows(n_rows: int) -> Rows:
    """Return a chunk of rows of the same distribution, on which no model was trained."""
    chunk = -(-n_rows // CHUNK_ROWS)
    return Shells((chunk + 1) * CHUNK_ROWS).read(chunk)


def measure_accuracy(model: Model, n_rows: int) -> float:
    """Return the share of other rows that the model classifies correctly."""
    rows = take_other_rows(n_rows)
    return float(np.mean((model.decide(rows.X) > 0) == (rows.y == 1)))


def train_sklearn(source: MadeRows, rank: int) -> float:
    """Fit Nystroem and SGDClassifier, a chunk at a time, and return the accuracy on other rows."""
    chosen = np.sort(np.random.default_rng(0).permutation(source.n_rows)[:rank])
    nystroem = Nystroem(gamma=GAMMA, n_components=rank, random_state=0).fit(source.take(chosen).X)
    classifier = SGDClassifier(alpha=1 / (source.n_rows * C), random_state=0, average=True)
    for _ in range(EPOCHS):
        for index in range(source.n_chunks):
            rows = source.read(index)
            classifier.partial_fit(nystroem.transform(rows.X), rows.y, classes=[0, 1])
    other = take_other_rows(source.n_rows)
    return float(classifier.score(nystroem.transform(other.X), other.y))


def measure_map(source: MadeRows, features: FeatureOptions, settings: TrainOptions) -> str:
    """Return the CPU time for mapping a row, on one thread, as cells of a table."""
    found = find_feature_map(source, features, settings)
    assert isinstance(found, KernelMap)
    mapped, X = Mapped(source, Features(found)), source.read(0).X[:512]  # type: ignore[index]
    with one_blas_thread():
        compute_block(found.kernel, X, found.rows)
        began = time.process_time()
        for _ in range(20):
            compute_block(found.kernel, X, found.rows)
        values = (time.process_time() - began) / 20 / len(X)
        began = time.process_time()
        n_rows = mapped.read(0).n_rows
        whole = (time.process_time() - began) / n_rows
    return f"<!-- a row: kernel values {1e6 * values:.2f} us, mapped {1e6 * whole:.2f} us of CPU -->"


if __name__ == "__main__":
    main()
