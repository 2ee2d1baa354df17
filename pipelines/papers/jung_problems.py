"""The problems of Jung, O'Leary & Tits 2008: what Table 5.1 says of them, and their rows. For jung_2008.py.

All but ISOLET are mapped by (5.1); all are normalised by (5.2); C = 1. What is not as in the paper: MUSHROOM has 21
attributes (the LIBSVM site's file lacks stalk-root), coded 1, 2, .. in the order of its columns, so 253 features and
not 276; WAVEFORM is another draw of Breiman's generator with 40 attributes; which class is "+" is read off the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from streamsvm.data.features import make_polynomial_map
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.errors import InputError
from streamsvm.numeric.rows import F32, F64

Rows = tuple[F64, F64]
LABELS = np.array([-1, 1])


@dataclass(frozen=True)
class Problem:
    """A row of Table 5.1: features after the map, rows of either class, and where ours come from."""

    name: str
    files: tuple[str, ...]
    n_features: int
    counts: tuple[int, int]
    read: Callable[[list[Path]], Rows]
    mapped: bool = True


def find_file(data: Path, name: str) -> Path | None:
    """Return the file of that name in the folder or its subfolders."""
    return next((path for path in sorted(data.rglob(name)) if path.is_file()), None)


def read_problem(problem: Problem, data: Path, most_rows: int | None) -> ArrayDataset | None:
    """Return the rows, mapped and normalised; None if a file is missing."""
    files = [find_file(data, name) for name in problem.files]
    found = [file for file in files if file is not None]
    if len(found) < len(files):
        return None
    X, y = problem.read(found)
    if most_rows is not None:
        kept = np.random.default_rng(0).permutation(len(y))[:most_rows]
        X, y = X[kept], y[kept]
    codes = (y > 0).astype(np.int32)
    if len(np.unique(codes)) < 2:
        raise InputError(f"{problem.name}: one class only")
    if problem.mapped:
        X = make_polynomial_map(ArrayDataset(X.astype(np.float32), codes, LABELS)).apply(X.astype(np.float32))
    else:
        X = X / np.abs(X).max()
    return ArrayDataset(np.ascontiguousarray(X, np.float32), codes, LABELS)


def _read_mushroom(files: list[Path]) -> Rows:
    """Columns that exclude each other, next to each other, are an attribute."""
    X, y = load_svmlight_file(str(files[0]))
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
    parts = [load_svmlight_file(str(file), n_features=16) for file in files]
    X = np.concatenate([np.asarray(X.toarray()) for X, _ in parts])
    return np.round((X + 1) * 7.5), np.where(np.concatenate([y for _, y in parts]) == 1, 1.0, -1.0)


PROBLEMS = (
    Problem("mushroom", ("mushrooms",), 276, (4208, 3916), _read_mushroom),
    Problem("isolet", ("isolet1+2+3+4.csv", "isolet5.csv"), 617, (300, 7497), _read_isolet, mapped=False),
    Problem("waveform", (), 861, (1692, 3308), _draw_waveform),
    Problem("letter", ("letter.scale", "letter.scale.t"), 153, (789, 19211), _read_letter),
)
