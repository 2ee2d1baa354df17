"""CPU seconds of `predict`, compared with only reading the same rows: the table of docs/command_line.md.

python benchmarks/predicting.py [ROWS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from streamsvm import ingest
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.readers import open_files
from streamsvm.models.model import LinearModel
from streamsvm.models.predict import predict

D = 30


def measure(work: Callable[[], object]) -> float:
    """Call a function twice, and return the CPU seconds of the second call; the first call compiles."""
    work()
    began = time.process_time()
    work()
    return time.process_time() - began


def read_chunks(dataset: Dataset) -> None:
    """Read and verify all tiles of a dataset in this thread."""
    for index in range(dataset.n_chunks):
        for _ in dataset.tiles(index):
            pass


def main(n_rows: int) -> None:
    random = np.random.default_rng(0)
    names = tuple(f"x{j}" for j in range(D))
    X = random.normal(size=(n_rows, D)).astype(np.float32)
    model = LinearModel(coef=random.normal(size=D), intercept=0.0, classes=np.array([-1, 1]), feature_names=names)
    columns = Columns(features=names, require_label=False)
    with TemporaryDirectory() as folder:
        rows = Path(folder)
        frame = pd.DataFrame(X.round(4), columns=list(names))
        frame.to_csv(rows / "rows.csv", index=False)
        frame.to_parquet(rows / "rows.parquet")
        dataset = ingest(frame, rows / "rows.zarr")
        sources = {
            "dataset": (dataset, lambda: read_chunks(dataset)),
            "CSV": (rows / "rows.csv", lambda: sum(r.n_rows for r in open_files([rows / "rows.csv"], None, columns))),
            "Parquet": (
                rows / "rows.parquet",
                lambda: sum(r.n_rows for r in open_files([rows / "rows.parquet"], None, columns)),
            ),
        }
        print("| rows from | read alone | to .npy | to .parquet | to .csv |\n|---|---|---|---|---|")
        for name, (source, read) in sources.items():
            outs = [rows / f"p.{ending}" for ending in ("npy", "parquet", "csv")]
            found = [measure(read), *(measure(partial(predict, model, source, out)) for out in outs)]
            print(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds in found)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
