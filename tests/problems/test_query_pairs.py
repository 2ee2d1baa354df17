"""The pairs within queries, read a chunk at a time, beside those that are counted with all labels in memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.numeric.rows import F64, I64
from streamsvm.problems import ranking as problem_pairs
from streamsvm.problems.ranking import LARGEST_QUERY_BYTES, find_pairs, find_query_pairs, find_small_queries
from streamsvm.system.errors import InputError


def make_source(
    qid: I64, ranks: I64, weight: F64 | None = None, chunk_rows: int = 7, n_features: int = 1
) -> ArrayDataset:
    X = np.zeros((len(qid), n_features), np.float32)
    source = ArrayDataset(X, ranks.astype(np.int32), np.arange(ranks.max() + 1), weight, qid=qid)
    source.chunk_starts = np.append(np.arange(0, len(qid), chunk_rows), len(qid))
    return source


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=15),
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 10**6),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_pairs_are_those_of_all_labels_together(
    sizes: list[int], chunk_rows: int, sample_rows: int, seed: int, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    query = np.repeat(np.arange(len(sizes)), sizes)
    qid = random.permutation(len(sizes))[query] * 1000003 - 5000
    weight = random.integers(0, 3, len(sizes)).astype(float)[query] if weighted else None
    source = make_source(qid, random.integers(0, 3, len(qid)), weight, chunk_rows)
    try:
        pairs, total_weight = find_pairs(source, "rank")
    except InputError as error:
        with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
            find_query_pairs(source, sample_rows)
        return
    found = find_query_pairs(source, sample_rows)
    assert found.total == pytest.approx(pairs.total, rel=1e-12)
    assert (found.weight, found.largest) == (pytest.approx(total_weight), max(sizes))
    _check_sample(found, pairs, sample_rows, max(sizes))


def _check_sample(found: problem_pairs.QueryPairs, pairs: problem_pairs.Pairs, sample_rows: int, largest: int) -> None:
    """It holds whole queries that have pairs, and not many more rows than were asked for."""
    assert found.sample.total > 0.0
    np.testing.assert_array_equal(found.sample.ranks, pairs.ranks[found.rows])
    np.testing.assert_array_equal(found.sample.weight, pairs.weight[found.rows])
    for first, end in zip(found.sample.starts[:-1], found.sample.starts[1:], strict=True):
        place = int(np.flatnonzero(pairs.starts == found.rows[first])[0])
        np.testing.assert_array_equal(found.rows[first:end], np.arange(*pairs.starts[place : place + 2]))
    n_queries = len(found.sample.starts) - 1
    stride = -(-len(pairs.ranks) // sample_rows)
    assert n_queries <= -(-(len(pairs.starts) - 1) // stride)
    assert len(found.rows) <= n_queries * largest


@pytest.mark.parametrize("compared", [3, 1 << 20])
def test_a_query_in_two_places_is_named(compared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its first row after others, also where not all queries are compared at once."""
    monkeypatch.setattr(problem_pairs, "QUERIES_AT_ONCE", compared)
    qid = np.repeat([4, 9, 2, 7, 9, 5, 4], 3)
    source = make_source(qid, np.arange(21) % 2)
    with pytest.raises(InputError, match=r"row 13: query 9 occurs again after other queries"):
        find_query_pairs(source, 100)


def test_uneven_weights_are_named_across_chunks() -> None:
    weight = np.ones(12)
    weight[7] = 2.0
    source = make_source(np.repeat([1, 2], 6), np.arange(12) % 2, weight)
    with pytest.raises(InputError, match="row 8: its weight differs from that of the other rows of query 2"):
        find_query_pairs(source, 100)


def test_a_query_that_is_too_large_is_not_small() -> None:
    n = LARGEST_QUERY_BYTES // 4000 + 1
    large = make_source(np.zeros(n, np.int64), np.arange(n) % 2, chunk_rows=n, n_features=1000)
    small = make_source(np.arange(n) // 10, np.arange(n) % 2, chunk_rows=n, n_features=1000)
    assert find_small_queries(large, "rank", 100) is None
    assert find_small_queries(small, "rank", 100) is not None
    assert find_small_queries(small, "roc-area", 100) is None
