"""`streamsvm demo`: all steps on real data, and training on generated data several times its memory budget.

Every step runs the command that it shows in a separate process, so that memory is measured as for a user's run. A
thread writes the generated data while the first commands run, since these spend most of their time compiling.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import streamsvm
from streamsvm.cli.output import fill_text
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.generated import Truth, write_generated
from streamsvm.system.errors import InputError
from streamsvm.system.interrupts import waiting
from streamsvm.system.machine import format_bytes

BUDGET_BYTES = 400 * 10**6  # libraries take 200 to 250 MB of it
TIMES_THE_BUDGET = 4
DISK_SHARE = 0.5  # the generated data take at most this share of the free space
FEWEST_ROWS = 10_000
MOST_SECONDS = 120  # the limit of the larger training, for slow disks and busy machines
SUCCESSFUL_STATUSES = ("converged", "time_limit")


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo in a new or temporary folder; return the exit status, 0 if every claim holds."""
    out: Path | None = options.out
    with _open_folder(out) as name, ThreadPoolExecutor(1) as pool:
        folder = Path(name)
        print(
            f"In {folder} ({'removed at the end; use --out DIR to keep it' if out is None else 'kept'}):\n", flush=True
        )
        try:
            data = begin_writing(folder, pool)
            held = show_real_data(folder)
            with waiting():
                written = data.result()
            held = show_larger_than_memory(folder, written) and held
        except KeyboardInterrupt:
            if out is None:
                raise
            print(f"\nstreamsvm demo: interrupted; the files made so far are in {out}", file=sys.stderr)
            return 1
    print(fill_text("demo.txt", out=out, budget=f"{BUDGET_BYTES // 10**6}MB"))
    return 0 if held else 1


def show_real_data(folder: Path) -> bool:
    """Show all steps, from text to a certified model and its accuracy, on scikit-learn's breast cancer data."""
    n_rows, n_features, n_held_out = write_breast_cancer(folder)
    print(f"Real data: {n_rows} tumours, {n_features} measurements each, malignant or not; {n_held_out} are held out.")
    _run(folder, "ingest cancer.svm cancer.zarr --scale standard")
    result = _run(folder, "train cancer.zarr --out cancer-run --C 0.1")
    scores = _run(folder, "evaluate cancer-run cancer-test.svm")
    _run(folder, "report cancer-run")
    print(fill_text("demo_real.txt", **result, accuracy=scores["accuracy"]), end="\n\n")
    return bool(result["status"] == "converged")


def write_breast_cancer(folder: Path) -> tuple[int, int, int]:
    """Write cancer-test.svm (a quarter of the rows) and cancer.svm; return the numbers of rows, features, test rows."""
    from sklearn.datasets import dump_svmlight_file, load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    held_out, kept = order[::4], np.setdiff1d(order, order[::4])
    for name, rows in (("cancer.svm", kept), ("cancer-test.svm", held_out)):
        dump_svmlight_file(X[rows], y[rows], str(folder / name), zero_based=False)
    return len(y), X.shape[1], len(held_out)


def begin_writing(folder: Path, pool: ThreadPoolExecutor) -> Future[Dataset]:
    """Start a thread that writes data several times the memory budget. Raises InputError if the disk is too full."""
    truth = Truth(n_features=64)
    n_rows, free_bytes = TIMES_THE_BUDGET * BUDGET_BYTES // truth.row_bytes + 1, shutil.disk_usage(folder).free
    fitting = int(free_bytes * DISK_SHARE) // truth.row_bytes
    if fitting < FEWEST_ROWS:
        raise InputError(f"{folder}: only {format_bytes(free_bytes)} are free; choose a larger disk with --out")
    if fitting < n_rows:
        print(f"Only {format_bytes(free_bytes)} are free here, so the generated data are smaller than planned.")
    return pool.submit(write_generated, folder / "generated.zarr", min(n_rows, fitting), truth)


def show_larger_than_memory(folder: Path, data: Dataset) -> bool:
    """Train on the generated data within the memory budget; return whether that worked."""
    print(
        f"Generated data: {data.n_rows:,} rows, {format_bytes(data.nbytes)}, {data.nbytes / BUDGET_BYTES:.1f} times "
        "the memory budget (written in the meantime)."
    )
    command = f"train generated.zarr --out generated-run --C 1e-5 --memory {BUDGET_BYTES // 10**6}MB"
    result = _run(folder, f"{command} --max-seconds {MOST_SECONDS}")
    is_kept = bool(result["peak_memory_bytes"] <= result["projected_memory_bytes"] <= BUDGET_BYTES)
    print(fill_text("demo_large.txt", **result, budget=BUDGET_BYTES, is_kept=is_kept), end="\n\n")
    return is_kept and result["status"] in SUCCESSFUL_STATUSES


def _run(folder: Path, command: str) -> dict[str, Any]:
    """Show a command, run it, and return its result. Progress appears on a terminal only.

    Raises SystemExit if it fails.
    """
    print(f"$ streamsvm {command}", flush=True)
    here = str(Path(streamsvm.__file__).parents[1])
    with waiting():
        done = subprocess.run(
            [sys.executable, "-m", "streamsvm", *command.split(), "--json"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])},
            stdout=subprocess.PIPE,
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 3):
        print(done.stderr or "", end="", file=sys.stderr)
        raise SystemExit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _open_folder(out: Path | None) -> AbstractContextManager[str]:
    """Return a context manager for the demo's folder. Raises InputError if it is not empty or cannot be created."""
    if out is None:
        return TemporaryDirectory(prefix="streamsvm-demo-")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InputError(f"{out}: the folder is not empty; choose a new one")
    except OSError as error:
        raise InputError(f"{out}: the folder cannot be used: {error.strerror}") from error
    return nullcontext(str(out.resolve()))
