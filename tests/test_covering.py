"""The first tier: which tests and cases it holds."""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.conftest import ROOT
from tests.covering import choose_covering

KINDS, COSTS, SOLVERS = ("dense", "sparse", "wide"), (0.01, 1.0, 100.0, 1e4), ("smo", "irwls")


def test_each_value_is_chosen_with_as_few_cases_as_possible() -> None:
    cases = [{"kind": k, "C": c, "solver": s} for k, c, s in product(KINDS, COSTS, SOLVERS)]
    chosen = [cases[k] for k in choose_covering(cases)]
    assert len(chosen) == len(COSTS)
    for name, values in (("kind", KINDS), ("C", COSTS), ("solver", SOLVERS)):
        assert {case[name] for case in chosen} == set(values)


def test_values_that_are_given_together_are_chosen_together() -> None:
    assert choose_covering([{"name": "a", "value": 1}, {"name": "b", "value": 2}]) == [0, 1]
    assert choose_covering([{"name": "a"}] * 3) == [0]
    assert choose_covering([]) == []


def lower(letter: str) -> str:
    return {"A": "a"}.get(letter, letter)


@pytest.mark.same(first=lower)
@pytest.mark.parametrize("first", "Aabc")
@pytest.mark.parametrize("second", "xyz")
@pytest.mark.parametrize("seed", range(4))
def test_the_first_tier_runs_some_cases(request: pytest.FixtureRequest, first: str, second: str, seed: int) -> None:
    """Three of the 48 cases of this test cover its values, since "A" counts as "a", and seeds as one value."""
    name = request.node.nodeid.partition("[")[0]
    cases = [item.callspec.params for item in request.session.items if item.nodeid.partition("[")[0] == name]  # type: ignore[attr-defined]
    assert len(cases) == (48 if request.config.option.all_tests else 3)
    assert {lower(case["first"]) for case in cases} == set("abc")
    assert {case["second"] for case in cases} == set("xyz")


@pytest.mark.slow("so that this test shows that slow tests need --all")
def test_slow_tests_need_the_option(request: pytest.FixtureRequest) -> None:
    assert request.config.option.all_tests


def test_each_mark_gives_its_reason() -> None:
    bare = re.compile(r"mark\.slow(?!\()")
    assert not [path for path in (ROOT / "tests").rglob("test_*.py") if bare.search(path.read_text())]
