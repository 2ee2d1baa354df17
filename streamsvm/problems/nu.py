"""Problems with nu, a share of the rows: nu-SVC, nu-SVR and the one-class SVM.

In nu-SVC, nu replaces C:

    min over w, b, rho    1/2 |w|^2 - N rho + sum_i C_i max(0, rho - y_i (w.phi(x_i) + b))

    C_i = class_weight[y_i] * sample_weight_i,   N = nu sum_i C_i

At most the share nu of the rows have a margin below rho, and at least the share nu are support vectors, where each row
counts with its C_i. The model is (w.phi(x) + b) / rho, so that its margin is 1. Its multipliers, divided by rho, are
the multipliers of an SVM with C = 1 / rho. Such multipliers exist if the costs C_i of each class sum to at least N / 2.
K > 2 classes make K (K - 1) / 2 problems of two classes, each with the same nu.

In nu-SVR, nu replaces epsilon, over which the problem also minimises:

    min over w, b, epsilon >= 0    1/2 |w|^2 + N epsilon + sum_i C_i max(0, |t_i - (w.phi(x_i) + b)| - epsilon)

    C_i = C * sample_weight_i,   N = nu sum_i C_i

At most the share nu of the rows lie outside the tube, and at least the share nu are support vectors.

Source: Schoelkopf, Smola, Williamson & Bartlett 2000, "New support vector algorithms", Neural Computation 12.

The one-class SVM finds a region that contains most rows; rows outside are novel. It needs no labels.

    min over w, rho    1/2 |w|^2 - N rho + sum_i C_i max(0, rho - w.phi(x_i))

    C_i = sample_weight_i,   N = nu sum_i C_i

The score of a row is w.phi(x) - rho, and rows with scores above 0 lie in the region. At most the share nu of the rows
lie outside, and at least the share nu are support vectors, where each row counts with its weight. Source: Schoelkopf,
Platt, Shawe-Taylor, Smola & Williamson 2001, "Estimating the support of a high-dimensional distribution", Neural
Computation 13.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource
from streamsvm.options import TrainOptions, compute_class_costs
from streamsvm.problems.classification import OfClasses
from streamsvm.problems.problem import Folds, Labels, Problem, Scored, Scoring, roc_area
from streamsvm.problems.regression import OfTargets, read_numbers
from streamsvm.system.errors import InputError

NU = 0.5  # the default of LIBSVM
CLASSES = (-1, 1)  # the labels of novel rows, and of rows in the region
UNKNOWN, UNLABELLED = -1, -2  # the codes of a label that is neither class, and of a missing label
NOT_CHOSEN = (
    "the task one-class uses no labels, so it cannot be measured on held-out rows; choose its parameters yourself"
)


def read_share(options: TrainOptions) -> float:
    """Return nu. Raises InputError unless it is above 0 and at most 1."""
    nu = NU if options.nu is None else options.nu
    if not (isinstance(nu, Real) and 0.0 < nu <= 1.0):
        raise InputError(f"nu is {nu!r}; a share of the rows above 0 and at most 1 is expected")
    return float(nu)


def read_nu(options: TrainOptions) -> float:
    """Return nu. Raises InputError unless it is above 0 and at most 1, or if C is set, which nu replaces."""
    nu = read_share(options)
    if options.C != 1.0:
        raise InputError(f"C is {options.C:g}: nu replaces it in the task {options.task}, so do not set C")
    return nu


class OneClass(Problem):
    """The one-class SVM: a region that contains most rows."""

    name, models = "one-class", ("linear", "kernel")
    own_classes, needs_labels, has_nu = CLASSES, False, True

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:  # noqa: ARG002
        """Return the loss as settings and models report it."""
        return {"loss": "one_class", "row_cost": 1.0, "nu": read_nu(options)}

    def evaluate(self, parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:  # noqa: ARG002
        """Return the share of rows predicted as novel and, for rows labelled -1 and +1, measures of the predictions.

        false_alarm_rate: the share predicted as novel among the rows labelled +1. detection_rate: the share predicted
        as novel among the rows labelled -1. roc_area: the area over the rows with either label. Each measure is None if
        rows of the labels are missing.
        """
        scores, truth = [np.empty(0)], [np.empty(0, np.int64)]
        for part in parts:
            scores.append(part.scores)
            if part.truth is None or part.truth.dtype.kind == "f":  # Targets are not labels.
                truth.append(np.full(len(part.scores), UNLABELLED))
            else:
                truth.append(part.truth.astype(np.int64))
        all_scores, codes = np.concatenate(scores), np.concatenate(truth)
        novel, known = all_scores <= 0.0, codes >= 0
        return {
            "n_rows": len(all_scores),
            "novel_rate": _find_share(novel),
            "false_alarm_rate": _find_share(novel[codes == 1]),
            "detection_rate": _find_share(novel[codes == 0]),
            "roc_area": roc_area(all_scores[known], codes[known] == 1),
            "unknown_labels": int(np.count_nonzero(codes == UNKNOWN)),
        }

    def draw_folds(self, source: RowSource, folds: int, rng: np.random.Generator) -> Folds:  # noqa: ARG002
        """Raise InputError, since parameters cannot be compared without labels."""
        raise InputError(f"{source.name}: {NOT_CHOSEN}")

    def list_scorings(self, n_classes: int) -> tuple[Scoring, ...]:  # noqa: ARG002
        """Raise InputError, since scores cannot be compared without labels."""
        raise InputError(NOT_CHOSEN)


def _find_share(novel: npt.NDArray[np.bool_]) -> float | None:
    return float(np.mean(novel)) if len(novel) else None


ROUNDED_SHARE = 1e-12  # A nu that exceeds the largest feasible one by at most this share is feasible up to rounding.


class NuClassify(OfClasses):
    """nu-SVC: classification with nu in place of C."""

    name, models, has_nu = "nu-classify", ("kernel",), True

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:
        """Return the loss of two classes as settings and models report it. Raises InputError if nu is infeasible."""
        nu, costs = read_nu(options), compute_class_costs(source, options)
        sums = source.sum_weights()
        assert sums is not None
        totals = np.multiply(costs, sums)
        largest = 2 * float(np.min(totals)) / float(np.sum(totals)) if np.sum(totals) > 0.0 else 0.0
        if nu > largest * (1.0 + ROUNDED_SHARE):
            names = " and ".join(map(str, np.asarray(source.classes).tolist()))
            raise InputError(
                f"{source.name}: nu is {nu:g}, which is infeasible: for the classes {names} it can be at most "
                f"{largest:.6g}, twice the share of the smaller class; choose a smaller nu"
            )
        return {"loss": "nu_hinge", "class_costs": list(costs), "nu": nu}


class NuRegress(OfTargets):
    """nu-SVR: regression with nu in place of epsilon."""

    name, models, has_nu = "nu-regress", ("kernel",), True

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:
        """Return the loss as settings and models report it. Raises InputError for rows without targets."""
        read_numbers(source)
        return {"loss": "nu_tube", "row_cost": float(options.C), "nu": read_share(options)}


ONE_CLASS, NU_CLASSIFY, NU_REGRESS = OneClass(), NuClassify(), NuRegress()
