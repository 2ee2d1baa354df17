"""The pairs of many rows of few ranks, found without holding a number of every row: labels are read a chunk at a time.

Any two rows of different ranks are a pair. So the weights of all rows of each rank say how many pairs there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.numeric.histogram_sums import RankTotals
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.numeric.rows import F64, I32, I64
from streamsvm.options import require_classes
from streamsvm.problems.query_pairs import NO_PAIRS
from streamsvm.problems.ranking import require_comparable
from streamsvm.problems.registry import find_problem
from streamsvm.problems.small_queries import count_sample_rows

HELD_ROWS = 1 << 20  # of so many rows the driver holds the scores, and counts pairs exactly
MOST_RANKS = 16  # with more ranks the buckets of a histogram would be too wide


@dataclass(frozen=True)
class FewRanks:
    """The weights of all rows of each rank, and a sample of the pairs.

    sample: the pairs of some rows of each rank, which weigh as much as all rows of the rank. rows: the numbers of these
    rows in the source.
    """

    totals: RankTotals
    sample: Pairs
    rows: I64


def has_few_ranks(source: RowSource, task: str) -> bool:
    """Return whether any two rows may be a pair, and there are many rows of few ranks."""
    if find_problem(task).reads_queries and source.column_of("qid", 0) is not None:
        return False
    return source.n_rows > HELD_ROWS and len(require_classes(source)) <= MOST_RANKS


def find_few_ranks(source: RowSource, task: str) -> FewRanks:
    """Return the pairs of all rows; InputError is raised for data that have no pairs of rows to compare."""
    classes = require_comparable(source, task)
    of_rank, n_rows = np.zeros(len(classes)), np.zeros(len(classes), np.int64)
    for _, ranks, weight in _read_ranks(source):
        of_rank += np.bincount(ranks, weight, len(classes))
        n_rows += np.bincount(ranks[weight > 0.0], minlength=len(classes))
    if np.count_nonzero(of_rank) < 2:
        raise InputError(f"{source.name}: {NO_PAIRS}")
    quota = max(1, count_sample_rows(source) // int(np.count_nonzero(n_rows)))
    return FewRanks(RankTotals(of_rank), *_draw_sample(source, np.maximum(1, -(-n_rows // quota))))


def _draw_sample(source: RowSource, strides: I64) -> tuple[Pairs, I64]:
    """Return every k-th row of each rank that has a weight, with k times that; strides: the k of each rank."""
    seen = np.zeros(len(strides), np.int64)
    chosen: list[tuple[I64, I32, F64]] = []
    for start, ranks, weight in _read_ranks(source):
        weighed = np.flatnonzero(weight > 0.0)
        order = weighed[np.argsort(ranks[weighed], kind="stable")]
        counts = np.bincount(ranks[weighed], minlength=len(strides))
        within = np.arange(len(weighed)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(seen, counts)
        drawn = np.sort(order[within % np.repeat(strides, counts) == 0])
        chosen.append((start + drawn, ranks[drawn], weight[drawn] * strides[ranks[drawn]]))
        seen += counts
    rows, ranks, weight = (np.concatenate(part) for part in zip(*chosen, strict=True))
    return Pairs(ranks, weight, np.array([0, len(rows)])), rows


def _read_ranks(source: RowSource) -> Iterator[tuple[int, I32, F64]]:
    """Yield the number of the first row, the ranks and the weights of each chunk."""
    for index in range(source.n_chunks):
        ranks, weight = source.column_of("y", index), source.column_of("sample_weight", index)
        assert ranks is not None
        yield int(source.chunk_starts[index]), ranks, np.ones(len(ranks)) if weight is None else weight
