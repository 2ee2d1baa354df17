"""Totals of a segment against the formulas of losses.hinge, written out in plain NumPy.

Values are dyadic fractions wherever equality is exact: every margin, loss and cut is then free of rounding, and
margins of exactly 1 and switches exactly at a cut step occur all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamsvm.losses.hinge import FINE_STEPS, add_to_totals, fine_steps
from streamsvm.numeric.rows import Rows
from streamsvm.solvers.cutting_plane.line_search import SegmentTotals, start_totals
from tests.numeric.test_rows import to_csr

F64 = npt.NDArray[np.float64]
SMALL_INTEGERS = st.integers(-3, 3).map(float)
HALVES = st.integers(-4, 4).map(lambda k: k / 2)


@dataclass(frozen=True)
class Segment:
    """Rows and a segment of weight vectors; the last column of `ends` weighs the constant feature."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int32]
    weight: F64 | None
    ends: F64
    class_costs: F64
    cut_steps: F64
    bias_feature: float

    def totals(self, sparse: bool = False, pieces: int = 1, with_cuts: bool = True) -> tuple[F64, F64, F64]:
        """What the kernel adds up: losses at the fine steps, offsets and vectors of the cuts at 0 and the cut steps."""
        totals = self.add_all(sparse, pieces, without=0 if with_cuts else len(self.cut_steps) + 1)
        value, slope = np.cumsum(totals.losses, axis=0).T
        at = fine_steps(self.cut_steps)
        return value + at * slope, np.cumsum(totals.costs), np.cumsum(totals.gradients, axis=0)

    def add_all(self, sparse: bool, pieces: int = 1, without: int = 0) -> SegmentTotals:
        """The totals of all rows."""
        totals = start_totals(len(self.cut_steps), self.ends.shape[1], without)
        for part in np.array_split(np.arange(len(self.y)), pieces):
            weight = None if self.weight is None else self.weight[part]
            X = to_csr(self.X[part]) if sparse else self.X[part]
            rows = Rows(0, X, self.y[part], weight)
            add_to_totals(totals, rows, self.ends, self.class_costs, self.cut_steps, self.bias_feature)
        return totals

    def row_costs(self) -> F64:
        return self.class_costs[self.y] * (1.0 if self.weight is None else self.weight)

    def with_bias(self) -> F64:
        return np.column_stack((self.X, np.full(len(self.y), self.bias_feature))).astype(np.float64)

    def margins(self, step: float) -> F64:
        """y_i w(s).x_i."""
        w = (1 - step) * self.ends[0] + step * self.ends[1]
        margins: F64 = np.where(self.y == 1, 1.0, -1.0) * (self.with_bias() @ w)
        return margins

    def loss(self, step: float) -> float:
        """sum_i C_i max(0, 1 - margin)."""
        return float(self.row_costs() @ np.maximum(0.0, 1.0 - self.margins(step)))

    def cut(self, active: npt.NDArray[np.bool_]) -> tuple[float, F64]:
        """sum C_i c_i and sum C_i c_i y_i x_i."""
        costs = np.where(active, self.row_costs(), 0.0)
        return float(costs.sum()), (costs * np.where(self.y == 1, 1.0, -1.0)) @ self.with_bias()


@st.composite
def dyadic_segments(draw: st.DrawFn) -> Segment:
    n, d, k = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    weights = arrays(np.float64, n, elements=st.sampled_from([0.0, 0.5, 1.0, 4.0]))
    inner = draw(st.lists(st.integers(1, 15), min_size=k - 1, max_size=k - 1, unique=True))
    ends = draw(arrays(np.float64, (2, d + 1), elements=HALVES))
    return Segment(
        X=draw(arrays(np.float32, (n, d), elements=SMALL_INTEGERS)),
        y=draw(arrays(np.int32, n, elements=st.integers(0, 1))),
        weight=draw(st.none() | weights),
        ends=np.stack((ends[1], ends[1])) if draw(st.integers(0, 4)) == 0 else ends,
        class_costs=draw(arrays(np.float64, 2, elements=st.sampled_from([0.0, 0.25, 1.0, 2.0]))),
        cut_steps=np.array([*sorted(inner), 16]) / 16,
        bias_feature=draw(st.sampled_from([0.5, 1.0, 2.0])),
    )


@given(dyadic_segments(), st.booleans())
def test_losses_are_exact_at_every_fine_step(segment: Segment, sparse: bool) -> None:
    losses, _, _ = segment.totals(sparse)
    expected = [segment.loss(step) for step in fine_steps(segment.cut_steps)]
    np.testing.assert_array_equal(losses, expected)


@given(dyadic_segments(), st.booleans())
def test_losses_without_cuts_are_the_same(segment: Segment, sparse: bool) -> None:
    """A pass that needs no cuts has totals without room for their vectors."""
    losses, offsets, vectors = segment.totals(sparse, with_cuts=False)
    with_cuts = segment.totals(sparse)
    np.testing.assert_array_equal(losses, with_cuts[0])
    np.testing.assert_array_equal(offsets, with_cuts[1])
    assert vectors.shape == (0, segment.ends.shape[1])


@given(dyadic_segments(), st.booleans())
def test_the_sums_of_the_start_can_be_left_out(segment: Segment, sparse: bool) -> None:
    """The other sums are changes from one step to the next, which do not depend on them."""
    whole, rest = (segment.add_all(sparse, without=without) for without in (0, 1))
    np.testing.assert_array_equal(rest.gradients, whole.gradients[1:])
    np.testing.assert_array_equal(rest.costs, whole.costs)


@given(dyadic_segments(), st.booleans())
def test_cuts_count_every_row_with_a_margin_below_one_and_none_above(segment: Segment, sparse: bool) -> None:
    """A row with a margin of exactly 1 has no loss: with or without it the cut is one of the loss' tangents."""
    _, offsets, vectors = segment.totals(sparse)
    for k, step in enumerate([0.0, *segment.cut_steps]):
        margins = segment.margins(step)
        least, most = segment.cut(margins < 1), segment.cut(margins <= 1)
        assert least[0] <= offsets[k] <= most[0]
        w = (1 - step) * segment.ends[0] + step * segment.ends[1]
        assert offsets[k] - vectors[k] @ w == segment.loss(step)
        if not np.any(margins == 1):
            np.testing.assert_array_equal(vectors[k], least[1])


@given(dyadic_segments(), st.booleans())
def test_every_cut_is_below_the_loss_everywhere(segment: Segment, sparse: bool) -> None:
    """Whatever rows a cut counts, once each and with their own cost, it is a lower bound."""
    _, offsets, vectors = segment.totals(sparse)
    for step in (-1.0, 0.0, 0.25, 0.5, 1.0, 2.0):
        w = (1 - step) * segment.ends[0] + step * segment.ends[1]
        assert np.all(offsets - vectors @ w <= segment.loss(step))


@given(dyadic_segments(), st.booleans(), st.integers(2, 4))
def test_totals_add_up_over_pieces(segment: Segment, sparse: bool, pieces: int) -> None:
    for whole, sum_of_parts in zip(segment.totals(sparse), segment.totals(sparse, pieces), strict=True):
        np.testing.assert_array_equal(whole, sum_of_parts)


@pytest.mark.parametrize("sparse", [False, True])
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_totals_of_real_numbers(sparse: bool, seed: int, weighted: bool) -> None:
    """Hundreds of rows that switch at steps of every size, cut steps as small as those of a search near the end."""
    random = np.random.default_rng(seed)
    n, d = 200, 7
    cut_steps = np.append(np.sort(random.uniform(0, 1, 5)) ** 8, 1.0)
    segment = Segment(
        X=random.normal(size=(n, d)).astype(np.float32),
        y=random.integers(2, size=n).astype(np.int32),
        weight=random.exponential(size=n) if weighted else None,
        ends=random.normal(size=(2, d + 1)),
        class_costs=random.exponential(size=2),
        cut_steps=cut_steps,
        bias_feature=1.5,
    )
    losses, offsets, vectors = segment.totals(sparse)
    expected = np.array([segment.loss(step) for step in fine_steps(cut_steps)])
    np.testing.assert_allclose(losses, expected, rtol=1e-12, atol=1e-12 * segment.row_costs().sum())
    for k, step in enumerate([0.0, *cut_steps]):
        cost, vector = segment.cut(segment.margins(step) < 1)
        np.testing.assert_allclose(offsets[k], cost, rtol=1e-12)
        np.testing.assert_allclose(vectors[k], vector, rtol=1e-11, atol=1e-11)


def test_a_row_switches_exactly_at_a_cut_step() -> None:
    """Margins from 0 to 2: inactive at 1/2, where the margin is 1; from 2 to 0: active after it, not before."""
    ends = np.array([[0.0, 0.0], [2.0, 0.0]])
    falling = Segment(
        np.ones((1, 1), np.float32), np.ones(1, np.int32), None, ends, np.ones(2), np.array([0.25, 0.5, 1.0]), 1.0
    )
    rising = Segment(falling.X, falling.y, None, ends[::-1].copy(), np.ones(2), falling.cut_steps, 1.0)
    assert falling.totals()[1].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert rising.totals()[1][[0, 1, 3]].tolist() == [0.0, 0.0, 1.0]


def test_rows_of_no_cost_leave_no_trace() -> None:
    """Class cost 0 and weight 0 alike, even where the margin is far below 1."""
    X, y = np.full((4, 1), 7.0, np.float32), np.array([0, 0, 1, 1], np.int32)
    ends = np.array([[-1.0, 0.0], [1.0, 0.0]])
    segment = Segment(X, y, np.array([1.0, 1.0, 0.0, 0.0]), ends, np.array([0.0, 1.0]), np.ones(1), 1.0)
    assert all(not part.any() for part in segment.totals())


@given(st.lists(st.floats(1e-12, 1.0), max_size=6, unique=True))
def test_fine_steps_cut_each_interval_evenly(inner: list[float]) -> None:
    cut_steps = np.array(sorted({*inner, 1.0}))
    steps = fine_steps(cut_steps)
    assert steps[0] == 0.0
    assert len(steps) == FINE_STEPS * len(cut_steps) + 1
    lows = np.append(0.0, cut_steps[:-1])
    expected = np.linspace(lows, cut_steps, FINE_STEPS + 1, axis=1)[:, 1:].ravel()
    np.testing.assert_allclose(steps[1:], expected, rtol=1e-15, atol=1e-18)
