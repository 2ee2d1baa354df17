"""A training of rows that are made when they are read, on workers of which one is killed every few seconds.

    python -m tests.faults.made_rows_run [--gigabytes 50] [--workers 8] [--seconds-between 60] [--features 200]
        [--resident 8000] [--tol 1e-3] [--seed 0]

The rows are those of benchmarks/made_rows.py: nothing is stored, so that the data may be larger than any disk.
They are trained on workers with one thread each, which are killed one after the other, and another worker joins for
each that was killed. Every fifth time all of them are killed, and none is there for a second. Then the rows are trained
on as many threads, undisturbed. Prints a Markdown table of both: joined are the workers that the scheduler has come to
know after the first ones, of which those that were killed while they started are none;
reads are the bytes read over the bytes of all rows, those of tasks that were lost left out; the largest peak of memory
of any worker, those that were killed included, beside the largest memory that was projected for a process. Steps are
told on standard error as they come. The exit status is 1 if the two models differ by a bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork

from benchmarks.law import COST
from benchmarks.made_rows import MadeRows
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from tests.faults.chaos import EMPTY_SECONDS, Cluster

MEMORY_BYTES = 1_000_000_000  # of a process: more of the rows cannot be kept for a second read
MEMORY_BYTES_ON_THREADS = 3_000_000_000  # of one process with all threads: its chunks take 160 MB a thread
ALL_LOST = 5  # every so often all workers are killed at once
HEAD = "| where | killed | joined | steps | reads | gap | seconds | driver's peak, MB | workers' peak | projected |"


@dataclass
class Struck:
    """What has happened to a cluster: workers that were killed, and that joined; the largest peak of a worker."""

    killed: int = 0
    joined: int = 0
    peak_bytes: int = 0

    def watch(self, cluster: Cluster) -> None:
        """Note the peaks of memory that the workers have reached by now."""
        self.peak_bytes = max(self.peak_bytes, *map(read_peak, cluster.workers))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=50.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds-between", type=float, default=60.0)
    parser.add_argument("--features", type=int, default=200)
    parser.add_argument("--resident", type=int, default=8_000)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    source = MadeRows(int(asked.gigabytes * 1e9 / (4 * asked.features)), asked.seed, asked.features)
    limits: Any = {"tol": asked.tol, "resident_rows": asked.resident, "memory_bytes": MEMORY_BYTES}
    options = TrainOptions(C=COST / source.n_rows, options={"acceleration": "one-read"}, **limits)
    print(f"{source.n_rows:,} rows of {asked.features} features, {source.nbytes / 1e9:.1f} GB\n\n{HEAD}")
    print(f"|{'---|' * HEAD.count(' | ')}---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(Path(name))
        try:
            cluster.keep(asked.workers)
            on_workers = replace(options, scheduler=cluster.address)
            process = fork(source, on_workers, Path(name) / "disturbed")
            struck = kill_until_ended(process, cluster, asked.workers, asked.seconds_between, asked.seed)
        finally:
            cluster.close()
        disturbed = show(f"{asked.workers} workers", struck, Path(name) / "disturbed")
        on_threads = replace(options, threads=asked.workers, memory_bytes=MEMORY_BYTES_ON_THREADS)
        os.waitpid(fork(source, on_threads, Path(name) / "alone"), 0)
        alone = show(f"{asked.workers} threads", Struck(), Path(name) / "alone")
    same = disturbed["model"] == alone["model"]
    print(f"\n{'The two models have the same bits.' if same else 'The two models differ.'}")
    return 0 if same else 1


def fork(source: MadeRows, options: TrainOptions, told: Path) -> int:
    """Train in a process of its own, which tells of the result in a file; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            result = train(source, options, listener=tell_step)
            assert isinstance(result.model, LinearModel)
            bits = result.model.coef.tobytes() + repr(result.model.intercept).encode()
            names = ("status", "steps", "relative_gap", "seconds", "projected_memory_bytes")
            about = {name: getattr(result, name) for name in names} | {"peak_bytes": read_peak(os.getpid())}
            about |= {"reads": result.read_bytes / source.nbytes, "model": hashlib.sha256(bits).hexdigest()}
            told.write_text(json.dumps(about))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def tell_step(event: Event) -> None:
    """Print a step on standard error."""
    line = event.line
    print(f"step {line['step']}: gap {line['relative_gap']:.1e} after {line['seconds']:.0f} s", file=sys.stderr)


def kill_until_ended(process: int, cluster: Cluster, n_workers: int, seconds: float, seed: int) -> Struck:
    """Kill workers, and let others join, again and again until a process has ended."""
    draw, struck, times = random.Random(seed), Struck(), 0
    next_kill = time.monotonic() + seconds
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        struck.watch(cluster)
        if time.monotonic() >= next_kill:
            times += 1
            every = times % ALL_LOST == 0
            victims = list(cluster.workers) if every else [draw.choice(cluster.workers)]
            for pid in victims:
                cluster.strike(pid, signal.SIGKILL)
            time.sleep(EMPTY_SECONDS if every else 0.0)
            cluster.keep(n_workers)
            struck.killed += len(victims)
            next_kill = time.monotonic() + seconds
        time.sleep(0.05)
    struck.joined = cluster.log.read_text().count("Register worker") - n_workers
    return struck


def read_peak(pid: int) -> int:
    """Return the most bytes of memory that a process has taken so far; 0 once it has ended."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def show(where: str, struck: Struck, told: Path) -> dict[str, Any]:
    """Print a line of the table; return what was told of the training. SystemExit if it has failed."""
    if not told.exists():
        sys.exit(f"the training on {where} has failed; {struck.killed} workers were killed")
    about: dict[str, Any] = json.loads(told.read_text())
    line = f"| {where} | {struck.killed} | {struck.joined} | {about['steps']} | {about['reads']:.2f} "
    line += f"| {about['relative_gap']:.1e} | {about['seconds']:.0f} | {about['peak_bytes'] / 1e6:.0f} "
    worker = f"{struck.peak_bytes / 1e6:.0f}" if struck.peak_bytes else "-"
    print(f"{line}| {worker} | {about['projected_memory_bytes'] / 1e6:.0f} |", flush=True)
    return about


if __name__ == "__main__":
    sys.exit(main())
