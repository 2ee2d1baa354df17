"""The memory of a training per row of the dataset, in the driver and in workers. Prints a Markdown table.

    python benchmarks/row_state.py [--rows 200000 600000] [--only SOLVER ...]

Each run is a separate process (the driver), which trains on two workers for a few passes, on rows of eight features.
The peak memory of the driver and of the workers is measured for both numbers of rows, and the difference is divided by
the difference of the numbers of rows. A worker holds half of the rows. The workers keep no decoded chunks. The bytes
that engines.open projects for a driver with workers are treated in the same way: the arrays of the solver, messages to
tasks, results of a pass, and arrays by row. The last column has the projected bytes of the row states on all workers
together. Solvers that keep rows keep 1,000 rows in both runs, if this number can be set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import open as opening
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up, settle_task
from streamsvm.system.machine import peak_bytes, reset_peak

FEATURES, CHUNK_BYTES, WORKER_BYTES = 8, 1 << 20, 1 << 30
RBF = {"kernel": "rbf", "gamma": 0.05}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "line search": ("two", {"options": {"acceleration": "line-search"}}),
    "one read": ("two", {"options": {"acceleration": "one-read"}, "resident_rows": 1000}),
    "block ascent": ("two", {"options": {"acceleration": "block-ascent"}, "resident_rows": 1000}),
    "regression, cutting planes": ("numbers", {"task": "regress", "solver": "cutting-plane"}),
    "regression, 1,000 rows kept": ("numbers", {"task": "regress", "resident_rows": 1000}),
    "newton": ("two", {"loss": "logistic"}),
    "newton, 1,000 rows kept": ("two", {"loss": "logistic", "resident_rows": 1000}),
    "squared hinge, 1,000 rows kept": ("two", {"loss": "squared_hinge", "resident_rows": 1000}),
    "one class, linear": ("two", {"task": "one-class", "solver": "cutting-plane", "nu": 0.01}),
    "Crammer-Singer": ("many", {"task": "crammer-singer", "resident_rows": 1000}),
    "rank": ("queries", {"task": "rank"}),
    "roc-area": ("two", {"task": "roc-area"}),
    "interior-point": ("two", {"solver": "interior-point"}),
    "smo": ("two", {"solver": "smo", "resident_rows": 1000, **RBF}),
    "irwls": ("two", {"solver": "irwls", "resident_rows": 1000, **RBF}),
    "regression, kernel": ("numbers", {"task": "regress", "solver": "smo", "resident_rows": 1000, **RBF}),
    "one class, kernel": ("two", {"task": "one-class", "solver": "smo", "nu": 0.01, "resident_rows": 1000, **RBF}),
    "Crammer-Singer, kernel": ("many", {"task": "crammer-singer", "solver": "smo", "resident_rows": 1000, **RBF}),
    "budgeted-sgd": ("two", {"solver": "budgeted-sgd", "options": {"budget": 50}, **RBF}),
}


def make_rows(path: Path, kind: str, n_rows: int) -> Dataset:
    """Write rows of two or five classes, rows with regression targets, or rows in queries of a hundred."""
    if path.exists():
        return open_dataset(path)
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, FEATURES), np.float32)
    y, more = np.where(X[:, 0] + random.standard_normal(n_rows) > 0, 1, -1), dict[str, Any]()
    if kind == "many":
        y = random.integers(0, 5, n_rows)
    if kind == "numbers":
        y, more = X[:, 0] + random.standard_normal(n_rows), {"regression": True}
    if kind == "queries":
        y, more = random.integers(0, 5, n_rows), {"qid": np.arange(n_rows) // 100}
    return ingest(X, path, y, layout="dense", chunk_bytes=CHUNK_BYTES, **more)


def run_one(case: str, path: str) -> None:
    """Train one case, and print the projected and the measured bytes."""
    asked = {"max_passes": 5, "workers": 2, "memory_bytes": WORKER_BYTES, **CASES[case][1]}
    options = TrainOptions(**asked) if "nu" in asked else TrainOptions(C=1e-3, **asked)
    data = open_dataset(path)
    need = set_up(data, settle_task(data, options)).memory(1)
    peaks: dict[int, int] = {}
    reset_peak()
    with patch.object(opening, "DistributedEngine", partial(_without_pins, peaks)):
        train(data, options)
    sent = 2 * need.shared_bytes + need.gathered_bytes + need.by_row_bytes
    print(json.dumps([need.driver_bytes, sent, peak_bytes(), sum(peaks.values()), need.state_bytes]))


def _without_pins(peaks: dict[int, int], source: Any, client: Any, pin_bytes: int, *more: Any) -> Any:
    """Return an engine whose workers keep no chunks. The memory peaks of the workers are appended to `peaks`."""
    engine = DistributedEngine(source, client, 0, *more)
    engine.costs.peaks = peaks
    return engine


def measure(case: str, work: Path, numbers: list[int]) -> list[float]:
    """Return bytes per row, for each figure that `run_one` prints."""
    found = []
    for n_rows in numbers:
        kind = CASES[case][0]
        make_rows(work / f"{kind}-{n_rows}", kind, n_rows)
        command = [sys.executable, __file__, "--one", case, str(work / f"{kind}-{n_rows}")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"{case}: {ended.stderr[-1000:]}")
        found.append(json.loads(ended.stdout.splitlines()[-1]))
    few, many = np.array(found, dtype=float)
    return list((many - few) / (numbers[1] - numbers[0]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs=2, default=[200_000, 600_000])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(*options.one)
        return
    print(
        "| solver | its own | for messages | projected | measured | all workers, measured | numbers that stay there |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for case in options.only:
            own, sent, peak, there, kept = measure(case, Path(name), options.rows)
            driver = f"{own:.0f} | {sent:.0f} | {own + sent:.0f} | {peak:.0f}"
            print(f"| {case} | {driver} | {there:.0f} | {kept:.0f} |", flush=True)


if __name__ == "__main__":
    main()
