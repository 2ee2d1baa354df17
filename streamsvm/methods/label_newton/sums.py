"""The sums over all rows that a pass makes for many labels at once, each at a point of its own.

    scores X W',  slopes A (n, k),  gradients A'X,  curvatures H_k = sum of l'' x x' over some of the rows of label k

x has the constant feature as its last entry. Scores and gradients are products of matrices in float64. The curvatures
serve to choose the next points only, so they are found from a share of the rows with a curvature, in float32, and their
lower triangles are kept. Gradients leave out rows that are settled for a label, where most are. Rows are collected
until there are BLOCK_ROWS, since a product of few rows is slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.methods.label_newton import row_losses
from streamsvm.numeric.label_sets import pick_labels
from streamsvm.numeric.rows import F32, F64, I64, CsrRows, Rows, to_dense

BLOCK_ROWS = 8192
BLOCK_LABELS = 128
SCREENED_SHARE = 0.1  # of rows and labels with a slope: with fewer, sums over these take half the time of a product


@dataclass(frozen=True)
class Look:
    """What a pass looks for: the points W (k, d+1) of the labels with these codes (k,).

    loss: its code; bias_feature: the value of the constant feature; costs (k, 2): of rows without and with the label;
    shares (k,): of the rows with a curvature, those from which it is found.
    """

    loss: int
    bias_feature: float
    W: F64
    codes: I64
    costs: F64
    shares: F64

    def slice(self, part: slice) -> Look:
        """Return what the pass looks for of some labels."""
        each = {name: getattr(self, name)[part] for name in ("W", "codes", "costs", "shares")}
        return replace(self, **each)


@dataclass
class Totals:
    """The sums of each label: `sums` (5, k) as in row_losses, gradients (k, d+1), and curvatures (k, triangle).

    squares: sum of the weights times |x|^2 of all rows. waiting holds rows that are not added yet, and look is what
    they are added for.
    """

    sums: F64
    gradients: F64
    curvatures: F32
    squares: float = 0.0
    waiting: list[Rows] = field(default_factory=list)
    look: Look | None = None

    def finish(self) -> None:
        """Add the rows that wait."""
        if self.waiting:
            assert self.look is not None
            _add_block(self, self.waiting, self.look)
        self.waiting, self.look = [], None

    def __getstate__(self) -> dict[str, Any]:
        self.finish()
        return dict(vars(self))


def start_totals(n_labels: int, width: int) -> Totals:
    """Return the sums over no rows."""
    triangle = np.zeros((n_labels, width * (width + 1) // 2), np.float32)
    return Totals(np.zeros((5, n_labels)), np.zeros((n_labels, width)), triangle)


def add_totals(
    totals: Totals, rows: Rows, W: F64, codes: I64, costs: F64, shares: F64, about: tuple[int, float]
) -> None:
    """Let the rows of a tile wait, and add all that wait if there are enough. about: the loss and the bias feature."""
    totals.look = Look(*about, W, codes, costs, shares)
    for at in range(0, rows.n_rows, BLOCK_ROWS):
        totals.waiting.append(_copy(rows.slice(slice(at, at + BLOCK_ROWS))))
        if sum(part.n_rows for part in totals.waiting) >= BLOCK_ROWS:
            _add_block(totals, totals.waiting, totals.look)
            totals.waiting = []


def combine_totals(left: Totals, right: Totals) -> Totals:
    """Return the sums over the rows of both."""
    left.finish()
    right.finish()
    return Totals(
        left.sums + right.sums,
        left.gradients + right.gradients,
        left.curvatures + right.curvatures,
        left.squares + right.squares,
    )


def _copy(rows: Rows) -> Rows:
    """Return the rows in memory of their own, dense: those of a dataset are valid until the next ones are read."""
    X = to_dense(rows.X) if isinstance(rows.X, CsrRows) else rows.X.copy()
    return Rows(rows.start, X, **{name: values.copy() for name, values in rows.vectors.items()})


def _add_block(totals: Totals, parts: list[Rows], look: Look) -> None:
    """Add rows, some labels at a time."""
    X, has = _stack(parts, look)
    n, weight = len(X), _join_weights(parts)
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))
    totals.squares += float(weight @ lengths**2)
    places = np.empty((BLOCK_LABELS, n), np.int32), np.empty((BLOCK_LABELS, n), np.float32)
    for at in range(0, len(look.codes), BLOCK_LABELS):
        part = slice(at, at + BLOCK_LABELS)
        own, n_picked = look.slice(part), np.zeros(len(look.codes[part]), np.int64)
        slopes, sums = X @ own.W.T, np.zeros((5, len(own.codes)))
        flags = row_losses.as_flags(has[:, part])
        row_losses.measure_rows(
            look.loss, slopes, flags, weight, lengths, parts[0].start, own.costs, own.shares, sums, *places, n_picked
        )
        totals.sums[:, part] += sums
        if np.sum(sums[row_losses.ACTIVE]) < SCREENED_SHARE * slopes.size:
            row_losses.add_active(slopes, X, totals.gradients[part])
        else:
            totals.gradients[part] += slopes.T @ X
        _add_curvatures(totals.curvatures[part], X, *places, n_picked)


def _add_curvatures(
    curvatures: F32, X: F64, picked: npt.NDArray[np.int32], roots: F32, n_picked: npt.NDArray[np.int64]
) -> None:
    """Add the picked rows of each label to its curvature."""
    scaled = np.empty((int(n_picked.max(initial=0)), X.shape[1]), np.float32)
    for k, m in enumerate(n_picked.tolist()):
        if m:
            row_losses.scale_rows(X, picked[k, :m], roots[k, :m], scaled)
            row_losses.add_triangle(scaled[:m].T @ scaled[:m], curvatures[k])


def _stack(parts: list[Rows], look: Look) -> tuple[F64, npt.NDArray[np.bool_]]:
    """Return the rows with the constant feature, (n, d+1), and which of them have the labels, (n, k)."""
    n, d = sum(part.n_rows for part in parts), look.W.shape[1] - 1
    X, has, at = np.full((n, d + 1), look.bias_feature), np.empty((n, len(look.codes)), np.bool_), 0
    for part in parts:
        here = slice(at, at + part.n_rows)
        X[here, :d], has[here] = part.X, find_labels(part, look.codes)
        at = here.stop
    return X, has


def find_labels(rows: Rows, codes: I64) -> npt.NDArray[np.bool_]:
    """Return which rows have the labels, or are of the classes, with these codes, (n, k)."""
    if rows.label_sets is not None:
        return pick_labels(rows.label_sets, codes)
    assert rows.y is not None
    found: npt.NDArray[np.bool_] = rows.y[:, None] == codes
    return found


def _join_weights(parts: list[Rows]) -> F64:
    each = [np.ones(part.n_rows) if part.sample_weight is None else part.sample_weight for part in parts]
    return np.concatenate(each)
