"""Requests and bytes of the shuffle when workers ingest into a store, against the size of the data.

    python -m benchmarks.shuffle_requests [--kilobytes 128] [--doublings 3]

The workers' tasks run in this process. Segments and runs have 4 kB in place of 64 MiB, so that small data have as many
segments and runs as large data. Runs are read from the first segments ("direct"), or from segments that are rewritten
for groups of runs ("in groups").
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ingest_on_workers import digest_all, write_svmlight
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion import on_workers, segments, tasks
from streamsvm.ingestion.ingest import IngestOptions
from tests.object_server import ObjectServer

SMALL_BYTES = 4 << 10
WAYS = {"direct": 1 << 30, "in groups": 1}


@contextmanager
def open_nobody(**_: Any) -> Iterator[None]:
    """Yield None in place of the client of a cluster."""
    yield None


def carry_out_here(_: Any, __: str, function: Callable[..., Any], given: Sequence[Any]) -> Iterator[Any]:
    """Call the function for each task in this process, as workers would."""
    return (function(*each) for each in given)


def cut_small() -> None:
    """Make segments, runs and stretches small, and let the workers' tasks run in this process."""
    segments.SEGMENT_BYTES, tasks.BLOCK_BYTES, tasks.STRETCH_BLOCKS = SMALL_BYTES, 2 * SMALL_BYTES, 4
    for each in (segments, on_workers):
        each.RUN_BYTES = SMALL_BYTES  # type: ignore[attr-defined]
    on_workers.open_workers = open_nobody  # type: ignore[assignment]
    on_workers.map_on_workers = carry_out_here


def measure(file: Path, kilobytes: int, server: ObjectServer) -> None:
    """Print the lines of the table for one size of the data."""
    write_svmlight(file, kilobytes << 10)
    file.write_bytes(file.read_bytes()[: kilobytes << 10].rpartition(b"\n")[0])
    digests = set[str]()
    for way, segments.MOST_SLICES in WAYS.items():
        on_workers.ingest_on_workers(
            [file], "s3://bucket/d.zarr", Columns(), IngestOptions(chunk_bytes=4 * SMALL_BYTES)
        )
        digests.add(digest_all(server.objects))
        ranges = [each.range for each in server.reads(".spill/") if each.range is not None]
        put = sum(int(each.headers.get("content-length", 0)) for each in server.requests)
        got = sum(stop - start for start, stop in ranges)
        told = [f"{len(ranges):,}", f"{len(server.requests) - len(ranges):,}", f"{put >> 10:,}", f"{got >> 10:,}"]
        print(f"| {kilobytes} | {way} | {' | '.join(told)} |", flush=True)
        for each in (server.requests, server.objects):
            each.clear()
    assert len(digests) == 1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kilobytes", type=int, default=128)
    parser.add_argument("--doublings", type=int, default=3)
    options = parser.parse_args()
    cut_small()
    names = [
        "kB of text",
        "runs are read",
        "ranges of scratch objects",
        "other requests",
        "KiB put",
        "KiB got in ranges",
    ]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    with tempfile.TemporaryDirectory() as folder, ObjectServer() as server:
        os.environ |= server.environment
        for k in range(options.doublings + 1):
            measure(Path(folder) / "rows.svm", options.kilobytes << k, server)


if __name__ == "__main__":
    main()
