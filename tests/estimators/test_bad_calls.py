"""Rows, labels, weights and parameters that estimators refuse, each with a message that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
