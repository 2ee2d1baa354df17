"""Fitted estimators of models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from streamsvm.errors import InputError
from streamsvm.estimators.budgeted import BudgetedSVC
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.linear import LinearSVC
from streamsvm.estimators.ranking import RankSVM
from streamsvm.models.model import LinearModel, Model
from streamsvm.models.model import load as load_model

Estimator = LinearSVC | SVC | BudgetedSVC | RankSVM


def load(path: str | Path) -> Estimator:
    """Return the fitted estimator of a model's file or a run's folder, ready to predict; runs no code.

    Its parameters are the defaults but for C, solver and the kernel's; n_iter_, n_passes_, history_ and result_, which
    tell of the training and not of the model, are left out. InputError if there is no model.
    """
    try:
        return make_estimator(load_model(path))
    except KeyError as error:
        raise InputError(f"{path}: not a model that streamsvm trained ({error} is missing)") from error


def make_estimator(model: Model) -> Estimator:
    """Return the estimator of a model; KeyError if it does not say how it was trained."""
    C, solver = model.info["C"], model.info["solver"]
    estimator: Any  # each takes models of its own kind
    if not model.problem.predicts_labels:
        estimator = RankSVM(C=C, task=model.problem.name)
    elif isinstance(model, LinearModel):
        estimator = LinearSVC(C=C, solver=solver)
    else:
        about = asdict(model.kernel)
        about["kernel"] = about.pop("name")
        estimator = BudgetedSVC(C=C, **about) if solver == "budgeted-sgd" else SVC(C=C, solver=solver, **about)
    estimator._take_model(model)
    return cast("Estimator", estimator)
