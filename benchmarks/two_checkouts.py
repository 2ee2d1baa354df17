"""Speed of commands in two checkouts, by wall clock and by CPU seconds, as a Markdown table.

    python benchmarks/two_checkouts.py BEFORE [AFTER] [--rounds 7] [--only ingest ...]

BEFORE and AFTER are folders of the repository; AFTER is this one by default. In each round, the two take turns, and
each runs every command in a separate process. The process runs the command three times, and the faster of the last two
runs counts, without compiling and importing. Cells are medians over the rounds. A ratio above 1 means that AFTER is
faster. CPU seconds include those of child processes; they vary less than the wall clock if other programs are running.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
DENSE = ["train", "csv.zarr", "--out", "model", "--overwrite"]
CUTS = [*DENSE, "--solver", "cutting-plane", "--max-passes", "12", "--option"]
SMALL = ["train", "small.zarr", "--out", "model", "--overwrite"]
OPERATIONS = {
    "ingest, CSV": ["ingest", "../rows.csv", "csv.zarr", "--label", "label", "--overwrite"],
    "ingest, small CSV": ["ingest", "../small.csv", "small.zarr", "--label", "label", "--overwrite"],
    "ingest, svmlight": ["ingest", "../rows.svm", "svm.zarr", "--overwrite"],
    "train, one read": DENSE,
    "train, line search": [*CUTS, "acceleration=line-search"],
    "train, cutting plane": [*CUTS, "acceleration=none"],
    "train, squared hinge": [*DENSE, "--loss", "squared_hinge"],
    "train, sparse": ["train", "svm.zarr", "--out", "model", "--overwrite"],
    "train, SMO": [*SMALL, "--kernel", "rbf", "--gamma", "0.05"],
    "train, interior point": [*SMALL, "--solver", "interior-point"],
    "predict": ["predict", "trained", "csv.zarr", "--out", "predictions.csv", "--overwrite"],
    "info": ["info", "csv.zarr"],
}
PREPARATION = [*list(OPERATIONS.values())[:3], ["train", "csv.zarr", "--out", "trained"]]
CHILD = """
import contextlib, io, json, os, resource, runpy, sys, time, streamsvm
assert streamsvm.__file__.startswith(os.environ["PYTHONPATH"]), streamsvm.__file__
def read_clocks():
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)
found, commands, repetitions = [], json.loads(sys.argv[1]), int(sys.argv[2])
for command in commands * repetitions:
    sys.argv = ["streamsvm", *command]
    before = read_clocks()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            runpy.run_module("streamsvm", run_name="__main__")
        except SystemExit as error:
            assert not error.code or "--max-passes" in command, (command, error.code)
    found.append([new - old for old, new in zip(before, read_clocks())])
print(json.dumps(found))
"""


def run(checkout: Path, folder: Path, commands: list[list[str]], repetitions: int = 1) -> list[tuple[float, float]]:
    """Run commands of a checkout in a fresh process, and return the wall and CPU seconds of each."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, json.dumps(commands), str(repetitions)]
    env = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(wall, cpu) for wall, cpu in json.loads(done.stdout)]


def write_csv(path: Path, n_rows: int) -> None:
    """Write rows of 20 features and a label."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 20))
    y = X[:, :3].sum(axis=1) + 0.8 * rng.normal(size=n_rows) > 0
    names = ",".join([*(f"f{j}" for j in range(20)), "label"])
    np.savetxt(path, np.column_stack((X, y)), "%.6g", ",", header=names, comments="")


def write_svmlight(path: Path, n_rows: int) -> None:
    """Write sparse rows with 50 of 5,000 features."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=5000)
    with path.open("w") as file:
        for _ in range(n_rows):
            columns, values = np.sort(rng.choice(5000, 50, replace=False)), rng.random(50)
            pairs = " ".join(f"{j + 1}:{value:.5g}" for j, value in zip(columns.tolist(), values.tolist(), strict=True))
            file.write(f"{1 if w[columns] @ values + rng.normal() > 0 else -1} {pairs}\n")


def compare(checkouts: list[Path], folder: Path, names: list[str], rounds: int) -> None:
    """Print the table of the named commands."""
    write_csv(folder / "rows.csv", 200_000)
    write_csv(folder / "small.csv", 6_000)
    write_svmlight(folder / "rows.svm", 60_000)
    for k, checkout in enumerate(checkouts):
        run(checkout, folder / str(k), PREPARATION)
    print("| command | before, s | after, s | ratio | before, CPU s | after, CPU s | ratio |\n|---|" + "---:|" * 6)
    for name in names:
        found: list[list[Any]] = [[], []]
        for _ in range(rounds):
            for k, checkout in enumerate(checkouts):
                found[k].append(np.min(run(checkout, folder / str(k), [OPERATIONS[name]], 3)[1:], axis=0))
        before, after = (np.median(one, axis=0) for one in found)
        pairs = zip(before, after, strict=True)
        print(f"| {name} |", *(f"{old:.3f} | {new:.3f} | {old / new:.2f} |" for old, new in pairs), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=[""], help="the beginnings of the commands to run")
    given = parser.parse_args()
    chosen = [name for name in OPERATIONS if name.startswith(tuple(given.only))]
    with TemporaryDirectory() as temporary:
        compare([given.before.resolve(), given.after.resolve()], Path(temporary), chosen, given.rounds)
