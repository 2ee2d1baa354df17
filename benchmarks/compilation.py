"""CPU seconds of compiling in a first training, as a Markdown table with a line for each solver and layout.

    python benchmarks/compilation.py [--case cutting-plane ...] [--layout dense ...] [--rounds 1]

For every line, the cache is emptied first. Then each case trains twice, in two processes: the difference of their CPU
seconds, including child processes, is the compiler's time. `kernels` is the number of compiled functions that the
training called, counted once for each combination of argument types; `lines` is the number of lines of their LLVM code,
which tests/solvers/test_warm_up.py limits. CPU seconds grow if other programs share the cores: compare two versions in
turn, on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CASES = ("cutting-plane", "ranking", "smo", "irwls", "budgeted-sgd", "interior-point", "feature map")
ROOT = Path(__file__).parents[1]


def train(case: str, layout: str, cache: str) -> tuple[float, dict[str, Any]]:
    """Train in a new process, and return its CPU seconds and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [sys.executable, "-m", "tests.compiled_kernels", case, layout],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--layout", nargs="+", default=("dense", "sparse"), choices=("dense", "sparse"))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print("| solver | rows | CPU s of compiling | kernels | lines |\n|---|---|---|---|---|")
    for case in options.case:
        for layout in options.layout:
            seconds = []
            for _ in range(options.rounds):
                with TemporaryDirectory() as cache:
                    first, found = train(case, layout, cache)
                    seconds.append(first - train(case, layout, cache)[0])
            kernels = found["kernels"]
            median = statistics.median(seconds)
            print(f"| {case} | {layout} | {median:.1f} | {len(kernels)} | {sum(kernels.values())} |", flush=True)


if __name__ == "__main__":
    main()
