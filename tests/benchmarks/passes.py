"""What a pass on workers costs beyond reading: measured on few, simulated on many. Prints Markdown tables.

    python tests/benchmarks/passes.py [--workers 2 8 16 32] [--groups 256] [--passes 8]

The rows are next to none: 8 kB a group of chunks, kept in memory by the workers. So what is measured is the work of the
driver and the scheduler, which are one process here. Heartbeats of workers and the watch over their memory, which are
work a second and not a pass, are switched off, and so is help for slow workers. The line through the numbers of workers
is what the simulation takes: see `simulate`. The workers are forks of one server.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import tempfile
import time
from pathlib import Path

import dask
import distributed.scheduler
import numpy as np
from distributed.utils import get_mp_context
from threadpoolctl import threadpool_limits

from streamsvm.data import groups
from streamsvm.data.dataset import Dataset
from streamsvm.data.readers import ingest
from streamsvm.engines import pass_on_workers
from streamsvm.engines.cluster import DistributedEngine
from streamsvm.engines.subtrees import count_levels, find_fan_in
from streamsvm.engines.workers import prepare_workers, start_workers
from streamsvm.methods.cutting_plane.segments import add_to_totals, combine_totals, start_totals
from streamsvm.methods.warm_up import compile_kernels
from streamsvm.requests import Scan

SILENT_SECONDS, REST_SECONDS = 600.0, 3.0
FEATURES, GROUP_BYTES = 64, 8 << 10
MANY = (10, 100, 320, 1000, 3200, 10_000)

# Assumed of the simulated cluster, as in pipelines/scale: 10 Gb/s, 0.2 ms. Measured there: a task that waits for one
# before it takes 18 ms, and totals of 26 kB (64 features) are packed and unpacked at 2.7 GB/s and added at 15 GB/s.
BANDWIDTH, LATENCY, LINK, PACKING, ADDING, TOTALS_BYTES = 1.25e9, 2e-4, 0.018, 2.7e9, 15e9, 26_384


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


def time_passes(dataset: Dataset, n_workers: int, n_passes: int) -> tuple[float, float, float, float]:
    """Return the milliseconds of a pass, of driver and scheduler (CPU), of workers (CPU), and on the clock.

    The last number is the CPU milliseconds of driver and scheduler in a second in which nothing is asked of them.
    """
    with start_workers(n_workers, 1, 1 << 30) as client:
        client.wait_for_workers(n_workers)
        prepare_workers(client, compile_kernels)
        engine, scan = DistributedEngine(dataset, client, 64 << 20), make_scan(dataset.n_features)
        for _ in range(3):
            engine.scan(scan)
        before = sum(client.run(time.process_time).values())
        driver, clock = time.process_time(), time.perf_counter()
        time.sleep(REST_SECONDS)
        rest = 1e3 * (time.process_time() - driver) / (time.perf_counter() - clock)
        driver, clock = time.process_time(), time.perf_counter()
        for _ in range(n_passes):
            engine.scan(scan)
        driver, clock = time.process_time() - driver, time.perf_counter() - clock
        workers = sum(client.run(time.process_time).values()) - before
        engine.close()
    return 1e3 * driver / n_passes, 1e3 * workers / n_passes, 1e3 * clock / n_passes, rest


def simulate(fixed: float, per_worker: float, n_workers: int, n_groups: int) -> tuple[float, float, float]:
    """Return the seconds of a pass beyond reading: of the scheduler, of sending w, and of joining.

    The scheduler is one server: it spends `per_worker` seconds on a worker's task and its share of the joins, half of
    them before the last worker begins. w, if it is large, reaches all workers in log2(W) steps, since those that have
    it pass it on. A task joins 16 parts of up to two totals a level, which it fetches one after another, and log16(W)
    tasks follow each other. The three add up at worst: where ranges take different times, most tasks are told of while
    others read.
    """
    shared = 16 * (FEATURES + 1)
    sending = math.ceil(math.log2(n_workers)) * (LINK + 2 * LATENCY + shared / BANDWIDTH)
    levels = count_levels(max(1, n_groups // n_workers))
    fan_in = find_fan_in(n_groups, TOTALS_BYTES)
    part = 2 * max(1, levels) * TOTALS_BYTES
    one = LINK + fan_in * (LATENCY + part * (1 / BANDWIDTH + 1 / PACKING + 1 / ADDING))
    return fixed + per_worker * n_workers, sending, math.ceil(math.log(n_workers, fan_in)) * one


def silent(_: int) -> float:
    """Return the seconds between two heartbeats of a worker."""
    return SILENT_SECONDS


def print_simulation(measured: dict[int, float]) -> None:
    """Print what a pass costs on many workers, each of which has 16 groups; with the line through what was measured."""
    slope, fixed = np.polyfit(list(measured), [ms / 1e3 for ms in measured.values()], 1)
    print(f"\ndriver and scheduler: {1e3 * fixed:.1f} ms a pass and {1e3 * slope:.2f} ms a worker\n")
    print("| workers | scheduler, s | sending w | joining | beyond reading, s |\n|---|---|---|---|---|")
    for n_workers in MANY:
        parts = simulate(max(0.0, fixed), slope, n_workers, 16 * n_workers)
        print(f"| {n_workers:,} | {parts[0]:.3f} | {parts[1]:.3f} | {parts[2]:.3f} | {sum(parts):.2f} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8, 16, 32])
    parser.add_argument("--groups", type=int, default=256)
    parser.add_argument("--passes", type=int, default=8)
    options = parser.parse_args()
    compile_kernels()
    groups.SMALLEST_GROUP_BYTES, groups.GROUPS = 1, options.groups
    forked = {"distributed.worker.multiprocessing-method": "forkserver"}
    dask.config.set({**forked, "distributed.worker.memory.monitor-interval": "1 h"})
    distributed.scheduler.heartbeat_interval = silent
    pass_on_workers.SHORTEST_PAUSE = pass_on_workers.LONGEST_PAUSE = SILENT_SECONDS
    get_mp_context()
    multiprocessing.set_forkserver_preload(["tests.worker_server"])
    print(f"{options.groups} groups of chunks\n")
    told = ("driver and scheduler, CPU ms a pass", "workers, CPU ms", "ms a pass", "at rest, CPU ms a second")
    print(f"| workers | {' | '.join(told)} |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        dataset = make_rows(Path(name), options.groups)
        measured = dict[int, float]()
        for n_workers in options.workers:
            measured[n_workers], workers, clock, rest = time_passes(dataset, n_workers, options.passes)
            print(f"| {n_workers} | {measured[n_workers]:.0f} | {workers:.0f} | {clock:.0f} | {rest:.0f} |", flush=True)
    print_simulation(measured)


if __name__ == "__main__":
    main()
