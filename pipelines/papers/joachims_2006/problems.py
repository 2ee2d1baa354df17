"""The problems of Joachims 2006: their published results (Table 1 and section 4), and their rows.

Covertype (class 1 against the rest, columns divided by their largest values), Adult and Web are the real data sets.
Generated rows (streamsvm.ingestion.generated), with the number of features and the density that the paper states, stand
in for Reuters, Arxiv and KDD04. Reuters and Arxiv are text-like rows of norm 1; C11 has 3% positive rows. KDD04 has
dense rows of norm about 1 (in the paper's data, only 38% of the values are not 0). All rows are shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from pipelines.data import DataFolder, narrow_indices, read_covertype, read_svmlight, to_scipy
from pipelines.sparse_rows import SparseTruth
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.ingestion.generated import Truth
from streamsvm.numeric.rows import F32, CsrRows
from streamsvm.system.errors import InputError

Codes = npt.NDArray[np.int32]
Matrix: TypeAlias = F32 | csr_array
Part = tuple[Matrix, Codes]
LABELS = np.array([-1, 1])
TEST_ROWS = 20_000  # the number of test rows, if the rows are generated
RARE = 0.03  # the share of positive rows in C11


@dataclass(frozen=True)
class Published:
    """A row of Table 1 or section 4.1: rows, and CPU seconds of SVMperf, SVMlight, and SVMperf for two ranks."""

    n_rows: int
    perf: float
    light: float | None = None
    ranks: float | None = None


@dataclass(frozen=True)
class Problem:
    """A data set with the C of the paper, which multiplies the mean loss.

    Attributes
    ----------
    files : tuple of str
        The files of the training and test rows; without files, `n_rows` rows are generated.
    by_break_even : bool
        Whether performance is the break-even point of precision and recall, instead of accuracy.
    """

    name: str
    C: float
    published: Published
    read: Callable[[list[Path], int], tuple[Part, Part]]
    files: tuple[str, ...] = ()
    n_rows: int = 0
    by_break_even: bool = False

    @property
    def label(self) -> str:
        """The name, with a mark if the rows are a stand-in."""
        return self.name if self.files else f"{self.name} (stand-in)"


@dataclass(frozen=True)
class Split:
    """Training and test rows, with the classes as codes 0 and 1."""

    problem: Problem
    X: Matrix
    y: Codes
    X_test: Matrix
    y_test: Codes

    def first(self, n: int) -> ArrayDataset:
        """Return the first n training rows."""
        return ArrayDataset(self.X[:n], self.y[:n], LABELS, name=f"{self.problem.name}, {n} rows")

    @property
    def density(self) -> float:
        """The share of the values that are not 0."""
        return float(np.count_nonzero(self.X.data if isinstance(self.X, csr_array) else self.X)) / np.prod(self.X.shape)


def read_problem(problem: Problem, data: DataFolder, most_rows: int | None) -> Split | None:
    """Return at most most_rows rows of each part; None if a file is missing."""
    files = data.find_all(*problem.files)
    if files is None:
        return None
    n = problem.n_rows if most_rows is None else min(problem.n_rows, most_rows)
    (X, y), (X_test, y_test) = ((X[:most_rows], y[:most_rows]) for X, y in problem.read(files, n))
    if min(len(np.unique(y)), len(np.unique(y_test))) < 2:
        raise InputError(
            f"{problem.name}: the rows of {' and '.join(problem.files)} must be of two classes in each file"
        )
    return Split(problem, X, y, X_test, y_test)


def shuffle(X: Matrix, y: Codes) -> Part:
    """Return the rows in a random order."""
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def split_covertype(files: list[Path], n: int) -> tuple[Part, Part]:  # noqa: ARG001
    """Read Covertype; a tenth of the rows are test rows, as in the paper."""
    rows, positive = read_covertype(files[0])
    X, y = shuffle(rows, positive.astype(np.int32))
    n_train = len(y) * 522_911 // 581_012
    return (X[:n_train], y[:n_train]), (X[n_train:], y[n_train:])


def read_text(n_features: int) -> Callable[[list[Path], int], tuple[Part, Part]]:
    """Return a function that reads a training file and a test file of the LIBSVM site with this number of features."""

    def read(files: list[Path], n: int) -> tuple[Part, Part]:  # noqa: ARG001
        parts = (read_svmlight(file, n_features) for file in files)
        train, test = (shuffle(X, (y > 0).astype(np.int32)) for X, y in parts)
        return train, test

    return read


def generate(truth: Truth, share: float = 0.5, scale: float = 1.0) -> Callable[[list[Path], int], tuple[Part, Part]]:
    """Return a function that generates rows. Positive rows are left out until their share is `share`."""

    def read(files: list[Path], n: int) -> tuple[Part, Part]:  # noqa: ARG001
        n_test = min(n, TEST_ROWS)
        X, y = _generate(truth, round(1.1 * (n + n_test) * (1 if share == 0.5 else 2)), scale)
        if share < 0.5:
            chance = share / (1 - share) * (y == 0).sum() / y.sum()
            kept = (y == 0) | (np.random.default_rng(truth.seed).random(len(y)) < chance)
            X, y = X[kept], y[kept]
        return (X[:n], y[:n]), (X[n : n + n_test], y[n : n + n_test])

    return read


def _generate(truth: Truth, n_rows: int, scale: float) -> Part:
    blocks = list(truth.make_blocks(n_rows))
    y = np.concatenate([block.y for block in blocks if block.y is not None])
    return _join(block.X for block in blocks) * np.float32(scale), y


def _join(parts: Iterable[F32 | CsrRows]) -> Matrix:
    """Return the rows of all parts, stacked vertically."""
    found = [to_scipy(X) for X in parts]
    return narrow_indices(vstack(found, "csr")) if isinstance(found[0], csr_array) else np.concatenate(found)


PROBLEMS = (
    Problem(
        "Reuters CCAT",
        1e4,
        Published(804_414, 149.7, 20_075.5, 304.1),
        generate(SparseTruth(47_236, row_items=76, noise=0.05, seed=1)),
        n_rows=200_000,
        by_break_even=True,
    ),
    Problem(
        "Reuters C11",
        5e4,
        Published(804_414, 178.9, 5_187.4, 499.1),
        generate(SparseTruth(47_236, row_items=76, noise=0.005, seed=2), share=RARE),
        n_rows=100_000,
        by_break_even=True,
    ),
    Problem(
        "Arxiv astro-ph",
        2e4,
        Published(62_369, 16.9, 80.1, 26.1),
        generate(SparseTruth(99_757, row_items=80, noise=0.03, seed=3)),
        n_rows=62_369,
        by_break_even=True,
    ),
    Problem("Covertype 1", 1e6, Published(522_911, 171.7, 25_514.3, 1_109.1), split_covertype, ("covtype.csv",)),
    Problem(
        "KDD04 Physics",
        2e4,
        Published(150_000, 31.9, 1_040.2, 132.5),
        generate(Truth(78, noise=0.25, seed=4), scale=0.25),
        n_rows=150_000,
    ),
    Problem("Adult", 0.05 * 32_561, Published(32_562, 3.1), read_text(123), ("a9a", "a9a.t")),
    Problem("Web", 49_749.0, Published(49_749, 7.6), read_text(300), ("w8a", "w8a.t")),
)
