"""The two products of rows, dense and sparse, against NumPy and SciPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from streamsvm.numeric.rows import CsrRows, Matrix, Rows, add_rows, compute_scores, compute_scores_of_parts

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
SMALL_INTEGERS = st.integers(-8, 8).map(float)  # sums of their products are exact, in whatever order
N_ROWS = st.integers(0, 13)  # kernels take several rows at a time: every remainder
N_FEATURES = st.integers(1, 40)


def to_csr(X: F32) -> CsrRows:
    """Sparse rows of a dense matrix; SciPy does the work."""
    matrix = csr_array(X)
    return CsrRows(matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64), X.shape[1])


def both_forms(X: F32) -> list[Matrix]:
    return [X, to_csr(X)]


@st.composite
def integer_matrices(draw: st.DrawFn) -> tuple[F32, int, int]:
    n, d = draw(N_ROWS), draw(N_FEATURES)
    return draw(arrays(np.float32, (n, d), elements=SMALL_INTEGERS)), n, d


@given(st.data())
def test_scores_of_integers_are_exact(data: st.DataObject) -> None:
    X, _, d = data.draw(integer_matrices())
    W = data.draw(arrays(np.float64, (data.draw(st.integers(1, 5)), d), elements=SMALL_INTEGERS))
    for matrix in both_forms(X):
        scores = compute_scores(matrix, W)
        assert scores.dtype == np.float64
        np.testing.assert_array_equal(scores, X.astype(np.float64) @ W.T)


@given(st.integers(0, 2**32 - 1), N_ROWS, N_FEATURES, st.integers(1, 5))
def test_scores_agree_with_numpy_and_scipy(seed: int, n: int, d: int, k: int) -> None:
    random = np.random.default_rng(seed)
    X = (random.normal(size=(n, d)) * (random.random((n, d)) < 0.7)).astype(np.float32)
    W = random.normal(size=(k, d))
    size = np.abs(X).astype(np.float64) @ np.abs(W).T
    for expected in (X.astype(np.float64) @ W.T, csr_array(X.astype(np.float64)) @ W.T):
        for matrix in both_forms(X):
            assert np.all(np.abs(compute_scores(matrix, W) - expected) <= 1e-14 * d * size)


def test_sums_are_float64() -> None:
    """2^30 + 1 - 2^30 is 0 in float32."""
    X = np.array([[2.0**30, 1.0, -(2.0**30)]], np.float32)
    total = np.zeros((1, 3))
    for matrix in both_forms(X):
        assert compute_scores(matrix, np.ones((1, 3)))[0, 0] == 1.0
        total[:] = 0.0
        zeros = np.zeros(3, np.int64)
        add_rows(total, matrix, zeros, zeros, np.array([2.0**30, 1.0, -(2.0**30)]))
        np.testing.assert_array_equal(total, X)


@given(st.data())
def test_sums_of_integer_rows_are_exact(data: st.DataObject) -> None:
    """Rows repeat, buckets come in runs and singly; the total may be wider than the rows, as for a bias."""
    X, n, d = data.draw(integer_matrices())
    k, wider = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
    n_entries = data.draw(st.integers(0, 20)) if n else 0
    row = data.draw(arrays(np.int64, n_entries, elements=st.integers(0, max(0, n - 1))))
    bucket = data.draw(arrays(np.int64, n_entries, elements=st.integers(0, k - 1)))
    coef = data.draw(arrays(np.float64, n_entries, elements=SMALL_INTEGERS))
    before = data.draw(arrays(np.float64, (k, d + wider), elements=SMALL_INTEGERS))
    expected = before.copy()
    np.add.at(expected[:, :d], bucket, coef[:, None] * X[row].astype(np.float64))
    for matrix in both_forms(X):
        total = before.copy()
        add_rows(total, matrix, row, bucket, coef)
        np.testing.assert_array_equal(total, expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 13), N_FEATURES)
def test_sums_of_rows_agree_with_scipy(seed: int, n: int, d: int) -> None:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)).astype(np.float32)
    row, bucket = random.integers(n, size=2 * n), np.sort(random.integers(3, size=2 * n))
    coef = random.normal(size=2 * n)
    choice = csr_array((coef, (bucket, row)), shape=(3, n))
    size = abs(choice) @ np.abs(X).astype(np.float64)
    for matrix in both_forms(X):
        total = np.zeros((3, d))
        add_rows(total, matrix, row, bucket, coef)
        assert np.all(np.abs(total - choice @ X.astype(np.float64)) <= 1e-14 * n * size)


@pytest.mark.parametrize("form", [0, 1])
def test_shape_and_bytes_count_everything(form: int) -> None:
    X = both_forms(np.eye(5, 3, dtype=np.float32))[form]
    vectors: dict[str, Any] = {"y": np.zeros(5, np.int32), "sample_weight": np.ones(5), "qid": np.zeros(5, np.int64)}
    assert X.shape == (5, 3)
    assert Rows(0, X, **vectors).n_rows == 5
    of_X = 4 * 15 if form == 0 else 4 * 3 + 4 * 3 + 8 * 6
    assert Rows(0, X).nbytes == of_X
    assert Rows(0, X, **vectors).nbytes == of_X + 5 * (4 + 8 + 8)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("n_parts", "width"), [(1, 2), (7, 2), (3, 4)])
def test_scores_of_several_parts_are_those_of_each_alone(sparse: bool, n_parts: int, width: int) -> None:
    """To the bit, whatever the other parts are; rows do not fill the last piece."""
    random = np.random.default_rng(5)
    dense = random.normal(size=(1030, 37)).astype(np.float32) * (random.random((1030, 37)) < (0.3 if sparse else 1))
    X = to_csr(dense) if sparse else dense
    W = random.normal(size=(n_parts * width, 37))
    columns = np.array([*range(len(W)), 0, len(W) - 1, 0])  # the last part uses vectors of other parts
    limits = np.array([*range(0, len(W) + 1, width), len(W) + 3])
    found = compute_scores_of_parts(X, W, columns, limits)
    assert [part.shape for part in found] == [(1030, width)] * n_parts + [(1030, 3)]
    for part, (start, end) in zip(found, pairwise(limits), strict=True):
        np.testing.assert_array_equal(part, compute_scores(X, W[columns[start:end]]))
    np.testing.assert_allclose(np.hstack(found), dense.astype(float) @ W[columns].T, rtol=1e-9, atol=1e-9)
