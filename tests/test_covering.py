"""The cases that the suite runs of a test with many parameters."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import is_left_out
from tests.covering import choose_covering

KINDS, COSTS, SOLVERS = ("dense", "sparse", "wide"), (0.01, 1.0, 100.0, 1e4), ("smo", "irwls")
CASES = [{"kind": k, "C": c, "solver": s} for k, c, s in product(KINDS, COSTS, SOLVERS)]


def find_meetings(positions: Iterable[int], together: int) -> set[tuple[tuple[str, object], ...]]:
    return {met for k in positions for met in combinations(CASES[k].items(), together)}


@pytest.mark.parametrize(("together", "fewest"), [(1, 4), (2, 12), (3, 24)])
def test_all_that_meet_are_chosen_and_few_more(together: int, fewest: int) -> None:
    """No fewer can do: each has one cost, one pair of kind and cost, or is a case of its own."""
    chosen = choose_covering(CASES, together)
    assert find_meetings(chosen, together) == find_meetings(range(24), together)
    assert fewest <= len(chosen) <= fewest + 1
    assert chosen == sorted(set(chosen))


def test_values_that_never_meet_are_not_asked_for() -> None:
    """Parameters that are given together, as pairs, are run pair by pair."""
    assert choose_covering([{"name": "a", "value": 1}, {"name": "b", "value": 2}], 2) == [0, 1]
    assert choose_covering([{"name": "a"}] * 3, 1) == [0]
    assert choose_covering([], 1) == []


@pytest.mark.covering(1)
@pytest.mark.parametrize("first", "abc")
@pytest.mark.parametrize("second", "xyz")
def test_the_others_are_slow(request: pytest.FixtureRequest, first: str, second: str) -> None:
    """Of the nine cases of this test three come with the suite, in which each letter occurs once; --rest runs six."""
    same = [item for item in request.session.items if item.nodeid.partition("[")[0].endswith(request.node.originalname)]
    quick = [item.callspec.params for item in same if not item.get_closest_marker("slow")]  # type: ignore[attr-defined]
    if request.config.option.rest:
        assert (len(same), len(quick)) == (6, 0)
        return
    assert len(quick) == 3
    assert {params["first"] for params in quick} == set("abc")
    assert {params["second"] for params in quick} == set("xyz")


MARKS = ("slow", "once", "thorough")


@pytest.mark.parametrize("marks", [kept for n in range(4) for kept in combinations(MARKS, n)], ids=" ".join)
def test_what_the_suite_does_not_run_the_rest_does(marks: tuple[str, ...]) -> None:
    """Also with all cases of a thorough test, of which the suite runs some; --slow runs everything."""
    item: Any = SimpleNamespace(iter_markers=lambda: [SimpleNamespace(name=name) for name in marks])
    in_suite, in_rest = (not is_left_out(item, rest, rest) for rest in (False, True))
    assert in_suite == ("slow" not in marks)
    assert in_rest or marks == ("once",)
    assert not is_left_out(item, with_slow=True, rest=False)
