"""The walk of cutting_plane.block_ascent: a block is added to sums, its shares are improved, and rows are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.methods.cutting_plane.coordinate_ascent import AscentRows, ascend, make_part
from streamsvm.methods.cutting_plane.near_rows import choose_rows, join_rows
from streamsvm.numeric.rows import F64, I64, Rows

KEPT_SHARE = 0.6  # of the resident rows are kept; the others are the block
FREE = 0.1  # rows with 0 < c_i < 1 are chosen as if their distance from the margin were this share of what it is


@dataclass(frozen=True)
class BlockAscent:
    """Settings of the solver.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights; resident_rows: how many rows are in
    memory at once, a block included; chunk_starts (k+1,): limits of the chunks; tol: the relative gap to reach;
    bias_feature: the value of the constant feature; seed: of the orders.
    """

    class_costs: tuple[float, ...]
    resident_rows: int
    chunk_starts: tuple[int, ...]
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.chunk_starts[-1]

    @property
    def keeps_all(self) -> bool:
        """Whether all rows stay in memory."""
        return self.resident_rows >= self.n_rows

    @property
    def kept_rows(self) -> int:
        """How many rows are kept from block to block."""
        return self.n_rows if self.keeps_all else max(1, int(KEPT_SHARE * self.resident_rows))

    def make_part(self, rows: Rows, share: F64) -> AscentRows:
        """Return rows with a copy of their shares."""
        return make_part(rows, np.array(self.class_costs), self.bias_feature, share)

    def ascend(
        self, parts: Sequence[AscentRows], w: F64, wanted: float, tol: float, epochs: int, seed: tuple[int, ...]
    ) -> F64:
        """Improve the shares of the parts; see coordinate_ascent.ascend."""
        return ascend(parts, self.bias_feature, w, 0.0, wanted, tol, epochs, seed).w

    def count_rows(self, chunks: Sequence[int]) -> int:
        """Return the number of rows of successive chunks."""
        return self.chunk_starts[chunks[-1] + 1] - self.chunk_starts[chunks[0]]

    def list_blocks(self) -> list[list[int]]:
        """Return the chunks of each block: as many successive chunks as there is room for, and one at least."""
        most, blocks, starts = self.resident_rows - self.kept_rows, list[list[int]](), self.chunk_starts
        for k in range(len(starts) - 1):
            if blocks and starts[k + 1] - starts[blocks[-1][0]] <= most:
                blocks[-1].append(k)
            else:
                blocks.append([k])
        return blocks


class Effort(NamedTuple):
    """How the ascent works in a pass: the seed of its orders, the most epochs on a block, and the gap to reach.

    wanted: the gap of one row; the ascent on a block ends when the gap of the rows in memory is at most so much times
    their number.
    """

    seed: tuple[int, ...]
    epochs: int
    wanted: float


class Carry(NamedTuple):
    """What a walk carries on: the number of the next block, c and w, and the kept rows and their numbers."""

    block: int
    share: F64
    w: F64
    kept: Rows | None
    numbers: I64


def take_block(settings: BlockAscent, effort: Effort, carry: Carry, rows: Rows) -> Iterator[Carry]:
    """Improve the shares of the rows of a block and of the kept rows, and choose the rows to keep."""
    share = carry.share.copy() if carry.block == 0 else carry.share  # later blocks change the walk's own copy
    numbers = rows.start + np.arange(rows.n_rows)
    new = np.flatnonzero(~np.isin(numbers, carry.numbers, assume_unique=True))
    own = rows if len(new) == rows.n_rows else choose_rows(rows, new)
    pairs = [(own, numbers[new])] if carry.kept is None else [(carry.kept, carry.numbers), (own, numbers[new])]
    parts = [settings.make_part(some, share[at]) for some, at in pairs]
    wanted = effort.wanted * sum(len(at) for _, at in pairs)
    w = settings.ascend(parts, carry.w, wanted, 0.0, effort.epochs, (*effort.seed, carry.block))
    for part, (_, at) in zip(parts, pairs, strict=True):
        share[at] = part.share
    kept, kept_numbers = _keep_nearest(settings, parts, [at for _, at in pairs], w)
    yield Carry(carry.block + 1, share, w, kept, kept_numbers)


def _keep_nearest(
    settings: BlockAscent, parts: Sequence[AscentRows], numbers: Sequence[I64], w: F64
) -> tuple[Rows, I64]:
    """Return the rows of all parts that are nearest the margin at w, and their numbers."""
    distances = [_find_distances(part, settings.bias_feature, w) for part in parts]
    nearest = np.argsort(np.concatenate(distances), kind="stable")[: settings.kept_rows]
    kept, found, end = list[Rows](), list[I64](), 0
    for part, own in zip(parts, numbers, strict=True):
        chosen = np.sort(nearest[(nearest >= end) & (nearest < end + len(own))]) - end
        kept.append(choose_rows(part.rows, chosen))
        found.append(own[chosen])
        end += len(own)
    return join_rows(kept), np.concatenate(found)


def _find_distances(part: AscentRows, bias_feature: float, w: F64) -> F64:
    """Return the distances from the margin, (n,): less for rows whose share may move both ways, and more for rows
    without a cost.
    """
    distances, is_free = part.find_distances(bias_feature, w)
    distances[is_free] *= FREE
    distances[part.costs <= 0.0] = np.inf
    return distances
