"""Estimators are what Dask tells apart, and passes on, as it does with scikit-learn's."""

from __future__ import annotations

import ast
import pickle
import re
from inspect import signature
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from sklearn.base import clone

import streamsvm
from streamsvm.system.docstrings import read_entries, split_sections

ESTIMATORS: list[Any] = [each for name in streamsvm.__all__ if hasattr(each := getattr(streamsvm, name), "get_params")]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_parameters_are_those_of_the_signature(kind: Any) -> None:
    given = {name: each.default for name, each in signature(kind).parameters.items()}
    assert kind().get_params() == given
    assert not set(vars(kind())) - set(given)


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_every_parameter_is_documented_once_with_its_default(kind: Any) -> None:
    """Those that bases declare are added to the docstring, so that no reader has to look elsewhere."""
    sections = split_sections(kind.__doc__)
    assert [*sections] == ["", "Parameters", "Attributes", "References", "Examples"]
    parameters, attributes = (read_entries(sections[title]) for title in ("Parameters", "Attributes"))
    told = {name: re.search("default=(.*)$", entry.kind) for name, entry in parameters.items()}
    defaults = {name: each.default for name, each in signature(kind).parameters.items()}
    assert {name: found and ast.literal_eval(found[1]) for name, found in told.items()} == defaults
    assert {"status_", "gap_", "n_features_in_", "model_"} < set(attributes)
    assert all(name.endswith("_") for name in attributes)


def test_what_scikit_learn_takes_by_position_is_taken_so() -> None:
    given = {
        kind.__name__: [name for name, each in signature(kind).parameters.items() if each.kind is not each.KEYWORD_ONLY]
        for kind in ESTIMATORS
    }
    expected = {name: ["C"] for name in given} | {"NuSVC": ["nu"], "NuSVR": ["nu", "C"]}
    assert given == expected | {"OneClassSVM": [], "LinearOneClassSVM": []}


def test_constants_of_a_class_are_no_parameters() -> None:
    constants = {
        streamsvm.NuSVC: ("C", "solver", "inner"),
        streamsvm.RankSVM: ("solver", "class_weight", "resident_rows"),
        streamsvm.BudgetedSVC: ("solver", "tol", "resident_rows"),
        streamsvm.LinearOneClassSVM: ("C", "penalty", "fit_intercept", "intercept_scaling"),
    }
    for kind, names in constants.items():
        for name in names:
            assert hasattr(kind, name)
            with pytest.raises(TypeError, match=rf"{kind.__name__}.__init__\(\).*'{name}'"):
                kind(**{name: 1.0})


class OwnInit(streamsvm.LinearSVC):
    def __init__(self, C: float = 2.0) -> None:
        super().__init__(C, tol=0.5)


class Annotated(streamsvm.SVC):
    notes: dict[str, int] = {}  # noqa: RUF012


def test_subclasses_keep_their_own_init_or_that_of_their_base() -> None:
    """What they annotate for themselves is no parameter."""

    class Heir(OwnInit):
        pass

    assert (Heir().C, Heir(3.0).C, Heir().tol) == (2.0, 3.0, 0.5)
    assert Annotated(4.0).get_params() == streamsvm.SVC(4.0).get_params()
    assert Annotated.C == 1.0
    same = pickle.loads(pickle.dumps(clone(Annotated(tol=0.5, client=None))))
    assert same.get_params() == Annotated(tol=0.5).get_params()
    assert repr(same) == "Annotated(tol=0.5)"


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
