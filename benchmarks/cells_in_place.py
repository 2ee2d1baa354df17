"""Three ways to train on a `.h5ad` file of sparse cells: in place, after an ingest, and by scikit-learn in memory.

    python -m benchmarks.cells_in_place [--cells 100000] [--genes 2000] [--memory 600MB] [--rounds 2]

Prints a Markdown table of medians: CPU seconds since the start of Python, and the peak of resident memory. The three
ways take turns, each in a separate process. The cells are generated; 7% of their counts are not zero. C is 0.01.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

MEASURED = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1000]))
"""
THEIRS = """
import sys, warnings, anndata
from sklearn.svm import LinearSVC
warnings.simplefilter("ignore")
cells = anndata.read_h5ad(sys.argv[1])
LinearSVC(C=0.01, loss="hinge", tol=1e-2, max_iter=300).fit(cells.X, cells.obs.cell_type)
"""


def write_cells(path: Path, n_cells: int, n_genes: int) -> None:
    """Write cells of two types, which differ in the first 20 genes."""
    import anndata
    import pandas as pd
    from scipy.sparse import random_array

    X = random_array((n_cells, n_genes), density=0.07, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    X.data = np.abs(X.data) + np.float32(0.1)
    types = np.where(X[:, :20].sum(axis=1) > 1.0, "T", "B")
    obs = pd.DataFrame({"cell_type": pd.Categorical(types)}, index=[f"c{i}" for i in range(n_cells)])
    anndata.AnnData(X, obs).write_h5ad(path)


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command, and return its CPU seconds and its peak of resident memory in MB."""
    ran = subprocess.run([sys.executable, "-c", MEASURED, *command], check=True, capture_output=True)
    seconds, megabytes = json.loads(ran.stdout)
    return seconds, megabytes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--memory", default="600MB")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        cells, rows = Path(name) / "cells.h5ad", str(Path(name) / "cells.zarr")
        write_cells(cells, options.cells, options.genes)
        ours, label = [sys.executable, "-m", "streamsvm"], ["--label", "cell_type"]
        given = ["--C", "0.01", "--memory", options.memory, "--overwrite", "--out", str(Path(name) / "run")]
        ways = {
            "`train cells.h5ad`": [*ours, "train", str(cells), *label, *given],
            "`ingest cells.h5ad cells.zarr`": [*ours, "ingest", str(cells), rows, *label, "--overwrite"],
            "`train cells.zarr`": [*ours, "train", rows, *given],
            "`anndata.read_h5ad`, `LinearSVC` of scikit-learn": [sys.executable, "-c", THEIRS, str(cells)],
        }
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, command in ways.items():
                found[way].append(measure(command))
        print(f"| {options.cells:,} cells, {options.genes:,} genes | CPU s | peak memory |\n|---|---|---|")
        for way, measured in found.items():
            seconds, megabytes = (median(values) for values in zip(*measured, strict=True))
            print(f"| {way} | {seconds:.1f} | {megabytes:.0f} MB |")


if __name__ == "__main__":
    main()
