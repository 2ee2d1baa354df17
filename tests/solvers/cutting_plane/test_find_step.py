"""The line search on a sample: the step lies beyond the minimum, and as near to it as the rows of the sample allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from streamsvm.numeric.rows import F64
from streamsvm.solvers.cutting_plane.score_model import CLOSE, FLAT, HALVINGS, LossAt, Sample, find_step


@dataclass(frozen=True, kw_only=True)
class Hinges(Sample):
    """Rows with the losses weight_i max(0, 1 - score_i)."""

    weight: F64

    def measure(self, scores: F64) -> LossAt:
        """See Sample."""
        coefs = np.where(scores < 1.0, self.weight, 0.0)
        loss = float(coefs @ (1.0 - scores))
        return LossAt(loss, coefs, float(np.sum(coefs)))


def make(weight: F64) -> Hinges:
    return Hinges(1.0, np.arange(len(weight)), weight=weight)


def test_without_losses_the_step_is_the_zero_of_a_straight_line() -> None:
    """The first secant meets the zero exactly, so the slope there is 0."""
    sample, none = make(np.zeros(1)), np.zeros(1)
    assert find_step(sample, none, none, np.array([-0.25, 1.0]), None) == 0.25


@pytest.mark.parametrize("n_rows", [1, 2, 5, 50, 1000])
@pytest.mark.parametrize("seed", range(40))
def test_the_step_lies_just_beyond_the_minimum(n_rows: int, seed: int) -> None:
    random = np.random.default_rng([n_rows, seed])
    sample = make(10.0 ** random.uniform(-3, 3, n_rows))
    start, change = random.standard_normal(n_rows), random.standard_normal(n_rows) * 10.0 ** random.uniform(-1, 2)
    squares = np.array([random.standard_normal(), 10.0 ** random.uniform(-2, 1)])

    def slope(step: float) -> float:
        return float(squares[0] + step * squares[1] - sample.measure(start + step * change).coefs @ change)

    step = find_step(sample, start, change, squares, None)
    if slope(0.0) >= 0.0:
        assert step == 0.0
    elif slope(1.0) <= 0.0:
        assert step == 1.0
    else:
        before = step - 2.0 * max(CLOSE * step, 0.5 ** HALVINGS[1])
        assert slope(step) >= 0.0
        assert slope(before) < 0.0 or slope(step) <= -FLAT * slope(0.0)
