"""One class: a region that holds most rows, from which novel rows are told. No labels are needed.

    min over w, rho    1/2 |w|^2 - N rho + sum_i C_i max(0, rho - w.phi(x_i))

    C_i = sample_weight_i,   N = nu sum_i C_i

The score of a row is w.phi(x) - rho, and rows with scores above 0 lie in the region. At most the share nu of the rows
lies outside, and at least the share nu are support vectors, where a row counts as much as its weight.
Source: Schoelkopf, Platt, Shawe-Taylor, Smola & Williamson 2001, "Estimating the support of a high-dimensional
distribution", Neural Computation 13.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.numeric.rows import F64, I64
from streamsvm.options import TrainOptions
from streamsvm.problems.labels import code_as_classes
from streamsvm.problems.measures import roc_area
from streamsvm.problems.problem import Labels, Problem, Scored

NU = 0.5  # the default of LIBSVM
CLASSES = (-1, 1)  # novel rows, and rows of the class
UNKNOWN, UNLABELLED = -1, -2  # in place of the code of a label: one that is neither class, and none
NOT_CHOSEN = "the task one-class has no labels by which held-out rows could be judged"


def read_share(options: TrainOptions) -> float:
    """Return nu; InputError if it is no share of the rows."""
    nu = NU if options.nu is None else options.nu
    if not (isinstance(nu, Real) and 0.0 < nu <= 1.0):
        raise InputError(f"nu is {nu!r}; a share of the rows above 0 and at most 1 is expected")
    return float(nu)


def read_nu(options: TrainOptions) -> float:
    """Return nu; InputError if it is no share of the rows, or if there is a C, which nu takes the place of."""
    nu = read_share(options)
    if options.C != 1.0:
        raise InputError(f"C is {options.C:g}: the task {options.task} has nu in its place; leave C out")
    return nu


def tell_loss(source: RowSource, options: TrainOptions) -> dict[str, Any]:  # noqa: ARG001
    """Return the loss as it is told in settings and models."""
    return {"loss": "one_class", "row_cost": 1.0, "nu": read_nu(options)}


def count_one(_: Any) -> int:
    """Return 1: there is one problem, and one score for each row."""
    return 1


def evaluate(parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:  # noqa: ARG001
    """Return the share of rows that are called novel; where rows are labelled -1 and +1, also how right that is.

    false_alarm_rate: the share that is called novel among the rows labelled +1. detection_rate: the same among the rows
    labelled -1. roc_area: of both. Each is None without such rows: of rows without labels only the share is known.
    """
    scores, truth = [np.empty(0)], [np.empty(0, np.int64)]
    for part in parts:
        scores.append(part.scores)
        if part.truth is None or part.truth.dtype.kind == "f":  # targets are no labels
            truth.append(np.full(len(part.scores), UNLABELLED))
        else:
            truth.append(part.truth.astype(np.int64))
    all_scores, codes = np.concatenate(scores), np.concatenate(truth)
    novel, known = all_scores <= 0.0, codes >= 0
    return {
        "n_rows": len(all_scores),
        "novel_rate": float(np.mean(novel)) if len(novel) else None,
        "false_alarm_rate": _share(novel, codes == 1),
        "detection_rate": _share(novel, codes == 0),
        "roc_area": roc_area(all_scores[known], codes[known] == 1),
        "unknown_labels": int(np.count_nonzero(codes == UNKNOWN)),
    }


def _share(novel: npt.NDArray[np.bool_], rows: npt.NDArray[np.bool_]) -> float | None:
    return float(np.mean(novel[rows])) if np.any(rows) else None


def draw_folds(source: RowSource, folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:  # noqa: ARG001
    """Raise InputError: nothing tells which parameters are better."""
    raise InputError(f"{source.name}: {NOT_CHOSEN}")


def measure_scores(scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> float:  # noqa: ARG001
    """Raise InputError: nothing tells which scores are better."""
    raise InputError(NOT_CHOSEN)


ONE_CLASS = Problem(
    name="one-class",
    models=("linear", "kernel"),
    predicts_labels=True,
    has_class_costs=False,
    reads_queries=False,
    has_nu=True,
    own_classes=CLASSES,
    needs_labels=False,
    count_problems=count_one,
    count_scores=count_one,
    code_labels=code_as_classes,
    evaluate=evaluate,
    draw_folds=draw_folds,
    measure_scores=measure_scores,
    tell_loss=tell_loss,
)
