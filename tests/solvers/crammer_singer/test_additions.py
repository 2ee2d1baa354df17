"""The rounding of the additions that bring the sums of K classes up to date."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from streamsvm.solvers.crammer_singer.kernel_solver import _bound_additions


@pytest.mark.parametrize("seed", range(20))
def test_two_additions_move_sums_by_no_more_than_their_bound(seed: int) -> None:
    """Also where large sums cancel, so that the result is small."""
    rng = np.random.default_rng(seed)
    a, b, c = 10.0 ** rng.uniform(-8, 8, (3, 5, 1)) * rng.normal(size=(3, 5, 3))
    a = np.where(rng.random(a.shape) < 0.5, a, -(b + c) * (1 + 1e-15 * rng.normal(size=a.shape)))
    F = a + (b + c)
    off = [
        max(abs(sum(map(Fraction, each)) - Fraction(f)) for *each, f in zip(*row, strict=True))
        for row in zip(a, b, c, F, strict=True)
    ]
    for part in (a, b + c):
        assert all(lost <= bound for lost, bound in zip(off, _bound_additions(F, part).tolist(), strict=True))
