"""The rows of Covertype: terrain and soil of cells of 30 m, and the wilderness area and forest type of each cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.data import read_numbers
from streamsvm.numeric.rows import F32
from streamsvm.system.errors import InputError

AREAS = ("Rawah", "Neota", "Comanche Peak", "Cache la Poudre")
N_TERRAIN, N_SOILS, LODGEPOLE = 10, 40, 2
Bools = npt.NDArray[np.bool_]
Split = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Terrain:
    """The standardised features (n, 50), whether lodgepole pines grow there (n,), and the number of the area (n,)."""

    X: F32
    y: Bools
    area: npt.NDArray[np.int64]


def read_terrain(file: Path, n_rows: int, seed: int) -> Terrain:
    """Return rows drawn at random, in random order. Raises InputError unless the file is Covertype's."""
    table = read_numbers(file, np.float32, skip_lines=1)
    first_soil = N_TERRAIN + len(AREAS)
    if table.shape[1] != first_soil + N_SOILS + 1:
        raise InputError(f"{file}: has {table.shape[1]} columns, but Covertype has {first_soil + N_SOILS + 1}")
    rows = table[np.random.default_rng(seed).permutation(len(table))[:n_rows]]
    terrain = rows[:, :N_TERRAIN]
    spread = np.maximum(terrain.std(axis=0), 1e-6)
    X = np.hstack([(terrain - terrain.mean(axis=0)) / spread, rows[:, first_soil:-1]])
    return Terrain(X, rows[:, -1] == LODGEPOLE, rows[:, N_TERRAIN:first_soil].argmax(axis=1))


def split_by_area(terrain: Terrain) -> Iterator[Split]:
    """Yield the training rows and the held-out rows for each held-out area."""
    for area in range(len(AREAS)):
        yield np.flatnonzero(terrain.area != area), np.flatnonzero(terrain.area == area)


def split_by_row(terrain: Terrain) -> Iterator[Split]:
    """Yield training rows and held-out rows.

    The folds have the sizes of the areas, but their rows come from all areas.
    """
    every = np.arange(len(terrain.y))  # the rows are in random order
    ends = np.cumsum(np.bincount(terrain.area, minlength=len(AREAS)))
    for held_out in np.split(every, ends[:-1]):
        yield np.setdiff1d(every, held_out), held_out
