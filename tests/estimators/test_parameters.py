"""Estimators are what Dask tells apart, and passes on, as it does with scikit-learn's."""

from __future__ import annotations

from inspect import signature
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize

import streamsvm

ESTIMATORS: list[Any] = [each for name in streamsvm.__all__ if hasattr(each := getattr(streamsvm, name), "get_params")]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_parameters_are_those_of_the_signature(kind: Any) -> None:
    given = {name: each.default for name, each in signature(kind).parameters.items()}
    assert kind().get_params() == given
    assert not set(vars(kind())) - set(given)


def test_estimators_that_have_learned_other_rows_differ() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    one, other = (streamsvm.SVC().fit(rows, rows[:, j] > 0) for j in (0, 1))
    assert tokenize(one) != tokenize(other)
    assert tokenize(streamsvm.NuSVC(nu=0.1)) != tokenize(streamsvm.NuSVC(nu=0.5))


def test_estimators_pass_through_dask_unchanged() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    fitted = streamsvm.SVC().fit(rows, rows[:, 0] > 0)
    (passed, total), _ = dask.compute([fitted, da.ones(3).sum()], da.ones(2))
    assert passed is fitted
    assert total == 3.0
