"""What a pass on workers costs its scheduler: CPU milliseconds against the number of workers. Prints a Markdown table.

    python tests/benchmarks/passes.py [--workers 2 8 16 32] [--groups 256] [--passes 8]

The rows are next to none: 8 kB a group of chunks, kept in memory by the workers. So what is measured is the work of the
driver and the scheduler, which are one process here, and the seconds of a pass beyond reading. The workers are forks of
one server, and share the cores of this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
from distributed.utils import get_mp_context
from threadpoolctl import threadpool_limits

from streamsvm.data import groups
from streamsvm.data.dataset import Dataset
from streamsvm.data.readers import ingest
from streamsvm.engines.cluster import DistributedEngine
from streamsvm.engines.workers import prepare_workers, start_workers
from streamsvm.methods.cutting_plane.segments import add_to_totals, combine_totals, start_totals
from streamsvm.methods.warm_up import compile_kernels
from streamsvm.requests import Scan

FEATURES, GROUP_BYTES = 64, 8 << 10


def make_rows(folder: Path, n_groups: int) -> Dataset:
    """Write so many chunks of 8 kB, each of which is a group."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n_groups * GROUP_BYTES // (4 * FEATURES), FEATURES)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    return ingest(X, folder / "rows.zarr", y, shuffle=None, chunk_bytes=GROUP_BYTES)


def make_scan(n_features: int) -> Scan:
    """Return a pass of cutting planes, at points of no significance."""
    ends = np.random.default_rng(0).normal(size=(2, n_features + 1)) / 4
    shared = ends, np.array([0.5, 2.0]), np.array([0.1, 0.3, 1.0]), 1.0

    return Scan(Start(n_features), add_to_totals, combine_totals, shared)


class Start:
    """Returns empty totals."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def __call__(self) -> object:
        return start_totals(3, self.n_features + 1)


def time_passes(dataset: Dataset, n_workers: int, n_passes: int) -> tuple[float, float, float]:
    """Return the milliseconds of a pass: of driver and scheduler (CPU), of all workers (CPU), and on the clock."""
    with start_workers(n_workers, 1, 1 << 30) as client:
        client.wait_for_workers(n_workers)
        prepare_workers(client, compile_kernels)
        engine, scan = DistributedEngine(dataset, client, 64 << 20), make_scan(dataset.n_features)
        for _ in range(3):
            engine.scan(scan)
        clock, workers, driver = (
            time.perf_counter(),
            sum(client.run(time.process_time).values()),
            time.process_time(),
        )
        for _ in range(n_passes):
            engine.scan(scan)
        driver, clock = time.process_time() - driver, time.perf_counter() - clock
        workers = sum(client.run(time.process_time).values()) - workers
        engine.close()
    return 1e3 * driver / n_passes, 1e3 * workers / n_passes, 1e3 * clock / n_passes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8, 16, 32])
    parser.add_argument("--groups", type=int, default=256)
    parser.add_argument("--passes", type=int, default=8)
    options = parser.parse_args()
    compile_kernels()
    groups.SMALLEST_GROUP_BYTES, groups.GROUPS = 1, options.groups
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()
    multiprocessing.set_forkserver_preload(["tests.worker_server"])
    print(f"{options.groups} groups of chunks\n")
    print("| workers | driver and scheduler, CPU ms a pass | workers, CPU ms | ms a pass |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        dataset = make_rows(Path(name), options.groups)
        for n_workers in options.workers:
            driver, workers, clock = time_passes(dataset, n_workers, options.passes)
            print(f"| {n_workers} | {driver:.0f} | {workers:.0f} | {clock:.0f} |", flush=True)


if __name__ == "__main__":
    main()
