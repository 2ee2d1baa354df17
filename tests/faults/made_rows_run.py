"""A training of rows that are made when they are read, on workers of which one is killed every few seconds.

    python -m tests.faults.made_rows_run [--gigabytes 50] [--workers 8] [--seconds-between 60] [--seed 0]

The rows are those of tests/benchmarks/made_rows.py: nothing is stored, so that the data may be larger than any disk.
They are trained on workers with one thread each, which are killed one after the other, and another worker joins for
each that was killed; and then on two threads, undisturbed. Prints a Markdown table of both. The exit status is 1 if the
two models differ by a bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork

from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.training.train import train
from tests.benchmarks.law import COST
from tests.benchmarks.made_rows import FEATURES, MadeRows
from tests.faults.chaos import Cluster

RESIDENT = 100_000
MEMORY_BYTES = 1_000_000_000  # of a process: more of the rows cannot be kept for a second read
HEAD = "| where | killed | steps | reads | relative gap | seconds | peak memory of a process, MB |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=50.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds-between", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    source = MadeRows(int(asked.gigabytes * 1e9 / (4 * FEATURES)), asked.seed)
    own = {"acceleration": "one-read"}
    options = TrainOptions(C=COST / source.n_rows, resident_rows=RESIDENT, memory_bytes=MEMORY_BYTES, options=own)
    print(f"{source.n_rows:,} rows of {FEATURES} features, {source.nbytes / 1e9:.1f} GB\n\n{HEAD}")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(Path(name))
        try:
            cluster.keep(asked.workers)
            on_workers = replace(options, scheduler=cluster.address)
            process = fork(source, on_workers, Path(name) / "disturbed")
            killed = kill_until_ended(process, cluster, asked.workers, asked.seconds_between, asked.seed)
        finally:
            cluster.close()
        disturbed = show(f"{asked.workers} workers", killed, Path(name) / "disturbed")
        os.waitpid(fork(source, replace(options, threads=2), Path(name) / "alone"), 0)
        alone = show("2 threads", 0, Path(name) / "alone")
    same = disturbed["model"] == alone["model"]
    print(f"\n{'The two models have the same bits.' if same else 'The two models differ.'}")
    return 0 if same else 1


def fork(source: MadeRows, options: TrainOptions, told: Path) -> int:
    """Train in a process of its own, which tells of the result in a file; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            result = train(source, options)
            assert isinstance(result.model, LinearModel)
            bits = result.model.coef.tobytes() + repr(result.model.intercept).encode()
            names = ("status", "steps", "relative_gap", "seconds", "peak_memory_bytes")
            about = {name: getattr(result, name) for name in names}
            about |= {"reads": result.read_bytes / source.nbytes, "model": hashlib.sha256(bits).hexdigest()}
            told.write_text(json.dumps(about))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def kill_until_ended(process: int, cluster: Cluster, n_workers: int, seconds: float, seed: int) -> int:
    """Kill a worker, and let another join, again and again until a process has ended; return how many were killed."""
    draw, killed = random.Random(seed), 0
    next_kill = time.monotonic() + seconds
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() >= next_kill:
            cluster.strike(draw.choice(cluster.workers), signal.SIGKILL)
            cluster.keep(n_workers)
            killed, next_kill = killed + 1, time.monotonic() + seconds
        time.sleep(0.05)
    return killed


def show(where: str, killed: int, told: Path) -> dict[str, Any]:
    """Print a line of the table; return what was told of the training."""
    about: dict[str, Any] = json.loads(told.read_text())
    line = f"| {where} | {killed} | {about['steps']} | {about['reads']:.2f} | {about['relative_gap']:.1e} "
    print(f"{line}| {about['seconds']:.0f} | {about['peak_memory_bytes'] / 1e6:.0f} |", flush=True)
    return about


if __name__ == "__main__":
    sys.exit(main())
