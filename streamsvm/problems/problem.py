"""The record of a problem: functions for its loss, for the meaning of its scores, and for measures of them.

    P(w, b) = 1/2 |w|^2 + the sum of all losses

To add a problem, add a file with such a record and a line in problems.registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.rows import F64, I32, I64
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.options import TrainOptions

Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class Scored:
    """Scores of some consecutive rows, with their labels and query ids.

    scores: f(x), (n,) or (n, K) float64. truth: the labels as the problem's `code_labels` returns them, (n,), or None
    if the rows have none. qid: query ids, (n,), or None if the rows have none.
    """

    scores: F64
    truth: npt.NDArray[Any] | None = None
    qid: I64 | None = None


@dataclass(frozen=True)
class Problem:
    """A problem, as methods, models and training know it.

    Parameters
    ----------
    name
        The name that users give it: `--task`, `TrainOptions.task`.
    models
        The kinds of models that solve it: "linear", "kernel", "rank".
    predicts_labels
        Whether a score stands for one of the labels of training. If not, `predict` writes the scores alone.
    has_class_costs
        Whether the problem reads `class_weight`.
    reads_queries
        Whether rows are compared within their queries. If so, queries are sampled and held out whole.
    count_problems
        Returns the number of binary problems that the labels of a source make: 1, or K for one class against the rest.
    count_scores
        Returns the number of scores that a model gives a row, from the number of its classes.
    code_labels
        Returns the values that `evaluate` and `share_right` compare scores with, from labels and the model's classes.
    evaluate
        Returns measures by name, from the scores of labelled rows and the classes.
    draw_folds
        Returns the fold of each row for cross-validation, (n,) uint8, from a source, the number of folds and a random
        generator.
    share_right
        Returns how good scores of held-out rows are, from 0 to 1, from the scores, label codes and query ids.
    count_right
        Returns how many rows of a tile are scored right, from scores and label codes, where `share_right` is the share
        of such rows. It is None where rows cannot be judged one by one, so that all scores are needed at once.
    make_loss
        Returns the loss as a function of a row's score, which belongs to the kinds that the registry says, from a
        source and the options; None if the loss is not such a function.
    """

    name: str
    models: tuple[str, ...]
    predicts_labels: bool
    has_class_costs: bool
    reads_queries: bool
    count_problems: Callable[[RowSource], int]
    count_scores: Callable[[int], int]
    code_labels: Callable[[Labels, Labels], npt.NDArray[Any]]
    evaluate: Callable[[Iterable[Scored], Labels], dict[str, Any]]
    draw_folds: Callable[[RowSource, int, np.random.Generator], npt.NDArray[np.uint8]]
    share_right: Callable[[F64, I32, I64 | None], float]
    count_right: Callable[[F64, I32], int] | None = None
    make_loss: Callable[[RowSource, TrainOptions], ConvexLoss | SmoothLoss] | None = None


def join_scored(parts: Iterable[Scored]) -> Scored:
    """Return the scores, labels and query ids of all rows."""
    kept = list(parts)
    if not kept:
        return Scored(np.empty(0), np.empty(0))
    truth = [part.truth for part in kept if part.truth is not None]
    ids = [part.qid for part in kept if part.qid is not None]
    scores = np.concatenate([part.scores for part in kept])
    return Scored(scores, np.concatenate(truth) if truth else None, np.concatenate(ids) if ids else None)
