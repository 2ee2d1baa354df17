"""`score` of a dataset whose rows have sample weights is a share of the weights, as of rows in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score

from streamsvm import SVC, SVR, LinearSVC, LinearSVR, LogisticRegression, ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.system.errors import InputError

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(150, 3)).astype(np.float32)
NOISY = X[:, 0] + RANDOM.normal(size=150)
WEIGHTS = np.where(NOISY * X[:, 0] > 0, 0.2, 5.0) * (np.arange(150) % 5 > 0)  # wrong rows weigh more, some nothing
CLASSES = np.array(["a", "b", "c"])[np.digitize(NOISY, [-0.5, 0.5])]
SETS = np.column_stack((NOISY > 0, X[:, 1] + 0.3 * NOISY > 0)).astype(int)


@pytest.mark.parametrize(
    ("estimator", "y", "measure"),
    [
        (LinearSVC, NOISY > 0, accuracy_score),
        (LinearSVC, CLASSES, accuracy_score),
        (LinearSVC, SETS, accuracy_score),
        (LogisticRegression, NOISY > 0, accuracy_score),
        (SVC, CLASSES, accuracy_score),
        (LinearSVR, NOISY, r2_score),
        (SVR, NOISY, r2_score),
    ],
)
def test_the_weights_of_a_dataset_count(estimator: Any, y: Any, measure: Any, tmp_path: Path) -> None:
    path, regression = tmp_path / "rows.zarr", measure is r2_score
    rows = ingest(X, path, y, sample_weight=WEIGHTS, regression=regression, chunk_bytes=400)
    model = estimator().fit(X, y)
    expected = measure(y, model.predict(X), sample_weight=WEIGHTS)
    assert expected != pytest.approx(measure(y, model.predict(X)), abs=0.005)
    for data in (rows, path):
        assert model.score(data) == pytest.approx(expected, abs=1e-6)
    assert model.score(X, y, sample_weight=WEIGHTS) == pytest.approx(expected, abs=1e-6)
    plain = ingest(X, tmp_path / "plain.zarr", y, regression=regression)
    assert model.score(plain) == pytest.approx(measure(y, model.predict(X)), abs=1e-6)


def test_evaluate_counts_each_row_once(tmp_path: Path) -> None:
    """Its confusion and supports are numbers of rows, and so its accuracy is a share of the rows."""
    rows = ingest(X, tmp_path / "rows.zarr", CLASSES, sample_weight=WEIGHTS)
    model = LinearSVC().fit(X, CLASSES)
    found = evaluate(model.model_, rows)
    assert found["accuracy"] == pytest.approx(np.mean(model.predict(X) == CLASSES), abs=1e-12)
    assert found["accuracy"] == np.trace(found["confusion"]) / found["n_rows"]


def test_rows_that_cannot_be_weighed(tmp_path: Path) -> None:
    model = LinearSVC().fit(X, CLASSES)
    nothing = ingest(X, tmp_path / "nothing.zarr", CLASSES, sample_weight=np.zeros(150))
    with pytest.raises(InputError, match="the sample weights of all rows are zero"):
        model.score(nothing)
    foreign = ingest(X, tmp_path / "foreign.zarr", np.where(NOISY > 0, "x", "z"), sample_weight=WEIGHTS)
    with pytest.raises(InputError, match="no row has one of the labels that the model knows"):
        model.score(foreign)
    unlabelled = ingest(X, tmp_path / "unlabelled.zarr", sample_weight=WEIGHTS)
    with pytest.raises(InputError, match="there are no labels to compare the predictions with"):
        model.score(unlabelled)
