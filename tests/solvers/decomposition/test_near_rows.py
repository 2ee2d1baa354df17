"""Rows are near where the step may have moved their sums by more than their leeway."""

from __future__ import annotations

import numpy as np

from streamsvm.solvers.decomposition.solver import NearRows
from streamsvm.solvers.decomposition.working_set import Conditions, find_conditions

ALL = np.ones(6, np.bool_)


def make_conditions(margins: list[float]) -> Conditions:
    """Six rows of either class: two at 0, two free ones, and two at their cost, with these y_i f_i and a bias of 0."""
    y, alpha = np.tile([1.0, -1.0], 3), np.array([0.0, 0.0, 0.5, 0.5, 1.0, 1.0])
    return find_conditions(y, np.ones(6), alpha, y * np.array(margins)).about(0.0)


def test_leeway_is_the_least_move_of_an_error_that_breaks_the_condition() -> None:
    leeway = make_conditions([1.5, 0.5, 1.25, 0.75, 0.25, 2.0]).leeway
    np.testing.assert_allclose(leeway, [0.5, -0.5, -0.25, -0.25, 0.75, -1.0])


def test_a_row_without_a_cost_is_never_near() -> None:
    near = NearRows(find_conditions(np.array([1.0, -1.0]), np.array([0.0, 1.0]), np.zeros(2), np.zeros(2)))
    near.update(np.array([1]), find_conditions(np.array([-1.0]), np.ones(1), np.zeros(1), np.zeros(1)), np.array([9.0]))
    assert 0 not in near.list_rows(np.ones(2, np.bool_))


def test_nearest_rows_come_first_and_rows_that_are_just_known_do_not_come() -> None:
    near = NearRows(make_conditions([2.1, 1.25, 1.0, 1.0, 0.5, 0.1]))
    assert not len(near.list_rows(ALL))  # nothing has moved
    near.update(np.array([2]), make_conditions([1.0] * 6).of_rows(np.array([2])), np.array([-1.0, 1.0]))
    np.testing.assert_array_equal(near.list_rows(ALL), [3, 1, 4, 5])  # a deviation of 1, and row 2 is known
    without = ALL.copy()
    without[1] = False
    np.testing.assert_array_equal(near.list_rows(without), [3, 4, 5])


def test_a_row_that_left_is_near_again_when_others_have_moved_enough() -> None:
    near = NearRows(make_conditions([1.5] * 6))
    left, other = np.array([0]), np.array([1])
    near.update(left, make_conditions([1.5] * 6).of_rows(left), np.array([-5.0, 5.0]))
    for size, comes in ((0.3, False), (0.3, True)):  # 0.3, and then 0.6, against a leeway of 0.5
        near.update(other, make_conditions([1.5] * 6).of_rows(other), np.array([-size, size]))
        assert (0 in near.list_rows(ALL)) == comes


def test_the_leeway_of_a_row_is_that_of_its_last_turn() -> None:
    near, moved = NearRows(make_conditions([1.1, 9.0, 9.0, 9.0, 9.0, 9.0])), np.array([-0.4, 0.4])
    first, other = np.array([0]), np.array([1])
    near.update(first, make_conditions([3.0] * 6).of_rows(first), moved)
    near.update(other, make_conditions([9.0] * 6).of_rows(other), moved)
    assert 0 not in near.list_rows(ALL)
    near.update(first, make_conditions([1.1] * 6).of_rows(first), moved)
    near.update(other, make_conditions([9.0] * 6).of_rows(other), moved)
    assert 0 in near.list_rows(ALL)
