"""Rows, labels, weights and parameters that estimators refuse, each with a message that says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamsvm
from streamsvm import SVC, SVR, LinearSVC, OneClassSVM
from streamsvm.errors import InputError
from tests.estimators.test_linear import X, Y

BAD_NUMBERS = X.copy()


BAD_NUMBERS[3, 2] = np.nan


INFINITE = X.copy()


INFINITE[3, 2] = np.inf


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ((BAD_NUMBERS, Y), "Input X contains NaN"),
        ((INFINITE, Y), "Input X contains infinity"),
        ((X.astype(float) * 1e300, Y), "too large for float32"),
        ((X, None), "requires y to be passed"),
        ((X, np.ones(len(Y))), r"one class only \(1\.0\)"),
        ((X, Y[:-1]), "inconsistent numbers of samples"),
        ((X, X[:, 0]), "continuous"),
        ((X, Y, -np.ones(len(Y))), "Negative values"),
        ((X, Y, np.zeros(len(Y))), "at least one non-zero"),
        (("no such dataset", None), "no such dataset: no such dataset"),
        (("no such dataset", Y), "a dataset has its own labels and weights"),
    ],
)
def test_bad_data(fit: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearSVC().fit(*fit)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C is 0; it must be positive"),
        ({"C": "1"}, "C is '1'"),
        ({"C": float("nan")}, "C is nan"),
        ({"tol": -1}, "tol is -1"),
        ({"solver": "magic"}, "solver 'magic': choose from auto, cutting-plane"),
        ({"class_weight": {7: 1}}, "class_weight names 7; the classes are -1 and 1"),
        ({"class_weight": "heavy"}, "class_weight 'heavy'"),
        ({"intercept_scaling": 0}, "intercept_scaling=0"),
        ({"memory": "lots"}, "'lots' is no size in bytes"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"n_jobs": -2}, "n_jobs is -2"),
        ({"acceleration": "warp"}, "choose from auto, one-read, block-ascent, guided, line-search, none"),
        ({"epsilon": -1}, "option epsilon=-1"),
        ({"resident_rows": 10, "acceleration": "none"}, "resident rows are not for acceleration=none"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LinearSVC(**parameters).fit(X, Y)


@pytest.mark.parametrize("solver", ["auto", "cutting-plane", "newton"])
@pytest.mark.parametrize("estimator", [SVC, SVR, OneClassSVM])
def test_solvers_of_linear_models_are_not_for_sums_of_kernels(estimator: Any, solver: str) -> None:
    with pytest.raises(
        InputError, match=f"solver '{solver}': {estimator.__name__} makes sums of kernels, and takes smo"
    ):
        estimator(solver=solver, kernel="linear").fit(X, np.sign(Y))


def test_calls_that_newcomers_make(tmp_path: Path) -> None:
    """The name of a column in place of its values, text among the features, frames without rows, lists of labels."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "colour": ["red", "white"], "grade": [0, 1]})
    with pytest.raises(InputError, match=r"y is the text 'grade', and no labels: .*label='grade'"):
        LinearSVC().fit(frame, "grade")
    with pytest.raises(InputError, match=r"y is the text 'grade', and no labels: .*label='grade'"):
        streamsvm.ingest(frame, tmp_path / "d.zarr", "grade")
    with pytest.raises(InputError, match=r"X: column colour is not of numbers .*one_hot='auto'"):
        LinearSVC().fit(frame[["a", "colour"]], frame["grade"])
    with pytest.raises(InputError, match=r"y: its rows differ in length; .*MultiLabelBinarizer"):
        LinearSVC().fit(X[:2], [["a", "b"], ["a"]])
    with pytest.raises(InputError, match=r"not a dataset; .*streamsvm\.ingest in Python, makes one from files$"):
        LinearSVC().fit(__file__)
    polars = pytest.importorskip("polars")
    for call in (LinearSVC().fit, lambda rows, y: streamsvm.ingest(rows, tmp_path / "d.zarr", y)):
        with pytest.raises(InputError, match=r"a LazyFrame has no rows yet: give X\.collect\(\)"):
            call(polars.LazyFrame({"a": [1.0, 2.0]}), [0, 1])
