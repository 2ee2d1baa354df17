"""What is charged for the rounding of cuts: every sum that they are made of, and no more additions than were made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.rows.source import plan_groups
from streamsvm.engines.local import SerialEngine
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64
from streamsvm.passes import LEAST_FALL, has_progressed
from streamsvm.solvers.cutting_plane.cuts import (
    CutState,
    Magnitudes,
    RowSums,
    add_cuts,
    look_for_rounding,
    take_magnitudes,
)
from streamsvm.solvers.cutting_plane.line_search import LineState
from streamsvm.solvers.cutting_plane.master import bound_dual
from streamsvm.solvers.one_read.state import State
from tests.conftest import make_problem


@pytest.mark.parametrize(("kind", "repeats"), [(CutState, 1.0), (LineState, 2.0), (State, 3.0)])
def test_a_row_is_charged_as_often_as_a_cut_counts_it(kind: type[CutState], repeats: float) -> None:
    """Rows that are added and subtracted again can be off by as much each time."""
    w, total, terms = np.array([2.0, -1.0]), 5.0, 1000.0
    M: F64 = np.array([3.0, 4.0])
    state = kind(
        w,
        w,
        w[None, :],
        offsets=np.array([1.0]),
        sizes=np.array([repeats * total]),
        magnitudes=M,
        largest=np.full(2, 100.0),
        total_cost=total,
        terms=terms,
    )
    rounding = bound_dual(state, np.ones(1))[1]
    assert rounding >= terms * UNIT * repeats * (total + np.abs(w) @ M)
    assert rounding <= 1.2 * terms * UNIT * repeats * (total + np.abs(w) @ M)


@pytest.mark.parametrize("n", [1, 2, 8, 14, 15, 16, 17, 40, 400])
@pytest.mark.parametrize("steps", [4, 16])
def test_what_the_two_terms_of_a_row_that_leaves_go_through_is_charged(n: int, steps: int) -> None:
    """All n rows are active at the start, and all leave; one of them, the first of all, has all of the cost.

    Its first term goes through the other additions at the start and one for each step with a change; its second term,
    in the first change, through those of that change and one for this and each later step.
    """
    changes = min(steps, n)
    in_the_first = n - (changes - 1)
    additions = (n - 1 + changes) + (in_the_first - 1 + changes)
    none = np.zeros(1)
    state = LineState(none, none, none[None, :], offsets=none, sizes=np.full(1, 2.0), largest=none, magnitudes=none)
    answers = [Magnitudes(none, none, cost=1.0, n_rows=n, additions=n)]
    state = replace(take_magnitudes(replace(state, magnitudes=np.empty(0)), answers), total_cost=1.0)
    assert bound_dual(state, np.ones(1))[1] >= (additions + 2 * 2) * UNIT


@pytest.mark.usefixtures("many_groups")
def test_groups_are_added_one_to_another_and_not_in_a_row(tmp_path: Path) -> None:
    """Of 12,000 rows in groups no term goes through more additions than the largest group has rows, and the tree."""
    data = make_problem(1, n=12_000, d=3).store(tmp_path / "rows", chunk_bytes=6000)
    groups = plan_groups(data)
    largest = max(int(data.chunk_starts[group[-1] + 1] - data.chunk_starts[group[0]]) for group in groups)
    state = CutState(np.zeros(4), np.zeros(4), np.empty((0, 4)))
    answers = [SerialEngine(data).scan(scan) for scan in look_for_rounding(state, None, np.ones(2), 1.0)]
    assert answers[-1].additions == largest + int(np.ceil(np.log2(len(groups))))
    assert largest < take_magnitudes(state, answers).terms < 12_000


def test_new_cuts_give_way_to_cuts_with_multipliers() -> None:
    """Of three new cuts beside two with multipliers the last two have room; a cut without a multiplier has none."""
    none, cuts = np.zeros(1), np.arange(3.0)[:, None]
    state = CutState(none, none, cuts, offsets=np.zeros(3), sizes=np.zeros(3), z=np.array([0.5, 0.0, 0.5]))
    state = replace(state, gram=cuts @ cuts.T, idle=np.zeros(3, np.int64))
    after = add_cuts(state, RowSums(np.array([[7.0], [8.0], [9.0]]), np.ones(3), np.ones(3)), most=4)
    assert after.cuts[:, 0].tolist() == [0.0, 2.0, 8.0, 9.0]
    assert after.z.tolist() == [0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("rounding", [0.0, 0.5, 1.0])
def test_a_gap_of_rounding_has_to_fall_by_a_share_of_itself(rounding: float) -> None:
    """P crept down by 1e-9 of itself for 350 passes, while the rounding of D was all of the gap."""
    w = np.zeros(2)
    before = CutState(w, w, w[None, :], objective=11.0, lower_bound=10.0, bound_rounding=rounding)
    assert not has_progressed(before, before)
    for share, falls_enough in ((1e-9, False), (LEAST_FALL / 2, False), (2 * LEAST_FALL, True)):
        is_seen = rounding < 1.0 or falls_enough
        assert has_progressed(replace(before, objective=11.0 - share), before) == is_seen
        assert has_progressed(replace(before, lower_bound=10.0 + share), before) == is_seen
    assert has_progressed(replace(before, lower_bound=10.1, bound_rounding=0.9 * rounding), before)
