"""The pass of a decomposition: by how much the changed multipliers change the sums f of all rows.

    change of f_i = sum_c coef_c k(x_i, z_c)      z_c, the rows whose multipliers a_c changed
                                                  coef_c, the change of a_c y_c
For a linear kernel the changed rows are folded into w = sum_c coef_c z_c, and the change is x_i.w.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamsvm.numeric.kernels import Kernel, add_kernel_sums, add_linear_sums, bound_linear_sums, compute_squares
from streamsvm.numeric.rows import F64, I32, Matrix, Rows


class Change(NamedTuple):
    """What changes f: columns (m, d) and coef (m,), or w (d,); the other ones are empty.

    w_error: a bound of the error of x.w, as a share of |x|.
    """

    kernel: Kernel
    columns: Matrix
    coef: F64
    w: F64
    w_error: float


@dataclass(frozen=True)
class TileSums:
    """What a pass finds of the rows of a tile: `start` is the number of the first of them.

    f, errors: the changes of f, and bounds of their errors. In the first pass also y, the codes of the labels or the
    targets of a regression, and sample_weight, if the data have them, and longest, the largest |x_i|^2.
    """

    start: int
    f: F64
    errors: F64
    y: I32 | F64 | None = None
    sample_weight: F64 | None = None
    longest: float = 0.0


@dataclass
class RowSums:
    """What a pass finds of all rows, tile by tile. The properties put the tiles in the order of the rows."""

    tiles: list[TileSums] = field(default_factory=list)

    def _sort(self) -> list[TileSums]:
        return sorted(self.tiles, key=lambda tile: tile.start)

    @property
    def f(self) -> F64:
        """The changes of f, (n,), or (n, K) of K sums of each row."""
        return np.concatenate([tile.f for tile in self._sort()])

    @property
    def errors(self) -> F64:
        """Bounds of the errors of these changes, (n,)."""
        return np.concatenate([tile.errors for tile in self._sort()])

    @property
    def y(self) -> I32 | F64 | None:
        """The codes of the labels or the targets, (n,), if the pass was the first one and the data have them."""
        parts: list[Any] = [tile.y for tile in self._sort() if tile.y is not None]
        return np.concatenate(parts) if parts else None

    @property
    def sample_weight(self) -> F64 | None:
        """The sample weights, (n,), if the pass was the first one and there are weights."""
        parts = [tile.sample_weight for tile in self._sort() if tile.sample_weight is not None]
        return np.concatenate(parts) if parts else None

    @property
    def longest(self) -> float:
        """The largest |x_i|^2, if the pass was the first one."""
        return max(tile.longest for tile in self.tiles)


def read_y(rows: Rows) -> I32 | F64 | None:
    """Return the targets of the rows, or else the codes of their labels."""
    return rows.y if rows.target is None else rows.target


def add_sums(
    sums: RowSums,
    rows: Rows,
    kernel: Kernel,
    columns: Matrix,
    coef: F64,
    w: F64,
    w_error: float,
    first: bool,
    threads: int,
) -> None:
    """Add the sums of a tile. kernel to w_error: the fields of a `Change`; first: whether the pass is the first one."""
    f, errors = np.zeros(rows.n_rows), np.zeros(rows.n_rows)
    if len(w):
        add_linear_sums(rows.X, w, f, threads)
        errors = bound_linear_sums(rows.X, w_error)
    elif len(coef):
        add_kernel_sums(kernel, rows.X, columns, coef, f, threads, errors=errors)
    add_tile(sums, rows, f, errors, first)


def add_tile(sums: RowSums, rows: Rows, f: F64, errors: F64, first: bool) -> None:
    """Add the sums of a tile that are known, and in the first pass what the state lacks of its rows."""
    if not first:
        sums.tiles.append(TileSums(rows.start, f, errors))
        return
    y = read_y(rows)
    y = None if y is None else y.copy()
    sample_weight = None if rows.sample_weight is None else rows.sample_weight.copy()
    longest = float(np.max(compute_squares(rows.X, np.float64), initial=0.0))
    sums.tiles.append(TileSums(rows.start, f, errors, y, sample_weight, longest))


def combine_sums(left: RowSums, right: RowSums) -> RowSums:
    """Return the tiles of both."""
    return RowSums(left.tiles + right.tiles)
