"""A click log, from CSV with text columns to probabilities, as a Markdown table.

    python pipelines/clicks.py [--rows 50000] [--work FOLDER]

streamsvm hashes the texts while it ingests them (`--hash 16`), and trains logistic regression to a certified gap. It is
compared with three other models: scikit-learn's FeatureHasher and SGDClassifier, which learn from the file piece by
piece; scikit-learn's exact LogisticRegression, which holds all rows in memory; and a linear SVM on the same hashed
features, with a sigmoid that maps its scores to probabilities. The exit status is 0 if the gaps are certified and the
log loss on later rows is at most 1% above the lowest of scikit-learn; otherwise it is 1.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import vstack
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss, roc_auc_score

import streamsvm
from pipelines.clicks.log import CATEGORIES, write_log
from pipelines.report import Report
from pipelines.story import add_work_argument, open_work, run_story
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.system.errors import InputError

HASH_BITS, COST = 16, 0.1
MOST = {"hour": 23.0, "seen": 12.0}  # numbers are divided by about their maximum, as `--scale maxabs` does
PIECE = 10_000  # the number of rows that SGD gets at a time
EPOCHS = 3
LEAST_ROWS = 1000
Measures = tuple[float, float]  # log loss and ROC area


def main() -> int:
    parser = argparse.ArgumentParser(prog="clicks.py", description="A log of clicks.")
    parser.add_argument("--rows", type=int, default=50_000, help="rows to train on (default: %(default)s)")
    add_work_argument(parser)
    options = parser.parse_args()
    return run_story("clicks.py", lambda: compare(options.rows, options.work))


def compare(n_rows: int, folder: Path | None) -> int:
    """Train all models, write the table, and return the exit status."""
    if n_rows < LEAST_ROWS:
        raise InputError(f"--rows {n_rows}: at least {LEAST_ROWS:,} are needed")
    report = Report()
    with open_work(folder) as work:
        train, test = work / "clicks.csv", work / "later-clicks.csv"
        write_log(train, 0, n_rows)
        write_log(test, 1, n_rows // 4)
        report.write(f"{n_rows:,} rows, {train.stat().st_size / 1e6:.0f} MB of text; {n_rows // 4:,} later rows\n")
        report.begin_table("", "", "log loss", "ROC area", "CPU s", "certified gap")
        names = (f"streamsvm, logistic, 2^{HASH_BITS}", f"streamsvm, hinge and sigmoid, 2^{HASH_BITS}")
        logistic = streamsvm.LogisticRegression(C=COST)
        ours, gap = train_ours(names[0], logistic, (train, test), report)
        svm = streamsvm.LinearSVC(C=COST, probability="sigmoid")
        _, other_gap = train_ours(names[1], svm, (train, test), report)
        sgd = train_pieces(train, test, n_rows, report)
        exact = train_exact(train, test, report)
    held = max(gap, other_gap) <= 1e-3 and ours[0] <= 1.01 * min(sgd[0], exact[0])
    return 0 if held else 1


def train_ours(name: str, model: Any, files: tuple[Path, Path], report: Report) -> tuple[Measures, float]:
    """Ingest, train and evaluate; write a row of the table; return the measures and the gap."""
    began, work = time.process_time(), files[0].parent
    scaled = IngestOptions(scale="maxabs", overwrite=True)
    rows = streamsvm.ingest(files[0], work / "clicks.zarr", label="clicked", hash_bits=HASH_BITS, options=scaled)
    model.fit(rows)
    seconds = time.process_time() - began
    target = work / "later-clicks.zarr"
    later = streamsvm.ingest(files[1], target, label="clicked", like=rows.path, options=IngestOptions(overwrite=True))
    found = measure(model.predict_proba(later)[:, 1], later.column("y"))
    add_row(report, name, found, seconds, f"{model.gap_:.1e}")
    return found, float(model.gap_)


def train_pieces(train: Path, test: Path, n_rows: int, report: Report) -> Measures:
    """Train by SGD, in several reads of the file. alpha is set so that the objective is the same as with C."""
    began = time.process_time()
    model = SGDClassifier(loss="log_loss", alpha=1.0 / (COST * n_rows), random_state=0)
    for _ in range(EPOCHS):
        for X, y in hash_pieces(train):
            model.partial_fit(X, y, classes=[0.0, 1.0])
    seconds = time.process_time() - began
    return add_measured(report, f"FeatureHasher, SGDClassifier, {EPOCHS} reads, 2^{HASH_BITS}", model, test, seconds)


def train_exact(train: Path, test: Path, report: Report) -> Measures:
    """Train scikit-learn's exact model, with all rows in memory."""
    began = time.process_time()
    pieces = list(hash_pieces(train))
    X, y = vstack([X for X, _ in pieces]).tocsr(), np.concatenate([y for _, y in pieces])
    model = LogisticRegression(C=COST, solver="liblinear", tol=1e-4).fit(X, y)
    return add_measured(
        report, f"FeatureHasher, LogisticRegression, 2^{HASH_BITS}", model, test, time.process_time() - began
    )


def hash_pieces(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the hashed rows and the labels of a CSV file, piece by piece."""
    hasher, rows = FeatureHasher(2**HASH_BITS), read_rows(path)
    while piece := list(islice(rows, PIECE)):
        told = [
            {
                **{f"{name}={row[name]}": 1.0 for name in CATEGORIES},
                **{name: float(row[name]) / most for name, most in MOST.items()},
            }
            for row in piece
        ]
        yield hasher.transform(told), np.array([float(row["clicked"]) for row in piece])


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield each row of a CSV file as a dict by the names of the columns."""
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def add_measured(report: Report, name: str, model: Any, test: Path, seconds: float) -> Measures:
    """Measure a model of scikit-learn on the later rows, write a row of the table, and return the measures."""
    pieces = list(hash_pieces(test))
    probabilities = np.concatenate([model.predict_proba(X)[:, 1] for X, _ in pieces])
    found = measure(probabilities, np.concatenate([y for _, y in pieces]))
    add_row(report, name, found, seconds, "")
    return found


def measure(probabilities: Any, truth: Any) -> Measures:
    """Return log loss and ROC area."""
    return float(log_loss(truth, probabilities)), float(roc_auc_score(truth, probabilities))


def add_row(report: Report, name: str, found: Measures, seconds: float, gap: str) -> None:
    report.add_row(name, f"{found[0]:.4f}", f"{found[1]:.4f}", f"{seconds:.1f}", gap)


if __name__ == "__main__":
    sys.exit(main())
