"""The examples in the docstrings of the public API run, and print what they say."""

from __future__ import annotations

import doctest
import inspect

import pytest

import streamsvm

PUBLIC = [name for name in streamsvm.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_a_public_name_run(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(streamsvm, name), name)
    for example in found:
        assert doctest.DocTestRunner().run(example).failed == 0, f"{name}: the example of its docstring"
    has_example = ">>>" in (inspect.getdoc(getattr(streamsvm, name)) or "")
    assert has_example == any(example.examples for example in found)


def test_every_estimator_has_an_example() -> None:
    estimators = [name for name in PUBLIC if hasattr(getattr(streamsvm, name), "fit")]
    known = "SVC SVR NuSVC NuSVR BudgetedSVC LinearSVC LinearSVR LogisticRegression OneClassSVM LinearOneClassSVM"
    assert set(estimators) == {*known.split(), "BudgetedSVR", "RankSVM"}
    assert all(">>>" in str(inspect.getdoc(getattr(streamsvm, name))) for name in estimators)
