"""Rows per second of two worker processes, compared with one. Prints a Markdown table.

    python benchmarks/workers.py [--gigabytes 2] [--features 54 256] [--rounds 5]

Two clusters run at the same time, one with two workers and one with a single worker. Passes alternate between them.
Each worker has one thread, and keeps no chunk in memory. For comparison, the same files are only read into a buffer,
half of them by each of two workers.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from distributed import Client
from reading import generate, third_pass, time_in_turn

from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.cluster.workers import prepare_worker, start_workers
from streamsvm.solvers.set_up import ALL_MODELS, compile_all


def read_on(client: Client, files: list[Path], n_workers: int) -> None:
    """Read the files, an equal share on each worker."""
    shares = [files[k::n_workers] for k in range(n_workers)]
    client.gather(client.map(read_into_buffer, shares, pure=False))


def read_into_buffer(files: list[Path]) -> None:
    """Read files into one reused buffer of half a MiB."""
    buffer = np.empty(1 << 19, np.uint8)
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--features", type=int, nargs="+", default=[54, 256])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    compile_all(ALL_MODELS)
    print("| features | 1 worker, million rows/s | 2 workers | ratio | ratio of plain reads |\n|---|---|---|---|---|")
    with start_workers(1, 1, 4 << 30) as one, start_workers(2, 1, 4 << 30) as two:
        for client in (one, two):
            client.run(prepare_worker, load=partial(compile_all, ALL_MODELS))
        for n_features in options.features:
            with tempfile.TemporaryDirectory() as name:
                dataset = generate(Path(name) / "rows.zarr", options.gigabytes, n_features)
                files = sorted(file for file in Path(name).glob("rows.zarr/X/c/**/0") if file.is_file())
                scan = third_pass(dataset)
                jobs = {
                    "1": partial(DistributedEngine(dataset, one).scan, scan),
                    "2": partial(DistributedEngine(dataset, two).scan, scan),
                    "read 1": partial(read_on, one, files, 1),
                    "read 2": partial(read_on, two, files, 2),
                }
                spent = time_in_turn(jobs, options.rounds, lambda: None)
                rates = {k: dataset.n_rows / seconds / 1e6 for k, seconds in spent.items()}
                print(
                    f"| {n_features} | {rates['1']:.2f} | {rates['2']:.2f} | {rates['2'] / rates['1']:.2f} "
                    f"| {rates['read 2'] / rates['read 1']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
