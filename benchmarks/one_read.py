"""Reads of the data until a gap is certified, with resident rows and by a line search, as a Markdown table.

    python -m benchmarks.one_read --data FOLDER [--seeds 4] [--tol 1e-3] [--only NAME ...] [--by-default]

FOLDER holds the unpacked data. For each seed, each dataset is shuffled and stored. Reads are the bytes read and written
(including the sample and single rows), divided by the bytes of the dataset. Only the resident rows are kept in memory;
the line search has no resident rows, and is run for the first seed only. "asked" is the number of reads that was set as
a goal. CPU seconds are medians on one thread; the two methods take turns. The constants of the method were chosen on
the first five datasets, and have not been changed since the other datasets were run. With --by-default, the number of
resident rows is the default.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.two_classes import load
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.numeric.rows import F64
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up
from streamsvm.system.errors import InputError

RUNS = (
    ("covtype", 0.01, 10, 2.2),
    ("covtype", 1.0, 10, 2.2),
    ("covtype", 1.9, 10, 2.2),
    ("covtype", 0.01, 20, 1.1),
    ("covtype", 1.0, 30, 1.1),
    ("ijcnn1", 1.0, 10, 3.0),
    ("ijcnn1", 1.0, 30, 1.1),
    ("a9a", 0.05, 10, 4.0),
    ("a9a", 0.05, 30, 2.3),
    ("a9a", 1.0, 10, 5.0),
    ("a9a", 1.0, 30, 2.3),
    ("w8a", 0.1, 10, 10.0),
    ("w8a", 0.1, 30, 4.0),
    ("generated", 0.01, 10, 1.1),
    ("generated", 0.01, 3, 0),
    ("skin", 1.0, 10, 0),
    ("phishing", 1.0, 10, 0),
    ("phishing", 1.0, 30, 0),
    ("mushrooms", 1.0, 10, 0),
    ("mushrooms", 1.0, 30, 0),
    ("letter", 1.0, 10, 0),
    ("letter", 1.0, 30, 0),
    ("waveform", 1.0, 10, 0),
    ("waveform", 1.0, 30, 0),
    ("splice", 1.0, 30, 0),
    ("banana", 1.0, 10, 0),
    ("generated wide", 0.1, 10, 0),
    ("generated rare", 0.1, 10, 0),
)  # data, C, resident rows in percent, and the goal in reads (0: none)
WAYS: dict[str, dict[str, str]] = {
    "by default": {},
    "one read": {"acceleration": "one-read"},
    "with scratch": {"acceleration": "one-read", "scratch": "FOLDER"},
    "line search": {"acceleration": "line-search"},
}
# The numbers of rows and features, the score above which a row is positive, and the share of wrong labels
GENERATED = {
    "generated": (2_000_000, 30, 0.3, 0.05),
    "generated wide": (200_000, 120, 0.3, 0.02),
    "generated rare": (2_000_000, 8, 2.0, 0.001),
}
CHUNKS = 64  # the number of chunks of a dataset, large enough that small data are read like large data


def make_rows(name: str = "generated") -> ArrayDataset:
    """Return rows of two overlapping classes, some labels of which are wrong."""
    n, d, threshold, wrong = GENERATED[name]
    random = np.random.default_rng(3)
    X, w = random.normal(size=(n, d)).astype(np.float32), random.normal(size=d)
    scores: F64 = X @ (w / np.linalg.norm(w)) + 0.3 * random.normal(size=n)
    flipped = random.random(n) < wrong
    return ArrayDataset(X, ((scores > threshold) != flipped).astype(np.int32), np.array([-1, 1]))


def store(source: ArrayDataset, seed: int, folder: Path) -> Dataset:
    """Store the rows, shuffled by the seed."""
    path = folder / f"{seed}.zarr"
    return ingest(source.X, path, source.y, shuffle=seed, chunk_bytes=source.nbytes // CHUNKS, overwrite=True)


def measure(source: Dataset, options: TrainOptions) -> tuple[Result, float]:
    """Train, and return the result and the CPU seconds."""
    began = time.process_time()
    result = train(source, options)
    assert result.status == "converged"
    return result, time.process_time() - began


def compare(name: str, C: float, percent: int | None, asked: float, datasets: list[Dataset], tol: float) -> None:
    """Print a line of the table. percent: the percentage of resident rows; None: the default."""
    found: dict[str, list[tuple[Result, float]]] = {way: [] for way in WAYS}
    for data in datasets:
        for way, given in WAYS.items():
            if way == "line search" and data is not datasets[0]:
                continue
            own = {key: str(Path(data.path).parent) if value == "FOLDER" else value for key, value in given.items()}
            rows = None if percent is None or way == "line search" else f"{percent}%"
            try:
                options = TrainOptions(C=C, tol=tol, threads=1, resident_rows=rows, options=own)
                found[way].append(measure(data, options))
            except InputError:  # with too few rows for one read, there are no resident rows
                continue
    size = datasets[0].nbytes
    reads = [
        " ".join(f"{(result.read_bytes + result.scratch_bytes) / size:.3g}" for result, _ in found[way]) for way in WAYS
    ]
    gap = max(result.relative_gap or 0.0 for result, _ in found["by default"])
    settings = set_up(datasets[0], TrainOptions(C=C, resident_rows=None if percent is None else f"{percent}%")).settings
    share = 100 * settings["resident_rows"] / datasets[0].n_rows
    seconds = " | ".join(f"{median(took for _, took in found[way]):.2f}" if found[way] else "-" for way in WAYS)
    first = f"| {name} | {C:g} | {share:.0f}% | {asked or '-'} | {reads[0]} ({settings['acceleration']}) | {gap:.0e}"
    print(f"{first} | {' | '.join(reads[1:])} | {seconds} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--by-default", action="store_true")
    parser.add_argument("--only", nargs="*", default=[name for name, *_ in RUNS])
    own = parser.parse_args()
    opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # type: ignore[misc, assignment]
    reads, ways = list(WAYS), " | ".join(WAYS)
    reads.insert(1, "largest gap")
    print(f"| data | C | resident | target | reads, {' | '.join(reads)} | CPU s, {ways} |")
    print("|---" * 13 + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(own.only):
            source = make_rows(name) if name in GENERATED else load(own.data, name)
            datasets = [store(source, seed, Path(folder)) for seed in range(own.seeds)]
            del source
            runs = [run[1:] for run in RUNS if run[0] == name]
            for C, percent, asked in dict.fromkeys((C, None, 0) for C, *_ in runs) if own.by_default else runs:
                compare(name, C, percent, asked, datasets, own.tol)


if __name__ == "__main__":
    main()
