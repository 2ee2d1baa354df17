"""Bytes and CPU seconds of a pass over rows that are stored as float32, float16, bfloat16 and int8: docs/inputs.md.

python benchmarks/narrow_rows.py [ROWS]

The values are whole numbers from -127 to 127, so all types represent the same rows. The passes are passes of a linear
SVM, trained by cutting planes with a line search on two threads. The rows are in the page cache, so the smaller number
of bytes saves no time. The types take turns three times, and the table has the minimum of each figure.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from streamsvm import ingest
from streamsvm.data.store.dataset import Dataset
from streamsvm.train import TrainOptions, train

D = 100
DTYPES = ("float32", "float16", "bfloat16", "int8")


def read(dataset: Dataset) -> float:
    """Return the CPU seconds of reading and verifying all rows in one thread."""
    began = time.process_time()
    for index in range(dataset.n_chunks):
        for _ in dataset.tiles(index):
            pass
    return time.process_time() - began


def main(n_rows: int) -> None:
    random = np.random.default_rng(0)
    X = np.clip(random.normal(size=(n_rows, D)) * 30, -127, 127).astype(np.int8)
    y = np.where(X[:, :5].sum(axis=1) + 60 * random.normal(size=n_rows) > 0, 1, -1)
    options = TrainOptions(C=1e-9, tol=1e-3, threads=2, options={"acceleration": "none"})
    with TemporaryDirectory() as folder:
        datasets = {each: ingest(X, Path(folder) / f"{each}.zarr", y, dtype=each) for each in DTYPES}
        found: dict[str, list[tuple[float, float]]] = {each: [] for each in DTYPES}
        for _ in range(3):
            for each, dataset in datasets.items():
                reading, began = read(dataset), time.process_time()
                result = train(dataset, options)
                found[each].append((reading, (time.process_time() - began) / result.passes))
        print("| stored as | bytes of a pass | read and verified | a pass of training |\n|---|---|---|---|")
        for each, dataset in datasets.items():
            reading, training = np.min(found[each], axis=0)
            print(f"| {each} | {dataset.stored_bytes / 1e6:.0f} MB | {reading:.2f} CPU s | {training:.2f} CPU s |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
