"""The weighted Gram matrix against plain float64 products; the normal equations against Newton's, written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.numeric import gram
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.rows import CsrRows
from streamsvm.solvers.interior_point.equations import factor
from tests.kernel_problems import to_csr


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), d=st.integers(1, 20), sparse=st.booleans())
def test_gram_of_chosen_rows(seed: int, n: int, d: int, sparse: bool) -> None:
    """To the rounding of float64: products of float32 data are exact there. Added to what is there already."""
    random = np.random.default_rng(seed)
    X = (random.normal(size=(n, d)) * (random.random((n, d)) < (0.3 if sparse else 1))).astype(np.float32)
    row = random.permutation(n)[: random.integers(0, n + 1)]
    weight = random.exponential(size=len(row)) * random.choice([0.0, 1e-6, 1.0, 1e6], size=len(row))
    sums = GramSum(d)
    for part in np.array_split(np.arange(len(row)), 2):
        sums.add(to_csr(X) if sparse else X, row[part], weight[part])
    total = sums.finish()
    chosen = X[row].astype(float)
    expected = chosen.T @ (weight[:, None] * chosen)
    np.testing.assert_allclose(np.triu(total), np.triu(expected), atol=1e-13 * max(1.0, np.abs(expected).max()))
    assert not np.tril(total, -1).any()


def test_items_of_a_row_may_be_in_any_order() -> None:
    X = CsrRows(np.array([3, 1, 2], np.float32), np.array([2, 0, 1], np.int32), np.array([0, 3]), 3)
    sums = GramSum(3)
    sums.add(X, np.array([0]), np.array([2.0]))
    np.testing.assert_array_equal(sums.finish(), [[2, 4, 6], [0, 8, 12], [0, 0, 18]])


def test_rows_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many make room, and wherever they are cut; none is lost, or counted twice."""
    X = np.random.default_rng(0).normal(size=(23, 5)).astype(np.float32)
    for size in (1, 4, 23, 256):
        monkeypatch.setattr(gram, "BUFFER_ROWS", size)
        sums = GramSum(5)
        for part in np.split(np.arange(23), [2, 2, 11]):
            sums.add(X, part, np.ones(len(part)))
        expected = np.triu(X.astype(float).T @ X)
        np.testing.assert_allclose(sums.finish(), expected, rtol=1e-12)
        np.testing.assert_array_equal(sums.finish(), sums.finish())


@pytest.mark.parametrize("size", [1, 3, 4, 256])
def test_sums_of_sums(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """As often as a scheduler likes, whether both have a matrix already, or one, or neither; and the parts stay."""
    monkeypatch.setattr(gram, "BUFFER_ROWS", size)
    X = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    expected = np.triu(X.astype(float).T @ X)
    parts = [GramSum(4), GramSum(4), GramSum(4)]
    parts[0].add(X, np.arange(6), np.ones(6))
    parts[1].add(X, np.arange(6, 9), np.ones(3))
    for left, right in ((0, 1), (1, 0), (0, 1)):
        total = (parts[left] + parts[right] + parts[2]).finish()
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
        total[:] = np.nan
    np.testing.assert_allclose(parts[1].finish(), np.triu(X[6:].astype(float).T @ X[6:]), rtol=1e-12, atol=1e-12)
    assert not parts[2].finish().any()


@pytest.mark.parametrize(("size", "columns"), [(1, 1), (7, 2), (1024, 512)])
def test_light_rows(monkeypatch: pytest.MonkeyPatch, size: int, columns: int) -> None:
    """Light rows are rounded to float32, heavy rows are not, and a sum of sums has both."""
    monkeypatch.setattr(gram, "LIGHT_ROWS", size)
    monkeypatch.setattr(gram, "LIGHT_COLUMNS", columns)
    random = np.random.default_rng(2)
    X, weight = random.normal(size=(40, 5)).astype(np.float32), 10.0 ** random.integers(-6, 7, 40)
    exact, is_light = X.astype(float), weight * (X.astype(float) ** 2).sum(axis=1) <= 1.0
    parts = [GramSum(5, 1.0), GramSum(5, 1.0)]
    for part, row in zip((0, 0, 1), np.split(np.arange(40), [11, 23]), strict=True):
        parts[part].add(X, row, weight[row])
    alone = GramSum(5, 1.0)
    alone.add(X, np.flatnonzero(is_light), weight[is_light])
    light = np.triu(exact[is_light].T @ (weight[is_light, None] * exact[is_light]))
    heavy = np.triu(exact[~is_light].T @ (weight[~is_light, None] * exact[~is_light]))
    assert 0 < np.abs(alone.finish() - light).max() < 1e-6 * np.trace(light)
    np.testing.assert_allclose((parts[0] + parts[1]).finish(), heavy + light, atol=1e-6 + 1e-13 * heavy.max())


def test_factor() -> None:
    A = np.random.default_rng(1).normal(size=(7, 5))
    M = A.T @ A
    U, jitter = factor(np.triu(M))
    np.testing.assert_allclose(U.T @ U, M, rtol=1e-12, atol=1e-12)
    assert jitter == 0
    singular = np.outer(np.ones(4), np.ones(4))
    U, jitter = factor(singular)
    assert 0 < jitter <= 1e-8
    np.testing.assert_allclose(U.T @ U, singular, atol=2 * jitter)
    np.testing.assert_array_equal(singular, 1.0)


@pytest.mark.parametrize(
    "matrix", [np.diag([1.0, -1.0, 1.0]), np.array([[1.0, np.nan], [0.0, 1.0]]), np.diag([np.inf])]
)
def test_what_cannot_be_factored_is_named(matrix: np.ndarray) -> None:
    with pytest.raises(FloatingPointError, match="cannot be factored"):
        factor(matrix)
