"""Least squares with rows of all sizes, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamsvm.numeric.equations import RowQR
from streamsvm.numeric.rows import F64


def solve_fractions(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Solve a positive definite system exactly, by Gaussian elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k, pivot in enumerate(rows):
        for row in rows[k + 1 :]:
            factor = row[k] / pivot[k]
            row[k:] = [value - factor * own for value, own in zip(row[k:], pivot[k:], strict=True)]
    found: list[Fraction] = []
    for k in reversed(range(len(rows))):
        known = sum((a * b for a, b in zip(rows[k][k + 1 : -1], found, strict=True)), Fraction(0))
        found.insert(0, (rows[k][-1] - known) / rows[k][k])
    return found


def solve_squares(matrix: F64, right: F64) -> F64:
    """The least-squares solution, by the normal equations in fractions."""
    rows = [[Fraction(value) for value in row] for row in matrix.tolist()]
    aims = [Fraction(value) for value in right.tolist()]
    columns = list(zip(*rows, strict=True))
    products = [[sum(map(Fraction.__mul__, a, b), Fraction(0)) for b in columns] for a in columns]
    sides = [sum(map(Fraction.__mul__, a, aims), Fraction(0)) for a in columns]
    return np.array([float(value) for value in solve_fractions(products, sides)])


@pytest.mark.parametrize("spread", [0.0, 8.0, 20.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_each_row_is_exact_to_its_own_size(spread: float, seed: int) -> None:
    """The rows differ by up to 1e120, and their products by up to 1e240."""
    random = np.random.default_rng(seed)
    matrix, right = random.normal(size=(12, 4)), random.normal(size=12)
    sizes = 10.0 ** random.uniform(-spread, spread, 12)
    weighted, aims = sizes[:, None] * matrix, sizes * right
    np.testing.assert_allclose(RowQR(weighted).solve(aims), solve_squares(weighted, aims), rtol=1e-11)


def test_a_singular_matrix_has_no_solution() -> None:
    assert np.isnan(RowQR(np.zeros((3, 2))).solve(np.ones(3))).all()
