"""Probabilities of classes from the scores of a model: by its calibration, or by the logistic loss itself."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from streamsvm.errors import InputError
from streamsvm.models.model import Model
from streamsvm.numeric.calibration import CALIBRATIONS, find_calibration, share_out
from streamsvm.numeric.rows import F64


def has_probabilities(model: Model) -> bool:
    """Whether the scores of the model can be turned into probabilities."""
    return find_calibration(model.info) is not None or model.info.get("loss") == "logistic"


def require_probabilities(model: Model) -> None:
    """Raise InputError unless the scores of the model can be turned into probabilities."""
    if not has_probabilities(model):
        ways = "|".join(CALIBRATIONS)
        raise InputError(f"the model has no probabilities: train with --probabilities {ways}, or with --loss logistic")


def find_probabilities(model: Model, scores: F64) -> F64:
    """Return the probability of each class, (n, K), from scores (n,) for two classes, or (n, K); or of each label.

    InputError for a model without a calibration whose loss is not the logistic one.
    """
    name = find_calibration(model.info)
    if name is not None:
        way = CALIBRATIONS[name]
        return way.choose_apply(model.problem.has_label_sets)(model.info[way.key], scores)
    require_probabilities(model)
    if model.problem.has_label_sets:
        return np.asarray(expit(scores), np.float64)
    if scores.ndim == 1:
        return np.column_stack((expit(-scores), expit(scores)))
    return share_out(expit(scores))
