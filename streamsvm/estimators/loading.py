"""`load`: a fitted estimator from a model's file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from streamsvm.errors import InputError
from streamsvm.estimators.budgeted import BudgetedSVC
from streamsvm.estimators.budgeted_regression import BudgetedSVR
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.kernel_regression import SVR
from streamsvm.estimators.linear import LinearSVC
from streamsvm.estimators.linear_base import read_fit_intercept
from streamsvm.estimators.linear_one_class import LinearOneClassSVM
from streamsvm.estimators.logistic import LogisticRegression
from streamsvm.estimators.nu import NuSVC, NuSVR
from streamsvm.estimators.one_class import OneClassSVM
from streamsvm.estimators.ranking import RankSVM
from streamsvm.estimators.recalled import recall_parameters
from streamsvm.estimators.regression import LinearSVR
from streamsvm.methods.registry import AUTO, find_method
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.models.model import load as load_model
from streamsvm.numeric.calibration import find_calibration
from streamsvm.numeric.feature_maps import PolynomialMap
from streamsvm.numeric.kernels import Kernel
from streamsvm.problems.nu import NU_CLASSIFY, NU_REGRESS
from streamsvm.problems.one_class import ONE_CLASS
from streamsvm.problems.registry import MULTI_CLASS, PROBLEMS, find_entry
from streamsvm.problems.regression import REGRESS

Estimator = (
    LinearSVC
    | LinearSVR
    | LogisticRegression
    | SVC
    | SVR
    | BudgetedSVC
    | BudgetedSVR
    | NuSVC
    | NuSVR
    | OneClassSVM
    | LinearOneClassSVM
    | RankSVM
)


def load(path: str | Path) -> Estimator:
    """Return a fitted estimator that is ready to predict. No code in the file is run.

    C, solver, class_weight, multi_class, intercept_scaling, the kernel's parameters and the feature map are those of
    the training; all other parameters have their defaults. The fitted attributes are those of `fit`, without n_iter_,
    n_passes_, history_ and result_, which describe the training.

    Parameters
    ----------
    path : path
        A model's file, or the folder of a run.

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
    """Return the fitted estimator of a model; KeyError if the model does not say how it was trained."""
    C = model.info["C"]
    estimator: Any  # each estimator takes models of its own kind
    if model.problem.name == REGRESS.name:
        estimator = _make_regression(model)
    elif model.problem.name == ONE_CLASS.name:
        estimator = _make_one_class(model)
    elif model.problem.name == NU_REGRESS.name and isinstance(model, KernelModel):
        estimator = NuSVR(nu=model.info["problem"]["nu"], C=C, **_name_kernel(model.kernel))
    elif model.problem.predicts_labels and isinstance(model, LinearModel):
        estimator = _make_linear_classifier(model)
    elif model.problem.predicts_labels and isinstance(model, KernelModel):
        estimator = _make_kernel_classifier(model)
    elif find_entry(model.problem.name).compares_pairs:
        estimator = RankSVM(C=C, task=model.problem.name)
    else:
        raise InputError(f"there is no estimator for models of the task {model.problem.name}; use `streamsvm predict`")
    way = find_calibration(model.info)
    if way is not None and hasattr(estimator, "probability"):
        estimator.set_params(probability=way)
    if isinstance(model, LinearModel) and "feature_map" in estimator.get_params():
        estimator.set_params(**_name_map(model))
    known = recall_parameters(model).items()
    estimator.set_params(**{name: value for name, value in known if name in estimator.get_params()})
    estimator._take_model(model)
    return cast("Estimator", estimator)


def _make_linear_classifier(model: LinearModel) -> LinearSVC | LogisticRegression:
    task, loss, solver = model.problem.name, model.info.get("loss"), model.info["solver"]
    problem = model.info.get("problem")
    about = {"C": model.info["C"], "fit_intercept": read_fit_intercept(problem), "penalty": _read_penalty(problem)}
    if loss == "logistic":
        return LogisticRegression(**about)
    named = AUTO if solver == find_method(AUTO, task, loss).name else solver
    multi_class = _name_multi_class(model) or next(iter(MULTI_CLASS))
    return LinearSVC(solver=named, loss=loss or "hinge", multi_class=multi_class, **about)


def _read_penalty(problem: Any) -> str:
    return str(problem.get("penalty", "l2")) if isinstance(problem, dict) else "l2"


def _make_regression(model: Model) -> LinearSVR | SVR | BudgetedSVR:
    problem, solver = model.info["problem"], model.info["solver"]
    C, epsilon = model.info["C"], problem["tube"]
    if isinstance(model, LinearModel):
        has_bias = read_fit_intercept(problem)
        return LinearSVR(C=C, epsilon=epsilon, loss=problem["loss"], fit_intercept=has_bias)
    about = _name_kernel(model.kernel)
    if solver == "budgeted-sgd":
        has_bias = bool(model.intercept != 0.0)
        return BudgetedSVR(C=C, epsilon=epsilon, loss=problem["loss"], fit_intercept=has_bias, **about)
    return SVR(C=C, epsilon=epsilon, solver=solver, **about)


def _name_map(model: LinearModel) -> dict[str, Any]:
    """Return the parameters of the map of a model: none if it has no map, or one without a name (earlier versions)."""
    found = None if model.features is None else model.features.map
    if isinstance(found, PolynomialMap):
        return {"feature_map": "polynomial"}
    if found is None or found.approximation is None:
        return {}
    return {"feature_map": found.approximation, "rank": found.rank, **_name_kernel(found.kernel)}


def _make_kernel_classifier(model: KernelModel) -> SVC | NuSVC | BudgetedSVC:
    C, solver, about = model.info["C"], model.info["solver"], _name_kernel(model.kernel)
    if model.problem.name == NU_CLASSIFY.name:
        return NuSVC(nu=model.info["problem"]["nu"], **about)
    if solver == "budgeted-sgd":
        return BudgetedSVC(C=C, **about)
    joint = _name_multi_class(model)
    if joint is None:
        return SVC(C=C, solver=solver, **about)
    return SVC(C=C, solver=solver, multi_class=joint, **about)


def _name_multi_class(model: Model) -> str | None:
    """Return scikit-learn's name of a way to train many classes that is a problem of its own; else None."""
    task = model.problem.name
    return next((name for name, known in MULTI_CLASS.items() if known == task != next(iter(PROBLEMS))), None)


def _make_one_class(model: Model) -> OneClassSVM | LinearOneClassSVM:
    nu = model.info["problem"]["nu"]
    if isinstance(model, KernelModel):
        return OneClassSVM(solver=model.info["solver"], nu=nu, **_name_kernel(model.kernel))
    return LinearOneClassSVM(nu=nu)


def _name_kernel(kernel: Kernel) -> dict[str, Any]:
    about = asdict(kernel)
    return {"kernel": about.pop("name"), **about}
