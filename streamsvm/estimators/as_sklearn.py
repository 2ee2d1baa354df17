"""`to_sklearn`: an estimator of scikit-learn's own that gives raw rows the scores of a model.

    linear models      f(x) = w.x + b                       LinearSVC, LogisticRegression, LinearSVR, SGDOneClassSVM
    sums of kernels    f(x) = sum_j c_j k(x, z_j) + b       the same with w = c, after the step x -> (k(x, z_1), ..)

Only public attributes are set, so that any version of scikit-learn takes them, and nothing of streamsvm is needed to
predict. A scaling of the rows is folded into weights, or is a StandardScaler before the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, SGDOneClassSVM
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVM
from streamsvm.estimators.low_rank import unfold
from streamsvm.models.exports.raw_rows import to_weights
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.calibration import find_calibration
from streamsvm.numeric.feature_maps import PolynomialMap
from streamsvm.numeric.rows import F64, CsrRows
from streamsvm.numeric.scaling import Scaling


def to_sklearn(fitted: BaseSVM | Model) -> Any:
    """Return a fitted estimator of scikit-learn that predicts what a model predicts, without streamsvm.

    Parameters
    ----------
    fitted : estimator, or model
        A fitted estimator of streamsvm, what `streamsvm.load` returns, or its `model_`.

    Returns
    -------
    estimator
        LinearSVC, LogisticRegression (of two classes and the logistic loss), LinearSVR (of regressions, and of
        rankings, whose prediction is the score) or SGDOneClassSVM; of sums of kernels a Pipeline that ends with one. It
        takes raw rows; of tables with text, their features. It is not meant to be fitted anew.

    Raises
    ------
    InputError
        For a model that scikit-learn has no such estimator for: sets of labels, all pairs of more than two classes,
        kernels that were given as a matrix, polynomial maps, and calibrated probabilities are not carried over.
    """
    model: Model = fitted if isinstance(fitted, LinearModel | KernelModel) else fitted._find_model()
    _refuse(model)
    if model.features is not None:
        assert isinstance(model, LinearModel)
        model = unfold(model)
    if isinstance(model, KernelModel) and model.kernel.name != "linear":
        return _make_pipeline(model)
    weights = to_weights(model)
    made = _make_linear(weights, weights.coef, weights.intercept)
    if weights.feature_names is not None:
        made.feature_names_in_ = np.array(weights.feature_names, object)
    return made


def _refuse(model: Model) -> None:
    """Raise InputError for a model without an equal estimator."""
    reason = None
    if model.problem.has_label_sets:
        reason = "its rows have sets of labels: export it to onnx, csv or json"
    elif isinstance(model, KernelModel) and model.is_of_known_values:
        reason = "its kernel was given as a matrix"
    elif isinstance(model, KernelModel) and model.n_support is not None:
        reason = "it votes over all pairs of classes: export it to libsvm or onnx, or train with multi_class='ovr'"
    elif model.features is not None and isinstance(model.features.map, PolynomialMap):
        reason = "it learned from a polynomial map of the rows"
    elif find_calibration(model.info) is not None:
        reason = "its probabilities are calibrated: train without them, or wrap the estimator in CalibratedClassifierCV"
    if reason is not None:
        raise InputError(f"scikit-learn has no estimator for this model, since {reason}")


def _make_linear(model: Model, coef: F64, intercept: Any) -> Any:
    """Return a fitted linear estimator with these weights of the problem that the model solves."""
    problem, b = model.problem, np.atleast_1d(np.asarray(intercept, np.float64))
    if not problem.needs_labels:
        made = SGDOneClassSVM()
        made.coef_, made.offset_ = coef, -b
    elif problem.predicts_labels:
        is_logistic = model.info.get("loss") == "logistic" and not model.score_shape
        C = float(model.info.get("C", 1.0))
        made = LogisticRegression(C=C) if is_logistic else LinearSVC(C=C)
        made.coef_, made.intercept_, made.classes_ = np.atleast_2d(coef), b, model.classes
    else:
        made = LinearSVR()
        made.coef_, made.intercept_ = coef, b
    made.n_features_in_ = coef.shape[-1]
    return made


def _make_pipeline(model: KernelModel) -> Pipeline:
    """Return the kernel values with the support vectors, and then a linear estimator whose weights are c."""
    kernel, Z = model.kernel, model.support_vectors
    vectors = csr_array((Z.data, Z.indices, Z.indptr), Z.shape) if isinstance(Z, CsrRows) else Z
    known = {"rbf": ("gamma",), "poly": ("gamma", "degree", "coef0"), "sigmoid": ("gamma", "coef0")}[kernel.name]
    given = {"Y": vectors.astype(np.float64), "metric": kernel.name, **{name: getattr(kernel, name) for name in known}}
    values = FunctionTransformer(pairwise_kernels, kw_args=given, accept_sparse=True, check_inverse=False)
    steps = [] if model.scaling is None else [_make_scaler(model.scaling)]
    return make_pipeline(*steps, values, _make_linear(model, model.dual_coef, model.intercept))


def _make_scaler(scaling: Scaling) -> StandardScaler:
    """Return the step x -> (x - o) * s."""
    scaler = StandardScaler(with_mean=bool(np.any(scaling.offset)))
    scaler.mean_, scaler.scale_ = scaling.offset, 1 / scaling.factor
    scaler.var_, scaler.n_features_in_ = scaler.scale_**2, len(scaling.offset)
    return scaler
