"""The models that linear solvers return."""

from __future__ import annotations

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64


def make_linear_model(source: RowSource, coef: F64, intercept: float, has_classes: bool = True) -> LinearModel:
    """Return a linear model with the scaling, the feature names and classes of the source; a regression has none."""
    return LinearModel(
        coef=coef,
        intercept=float(intercept),
        classes=np.asarray(source.classes) if has_classes else np.empty(0),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )
