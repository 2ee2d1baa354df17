"""Weights of linear models as a table: a line for each feature, and at last one for the bias.

Texts are cells that no spreadsheet takes for formulas (data.csv_cells).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.data.csv_cells import write_cell
from streamsvm.models.exports.exported import BLOCK, Exported, require_finite
from streamsvm.models.exports.raw_rows import to_weights
from streamsvm.models.model import LinearModel, Model
from streamsvm.numeric.calibration import find_calibration

BIAS = "(bias)"
NO_FUNCTION = "the probabilities are left out: the table has the weights alone"


def write_csv(model: Model) -> Exported:
    """Return the weights for raw rows as CSV; InputError if the model has none."""
    linear = to_weights(model)
    require_finite(linear.coef, linear.intercept)
    return Exported(_write(linear), () if find_calibration(model.info) is None else (NO_FUNCTION,))


def _write(model: LinearModel) -> Iterator[str]:
    names = [f"weight {name}" for name in model.classes.tolist()] if model.score_shape else ["weight"]
    yield _write_line(["feature", *map(write_cell, names)])
    W = np.atleast_2d(model.coef).T
    for at in range(0, len(W), BLOCK):
        for j, weights in enumerate(W[at : at + BLOCK].tolist(), start=at):
            name = str(j + 1) if model.feature_names is None else write_cell(model.feature_names[j])
            yield _write_line([name, *map(repr, weights)])
    yield _write_line([BIAS, *map(repr, np.atleast_1d(model.intercept).tolist())])


def _write_line(cells: list[str]) -> str:
    return f"{','.join(cells)}\n"
