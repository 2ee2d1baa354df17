"""Rows are appended, and the model is updated: what is read, and how often the kept ball is left. Prints a table.

    STREAMSVM_DATA=FOLDER python -m tests.benchmarks.append [--rows 2000000] [--seeds 3]

Covertype (class 2 against the rest, features of variance 1) and generated rows of two overlapping classes. For each
seed, 1% or 10% of the rows are drawn at random and held back; a model of the others is trained, and its ball kept; then
the rows are appended, and the model is updated, beside a new training on all rows. "read" is bytes read over the bytes
of the whole dataset, "left" how often the new optimum was not proved in the ball, so that all rows were read. CPU
seconds are those of this process; the first line has the time to load what is compiled.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.dataset import Dataset
from streamsvm.data.readers import ingest
from streamsvm.training.train import TrainOptions, train
from streamsvm.training.update import train_from

FEATURES = 30


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| data | C | resident | new rows | ball: read | gap | left | CPU s | new training: reads | gap | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, X, y, costs, shares in _list_data(options.rows):
        for C in costs:
            for resident in shares:
                for share in (0.01, 0.1):
                    print(_measure(name, X, y, C, resident, share, options.seeds), flush=True)


def _list_data(n_rows: int) -> Iterator[tuple[str, Any, Any, tuple[float, ...], tuple[str, ...]]]:
    path = Path(os.environ["STREAMSVM_DATA"]) / "covtype" / "covtype.csv"
    if path.exists():
        rows = np.loadtxt(path, delimiter=",", dtype=np.float32, skiprows=1)
        X = (rows[:, :-1] - rows[:, :-1].mean(axis=0)) / np.maximum(rows[:, :-1].std(axis=0), 1e-9)
        yield "Covertype", X, np.where(rows[:, -1] == 2, 1, -1), (0.01,), ("10%", "30%")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n_rows, FEATURES), dtype=np.float32), np.where(rng.random(n_rows) < 0.5, 1, -1)
    X += np.float32(0.25) * y[:, None].astype(np.float32)
    yield f"{n_rows:,} generated rows", X, np.where(rng.random(n_rows) < 0.05, -y, y), (20_000 / n_rows,), ("10%",)


def _measure(name: str, X: Any, y: Any, C: float, resident: str, share: float, n_seeds: int) -> str:
    """Return a line of the table: the means over the seeds."""
    updates, trainings, n_left = [], [], 0
    for seed in range(n_seeds):
        order = np.random.default_rng(seed).permutation(len(X))
        old, new = np.split(order, [round((1 - share) * len(X))])
        with tempfile.TemporaryDirectory() as folder:
            path, run = Path(folder) / "rows.zarr", Path(folder) / "run"
            options = TrainOptions(C=C, resident_rows=resident)
            train_from(ingest(X[old], path, y[old]), options, run, keep_ball=True)
            dataset = ingest(X[new], path, y[new], append=True)
            update = _run(train_from, dataset, options, None, run)
            training = _run(train, dataset, options)
            assert update[1] <= options.tol
            n_left += update[0] >= 1.0
            updates.append(update)
            trainings.append(training)
    (read, gap, seconds), (reads, other, more) = np.mean(updates, axis=0), np.mean(trainings, axis=0)
    return (
        f"| {name} | {C:g} | {resident} | {share:.0%} | {read:.3f} | {gap:.1e} | {n_left} of {n_seeds} | {seconds:.2f} "
        f"| {reads:.2f} | {other:.1e} | {more:.2f} |"
    )


def _run(work: Any, dataset: Dataset, *given: Any) -> tuple[float, float, float]:
    began = time.process_time()
    result = work(dataset, *given)
    assert result.status == "converged", result.status
    return result.read_bytes / dataset.nbytes, result.relative_gap, time.process_time() - began


if __name__ == "__main__":
    main()
