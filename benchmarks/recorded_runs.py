"""SHA-256 sums of the models of a fixed list of runs. A refactoring must not change these sums.

    python benchmarks/recorded_runs.py FOLDER --checkout OTHER     run with the code of another checkout
    python benchmarks/recorded_runs.py FOLDER                      run with this checkout's code
    python benchmarks/recorded_runs.py FOLDER --compare FOLDER2

FOLDER gets the data, the runs and models.json: for each run the SHA-256 of the model and of its predictions. With
--compare, this checkout reads the datasets of FOLDER2, which another checkout has written, and predicts with the models
of FOLDER2. A Markdown table shows the differences. The exit status is 1 if there are differences.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, random_array
from sklearn.datasets import dump_svmlight_file

ROOT = Path(__file__).resolve().parents[1]
SOLVERS = ("cutting-plane", "smo", "irwls", "interior-point", "budgeted-sgd")
SELECTIONS = ("second-order", "largest", "smallest", "random", "chunking", "platt")
MAPS = {"cholesky": "--rank 30", "eigen": "--rank 30", "nystrom": "--rank 30", "polynomial": ""}


@dataclass(frozen=True)
class Run:
    """A training of `data` with these arguments.

    passes: the number of passes after which it is stopped and resumed; 0: never.
    """

    data: str
    arguments: str
    passes: int = 0
    command: str = "train"

    @property
    def name(self) -> str:
        """The name of the run in the table."""
        stop = f", resumed after {self.passes}" if self.passes else ""
        return f"{self.command} {self.data} {self.arguments}{stop}"


def list_runs() -> Iterator[Run]:
    """Yield the runs."""
    for data in ("dense", "sparse"):
        for acceleration in ("one-read", "block-ascent", "line-search", "none"):
            for C in (0.01, 1):
                yield Run(data, f"--C {C} --tol 1e-4 --option acceleration={acceleration}")
        for solver in ("smo", "irwls"):
            for kernel in ("linear", "rbf", "poly --degree 2 --coef0 1", "sigmoid --gamma 0.01"):
                yield Run(data, f"--solver {solver} --kernel {kernel}")
        for reduction in ("adaptive-balanced", "adaptive", "fixed", "none"):
            yield Run(data, f"--solver interior-point --tol 1e-6 --option reduction={reduction}")
        for maintenance in ("merge", "gradient-merge", "projection", "removal"):
            budget = "--option budget=40 --option merge=3" if maintenance == "gradient-merge" else "--option budget=40"
            yield Run(data, f"--solver budgeted-sgd {budget} --option maintenance={maintenance}")
    for selection in SELECTIONS:
        resident = "" if selection == "platt" else " --resident-rows 50%"
        yield Run("dense", f"--solver smo --kernel rbf --option selection={selection}{resident}")
    for solver in SOLVERS:
        yield Run("classes", f"--solver {solver}")
        yield Run("dense", f"--solver {solver} --class-weight=1=3 --workers 2")
        tol = "" if solver == "budgeted-sgd" else " --tol 1e-5"
        yield Run("dense", f"--solver {solver} --seed 5{tol}", passes=2)
    for task, data in (("rank", "queries"), ("rank", "classes"), ("roc-area", "dense"), ("roc-area", "sparse")):
        for acceleration in ("line-search", "none"):
            yield Run(data, f"--task {task} --C 10 --option acceleration={acceleration}")
    for name in MAPS:
        yield Run(f"dense.{name}", "--C 1")
    yield Run("dense", "--C 0.1 --resident-rows 10% --option intercept_scaling=1")
    yield Run("dense", "--C 1 --option epsilon=0.01 --option acceleration=none")
    yield Run("dense", "--solver smo --kernel rbf --option inner=qp")
    yield Run("dense", "--solver budgeted-sgd --option replicas=2 --option bias=free --option epochs=2")
    yield Run("dense", "--C 0.1,1 --folds 3", command="tune")
    yield Run("queries", "--C 0.1,1 --folds 3 --task rank", command="tune")


def write_rows(folder: Path) -> None:
    """Write the text files that are ingested."""
    random = np.random.default_rng(0)
    dense = random.standard_normal((3000, 20))
    scores = dense @ random.standard_normal(20) + random.standard_normal(3000)
    sparse = csr_array(random_array((3000, 400), density=0.03, rng=random))
    sides = np.where(sparse @ random.standard_normal(400) > 0, 1, -1)
    dump_svmlight_file(dense, np.where(scores > 0, 1, -1), str(folder / "dense.svm"), zero_based=False)
    dump_svmlight_file(sparse, sides, str(folder / "sparse.svm"), zero_based=False)
    dump_svmlight_file(dense, np.digitize(scores, (-3, 0, 3)), str(folder / "classes.svm"), zero_based=False)
    ranks, qid = np.digitize(scores, (-3, 0, 3)), np.repeat(np.arange(60), 50)
    dump_svmlight_file(dense, ranks, str(folder / "queries.svm"), zero_based=False, query_id=qid)


@dataclass(frozen=True)
class Runner:
    """Runs commands with the code of a checkout, in a folder."""

    checkout: Path
    folder: Path

    def call(self, *arguments: object) -> str:
        """Run a command, and return its output.

        Raises RuntimeError if it fails; a training that ends at a limit has not failed.
        """
        command = [sys.executable, "-m", "streamsvm", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(self.checkout)}
        ended = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, 3):
            raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
        return ended.stdout

    def make_data(self) -> None:
        """Ingest the text files, and write datasets of mapped features."""
        write_rows(self.folder)
        for name in ("dense", "sparse", "classes", "queries"):
            self.call("ingest", f"{name}.svm", f"{name}.zarr", "--chunk-bytes", "40KB")
        for name, rank in MAPS.items():
            mapped = f"dense.{name}.zarr"
            self.call("features", "dense.zarr", mapped, "--map", name, "--chunk-bytes", "40KB", *rank.split())

    def train(self, run: Run, data: Path, out: Path) -> dict[str, str]:
        """Carry out a run; return the SHA-256 of its model and of its predictions."""
        started = (run.command, data / f"{run.data}.zarr", "--out", out, "--json", *run.arguments.split())
        if run.passes:
            self.call(*started, "--max-passes", run.passes)
        told = self.call(*started, *(["--resume"] if run.passes else []))
        sha = hashlib.sha256((out / "model.npz").read_bytes()).hexdigest()
        result: dict[str, Any] = json.loads(told.splitlines()[-1])
        return {"model": result.get("model_sha256", sha), "predictions": self.predict(run, data, out)}

    def predict(self, run: Run, data: Path, out: Path) -> str:
        """Return the SHA-256 of a model's predictions for the unmapped rows."""
        rows, predicted = run.data.partition(".")[0], self.folder / "predicted.csv"
        predicted.unlink(missing_ok=True)
        self.call("predict", out, data / f"{rows}.zarr", "--out", predicted)
        return hashlib.sha256(predicted.read_bytes()).hexdigest()


def main() -> int:
    """Record the runs, and compare them with --compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True)
    runner, found = Runner(options.checkout.resolve(), folder), {}
    data = options.compare.resolve() if options.compare else folder
    if not options.compare:
        runner.make_data()
    known = json.loads((data / "models.json").read_text()) if options.compare else {}
    different = 0
    print("| run | model | predictions |\n|---|---|---|")
    for k, run in enumerate(list_runs()):
        found[run.name] = runner.train(run, data, folder / f"run{k}")
        expected = known.get(run.name, found[run.name])
        same = found[run.name] == expected
        if options.compare:
            same = same and runner.predict(run, data, data / f"run{k}") == expected["predictions"]
        different += not same
        told = [
            value[:12] + ("" if same else f", was {expected[part][:12]}") for part, value in found[run.name].items()
        ]
        print(f"| {run.name} | {told[0]} | {told[1]} |", flush=True)
    (folder / "models.json").write_text(json.dumps(found, indent=1))
    print(f"\n{len(found)} runs, {different} of them different")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
