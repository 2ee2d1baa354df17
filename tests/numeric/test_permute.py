"""Rows in another order, and counts of values that are not zero, beside NumPy's and SciPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamsvm.numeric.rows import CsrRows, count_nonzeros, permute_rows, permute_to_dense
from streamsvm.numeric.stored_types import as_matrix


@given(st.integers(0, 50), st.integers(1, 40), st.integers(0, 60), st.integers(0, 99))
def test_rows_come_in_the_order_asked_for(n: int, d: int, n_taken: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)).astype(np.float32)
    order = rng.integers(0, n, n_taken) if n else np.empty(0, np.int64)  # some rows twice, others not at all
    np.testing.assert_array_equal(permute_rows(X, order), X[order])
    sparse = as_matrix(csr_array(X))
    assert isinstance(sparse, CsrRows)
    taken, wanted = permute_rows(sparse, order), csr_array(X[order])
    assert isinstance(taken, CsrRows)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(wanted, name))
    dense = permute_to_dense(sparse, order, d + 2)
    np.testing.assert_array_equal(dense, np.pad(X[order], ((0, 0), (0, 2))))


@pytest.mark.parametrize("kind", ["transposed", "every second column", "read-only"])
def test_arrays_of_users_are_permuted_and_counted_as_they_lie(kind: str) -> None:
    whole = np.random.default_rng(0).integers(0, 3, (6, 10)).astype(np.float32)
    X = {"transposed": whole.T, "every second column": whole[:, ::2], "read-only": whole.copy()}[kind]
    X.flags.writeable = kind != "read-only"
    order = np.arange(len(X))[::-1].copy()
    np.testing.assert_array_equal(permute_rows(X, order), X[::-1])


@given(st.integers(0, 30), st.integers(1, 20), st.integers(0, 99))
def test_nonzeros_are_counted(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.choice(np.array([0, -0.0, 1e-45, -2, 3], np.float32), (n, d))
    counts = np.count_nonzero(X, axis=1)
    assert count_nonzeros(X) == (counts.sum(), counts.max(initial=0))
