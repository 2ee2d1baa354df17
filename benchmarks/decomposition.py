"""Kernel SVMs with a tenth of the rows in memory; the linear kernel on files of growing size. Prints Markdown tables.

    python benchmarks/decomposition.py --data FOLDER [--rounds 3] [--seeds 3] [--only a9a ijcnn1 ...]

FOLDER holds adult/a1a to a9a, web/w1a to w8a, ijcnn1/ijcnn1.trn, covtype/covtype.csv (a header, then features and a
class from 1 to 7; 100,000 or 20,000 rows are drawn, class 2 against the rest, columns divided by their maxima),
phishing/phishing, banana/banana.all.txt, skin_nonskin/Skin_NonSkin.txt and splice_libsvm/splice.txt. The constants that
limit the turns of a step were chosen on splice, covtype-20k, banana and phishing. With --only, the table of the linear
kernel is left out. Each training of the first table is a separate `streamsvm train` process, whose memory peak is
measured. The reference is a training with the default number of resident rows, to a gap of 1e-5. The floor is a lower
limit of the passes: the number of support vectors divided by the number of resident rows, since a pass adds at most one
column for each resident row. Exponents of the second table are the slopes of log seconds against log rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

import streamsvm
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.options import TrainOptions, count_resident
from streamsvm.runs.train import train

PROBLEMS = {  # C and gamma
    "a9a": (1.0, 0.05),
    "ijcnn1": (32.0, 2.0),
    "covtype": (1.0, 1.0),
    "covtype-20k": (1.0, 1.0),
    "phishing": (1.0, 0.1),
    "banana": (10.0, 1.0),
    "skin": (1.0, 10.0),
    "w8a": (5.0, 0.05),
    "splice": (1.0, 0.05),
}


def read_covtype(file: Path, n_rows: int = 100_000) -> tuple[Any, Any]:
    """Return rows of Covertype drawn at random, with labels of class 2 against the rest."""
    table = np.loadtxt(file, delimiter=",", dtype=np.float32, skiprows=1)
    table = table[np.random.default_rng(0).permutation(len(table))[:n_rows]]
    X = table[:, :54] / np.maximum(table[:, :54].max(axis=0), 1)
    return np.ascontiguousarray(X), np.where(table[:, 54] == 2, 1, -1)


def read_skin(file: Path) -> tuple[Any, Any]:
    """Return colours scaled to 0..1, with labels of skin against the rest."""
    table = np.genfromtxt(file, delimiter=",", skip_header=1, dtype=np.float32)
    return table[:, :3] / 255, np.where(table[:, 3] == 1, 1, -1)


def read_splice(file: Path) -> tuple[Any, Any]:
    """Return the rows of splice, with the codes 1..4 of the bases scaled to 0..1."""
    X, y = load_svmlight_file(str(file), dtype=np.float32)
    return (X.toarray() - 1) / 3, np.where(y > 0, 1, -1)


def ingest_problem(name: str, data: Path, folder: Path) -> Dataset:
    """Write a problem as a dataset."""
    files = {
        "a9a": data / "adult" / "a9a",
        "ijcnn1": data / "ijcnn1" / "ijcnn1.trn",
        "phishing": data / "phishing" / "phishing",
        "banana": data / "banana" / "banana.all.txt",
        "w8a": data / "web" / "w8a",
    }
    out = folder / f"{name}.zarr"
    if name in files:
        return streamsvm.ingest(files[name], out, file_format="svmlight")
    if name.startswith("covtype"):
        X, y = read_covtype(data / "covtype" / "covtype.csv", 100_000 if name == "covtype" else 20_000)
    elif name == "skin":
        X, y = read_skin(data / "skin_nonskin" / "Skin_NonSkin.txt")
    else:
        X, y = read_splice(data / "splice_libsvm" / "splice.txt")
    return streamsvm.ingest(X, out, y)


def run_train(dataset: Dataset, C: float, gamma: float, seed: int, *more: str) -> dict[str, Any]:
    """Train in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "streamsvm",
            "train",
            dataset.path,
            "--out",
            f"{folder}/run",
            "--solver",
            "smo",
            "--kernel",
            "rbf",
            "--C",
            str(C),
            "--gamma",
            str(gamma),
            "--seed",
            str(seed),
            "--json",
            *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def show_resident(data: Path, seeds: int, names: list[str]) -> None:
    """Print the table of trainings with few resident rows."""
    print(
        "| problem | seed | status | passes (<= 8) | floor | gap | objective over reference | peak MB | projected MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            dataset, (C, gamma) = ingest_problem(name, data, Path(folder)), PROBLEMS[name]
            reference = run_train(dataset, C, gamma, 0, "--tol", "1e-5")
            for seed in range(seeds):
                found = run_train(dataset, C, gamma, seed, "--resident-rows", "10%")
                over = found["objective"] / reference["lower_bound"] - 1
                floor = found["n_support_vectors"] / count_resident("10%", dataset.n_rows)
                print(
                    f"| {name} | {seed} | {found['status']} | {found['passes']} | {floor:.1f} "
                    f"| {found['relative_gap']:.1e} | {over:+.1e} | {found['peak_memory_bytes'] / 1e6:.0f} "
                    f"| {found['projected_memory_bytes'] / 1e6:.0f} |",
                    flush=True,
                )


def show_scaling(data: Path, rounds: int) -> None:
    """Print the table of the linear kernel on files of growing size."""
    print("\n| linear kernel | file | rows | median seconds | passes | exponent (<= 1.3) |\n|---|---|---|---|---|---|")
    for name, files, C in (
        ("adult", ("a1a", "a4a", "a5a", "a7a", "a8a", "a9a"), 0.05),
        ("web", ("w1a", "w4a", "w6a", "w7a", "w8a"), 1.0),
    ):
        sources = [read_memory(data / name / file) for file in files]
        options = TrainOptions(C=C, solver="smo")
        results = [[train(source, options) for source in sources] for _ in range(rounds + 1)][1:]
        sizes = [source.n_rows for source in sources]
        seconds = [median(result.seconds for result in same) for same in zip(*results, strict=True)]
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        for file, n_rows, spent, result in zip(files, sizes, seconds, results[0], strict=True):
            shown = f"{exponent:.2f}" if n_rows == sizes[-1] else ""
            print(f"| {name}, C={C} | {file} | {n_rows:,} | {spent:.3f} | {result.passes} | {shown} |", flush=True)


def read_memory(file: Path) -> Any:
    """Return rows in memory."""
    from scipy.sparse import csr_array

    X, y = load_svmlight_file(str(file), dtype=np.float32)
    return ArrayDataset(csr_array(X), (y > 0).astype(np.int32), np.array([-1, 1]))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS)
    options = parser.parse_args()
    show_resident(options.data, options.seeds, options.only or list(PROBLEMS))
    if not options.only:
        show_scaling(options.data, options.rounds)


if __name__ == "__main__":
    main()
