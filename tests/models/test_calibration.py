"""Sigmoids, isotonic functions and temperatures beside scikit-learn's, and what is refused of a stored one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss

from streamsvm.models import calibration
from streamsvm.models.calibration import (
    CALIBRATIONS,
    apply_temperature,
    check_calibration,
    fit_isotonic,
    fit_temperature,
)
from streamsvm.problems.registry import PROBABILITIES

RANDOM = np.random.default_rng(5)
N = 500
CODES = RANDOM.integers(3, size=N).astype(np.int32)
SCORES = 2.0 * (CODES[:, None] == np.arange(3)) + RANDOM.normal(size=(N, 3))
ONE = np.round(SCORES[:, 1] - SCORES[:, 0], 1)  # with ties
TWO = (CODES > 0).astype(np.int32)
WEIGHT = RANDOM.integers(4, size=N).astype(np.float64)  # some are 0
NEW = np.linspace(-9.0, 9.0, 400)


@pytest.mark.parametrize("weight", [np.ones(N), WEIGHT], ids=["equal", "weighted"])
def test_isotonic_functions_are_those_of_scikit_learn(weight: Any) -> None:
    found = np.interp(NEW, *fit_isotonic(ONE, TWO == 1, weight))
    expected = IsotonicRegression(out_of_bounds="clip").fit(ONE, TWO, sample_weight=weight).predict(NEW)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_of_many_corners_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_isotonic(ONE, TWO == 1, WEIGHT)
    assert len(whole[0]) > 8
    monkeypatch.setattr(calibration, "MOST_CORNERS", 8)
    at, p = fit_isotonic(ONE, TWO == 1, WEIGHT)
    assert len(at) == 8
    assert (at[0], at[-1], p[0], p[-1]) == (whole[0][0], whole[0][-1], whole[1][0], whole[1][-1])
    np.testing.assert_allclose(np.interp(at, *whole), p)


@pytest.mark.parametrize("weight", [np.ones(N), WEIGHT], ids=["equal", "weighted"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_temperature_minimises_the_log_loss(weight: Any, scale: float) -> None:
    """A bounded search along the logarithm, as scikit-learn makes it."""
    scores = scale * SCORES
    beta = fit_temperature(scores, CODES, weight)

    def measure(log_beta: float) -> float:
        return log_loss(CODES, softmax(np.exp(log_beta) / scale * scores, axis=1), sample_weight=weight)

    best = minimize_scalar(measure, bounds=(-10, 10), options={"xatol": 1e-12})
    assert beta * scale == pytest.approx(np.exp(best.x), rel=1e-6)
    np.testing.assert_allclose(np.sum(apply_temperature({"beta": beta}, scores), axis=1), 1.0, rtol=1e-12)


class Known(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose scores are the rows."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Known:
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: Any) -> Any:
        return X[:, 0] if X.shape[1] == 1 else X

    def predict(self, X: Any) -> Any:
        return X[:, 0] > 0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("way", CALIBRATIONS)
def test_probabilities_are_those_of_scikit_learn(way: str, n_classes: int) -> None:
    scores, codes = (ONE[:, None], TWO) if n_classes == 2 else (SCORES, CODES)
    try:
        theirs = CalibratedClassifierCV(Known(), method=way, ensemble=False)
        expected = theirs.fit(scores, codes, sample_weight=WEIGHT).predict_proba(scores)
    except ValueError:
        assert way == "temperature"
        pytest.skip("scikit-learn before 1.8 has no temperature")
    told = json.loads(json.dumps(CALIBRATIONS[way].fit(scores, codes, WEIGHT)))
    found = CALIBRATIONS[way].apply(told, scores[:, 0] if n_classes == 2 else scores)
    np.testing.assert_allclose(found, expected, atol=1e-4 if way == "sigmoid" else 1e-7)


@pytest.mark.parametrize("way", ["sigmoid", "isotonic"])
def test_a_class_without_weight_is_refused(way: str) -> None:
    with pytest.raises(ValueError, match="of a class needs rows of this class, and others"):
        CALIBRATIONS[way].fit(ONE[:, None], TWO, WEIGHT * (TWO == 1))


@pytest.mark.parametrize("way", sorted(CALIBRATIONS))
def test_rows_without_weight_and_the_scale_of_weights_and_scores_do_not_matter(way: str) -> None:
    """A row without weight has a score that is beyond all others; SVMs of large rows have scores far from 0."""
    fit, apply = CALIBRATIONS[way].fit, CALIBRATIONS[way].apply
    scores, codes, weight = ONE[:, None], TWO, WEIGHT
    expected = apply(fit(scores, codes, weight), NEW)
    far = np.append(scores, [[1e30]], axis=0), np.append(codes, np.int32(0)), np.append(weight, 0.0)
    np.testing.assert_allclose(apply(fit(*far), NEW), expected, atol=1e-6)
    if way != "temperature":  # its logits are the scores themselves
        np.testing.assert_allclose(apply(fit(scores + 1e5, codes, weight), NEW + 1e5), expected, atol=1e-6)
    if way != "sigmoid":  # its targets depend on the number of rows
        np.testing.assert_allclose(apply(fit(scores, codes, 1e290 * weight), NEW), expected, atol=1e-6)


@pytest.mark.parametrize("size", [1e-5, 1.0, 1e5, 1e295])
@pytest.mark.parametrize("score", [0.0, 1e6, 1e129])
def test_scores_that_say_nothing_have_the_share_of_the_targets(score: float, size: float) -> None:
    codes, weight = TWO[:256], np.full(256, size)
    stored = CALIBRATIONS["sigmoid"].fit(np.full((256, 1), score), codes, weight)
    positive, negative = np.sum(weight[codes == 1]), np.sum(weight[codes == 0])
    high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)  # Platt's targets
    share = high * (positive / (positive + negative)) + low * (negative / (positive + negative))
    found = CALIBRATIONS["sigmoid"].apply(stored, np.array([score]))[0, 1]
    assert found == pytest.approx(share, rel=1e-6)


def test_scores_that_separate_or_say_nothing_have_a_temperature() -> None:
    separate = np.where(TWO == 1, 1.0, -1.0)[:, None]
    for scores, least in ((separate, 0.99), (0.0 * separate, 0.5), (-separate, 0.0)):
        p = apply_temperature({"beta": fit_temperature(scores, TWO, WEIGHT)}, scores)
        assert np.isfinite(p).all()
        assert p[np.arange(N), TWO].min() >= least


CORNERS = {"scores": [0.0, 1.0], "probabilities": [0.25, 0.5]}


@pytest.mark.parametrize(
    "info",
    [
        {"isotonic": []},
        {"isotonic": {}},
        {"isotonic": [1]},
        {"isotonic": [{"scores": [], "probabilities": []}]},
        {"isotonic": [{"scores": [0.0] * 30_000, "probabilities": [0.5] * 30_000}]},
        {"isotonic": [{**CORNERS, "scores": [1.0, 1.0]}]},
        {"isotonic": [{**CORNERS, "scores": [1.0, float("nan")]}]},
        {"isotonic": [{**CORNERS, "scores": [0.0, 10**400]}]},
        {"isotonic": [{**CORNERS, "probabilities": [0.5, 0.25]}]},
        {"isotonic": [{**CORNERS, "probabilities": [-0.5, 0.25]}]},
        {"isotonic": [{**CORNERS, "probabilities": [0.5, 1.5]}]},
        {"isotonic": [{**CORNERS, "probabilities": [0.5]}]},
        {"isotonic": [{**CORNERS, "probabilities": [0.5, "1"]}]},
        {"isotonic": [CORNERS, CORNERS]},
        {"temperature": 1.0},
        {"temperature": {"beta": 0.0}},
        {"temperature": {"beta": float("inf")}},
        {"temperature": {}},
    ],
)
def test_what_was_not_fitted_is_refused(info: Any) -> None:
    with pytest.raises(ValueError, match=r"isotonic|temperature|beta|scores|probabilities"):
        check_calibration(info, 1)


def test_the_command_line_has_all_ways() -> None:
    assert tuple(CALIBRATIONS) == PROBABILITIES


def test_what_was_fitted_is_taken() -> None:
    check_calibration({"isotonic": [CORNERS]}, 1)
    check_calibration({"isotonic": [CORNERS] * 3, "temperature": {"beta": 2.0}}, 3)
