"""Brier score, log loss and the reliability curve of `evaluate`, beside scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from streamsvm import LinearSVC, LogisticRegression
from streamsvm.cli.info import format_evaluation
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(500, 3)).astype(np.float32)
NOISY = X @ [1.0, -1.0, 0.5] + RANDOM.normal(size=500)


@pytest.mark.parametrize("estimator", [LinearSVC(probability=True), LogisticRegression()])
def test_two_classes(estimator: LinearSVC, tmp_path: Path) -> None:
    y = np.where(NOISY > 0.4, "yes", "no")
    model = estimator.fit(X, y)
    p = model.predict_proba(X)[:, 1]
    found = evaluate(model.model_, ingest(X, tmp_path / "rows.zarr", y, chunk_bytes=1000))
    assert found["brier_score"] == pytest.approx(brier_score_loss(y == "yes", p), rel=1e-9)
    assert found["log_loss"] == pytest.approx(log_loss(y, p), rel=1e-9)
    true, predicted = calibration_curve(y == "yes", p, n_bins=10)
    np.testing.assert_allclose([part["true"] for part in found["reliability"]], true)
    np.testing.assert_allclose([part["predicted"] for part in found["reliability"]], predicted)
    assert sum(part["rows"] for part in found["reliability"]) == 500
    assert f"Brier score {found['brier_score']:.4f}" in format_evaluation(found)


def test_many_classes_and_labels_that_the_model_does_not_know(tmp_path: Path) -> None:
    y = np.digitize(NOISY, [-1.0, 1.0])
    model = LinearSVC(loss="squared_hinge", probability=True).fit(X, y)
    p, strange = model.predict_proba(X), np.where(np.arange(500) < 50, 7, y)
    found = evaluate(model.model_, ingest(X, tmp_path / "rows.zarr", strange))
    assert found["log_loss"] == pytest.approx(log_loss(y[50:], p[50:]), rel=1e-9)
    assert found["brier_score"] == pytest.approx(np.mean(np.sum((p - np.eye(3)[y])[50:] ** 2, axis=1)), rel=1e-9)
    assert found["unknown_labels"] == 50


def test_a_model_without_probabilities_has_no_such_measures(tmp_path: Path) -> None:
    y = NOISY > 0
    dataset = ingest(X, tmp_path / "rows.zarr", y)
    assert "brier_score" not in evaluate(LinearSVC().fit(dataset).model_, dataset)
