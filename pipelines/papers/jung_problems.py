"""The problems of Jung, O'Leary & Tits 2008: what Table 5.1 says of them, and their rows. For jung_2008.py.

All but ISOLET are mapped by (5.1); all are normalised by (5.2); C = 1. What is not as in the paper: MUSHROOM has 21
attributes (the LIBSVM site's file lacks stalk-root), coded 1, 2, .. in the order of its columns, so 253 features and
not 276; WAVEFORM is another draw of Breiman's generator with 40 attributes; which class is "+" is read off the counts.
ADULT, of the LIBSVM site, is as it is: binary and sparse, so that (5.2) changes nothing; C = 1 again.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.errors import InputError
from streamsvm.numeric.rows import F32, F64
from streamsvm.options import TrainOptions
from streamsvm.training.features import FeatureOptions, find_feature_map

Rows = tuple[F64, F64]
LABELS = np.array([-1, 1])
UNREADABLE = (ValueError, EOFError, lzma.LZMAError)
ADULT, ADULT_FEATURES = ("a1a", "a2a", "a3a", "a4a", "a5a", "a6a", "a7a", "a8a", "a9a"), 123


@dataclass(frozen=True)
class Problem:
    """A row of Table 5.1: features after the map, rows of either class, and where ours come from.

    support, on_boundary: support vectors, all and those on the boundary of their class, "all (+/-)"; "" is lost.
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
    """One of ADULT, as it is read by us and by LIBSVM, and its test rows, None if there are none."""

    name: str
    X: csr_array
    y: npt.NDArray[np.int32]
    test: tuple[csr_array, npt.NDArray[np.int32]] | None

    @property
    def rows(self) -> ArrayDataset:
        """The rows to train on."""
        return ArrayDataset(self.X, self.y, LABELS)


def find_file(data: Path, name: str) -> Path | None:
    """Return the file of that name, plain or .xz, in the folder or its subfolders."""
    return next((path for end in ("", ".xz") for path in sorted(data.rglob(name + end)) if path.is_file()), None)


def read_adult(name: str, data: Path, most_test_rows: int | None) -> Adult | None:
    """Return the rows; None if there is no such file."""
    file, test = find_file(data, name), find_file(data, f"{name}.t")
    if file is None:
        return None
    return Adult(name, *_read_adult(file, None), None if test is None else _read_adult(test, most_test_rows))


def _read_adult(file: Path, most_rows: int | None) -> tuple[csr_array, npt.NDArray[np.int32]]:
    """Codes of the labels are 0 and 1."""
    try:
        X, y = _read_text(file, ADULT_FEATURES)
    except UNREADABLE as error:
        raise InputError(f"{file}: {error}") from error
    X, y = X[:most_rows], y[:most_rows]
    narrow = X.data.astype(np.float32), X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return csr_array(narrow, X.shape), (y > 0).astype(np.int32)


def _read_text(file: Path, n_features: int | None = None) -> tuple[csr_array, F64]:
    """Read the LIBSVM site's text."""
    with lzma.open(file) if file.suffix == ".xz" else file.open("rb") as text:
        X, y = load_svmlight_file(text, n_features=n_features)
    return csr_array(X), y


def read_problem(problem: Problem, data: Path, most_rows: int | None) -> ArrayDataset | None:
    """Return the rows, mapped and normalised; None if a file is missing."""
    files = [find_file(data, name) for name in problem.files]
    found = [file for file in files if file is not None]
    if len(found) < len(files):
        return None
    try:
        X, y = problem.read(found)
    except UNREADABLE as error:
        raise InputError(f"{problem.name}: {error}") from error
    if most_rows is not None:
        kept = np.random.default_rng(0).permutation(len(y))[:most_rows]
        X, y = X[kept], y[kept]
    codes = (y > 0).astype(np.int32)
    if len(np.unique(codes)) < 2:
        raise InputError(f"{problem.name}: one class only")
    if problem.mapped:
        rows = ArrayDataset(X.astype(np.float32), codes, LABELS)
        X = find_feature_map(rows, FeatureOptions("polynomial"), TrainOptions(threads=1)).apply(rows.X)
    else:
        X = X / np.abs(X).max()
    return ArrayDataset(np.ascontiguousarray(X, np.float32), codes, LABELS)


def _read_mushroom(files: list[Path]) -> Rows:
    """Columns that exclude each other, next to each other, are an attribute."""
    X, y = _read_text(files[0])
    ones: F32 = X.toarray().astype(np.float32)
    together = ones.T @ ones > 0
    attributes: list[list[int]] = [[0]]
    for column in range(1, ones.shape[1]):
        if together[column, attributes[-1]].any():
            attributes.append([])
        attributes[-1].append(column)
    codes = [ones[:, columns] @ np.arange(1, len(columns) + 1) for columns in attributes]
    return np.stack(codes, axis=1), np.where(y == y.max(), 1.0, -1.0)


def _read_isolet(files: list[Path]) -> Rows:
    """Read the letter A against the rest."""
    table = np.concatenate([np.loadtxt(file, delimiter=",") for file in files])
    return table[:, :-1], np.where(table[:, -1] == 1, 1.0, -1.0)


def _draw_waveform(files: list[Path]) -> Rows:  # noqa: ARG001
    """Draw Breiman's u h_a + (1 - u) h_b + noise, two of three triangles, and 19 attributes of noise; "+": a=1, b=2."""
    random = np.random.default_rng(2008)
    places = np.arange(1, 22)
    waves = np.stack([np.maximum(6 - np.abs(places - middle), 0) for middle in (11, 7, 15)])
    pairs = np.array([(0, 1), (0, 2), (1, 2)])[label := random.integers(0, 3, 5000)]
    u = random.random((5000, 1))
    X = random.standard_normal((5000, 40))
    X[:, :21] += u * waves[pairs[:, 0]] + (1 - u) * waves[pairs[:, 1]]
    return X, np.where(label == 0, 1.0, -1.0)


def _read_letter(files: list[Path]) -> Rows:
    """Read the letter A against the rest, numbers from 0 to 15."""
    parts = [_read_text(file, 16) for file in files]
    X = np.concatenate([np.asarray(X.toarray()) for X, _ in parts])
    return np.round((X + 1) * 7.5), np.where(np.concatenate([y for _, y in parts]) == 1, 1.0, -1.0)


PROBLEMS = (  # numbers of four digits of support vectors are lost in the scan
    Problem("mushroom", ("mushrooms",), 276, (4208, 3916), "", "52 (31/21)", _read_mushroom),
    Problem("isolet", ("isolet1+2+3+4.csv", "isolet5.csv"), 617, (300, 7497), "186 (74/112)", "186 (74/112)",
            _read_isolet, mapped=False),
    Problem("waveform", (), 861, (1692, 3308), "", "228 (110/118)", _draw_waveform),
    Problem("letter", ("letter.scale", "letter.scale.t"), 153, (789, 19211), "543 (266/277)", "40 (10/30)",
            _read_letter),
)  # fmt: skip
