"""The cost of a random row: rows taken by number from a dataset, verified each time. Prints a Markdown table.

    python benchmarks/random_rows.py [--gigabytes 1] [--features 54 784] [--part-kib 64 256 1024] [--other FOLDER]

The jobs are parts of each size, and chunks without parts, as in datasets of format 1. They take turns (A B C A B C
...), and the table has medians of --rounds rounds. --other: another checkout of streamsvm, which writes a dataset and
takes rows from it in a separate process, in turn with the other jobs. The page cache is warm, so reading takes only CPU
time. CPU time is shown, because other programs hardly change it. In each round, other rows are taken; they are the same
for all jobs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.reading import generate
from streamsvm.ingestion import write as writer

SERVER = """
import sys, time
import numpy as np
from streamsvm.data.open import open_dataset
dataset = open_dataset(sys.argv[1])
for line in sys.stdin:
    seed, number = map(int, line.split())
    rows = np.random.default_rng(seed).integers(dataset.n_rows, size=number)
    began = time.process_time()
    dataset.take(rows)
    print(time.process_time() - began, flush=True)
"""


class Taker:
    """A process that takes rows of one dataset on request."""

    def __init__(self, dataset: Path, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-c", SERVER, str(dataset)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=checkout)

    def take(self, seed: int, number: int) -> float:
        """Return the seconds for `number` random rows."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seed} {number}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def write(folder: Path, gigabytes: float, n_features: int, part_bytes: int) -> Path:
    """Write rows with parts of `part_bytes`."""
    writer.PART_BYTES, writer.VECTOR_PART_BYTES = part_bytes, part_bytes // 8
    generate(folder, gigabytes, n_features)
    return folder


def write_by(checkout: Path, folder: Path, gigabytes: float, n_features: int) -> Path:
    """Write the same rows by the code of another checkout."""
    code = "import sys; from pathlib import Path; from benchmarks.reading import generate; "
    code += "generate(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))"
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", code, str(folder), str(gigabytes), str(n_features)]
    subprocess.run(command, check=True, env=environment, cwd=checkout)
    return folder


def compare(options: argparse.Namespace, n_features: int) -> None:
    """Print the table's rows for one number of features."""
    here = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as name:
        folder, takers = Path(name), {}
        for kib in options.part_kib:
            path = write(folder / f"{kib}.zarr", options.gigabytes, n_features, kib << 10)
            takers[f"parts of {kib} KiB"] = Taker(path, here)
        path = write(folder / "whole.zarr", options.gigabytes, n_features, 1 << 40)
        takers["whole chunks"] = Taker(path, here)
        if options.other:
            path = write_by(options.other, folder / "other.zarr", options.gigabytes, n_features)
            takers["the other checkout"] = Taker(path, options.other)
        for path in sorted(folder.rglob("*")):  # fills the page cache
            if path.is_file():
                path.read_bytes()
        for number in options.rows:
            seconds: dict[str, list[float]] = {job: [] for job in takers}
            for seed in range(options.rounds + 1):
                for job, taker in takers.items():
                    seconds[job].append(taker.take(seed, number))
            for job, spent in seconds.items():
                whole = median(spent[1:])
                shown = f"{1e3 * whole:.2f} | {1e6 * whole / number:.1f} | {1e3 * spent[0]:.1f}"
                print(f"| {n_features} | {number} | {job} | {shown} |", flush=True)
        for taker in takers.values():
            taker.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--features", type=int, nargs="+", default=[54, 784])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 512, 20_000])
    parser.add_argument("--part-kib", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--other", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    print(
        "| features | rows | verified by | CPU ms | µs per row | the first time |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for n_features in options.features:
        compare(options, n_features)
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
