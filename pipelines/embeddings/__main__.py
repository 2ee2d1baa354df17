"""Linear probes over embeddings: many labels, float16, and probabilities, as a Markdown table.

    python pipelines/embeddings.py [--rows 10000] [--labels 100] [--seed 0] [--work FOLDER]

The embeddings are in a NumPy file of float16. streamsvm stores them in this type, and trains logistic regression for
all labels in the same reads. It is compared with scikit-learn's OneVsRestClassifier, once around LogisticRegression,
which has the same objectives, and once around SGDClassifier. The labels are drawn with known probabilities, so the
least possible log loss is known. The exit status is 0 if all gaps are certified, the models of float16 and of float32
rows have the same weights, and the log loss on other rows is at most 1% above scikit-learn's; otherwise it is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import average_precision_score, log_loss
from sklearn.multiclass import OneVsRestClassifier
from threadpoolctl import threadpool_limits

import streamsvm
from pipelines.embeddings.vectors import Embeddings, make_embeddings
from pipelines.report import Report
from pipelines.story import add_work_argument, open_work, run_story
from streamsvm.system.errors import InputError

N_FEATURES = 256
COST = 10.0
LEAST_ROWS, LEAST_LABELS = 2000, 2


@dataclass(frozen=True)
class Outcome:
    """The mean log loss of the labels on other rows, the weights (labels, features), and the largest gap."""

    loss: float
    weights: npt.NDArray[np.float64]
    worst_gap: float = np.nan


def main() -> int:
    parser = argparse.ArgumentParser(prog="embeddings.py", description="Linear probes over embeddings.")
    parser.add_argument("--rows", type=int, default=10_000, help="rows to train on (default: %(default)s)")
    parser.add_argument("--labels", type=int, default=100, help="number of labels (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated rows (default: %(default)s)")
    add_work_argument(parser)
    options = parser.parse_args()
    return run_story("embeddings.py", lambda: compare(options.rows, options.labels, options.seed, options.work))


def compare(n_rows: int, n_labels: int, seed: int, folder: Path | None) -> int:
    """Train all, write the table, and return the exit status."""
    if n_rows < LEAST_ROWS or n_labels < LEAST_LABELS:
        raise InputError(f"at least {LEAST_ROWS:,} rows and {LEAST_LABELS} labels are needed")
    drawn = make_embeddings(seed, n_rows + n_rows // 4, N_FEATURES, n_labels)
    train, test = take(drawn, slice(None, n_rows)), take(drawn, slice(n_rows, None))
    report = Report()
    report.write(f"{n_rows:,} rows of {N_FEATURES} features, {n_labels} labels; {n_rows // 4:,} other rows\n")
    report.begin_table("", "", "log loss", "mean average precision", "CPU s", "stored", "worst certified gap")
    add_row(report, "the probabilities that the labels were drawn of", test.probabilities, test)
    with open_work(folder) as work:
        np.save(work / "embeddings.npy", train.X)
        half, single = (train_ours(dtype, train, test, work, report) for dtype in ("float16", "float32"))
    theirs = train_others(train, test, report)
    is_same = np.array_equal(half.weights, single.weights)
    report.write(f"\nWeights of float16 and of float32: {'the same' if is_same else 'NOT the same'}")
    return 0 if is_same and half.worst_gap <= 1e-3 and half.loss <= 1.01 * theirs.loss else 1


def take(rows: Embeddings, part: slice) -> Embeddings:
    """Return the rows of one part."""
    return Embeddings(rows.X[part], rows.Y[part], rows.probabilities[part])


def train_ours(dtype: str, train: Embeddings, test: Embeddings, work: Path, report: Report) -> Outcome:
    """Ingest the rows of the file through a memory map, train, and write a row of the table."""
    began = time.process_time()
    rows = np.load(work / "embeddings.npy", mmap_mode="r")
    data = streamsvm.ingest(rows, work / f"{dtype}.zarr", train.Y, dtype=dtype, overwrite=True)
    model = streamsvm.LogisticRegression(C=COST).fit(data)
    seconds = time.process_time() - began
    worst = float(model.result_.as_json()["gaps"]["worst"])
    cells = (f"{seconds:.1f}", f"{data.stored_bytes / 1e6:.1f} MB", f"{worst:.1e}")
    loss = add_row(report, f"streamsvm, {dtype}", model.predict_proba(test.X.astype(np.float32)), test, *cells)
    return Outcome(loss, model.coef_, worst)


def train_others(train: Embeddings, test: Embeddings, report: Report) -> Outcome:
    """Train the models of scikit-learn, one label after another, and return the outcome of LogisticRegression."""
    X, other = train.X.astype(np.float32), test.X.astype(np.float32)
    exact = OneVsRestClassifier(LogisticRegression(C=COST, max_iter=1000))
    sgd = OneVsRestClassifier(SGDClassifier(loss="log_loss", alpha=1 / (COST * len(X)), random_state=0))
    losses = []
    for name, model in (("LogisticRegression", exact), ("SGDClassifier", sgd)):
        began = time.process_time()
        with warnings.catch_warnings(), threadpool_limits(1):  # waiting threads would use CPU time
            warnings.simplefilter("ignore")  # scikit-learn warns about labels for which SGD has not converged
            model.fit(X, train.Y.astype(int))
        cells = (f"{time.process_time() - began:.1f}", f"{X.nbytes / 1e6:.1f} MB", "")
        losses.append(add_row(report, f"scikit-learn, {name}", model.predict_proba(other), test, *cells))
    return Outcome(losses[0], np.array([each.coef_[0] for each in exact.estimators_]))


def add_row(report: Report, name: str, probabilities: Any, test: Embeddings, *cells: str) -> float:
    """Write a row of the table, and return the mean of the log loss over labels."""
    known = [k for k in range(test.Y.shape[1]) if 0 < test.Y[:, k].sum() < len(test.Y)]
    loss = float(np.mean([log_loss(test.Y[:, k], probabilities[:, k], labels=[0, 1]) for k in known]))
    precision = float(average_precision_score(test.Y[:, known], probabilities[:, known], average="macro"))
    report.add_row(name, f"{loss:.4f}", f"{precision:.4f}", *(cells or ("", "", "")))
    return loss


if __name__ == "__main__":
    sys.exit(main())
