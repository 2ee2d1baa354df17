"""The largest weights of a linear model by the names of their features."""

from __future__ import annotations

import numpy as np

from streamsvm.cli.pages.bars import draw_bars
from streamsvm.cli.pages.page import Section
from streamsvm.models.model import LinearModel, Model
from streamsvm.numeric.rows import F64

MOST_WEIGHTS = 15
MOST_CLASSES = 6  # with a chart each


def show_weights(model: Model) -> Section:
    """Return charts of the weights that are largest in absolute value; an empty section for models of kernels."""
    if not isinstance(model, LinearModel):
        return Section("Largest weights")
    of = "the features that the map makes" if model.features is not None else "the features"
    scaled = "" if model.scaling is None else f", which were scaled ({model.scaling.kind})"
    notes = [f"Weights of {of}{scaled}, largest first, with their signs."]
    W = np.atleast_2d(model.coef)
    if len(W) == 1:
        if len(model.classes) == 2:
            notes.append(f"A weight above 0 speaks for {model.classes[1]}, and one below 0 for {model.classes[0]}.")
        return Section("Largest weights", notes, [draw_bars("Largest weights", _list_largest(model, W[0]))])
    if len(W) > MOST_CLASSES:
        notes.append(f"The charts show the first {MOST_CLASSES} of {len(W):,} classes or labels.")
    named = list(zip(model.classes.tolist(), W, strict=True))[:MOST_CLASSES]
    return Section("Largest weights", notes, [draw_bars(f"For {name}", _list_largest(model, w)) for name, w in named])


def _list_largest(model: LinearModel, w: F64) -> list[tuple[str, float, str]]:
    """Return names, weights and texts of the largest weights other than zero."""
    order = np.argsort(-np.abs(w), kind="stable")[:MOST_WEIGHTS]
    return [(_name(model, int(j)), float(w[j]), f"{w[j]:.4g}") for j in order if w[j] != 0]


def _name(model: LinearModel, j: int) -> str:
    """Return the name of a feature, or its number from 1 if it has none."""
    named = model.feature_names is not None and model.features is None
    return model.feature_names[j] if named and model.feature_names is not None else f"feature {j + 1}"
