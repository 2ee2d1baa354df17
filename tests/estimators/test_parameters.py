"""Estimators are what Dask tells apart, and passes on, as it does with scikit-learn's."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import FrozenInstanceError
from inspect import signature
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm
from dask.base import tokenize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import streamsvm
from streamsvm.solvers.options import MAPS
from streamsvm.solvers.registry import name_solvers
from streamsvm.system.docstrings import read_entries, split_sections

ESTIMATORS: list[Any] = [each for name in streamsvm.__all__ if hasattr(each := getattr(streamsvm, name), "fit")]
OPTION_SETS: list[Any] = [each for name in streamsvm.__all__ if hasattr(each := getattr(streamsvm, name), "list_given")]
NAMESAKES: dict[str, Any] = {
    **{name: getattr(sklearn.svm, name) for name in ("LinearSVC", "LinearSVR", "SVC", "NuSVC", "SVR", "NuSVR")},
    "OneClassSVM": sklearn.svm.OneClassSVM,
    "LogisticRegression": sklearn.linear_model.LogisticRegression,
}
LIKE = {  # estimators without a namesake, and those whose parameters they share
    "BudgetedSVC": ("SVC", "LinearSVC"),
    "BudgetedSVR": ("SVR", "LinearSVR"),
    "RankSVM": ("LinearSVC",),
    "LinearOneClassSVM": ("OneClassSVM",),
}


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
    expected = dict[str, list[str]].fromkeys(given, [])
    assert given == expected | {"LinearSVC": ["penalty", "loss"], "LogisticRegression": ["penalty"]}
    for name, kind in NAMESAKES.items():
        theirs = [each for each, about in signature(kind).parameters.items() if about.kind is not about.KEYWORD_ONLY]
        assert theirs == given[name]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_all_parameters_of_scikit_learn_and_at_most_twelve_others(kind: Any) -> None:
    name = kind.__name__
    ours, theirs = kind().get_params(), dict[str, Any]()
    for other in LIKE.get(name, (name,)):
        theirs |= NAMESAKES[other]().get_params()
    assert len(set(ours) - set(theirs)) <= 12
    if name in NAMESAKES:
        assert set(theirs) <= set(ours)
        rows = np.random.default_rng(0).normal(size=(60, 2))
        y = rows[:, 0] if name.endswith("SVR") else (rows[:, 0] > 0).astype(int)
        model = kind(**theirs).fit(rows, y)
        assert model.get_params() == ours | theirs


@pytest.mark.parametrize("kind", OPTION_SETS, ids=lambda kind: kind.__name__)
def test_objects_of_options_are_what_scikit_learn_clones_and_shows(kind: Any) -> None:
    """Each has a name on the command line, and a docstring with all options."""
    made = kind()
    name, value = next(iter(made.get_params().items()), (None, None))
    assert repr(made) == f"{kind.__name__}()"
    assert {*read_entries(split_sections(kind.__doc__).get("Parameters", ""))} == {*made.get_params()}
    assert kind.name in (*name_solvers(), *MAPS)
    if name is not None:
        changed = clone(made).set_params(**{name: "other"})
        assert (repr(changed), made.get_params()[name]) == (f"{kind.__name__}({name}='other')", value)
        assert pickle.loads(pickle.dumps(changed)) == clone(changed) == changed != made
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, "other")
    with pytest.raises(ValueError, match="option 'zzz'"):
        made.set_params(zzz=1)


def test_grids_reach_the_options_of_a_solver_and_of_a_feature_map() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    model = streamsvm.LinearSVC(solver=streamsvm.CuttingPlane(), feature_map=streamsvm.Nystroem(n_components=9))
    grid = {"solver__acceleration": ["none"], "feature_map__gamma": [0.5]}
    best = GridSearchCV(model, grid, cv=2).fit(rows, (rows**2).sum(axis=1) > 1).best_estimator_
    assert repr(best) == (
        "LinearSVC(feature_map=Nystroem(gamma=0.5, n_components=9),\n"
        "          solver=CuttingPlane(acceleration='none'))"
    )
    assert model.solver == streamsvm.CuttingPlane()  # the clones were changed
    for name, message in {
        "solver__acceleration": r"solver is 'auto'; pass an object, such as CuttingPlane\(\)",
        "feature_map__gamma": r"feature_map is None; pass an object, such as Nystroem\(\)",
        "C__gamma": r"C is 1\.0, which has no options",
        "zzz__gamma": r"Invalid parameter 'zzz' for estimator LinearSVC",
    }.items():
        with pytest.raises(ValueError, match=message):
            streamsvm.LinearSVC().set_params(**{name: 1})


def test_tune_takes_a_solver_with_its_options() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    given: dict[str, Any] = {"C": [0.1, 1.0], "folds": 2, "resident_rows": None}
    own = {"acceleration": "none"}
    by_name = streamsvm.tune(rows, rows[:, 0] > 0, solver="cutting-plane", options=own, **given)
    by_object = streamsvm.tune(rows, rows[:, 0] > 0, solver=streamsvm.CuttingPlane(**own), **given)
    default = streamsvm.tune(rows, rows[:, 0] > 0, **given)
    assert by_object.passes == by_name.passes != default.passes
    with pytest.raises(
        ValueError, match=r"option acceleration=none and solver=CuttingPlane\(acceleration='none'\): set"
    ):
        streamsvm.tune(rows, rows[:, 0] > 0, solver=streamsvm.CuttingPlane(**own), options=own, **given)


def test_penalties_of_a_logistic_regression_are_named_in_all_ways_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 3)).astype(np.float32)
    y = rows[:, 0] + rng.normal(size=80) > 0

    def train(**given: Any) -> list[float]:
        return np.ravel(streamsvm.LogisticRegression(C=given.pop("C", 0.1), **given).fit(rows, y).coef_).tolist()

    l1, l2, free = train(penalty="l1"), train(), train(penalty=None, C=1.0)
    assert 0.0 in l1
    assert train(l1_ratio=1.0, solver="saga") == train(l1_ratio=1, penalty="deprecated") == l1 != l2
    assert train(l1_ratio=0.0, solver="lbfgs") == train(solver="newton", l1_ratio=None, warm_start=True) == l2
    assert train(C=np.inf, l1_ratio=1.0) == train(C=np.inf) == free
    theirs = sklearn.linear_model.LogisticRegression(C=np.inf, tol=1e-10).fit(rows, y)
    np.testing.assert_allclose(free, theirs.coef_[0], rtol=1e-3)
    with pytest.raises(
        ValueError, match=r"l1_ratio is 0\.5: no solver mixes both penalties; choose 0 \(l2\) or 1 \(l1\)"
    ):
        train(l1_ratio=0.5)
    with pytest.raises(ValueError, match="penalty is 'elasticnet', but l1_ratio is None; choose l1_ratio=0"):
        train(penalty="elasticnet", l1_ratio=None)
    with pytest.warns(UserWarning, match=r"^Setting penalty=None will ignore the C .*\(C=0\.1\)"):
        assert train(penalty=None) == free
    with pytest.raises(ValueError, match="solver smo does not support the loss logistic"):
        train(solver="smo")


def test_constants_of_a_class_are_no_parameters() -> None:
    constants = {
        streamsvm.NuSVC: ("C", "task", "own_options"),
        streamsvm.RankSVM: ("class_weight", "resident_rows"),
        streamsvm.BudgetedSVC: ("tol", "resident_rows"),
        streamsvm.LinearOneClassSVM: ("C", "solver", "penalty", "fit_intercept", "intercept_scaling"),
    }
    for kind, names in constants.items():
        for name in names:
            assert hasattr(kind, name)
            with pytest.raises(TypeError, match=rf"{kind.__name__}.__init__\(\).*'{name}'"):
                kind(**{name: 1.0})


class OwnInit(streamsvm.LinearSVC):
    def __init__(self, C: float = 2.0) -> None:
        super().__init__(C=C, tol=0.5)


class Annotated(streamsvm.SVC):
    notes: dict[str, int] = {}  # noqa: RUF012


def test_subclasses_keep_their_own_init_or_that_of_their_base() -> None:
    """What they annotate for themselves is no parameter."""

    class Heir(OwnInit):
        pass

    assert (Heir().C, Heir(3.0).C, Heir().tol) == (2.0, 3.0, 0.5)
    assert Annotated(C=4.0).get_params() == streamsvm.SVC(C=4.0).get_params()
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
