"""Throughput of `read_svmlight` and of scikit-learn's `load_svmlight_file`, in turn, on the same files.

    python benchmarks/svmlight.py

Prints a Markdown table of medians; the exit status is 1 if a ratio is below the promised 5. The files are a9a, news20
and ijcnn1 from STREAMSVM_DATA, or generated files like them, repeated to about 100 MB and read from the page cache.
Both readers check every line, and keep all rows in memory with float32 values: `read_svmlight` as a matrix for each
block (the form that ingest uses), scikit-learn as one matrix.
"""

from __future__ import annotations

import lzma
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.datasets import load_svmlight_file

from streamsvm.data.sources.svmlight import read_svmlight

THREADS = 2
REPEATS = 5
FILE_BYTES = 100_000_000
PROMISED_RATIO = 5
# features, pairs in a row
SHAPES = {"adult/a9a": (123, 14), "news20/news20": (62_061, 80), "ijcnn1/ijcnn1.trn": (22, 13)}


def text_of(name: str) -> bytes:
    """Return the decompressed text of a dataset, or generated rows like it."""
    folder = os.environ.get("STREAMSVM_DATA")
    if folder:
        return lzma.decompress((Path(folder) / f"{name}.xz").read_bytes())
    rng = np.random.default_rng(0)
    n_features, n_pairs = SHAPES[name]
    lines = []
    for _ in range(200_000 // n_pairs):
        indices = np.sort(rng.choice(n_features, n_pairs, replace=False)) + 1
        values = {
            "adult/a9a": np.ones(n_pairs, int),
            "news20/news20": rng.geometric(0.7, n_pairs),
            "ijcnn1/ijcnn1.trn": rng.uniform(-1, 1, n_pairs).round(6),
        }[name]
        pairs = " ".join(f"{index}:{value}" for index, value in zip(indices, values, strict=True))
        lines.append(f"{rng.choice([-1, 1])} {pairs}\n")
    return "".join(lines).encode()


def read_ours(path: Path) -> tuple[int, int]:
    parts = list(read_svmlight([path], THREADS))
    return sum(len(part.labels) for part in parts), sum(part.X.nnz for part in parts)


def read_theirs(path: Path) -> tuple[int, int]:
    X, labels = load_svmlight_file(str(path), dtype=np.float32)
    return len(labels), X.nnz


def seconds_of(read: Callable[[Path], tuple[int, int]], path: Path, expected: tuple[int, int]) -> float:
    start = perf_counter()
    found = read(path)
    seconds = perf_counter() - start
    if found != expected:
        raise AssertionError(f"{read.__name__}: {found} rows and pairs, expected {expected}")
    return seconds


def compare(name: str, path: Path) -> float:
    """Print a row of the table, and return the ratio of the throughputs."""
    text = text_of(name)
    text *= round(FILE_BYTES / len(text))
    path.write_bytes(text)
    expected = read_ours(path)  # compiles the kernel and warms the page cache
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(seconds_of(read_ours, path, expected))
        theirs.append(seconds_of(read_theirs, path, expected))
    megabytes, ratio = len(text) / 1e6, median(theirs) / median(ours)
    speeds = f"{megabytes / median(ours):.0f} | {megabytes / median(theirs):.1f}"
    print(f"| {name} | {megabytes:.0f} | {speeds} | {ratio:.1f} |", flush=True)
    return ratio


def main() -> int:
    print(f"| file | MB | streamsvm, {THREADS} threads, MB/s | scikit-learn, MB/s | ratio |")
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ratios = [compare(name, Path(folder) / "rows.svm") for name in SHAPES]
    return int(min(ratios) < PROMISED_RATIO)


if __name__ == "__main__":
    sys.exit(main())
