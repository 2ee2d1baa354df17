"""Training from a cold cache, compared with reading the data once, as a Markdown table.

    python benchmarks/cold_cache.py [--gigabytes 8] [--features 64] [--memory 1GB] [--C 0.001] [--work DIR]
        [--rounds 1]

The script generates dense rows on the disk, and keeps them if --work is given. Three jobs take turns, each in a
separate process, and each begins after the files have been dropped from the page cache: reading and verifying every
chunk once (`streamsvm info --verify`), training with defaults (one read), and training by line search. The last columns
are the seconds to the end of the first pass, including the start of Python and the sample, and the seconds of a later
pass with the computation that follows it. The memory budget is smaller than the data: chunks that do not stay in memory
are read again in every pass. Later passes may read from the page cache; `--drop` drops the files from the cache after
every step, so that every read comes from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.system.machine import parse_bytes

RUNS = {
    "default": (),
    "line search": ("--option", "acceleration=line-search"),
}


def drop_pages(folder: Path) -> None:
    """Drop the files from the page cache of the system."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(data: Path, drop: bool, *arguments: str) -> tuple[float, dict[str, float]]:
    """Run a command from a cold cache; return its seconds, and the JSON object in its last line of output."""
    drop_pages(data)
    began = time.monotonic()
    command = [sys.executable, "-m", "streamsvm", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if drop and line.startswith("pass "):
                drop_pages(data)
        written = process.stdout.read()
    return time.monotonic() - began, json.loads(written.splitlines()[-1])


def split(out: Path, seconds: float, result: dict[str, float]) -> tuple[float, float]:
    """Return the seconds to the end of a run's first pass, and the mean seconds of its later passes."""
    steps = [json.loads(line)["seconds"] for line in (out / "history.jsonl").read_text().splitlines()]
    later = (steps[-1] - steps[0]) / max(1, len(steps) - 1)
    return seconds - (result["seconds"] - steps[0]), later


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--C", default="0.001")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    parse_bytes(options.memory)
    with nullcontext(str(options.work)) if options.work else TemporaryDirectory() as work:
        data = Path(work) / "rows.zarr"
        if not data.exists():
            data.parent.mkdir(parents=True, exist_ok=True)
            n_rows = int(options.gigabytes * 1e9 / 4 / options.features)
            write_generated(data, n_rows, Truth(n_features=options.features))
        columns = (
            "seconds | of reading once | passes | gap | GB read | peak MB | projected MB | first pass, s | later, s"
        )
        print(f"| run | {columns} |\n|{'---|' * 10}")
        for _ in range(options.rounds):
            once = run(data, False, "info", str(data), "--verify")[0]
            print(f"| reading once | {once:.1f} | 1 | 1 | | | | | | |", flush=True)
            for name, given in RUNS.items():
                settings = ["--C", options.C, "--memory", options.memory, *given]
                with TemporaryDirectory() as out:
                    seconds, result = run(data, options.drop, "train", str(data), "--out", out, *settings)
                    first, later = split(Path(out), seconds, result)
                print(
                    f"| {name} | {seconds:.1f} | {seconds / once:.2f} | {result['passes']} | "
                    f"{result['relative_gap']:.1e} | {result['read_bytes'] / 1e9:.1f} | "
                    f"{result['peak_memory_bytes'] / 1e6:.0f} | {result['projected_memory_bytes'] / 1e6:.0f} | "
                    f"{first:.1f} | {later:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
