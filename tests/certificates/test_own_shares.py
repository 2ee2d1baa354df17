"""Rows with shares of their own: joined and split without loss, put where they belong, and checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamsvm.certificates.dual_points import NONE, DualPoint, OfCut, join_own, put_own_shares

PARTS = [
    NONE,
    OfCut(np.array([2, 5, 9]), np.array([0.25, 0.0, 1.0])),
    NONE,
    OfCut(np.array([0, 9]), np.array([0.5, 0.75])),
]
CUTS = {"vectors": np.eye(2), "ends": np.zeros((4, 2), np.int64)}
POINT = DualPoint(**CUTS, **join_own(PARTS))


def test_what_is_joined_is_split_again() -> None:
    found = POINT.split_own()
    assert list(found) == [1, 3]
    for k, part in found.items():
        np.testing.assert_array_equal(part.rows, PARTS[k].rows)
        np.testing.assert_array_equal(part.shares, PARTS[k].shares)
    assert DualPoint(**join_own([NONE, NONE])).split_own() == {}
    assert [part.dtype for part in join_own([]).values()] == [part.dtype for part in join_own(PARTS).values()]


@pytest.mark.parametrize("tile", [1, 3, 10])
def test_they_take_the_place_of_sides_however_rows_are_read(tile: int) -> None:
    active = np.random.default_rng(0).random((10, 4)) < 0.5
    expected = active.astype(np.float64)
    expected[[2, 5, 9], 1] = 0.25, 0.0, 1.0
    expected[[0, 9], 3] = 0.5, 0.75
    found = [put_own_shares(active[at : at + tile], at, POINT) for at in range(0, 10, tile)]
    np.testing.assert_array_equal(np.concatenate(found), expected)


def test_valid_rows_pass() -> None:
    POINT.check(10)
    POINT.check()
    DualPoint().check(10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"own_cuts": [1, 4]}, "indices of the 4 cuts"),
        ({"own_cuts": [-1, 3]}, "indices of the 4 cuts"),
        ({"own_cuts": [3, 1]}, "indices of the 4 cuts"),
        ({"own_cuts": [1, 1]}, "indices of the 4 cuts"),
        ({"own_cuts": [1]}, "do not fit together"),
        ({"own_cuts": [], "own_stops": []}, "do not fit together"),
        ({"own_stops": [3, 2**62]}, "do not fit together"),
        ({"own_stops": [3, 4]}, "do not fit together"),
        ({"own_stops": [7, 5]}, "own_stops are not"),
        ({"own_stops": [0, 5]}, "own_stops are not"),
        ({"own_stops": [-(2**62), 5]}, "own_stops are not"),
        ({"own_rows": [2, 5, 10, 0, 9]}, "among the rows"),
        ({"own_rows": [2, 5, 9, -1, 9]}, "among the rows"),
        ({"own_rows": [2, 5, 2**62, 0, 9]}, "among the rows"),
        ({"own_rows": [2, 2, 9, 0, 9]}, "ascending"),
        ({"own_rows": [5, 2, 9, 0, 9]}, "ascending"),
        ({"own_rows": [2, 5, 9, 0]}, "do not fit together"),
        ({"own_shares": [0.25, 0.0, 1.0 + 1e-15, 0.5, 0.75]}, "beyond its bounds"),
        ({"own_shares": [0.25, -1e-300, 1.0, 0.5, 0.75]}, "beyond its bounds"),
        ({"own_shares": [0.25, np.nan, 1.0, 0.5, 0.75]}, "beyond its bounds"),
        ({"own_shares": [0.25, 0.0, 1.0]}, "do not fit together"),
    ],
)
def test_rows_that_are_not_valid_are_refused(changed: dict[str, list[float]], message: str) -> None:
    parts = {name: np.array(value, getattr(POINT, name).dtype) for name, value in changed.items()}
    with pytest.raises(ValueError, match=message):
        replace(POINT, **parts).check(10)
