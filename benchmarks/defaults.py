"""What the default costs beside each documented alternative, on a grid of 40-odd problems. Prints a Markdown table.

    python -m benchmarks.defaults FOLDER [--data ../shared/data] [--only WORD] [--rounds 3] [--most 300] [--full]

The datasets are made once and kept in FOLDER. Every fit runs in a process of its own, on two threads, or on two workers
of one thread each. A problem with folds is a whole cross-validation, including the training on all rows. The fits of a
problem take turns (A B C A B C ...), and the table shows medians of CPU seconds (workers included), wall seconds,
passes and the peak memory of the largest process. Seconds are measured within `train` or `tune`: they include loading
compiled functions and starting workers, and exclude the start of Python. The ratios compare the default with the
alternative of the least wall time, plus 0.1 s. A fit is stopped after --most seconds. With --full the largest dataset
has 3 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array, random_array
from sklearn.feature_extraction.text import TfidfTransformer

import streamsvm
from tests.object_server import ObjectServer
from tests.remote import upload

FIT = """
import json, os, resource, sys, time
from streamsvm.data.open import open_dataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.runs.tune import tune
asked = json.loads(sys.argv[2])
costs, folds = asked["C"], asked.pop("folds", None)
if folds:
    asked["C"] = costs[0]
spent, began = sum(os.times()[:4]), time.perf_counter()
data, options = open_dataset(sys.argv[1]), TrainOptions(**{"threads": 2, **asked})
found = tune(data, options, costs, folds=folds) if folds else train(data, options)
wall, cpu = time.perf_counter() - began, sum(os.times()[:4]) - spent
result = found.result if folds else found
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({
    "cpu": cpu, "wall": wall, "passes": result.passes + (found.passes if folds else 0),
    "peak": max(own, workers) / 1024, "status": result.status,
    "gap": result.relative_gap,
}))
"""
LATENCY = 0.05  # the latency of the store, in seconds
HINGE = ("one-read", "block-ascent", "line-search")


@dataclass(frozen=True)
class Problem:
    """A problem of the grid.

    settings: fields of TrainOptions. others: the further settings of each alternative, by name.
    """

    data: str
    settings: dict[str, Any]
    others: dict[str, dict[str, Any]]
    on_store: bool = False


def of_hinge(data: str, C: float, *, among: tuple[str, ...] = HINGE, on_store: bool = False, **more: Any) -> Problem:
    """Return a problem with the hinge loss. The alternatives are accelerations or the interior-point method."""
    others: dict[str, dict[str, Any]] = {
        name: {"solver": "interior-point"}
        if name == "interior-point"
        else {"solver": "cutting-plane", "options": {"acceleration": name}}
        for name in among
    }
    return Problem(data, {"C": C, **more}, others, on_store)


def of_solvers(data: str, C: float, solvers: tuple[str, ...], *, on_store: bool = False, **more: Any) -> Problem:
    """Return a problem for which the alternatives are other solvers."""
    return Problem(data, {"C": C, **more}, {name: {"solver": name} for name in solvers}, on_store)


def of_classes(data: str, more: dict[str, Any]) -> Problem:
    """Return a Crammer-Singer problem, for which the alternatives are accelerations."""
    others: dict[str, dict[str, Any]] = {
        name: {"options": {"acceleration": name}} for name in ("block-ascent", "line-search")
    }
    return Problem(data, {"C": 0.1, "task": "crammer-singer", **more}, others)


def of_tuning(data: str, **more: Any) -> Problem:
    """Return the cross-validation of two costs on three folds, whose alternatives are accelerations of every fit."""
    settings: dict[str, Any] = {"C": [0.1, 1.0], "folds": 3, **more}
    others: dict[str, dict[str, Any]] = {
        name: {"options": {"acceleration": name}} for name in ("block-ascent", "line-search")
    }
    return Problem(data, settings, others)


TENTH: dict[str, Any] = {"resident_rows": "10%"}
SMALL = (*HINGE, "interior-point")
REGRESSION = ("newton", "cutting-plane")
GRID = [
    *(of_hinge("large", C, memory_bytes=500_000_000) for C in (1e-4, 1e-3, 1e-2)),
    *(of_hinge("large", C) for C in (1e-3, 1.0)),
    *(of_hinge("dense 10", C, among=SMALL) for C in (0.01, 1.0)),
    *(of_hinge("dense 30", C) for C in (0.01, 1.0)),
    *(of_hinge("dense 30", C, **TENTH) for C in (0.01, 1.0)),
    of_hinge("dense 30", 0.1, on_store=True),
    of_hinge("dense 400", 0.01),
    of_hinge("dense 400", 0.1, **TENTH),
    *(of_hinge("covtype", C, among=SMALL) for C in (0.01, 1.0)),
    of_hinge("covtype, unscaled", 1.0, among=SMALL),
    of_hinge("a timestamp", 1.0, among=SMALL),
    of_hinge("sparse 400", 0.1),
    of_hinge("sparse 400", 1.0, **TENTH),
    of_hinge("news20", 0.1),
    of_hinge("news20", 1.0, **TENTH),
    of_hinge("hashed", 1.0),
    of_hinge("hashed", 0.1, on_store=True),
    of_hinge("105 classes of text", 1.0),
    of_hinge("20 classes", 1.0),
    of_hinge("letter", 1.0, **TENTH),
    *(of_hinge("1,000 rows", C, among=SMALL) for C in (0.1, 10.0)),
    of_solvers("wide targets", 1.0, REGRESSION, task="regress"),
    of_solvers("wider targets", 1.0, REGRESSION, task="regress"),
    of_solvers("targets", 0.01, REGRESSION, task="regress"),
    of_solvers("targets", 0.01, REGRESSION, task="regress", **TENTH),
    of_solvers("targets", 0.01, REGRESSION, task="regress", loss="squared_epsilon_insensitive"),
    *(of_solvers("dense 30", 0.1, REGRESSION, loss=loss) for loss in ("logistic", "squared_hinge")),
    of_solvers("dense 400", 0.01, REGRESSION, loss="logistic", **TENTH),
    of_solvers("news20", 1.0, REGRESSION, loss="logistic"),
    *(of_classes(*case) for case in (("letter", {}), ("letter", TENTH), ("20 classes", {}))),
    of_solvers("3,000 rows", 1.0, ("smo", "irwls"), kernel="rbf"),
    *(of_tuning(data) for data in ("hashed", "wide, 10 classes", "dense 10")),
    of_hinge("large", 1e-3, workers=2, threads=1, memory_bytes=500_000_000),
    of_tuning("dense 10", workers=2, threads=1),
]


def make_dense(n: int, d: int, classes: int = 2, scales: bool = False) -> tuple[Any, Any]:
    """Return normal rows of overlapping classes, with a tenth of the labels flipped.

    scales: the last feature is a timestamp.
    """
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d), dtype=np.float32)
    w = rng.standard_normal((d, classes)) / np.sqrt(d)
    y = np.argmax(X @ w + 0.3 * rng.gumbel(size=(n, classes)), axis=1)
    y = np.where(rng.random(n) < 0.1, rng.integers(0, classes, n), y)
    if scales:
        X[:, -1] = 1e6 * (1 + X[:, -1])
    return X, y


def make_sparse(n: int, d: int, density: float, classes: int = 2) -> tuple[Any, Any]:
    """Return sparse rows that resemble texts of random words, and the class of each row."""
    rng = np.random.default_rng(n)
    counts = csr_array(random_array((n, d), density=density, rng=rng, format="csr", dtype=np.float32))
    X = csr_array(TfidfTransformer().fit_transform(counts)).astype(np.float32)
    y = np.argmax(X @ rng.standard_normal((d, classes)) + 0.1 * rng.gumbel(size=(n, classes)), axis=1)
    return X, y


def with_targets(X: Any, _: Any) -> tuple[Any, Any]:
    """Return the rows with regression targets, whose noise has a Laplace distribution."""
    rng = np.random.default_rng(X.shape[0])
    f = X @ rng.standard_normal(X.shape[1])
    return X, f / np.std(f) + 0.3 * rng.laplace(size=X.shape[0])


def read_covtype(data: Path, scaled: bool) -> tuple[Any, Any]:
    """Return Covertype, class 1 against the rest."""
    table = np.loadtxt(data / "covtype" / "covtype.csv.xz", delimiter=",", dtype=np.float32, skiprows=1)
    X, y = table[:, :-1], (table[:, -1] == 1).astype(int)
    return (X / np.maximum(np.abs(X).max(axis=0), 1e-9) if scaled else X), y


MADE: dict[str, Callable[[Path, bool], tuple[Any, Any]]] = {
    "large": lambda _, full: make_dense(7_500_000 if full else 1_500_000, 100),
    "dense 10": lambda *_: make_dense(300_000, 10),
    "dense 30": lambda *_: make_dense(600_000, 30),
    "dense 400": lambda *_: make_dense(60_000, 400),
    "covtype": lambda data, _: read_covtype(data, scaled=True),
    "covtype, unscaled": lambda data, _: read_covtype(data, scaled=False),
    "a timestamp": lambda *_: make_dense(3000, 500, scales=True),
    "sparse 400": lambda *_: make_sparse(200_000, 400, 0.05),
    "hashed": lambda *_: make_sparse(10_248, 65_537, 0.0003),
    "105 classes of text": lambda *_: make_sparse(8_000, 20_000, 0.003, classes=105),
    "20 classes": lambda *_: make_dense(25_000, 40, classes=20),
    "wide, 10 classes": lambda *_: make_dense(490, 765, classes=10),
    "1,000 rows": lambda *_: make_dense(1000, 10),
    "3,000 rows": lambda *_: make_dense(3000, 10),
    "wide targets": lambda *_: with_targets(*make_sparse(7_770, 8_315, 0.005)),
    "wider targets": lambda *_: with_targets(*make_sparse(2_000, 9_947, 0.005)),
    "targets": lambda *_: with_targets(*make_dense(600_000, 30)),
}
FILES = {"news20": "news20/news20.xz", "letter": "letter/letter.scale.xz"}


def make(name: str, folder: Path, data: Path, full: bool) -> Path:
    """Return the dataset with this name. Make it if it does not exist."""
    path = folder / f"{name}.zarr"
    if not path.exists():
        if name in FILES:
            streamsvm.ingest(data / FILES[name], path, file_format="svmlight")
        else:
            X, y = MADE[name](data, full)
            streamsvm.ingest(X, path, y, regression=name.endswith("targets"))
    return path


def fit(path: str, settings: dict[str, Any], most: float, environment: dict[str, str]) -> dict[str, Any]:
    """Run a fit, and return its measurements. After `most` seconds, stop it and return "over"."""
    command = [sys.executable, "-c", FIT, path, json.dumps(settings)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=most, env=os.environ | environment
        )
    except subprocess.TimeoutExpired:
        return {"cpu": most, "wall": most, "passes": 0, "peak": 0.0, "status": "over", "gap": None}
    if done.returncode:
        why = "refused" if "InputError" in done.stderr else done.stderr[-100:]
        return {"cpu": most, "wall": most, "passes": 0, "peak": 0.0, "status": why, "gap": None}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(problem: Problem, path: str, given: argparse.Namespace, environment: dict[str, str]) -> str:
    """Return the lines of the table for a problem: the default, and then each alternative."""
    ways: dict[str, dict[str, Any]] = {"default": {}, **problem.others}
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name, more in ways.items():
            if all(one["wall"] < given.most for one in taken[name]):
                taken[name].append(fit(path, problem.settings | more, given.most, environment))
    middle = {
        name: {key: median(one[key] for one in found) for key in ("cpu", "wall", "passes", "peak")}
        for name, found in taken.items()
    }
    best = min(problem.others, key=lambda name: middle[name]["wall"])
    lines = []
    for name, found in middle.items():
        ratios = [found[key] / (middle[best][key] + 0.1 / 1.3) for key in ("cpu", "wall")]
        shown = " ".join(f"{key}={value}" for key, value in problem.settings.items()) + " store" * problem.on_store
        told = [f"{ratio:.2f}" for ratio in ratios] if name == "default" else ["", ""]
        last = taken[name][-1]
        cells = (
            problem.data, shown, name, f"{found['cpu']:.2f}", f"{found['wall']:.2f}", f"{found['passes']:g}",
            f"{found['peak']:.0f} MB", str(last["status"]), "" if last["gap"] is None else f"{last['gap']:.1e}", *told,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", default="", help="only problems whose data and settings contain this word")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=300.0)
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    print("| data | settings | fit | CPU s | wall s | passes | peak | status | gap | CPU ratio | wall ratio |")
    print("|---|---|---|---:|---:|---:|---:|---|---:|---:|---:|")
    for problem in GRID:
        if given.only not in f"{problem.data} {problem.settings}":
            continue
        path = make(problem.data, given.folder, given.data, given.full)
        if not problem.on_store:
            print(measure(problem, str(path), given, {}), flush=True)
            continue
        with ObjectServer(latency=LATENCY) as server:
            upload(server, str(path))
            environment = ObjectServer.environment_of(server.url)
            print(measure(problem, "s3://bucket/rows.zarr", given, environment), flush=True)


if __name__ == "__main__":
    main()
