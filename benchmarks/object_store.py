"""Passes over a dataset in an object store and over the same dataset on the local disk. Prints a Markdown table.

    python -m benchmarks.object_store [--megabytes 400] [--latency 0 0.02 0.1] [--requests 1 2 4 8] [--threads 2]

The store is tests/object_server.py, in a separate process on loopback; its answers begin after the latency. No chunk is
kept in memory, and all chunks are verified. The jobs take turns (local, remote, local, remote, ...), and the table has
medians of --rounds rounds. --requests: the maximum number of ranges of an open chunk that are requested at once, in
place of the default. --cache: for each latency, also measure two passes with a cache on the disk: the first pass fills
the cache, and the second pass reads from it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from streamsvm.data.open import open_dataset
from streamsvm.data.remote import files, store
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan
from tests.object_server import ObjectServer
from tests.remote import upload


def count_rows() -> list[int]:
    """Return empty totals."""
    return [0]


def add_rows(totals: list[int], rows: Rows) -> None:
    """Add the number of rows of a tile; this takes hardly any time."""
    totals[0] += rows.n_rows


def add_counts(left: list[int], right: list[int]) -> list[int]:
    """Add two totals."""
    return [left[0] + right[0]]


def serve(folder: str, latency: float) -> None:
    """Serve a dataset until standard input ends."""
    with ObjectServer(latency=latency) as server:
        upload(server, folder)
        print(server.url, flush=True)
        sys.stdin.read()


def measure(dataset: Dataset, threads: int) -> tuple[float, float]:
    """Return the wall seconds of a pass, and this process's CPU seconds."""
    engine = ThreadedEngine(dataset, threads)
    began, spent = time.perf_counter(), time.process_time()
    totals = engine.scan(Scan(count_rows, add_rows, add_counts))
    seconds = time.perf_counter() - began, time.process_time() - spent
    engine.close()
    assert totals == [dataset.n_rows]
    return seconds


def compare(path: str, latency: float, given: argparse.Namespace) -> list[list[str]]:
    """Return the lines of the table for a latency."""
    command = [sys.executable, "-m", "benchmarks.object_store", "--serve", path, "--latency", str(latency)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        os.environ |= ObjectServer.environment_of(server.stdout.readline().strip())
        store.connect.cache_clear()
        local, remote = open_dataset(path), open_dataset("s3://bucket/rows.zarr")
        lines = []
        for requests in given.requests:
            files.RANGES_AHEAD = requests
            jobs: list[list[tuple[float, float]]] = [[], []]
            for _ in range(given.rounds):
                for times, dataset in zip(jobs, (local, remote), strict=True):
                    times.append(measure(dataset, given.threads))
            (here, _), (there, spent) = (np.median(times, axis=0) for times in jobs)
            rates = (f"{local.nbytes / seconds / 1e6:.0f} MB/s" for seconds in (there, here))
            numbers = f"{there:.2f} s", *rates, f"{spent:.2f} s"
            lines.append([f"{1000 * latency:.0f} ms", str(requests), *numbers])
        lines += [] if not given.cache else fill_cache(path, latency, given)
        server.communicate()
    return lines


def fill_cache(path: str, latency: float, given: argparse.Namespace) -> list[list[str]]:
    """Return the lines of a pass that fills a cache and of a pass that reads from it."""
    jobs: list[list[tuple[float, float]]] = [[], []]
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
            cached = open_dataset("s3://bucket/rows.zarr", cache=f"{folder}:100GB")
            for times in jobs:
                times.append(measure(cached, given.threads))
    lines = []
    for name, times in zip(("fills the cache", "reads the cache"), jobs, strict=True):
        seconds, spent = np.median(times, axis=0)
        rate = f"{cached.nbytes / seconds / 1e6:.0f} MB/s"
        lines.append([f"{1000 * latency:.0f} ms", name, f"{seconds:.2f} s", rate, "", f"{spent:.2f} s"])
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0, 0.02, 0.1], help="seconds")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.latency[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.zarr")
        write_generated(path, given.megabytes * 2500, Truth(100, seed=0))
        print("| latency | in flight | a pass | store | disk | processors |")
        print("|---|---|---|---|---|---|")
        for latency in given.latency:
            for line in compare(path, latency, given):
                print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
