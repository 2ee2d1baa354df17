"""The pairs of rows of each query, found without holding a number of every row: labels are read a chunk at a time.

A pair has the weight that all rows of its query have, so the v_i of a row is the square root of it
(numeric.pair_counts multiplies v_i v_j).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.numeric.pair_counts import Pairs, count_pairs
from streamsvm.numeric.rows import F64, I32, I64
from streamsvm.options import require_classes

NO_PAIRS = (
    "no two rows to compare: one class only, in each query or at all, or sample weights so small that the weights of "
    "all pairs, their products, are 0"
)
QUERIES_AT_ONCE = 1 << 20  # queries whose numbers are compared at once, to find one that occurs in two places
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 (golden ratio - 1): the high bits of its multiples are spread evenly


@dataclass(frozen=True)
class QueryPairs:
    """All pairs in numbers, and a sample of them.

    total: the sum of the weights of all pairs; weight: of all rows. largest: the rows of the largest query. sample: the
    pairs of some queries, and rows: the numbers of their rows.
    """

    total: float
    weight: float
    largest: int
    sample: Pairs
    rows: I64


@dataclass(frozen=True)
class Labelled:
    """Successive rows without their features: start is the number of the first."""

    start: int
    qid: I64
    ranks: I32
    weight: F64

    def copy_part(self, first: int, stop: int) -> Labelled:
        """Return the rows first:stop of these, in memory of their own, so that the others can be forgotten."""
        own = slice(first, stop)
        return Labelled(self.start + first, self.qid[own].copy(), self.ranks[own].copy(), self.weight[own].copy())


def find_query_pairs(source: RowSource, sample_rows: int) -> QueryPairs:
    """Return the pairs of a source with queries; labels, weights and query ids are read, but no features.

    The sample is every k-th of the queries that have pairs, with about `sample_rows` rows and one query more.

    InputError is raised for ranks that are not numbers, for a query that occurs in two places or has two weights, and
    if there are no pairs.
    """
    require_ranks(source)
    stride, n_queries, n_paired, largest = -(-source.n_rows // sample_rows), 0, 0, 0
    total, weight = 0.0, 0.0
    chosen: list[Labelled] = []
    for rows, starts in _read_queries(source):
        _check_weights(source.name, rows)
        up, _ = count_pairs(np.zeros(len(rows.qid)), Pairs(rows.ranks, np.sqrt(rows.weight), starts), 1.0)
        of_query = np.add.reduceat(up, starts[:-1])
        paired = np.flatnonzero(of_query > 0.0)
        drawn = paired[(np.arange(len(paired)) + n_paired) % stride == 0]
        chosen += [rows.copy_part(*starts[k : k + 2].tolist()) for k in drawn]
        n_queries, n_paired = n_queries + len(of_query), n_paired + len(paired)
        largest = max(largest, int(np.max(np.diff(starts))))
        total, weight = total + float(np.sum(of_query)), weight + float(np.sum(rows.weight))
    _check_places(source, n_queries)
    if not total > 0.0:
        raise InputError(f"{source.name}: {NO_PAIRS}")
    return QueryPairs(total, weight, largest, *_join_sample(chosen))


def require_ranks(source: RowSource) -> None:
    """Raise InputError if the labels of a source are no ranks, which are numbers."""
    classes = require_classes(source)
    if classes.dtype.kind not in "biuf":
        raise InputError(f"{source.name}: labels are {str(classes[0])!r}, ..; ranks have to be numbers")


def _join_sample(chosen: list[Labelled]) -> tuple[Pairs, I64]:
    starts = np.cumsum([0, *(len(rows.qid) for rows in chosen)])
    ranks, roots = np.concatenate([rows.ranks for rows in chosen]), np.sqrt(np.concatenate([c.weight for c in chosen]))
    numbers = np.concatenate([np.arange(rows.start, rows.start + len(rows.qid)) for rows in chosen])
    return Pairs(ranks, roots, starts), numbers


def _read_queries(source: RowSource) -> Iterator[tuple[Labelled, I64]]:
    """Yield successive whole queries, those that end in a chunk together, and where each starts among their rows."""
    pieces: list[Labelled] = []
    for index in range(source.n_chunks):
        rows = _read_chunk(source, index)
        limits = np.flatnonzero(np.diff(rows.qid, prepend=pieces[-1].qid[-1:] if pieces else rows.qid[:1]))
        last = len(rows.qid) if index == source.n_chunks - 1 else int(limits[-1]) if len(limits) else 0
        if last or (len(limits) and pieces):
            whole = _join([*pieces, rows.copy_part(0, last)])
            yield whole, np.concatenate(([0], np.flatnonzero(np.diff(whole.qid)) + 1, [len(whole.qid)]))
            pieces = []
        pieces.append(rows.copy_part(last, len(rows.qid)))


def _read_chunk(source: RowSource, index: int) -> Labelled:
    qid, ranks, weight = (source.column_of(name, index) for name in ("qid", "y", "sample_weight"))
    assert qid is not None
    assert ranks is not None
    return Labelled(int(source.chunk_starts[index]), qid, ranks, np.ones(len(qid)) if weight is None else weight)


def _join(pieces: list[Labelled]) -> Labelled:
    qid, ranks, weight = (np.concatenate([getattr(one, name) for one in pieces]) for name in ("qid", "ranks", "weight"))
    return Labelled(pieces[0].start, qid, ranks, weight)


def _check_weights(name: str, rows: Labelled) -> None:
    uneven = np.flatnonzero((np.diff(rows.qid) == 0) & (np.diff(rows.weight) != 0))
    if len(uneven):
        row, query = rows.start + uneven[0] + 2, rows.qid[uneven[0]]
        raise InputError(f"{name}: row {row}: another weight than the rest of query {query}")


def _check_places(source: RowSource, n_queries: int) -> None:
    """Raise InputError for the first query that occurs in two places; a share of the queries is compared at a time."""
    shares = max(1, -(-n_queries // QUERIES_AT_ONCE))
    again: list[tuple[int, int]] = []
    for share in range(shares):
        qid, row = _list_starts(source, share, shares)
        order = np.lexsort((row, qid))
        repeated = order[1:][np.diff(qid[order]) == 0]
        if len(repeated):
            first = repeated[np.argmin(row[repeated])]
            again.append((int(row[first]), int(qid[first])))
    if again:
        number, query = min(again)
        raise InputError(
            f"{source.name}: row {number + 1}: query {query} again, after others: its rows have to be together; sort "
            "the rows by their query"
        )


def _list_starts(source: RowSource, share: int, shares: int) -> tuple[I64, I64]:
    """Return the queries of one of several shares of all queries, and the row where each of them starts."""
    found: list[tuple[I64, I64]] = []
    before: I64 = np.empty(0, np.int64)
    for index in range(source.n_chunks):
        qid = source.column_of("qid", index)
        assert qid is not None
        starts = np.flatnonzero(np.diff(qid, prepend=before) if len(before) else np.append(1, np.diff(qid)))
        spread = (qid[starts].view(np.uint64) * SPREAD) >> np.uint64(32)
        own = starts[spread % np.uint64(shares) == share]
        found.append((qid[own], own + source.chunk_starts[index]))
        before = qid[-1:]
    queries, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    return queries, rows
