"""Who is told of the steps of a fit, and what scikit-learn routes to the estimators."""

from __future__ import annotations

import logging
import pickle
import re
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from streamsvm import SVC, LinearSVC, LinearSVR, LogisticRegression, RankSVM
from streamsvm.errors import InputError
from streamsvm.shown import draw_gaps

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(150, 3))
Y = (X[:, 0] + RANDOM.normal(size=150) > 0).astype(int)
WEIGHT = RANDOM.uniform(0, 3, size=150)
QUERY = np.repeat(np.arange(15), 10)


@pytest.mark.parametrize("kind", [LinearSVC, SVC, LinearSVR, LogisticRegression])
def test_callbacks_know_what_the_history_tells(kind: Any) -> None:
    told: list[dict[str, Any]] = []
    model = kind(tol=1e-4).set_callbacks(told.append, lambda step: None).fit(X, Y)
    assert told == model.history_
    last = told[-1]
    assert last["relative_gap"] == pytest.approx((last["objective"] - last["lower_bound"]) / last["objective"])
    clone(model).fit(X, Y)
    assert len(told) == 2 * len(model.history_)
    assert not pickle.loads(pickle.dumps(model))._callbacks


def test_an_error_of_a_callback_ends_the_fit() -> None:
    def stop(step: dict[str, Any]) -> None:
        raise RuntimeError(f"enough after {step['passes']}")

    with pytest.raises(RuntimeError, match="enough after"):
        LinearSVC().set_callbacks(stop).fit(X, Y)
    with pytest.raises(InputError, match="set_callbacks: int is no function of a step"):
        LinearSVC().set_callbacks(3)  # type: ignore[arg-type]


def test_steps_are_logged_and_printed_on_demand(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    LinearSVC().fit(X, Y)
    assert capsys.readouterr().out == ""
    assert not caplog.records
    with caplog.at_level(logging.INFO, "streamsvm"):
        model = LinearSVC(verbose=1).fit(X, Y)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [record.getMessage() for record in caplog.records if "objective" in record.getMessage()]
    assert len(printed) == len(model.history_)


def test_the_curve_of_gaps_has_a_point_for_each_step() -> None:
    model = LinearSVC(C=10, tol=1e-8, solver="cutting-plane", acceleration="none").fit(X, Y)
    shown = model.result_._repr_html_()
    (points,) = re.findall('polyline points="(.*?)"', shown)
    gaps = [line["objective"] - line["lower_bound"] for line in model.history_ if line["lower_bound"] is not None]
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert len(heights) <= len(gaps)
    assert heights[-1] == max(heights) == 38.0
    assert min(heights) == 2.0
    assert draw_gaps([0.5]) == ""
    assert draw_gaps([0.5, float("inf"), 0.0]) == ""
    assert draw_gaps([1.0, 1e-1, 1e-2]).count("2.0,2.0 100.0,20.0 198.0,38.0") == 1


@pytest.fixture
def routing() -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("kind", [LinearSVC, SVC])
def test_weights_are_routed_through_pipelines(routing: None, kind: Any) -> None:
    twice = FunctionTransformer(lambda rows: 2 * rows)
    piped = make_pipeline(twice, kind(C=0.1, tol=1e-6).set_fit_request(sample_weight=True))
    piped.fit(X, Y, sample_weight=WEIGHT)
    alone = kind(C=0.1, tol=1e-6).fit(2 * X, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(piped.decision_function(X), alone.decision_function(2 * X))


def test_weights_are_routed_through_searches(routing: None) -> None:
    asked = LinearSVC().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(asked, {"C": [0.01, 0.1]}, cv=3).fit(X, Y, sample_weight=WEIGHT)
    again = LinearSVC(**search.best_params_).fit(X, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(search.decision_function(X), again.decision_function(X))


def test_queries_are_routed_to_rankings(routing: None) -> None:
    asked = RankSVM(C=0.1).set_fit_request(qid=True).set_score_request(qid=True)
    folds = GroupKFold(3)
    found = cross_validate(asked, X, Y, params={"qid": QUERY, "groups": QUERY}, cv=folds)["test_score"]
    for k, (rows, held) in enumerate(folds.split(X, Y, QUERY)):
        model = RankSVM(C=0.1).fit(X[rows], Y[rows], qid=QUERY[rows])
        assert found[k] == model.score(X[held], Y[held], qid=QUERY[held])
