"""What solvers of linear models return."""

from __future__ import annotations

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64


def make_linear_model(source: RowSource, coef: F64, intercept: float) -> LinearModel:
    """Return the model of rows like those of the source: its classes, scaling and names of features."""
    return LinearModel(
        coef=coef,
        intercept=float(intercept),
        classes=np.asarray(source.classes),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )
