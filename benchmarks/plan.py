"""The passes and seconds that `train --plan` predicts, compared with those of `train`. Prints a Markdown table.

python benchmarks/plan.py FOLDER [--threads 1]

FOLDER holds adult/a9a, ijcnn1/ijcnn1.trn, web/w8a and covtype/covtype.csv (a header, then features and a class from 1
to 7). Covertype is used twice: class 1 against the rest, with columns divided by their maxima, and with all seven
classes. Each command is a separate process. The files are in the page cache, and the functions are compiled beforehand.
Seconds of a training include its passes and the computation between them, but not the start of Python. A ratio is the
predicted figure divided by the measured one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import streamsvm

LINE_SEARCH = "--option acceleration=line-search"
CASES = (
    ("a9a", f"--C 0.05 {LINE_SEARCH}"),
    ("a9a", f"--C 1 {LINE_SEARCH}"),
    ("ijcnn1", f"--C 1 {LINE_SEARCH}"),
    ("w8a", f"--C 0.1 {LINE_SEARCH}"),
    ("covtype", f"--C 0.01 {LINE_SEARCH}"),
    ("covtype", f"--C 1 {LINE_SEARCH}"),
    ("covtype", f"--C 1 --workers 2 {LINE_SEARCH}"),
    ("covtype, 7 classes", f"--C 0.01 {LINE_SEARCH}"),
    ("a9a", "--C 1 --resident-rows 10%"),
    ("covtype", "--C 1 --resident-rows 10%"),
    ("a9a", "--solver interior-point"),
    ("covtype", "--solver interior-point"),
    ("a9a", "--task roc-area"),
    ("covtype", "--task roc-area"),
    ("a9a", "--solver budgeted-sgd --gamma 0.008 --option budget=100"),
    ("ijcnn1", "--solver budgeted-sgd --C 32 --gamma 2"),
    ("covtype", "--solver budgeted-sgd --gamma 1 --option budget=100"),
)


def make_datasets(data: Path, work: Path) -> dict[str, Path]:
    """Ingest the datasets of the cases."""
    table = np.loadtxt(data / "covtype" / "covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    X, y = table[:, :-1] / np.maximum(table[:, :-1].max(axis=0), 1e-9), table[:, -1].astype(int)
    sources: dict[str, Any] = {
        "a9a": (str(data / "adult" / "a9a"),),
        "ijcnn1": (str(data / "ijcnn1" / "ijcnn1.trn"),),
        "w8a": (str(data / "web" / "w8a"),),
        "covtype": (X, np.where(y == 1, 1, -1)),
        "covtype, 7 classes": (X, y),
    }
    paths = {name: work / f"{number}.zarr" for number, name in enumerate(sources)}
    for name, path in paths.items():
        source, *labels = sources[name]
        streamsvm.ingest(source, path, *labels)
    return paths


def call(path: Path, settings: str) -> dict[str, Any]:
    """Run `train`, and return the JSON object that it prints."""
    command = [sys.executable, "-m", "streamsvm", "train", str(path), *settings.split(), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", default="1")
    given = parser.parse_args()
    print("| data | options | passes planned | taken | ratio | seconds planned | taken | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        paths = make_datasets(given.folder, Path(folder))
        for number, (name, settings) in enumerate(CASES):
            more = f"{settings} --threads {given.threads}"
            plan = call(paths[name], f"{more} --plan")
            real = call(paths[name], f"{more} --out {folder}/run-{number}")
            low, high = plan["passes_range"]
            shown = settings.replace("--option ", "")
            print(
                f"| {name} | {shown} | {plan['passes']} ({low} to {high}) | {real['passes']} "
                f"| {plan['passes'] / real['passes']:.2f} | {plan['seconds']:.2f} | {real['seconds']:.2f} "
                f"| {plan['seconds'] / real['seconds']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
