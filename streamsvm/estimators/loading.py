"""Fitted estimators from models: `load` returns streamsvm's estimators, `to_sklearn` returns scikit-learn's.

The estimators of `to_sklearn` give raw rows the scores of the model.

    linear models      f(x) = w.x + b                       LinearSVC, LogisticRegression, LinearSVR, SGDOneClassSVM
    sums of kernels    f(x) = sum_j c_j k(x, z_j) + b       the same with w = c, after the step x -> (k(x, z_1), ..)

Only public attributes are set, so any version of scikit-learn accepts them, and predictions do not need streamsvm. A
scaling of the rows is folded into the weights, or becomes a StandardScaler before the kernel.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array
from sklearn import linear_model, svm
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelBinarizer, StandardScaler

from streamsvm.estimators.base import BaseSVM
from streamsvm.estimators.budgeted import BudgetedSVC, BudgetedSVR
from streamsvm.estimators.kernel import SVC, SVR, NuSVC, NuSVR, OneClassSVM, unfold
from streamsvm.estimators.libsvm_like import get_class_factors
from streamsvm.estimators.linear import LinearOneClassSVM, LinearSVC, LinearSVR, RankSVM
from streamsvm.estimators.logistic import LogisticRegression
from streamsvm.estimators.tasks import BaseOneClass, BaseSVC, BaseSVR
from streamsvm.kernels.feature_maps import PolynomialMap
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.calibration import find_calibration
from streamsvm.models.evaluate import WITH_PROBABILITIES
from streamsvm.models.exports.export import to_weights
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.models.model import load as load_model
from streamsvm.numeric.rows import F64, CsrRows
from streamsvm.numeric.stored_types import Scaling
from streamsvm.problems.nu import NU_CLASSIFY, NU_REGRESS, ONE_CLASS
from streamsvm.problems.registry import MULTI_CLASS, PROBLEMS, SOFTMAX, find_entry
from streamsvm.problems.regression import REGRESS
from streamsvm.solvers import options
from streamsvm.solvers.options import SMO, InteriorPoint, KernelFeatures
from streamsvm.solvers.registry import AUTO, find_solver
from streamsvm.system.errors import InputError

Estimator = BaseSVC | BaseSVR | BaseOneClass | RankSVM
KINDS: dict[str, tuple[Any, Any]] = {  # by task: the estimators of linear models and of sums of kernels
    REGRESS.name: (LinearSVR, SVR),
    ONE_CLASS.name: (LinearOneClassSVM, OneClassSVM),
    NU_CLASSIFY.name: (None, NuSVC),
    NU_REGRESS.name: (None, NuSVR),
}
BUDGETED = {SVC: BudgetedSVC, SVR: BudgetedSVR}


def load(path: str | Path) -> Estimator:
    """Return a fitted estimator that is ready to predict. Loading runs no code in the file.

    C, solver, class_weight, multi_class, intercept_scaling, the kernel's parameters and the feature map are those of
    the training; all other parameters have their defaults. The fitted attributes are those of `fit`, except n_iter_,
    n_passes_, history_ and result_, which describe the training. For an imported model of another program, the
    attributes of the certificate are None.

    Parameters
    ----------
    path : path
        A model file, the folder of a run, or the URL of either in an object store.

    Returns
    -------
    LinearSVC, LinearSVR, LogisticRegression, SVC, SVR, BudgetedSVC, BudgetedSVR, NuSVC, NuSVR,
    OneClassSVM, LinearOneClassSVM or RankSVM

    Raises
    ------
    InputError
        If there is no model, or if the file is damaged.
    """
    try:
        return make_estimator(load_model(path))
    except KeyError as error:
        raise InputError(f"{path}: this is not a model that streamsvm trained ({error} is missing)") from error


def make_estimator(model: Model) -> Estimator:
    """Return a fitted estimator for a model. Raises KeyError if the model lacks the record of its training."""
    kind = _choose_kind(model)
    known = _get_training(model)
    estimator = kind(**{name: known[name] for name in kind().get_params() if name in known})
    estimator._set_model(model)
    return cast("Estimator", estimator)


def _choose_kind(model: Model) -> Any:
    """Return the estimator class for a model. Raises InputError if there is none."""
    task = model.problem.name
    linear = LogisticRegression if model.loss in WITH_PROBABILITIES else LinearSVC
    default: tuple[Any, Any] = (linear, SVC) if model.problem.predicts_labels else (None, None)
    if find_entry(task).has_kind("pairs"):
        default = (RankSVM, None)
    found = KINDS.get(task, default)[isinstance(model, KernelModel)]
    if found is None:
        raise InputError(f"there is no estimator for models of the task {task}; use `streamsvm predict`")
    return BUDGETED.get(found, found) if model.info["solver"] == "budgeted-sgd" else found


def _get_training(model: Model) -> dict[str, Any]:
    """Return the recorded parameters of the training; the estimator may lack some of these parameters.

    Models of other programs have only the loss and the kernel.
    """
    if "status" not in model.info:
        kernel = _name_kernel(model.kernel) if isinstance(model, KernelModel) else {}
        return kernel | (_name_multi_class(model) or {"loss": model.info["loss"]})
    task, info, problem, factors = model.problem.name, model.info, model.info.get("problem"), get_class_factors(model)
    recorded: dict[str, Any] = problem if isinstance(problem, dict) else {}
    known = {"C": info["C"], "solver": info["solver"], "task": task, "penalty": recorded.get("penalty", "l2")}
    known |= {"nu": info["problem"]["nu"]} if model.problem.has_nu else {}
    known |= {"loss": info["loss"]} if info.get("loss") else {}
    if task == REGRESS.name:
        known |= {"epsilon": info["problem"]["tube"], "loss": info["problem"]["loss"]}
    if isinstance(model, KernelModel):
        known |= {"fit_intercept": bool(np.any(model.intercept)), **_name_kernel(model.kernel)}
    else:
        if info["solver"] == find_solver(AUTO, task, info.get("loss")).name:
            known["solver"] = AUTO
        known |= {"fit_intercept": recorded.get("bias_feature") != 0, **_name_map(model)}
    if (way := find_calibration(info)) is not None:
        known["probability"] = way
    if recorded.get("bias_feature"):  # 0 stands for no bias
        known["intercept_scaling"] = recorded["bias_feature"]
    if factors is not None and np.any(factors != 1.0):
        known["class_weight"] = dict(zip(model.classes.tolist(), factors.tolist(), strict=True))
    if "approximation" in info:
        known["solver"] = InteriorPoint(approximation=info["approximation"], n_components=info["rank"])
    elif isinstance(model, KernelModel) and recorded.get("bias_feature", 1.0) != SMO.intercept_scaling:
        known["solver"] = SMO(intercept_scaling=recorded["bias_feature"])
    return known | _name_multi_class(model)


def _name_multi_class(model: Model) -> dict[str, str]:
    """Return the parameter multi_class, or nothing if the model was trained in the estimator's default way."""
    task = model.problem.name
    if model.loss in WITH_PROBABILITIES:
        penalty = model.info.get("problem", {}).get("penalty", "l2")
        is_ovr = model.loss != SOFTMAX and model.score_shape and not model.problem.has_label_sets and penalty == "l2"
        return {"multi_class": "ovr"} if is_ovr else {}
    joint = next((name for name, other in MULTI_CLASS.items() if other == task != next(iter(PROBLEMS))), None)
    if joint is not None:
        return {"multi_class": joint}
    if not isinstance(model, KernelModel) or model.support is None or model.n_support is not None:
        return {}
    return {"multi_class": "ovr"} if model.dual_coef.ndim > 1 and not find_entry(task).has_kind("classes") else {}


def _name_map(model: LinearModel) -> dict[str, Any]:
    """Return the parameters of a model's map; empty without a map, or for an unnamed map of earlier versions."""
    found = None if model.features is None else model.features.map
    if isinstance(found, PolynomialMap):
        return {"feature_map": options.PolynomialMap()}
    if found is None or found.approximation is None:
        return {}
    kind = next(kind for kind in KernelFeatures.__subclasses__() if kind.name == found.approximation)
    return {"feature_map": kind(n_components=found.rank, **_name_kernel(found.kernel))}


def _name_kernel(kernel: Kernel) -> dict[str, Any]:
    about = asdict(kernel)
    return {"kernel": about.pop("name"), **about}


def to_sklearn(fitted: BaseSVM | Model) -> Any:
    """Return a fitted scikit-learn estimator with the predictions of a model, independent of streamsvm.

    Parameters
    ----------
    fitted : estimator, or model
        A fitted estimator of streamsvm, such as `streamsvm.load` returns, or its `model_`.

    Returns
    -------
    estimator
        LinearSVC, LogisticRegression (within OneVsRestClassifier for more than two classes, one against the rest),
        LinearSVR (for regressions, and for rankings, where it predicts the score) or SGDOneClassSVM; for sums of
        kernels, a Pipeline that ends with one of these. It takes raw rows or, for tables with text, their features. It
        is not meant to be refitted.

    Raises
    ------
    InputError
        For a model without an equivalent in scikit-learn: with sets of labels, all pairs of more than two classes, a
        precomputed kernel, a polynomial map, or calibrated probabilities.
    """
    model: Model = fitted if isinstance(fitted, LinearModel | KernelModel) else fitted._get_model()
    _refuse_export(model)
    if model.features is not None:
        model = unfold(model)
    if isinstance(model, KernelModel) and model.kernel.name != "linear":
        return _make_pipeline(model)
    weights = to_weights(model)
    made = _make_linear(weights, weights.coef, weights.intercept)
    if weights.feature_names is not None:
        made.feature_names_in_ = np.array(weights.feature_names, object)
    return made


def _refuse_export(model: Model) -> None:
    """Raise InputError for a model without an equivalent in scikit-learn."""
    reason = None
    if model.problem.has_label_sets:
        reason = "its rows have sets of labels; export it to onnx, csv or json"
    elif isinstance(model, KernelModel) and model.is_of_known_values:
        reason = "its kernel was given as a matrix"
    elif isinstance(model, KernelModel) and model.n_support is not None:
        reason = "it votes over all pairs of classes; export it to libsvm or onnx, or train with multi_class='ovr'"
    elif model.features is not None and isinstance(model.features.map, PolynomialMap):
        reason = "it learned from a polynomial map of the rows"
    elif find_calibration(model.info) is not None:
        reason = "its probabilities are calibrated; train without them, or wrap the estimator in CalibratedClassifierCV"
    if reason is not None:
        raise InputError(f"scikit-learn has no estimator for this model, since {reason}")


def _make_linear(model: Model, coef: F64, intercept: Any) -> Any:
    """Return a fitted linear estimator for the model's problem, with these weights."""
    problem, b = model.problem, np.atleast_1d(np.asarray(intercept, np.float64))
    if not problem.needs_labels:
        made = linear_model.SGDOneClassSVM()
        made.coef_, made.offset_ = coef, -b
    elif problem.predicts_labels:
        C, is_logistic = float(model.info.get("C", 1.0)), model.loss in WITH_PROBABILITIES
        if model.loss == "logistic" and model.score_shape:
            return _make_one_for_each_class(C, model.classes, coef, b)
        made = linear_model.LogisticRegression(C=C) if is_logistic else svm.LinearSVC(C=C)
        made.coef_, made.intercept_, made.classes_ = np.atleast_2d(coef), b, model.classes
    else:
        made = svm.LinearSVR()
        made.coef_, made.intercept_ = coef, b
    made.n_features_in_ = coef.shape[-1]
    return made


def _make_one_for_each_class(C: float, classes: Any, coef: F64, intercept: F64) -> OneVsRestClassifier:
    """Return logistic regressions of each class against the rest, whose probabilities are divided by their sum."""
    made = OneVsRestClassifier(linear_model.LogisticRegression(C=C))
    made.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    made.classes_, made.estimators_ = made.label_binarizer_.classes_, []
    for w, b in zip(coef, intercept, strict=True):
        made.estimators_.append(clone(made.estimator))
        of_class = made.estimators_[-1]
        of_class.coef_, of_class.intercept_ = w[None, :], np.array([b])
        of_class.classes_, of_class.n_features_in_ = np.array([0, 1]), len(w)
    made.n_features_in_ = coef.shape[1]
    return made


def _make_pipeline(model: KernelModel) -> Pipeline:
    """Return a pipeline: kernel values with the support vectors, then a linear estimator with the weights c."""
    kernel, Z = model.kernel, model.support_vectors
    vectors = csr_array((Z.data, Z.indices, Z.indptr), Z.shape) if isinstance(Z, CsrRows) else Z
    known = {"rbf": ("gamma",), "poly": ("gamma", "degree", "coef0"), "sigmoid": ("gamma", "coef0")}[kernel.name]
    given = {"Y": vectors.astype(np.float64), "metric": kernel.name, **{name: getattr(kernel, name) for name in known}}
    values = FunctionTransformer(pairwise_kernels, kw_args=given, accept_sparse=True, check_inverse=False)
    steps = [] if model.scaling is None else [_make_scaler(model.scaling)]
    return make_pipeline(*steps, values, _make_linear(model, model.dual_coef, model.intercept))


def _make_scaler(scaling: Scaling) -> StandardScaler:
    """Return the pipeline step x -> (x - o) * s."""
    scaler = StandardScaler(with_mean=bool(np.any(scaling.offset)))
    scaler.mean_, scaler.scale_ = scaling.offset, 1 / scaling.factor
    scaler.var_, scaler.n_features_in_ = scaler.scale_**2, len(scaling.offset)
    return scaler
