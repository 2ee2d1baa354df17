"""The problems of Qaadan and Glasmachers 2018: their published numbers (Table 2), and their rows.

The paper does not specify the splits. Judging by its size, Web is w6a. phishing and skin are split at random into parts
of the published sizes. The three colours of skin are scaled to -1..1: with this scaling, the exact SVM has the
published accuracy of 98.9% (it has 99.96% with 0..255, and 96.5% with 0..1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import streamsvm
from pipelines.data import DataFolder
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import F32, F64, CsrRows, Matrix, Rows
from streamsvm.system.errors import InputError


@dataclass(frozen=True)
class Problem:
    """A row of Table 2.

    Attributes
    ----------
    train, test : tuple of str
        The names of the training files and of the test files. Without test files, the training rows are split.
    accuracy : float
        Published accuracy of LIBSVM, in per cent.
    """

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    n_rows: int
    C: float
    gamma: float
    accuracy: float

    @property
    def kernel(self) -> Kernel:
        """The kernel exp(-gamma |x - z|^2)."""
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
    """The training and test rows, and their labels (-1 or +1)."""

    X: Matrix
    y: F64
    X_test: Matrix
    y_test: F64

    @property
    def n_features(self) -> int:
        """The number of features of both parts."""
        return int(self.X.shape[1])


def read_problem(folder: DataFolder, work: Path, problem: Problem, most_rows: int | None) -> Split | None:
    """Read at most most_rows rows of each part of a problem; return None if a file is missing."""
    train, test = folder.find(*problem.train), folder.find(*problem.test)
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


def read_rows(file: Path, place: Path) -> Rows:
    """Return all rows of a file, in the random order of a dataset written from it."""
    if ".txt" in file.name:
        dataset = streamsvm.ingest(file, place, file_format="csv", label="skin")
    else:
        dataset = streamsvm.ingest(file, place, file_format="svmlight")
    n_classes = 0 if dataset.classes is None else len(dataset.classes)
    if n_classes != 2:
        raise InputError(f"{file} has {n_classes} classes; this story needs 2")
    return dataset.take(np.arange(dataset.n_rows))


def sign(rows: Rows) -> F64:
    """Return the labels as -1 and +1."""
    return np.where(rows.y == 1, 1.0, -1.0)


def widen(X: Matrix, n_features: int) -> Matrix:
    """Return the rows with additional features of value 0."""
    if isinstance(X, CsrRows):
        return replace(X, n_features=n_features)
    wide: F32 = np.pad(X, ((0, 0), (0, n_features - X.shape[1])))
    return wide


def cut(X: Matrix, start: int, stop: int) -> Matrix:
    """Return the rows start:stop as a copy."""
    if not isinstance(X, CsrRows):
        return np.ascontiguousarray(X[start:stop])
    stop = min(stop, X.shape[0])
    items = slice(X.indptr[start], X.indptr[stop])
    return CsrRows(X.data[items], X.indices[items], X.indptr[start : stop + 1] - X.indptr[start], X.n_features)
