"""The data of Qaadan & Glasmachers 2018: what their Table 2 says of them, and their rows. For qaadan_2018.py.

They name no splits. Web is w6a, by its size; phishing and skin are split at random, in the sizes that they give. Skin's
three colours are scaled to -1..1: then the exact SVM's accuracy is theirs (98.9%; 99.96% with 0..255, 96.5% with 0..1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import streamsvm
from streamsvm.errors import InputError
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F32, F64, CsrRows, Matrix, Rows


@dataclass(frozen=True)
class Problem:
    """A row of Table 2; accuracy: of LIBSVM, in per cent. files: to train on, and to test on or none: a split."""

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    n_rows: int
    C: float
    gamma: float
    accuracy: float

    @property
    def kernel(self) -> Kernel:
        """exp(-gamma |x - z|^2)."""
        return Kernel("rbf", gamma=self.gamma)


PROBLEMS = (
    Problem("phishing", ("phishing",), (), 8315, 8, 8, 97.55),
    Problem("web", ("w6a",), ("w6a.t",), 17188, 8, 0.03, 98.80),
    Problem("adult", ("a9a",), ("a9a.t",), 32561, 32, 0.008, 84.82),
    Problem("ijcnn1", ("ijcnn1", "ijcnn1.trn"), ("ijcnn1.t", "ijcnn1.tst"), 49990, 32, 2, 98.77),
    Problem("skin", ("skin_nonskin", "Skin_NonSkin.txt"), (), 164788, 8, 0.03, 98.96),
)


@dataclass(frozen=True)
class Split:
    """Rows and labels, -1 or +1, to train on and to test on."""

    X: Matrix
    y: F64
    X_test: Matrix
    y_test: F64

    @property
    def n_features(self) -> int:
        """Features of either part."""
        return self.X.shape[1]


def read_problem(folder: Path, work: Path, problem: Problem, most_rows: int | None) -> Split | None:
    """Read the rows of a problem, at most so many of each part; None where there are none."""
    train = find_file(folder, problem.train)
    test = find_file(folder, problem.test)
    if train is None or (problem.test and test is None):
        return None
    rows = read_rows(train, work / f"{problem.name}.zarr")
    if test is not None:
        others = read_rows(test, work / f"{problem.name}-test.zarr")
        n_features = max(rows.X.shape[1], others.X.shape[1])
        parts = [(widen(part.X, n_features), sign(part)) for part in (rows, others)]
    else:
        X = rows.X if isinstance(rows.X, CsrRows) or problem.name != "skin" else rows.X / np.float32(127.5) - 1
        n = min(problem.n_rows, 3 * rows.n_rows // 4)
        parts = [(cut(X, 0, n), sign(rows)[:n]), (cut(X, n, rows.n_rows), sign(rows)[n:])]
    (X, y), (X_test, y_test) = ((cut(X, 0, most_rows or len(y)), y[: most_rows or len(y)]) for X, y in parts)
    return Split(X, y, X_test, y_test)


def find_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the first of the files that is there, plain or .xz, in the folder or one of its subfolders."""
    places = (folder, *sorted(folder.glob("*/")))
    files = (place / (name + ending) for name in names for place in places for ending in ("", ".xz"))
    return next((file for file in files if file.is_file()), None)


def read_rows(file: Path, place: Path) -> Rows:
    """All rows of a file, from text to a dataset, which shuffles them."""
    table = {"file_format": "csv", "label": "skin"} if ".txt" in file.name else {"file_format": "svmlight"}
    dataset = streamsvm.ingest(file, place, **table)
    if len(dataset.classes) != 2:
        raise InputError(f"{file}: {len(dataset.classes)} classes, not 2")
    return dataset.take(np.arange(dataset.n_rows))


def sign(rows: Rows) -> F64:
    """Labels, -1 or +1."""
    return np.where(rows.y == 1, 1.0, -1.0)


def widen(X: Matrix, n_features: int) -> Matrix:
    """Rows with more features, which they do not have."""
    if isinstance(X, CsrRows):
        return replace(X, n_features=n_features)
    wide: F32 = np.pad(X, ((0, 0), (0, n_features - X.shape[1])))
    return wide


def cut(X: Matrix, start: int, stop: int) -> Matrix:
    """Rows start:stop, in memory of their own."""
    if not isinstance(X, CsrRows):
        return np.ascontiguousarray(X[start:stop])
    stop = min(stop, X.shape[0])
    items = slice(X.indptr[start], X.indptr[stop])
    return CsrRows(X.data[items], X.indices[items], X.indptr[start : stop + 1] - X.indptr[start], X.n_features)
