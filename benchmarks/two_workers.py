"""Trainings on two workers, compared with two threads, including their start. Prints a Markdown table.

    python benchmarks/two_workers.py [--megabytes 600] [--features 54] [--passes 60] [--rounds 3]
    python benchmarks/two_workers.py --shares [--megabytes 600] [--features 100] [--rounds 3]

Both are whole `streamsvm train` commands with the same passes. CPU seconds include all processes that the command
started.

With --shares, a scheduler and one or two workers of one thread run as processes of their own. The table shows the CPU
seconds of each process in a training to a gap of 1e-3, by default and by line search; those of the driver include the
start of Python, which `--plan` would take as well. Seconds are those within the training. Work: the seconds of all
tasks (reading, verifying and computing) in a second of the training. Solver: the share of the seconds in which the
solver computes, and workers wait.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from reading import generate

WAYS = {"2 threads": ("--threads", "2"), "2 workers": ("--workers", "2")}
STREAMSVM = [sys.executable, "-m", "streamsvm", "train"]


def run(*arguments: str) -> tuple[float, float, dict[str, Any]]:
    """Return the wall and CPU seconds of a training, and its JSON output."""
    before, began = os.times(), time.perf_counter()
    ended = subprocess.run([*STREAMSVM, *arguments, "--json"], capture_output=True, text=True, check=True)
    seconds, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, json.loads(ended.stdout)


def train(data: str, passes: int, where: tuple[str, ...]) -> tuple[float, float, dict[str, Any]]:
    """Return what a training of a fixed number of passes takes."""
    out = f"{data}-{where[0]}-{time.time_ns()}"
    model = ("--C", "10", "--option", "acceleration=none", "--max-passes", str(passes))
    return run(data, "--out", out, *model, "--memory", "3GB", *where)


def show_threads_and_workers(data: str, rounds: int, passes: int) -> None:
    """Print the table of two threads and two workers."""
    print("| round | where | seconds | CPU seconds | passes | ratio of seconds | of CPU | same bits |")
    print("|---|---|---|---|---|---|---|---|")
    for number in range(rounds):
        found = {way: train(data, passes, where) for way, where in WAYS.items()}
        first = found["2 threads"]
        for way, (seconds, cpu, told) in found.items():
            same = told["model_sha256"] == first[2]["model_sha256"]
            ratios = f"{seconds / first[0]:.2f} | {cpu / first[1]:.2f}"
            cells = f"{seconds:.1f} | {cpu:.1f} | {told['passes']} | {ratios} | {same}"
            print(f"| {number + 1} | {way} | {cells} |", flush=True)


@contextmanager
def start_cluster(folder: Path, n_workers: int) -> Iterator[tuple[str, list[psutil.Popen]]]:
    """Start a scheduler and workers; yield the scheduler's address, and the processes, the scheduler first."""
    file, local = folder / f"{n_workers}.json", ["--host", "127.0.0.1", "--no-dashboard"]
    given = ["--scheduler-file", str(file), *local]
    own = ["--nthreads", "1", "--no-nanny", "--memory-limit", "3GB", "--local-directory", str(folder)]
    commands = [["dask_scheduler", *given, "--port", "0"], *(["dask_worker", *given, *own] for _ in range(n_workers))]
    processes = []
    for name, *arguments in commands:
        command = [sys.executable, "-m", f"distributed.cli.{name}", *arguments]
        processes.append(psutil.Popen(command, stderr=subprocess.DEVNULL))
    while not (file.exists() and file.read_text()):
        time.sleep(0.1)
    try:
        yield json.loads(file.read_text())["address"], processes
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def show_shares(data: str, folder: Path, rounds: int) -> None:
    """Print the table of what driver, scheduler and workers take."""
    print("| workers | fit | seconds | passes | work | solver | CPU s: driver | scheduler | workers |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n_workers in (1, 2):
        with start_cluster(folder, n_workers) as (address, processes):
            for number in range(-1, rounds):  # the first training waits for the start of the workers
                for way in ("auto", "line-search"):
                    out, option = folder / f"{n_workers}-{number}-{way}", f"acceleration={way}"
                    before = [sum(one.cpu_times()[:2]) for one in processes]
                    where = ("--scheduler", address, "--memory", "3GB", "--out", str(out))
                    _, cpu, told = run(data, "--C", "0.001", "--option", option, *where)
                    took = [sum(one.cpu_times()[:2]) - spent for one, spent in zip(processes, before, strict=True)]
                    if number < 0:
                        continue
                    last = json.loads((out / "history.jsonl").read_text().splitlines()[-1])
                    seconds = told["seconds"]
                    work, solver = sum(told["task_seconds"].values()) / seconds, last["solver_seconds"] / seconds
                    spent = f"{cpu:.1f} | {took[0]:.1f} | {' '.join(f'{one:.1f}' for one in took[1:])}"
                    fit = "default" if way == "auto" else way
                    cells = f"{seconds:.1f} | {told['passes']} | {work:.2f} | {solver:.0%} | {spent}"
                    print(f"| {n_workers} | {fit} | {cells} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", action="store_true")
    parser.add_argument("--megabytes", type=float, default=600.0)
    parser.add_argument("--features", type=int, default=54)
    parser.add_argument("--passes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        data = generate(Path(name) / "rows.zarr", options.megabytes / 1e3, options.features).path
        if options.shares:
            show_shares(data, Path(name), options.rounds)
        else:
            show_threads_and_workers(data, options.rounds, options.passes)


if __name__ == "__main__":
    main()
