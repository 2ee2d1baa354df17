"""Multi-label training: many labels of embeddings at once, compared with scikit-learn's one against the rest.

    python -m benchmarks.many_labels --rows 1000000 --features 256 --labels 1000 --memory 2GB --folder FOLDER
    python -m benchmarks.many_labels --rows 20000 --features 64 --labels 50 --beside

The rows are generated: vectors of length 1, with very different variances in different directions. A row has a label if
a noisy score exceeds a threshold; the frequency of a label is from 1 in 2,000 rows to 1 in 5. The rows are written
chunk by chunk, and a separate process trains on them from disk. The process's peak memory is printed next to the
projection. With --beside, scikit-learn's OneVsRestClassifier(LinearSVC) is trained on the same rows in memory, for
--theirs of the labels, and its CPU seconds are scaled to all labels.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC as Liblinear

from streamsvm.data.rows.source import SourceRows, list_columns
from streamsvm.ingestion.ingest import IngestOptions, write_dataset

PIECE_ROWS = 16384
RAREST, MOST_FREQUENT = 1 / 2000, 1 / 5
NOISE = 0.5
COLUMNS = (
    "rows | features | labels | loss | status | proved | mean gap | worst gap | reads | label passes | CPU s | peak | "
    "projected | theirs: CPU s | theirs: largest distance"
)


class Embeddings:
    """Generated rows in pieces, each with its own seed."""

    def __init__(self, n_features: int, n_labels: int, seed: int) -> None:
        rng = np.random.default_rng((seed, 0))
        self.scale, self.n_labels, self.seed = 1 / np.sqrt(1 + np.arange(n_features) / 8), n_labels, seed
        directions = rng.standard_normal((n_labels, n_features)) * self.scale
        self.directions = (directions / np.linalg.norm(directions, axis=1, keepdims=True)).astype(np.float32)
        shares = np.exp(np.linspace(np.log(RAREST), np.log(MOST_FREQUENT), n_labels))
        scores = self._score(self._draw(rng, 200_000 if n_labels <= 200 else 50_000), rng)
        self.sizes = scores.std(axis=0)
        self.limits = np.array([np.quantile(s, 1 - share) for s, share in zip(scores.T, shares, strict=True)])

    def _draw(self, rng: np.random.Generator, n_rows: int) -> npt.NDArray[np.float32]:
        X = rng.standard_normal((n_rows, len(self.scale)), dtype=np.float32) * self.scale.astype(np.float32)
        rows: npt.NDArray[np.float32] = X / np.linalg.norm(X, axis=1, keepdims=True)
        return rows

    def _score(self, X: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[np.float32]:
        scores = X @ self.directions.T
        spread = np.float32(NOISE / np.sqrt(X.shape[1]))
        noisy: npt.NDArray[np.float32] = scores + spread * rng.standard_normal(scores.shape, dtype=np.float32)
        return noisy

    def piece(self, number: int, n_rows: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Return the rows of a piece, and a mask of their labels."""
        rng = np.random.default_rng((self.seed, 1, number))
        X = self._draw(rng, n_rows)
        return X, self._score(X, rng) > self.limits

    def pieces(self, n_rows: int) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]]:
        """Yield all rows."""
        for number, at in enumerate(range(0, n_rows, PIECE_ROWS)):
            yield self.piece(number, min(PIECE_ROWS, n_rows - at))


def write(made: Embeddings, n_rows: int, path: Path) -> None:
    """Write the rows as a dataset. They are not shuffled, since they are independent."""
    rows = (SourceRows(X, list_columns(has, made.n_labels)) for X, has in made.pieces(n_rows))
    expected = n_rows * (4 * len(made.scale) + made.n_labels // 8)
    write_dataset(rows, path, "embeddings", expected, IngestOptions(layout="dense"))


def train(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of a training in a separate process, with its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "streamsvm", "train", str(path), "--out", str(path.parent / "run"), "--json"]
    command += ["--loss", options.loss, "--C", str(options.C), "--tol", str(options.tol), "--overwrite"]
    command += ["--memory", options.memory] if options.memory else []
    command += ["--threads", str(options.threads)] if options.threads else []
    for each in options.option:
        command += ["--option", each]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    result["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def compare(made: Embeddings, options: argparse.Namespace, objectives: list[float]) -> tuple[float, float]:
    """Return the CPU seconds of scikit-learn for all labels, and the largest distance of our P from its P."""
    pieces = list(made.pieces(options.rows))
    X, Y = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    codes = np.unique(np.linspace(0, made.n_labels - 1, options.theirs).astype(int))
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LIBLINEAR reaches its limit of iterations
        one = Liblinear(C=options.C, loss=options.loss, tol=1e-4, max_iter=10_000, random_state=0)
        theirs = OneVsRestClassifier(one).fit(X, Y[:, codes])
    seconds = (time.process_time() - began) * made.n_labels / len(codes)
    distances = []
    for code, each in zip(codes, theirs.estimators_, strict=True):
        w, b, y = each.coef_[0], each.intercept_[0], np.where(Y[:, code], 1.0, -1.0)
        missing = np.maximum(0.0, 1.0 - y * (X @ w + b))
        P = (w @ w + b**2) / 2 + options.C * np.sum(missing if options.loss == "hinge" else missing**2)
        distances.append(objectives[code] / P - 1.0)
    return seconds, max(distances)


def main() -> None:
    """Print a line of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--loss", default="squared_hinge")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--memory")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the dataset is kept (default: a temporary folder)")
    parser.add_argument("--beside", action="store_true", help="train scikit-learn's, too")
    parser.add_argument("--theirs", type=int, default=20, help="number of labels that scikit-learn is trained on")
    options = parser.parse_args()
    made = Embeddings(options.features, options.labels, options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        path = (options.folder or Path(temporary)) / f"{options.rows}-{options.features}-{options.labels}.zarr"
        if not path.exists():
            write(made, options.rows, path)
        found = train(path, options)
    problems = found["problems"]
    gaps, passes = ([one[name] for one in problems] for name in ("relative_gap", "passes"))
    proved = sum(one["status"] == "converged" for one in problems)
    beside = "- | -"
    if options.beside:
        seconds, distance = compare(made, options, [one["objective"] for one in problems])
        beside = f"{seconds:.1f} | {distance:.0e}"
    print(f"| {COLUMNS} |\n" + "|---" * 15 + "|")
    print(
        f"| {options.rows:,} | {options.features} | {options.labels} | {options.loss} | {found['status']} | {proved} | "
        f"{np.mean(gaps):.1e} | {np.max(gaps):.1e} | {found['passes']} | {np.mean(passes):.1f} | {found['cpu']:.1f} | "
        f"{found['peak_memory_bytes'] / 1e6:.0f} MB | {found['projected_memory_bytes'] / 1e6:.0f} MB | {beside} |"
    )


if __name__ == "__main__":
    main()
