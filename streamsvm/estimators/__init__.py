"""scikit-learn estimators; they translate, and leave the work to train and predict."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from streamsvm.errors import InputError
from streamsvm.estimators.budgeted import BudgetedSVC
from streamsvm.estimators.kernel import SVC
from streamsvm.estimators.linear import LinearSVC
from streamsvm.estimators.ranking import RankSVM
from streamsvm.models import LinearModel, RankModel
from streamsvm.models import load as load_model

__all__ = ["SVC", "BudgetedSVC", "LinearSVC", "RankSVM", "load"]


def load(path: str | Path) -> LinearSVC | SVC | BudgetedSVC | RankSVM:
    """Return the fitted estimator of a model's file or a run's folder, ready to predict; runs no code.

    Its parameters are the defaults but for C, solver and the kernel's; n_iter_, n_passes_, history_ and result_, which
    tell of the training and not of the model, are left out. InputError if there is no model.
    """
    model = load_model(path)
    try:
        C, solver = model.info["C"], model.info["solver"]
        if isinstance(model, RankModel):
            ranking = RankSVM(C=C, task=model.info["task"])
            ranking._take_model(model)
            return ranking
        if isinstance(model, LinearModel):
            linear = LinearSVC(C=C, solver=solver)
            linear._take_model(model)
            return linear
        about = asdict(model.kernel)
        about["kernel"] = about.pop("name")
        estimator = BudgetedSVC(C=C, **about) if solver == "budgeted-sgd" else SVC(C=C, solver=solver, **about)
        estimator._take_model(model)
    except KeyError as error:
        raise InputError(f"{path}: not a model that streamsvm trained ({error} is missing)") from error
    return estimator
