"""Sums over whole queries, of rows that come in pieces: tiles and groups of chunks end in the middle of queries.

    totals of successive rows = (rows of the first query, sums over the whole queries between, rows of the last query)

A query is whole once both of its ends have been seen. The rows before the first limit between two queries may belong to
a query that began earlier, and those after the last limit to one that goes on. So they are kept until the neighbouring
rows come: the next tile of a group, or the next group in the tree of sums. The order in which whole queries are added
depends on the tiles and the tree alone, and not on who reads which rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamsvm.numeric.rows import I64, Rows, stack_rows

T = TypeVar("T")
Take = Callable[[T, Rows, I64], None]


@dataclass
class QuerySums:
    """The totals of successive rows.

    sums: over the whole queries. first: the pieces of the rows before the first limit, all rows if there is no limit.
    last: the pieces of the rows after the last limit, of which there are none if the limit is at the end; None if there
    is no limit.
    """

    sums: Any
    first: list[Rows] = field(default_factory=list)
    last: list[Rows] | None = None


def sum_queries(
    ends: tuple[int, int], start: Callable[[], T], take: Take[T], combine: Callable[[T, T], T]
) -> tuple[Callable[[], QuerySums], Callable[..., None], Callable[[QuerySums, QuerySums], QuerySums]]:
    """Return the functions of a pass over whole queries (requests.Scan), whose answer is a `QuerySums`.

    take(sums, rows, starts) adds whole queries in place to the sums that start() has returned: query k is the rows
    starts[k]:starts[k + 1]. combine(left, right) returns the sums of both as a new object. ends: the first row of all,
    and the row after the last. There are limits between queries at both ends.
    """
    add, join = partial(_add, take, ends), partial(_combine, take, combine)
    return partial(_start, start), add, join


def _start(start: Callable[[], Any]) -> QuerySums:
    return QuerySums(start())


def _add(take: Take[Any], ends: tuple[int, int], totals: QuerySums, rows: Rows) -> None:
    """Add a tile."""
    assert rows.qid is not None
    if rows.start == ends[0]:
        totals.last = []
    limits = np.flatnonzero(np.diff(rows.qid)) + 1
    first, last = (int(limits[0]), int(limits[-1])) if len(limits) else (rows.n_rows, rows.n_rows)
    _extend(take, totals, rows.pick(np.arange(first)))
    if len(limits):
        _end_query(take, totals)
        if first < last:
            take(totals.sums, rows.slice(slice(first, last)), limits - first)
        totals.last = [rows.pick(np.arange(last, rows.n_rows))]
    if rows.start + rows.n_rows == ends[1]:
        _end_query(take, totals)


def _combine(take: Take[Any], combine: Callable[[Any, Any], Any], left: QuerySums, right: QuerySums) -> QuerySums:
    """Return the totals of the rows of both, which follow one another, with the queries that become whole."""
    totals = QuerySums(combine(left.sums, right.sums), list(left.first), None if left.last is None else list(left.last))
    for piece in right.first:
        _extend(take, totals, piece)
    if right.last is not None:
        _end_query(take, totals)
        totals.last = list(right.last)
    return totals


def _extend(take: Take[Any], totals: QuerySums, piece: Rows) -> None:
    """Add rows of one query, which follow the others."""
    pieces = totals.first if totals.last is None else totals.last
    assert piece.qid is not None
    if pieces and _query_of(pieces) != int(piece.qid[0]):
        _end_query(take, totals)
        pieces = totals.last = []
    pieces.append(piece)


def _query_of(pieces: list[Rows]) -> int:
    qid = pieces[-1].qid
    assert qid is not None
    return int(qid[-1])


def _end_query(take: Take[Any], totals: QuerySums) -> None:
    """Note that there is a limit after the rows so far: the query that ends there is whole if its start is known."""
    if totals.last:
        rows = _join(totals.last)
        take(totals.sums, rows, np.array([0, rows.n_rows]))
    totals.last = []


def _join(pieces: list[Rows]) -> Rows:
    """Return the rows of several pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    vectors = [piece.vectors for piece in pieces]
    joined: dict[str, Any] = {name: np.concatenate([each[name] for each in vectors]) for name in vectors[0]}
    return Rows(-1, stack_rows([piece.X for piece in pieces]), **joined)
