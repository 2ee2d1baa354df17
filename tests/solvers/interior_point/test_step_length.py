"""Lengths of steps from the ratios of rows."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.solvers.interior_point.solver import choose_length, count_critical, mend_length


@pytest.mark.parametrize(("n_rows", "number"), [(10, 10), (1000, 64), (20_000, 200), (500_000, 2048)])
def test_how_many_rows_are_taken(n_rows: int, number: int) -> None:
    assert count_critical(n_rows) == number


def test_few_rows_are_passed_over() -> None:
    """One in 3,000, and for a step 1.2 times as long; never beyond 1."""
    ratios = np.array([0.9, 0.55, 0.5, 0.58, 0.7])
    assert choose_length(ratios, 1000) == pytest.approx(0.995 * 0.5)
    assert choose_length(ratios, 3000) == pytest.approx(0.995 * 0.55)
    assert choose_length(ratios, 8999) == pytest.approx(0.995 * 0.58)
    assert choose_length(ratios, 9000) == pytest.approx(0.995 * 0.6)
    assert choose_length(np.array([np.inf, 1.5]), 10) == 1.0


def test_a_step_is_mended_where_a_row_can_go_less_than_half() -> None:
    assert mend_length(0.8, 0.41) == 0.8
    assert mend_length(0.8, 0.39) == pytest.approx(0.995 * 0.39)
