"""Trainings on two workers, compared with two threads, including their start. Prints a Markdown table.

    python benchmarks/two_workers.py [--megabytes 600] [--features 54] [--passes 60] [--rounds 3]

Both are whole `streamsvm train` commands with the same number of passes, and take turns. CPU seconds include all
processes that a command starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reading import generate

WAYS = {"2 threads": ("--threads", "2"), "2 workers": ("--workers", "2")}


def train(data: str, passes: int, where: tuple[str, ...]) -> tuple[float, float, dict[str, object]]:
    """Return the wall and CPU seconds of a command, and its JSON output."""
    out = f"{data}-{where[0]}-{time.time_ns()}"
    model = ("--C", "10", "--option", "acceleration=none", "--max-passes", str(passes))
    command = [
        sys.executable,
        "-m",
        "streamsvm",
        "train",
        data,
        "--out",
        out,
        *model,
        "--memory",
        "3GB",
        "--json",
        *where,
    ]
    before, began = os.times(), time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, json.loads(ended.stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=600.0)
    parser.add_argument("--features", type=int, default=54)
    parser.add_argument("--passes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| round | where | seconds | CPU seconds | passes | ratio of seconds | of CPU | same bits |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        data = generate(Path(name) / "rows.zarr", options.megabytes / 1e3, options.features)
        for number in range(options.rounds):
            found = {way: train(data.path, options.passes, where) for way, where in WAYS.items()}
            first = found["2 threads"]
            for way, (seconds, cpu, told) in found.items():
                same = told["model_sha256"] == first[2]["model_sha256"]
                ratios = f"{seconds / first[0]:.2f} | {cpu / first[1]:.2f}"
                cells = f"{seconds:.1f} | {cpu:.1f} | {told['passes']} | {ratios} | {same}"
                print(f"| {number + 1} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
