"""Ingest to an object store and a pass over the dataset, with and without shards. Prints a Markdown table.

    python -m benchmarks.shards [--megabytes 400] [--chunk-megabytes 4] [--shards 0 64 256] [--latency 0 0.02 0.1]

The store is tests/object_server.py, in a separate process on loopback; its answers begin after the latency. The rows
are an array in memory with 100 features, which ingest writes in chunks of --chunk-megabytes. --shards are sizes in
megabytes; with 0, each chunk is an object. A pass verifies all chunks, and keeps none in memory. The jobs take turns,
and the seconds are medians of --rounds rounds. The requests of the pass include the requests that open the dataset.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.object_store import measure
from streamsvm.data.open import open_dataset
from streamsvm.data.remote import store
from streamsvm.ingestion.readers import ingest
from tests.object_server import ObjectServer, make_tag

URL = "s3://bucket/rows.zarr"


def serve(latency: float) -> None:
    """Serve an empty store.

    For each line of standard input, print the number of objects, and of requests since the last line.
    """
    with ObjectServer(latency=latency) as server:
        print(server.url, flush=True)
        for line, _ in enumerate(sys.stdin):
            print(json.dumps({"objects": len(server.objects), "requests": len(server.requests)}), flush=True)
            server.requests.clear()
            if line % 2:  # after a pass: otherwise new objects would be compared with the objects that they replace
                make_tag.cache_clear()


def write(rows: np.ndarray, given: argparse.Namespace, shard_megabytes: int) -> tuple[float, float]:
    """Ingest the rows. Return the wall seconds, and the CPU seconds of this process."""
    began, spent = time.perf_counter(), time.process_time()
    sizes = {"chunk_bytes": given.chunk_megabytes << 20, "shard_bytes": shard_megabytes << 20}
    ingest(rows, URL, np.arange(len(rows)) % 2, overwrite=True, **sizes)
    return time.perf_counter() - began, time.process_time() - spent


def compare(rows: np.ndarray, latency: float, given: argparse.Namespace) -> list[str]:
    """Return the lines of the table for a latency."""
    command = [sys.executable, "-m", "benchmarks.shards", "--serve", "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        os.environ |= ObjectServer.environment_of(server.stdout.readline().strip())
        store.connect.cache_clear()
        found: dict[int, list[Any]] = {size: [] for size in given.shards}
        for _ in range(given.rounds):
            for size, rounds in found.items():
                written = count(partial(write, rows, given, size), server)
                rounds.append((written, count(lambda: measure(open_dataset(URL), 2), server)))
        server.communicate()
    return [describe(latency, size, rounds) for size, rounds in found.items()]


def count(work: Callable[[], tuple[float, float]], server: subprocess.Popen[str]) -> tuple[float, ...]:
    """Do some work; return its wall and CPU seconds, its requests, and the number of objects after it."""
    assert server.stdout is not None
    assert server.stdin is not None
    seconds = work()
    server.stdin.write("\n")
    server.stdin.flush()
    told = json.loads(server.stdout.readline())
    return *seconds, told["requests"], told["objects"]


def describe(latency: float, size: int, rounds: list[Any]) -> str:
    """Return a line of the table."""
    (wrote, wrote_cpu, puts, objects), (read, read_cpu, gets, _) = np.median(rounds, axis=0)
    kind = "none" if size == 0 else f"{size} MB"
    written = f"{objects:.0f} | {puts:.0f} | {wrote:.2f} s | {wrote_cpu:.2f} s"
    return f"| {1000 * latency:.0f} ms | {kind} | {written} | {gets:.0f} | {read:.2f} s | {read_cpu:.2f} s |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--chunk-megabytes", type=int, default=4)
    parser.add_argument("--shards", type=int, nargs="+", default=[0, 64, 256], help="megabytes")
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0, 0.02, 0.1], help="seconds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.latency[0])
        return
    rows = np.random.default_rng(0).standard_normal((given.megabytes * 2500, 100), np.float32)
    print("| latency | shards | objects | requests | ingest | processors | requests | a pass | processors |")
    print("|---|---|---|---|---|---|---|---|---|")
    for latency in given.latency:
        print("\n".join(compare(rows, latency, given)), flush=True)


if __name__ == "__main__":
    main()
