"""Updates of a model after rows are appended, deleted or relabelled: bytes read, and optima outside the ball.

    STREAMSVM_DATA=FOLDER python -m benchmarks.append [--rows 2000000] [--seeds 3] [--edits added deleted ...]

The data are Covertype (class 2 against the rest, features of variance 1), and generated rows of two overlapping
classes. For each seed, 1% or 10% of the rows are drawn at random. "added": a model is trained on the other rows, with a
kept ball; then the drawn rows are appended, and the model is updated. The update is compared with a new training on all
rows. "deleted", "relabelled": a model is trained on all rows; then the drawn rows are deleted, or get the other label.
"read": the bytes read, divided by the bytes of the whole dataset. "left": the number of updates that read all rows
because the new optimum was not proved to be in the ball. Chunks that fit into memory are read only once for all passes,
so "read" is less than the number of passes. CPU seconds are measured in this process. In the first line of the table,
they include the time to load compiled functions.

With --starts, another table is printed instead: passes and CPU seconds on Covertype, for new trainings and for
trainings that start from a model with C = 0.01 and the default tolerance.

With --many N, the cost of N appends of ten rows each is printed instead: CPU seconds of an append, of opening the
dataset, and of a pass over rows in memory. The same figures are printed for one ingest of all these rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.edit import delete_rows
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.runs.update import train_from

FEATURES = 30
EDITS = ("added", "deleted", "relabelled")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--edits", nargs="+", choices=EDITS, default=EDITS)
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--many", type=int)
    options = parser.parse_args()
    if options.many:
        _print_many(options.many)
        return
    if options.starts:
        _print_starts()
        return
    print("| data | C | resident | rows | ball: read | gap | left | CPU s ", end="")
    print("| new training: read | passes | gap | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, X, y, costs, shares in _list_data(options.rows):
        for C in costs:
            for resident in shares:
                for edit in options.edits:
                    for share in (0.01, 0.1):
                        print(_measure(name, X, y, C, resident, edit, share, options.seeds), flush=True)


def _list_data(n_rows: int) -> Iterator[tuple[str, Any, Any, tuple[float, ...], tuple[str, ...]]]:
    if (Path(os.environ["STREAMSVM_DATA"]) / "covtype").exists():
        X, y = _load_covertype()
        yield "Covertype", X, y, (0.01,), ("10%", "30%")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n_rows, FEATURES), dtype=np.float32), np.where(rng.random(n_rows) < 0.5, 1, -1)
    X += np.float32(0.25) * y[:, None].astype(np.float32)
    yield f"{n_rows:,} generated rows", X, np.where(rng.random(n_rows) < 0.05, -y, y), (20_000 / n_rows,), ("10%",)


def _load_covertype() -> tuple[Any, Any]:
    path = Path(os.environ["STREAMSVM_DATA"]) / "covtype" / "covtype.csv"
    rows = np.loadtxt(path, delimiter=",", dtype=np.float32, skiprows=1)
    X = (rows[:, :-1] - rows[:, :-1].mean(axis=0)) / np.maximum(rows[:, :-1].std(axis=0), 1e-9)
    return X, np.where(rows[:, -1] == 2, 1, -1)


def _print_starts() -> None:
    """Print passes and CPU seconds of new trainings and of trainings that start from a model."""
    print("| acceleration | resident | C | tol | new: passes | CPU s | from the model: passes | CPU s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        X, y = _load_covertype()
        dataset = ingest(X, Path(folder) / "rows.zarr", y)
        for name, resident in (("one-read", "2%"), ("one-read", "10%"), ("line-search", None)):
            options = TrainOptions(C=0.01, resident_rows=resident, options={"acceleration": name})
            train_from(dataset, options, Path(folder) / name, overwrite=True)
            for C, tol in ((0.01, 1e-4), (0.02, 1e-3), (0.1, 1e-3)):
                other = replace(options, C=C, tol=tol)
                (_, new, _, long), (_, passes, _, short) = (
                    _run(train_from, dataset, other, None, start) for start in (None, Path(folder) / name)
                )
                line = f"| {name} | {resident or '-'} | {C:g} | {tol:g} | {new} | {long:.2f} | {passes} | {short:.2f} |"
                print(line, flush=True)


def _print_many(n_appends: int, at_once: int = 20_000, few: int = 10) -> None:
    """Print the cost of many appends of a few rows, and of reading these rows."""
    random = np.random.default_rng(0)
    X = random.standard_normal((at_once + few * n_appends, FEATURES), dtype=np.float32)
    y = np.where(X[:, 0] + random.standard_normal(len(X)) > 0, 1, -1)
    print("| rows | chunks | the last append: CPU s | opening: CPU s | a pass: CPU s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ingest(X[:at_once], Path(folder) / "many", y[:at_once])
        for end in range(at_once + few, len(X) + 1, few):
            began = time.process_time()
            ingest(X[end - few : end], Path(folder) / "many", y[end - few : end], append=True)
        last = f"{time.process_time() - began:.2f}"
        ingest(X, Path(folder) / "once", y)
        options = TrainOptions(C=0.01, threads=1, options={"acceleration": "line-search"})
        for name, cost in (("once", "-"), ("many", last)) * 2:  # the first training of each loads compiled functions
            began = time.process_time()
            dataset = open_dataset(Path(folder) / name)
            opened = time.process_time()
            passes = train(dataset, options).passes
            each = (time.process_time() - opened) / passes
            print(
                f"| {dataset.n_rows:,} | {dataset.n_chunks} | {cost} | {opened - began:.3f} | {each:.4f} |", flush=True
            )


def _measure(name: str, X: Any, y: Any, C: float, resident: str, edit: str, share: float, n_seeds: int) -> str:
    """Return a line of the table, with means over the seeds."""
    updates, trainings, n_left = [], [], 0
    for seed in range(n_seeds):
        order = np.random.default_rng(seed).permutation(len(X))
        old, new = np.split(order, [round((1 - share) * len(X))])
        with tempfile.TemporaryDirectory() as folder:
            path, run = Path(folder) / "rows.zarr", Path(folder) / "run"
            options = TrainOptions(C=C, resident_rows=resident)
            first = old if edit == "added" else slice(None)
            dataset = ingest(X[first], path, y[first])
            train_from(dataset, options, run, keep_ball=True)
            if edit == "added":
                dataset = ingest(X[new], path, y[new], append=True)
            else:
                rows = dataset.take(order[: len(new)])
                dataset = delete_rows(path, order[: len(new)])
            if edit == "relabelled":
                dataset = ingest(rows.X, path, np.where(rows.y == 1, -1, 1), append=True)
            update = _run(train_from, dataset, options, None, run)
            training = _run(train, dataset, options)
            assert update[2] <= options.tol
            n_left += update[0] >= 1.0
            updates.append(update)
            trainings.append(training)
    (read, _, gap, seconds), (reads, passes, other, more) = np.mean(updates, axis=0), np.mean(trainings, axis=0)
    return (
        f"| {name} | {C:g} | {resident} | {share:.0%} {edit} | {read:.3f} | {gap:.1e} | {n_left} of {n_seeds} "
        f"| {seconds:.2f} | {reads:.2f} | {passes:.1f} | {other:.1e} | {more:.2f} |"
    )


def _run(work: Any, dataset: Dataset, *given: Any) -> tuple[float, float, float, float]:
    began = time.process_time()
    result = work(dataset, *given)
    assert result.status == "converged", result.status
    return result.read_bytes / dataset.nbytes, result.passes, result.relative_gap, time.process_time() - began


if __name__ == "__main__":
    main()
