"""`fit(eval_set=...)`: the model of each step is measured on other rows, in any form that `fit` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from sklearn.metrics import accuracy_score, mean_absolute_error

import streamsvm
from streamsvm.system.errors import InputError

RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((600, 4)).astype(np.float32)
Y = np.where(X[:, 0] + 0.5 * RANDOM.standard_normal(600) > 0, "yes", "no")
X_NEW, Y_NEW = X[400:], Y[400:]


def make(form: str, folder: Path) -> Any:
    if form == "arrays":
        return X_NEW, Y_NEW
    if form == "dask":
        return da.from_array(X_NEW, chunks=(50, 4)), da.from_array(Y_NEW, chunks=50)
    return streamsvm.ingest(X_NEW, folder / "eval.zarr", Y_NEW)


@pytest.mark.parametrize("form", ["arrays", "dask", "dataset"])
@pytest.mark.parametrize("kind", [streamsvm.LinearSVC, streamsvm.SVC, streamsvm.BudgetedSVC])
def test_each_step_is_measured(kind: Any, form: str, tmp_path: Path) -> None:
    model = kind().fit(X[:400], Y[:400], eval_set=make(form, tmp_path))
    expected = accuracy_score(Y_NEW, model.predict(X_NEW))
    assert model.history_[-1]["eval_score"] == pytest.approx(expected, abs=1e-12)
    assert model.n_features_in_ == 4
    alone = kind().fit(X[:400], Y[:400])
    assert "eval_score" not in alone.history_[-1]
    np.testing.assert_array_equal(alone.decision_function(X_NEW), model.decision_function(X_NEW))


def test_rows_of_a_cluster(client: Client) -> None:
    """Rows of the training and of the measure come from the workers."""
    target = X[:, 0] + 3.0
    rows, numbers = da.from_array(X, chunks=(100, 4)), da.from_array(target, chunks=100)
    model = streamsvm.LinearSVR(client=client).fit(rows[:400], numbers[:400], eval_set=(rows[400:], numbers[400:]))
    expected = -mean_absolute_error(target[400:], model.predict(X_NEW))
    assert model.history_[-1]["eval_score"] == pytest.approx(expected, rel=1e-6)


def test_unsuitable_rows_are_refused(tmp_path: Path) -> None:
    for given, fault in (
        ((X_NEW,), r"eval_set: give a pair \(X, y\), a dataset or its path"),
        ([(X_NEW, Y_NEW)], r"eval_set: give a pair \(X, y\)"),
        ((X_NEW[:, :3], Y_NEW), "^eval_set: its rows have 3 features, but the training rows have 4"),
        ((X_NEW, None), "^eval_set: has no labels"),
    ):
        with pytest.raises(InputError, match=fault):
            streamsvm.LinearSVC().fit(X[:400], Y[:400], eval_set=given)
    with pytest.raises(InputError, match="eval_set are not supported with solver='interior-point'"):
        streamsvm.SVC(solver="interior-point").fit(X[:400], Y[:400], eval_set=(X_NEW, Y_NEW))
    with pytest.raises(TypeError, match="eval_set"):
        streamsvm.OneClassSVM().fit(X, eval_set=(X_NEW, Y_NEW))
