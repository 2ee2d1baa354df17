"""The cost of a pass: plain reads, verified reads, and a whole cutting-plane pass. Prints a Markdown table.

A fourth job is a floor for the time of a pass: verified reads, and BLAS products of the rows with one vector from
either side. It sums in float32, so it could prove nothing.

    python benchmarks/reading.py [--gigabytes 2] [--features 54 256 784] [--cold]

The jobs take turns (A B C A B C ...), and the table has medians of --rounds rounds. The page cache is warm. With
--cold, the operating system is asked to drop the files from the page cache before every job.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.engines.merge import answer
from streamsvm.ingestion.write import DatasetWriter, Shape
from streamsvm.numeric.rows import Rows
from streamsvm.passes import All, Requests, Scan
from streamsvm.solvers.cutting_plane import line_search
from streamsvm.solvers.set_up import ALL_MODELS, compile_all


def generate(folder: Path, gigabytes: float, n_features: int) -> Dataset:
    """Write rows whose labels are a noisy linear function, one million values at a time."""
    n_rows = int(gigabytes * 1e9 / 4 / n_features)
    folder.mkdir()
    writer = DatasetWriter(
        folder, Shape(n_rows, n_features, n_rows * n_features, n_features, False), ("y",), None, "crc32c"
    )
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(n_features)
    counts = np.zeros(2, np.int64)
    for at in range(0, n_rows, 1 << 16):
        X = rng.standard_normal((min(1 << 16, n_rows - at), n_features), dtype=np.float32) / np.float32(n_features**0.5)
        y = (X @ truth + 0.5 * rng.standard_normal(len(X)) > 0).astype(np.int32)
        counts += np.bincount(y, minlength=2)
        writer.append(Rows(at, X, y))
    meta = {
        "classes": [-1, 1],
        "class_counts": counts.tolist(),
        "feature_names": None,
        "shuffle": None,
        "source": "generated",
    }
    writer.finish(meta, None)
    return open_dataset(folder)


def no_totals() -> int:
    """Return empty totals."""
    return 0


def ignore(*_: Any) -> None:
    """Ignore the rows."""


def multiply(_: Any, rows: Rows) -> None:
    """Multiply the rows of a tile by a vector from either side, in float32."""
    assert isinstance(rows.X, np.ndarray)
    n_rows, n_features = rows.X.shape
    rows.X @ np.ones(n_features, np.float32)
    np.ones(n_rows, np.float32) @ rows.X


def keep_left(left: int, _: int) -> int:
    """Return the left totals."""
    return left


def read_plainly(files: list[Path], buffer: np.ndarray) -> None:
    """Read files one after another into one reused buffer."""
    for file in files:
        with file.open("rb", buffering=0) as opened:
            opened.readinto(buffer)


def forget(folder: Path) -> None:
    """Ask the operating system to drop the files of a folder from its page cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def third_pass(dataset: Dataset) -> Scan:
    """Return the third pass of a training. The ends of its line search differ, so some rows switch sides."""
    engine = ThreadedEngine(dataset, 1)
    costs = (1e-6, 1e-6)
    solver: Requests = line_search.solve(
        line_search.CuttingPlane(costs), line_search.LineState.at_zero(dataset.n_features + 1)
    )
    request, passes = next(solver), 0
    while not isinstance(request, All) or passes < 5:
        passes += isinstance(request, All)
        request = solver.send(answer(engine, request) if isinstance(request, All) else None)
    look = request.requests[0]
    assert isinstance(look, Scan)
    return look


def time_in_turn(jobs: dict[str, Callable[[], Any]], rounds: int, prepare: Callable[[], None]) -> dict[str, float]:
    """Run the jobs in turn, and return the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds + 1):
        for name, job in jobs.items():
            prepare()
            began = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - began)
    return {name: median(values[1:]) for name, values in seconds.items()}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--features", type=int, nargs="+", default=[54, 256, 784])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    compile_all(ALL_MODELS)
    print("| features | threads | plain MB/s | verified MB/s | pass MB/s | pass / verified | products / verified |")
    print("|---|---|---|---|---|---|---|")
    for n_features in options.features:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "rows.zarr"
            dataset = generate(folder, options.gigabytes, n_features)
            files = sorted((folder / "X" / "c").rglob("0"))
            buffer = np.empty(max(file.stat().st_size for file in files if file.is_file()), np.uint8)
            files = [file for file in files if file.is_file()]
            only_read, products = Scan(no_totals, ignore, keep_left), Scan(no_totals, multiply, keep_left)
            whole_pass = third_pass(dataset)
            for threads in (1, 2):
                engine = ThreadedEngine(dataset, threads)
                jobs = {
                    "plain": partial(read_plainly, files, buffer),
                    "verified": partial(engine.scan, only_read),
                    "products": partial(engine.scan, products),
                    "pass": partial(engine.scan, whole_pass),
                }
                spent = time_in_turn(jobs, options.rounds, partial(forget, folder) if options.cold else lambda: None)
                rate = {name: dataset.nbytes / value / 1e6 for name, value in spent.items()}
                print(
                    f"| {n_features} | {threads} | {rate['plain']:.0f} | {rate['verified']:.0f} | {rate['pass']:.0f} "
                    f"| {spent['pass'] / spent['verified']:.2f} | {spent['products'] / spent['verified']:.2f} |",
                    flush=True,
                )
                engine.close()


if __name__ == "__main__":
    main()
