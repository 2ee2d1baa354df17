"""Probabilities of classes from the scores of a model: of its sigmoids, or of the logistic loss itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from streamsvm.errors import InputError
from streamsvm.models.model import Model
from streamsvm.numeric.calibration import compute_probabilities
from streamsvm.numeric.rows import F64

SIGMOIDS = "sigmoids"  # the name in a model's `info`


def has_probabilities(model: Model) -> bool:
    """Whether the scores of the model can be turned into probabilities."""
    return SIGMOIDS in model.info or model.info.get("loss") == "logistic"


def require_probabilities(model: Model) -> None:
    """Raise InputError unless the scores of the model can be turned into probabilities."""
    if not has_probabilities(model):
        raise InputError("the model has no probabilities: train with --probabilities sigmoid, or with --loss logistic")


def find_probabilities(model: Model, scores: F64) -> F64:
    """Return the probability of each class, (n, K), from scores (n,) for two classes, or (n, K); or of each label.

    InputError for a model without sigmoids whose loss is not the logistic one.
    """
    if SIGMOIDS in model.info:
        A, B = (np.asarray(model.info[SIGMOIDS][name], np.float64) for name in ("A", "B"))
        return compute_probabilities(scores, A, B)
    require_probabilities(model)
    ones: npt.NDArray[Any] = np.ones(1 if scores.ndim == 1 else scores.shape[1])
    if model.problem.has_label_sets:
        return np.asarray(expit(scores), np.float64)
    if scores.ndim == 1:
        return np.column_stack((expit(-scores), expit(scores)))
    return compute_probabilities(scores, -ones, 0.0 * ones)
