"""Brier score and log loss of probabilities, beside scikit-learn's CalibratedClassifierCV, as a Markdown table.

    python -m tests.benchmarks.calibration --data FOLDER [--names a9a ijcnn1 phishing skin]

FOLDER: the unpacked data. A fifth of the rows, drawn by a seed, tests what the others have trained. Both models are
linear with the hinge loss, C = 1, in memory on one thread; seconds are CPU seconds of the whole fit.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.svm import LinearSVC as Liblinear

from streamsvm import LinearSVC
from tests.benchmarks.two_classes import load


def measure(model: Any, X: Any, y: Any, is_test: Any) -> tuple[float, float, float]:
    """Fit; return the Brier score and the log loss of the test rows, and the CPU seconds."""
    began = time.process_time()
    model.fit(X[~is_test], y[~is_test])
    seconds = time.process_time() - began
    p = model.predict_proba(X[is_test])[:, 1]
    return brier_score_loss(y[is_test], p), log_loss(y[is_test], p), seconds


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="+", default=["a9a", "ijcnn1", "phishing", "skin"])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | Brier score | log loss | CPU seconds | reads | Brier score | log loss | CPU seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.names:
        source = load(given.data, name)
        assert source.y is not None
        X, y = source.X, source.y == 1
        is_test = np.random.default_rng(0).random(len(y)) < 0.2
        ours = LinearSVC(probability=True, n_jobs=1)
        mine = measure(ours, X, y, is_test)
        theirs = measure(CalibratedClassifierCV(Liblinear(loss="hinge"), ensemble=False), X, y, is_test)
        cells = [*(f"{value:.4f}" for value in mine[:2]), f"{mine[2]:.2f}", str(ours.n_passes_)]
        cells += [*(f"{value:.4f}" for value in theirs[:2]), f"{theirs[2]:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
