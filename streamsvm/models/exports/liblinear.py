"""Linear models as model files of LIBLINEAR.

A line of the file has the weights of a feature, one for each class if there are more than two; the last line has the
bias, which is the weight of a feature that is 1 in all rows. A score above 0 is for the first label.
Source: `save_model` in LIBLINEAR's linear.cpp; Fan, Chang, Hsieh, Wang & Lin 2008, "LIBLINEAR: a library for large
linear classification", Journal of Machine Learning Research 9.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.models.exports.exported import (
    ONLY_SCORES,
    Exported,
    name_loss,
    number_classes,
    require_finite,
    require_one_class_a_row,
    write_lines,
)
from streamsvm.models.exports.raw_rows import to_weights
from streamsvm.models.model import LinearModel, Model
from streamsvm.numeric.calibration import find_calibration

SOLVERS = {
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "squared_hinge": "L2R_L2LOSS_SVC",
    "logistic": "L2R_LR",
    "crammer_singer": "MCSVM_CS",
    "epsilon_insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared_epsilon_insensitive": "L2R_L2LOSS_SVR",
    "one_class": "ONECLASS_SVM",
}
SPARSE = {"squared_hinge": "L1R_L2LOSS_SVC", "logistic": "L1R_LR"}  # the solvers with the penalty l1
NUMBERS = "L2R_L1LOSS_SVR_DUAL"  # a model of it predicts its score
NO_FUNCTION = "the probabilities are left out: LIBLINEAR has those of the logistic loss alone"


def write_liblinear(model: Model) -> Exported:
    """Return a model as LIBLINEAR's text; InputError if it has no weights of raw rows."""
    require_one_class_a_row(model)
    linear = to_weights(model)
    require_finite(linear.coef, linear.intercept)
    labels, notes = number_classes(linear.classes) if _has_labels(linear) else ([], ())
    if linear.kind == "rank":
        notes = (ONLY_SCORES, *notes)
    if find_calibration(model.info) is not None:
        notes = (*notes, NO_FUNCTION)
    return Exported(_write(linear, labels), notes)


def _has_labels(model: LinearModel) -> bool:
    """Whether a score stands for one of the classes of the data, which LIBLINEAR's file then names."""
    return model.problem.predicts_labels and model.problem.own_classes is None


def _write(model: LinearModel, labels: list[int]) -> Iterator[str]:
    loss, several = name_loss(model), bool(model.score_shape)
    has_l1 = model.info.get("problem", {}).get("penalty") == "l1"
    solver = SPARSE.get(loss, SOLVERS[loss]) if has_l1 else SOLVERS[loss]
    if model.kind == "rank":
        solver = NUMBERS
    if solver == "MCSVM_CS" and not several:
        solver = SOLVERS["hinge"]  # two classes have one score, where LIBLINEAR's own joint problem has two
    yield f"solver_type {solver}\nnr_class {len(labels) or 2}\n"
    if labels:
        yield f"label {' '.join(map(str, labels if several else labels[::-1]))}\n"
    yield f"nr_feature {model.n_trained}\n"
    if solver == SOLVERS["one_class"]:
        yield f"bias -1\nrho {-float(model.intercept)!r}\nw\n"
        yield from write_lines(model.coef[:, None])
        return
    yield "bias 1\nw\n"
    yield from write_lines(np.atleast_2d(model.coef).T)
    yield from write_lines(np.atleast_2d(model.intercept))
