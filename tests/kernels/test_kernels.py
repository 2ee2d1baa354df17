"""Kernel values and their sums against the definitions in float64; the bits do not depend on threads or on keeping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.kernels import kernel as kernels
from streamsvm.kernels.kernel import (
    Kernel,
    add_chosen_columns,
    add_kernel_sums,
    add_linear_sums,
    combine_rows,
    compute_kernel,
    compute_squares,
    to_float64,
)
from streamsvm.kernels.values import evaluate_rows
from streamsvm.numeric.rows import F64, CsrRows, Matrix, add_rows_of, take_rows
from tests.kernel_problems import KINDS, compute_matrix, to_csr

D = 7


def make_rows(seed: int, n: int, d: int = D, density: float = 0.6) -> F64:
    """Values that float32 holds exactly; some rows of zeros."""
    random = np.random.default_rng(seed)
    X = np.round(16 * random.normal(size=(n, d))) / 16 * (random.random((n, d)) < density)
    X[random.random(n) < 0.05] = 0.0
    return X


def as_layout(X: F64, layout: str, dtype: type = np.float32) -> Matrix:
    return to_csr(X, dtype) if layout == "sparse" else X.astype(dtype)


def limit_of_rounding(K: F64, coef: F64, epsilon: float = 2e-6) -> F64:
    """Float32 holds products of about 30 to 1e-6; powers of three make three of it."""
    limit: F64 = epsilon * (1e-3 + np.abs(K) @ np.abs(coef) + np.abs(coef).sum())
    return limit


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [1, 511, 512, 513])
@pytest.mark.parametrize("m", [0, 1, 255, 256, 257])
def test_sums_and_kept_values_are_those_of_the_definitions(name: str, layout: str, n: int, m: int) -> None:
    """Sizes just around those of tiles and blocks of columns; f is added to, the slots are any."""
    X, Z, random = make_rows(n, n), make_rows(m + 1, m), np.random.default_rng(0)
    coef, start = random.normal(size=m), random.normal(size=n)
    K = compute_matrix(KINDS[name], X, Z)
    slots = random.permutation(m + 3)[:m]
    store = np.full((m + 3, n), np.nan, np.float32)
    f = start.copy()
    keep = None if name == "linear" else (store, slots)
    add_kernel_sums(KINDS[name], as_layout(X, layout), as_layout(Z, layout), coef, f, keep=keep)
    assert np.all(np.abs(f - start - K @ coef) <= limit_of_rounding(K, coef))
    if keep is not None:
        assert np.all(np.abs(store[slots].T - K) <= 4e-6 * (1 + np.abs(K)))
        assert np.isnan(np.delete(store, slots, axis=0)).all()


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [5, 1025, 9001])
def test_any_number_of_threads_gives_the_same_bits(name: str, layout: str, n: int) -> None:
    X, Z = as_layout(make_rows(1, n), layout), as_layout(make_rows(2, 300), layout)
    coef = np.random.default_rng(3).normal(size=300)
    sums, stores, matrices = [], [], []
    for threads in (1, 2, 3):
        f, store = np.zeros(n), np.zeros((300, n), np.float32)
        add_kernel_sums(KINDS[name], X, Z, coef, f, threads, None if name == "linear" else (store, np.arange(300)))
        sums.append(f.tobytes())
        stores.append(store.tobytes())
        matrices.append(compute_kernel(KINDS[name], take_rows(X, np.arange(min(n, 1025))), threads).tobytes())
    assert len(set(sums)) == len(set(stores)) == len(set(matrices)) == 1


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", [name for name in KINDS if name != "linear"])
@pytest.mark.parametrize("m", [3, 256, 259])
def test_kept_columns_give_the_same_sums(name: str, layout: str, m: int) -> None:
    """Keeping them changes no bit, and sums of what was kept are those of the first time."""
    X, Z = as_layout(make_rows(1, 1100), layout), as_layout(make_rows(2, m), layout)
    coef, slots = np.random.default_rng(3).normal(size=m), np.random.default_rng(4).permutation(m)
    plain, kept, again = np.zeros(1100), np.zeros(1100), np.zeros(1100)
    store = np.zeros((m, 1100), np.float32)
    add_kernel_sums(KINDS[name], X, Z, coef, plain)
    add_kernel_sums(KINDS[name], X, Z, coef, kept, keep=(store, slots))
    np.testing.assert_array_equal(plain, kept)
    add_chosen_columns(store, slots, coef, again)
    np.testing.assert_allclose(again, plain, rtol=1e-12, atol=1e-12 * np.abs(coef).sum())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("m", [0, 1, 4, 7])
def test_chosen_columns(m: int, threads: int) -> None:
    """Any of them, twice too; more rows than one part has."""
    random = np.random.default_rng(m)
    columns, n = random.normal(size=(9, 10_001)).astype(np.float32), 10_001
    chosen, coef, f = random.integers(0, 9, m), random.normal(size=m), random.normal(size=n)
    expected = f + coef @ columns[chosen].astype(np.float64)
    add_chosen_columns(columns, chosen, coef, f, threads)
    np.testing.assert_allclose(f, expected, atol=1e-13)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("exact", ["rows", "columns", "both"])
def test_either_side_in_float64_makes_the_values_exact(name: str, layout: str, exact: str) -> None:
    """To the rounding of float64, even where |x|^2 is 1e5 and gamma is not small."""
    X, Z = 100 + make_rows(1, 70), 100 + make_rows(2, 30)
    kernel = replace(KINDS[name], gamma=0.05 if name == "rbf" else 1e-5)
    coef, f = np.random.default_rng(3).normal(size=30), np.zeros(70)
    rows, columns = as_layout(X, layout), as_layout(Z, layout)
    rows = to_float64(rows) if exact != "columns" else rows
    columns = to_float64(columns) if exact != "rows" else columns
    add_kernel_sums(kernel, rows, columns, coef, f)
    K = compute_matrix(kernel, X, Z)
    np.testing.assert_allclose(f, K @ coef, atol=1e-9 * np.abs(K).max())
    rows = to_float64(as_layout(X, layout))
    found = compute_kernel(kernel, take_rows(rows, np.arange(70)))
    assert found.dtype == np.float64
    K = compute_matrix(kernel, X, X)
    np.testing.assert_allclose(found, K, atol=1e-9 * np.abs(K).max())


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [0, 1, 2, 257, 513])
def test_matrix_of_rows_with_each_other(name: str, layout: str, n: int) -> None:
    X = make_rows(n, n)
    K = compute_kernel(KINDS[name], as_layout(X, layout))
    assert K.dtype == np.float32
    assert np.all(np.abs(K - compute_matrix(KINDS[name], X, X)) <= 4e-6 * (1 + np.abs(K)))
    np.testing.assert_allclose(K, K.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_the_linear_kernel_is_one_vector(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel value is formed; w = sum of rows, f = X w in float64."""
    X, Z = make_rows(1, 600), make_rows(2, 300)
    coef = np.random.default_rng(3).normal(size=300)
    rows, columns = as_layout(X, layout), as_layout(Z, layout)
    np.testing.assert_allclose(combine_rows(columns, coef), coef @ Z, atol=1e-12)
    monkeypatch.setattr(kernels, "evaluate_all", lambda *_: pytest.fail("kernel values were formed"))
    sums, folded = np.ones(600), np.ones(600)
    add_kernel_sums(KINDS["linear"], rows, columns, coef, sums)
    add_linear_sums(rows, coef @ Z, folded)
    np.testing.assert_allclose(sums, 1 + X @ (coef @ Z), atol=1e-11)
    np.testing.assert_allclose(folded, sums, atol=1e-11)


@pytest.mark.parametrize("name", KINDS)
def test_sparse_rows_of_many_features(name: str) -> None:
    """200,000 features, none of them in every row: the tiles get smaller, and features meet that few rows have."""
    random, n, m, d = np.random.default_rng(1), 700, 40, 200_000
    items = random.integers(1, 60, n)
    indices = [np.sort(random.choice(2000, k, replace=False) * 100 + 99).astype(np.int32) for k in items]
    indptr = np.concatenate(([0], np.cumsum(items)))
    data = random.normal(size=indptr[-1]).astype(np.float32)
    X = CsrRows(data, np.concatenate(indices), indptr, d)
    some = np.zeros((n, 2000))
    some[np.repeat(np.arange(n), items), X.indices // 100] = data
    coef, f = random.normal(size=m), np.zeros(n)
    add_kernel_sums(KINDS[name], X, take_rows(X, np.arange(m)), coef, f, threads=2)
    K = compute_matrix(KINDS[name], some, some[:m])
    assert np.all(np.abs(f - K @ coef) <= limit_of_rounding(K, coef))


def test_values_stay_finite_and_within_their_range() -> None:
    X = np.array([[0.0, 0.0], [1e-20, 0.0], [1.0, 1.0], [300.0, -200.0], [1e4, 1e4]], np.float32)
    rbf = compute_kernel(Kernel("rbf", gamma=5.0), X)
    assert np.all((rbf >= 0) & (rbf <= 1))
    np.testing.assert_array_equal(np.diagonal(rbf), 1.0)
    np.testing.assert_allclose(rbf[0, 1:], [1.0, np.exp(-10.0), 0.0, 0.0], rtol=1e-5, atol=1e-30)
    sigmoid = compute_kernel(Kernel("sigmoid", gamma=1.0), X)
    np.testing.assert_allclose(sigmoid[4], [0, 0, 1, 1, 1], atol=1e-6)
    assert np.all(np.abs(sigmoid) <= 1)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_squared_lengths(layout: str) -> None:
    X = make_rows(1, 100)
    np.testing.assert_allclose(compute_squares(as_layout(X, layout)), np.sum(X**2, axis=1), rtol=1e-6)


@given(st.data())
@settings(max_examples=150)
def test_any_kernel_of_any_rows(data: st.DataObject) -> None:
    draw = data.draw
    n, m, d = draw(st.integers(0, 70)), draw(st.integers(0, 20)), draw(st.integers(1, 40))
    name, seed = draw(st.sampled_from(tuple(KINDS))), draw(st.integers(0, 2**31))
    kernel = Kernel(name, draw(st.floats(1e-3, 2.0)), draw(st.integers(1, 6)), draw(st.floats(-1.0, 1.0)))
    X, Z = (make_rows(seed + k, size, d, draw(st.floats(0.0, 1.0))) / np.sqrt(d) for k, size in enumerate((n, m)))
    X, Z = X.astype(np.float32).astype(np.float64), Z.astype(np.float32).astype(np.float64)
    layout, coef, f = (
        draw(st.sampled_from(("dense", "sparse"))),
        np.random.default_rng(seed).normal(size=m),
        np.zeros(n),
    )
    K = compute_matrix(kernel, X, Z)
    add_kernel_sums(kernel, as_layout(X, layout), as_layout(Z, layout), coef, f, draw(st.integers(1, 3)))
    assert np.all(np.abs(f - K @ coef) <= limit_of_rounding(K, coef, 1e-5) * (1 + np.abs(K).max(initial=0.0)))


@pytest.mark.parametrize("name", ["linear", "rbf", "poly"])
def test_rows_that_cannot_be_written_to(name: str) -> None:
    """As a worker is sent them, or a file is mapped: the same bits as of any others, in either precision.

    Nothing is compiled for them, since the memory of this process is projected without the compiler.
    """
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    for rows in (X, X.astype(np.float64)):
        fixed, coef, found = rows.copy(), np.ones(50), []
        fixed.flags.writeable = coef.flags.writeable = False
        for each, by in ((rows, np.ones(50)), (fixed, coef)):
            f = np.zeros(50)
            add_kernel_sums(Kernel(name), each, each, by, f)
            found.append(f)
            compiled = [*evaluate_rows.signatures, *add_rows_of.signatures]
            assert not any("readonly" in str(kinds) for kinds in compiled)
        np.testing.assert_array_equal(*found)
