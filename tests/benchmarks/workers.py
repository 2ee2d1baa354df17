"""Rows a second of two worker processes against one, no chunk pinned, one thread each. Prints a Markdown table.

    python tests/benchmarks/workers.py [--gigabytes 2] [--features 54 256] [--rounds 5]

One cluster of two workers and one of one worker are up at the same time; a pass on one, then on the other, in turn.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from reading import generate, third_pass, time_in_turn

from streamsvm.engines.dask import DistributedEngine
from streamsvm.engines.workers import prepare_worker, start_workers
from streamsvm.numeric.warm_up import compile_kernels


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--features", type=int, nargs="+", default=[54, 256])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    compile_kernels()
    print("| features | 1 worker, million rows/s | 2 workers | ratio |\n|---|---|---|---|")
    with start_workers(1, 1, 4 << 30) as one, start_workers(2, 1, 4 << 30) as two:
        for client in (one, two):
            client.run(prepare_worker)
        for n_features in options.features:
            with tempfile.TemporaryDirectory() as name:
                dataset = generate(Path(name) / "rows.zarr", options.gigabytes, n_features)
                scan = third_pass(dataset)
                jobs = {
                    k: partial(DistributedEngine(dataset, client).scan, scan) for k, client in (("1", one), ("2", two))
                }
                spent = time_in_turn(jobs, options.rounds, lambda: None)
                rates = {k: dataset.n_rows / seconds / 1e6 for k, seconds in spent.items()}
                print(
                    f"| {n_features} | {rates['1']:.2f} | {rates['2']:.2f} | {rates['2'] / rates['1']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
