"""Rows near the margin: their codes, and a sample that stands for all rows."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.methods.cutting_plane.nearness import code_distances, draw_near_margin


def test_codes_grow_with_the_distance_of_the_nearer_point() -> None:
    at = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 100.0, 1e6, np.inf], np.float32)
    codes = code_distances(np.column_stack((1 + at, 1 + 2 * at)))
    assert codes[0] == 0
    assert codes[-1] == 255
    assert np.all(np.diff(codes.astype(int)[:-1]) > 0)
    np.testing.assert_array_equal(code_distances(np.column_stack((1 - 2 * at, 1 - at))), codes)
    np.testing.assert_array_equal(code_distances((1 + at)[:, None]), codes)  # one point


def test_rows_whose_status_differs_are_on_the_margin() -> None:
    margins = np.array([[0.5, 1.5], [1.5, 0.5], [3.0, -9.0], [0.5, 0.7]], np.float32)
    codes = code_distances(margins)
    assert codes[:3].tolist() == [0, 0, 0]
    assert codes[3] > 0


def test_a_sample_is_near_the_margin_and_stands_for_all_rows() -> None:
    margins = np.random.default_rng(0).normal(1.0, 2.0, (1_500_000, 1)).astype(np.float32)
    distance = np.abs(margins[:, 0] - 1)
    rows, weight = draw_near_margin(code_distances(margins), 5000, (1, 2))
    assert abs(len(rows) - 5000) < 300
    assert np.all(np.diff(rows) > 0)
    assert np.sum(weight) == pytest.approx(len(margins), rel=0.15)
    assert np.sum(weight * (margins[rows, 0] > 1.5)) == pytest.approx(np.sum(margins > 1.5), rel=0.15)
    assert np.mean(distance[rows]) < 0.5 * np.mean(distance)
    again = draw_near_margin(code_distances(margins), 5000, (1, 3))[0]
    assert not np.array_equal(again, rows)


@pytest.mark.parametrize("number", [50, 70])
def test_all_rows_stand_for_themselves(number: int) -> None:
    rows, weight = draw_near_margin(np.zeros(50, np.uint8), number, (1, 2))
    np.testing.assert_array_equal(rows, np.arange(50))
    np.testing.assert_array_equal(weight, 1.0)


def test_more_rows_on_the_margin_than_are_wanted() -> None:
    codes = np.repeat(np.array([0, 200], np.uint8), 1000)
    rows, weight = draw_near_margin(codes, 100, (1, 2))
    assert abs(len(rows) - 100) < 40
    assert np.sum(weight[rows < 1000]) == pytest.approx(1000, rel=0.4)
