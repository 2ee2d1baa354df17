"""The pairs of many rows of few ranks, read a chunk at a time, beside those that all labels at once give."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.losses.histograms import RankTotals
from streamsvm.numeric.rows import F64, I32, I64
from streamsvm.problems import ranking as problem_pairs
from streamsvm.problems.ranking import HELD_ROWS, MOST_RANKS, find_few_ranks, find_pairs, has_few_ranks
from streamsvm.solvers.cutting_plane.score_model import SAMPLE_ROWS
from streamsvm.system.errors import InputError


def make_source(ranks: I32, weight: F64 | None = None, n_ranks: int = 3, chunk_rows: int = 7) -> ArrayDataset:
    source = ArrayDataset(np.zeros((len(ranks), 1), np.float32), ranks, np.arange(n_ranks), weight)
    source.chunk_starts = np.append(np.arange(0, len(ranks), chunk_rows), len(ranks))
    return source


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 10**6), st.booleans())
@settings(max_examples=200, deadline=None)
def test_pairs_are_those_of_all_labels_together(n: int, chunk_rows: int, seed: int, weighted: bool) -> None:
    random = np.random.default_rng(seed)
    ranks = random.integers(0, 3, n).astype(np.int32)
    source = make_source(ranks, random.integers(0, 3, n).astype(float) if weighted else None, 3, chunk_rows)
    try:
        pairs, weight = find_pairs(source, "rank")
    except InputError:
        with pytest.raises(InputError, match="no two rows to compare"):
            find_few_ranks(source, "rank", SAMPLE_ROWS)
        return
    found = find_few_ranks(source, "rank", SAMPLE_ROWS)
    assert (found.totals.of_pairs, found.totals.of_rank.sum()) == (pytest.approx(pairs.total), pytest.approx(weight))
    np.testing.assert_array_equal(found.rows, np.flatnonzero(pairs.weight))  # few, and so all that have a weight
    np.testing.assert_array_equal(found.sample.weight, pairs.weight[found.rows])


def test_each_rank_is_in_the_sample_with_the_weight_of_all_its_rows() -> None:
    """However rare it is."""
    random = np.random.default_rng(0)
    ranks = (random.random(200_000) < 0.3).astype(np.int32)
    ranks[random.integers(0, 200_000, 3)] = 2
    found = find_few_ranks(make_source(ranks, chunk_rows=30_000), "rank", SAMPLE_ROWS)
    assert len(found.rows) <= SAMPLE_ROWS + 3
    np.testing.assert_array_equal(found.rows, np.sort(found.rows))
    np.testing.assert_array_equal(found.sample.ranks, ranks[found.rows])
    assert np.count_nonzero(found.sample.ranks == 2) == np.count_nonzero(ranks == 2)
    for rank in range(3):
        weight = found.sample.weight[found.sample.ranks == rank].sum()
        assert weight == pytest.approx(np.count_nonzero(ranks == rank), rel=1e-3)


def test_rows_without_weight_are_not_in_the_sample() -> None:
    random = np.random.default_rng(1)
    ranks, weight = random.integers(0, 2, 100_000).astype(np.int32), np.ones(100_000)
    weight[ranks == 1] = 0.0
    weight[np.flatnonzero(ranks == 1)[[70, 3000, 41000]]] = 2.0
    found = find_few_ranks(make_source(ranks, weight, 2, 30_000), "rank", SAMPLE_ROWS)
    assert found.sample.total == pytest.approx(found.totals.of_pairs, rel=1e-3)


def test_small_weights_beside_large_ones_are_kept() -> None:
    totals = RankTotals(np.array([1e-5, 1e6, 1e6, 1e-11]))
    np.testing.assert_allclose(totals.below, [0.0, 1e-5, 1e6, 2e6], rtol=1e-10)
    np.testing.assert_allclose(totals.above, [2e6, 1e6, 1e-11, 0.0], rtol=1e-10)


@pytest.mark.parametrize(
    ("n_rows", "n_ranks", "qid", "expected"),
    [
        (HELD_ROWS + 1, 2, False, True),
        (HELD_ROWS + 1, MOST_RANKS, False, True),
        (HELD_ROWS, 2, False, False),
        (HELD_ROWS + 1, MOST_RANKS + 1, False, False),
        (HELD_ROWS + 1, 2, True, False),
    ],
)
def test_when_there_are_many_rows_of_few_ranks(n_rows: int, n_ranks: int, qid: bool, expected: bool) -> None:
    ids: I64 | None = np.arange(n_rows) // 10 if qid else None
    X, ranks = np.zeros((n_rows, 1), np.float32), np.arange(n_rows, dtype=np.int32) % n_ranks
    source = ArrayDataset(X, ranks, np.arange(n_ranks), qid=ids)
    assert has_few_ranks(source, "rank") is expected
    if n_ranks == 2:  # which query a row is of does not matter there
        assert has_few_ranks(source, "roc-area") is (n_rows > HELD_ROWS)


@pytest.mark.parametrize("task", ["rank", "roc-area"])
def test_labels_that_are_refused(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words that are used where there are fewer rows."""
    monkeypatch.setattr(problem_pairs, "HELD_ROWS", 0)
    classes = np.array(["a", "b", "c"]) if task == "rank" else np.arange(3)
    source = ArrayDataset(np.zeros((3, 1), np.float32), np.arange(3, dtype=np.int32), classes)
    with pytest.raises(InputError) as refused:
        find_pairs(source, task)
    with pytest.raises(InputError, match=f"^{re.escape(str(refused.value))}$"):
        find_few_ranks(source, task, SAMPLE_ROWS)
