"""The problems of Joachims 2006: what his Table 1 and section 4 say of them, and their rows. For joachims_2006.py.

Covertype (class 1 against the rest, columns divided by their largest values), Adult and Web are the real sets. For
Reuters, Arxiv and KDD04 stand generated rows (streamsvm.data.generated) of the paper's features and density: text of
norm 1, of C11 3% positive; dense rows of norm about 1 for KDD04, where 38% of the values are not 0. Rows are shuffled.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from sklearn.datasets import load_svmlight_file

from streamsvm.data.generated import Truth
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.errors import InputError
from streamsvm.numeric.rows import F32, CsrRows

Codes = npt.NDArray[np.int32]
Matrix = F32 | csr_array
Part = tuple[Matrix, Codes]
LABELS = np.array([-1, 1])
TEST_ROWS = 20_000  # of what is generated
RARE = 0.03  # positives of C11


@dataclass(frozen=True)
class Published:
    """A row of Table 1, or what 4.1 says: rows, CPU seconds of SVMperf and SVMlight, and of SVMperf for two ranks."""

    n_rows: int
    perf: float
    light: float | None = None
    ranks: float | None = None


@dataclass(frozen=True)
class Problem:
    """C: the paper's, of the mean loss. files: to train on, and to test on; none: `n_rows` are generated."""

    name: str
    C: float
    published: Published
    read: Callable[[list[Path], int], tuple[Part, Part]]
    files: tuple[str, ...] = ()
    n_rows: int = 0
    by_break_even: bool = False

    @property
    def label(self) -> str:
        """Name, and whether it is a stand-in."""
        return self.name if self.files else f"{self.name} (stand-in)"


@dataclass(frozen=True)
class Split:
    """Rows to train on and to test on, with codes 0 and 1."""

    problem: Problem
    X: Matrix
    y: Codes
    X_test: Matrix
    y_test: Codes

    def first(self, n: int) -> ArrayDataset:
        """Return the first n rows to train on."""
        return ArrayDataset(self.X[:n], self.y[:n], LABELS, name=f"{self.problem.name}, {n} rows")

    @property
    def density(self) -> float:
        """Share of the values that are not 0."""
        return float(np.count_nonzero(self.X.data if isinstance(self.X, csr_array) else self.X)) / np.prod(self.X.shape)


def read_problem(problem: Problem, data: Path | None, most_rows: int | None) -> Split | None:
    """Return the rows, at most so many of each part; None if a file is missing."""
    files = [find_file(data, name) for name in problem.files] if data is not None else []
    found = [file for file in files if file is not None]
    if len(found) < len(problem.files):
        return None
    n = problem.n_rows if most_rows is None else min(problem.n_rows, most_rows)
    try:
        parts = problem.read(found, n)
    except (ValueError, EOFError, lzma.LZMAError) as error:
        raise InputError(f"{problem.name}: {error}") from error
    (X, y), (X_test, y_test) = ((X[:most_rows], y[:most_rows]) for X, y in parts)
    if min(len(np.unique(y)), len(np.unique(y_test))) < 2:
        raise InputError(f"{problem.name}: one class only")
    return Split(problem, X, y, X_test, y_test)


def find_file(data: Path, name: str) -> Path | None:
    """Return the file of that name, plain or .xz, in the folder or its subfolders."""
    return next((path for end in ("", ".xz") for path in sorted(data.rglob(name + end)) if path.is_file()), None)


def shuffle(X: Matrix, y: Codes) -> Part:
    """Rows in a random order."""
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def read_covertype(files: list[Path], n: int) -> tuple[Part, Part]:  # noqa: ARG001
    """Read it; a tenth of the rows is to test on, as in the paper."""
    with lzma.open(files[0], "rt") if files[0].suffix == ".xz" else files[0].open() as text:
        table = np.loadtxt(text, delimiter=",", dtype=np.float32, skiprows=1, ndmin=2)
    X, y = shuffle(table[:, :54] / np.maximum(table[:, :54].max(axis=0), 1), (table[:, 54] == 1).astype(np.int32))
    n_train = len(y) * 522_911 // 581_012
    return (X[:n_train], y[:n_train]), (X[n_train:], y[n_train:])


def read_text(n_features: int) -> Callable[[list[Path], int], tuple[Part, Part]]:
    """Two files of the LIBSVM site."""

    def read(files: list[Path], n: int) -> tuple[Part, Part]:  # noqa: ARG001
        train, test = (_read_text(file, n_features) for file in files)
        return train, test

    return read


def _read_text(file: Path, n_features: int) -> Part:
    with lzma.open(file) if file.suffix == ".xz" else file.open("rb") as text:
        X, y = load_svmlight_file(text, n_features=n_features, dtype=np.float32)
    return shuffle(narrow(X), (y > 0).astype(np.int32))


def generate(truth: Truth, share: float = 0.5, scale: float = 1.0) -> Callable[[list[Path], int], tuple[Part, Part]]:
    """Rows of a truth; of a share below a half, positives are left out."""

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
    """Rows, one below the other."""
    found = [csr_array((X.data, X.indices, X.indptr), X.shape) if isinstance(X, CsrRows) else X for X in parts]
    return narrow(vstack(found, "csr")) if isinstance(found[0], csr_array) else np.concatenate(found)


def narrow(X: csr_array) -> csr_array:
    """Return rows with indices of 32 bits, which LIBSVM asks for."""
    return csr_array((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)


PROBLEMS = (
    Problem(
        "Reuters CCAT",
        1e4,
        Published(804_414, 149.7, 20_075.5, 304.1),
        generate(Truth(47_236, 76, noise=0.05, seed=1)),
        n_rows=200_000,
        by_break_even=True,
    ),
    Problem(
        "Reuters C11",
        5e4,
        Published(804_414, 178.9, 5_187.4, 499.1),
        generate(Truth(47_236, 76, noise=0.005, seed=2), share=RARE),
        n_rows=100_000,
        by_break_even=True,
    ),
    Problem(
        "Arxiv astro-ph",
        2e4,
        Published(62_369, 16.9, 80.1, 26.1),
        generate(Truth(99_757, 80, noise=0.03, seed=3)),
        n_rows=62_369,
        by_break_even=True,
    ),
    Problem("Covertype 1", 1e6, Published(522_911, 171.7, 25_514.3, 1_109.1), read_covertype, ("covtype.csv",)),
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
