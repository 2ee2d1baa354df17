"""A grid of fits that share reads, compared with separate fits: 6 C x 5 folds on Covertype. Prints a Markdown table.

    python benchmarks/tune.py --data FOLDER [--rows 581012] [--rounds 1]

FOLDER holds covtype/covtype.csv (54 features divided by their maxima, class 1 against the rest), which is written as a
dataset. All fits run on one thread, and keep no chunk in memory. Separate fits call `train` for each fold, one after
another; held-out rows have weight 0. The table has CPU and wall seconds, and the bytes that the grid reads, divided by
the bytes of the slowest single fit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import draw_folds
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune

COSTS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
FOLDS = 5


def fit_apart(dataset: Dataset, folder: Path, options: TrainOptions) -> tuple[float, float, list[int]]:
    """Train every C on every fold separately; return CPU seconds, wall seconds, and the bytes read by each fit."""
    fold = draw_folds(dataset, options, FOLDS)
    X = np.concatenate([rows.X for index in range(dataset.n_chunks) for rows in [dataset.read(index)]])
    y = dataset.column("y")
    spent, wall, read = 0.0, 0.0, []
    for k in range(FOLDS):
        part = ingest(X, folder / f"fold-{k}.zarr", y, sample_weight=(fold != k).astype(float), shuffle=None)
        for C in COSTS:
            began, before = time.monotonic(), time.process_time()
            read.append(train(part, replace(options, C=C)).read_bytes)
            spent, wall = spent + time.process_time() - before, wall + time.monotonic() - began
    return spent, wall, read


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=581_012)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    table = np.loadtxt(options.data / "covtype" / "covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    rows = np.random.default_rng(0).permutation(len(table))[: options.rows]
    X = np.ascontiguousarray((table[:, :54] / np.maximum(table[:, :54].max(axis=0), 1))[rows])
    settings = TrainOptions(threads=1, max_passes=400)
    head = [
        "rows",
        "separate fits: processor s, wall s",
        "tune: processor s, wall s",
        "tune over separate (<= 0.25)",
        "reads of the slowest fit, of tune",
        "bytes over the slowest fit's (<= 1.5)",
        "best C",
    ]
    print("| " + " | ".join(head) + " |" + "\n" + "|---" * len(head) + "|")
    with tempfile.TemporaryDirectory() as work:
        dataset = ingest(X, Path(work) / "rows.zarr", table[rows, 54] == 1)
        train(dataset, replace(settings, max_passes=2))  # compiles
        apart, together = [], []
        for k in range(options.rounds):
            folder = Path(work) / str(k)
            folder.mkdir()
            spent, wall, read = fit_apart(dataset, folder, settings)
            apart.append((spent, wall))
            began, before = time.monotonic(), time.process_time()
            found = tune(dataset, settings, COSTS, folds=FOLDS)
            refit = found.result
            together.append((time.process_time() - before, time.monotonic() - began))
        a, b = (tuple(median(one) for one in zip(*each, strict=True)) for each in (apart, together))
        slowest = max(trial.passes for trial in found.trials)
        print(
            f"| {len(rows):,} | {a[0]:.1f}, {a[1]:.1f} | {b[0]:.1f}, {b[1]:.1f} | {b[0] / a[0]:.2f}, {b[1] / a[1]:.2f} "
            f"| {slowest}, {found.passes} (and {refit.passes} of the last training) "
            f"| {found.read_bytes / max(*read, 1):.2f} | {found.best.C:g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
