"""Bounds of the rounding of kernel sums against sums of 60 digits, for rows on which float64 loses many digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from streamsvm.kernels.kernel import Kernel, add_kernel_sums, compute_squares, prove_kernel_sums, to_float64
from streamsvm.numeric.gram import BLOCK_ITEMS
from streamsvm.numeric.rows import F64, CsrRows, Matrix, slice_rows, to_dense

SCALE = 2**100  # float32 numbers from 2^-76 on are whole multiples of its inverse
TAIL = 2_000  # items whose squares are lost one by one if they are added to 1
Items = dict[int, float]


def make_tail(value: float, n: int = TAIL) -> Items:
    return {1 + j: float(np.float32(value)) for j in range(n)}


ROWS: dict[str, list[Items]] = {
    # |x|^2 = 1 + 2e-13 beside rows of one item
    "lengths": [{0: -1.0}, {0: 1.0}, {0: 1.0} | make_tail(1e-8), {0: -1.0} | make_tail(1e-8)],
    # |x - z|^2 = 0.009 + 8e-15: differences lose the tail, too
    "differences": [
        {0: 1.0},
        {0: 0.90625},
        {0: 0.90625} | make_tail(1e-9, 4 * TAIL),
        {0: 1.0} | make_tail(-1e-9, 4 * TAIL),
    ],
    # sums that end where a block of items ends, and empty rows
    "blocks": [{}, make_tail(0.1, BLOCK_ITEMS - 1), make_tail(0.1, BLOCK_ITEMS), make_tail(0.1, 2 * BLOCK_ITEMS + 1)],
    "opposite": [{0: 1.125, 1: 0.75}, {0: -1.125, 1: -0.75}, {0: 1.125, 1: 0.75 + 2.0**-20}, {1: -0.75}],
    "float64": [
        dict(zip(range(n), np.random.default_rng(n).normal(size=n).tolist(), strict=True)) for n in (1, 5, 100, 900)
    ],
    "random": [
        dict(zip(range(n), np.random.default_rng(n).normal(size=n).astype(np.float32).tolist(), strict=True))
        for n in (1, 5, 100, 900)
    ],
}
KERNELS = {
    "linear": Kernel("linear"),
    "rbf": Kernel("rbf", 0.003),
    "rbf of a reach below CLOSE_REACH": Kernel("rbf", 30.0),
    "rbf of a reach beyond CLOSE_REACH": Kernel("rbf", 40.0),
    "poly": Kernel("poly", 0.5, 5, -0.25),
    "sigmoid": Kernel("sigmoid", 0.5, 3, -0.4999),
}
COEFS = np.array([1e6, -1e6 / 3, 0.7, 12345.678])


def as_csr(rows: list[Items], dtype: type[np.floating[Any]] = np.float32) -> CsrRows:
    data: Any = np.array([value for row in rows for value in row.values()], dtype)
    indices = np.array([j for row in rows for j in row], np.int32)
    return CsrRows(data, indices, np.cumsum([0, *map(len, rows)]), 4 * TAIL + 1)


def multiply(x: Items, z: Items) -> Decimal:
    """Return x.z, which is a whole number of SCALE^-2."""
    whole = sum(int(value * SCALE) * int(z[j] * SCALE) for j, value in x.items() if j in z)
    return Decimal(whole) / Decimal(SCALE**2)


def compute_value(kernel: Kernel, x: Items, z: Items) -> Decimal:
    product, gamma = multiply(x, z), Decimal(kernel.gamma)
    if kernel.name == "rbf":
        return (-gamma * (multiply(x, x) + multiply(z, z) - 2 * product)).exp()
    value = gamma * product + Decimal(kernel.coef0)
    if kernel.name == "poly":
        return value**kernel.degree
    if kernel.name == "sigmoid":
        power = (2 * value).exp()
        return (power - 1) / (power + 1)
    return product


def measure_errors(values: list[list[Decimal]], coef: F64, f: F64) -> F64:
    """Return by how much each f_i = sum_c coef_c values_ic is off."""
    truth = [sum(Decimal(c) * k for c, k in zip(coef.tolist(), own, strict=True)) for own in values]
    return np.array([float(abs(Decimal(own) - exact)) for own, exact in zip(f.tolist(), truth, strict=True)])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", ROWS)
def test_no_sum_is_off_by_more_than_its_bound(kind: str, name: str) -> None:
    """The columns of a sum are short rows alone, long rows alone, or both."""
    kernel, rows = KERNELS[name], ROWS[kind]
    sparse = as_csr(rows, np.float64 if kind == "float64" else np.float32)
    with localcontext(prec=60):
        values = [[compute_value(kernel, x, z) for z in rows] for x in rows]
        for X in (sparse, to_dense(sparse)):
            for chosen in (slice(2), slice(2, 4), slice(4)):
                columns, coef = slice_rows(X, chosen), COEFS[chosen]
                own, coefs = [row[chosen] for row in values], np.stack([coef, -coef[::-1], np.zeros(len(coef))])
                f, errors = np.zeros((2, 4))
                add_kernel_sums(kernel, X, columns, coef, f, errors=errors)
                assert np.all(measure_errors(own, coef, f) <= errors)
                F, errors = prove_kernel_sums(kernel, to_float64(X), columns, coefs)
                assert all(np.all(measure_errors(own, *each) <= errors) for each in zip(coefs, F.T, strict=True))


@pytest.mark.parametrize("gamma", [30.0, 40.0])
def test_a_long_row_does_not_loosen_the_bound_of_short_rows(gamma: float) -> None:
    """Squared lengths are summed with few roundings, and short rows have few items in common with a long one."""
    X, errors = as_csr(ROWS["lengths"]), np.zeros(4)
    add_kernel_sums(Kernel("rbf", gamma), X, to_float64(X), COEFS, np.zeros(4), errors=errors)
    roundings = errors / (2.0**-53 * np.sum(np.abs(COEFS)))
    assert np.all(roundings[:2] <= 64 * (BLOCK_ITEMS + 16))
    assert np.all(roundings[2:] <= 64 * (TAIL + BLOCK_ITEMS + 16) + TAIL)


def test_the_bound_of_rows_of_equally_many_items_is_as_sharp_as_ever() -> None:
    rng, made = np.random.default_rng(0), []
    for layout in (as_csr, lambda rows: to_dense(as_csr(rows))[:, : 1 + BLOCK_ITEMS]):
        rows = [dict(zip(range(BLOCK_ITEMS), rng.normal(size=BLOCK_ITEMS).tolist(), strict=True)) for _ in range(9)]
        X: Matrix = layout(rows)  # type: ignore[operator]
        errors, magnitudes = np.zeros(9), np.zeros(9)
        add_kernel_sums(Kernel("rbf", 0.1), X, to_float64(X), np.ones(9), magnitudes, errors=errors)
        squares = compute_squares(X, np.float64)
        shares = errors / magnitudes / 2.0**-53
        made.append(np.all(shares <= 0.1 * (2 * (BLOCK_ITEMS + 1) + 6) * (squares + max(squares)) + 64))
    assert made == [True, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_of_long_sparse_rows_lose_no_more_than_those_of_short_rows(dtype: type[np.floating[Any]]) -> None:
    with localcontext(prec=60):
        for rows in [rows for kind, rows in ROWS.items() if kind != "float64" or dtype is np.float64]:
            for row, square in zip(rows, compute_squares(as_csr(rows, dtype), np.float64).tolist(), strict=True):
                truth = multiply(row, row)
                assert abs(Decimal(square) - truth) <= truth * (BLOCK_ITEMS + 2) / 2**53
