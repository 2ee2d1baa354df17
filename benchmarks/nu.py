"""nu-SVC and nu-SVR with the Gaussian kernel, compared with LIBSVM. Prints a Markdown table.

    python -m benchmarks.nu --data FOLDER [--rows 4000]

FOLDER holds ijcnn1 and wine/winequality-white.csv, as for the other benchmarks. --rows rows are drawn at random. gamma
is 1 over the number of features, and tol is 1e-3. Passes are counted in a run with a fifth of the rows in memory. CPU
seconds are measured on one thread, with all rows in memory.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import svm

from benchmarks.regression import load as load_targets
from benchmarks.smooth_losses import measure
from benchmarks.two_classes import load
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train


def main() -> None:
    """Print a line for each problem and nu."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4000)
    given = parser.parse_args()
    print(
        "| data | nu | support vectors | passes, 20% | CPU s | gap | LIBSVM's CPU s | same sign | greatest difference |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, nus in (("ijcnn1", (0.05, 0.1)), ("wine", (0.2, 0.5))):
        source = load(given.data, name) if name == "ijcnn1" else load_targets(given.data, name)
        chosen = np.random.default_rng(0).permutation(source.n_rows)[: given.rows]
        for nu in nus:
            print(f"| {name} | {nu:g} | {compare(source, np.sort(chosen), nu)} |", flush=True)


def compare(source: ArrayDataset, chosen: Any, nu: float) -> str:
    """Train by us and by LIBSVM, and return the cells of a line of the table."""
    rows = source.take(chosen)
    X = np.zeros((rows.n_rows, source.n_features), np.float32)
    if isinstance(rows.X, np.ndarray):
        X[:] = rows.X
    else:
        X[np.repeat(np.arange(rows.n_rows), np.diff(rows.X.indptr)), rows.X.indices] = rows.X.data
    gamma, is_tube = 1.0 / source.n_features, rows.target is not None
    task: dict[str, Any] = {"task": "nu-regress" if is_tube else "nu-classify", "kernel": "rbf"}
    task |= {"gamma": gamma, "nu": nu}
    mine = ArrayDataset(X, None, None, target=rows.target) if is_tube else ArrayDataset(X, rows.y, source.classes)
    few = train(mine, TrainOptions(**task, threads=1, resident_rows="20%"))
    seconds, whole = measure(lambda: train(mine, TrainOptions(**task, threads=1, resident_rows="100%")))
    other = (svm.NuSVR if is_tube else svm.NuSVC)(nu=nu, gamma=gamma, cache_size=1000)
    theirs, _ = measure(partial(other.fit, X, rows.target if is_tube else rows.y))
    found = whole.model.decide(X)
    same = "- |" if is_tube else f"{np.mean((found > 0) == (other.predict(X) > 0)):.4f} |"
    same += f" {np.max(np.abs(found - other.predict(X))):.3f}" if is_tube else " -"
    cells = [f"{whole.n_support_vectors:,}", str(few.passes), f"{seconds:.2f}", f"{whole.relative_gap:.0e}"]
    return " | ".join([*cells, f"{theirs:.2f}", same])


if __name__ == "__main__":
    main()
