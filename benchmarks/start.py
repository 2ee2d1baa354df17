"""Seconds of `import streamsvm`, of a first training, and of a second training without compilation. Prints a table.

python benchmarks/start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import streamsvm


def time_command(*command: str, rounds: int, environment: dict[str, str]) -> list[float]:
    """Run the command several times, and return the seconds of each run."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, env=environment, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Print the table."""
    bare = median(time_command(sys.executable, "-c", "pass", rounds=7, environment=dict(os.environ)))
    imported = median(time_command(sys.executable, "-c", "import streamsvm", rounds=7, environment=dict(os.environ)))
    used = median(
        time_command(sys.executable, "-c", "from streamsvm import LinearSVC", rounds=7, environment=dict(os.environ))
    )
    print("| what | s |\n|---|---|")
    for what, seconds in (("pass", bare), ("import streamsvm", imported), ("from streamsvm import LinearSVC", used)):
        print(f"| python -c {what!r} | {seconds:.3f} |")
    with tempfile.TemporaryDirectory() as name:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1000, 5), dtype=np.float32)
        streamsvm.ingest(X, Path(name) / "rows.zarr", (X[:, 0] > 0).astype(int))
        environment = {**os.environ, "NUMBA_CACHE_DIR": f"{name}/cache"}
        for run in ("first", "second"):
            command = (sys.executable, "-m", "streamsvm", "train", f"{name}/rows.zarr", "--out", f"{name}/{run}")
            seconds = time_command(*command, rounds=1, environment=environment)[0]
            kernels = len(list(Path(name, "cache").rglob("*.nbc")))
            print(f"| {run} `streamsvm train` ({kernels} compiled kernels in the cache afterwards) | {seconds:.2f} |")


if __name__ == "__main__":
    main()
