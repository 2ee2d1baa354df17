"""Statuses of rows on a segment: those that the loss and its cuts count, row by row, at every cut step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.methods.cutting_plane.row_statuses import find_active, read_statuses
from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals
from streamsvm.numeric.rows import F32, F64, Rows, compute_scores
from tests.conftest import make_problem
from tests.numeric.test_losses import Segment, dyadic_segments
from tests.numeric.test_rows import to_csr

Bits = npt.NDArray[np.bool_]
CLASS_COSTS = np.array([0.5, 2.0])
LINE_POINTS = 16


def read(rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float) -> tuple[F32, list[Bits]]:
    """Margins at the end, and the active rows at step 0 and at every cut step."""
    scores = compute_scores(rows.X, ends)
    margins, codes = read_statuses(rows, scores, ends[:, -1] * bias_feature, class_costs, cut_steps)
    assert margins.dtype == np.float32
    assert codes.dtype == np.uint8
    return margins, [find_active(codes, k) for k in range(len(cut_steps) + 1)]


def add_up(rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float) -> tuple[F64, F64]:
    """Offsets and vectors of the cuts at step 0 and at every cut step, as the pass adds them up."""
    k = len(cut_steps)
    losses, costs, gradients = np.zeros((k * FINE_STEPS + 1, 2)), np.zeros(k + 1), np.zeros((k + 1, ends.shape[1]))
    add_segment_totals(rows, ends, class_costs, cut_steps, bias_feature, losses, costs, gradients)
    return np.cumsum(costs), np.cumsum(gradients, axis=0)


@pytest.mark.parametrize("values", ["normal", "ties"])
def test_exactly_the_rows_that_the_cuts_count(values: str) -> None:
    """Each row has a feature of its own, so that a cut tells which rows it counts.

    Ties: margins of exactly 1, and rows that switch exactly at a cut step.
    """
    n, rng = 400, np.random.default_rng(0)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    rows = Rows(0, np.eye(n, dtype=np.float32), rng.integers(0, 2, n).astype(np.int32), weight)
    ends = rng.standard_normal((2, n + 1)) * 2 if values == "normal" else rng.integers(-8, 9, (2, n + 1)) / 4
    cut_steps = np.array([0.0625, 0.125, 0.25, 0.5, 0.75, 1.0])
    margins, active = read(rows, ends, CLASS_COSTS, cut_steps, 1.5)
    offsets, gradients = add_up(rows, ends, CLASS_COSTS, cut_steps, 1.5)
    assert rows.y is not None
    costs = CLASS_COSTS[rows.y] * weight
    assert 0 < active[0].sum() < n
    assert len({bits.tobytes() for bits in active}) == len(active)
    for bits, offset, gradient in zip(active, offsets, gradients, strict=True):
        np.testing.assert_array_equal(bits, gradient[:n] != 0.0)
        np.testing.assert_array_equal(np.abs(gradient[:n]), costs * bits)
        assert costs @ bits == offset
    sign = np.where(rows.y == 1, 1.0, -1.0)
    expected = np.where(costs > 0, sign * (ends[1, :n] + 1.5 * ends[1, n]), np.inf)
    np.testing.assert_allclose(margins, expected, rtol=1e-6)


@given(segment=dyadic_segments(), sparse=st.booleans())
def test_sums_of_active_rows_are_the_cuts(segment: Segment, sparse: bool) -> None:
    """Exactly: the values are dyadic."""
    X = to_csr(segment.X) if sparse else segment.X
    rows = Rows(0, X, segment.y, segment.weight)
    settings = (segment.ends, segment.class_costs, segment.cut_steps, segment.bias_feature)
    costs, sign = segment.row_costs(), np.where(segment.y == 1, 1.0, -1.0)
    _, offsets, gradients = segment.totals(sparse)
    for k, bits in enumerate(read(rows, *settings)[1]):
        assert not bits[costs == 0].any()
        assert costs @ bits == offsets[k]
        np.testing.assert_array_equal((costs * bits * sign) @ segment.with_bias(), gradients[k])


@pytest.mark.parametrize("density", [1.0, 0.4])
def test_rounded_sums_as_well(density: float) -> None:
    problem = make_problem(3, n=500, d=7, density=density, weighted=True)
    rows = problem.in_memory().read(0)
    ends = np.random.default_rng(1).standard_normal((2, 8))
    cut_steps: F64 = 2.0 ** np.arange(-9.0, 1.0)
    costs = problem.costs(1.0, *CLASS_COSTS)
    Z = problem.y[:, None] * np.column_stack((problem.dense(), np.full(500, 0.7)))
    offsets, gradients = add_up(rows, ends, CLASS_COSTS, cut_steps, 0.7)
    for k, bits in enumerate(read(rows, ends, CLASS_COSTS, cut_steps, 0.7)[1]):
        assert costs @ bits == offsets[k]  # multiples of 1/4
        np.testing.assert_allclose((costs * bits) @ Z, gradients[k], rtol=1e-10, atol=1e-10)


def test_codes_of_a_pass_fit_a_byte() -> None:
    """Rows that switch at the last of all cut steps that a pass has."""
    cut_steps = np.arange(1, LINE_POINTS + 1) / LINE_POINTS
    rows = Rows(0, np.ones((1, 1), np.float32), np.ones(1, np.int32))
    _, active = read(rows, np.array([[0.0, 0.0], [1.0 + 1e-9, 0.0]]), CLASS_COSTS, cut_steps, 1.0)
    assert [bool(bits[0]) for bits in active] == [True] * LINE_POINTS + [False]
