"""Sums of kernel values in twice the precision, against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamsvm.kernels.kernel import Kernel, add_kernel_sums
from streamsvm.numeric.rows import F64
from streamsvm.solvers.decomposition.all_active import ROWS_AT_ONCE, sum_exactly

KERNELS = [Kernel("linear"), Kernel("poly", 0.3, 1, 0.0), Kernel("poly", 0.7, 3, 1.1), Kernel("poly", 1e-9, 5, 2.0)]


def sum_in_rationals(kernel: Kernel, X: F64, columns: F64, coef: F64) -> F64:
    gamma, coef0 = Fraction(kernel.gamma), Fraction(kernel.coef0)
    degree = kernel.degree if kernel.name == "poly" else 1
    if kernel.name == "linear":
        gamma, coef0 = Fraction(1), Fraction(0)
    sums = []
    for x in X:
        products = [sum(Fraction(a) * Fraction(b) for a, b in zip(x, z, strict=True)) for z in columns]
        sums.append(sum(Fraction(c) * (gamma * g + coef0) ** degree for c, g in zip(coef, products, strict=True)))
    return np.array([float(total) for total in sums])


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_sums_that_cancel_are_those_of_rational_arithmetic(kernel: Kernel, scale: float) -> None:
    random = np.random.default_rng(0)
    X = (scale * random.normal(size=(12, 4))).astype(np.float32).astype(np.float64)
    columns = np.vstack((X, X + np.float32(1e-3 * scale)))
    columns = columns.astype(np.float32).astype(np.float64)
    coef = random.uniform(1e6, 2e6, 12)
    coef = np.concatenate((coef, -coef))
    truth = sum_in_rationals(kernel, X, columns, coef)
    f, errors = sum_exactly(kernel, X, columns, coef)
    np.testing.assert_allclose(f, truth, rtol=1e-15)
    assert np.all(np.abs(f - truth) <= errors)
    plain = np.zeros(12)
    add_kernel_sums(kernel, X, columns, coef, plain)
    assert np.max(np.abs(plain - truth)) > 10 * np.max(np.abs(f - truth))


def test_rows_are_summed_in_parts() -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(ROWS_AT_ONCE + 3, 2)).astype(np.float32).astype(np.float64)
    f, _ = sum_exactly(Kernel("linear"), X, X[:5], np.ones(5))
    np.testing.assert_allclose(f, X @ X[:5].sum(axis=0), atol=1e-12)


def test_the_bound_is_what_long_double_can_lose() -> None:
    """Without a share of its own for readers, a model would be called optimal that nobody else could evaluate."""
    X = np.full((3, 1), 2.0**25)
    _, errors = sum_exactly(Kernel("linear"), X, X[:2], np.array([2.0**10, -(2.0**10)]))
    assert np.all(errors >= 2.0**-64 * 2 * 2.0**60)
