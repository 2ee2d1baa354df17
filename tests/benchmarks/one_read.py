"""Reads of the data to a certified gap, by one read and by guided cutting planes, as a Markdown table.

    python tests/benchmarks/one_read.py --data FOLDER [--seeds 4] [--tol 1e-3]

FOLDER: the unpacked data. Reads are passes and the sample that is read before the first one, whose rows are a share of
all rows; nothing but the resident rows is kept in memory. Several seeds draw several samples; CPU seconds are medians,
on one thread, of both in turn.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import numpy as np

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64
from streamsvm.training.train import Result, TrainOptions, train
from tests.benchmarks.guided import load

RUNS = (
    ("covtype", 0.01, 10), ("covtype", 1.0, 10), ("covtype", 1.9, 10), ("covtype", 0.01, 20), ("covtype", 1.0, 30),
    ("ijcnn1", 1.0, 10), ("ijcnn1", 1.0, 30), ("a9a", 0.05, 10), ("a9a", 0.05, 30), ("a9a", 1.0, 10), ("a9a", 1.0, 30),
    ("w8a", 0.1, 10), ("w8a", 0.1, 30), ("generated", 0.01, 10),
)  # fmt: skip  # data, C, resident rows in percent
N, D = 2_000_000, 30  # generated rows


def make_rows() -> ArrayDataset:
    """Return rows of two overlapping classes, one label in twenty of which is wrong."""
    random = np.random.default_rng(3)
    X, w = random.normal(size=(N, D)).astype(np.float32), random.normal(size=D)
    scores: F64 = X @ (w / np.linalg.norm(w)) + 0.3 * random.normal(size=N)
    flipped = random.random(N) < 0.05
    return ArrayDataset(X, ((scores > 0.3) != flipped).astype(np.int32), np.array([-1, 1]))


def measure(source: ArrayDataset, options: TrainOptions) -> tuple[Result, float]:
    """Train; return the result and CPU seconds."""
    began = time.process_time()
    result = train(source, options)
    assert result.status == "converged"
    return result, time.process_time() - began


def compare(name: str, C: float, percent: int, source: ArrayDataset, seeds: int, tol: float) -> None:
    """Print a line of the table."""
    reads: dict[str, list[float]] = {"one-read": [], "guided": []}
    seconds: dict[str, list[float]] = {"one-read": [], "guided": []}
    gaps = []
    for seed in range(seeds):
        for way in ("one-read", "guided"):
            options = TrainOptions(
                C=C, tol=tol, threads=1, seed=seed, resident_rows=f"{percent}%", options={"acceleration": way}
            )
            result, took = measure(source, options)
            reads[way].append(result.passes + percent / 100)
            seconds[way].append(took)
            if way == "one-read":
                gaps.append(result.relative_gap or 0.0)
    shown = {way: " ".join(f"{count:.1f}" for count in counts) for way, counts in reads.items()}
    print(
        f"| {name} | {C:g} | {percent}% | {shown['one-read']} | {max(gaps):.0e} | {shown['guided']} | "
        f"{median(seconds['one-read']):.2f} | {median(seconds['guided']):.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tol", type=float, default=1e-3)
    own = parser.parse_args()
    print("| data | C | resident | reads, one read | largest gap | reads, guided | CPU s, one read | guided |")
    print("|---|---|---|---|---|---|---|---|")
    source, loaded = make_rows(), "generated"
    for name, C, percent in RUNS:
        if name != loaded:
            source, loaded = (make_rows() if name == "generated" else load(own.data, name)), name
        compare(name, C, percent, source, own.seeds, own.tol)


if __name__ == "__main__":
    main()
