"""Reads of the data for a grid of C with folds, for the solvers one read and line search, as a Markdown table.

    python -m benchmarks.tuning --data FOLDER [--folds 5] [--C 0.01 0.1 1] [--memory 700MB 1GB 2GB]

FOLDER holds the unpacked data. Covertype is stored as a dataset. Reads are the bytes read by the fits of the grid,
divided by the bytes of the dataset; the last fit, on all rows, is not counted. Only the resident rows are kept in
memory. CPU seconds are measured in one run on one thread, and include the last fit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.two_classes import load
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.tune import tune
from streamsvm.system.machine import parse_bytes


def measure(data: Dataset, costs: list[float], folds: int, memory: str, own: dict[str, str]) -> tuple[str, ...]:
    """Return the passes, reads, CPU seconds and best C of a grid."""
    began = time.process_time()
    options = TrainOptions(threads=1, memory_bytes=parse_bytes(memory), options=own)
    found = tune(data, options, costs, folds=folds)
    assert all(trial.converged for trial in found.trials)
    seconds = time.process_time() - began
    return str(found.passes), f"{found.read_bytes / data.nbytes:.1f}", f"{seconds:.1f}", f"{found.best.C:g}"


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--C", type=float, nargs="+", default=[0.01, 0.1, 1.0])
    parser.add_argument("--memory", nargs="+", default=["700MB", "1GB", "2GB"])
    given = parser.parse_args()
    opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # type: ignore[assignment,misc]
    source = load(given.data, "covtype")
    print("| memory | way | passes | reads | CPU s | best C |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        data = ingest(source.X, Path(folder) / "rows.zarr", source.y, shuffle=0)
        for memory in given.memory:
            for way in ("auto", "line-search"):
                own = {} if way == "auto" else {"acceleration": way}
                print(
                    f"| {memory} | {way} |",
                    " | ".join(measure(data, given.C, given.folds, memory, own)),
                    "|",
                    flush=True,
                )


if __name__ == "__main__":
    main()
