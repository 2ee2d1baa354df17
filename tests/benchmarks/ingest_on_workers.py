"""`ingest` on workers beside one process: seconds on the clock and of the processors, from start to end.

    python tests/benchmarks/ingest_on_workers.py [--megabytes 400] [--rounds 2]

The files of svmlight text and CSV are in the system's cache. All processes of a command count, and so does starting
them. The rounds are taken in turn, and the least of each number is told: where other programs run, seconds on the clock
tell of them, too. The datasets are compared, file by file.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WAYS = {"one process": (), **{f"{n} worker{'s' * (n > 1)}": ("--workers", str(n)) for n in (1, 2, 4)}}


def write_svmlight(file: Path, nbytes: int) -> None:
    """Write rows of some 40 of 10,000 features."""
    rng, written = np.random.default_rng(0), 0
    with file.open("wb") as opened:
        while written < nbytes:
            columns = np.sort(rng.integers(1, 10_000, (2000, 40)), axis=1)
            values = rng.integers(1, 1000, columns.shape)
            rows = [
                b"%d " % (1 if row[0] < 200 else -1)
                + b" ".join(b"%d:0.%03d" % pair for pair in zip(np.unique(row).tolist(), value.tolist(), strict=False))
                for row, value in zip(columns, values, strict=True)
            ]
            written += opened.write(b"\n".join(rows) + b"\n")


def write_csv(file: Path, nbytes: int) -> None:
    """Write rows of 64 numbers."""
    rng, written = np.random.default_rng(0), 0
    with file.open("wb") as opened:
        opened.write(b"label," + b",".join(b"f%d" % j for j in range(64)) + b"\n")
        while written < nbytes:
            X = rng.normal(size=(2000, 64))
            rows = [b"%d," % (row[0] > 0) + b",".join(b"%.4f" % value for value in row.tolist()) for row in X]
            written += opened.write(b"\n".join(rows) + b"\n")


def run(arguments: list[str]) -> tuple[float, float]:
    """Return the seconds on the clock and of the processors that a command and all of its processes take."""
    began = time.perf_counter()
    with open(os.devnull, "wb") as nowhere:
        redirected = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), stream) for stream in (1, 2)]
        process = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=redirected)
        _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)}: status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def are_equal(one: Path, other: Path) -> bool:
    """Tell whether two folders have the same files."""
    names = [sorted(str(file.relative_to(each)) for file in each.rglob("*") if file.is_file()) for each in (one, other)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(one, other, names[0], shallow=False)[1:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    print("| files | ingested by | s | CPU s | MB a CPU s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, write in ((folder / "rows.svm", write_svmlight), (folder / "rows.csv", write_csv)):
            write(file, options.megabytes << 20)
            found = dict[str, list[tuple[float, float]]]()
            for _ in range(options.rounds):
                for way, more in WAYS.items():
                    made = folder / way
                    shutil.rmtree(made, ignore_errors=True)
                    command = ["-m", "streamsvm", "ingest", str(file), str(made), *more]
                    found.setdefault(way, []).append(run(command))
                    assert are_equal(made, folder / next(iter(WAYS)))
            for way, times in found.items():
                clock, cpu = (min(each[k] for each in times) for k in range(2))
                print(
                    f"| {file.suffix} | {way} | {clock:.1f} | {cpu:.1f} | {options.megabytes / cpu:.1f} |", flush=True
                )
            file.unlink()


if __name__ == "__main__":
    main()
