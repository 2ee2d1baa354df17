"""Cholesky factors and their inverses: those of LAPACK as SciPy calls it, to the last bit, without its lock."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg.lapack import dpotrf, dtrtrs

from streamsvm.numeric import equations
from streamsvm.numeric.equations import factorise, find_factor, invert_factor
from streamsvm.system import deadline


@pytest.mark.parametrize("width", [0, 1, 5, 64, 333])
def test_factors_are_those_of_lapack(width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(width, width))
    matrix = rows @ rows.T + np.eye(width)
    factor = find_factor(matrix)
    assert factor is not None
    assert factor.tobytes() == (dpotrf(matrix)[0] if width else matrix).tobytes()
    assert factor.flags.f_contiguous


@pytest.mark.parametrize("width", [1, 5, 64, 333])
def test_inverses_are_those_of_lapack(width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(width, width))
    factor = find_factor(rows @ rows.T + np.eye(width))
    assert factor is not None
    assert invert_factor(factor).tobytes() == dtrtrs(factor, np.eye(width))[0].tobytes()


def test_a_matrix_without_a_factor() -> None:
    assert find_factor(np.diag([1.0, -1.0])) is None
    assert find_factor(np.diag([1.0, np.nan])) is None
    singular = np.ones((3, 3))
    raised, factor = factorise(singular)
    assert factor is not None
    assert raised[0, 0] > 1.0


def test_a_wide_matrix_is_not_factored_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equations, "LONG_WIDTH", 2)
    with deadline.held(lambda: True):
        assert factorise(np.eye(3))[1] is None
        assert factorise(np.eye(2))[1] is not None
