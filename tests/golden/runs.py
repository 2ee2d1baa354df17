"""The recorded runs, their verifications, and the memory that sixty trainings are projected to need.

Models have the same bits on one kind of processor with the same libraries (numeric.compilation). So the SHA-256 of a
model is compared only where the arithmetic is the recorded one; statuses, passes, names and numbers are compared
everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections import namedtuple
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil

from benchmarks.recorded_runs import MAPS, Run, list_runs, write_rows
from tests.golden.processes import do

DATA = ("dense", "sparse", "classes", "queries")
RESIDENT = namedtuple("RESIDENT", "rss")(200_000_000)
RESULTS = ("status", "solver", "passes", "steps", "n_rows", "n_features", "n_support_vectors")
PLANNED = ("solver", "first_pass_bytes", "later_pass_bytes", "scratch_bytes", "projected_memory_bytes")
VERIFIED = ("objective_agrees", "lower_bound_agrees", "agrees", "reason", "n_rows")
SOLVERS = (
    ("dense", ""),
    ("dense", "--loss squared_hinge"),
    ("dense", "--loss logistic --penalty l1"),
    ("dense", "--option acceleration=line-search"),
    ("dense", "--option acceleration=block-ascent"),
    ("dense", "--solver smo --kernel rbf"),
    ("dense", "--solver irwls --kernel rbf"),
    ("dense", "--solver interior-point"),
    ("dense", "--solver budgeted-sgd --kernel rbf"),
    ("dense", "--task one-class"),
    ("dense", "--task roc-area"),
    ("dense", "--map nystrom --rank 20"),
    ("sparse", ""),
    ("sparse", "--solver smo --kernel rbf"),
    ("classes", ""),
    ("classes", "--multi-class crammer_singer"),
    ("classes", "--kernel rbf"),
    ("queries", "--task rank"),
    ("numbers", "--task regress"),
    ("numbers", "--task regress --kernel rbf"),
)
BUDGETS = ("--memory 2GB --threads 1", "--memory 2GB --threads 2", "--memory 400MB --threads 1")


def make_data(folder: Path) -> None:
    """Ingest the rows of the recorded runs, and map them."""
    write_rows(folder)
    for name in DATA:
        do(folder, "ingest", f"{name}.svm", f"{name}.zarr", "--chunk-bytes", "40KB")
    numbers = (folder / "dense.svm").read_text().splitlines()
    targets = (line.split()[1].partition(":")[2] for line in numbers)
    lines = [f"{target} {line.partition(' ')[2]}" for target, line in zip(targets, numbers, strict=True)]
    (folder / "numbers.svm").write_text("\n".join(lines) + "\n")
    do(folder, "ingest", "numbers.svm", "numbers.zarr", "--chunk-bytes", "40KB", "--regression")
    for name, rank in MAPS.items():
        mapped = f"dense.{name}.zarr"
        do(folder, "features", "dense.zarr", mapped, "--map", name, "--chunk-bytes", "40KB", *rank.split())


def record_runs(folder: Path) -> dict[str, Any]:
    """Train, predict, and verify where a model can be verified: the names in files, numbers, and SHA-256."""
    make_data(folder)
    return {run.name: record_run(folder, run, f"run{k}") for k, run in enumerate(list_runs())}


def record_run(folder: Path, run: Run, out: str) -> dict[str, Any]:
    """Return what a run leaves behind."""
    started = (run.command, f"{run.data}.zarr", "--out", out, "--json", *run.arguments.split())
    if run.passes:
        do(folder, *started, "--max-passes", run.passes)
    ended = do(folder, *started, *(["--resume"] if run.passes else []))
    result = ended.result
    rows, predicted = run.data.partition(".")[0], folder / "predicted.csv"
    predicted.unlink(missing_ok=True)
    do(folder, "predict", out, f"{rows}.zarr", "--out", predicted)
    return {
        "exit status": ended.status,
        **{name: result.get(name) for name in RESULTS},
        "numbers": {name: round_off(result.get(name)) for name in ("objective", "lower_bound")},
        "result": sorted(result),
        "settings": sorted(json.loads((folder / out / "settings.json").read_text())),
        "files": sorted(str(path.relative_to(folder / out)) for path in (folder / out).rglob("*")),
        "arrays": {path.name: list_arrays(path) for path in sorted((folder / out).glob("*.npz"))},
        "sha256": [hashlib.sha256(each.read_bytes()).hexdigest() for each in (folder / out / "model.npz", predicted)],
    }


def round_off(value: float | None) -> str | None:
    """Return a number to six digits."""
    return None if value is None else f"{value:.6g}"


def list_arrays(path: Path) -> dict[str, str]:
    """Return the types of the arrays of an npz file by their names."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: f"{arrays[name].dtype.kind}{arrays[name].ndim}" for name in sorted(arrays.files)}


def record_verifications(folder: Path) -> dict[str, Any]:
    """Verify the recorded runs, with the dual point where a kernel model has it."""
    found = dict[str, Any]()
    for k, run in enumerate(list_runs()):
        if run.command == "train" and "budgeted-sgd" not in run.arguments:  # whose objective is an estimate
            name, is_kernel = run.data.partition(".")[0], any(each in run.arguments for each in ("smo", "irwls"))
            found[run.name] = do_verify(folder, f"run{k}", f"{name}.zarr", ["--dual"] if is_kernel else [])
    return found


def do_verify(folder: Path, run: str, data: str, more: list[str]) -> dict[str, Any]:
    """Return what a verification found."""
    ended = do(folder, "verify", run, data, "--json", *more, may_disagree=True)
    told = ended.result
    exact = [told.get(name) for name in ("objective", "lower_bound", "rounding_bound")]
    return {
        "exit status": ended.status,
        **{name: told.get(name) for name in VERIFIED},
        "numbers": {name: round_off(told.get(name)) for name in ("objective", "lower_bound")},
        "sha256": [hashlib.sha256(repr(exact).encode()).hexdigest()],
    }


def record_projections(folder: Path) -> dict[str, Any]:
    """Return what sixty trainings are planned to read and to hold, in a process that holds 200 MB."""
    found = dict[str, Any]()
    with patch.object(psutil.Process, "memory_info", lambda _: RESIDENT):
        for (data, arguments), budget in product(SOLVERS, BUDGETS):
            command = ("train", f"{data}.zarr", "--out", "planned", "--plan", "--json", *arguments.split())
            told = do(folder, *command, *budget.split()).result
            found[f"{data} {arguments} {budget}"] = {name: told[name] for name in PLANNED}
    return found
