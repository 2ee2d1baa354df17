"""Rows and columns of kernel sums in one layout: the same sums, and few rows that are dense at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import random_array

from streamsvm.kernels.kernel import Kernel, add_kernel_sums, prove_kernel_sums
from streamsvm.kernels.layouts import DENSE_VALUES, LEAST_ROWS, MOST_VALUES, match_parts
from streamsvm.models.model import KernelModel
from streamsvm.numeric.rows import F64, CsrRows, slice_rows, to_dense

N, D, M = 20_000, 1_000, 3
SPARSE = random_array((N, D), density=0.002, rng=np.random.default_rng(1), dtype=np.float32, format="csr")
ROWS = CsrRows(SPARSE.data, SPARSE.indices.astype(np.int32), SPARSE.indptr.astype(np.int64), D)
COLUMNS, COEF = np.random.default_rng(2).normal(size=(M, D)).astype(np.float32), np.array([1.0, -2.0, 0.5])
KERNEL = Kernel("rbf", 0.5 / D)


def add(rows: CsrRows) -> F64:
    f, errors = np.zeros((2, rows.shape[0]))
    add_kernel_sums(KERNEL, rows, COLUMNS, COEF, f, errors=errors)
    assert np.all(errors > 0.0)
    return f


def prove(rows: CsrRows) -> F64:
    F, errors = prove_kernel_sums(KERNEL, rows, COLUMNS, np.stack((COEF, -COEF)))
    assert errors.shape == (rows.shape[0],)
    return F[:, 0]


def score(rows: CsrRows) -> F64:
    model = KernelModel(
        kernel=KERNEL, support_vectors=COLUMNS, dual_coef=COEF, intercept=0.0, classes=np.array([0, 1]), scaling=None
    )
    found: F64 = model.scorer(D, None, True)(rows)
    return found


@pytest.mark.parametrize("compute", [add, prove, score])
def test_sparse_rows_beside_dense_columns_take_little_memory(compute: Callable[[CsrRows], F64]) -> None:
    """All rows in dense form would be 160 MB, and no plan counts them."""
    compute(slice_rows(ROWS, slice(0, 10)))  # which is compiled
    tracemalloc.start()
    found = compute(ROWS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    some = slice(N - 300, N)  # the last rows are of a part of their own
    X = np.asarray(to_dense(slice_rows(ROWS, some)), np.float64)
    squares = np.sum((X[:, None] - COLUMNS.astype(np.float64)) ** 2, axis=2)
    np.testing.assert_allclose(found[some], np.exp(-KERNEL.gamma * squares) @ COEF, rtol=1e-9, atol=1e-12)


def test_parts_hold_every_row_once() -> None:
    parts = list(match_parts(ROWS, COLUMNS))
    assert all(isinstance(X, np.ndarray) and X.size <= DENSE_VALUES for _, X, _ in parts)
    np.testing.assert_array_equal(np.concatenate([X for _, X, _ in parts]), SPARSE.toarray())


@pytest.mark.parametrize(("m", "least"), [(1, 2), (10, 10), (100, LEAST_ROWS)])
def test_parts_of_wide_rows_are_not_smaller_for_all_columns_that_each_of_them_reads(m: int, least: int) -> None:
    """A part reads all columns: of 50,000 features, parts of 2 rows beside 300 columns took ten times as long."""
    d = DENSE_VALUES // 2
    rows = CsrRows(np.ones(150, np.float32), np.arange(150, dtype=np.int32), np.arange(151), d)
    parts = [part for part, _, _ in match_parts(rows, np.zeros((m, d), np.float32))]
    assert len(parts) == -(-150 // least)


@pytest.mark.parametrize("d", [200_000, 1_000_000, 20_000_000])
def test_parts_of_very_wide_rows_are_bounded_in_bytes(d: int) -> None:
    """No memory plan counts them: 64 rows of a million features would take 512 MB in float64."""
    rows = CsrRows(np.ones(70), np.arange(70, dtype=np.int32), np.arange(71), d)
    columns = np.broadcast_to(np.zeros(1), (100, d))
    some = slice_rows(rows, slice(0, 5 if d > MOST_VALUES else 70))
    sizes = [X.shape[0] for _, X, _ in match_parts(some, columns)]
    assert sum(sizes) == some.shape[0]
    assert max(sizes) == max(1, (32 << 20) // (8 * d))


def test_no_rows_are_one_part() -> None:
    ((_, X, _),) = match_parts(slice_rows(ROWS, slice(0, 0)), COLUMNS)
    assert X.shape == (0, D)
