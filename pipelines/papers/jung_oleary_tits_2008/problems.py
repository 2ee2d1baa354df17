"""The problems of Jung, O'Leary and Tits 2008: their published numbers (Table 5.1), and their rows.

All problems except ISOLET are mapped by (5.1), and all are normalised by (5.2); C = 1. Some rows differ from those of
the paper: MUSHROOM has 21 attributes (the LIBSVM site's file lacks stalk-root), coded 1, 2, .. in the order of its
columns, and therefore 253 features instead of 276. WAVEFORM is another draw of Breiman's generator with 40 attributes.
The published counts of rows determine which class is "+". ADULT, from the LIBSVM site, is used unchanged with C = 1:
since it is binary and sparse, (5.2) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pipelines.data import DataFolder, read_numbers, read_svmlight
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F32, F64
from streamsvm.options import TrainOptions
from streamsvm.runs.features import find_feature_map
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError

Rows = tuple[F64, F64]
LABELS = np.array([-1, 1])
ADULT, ADULT_FEATURES = ("a1a", "a2a", "a3a", "a4a", "a5a", "a6a", "a7a", "a8a", "a9a"), 123


@dataclass(frozen=True)
class Problem:
    """A row of Table 5.1.

    Attributes
    ----------
    files : tuple of str
        The files of our rows; without files, the rows are generated.
    n_features, counts : int, tuple of int
        The published number of features after the map, and the published numbers of rows in the two classes.
    support, on_boundary : str
        The published numbers of support vectors, and of support vectors on the boundary of their class. Both have the
        form "all (+/-)"; they are "" if the scan is illegible.
    """

    name: str
    files: tuple[str, ...]
    n_features: int
    counts: tuple[int, int]
    support: str
    on_boundary: str
    read: Callable[[list[Path]], Rows]
    mapped: bool = True


@dataclass(frozen=True)
class Adult:
    """One of the data files of ADULT as rows for LIBSVM, and its test rows (None without a test file)."""

    name: str
    X: csr_array
    y: npt.NDArray[np.int32]
    test: tuple[csr_array, npt.NDArray[np.int32]] | None

    @property
    def rows(self) -> ArrayDataset:
        """The training rows, for streamsvm."""
        return ArrayDataset(self.X, self.y, LABELS)


def read_adult(name: str, data: DataFolder, most_test_rows: int | None) -> Adult | None:
    """Return the rows of the data file of ADULT with this name; None if the file is missing."""
    file, test = data.find(name), data.find(f"{name}.t")
    if file is None:
        return None
    return Adult(name, *_read_adult(file, None), None if test is None else _read_adult(test, most_test_rows))


def _read_adult(file: Path, most_rows: int | None) -> tuple[csr_array, npt.NDArray[np.int32]]:
    """Return the first rows, and their classes as codes 0 and 1."""
    X, y = read_svmlight(file, ADULT_FEATURES)
    return X[:most_rows], (y[:most_rows] > 0).astype(np.int32)


def read_problem(problem: Problem, data: DataFolder, most_rows: int | None) -> ArrayDataset | None:
    """Return the rows of a problem, mapped and normalised; None if a file is missing."""
    files = data.find_all(*problem.files)
    if files is None:
        return None
    X, y = problem.read(files)
    if most_rows is not None:
        kept = np.random.default_rng(0).permutation(len(y))[:most_rows]
        X, y = X[kept], y[kept]
    codes = (y > 0).astype(np.int32)
    if len(np.unique(codes)) < 2:
        raise InputError(f"{problem.name}: the rows of {' and '.join(problem.files)} must be of two classes")
    if problem.mapped:
        rows = ArrayDataset(X.astype(np.float32), codes, LABELS)
        X = find_feature_map(rows, FeatureOptions("polynomial"), TrainOptions(threads=1)).apply(rows.X)
    else:
        X = X / np.abs(X).max()
    return ArrayDataset(np.ascontiguousarray(X, np.float32), codes, LABELS)


def _read_mushroom(files: list[Path]) -> Rows:
    """Read MUSHROOM. Neighbouring columns that exclude each other are combined into one attribute."""
    X, y = read_svmlight(files[0])
    ones: F32 = X.toarray()
    together = ones.T @ ones > 0
    attributes: list[list[int]] = [[0]]
    for column in range(1, ones.shape[1]):
        if together[column, attributes[-1]].any():
            attributes.append([])
        attributes[-1].append(column)
    codes = [ones[:, columns] @ np.arange(1, len(columns) + 1) for columns in attributes]
    return np.stack(codes, axis=1), np.where(y == y.max(), 1.0, -1.0)


def _read_isolet(files: list[Path]) -> Rows:
    """Read the problem of the letter A against the rest."""
    table = np.concatenate([read_numbers(file, np.float64) for file in files])
    return table[:, :-1], np.where(table[:, -1] == 1, 1.0, -1.0)


def _draw_waveform(files: list[Path]) -> Rows:  # noqa: ARG001
    """Draw rows u h_a + (1 - u) h_b + noise with two of Breiman's three triangles h, and 19 attributes of pure noise.

    The class "+" has a = 1 and b = 2.
    """
    random = np.random.default_rng(2008)
    places = np.arange(1, 22)
    waves = np.stack([np.maximum(6 - np.abs(places - middle), 0) for middle in (11, 7, 15)])
    pairs = np.array([(0, 1), (0, 2), (1, 2)])[label := random.integers(0, 3, 5000)]
    u = random.random((5000, 1))
    X = random.standard_normal((5000, 40))
    X[:, :21] += u * waves[pairs[:, 0]] + (1 - u) * waves[pairs[:, 1]]
    return X, np.where(label == 0, 1.0, -1.0)


def _read_letter(files: list[Path]) -> Rows:
    """Read the problem of the letter A against the rest, with features from 0 to 15."""
    parts = [read_svmlight(file, 16, np.float64) for file in files]
    X = np.concatenate([np.asarray(X.toarray()) for X, _ in parts])
    return np.round((X + 1) * 7.5), np.where(np.concatenate([y for _, y in parts]) == 1, 1.0, -1.0)


PROBLEMS = (  # in the scan, numbers of support vectors with four digits are illegible
    Problem("mushroom", ("mushrooms",), 276, (4208, 3916), "", "52 (31/21)", _read_mushroom),
    Problem(
        "isolet",
        ("isolet1+2+3+4.csv", "isolet5.csv"),
        617,
        (300, 7497),
        "186 (74/112)",
        "186 (74/112)",
        _read_isolet,
        mapped=False,
    ),
    Problem("waveform", (), 861, (1692, 3308), "", "228 (110/118)", _draw_waveform),
    Problem(
        "letter", ("letter.scale", "letter.scale.t"), 153, (789, 19211), "543 (266/277)", "40 (10/30)", _read_letter
    ),
)
