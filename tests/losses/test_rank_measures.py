"""Measures of rankings against scikit-learn, SciPy and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import ndcg_score

from streamsvm.losses.pairs import Pairs, mean_ndcg, mean_tau, swapped_pairs
from streamsvm.numeric.rows import F64

Query = tuple[F64, F64]


@st.composite
def queries(draw: st.DrawFn) -> list[Query]:
    """Scores with ties, grades from 0 to 4, two of them at least in one query."""
    found = []
    for size in draw(st.lists(st.integers(2, 15), min_size=1, max_size=4)):
        scores = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
        grades = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
        found.append((np.array(scores, float), np.array(grades, float)))
    found[0][1][:2] = (0.0, 1.0)
    return found


def join(parts: list[Query]) -> tuple[F64, F64, list[int]]:
    starts = [0, *np.cumsum([len(scores) for scores, _ in parts]).tolist()]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), starts


@given(queries())
@settings(max_examples=100, deadline=None)
def test_measures_are_those_of_libraries(parts: list[Query]) -> None:
    """Rows of one grade only are nothing to order: such queries are left out."""
    scores, grades, starts = join(parts)
    ordered = [(s, g) for s, g in parts if len(set(g)) > 1]
    places = (1, 3, 10)
    found = mean_ndcg(scores, grades, starts, places)
    for k in places:
        expected = np.mean([ndcg_score([2**g - 1], [s], k=k) for s, g in ordered])
        assert found[k] == pytest.approx(expected, rel=1e-12)
    taus = [kendalltau(s, g).statistic for s, g in ordered]
    assert mean_tau(scores, grades, starts) == pytest.approx(np.mean(np.nan_to_num(taus)))


@given(queries())
@settings(max_examples=100, deadline=None)
def test_swapped_pairs_one_by_one(parts: list[Query]) -> None:
    scores, grades, starts = join(parts)
    wrong = total = 0.0
    for s, g in parts:
        for i in range(len(s)):
            for j in range(len(s)):
                if g[i] > g[j]:
                    total += 1
                    wrong += 1.0 if s[i] < s[j] else 0.5 if s[i] == s[j] else 0.0
    pairs = Pairs(grades.astype(np.int32), np.ones(len(scores)), np.array(starts))
    assert swapped_pairs(scores, pairs) == wrong / total


def test_nothing_to_order() -> None:
    same, starts = np.ones(4), [0, 2, 4]
    assert swapped_pairs(same, Pairs(np.zeros(4, np.int32), same, np.array(starts))) is None
    assert mean_tau(same, same, starts) is None
    assert mean_ndcg(same, same, starts, (5,)) == {5: None}


def test_thousands_of_ranks_have_no_gains() -> None:
    ranks = np.arange(2000.0)
    assert mean_ndcg(ranks, ranks, [0, 2000], (5,)) == {5: None}
    assert mean_tau(ranks, ranks, [0, 2000]) == pytest.approx(1.0)
