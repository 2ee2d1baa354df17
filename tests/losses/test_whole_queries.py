"""Whole queries out of pieces: however rows are cut into tiles and groups, every query is added once, whole."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.engines.local import tree_levels
from streamsvm.losses.pairs import QuerySums, sum_queries
from streamsvm.numeric.rows import I64, CsrRows, Rows


def start() -> list[Any]:
    return []


def take(sums: list[Any], rows: Rows, starts: I64) -> None:
    """Note each query with its rows, whose only feature is their number; and how many numbers there are."""
    assert rows.qid is not None
    values = rows.X.data if isinstance(rows.X, CsrRows) else rows.X[:, 0]
    for first, end in itertools.pairwise(starts):
        assert len(set(rows.qid[first:end].tolist())) == 1
        sums.append((int(rows.qid[first]), [int(value) for value in values[first:end]]))


def combine(left: list[Any], right: list[Any]) -> list[Any]:
    return left + right


def sum_in_pieces(sizes: list[int], cuts: list[int], groups: list[int], first: int, is_sparse: bool) -> QuerySums:
    """Add the rows of queries of these sizes in tiles that end at `cuts`, of which some end groups, in the tree."""
    n = sum(sizes)
    qid = np.repeat(np.arange(len(sizes))[::-1] * 7, sizes)
    begin, add, join = sum_queries((first, first + n), start, take, combine)
    totals, limits = [begin()], sorted({0, *(cut for cut in cuts if 0 < cut < n), n})
    for a, b in itertools.pairwise(limits):
        if a in groups:
            totals.append(begin())
        values = np.arange(a, b, dtype=np.float32)
        X = CsrRows(values, np.zeros(b - a, np.int32), np.arange(b - a + 1), 1) if is_sparse else values[:, None]
        add(totals[-1], Rows(first + a, X, np.zeros(b - a, np.int32), qid=qid[a:b]))
        values[:] = -1  # the memory of a tile is used again
    for level in tree_levels(len(totals)):
        for left, right in level:
            totals[left] = join(totals[left], totals[right])
    return totals[0]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.lists(st.integers(1, 60), max_size=20),
    st.lists(st.integers(1, 60), max_size=8),
    st.sampled_from([0, 40]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_every_query_is_added_once_and_whole(
    sizes: list[int], cuts: list[int], groups: list[int], first: int, is_sparse: bool
) -> None:
    totals = sum_in_pieces(sizes, cuts, groups, first, is_sparse)
    ends = np.cumsum([0, *sizes]).tolist()
    wanted = [(7 * (len(sizes) - 1 - k), list(range(ends[k], ends[k + 1]))) for k in range(len(sizes))]
    assert sorted(totals.sums) == sorted(wanted)
    assert not totals.first
    assert not totals.last


def test_the_parts_of_a_total_stay_as_they_are() -> None:
    """Another task may combine them once more."""
    begin, add, join = sum_queries((0, 6), start, take, combine)
    left, right = begin(), begin()
    qid = np.array([1, 1, 2, 2, 2, 3])
    X = np.arange(6, dtype=np.float32)[:, None]
    add(left, Rows(0, X[:3], qid=qid[:3]))
    add(right, Rows(3, X[3:], qid=qid[3:]))
    found = [sorted(join(left, right).sums) for _ in range(2)]
    assert found[0] == found[1] == [(1, [0, 1]), (2, [2, 3, 4]), (3, [5])]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_one_query_of_many_tiles(is_sparse: bool) -> None:
    totals = sum_in_pieces([50], list(range(1, 50)), [10, 20, 30], 0, is_sparse)
    assert totals.sums == [(0, list(range(50)))]
