"""Models of raw rows that have the scores of models of scaled rows, as other programs need them.

Scaled rows are x' = (x - o) * s. A linear model folds the scaling into its weights (numeric.scaling). A linear kernel
folds it into the support vectors:

    sum_j c_j z_j.x' + b = sum_j c_j (s * z_j).x + b - sum_j c_j (s * z_j).o

Other kernels of scaled rows are no kernels of raw rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.errors import InputError
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.models.saved_model import Intercept
from streamsvm.numeric.kernels import combine_rows
from streamsvm.numeric.pairs_of_classes import sum_by_class
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, CsrRows, Matrix
from streamsvm.numeric.scaling import Scaling


def to_raw(model: Model) -> Model:
    """Return a model that scores raw rows as the model scores scaled ones; InputError if there is no such model."""
    scaling = model.scaling
    if scaling is None:
        return model
    if isinstance(model, LinearModel):
        coef, intercept = scaling.to_raw(model.coef, model.intercept)
        return replace(model, coef=coef, intercept=intercept, scaling=None)
    if model.kernel.name != "linear":
        raise InputError(
            f"the rows were scaled (--scale {scaling.kind}), and a kernel {model.kernel.name} of scaled rows is no "
            "kernel of raw rows, which are all that this format knows; choose --to onnx or --to json, which carry the "
            "scaling, or train on rows that were ingested without --scale"
        )
    vectors = _scale_vectors(model.support_vectors, scaling)
    intercept = _move_intercept(model, compute_scores(vectors, scaling.offset[None, :])[:, 0])
    return replace(model, support_vectors=vectors, intercept=intercept, scaling=None)


def _scale_vectors(vectors: Matrix, scaling: Scaling) -> Matrix:
    """Return the support vectors times the factors of their features, in float64."""
    if isinstance(vectors, CsrRows):
        data: Any = vectors.data.astype(np.float64) * scaling.factor[vectors.indices]
        return replace(vectors, data=data)
    scaled: Any = vectors.astype(np.float64) * scaling.factor
    return scaled  # type: ignore[no-any-return]


def _move_intercept(model: KernelModel, moved: F64) -> Intercept:
    """Return the intercepts less the sums of what the offsets have moved at each support vector, (m,)."""
    if model.n_support is None:
        found: Intercept = model.intercept - model.dual_coef @ moved
        return found
    sums = sum_by_class(model.n_support, 1, lambda block: (model.dual_coef[:, block] @ moved[block])[None, :])
    each: Intercept = model.intercept - sums[0]
    return each


def to_weights(model: Model) -> LinearModel:
    """Return weights and bias for raw rows; InputError if the model has none, with the formats that carry it."""
    if isinstance(model, LinearModel):
        found = to_raw(model)
        assert isinstance(found, LinearModel)
        return found
    if model.kernel.name != "linear":
        raise InputError(
            f"a model of the kernel {model.kernel.name} has no weights; choose --to libsvm, --to onnx or --to json"
        )
    if model.n_support is not None:
        raise InputError(
            "a model of all pairs of classes has no weights of a class: choose --to libsvm, --to onnx or --to json, or "
            "train with --multi-class ovr"
        )
    raw = to_raw(model)
    assert isinstance(raw, KernelModel)
    rows = [combine_rows(raw.support_vectors, coef) for coef in np.atleast_2d(raw.dual_coef)]
    w = np.stack(rows) if raw.dual_coef.ndim > 1 else rows[0]
    return LinearModel(w, raw.intercept, raw.classes, None, raw.feature_names, raw.info)
