"""Reads of the data to a certified gap, by one read and by a line search, as a Markdown table.

    python tests/benchmarks/one_read.py --data FOLDER [--seeds 4] [--tol 1e-3] [--only NAME ...] [--by-default]

FOLDER: the unpacked data. Each dataset is stored, shuffled by each of the seeds, and read from there: reads are the
bytes read, those of the sample and of single rows included, over the bytes of the dataset. Nothing is kept in memory
but the resident rows, which the line search has none of. CPU seconds are medians, on one thread, of both in turn. The
constants of the method were chosen with the first five datasets; they have not been changed since the last four were
run. With --by-default, the resident rows are those that are kept if nothing is asked for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from streamsvm.data.dataset import Dataset
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.readers import ingest
from streamsvm.engines import opening
from streamsvm.engines.dask import ThreadedEngine
from streamsvm.methods.set_up import set_up
from streamsvm.numeric.rows import F64
from streamsvm.training.train import Result, TrainOptions, train
from tests.benchmarks.two_classes import load

RUNS = (
    ("covtype", 0.01, 10), ("covtype", 1.0, 10), ("covtype", 1.9, 10), ("covtype", 0.01, 20), ("covtype", 1.0, 30),
    ("ijcnn1", 1.0, 10), ("ijcnn1", 1.0, 30), ("a9a", 0.05, 10), ("a9a", 0.05, 30), ("a9a", 1.0, 10), ("a9a", 1.0, 30),
    ("w8a", 0.1, 10), ("w8a", 0.1, 30), ("generated", 0.01, 10),
    ("skin", 1.0, 10), ("phishing", 1.0, 10), ("phishing", 1.0, 30), ("mushrooms", 1.0, 10), ("mushrooms", 1.0, 30),
    ("letter", 1.0, 10), ("letter", 1.0, 30),
)  # fmt: skip  # data, C, resident rows in percent
WAYS = ("one-read", "line-search")
N, D = 2_000_000, 30  # generated rows
CHUNKS = 64  # of a dataset, so that small data are read like large data


def make_rows() -> ArrayDataset:
    """Return rows of two overlapping classes, one label in twenty of which is wrong."""
    random = np.random.default_rng(3)
    X, w = random.normal(size=(N, D)).astype(np.float32), random.normal(size=D)
    scores: F64 = X @ (w / np.linalg.norm(w)) + 0.3 * random.normal(size=N)
    flipped = random.random(N) < 0.05
    return ArrayDataset(X, ((scores > 0.3) != flipped).astype(np.int32), np.array([-1, 1]))


def store(source: ArrayDataset, seed: int, folder: Path) -> Dataset:
    """Store the rows, shuffled by the seed."""
    path = folder / f"{seed}.zarr"
    return ingest(source.X, path, source.y, shuffle=seed, chunk_bytes=source.nbytes // CHUNKS, overwrite=True)


def measure(source: Dataset, options: TrainOptions) -> tuple[Result, float]:
    """Train; return the result and CPU seconds."""
    began = time.process_time()
    result = train(source, options)
    assert result.status == "converged"
    return result, time.process_time() - began


def compare(name: str, C: float, percent: int | None, datasets: list[Dataset], tol: float) -> None:
    """Print a line of the table. percent: of the rows that are resident; None: as many as by default."""
    found: dict[str, list[tuple[Result, float]]] = {way: [] for way in WAYS}
    for data in datasets:
        for way in WAYS:
            rows = None if percent is None or way == "line-search" else f"{percent}%"
            options = TrainOptions(C=C, tol=tol, threads=1, resident_rows=rows, options={"acceleration": way})
            found[way].append(measure(data, options))
    size = datasets[0].nbytes
    reads = [" ".join(f"{result.read_bytes / size:.1f}" for result, _ in found[way]) for way in WAYS]
    gap = max(result.relative_gap or 0.0 for result, _ in found["one-read"])
    if percent is None:
        settings = set_up(datasets[0], TrainOptions(C=C)).settings
        percent = round(100 * settings["resident_rows"] / datasets[0].n_rows)
    seconds = [median(took for _, took in found[way]) for way in WAYS]
    print(
        f"| {name} | {C:g} | {percent}% | {reads[0]} | {gap:.0e} | {reads[1]} | {seconds[0]:.2f} | {seconds[1]:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--by-default", action="store_true")
    parser.add_argument("--only", nargs="*", default=[name for name, _, _ in RUNS])
    own = parser.parse_args()
    opening.ThreadedEngine = lambda source, threads, _: ThreadedEngine(source, threads)  # type: ignore[misc, assignment]
    print("| data | C | resident | reads, one read | largest gap | line search | CPU s, one read | line search |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(own.only):
            source = make_rows() if name == "generated" else load(own.data, name)
            datasets = [store(source, seed, Path(folder)) for seed in range(own.seeds)]
            del source
            asked = [(C, percent) for other, C, percent in RUNS if other == name]
            for C, percent in dict.fromkeys((C, None) for C, _ in asked) if own.by_default else asked:
                compare(name, C, percent, datasets, own.tol)


if __name__ == "__main__":
    main()
