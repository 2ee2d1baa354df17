"""Brier score and log loss of our probabilities and of scikit-learn's CalibratedClassifierCV, as a Markdown table.

    python -m benchmarks.calibration --data FOLDER [--names a9a ijcnn1 phishing skin] [--ways sigmoid isotonic]

FOLDER holds the unpacked data. A fifth of the rows, drawn by a seed, is the test set. Both models are linear, with the
hinge loss and C = 1. streamsvm trains from a dataset on disk, on one thread; the table has the reads of trainings
without and with probabilities. Seconds are CPU seconds of the whole fit.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.svm import LinearSVC as Liblinear

from benchmarks.two_classes import load
from streamsvm import LinearSVC, ingest
from streamsvm.models.calibration import CALIBRATIONS


def measure(fit: Any, X: Any, y: Any) -> tuple[float, float, float]:
    """Fit, and return the Brier score and the log loss of the test rows X, and the CPU seconds of the fit."""
    began = time.process_time()
    model = fit()
    seconds = time.process_time() - began
    p = model.predict_proba(X)[:, 1]
    return brier_score_loss(y, p), log_loss(y, p), seconds


def compare(name: str, folder: Path, ways: list[str]) -> None:
    """Print the lines of the table for one dataset."""
    source = load(folder, name)
    assert source.y is not None
    X, y = source.X, source.y == 1
    is_test = np.random.default_rng(0).random(len(y)) < 0.2
    with TemporaryDirectory() as place:
        rows = ingest(X[~is_test], f"{place}/rows.zarr", y[~is_test])
        alone = LinearSVC(n_jobs=1).fit(rows).n_passes_
        for way in ways:
            ours = LinearSVC(probability=way, n_jobs=1)
            mine = measure(lambda ours=ours: ours.fit(rows), X[is_test], y[is_test])
            model = CalibratedClassifierCV(Liblinear(loss="hinge"), method=way, ensemble=False)
            theirs = measure(lambda model=model: model.fit(X[~is_test], y[~is_test]), X[is_test], y[is_test])
            told = [", ".join(f"{value:.4f}" for value in each[:2]) for each in (mine, theirs)]
            reads = f"{alone}, {ours.n_passes_}"
            print(f"| {name} | {way} | {told[0]} | {reads} | {mine[2]:.2f} | {told[1]} | {theirs[2]:.2f} |", flush=True)


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="+", default=["a9a", "ijcnn1", "phishing", "skin"])
    parser.add_argument("--ways", nargs="+", choices=list(CALIBRATIONS), default=list(CALIBRATIONS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | function | Brier score, log loss | reads without and with probabilities | CPU seconds | ", end="")
    print("scikit-learn's Brier score, log loss | its CPU seconds |")
    print("|---|---|---|---|---|---|---|")
    for name in given.names:
        compare(name, given.data, given.ways)


if __name__ == "__main__":
    main()
