"""Seconds of `import streamsvm`, of a first training, and of a second training without compilation. Prints a table.

A second table has the CPU seconds (user and system) of whole processes that fit 500 x 10 numbers once, with estimators
of streamsvm and of scikit-learn, and of `streamsvm info`. The processes take turns, and the medians are shown.

python benchmarks/start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
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


FIT = """
import numpy as np
from {} import {} as Estimator
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 10))
Estimator().fit(X, X[:, 0] + 0.3 * rng.normal(size=500) > 0)
"""
HOMES = {"LinearSVC": "sklearn.svm", "SVC": "sklearn.svm", "LogisticRegression": "sklearn.linear_model"}


def take_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, float]:
    """Return the median of the CPU seconds of each command. The first round, which fills the caches, does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                _, process.returncode, used = os.wait4(process.pid, 0)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command)
            seconds[name].append(used.ru_utime + used.ru_stime)
    return {name: median(each[1:]) for name, each in seconds.items()}


def compare_scripts(dataset: str) -> None:
    """Print the CPU seconds of short scripts and of a command."""
    homes = [(home, name) for name, own in HOMES.items() for home in ("streamsvm", own)]
    commands = {f"{home}.{name}": [sys.executable, "-c", FIT.format(home, name)] for home, name in homes}
    commands["streamsvm info"] = [sys.executable, "-m", "streamsvm", "info", dataset]
    print("\n| process | CPU s |\n|---|---|")
    for name, seconds in take_turns(commands, rounds=9).items():
        print(f"| {name} | {seconds:.2f} |")


def main() -> None:
    """Print the tables."""
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
        compare_scripts(f"{name}/rows.zarr")


if __name__ == "__main__":
    main()
