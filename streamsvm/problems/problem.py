"""The record of a problem: functions for its loss, for the meaning of its scores, and for measures of them.

    P(w, b) = 1/2 |w|^2 + the sum of all losses

To add a problem, add a file with such a record and a line in problems.registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.label_sets import pick_labels
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.options import TrainOptions

Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class Scored:
    """Scores of some consecutive rows, with their labels and query ids.

    scores: f(x), (n,) or (n, K) float64. truth: the labels as the problem's `code_labels` returns them, (n,), or None
    if the rows have none. qid: query ids, (n,), or None if the rows have none. row_names: texts, (n,), or None if
    nothing names the rows.
    """

    scores: F64
    truth: npt.NDArray[Any] | None = None
    qid: I64 | None = None
    row_names: npt.NDArray[np.object_] | None = None


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
    has_classes
        Whether the labels are classes or ranks, which a model keeps. If not, they are numbers to be predicted.
    has_class_costs
        Whether the problem reads `class_weight`.
    has_label_sets
        Whether rows have any number of labels, each of which is a problem of its own.
    has_epsilon
        Whether the problem reads `epsilon`, the half-width of the tube around a target.
    has_nu
        Whether the problem reads `nu`, the share of the rows that may lie outside.
    own_classes
        The classes of its models, where they are not those of the labels that it was trained on.
    needs_labels
        Whether rows need labels to be trained on, and to be evaluated.
    reads_queries
        Whether rows are compared within their queries. If so, queries are sampled and held out whole.
    score_name
        The name of a score in the tables that `predict` writes.
    measure, error, best_score
        What `measure_scores` returns, and what it is short of its best value, in the outcome of `tune`; and this best
        value.
    count_problems
        Returns the number of binary problems that the labels of a source make: 1, or K for one class against the rest.
    count_scores
        Returns the number of scores that a model gives a row, from the number of its classes.
    code_labels
        Returns the values that `evaluate` and `measure_scores` compare scores with, from labels and the model's
        classes.
    evaluate
        Returns measures by name, from the scores of labelled rows and the classes.
    draw_folds
        Returns the fold of each row for cross-validation, (n,) uint8, from a source, the number of folds and a random
        generator.
    measure_scores
        Returns how good scores of held-out rows are (more is better), from the scores, what `read_truth` returns, and
        query ids.
    measure_tile
        Returns two sums over the rows of a tile, from scores and what `read_truth` returns. The ratio of these sums
        over all rows is what `measure_scores` returns of them. It is None where there are no such sums, so that all
        scores are needed at once.
    make_loss
        Returns the loss as a function of a row's score, which belongs to the kinds that the registry says, from a
        source and the options; None if the loss is not such a function.
    tell_loss
        Returns what the settings of a run and a model tell of such a loss, from a source and the options.
    read_losses
        Returns the loss of each binary problem that was told so, from what was told, the source and the number of
        problems. With it, `verify` computes an objective anew.
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
    measure_scores: Callable[[F64, npt.NDArray[Any], I64 | None], float]
    measure_tile: Callable[[F64, npt.NDArray[Any]], tuple[float, float]] | None = None
    has_classes: bool = True
    has_label_sets: bool = False
    has_epsilon: bool = False
    has_nu: bool = False
    own_classes: tuple[int, ...] | None = None
    needs_labels: bool = True
    score_name: str = "score"
    measure: str = "right on held-out rows"
    error: str = "Wrong on held-out rows"
    best_score: float = 1.0
    make_loss: Callable[[RowSource, TrainOptions], ConvexLoss | SmoothLoss] | None = None
    tell_loss: Callable[[RowSource, TrainOptions], dict[str, Any]] | None = None
    read_losses: Callable[[Mapping[str, Any], RowSource, int], list[ConvexLoss | SmoothLoss]] | None = None


def read_truth(rows: Rows, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the targets of rows or, for rows that have classes, what `numbers` has for the code of each.

    Of rows with sets of labels, it is the indicator matrix of the labels whose places are `numbers`.
    """
    if rows.target is not None:
        return rows.target
    if rows.label_sets is not None:
        return pick_labels(rows.label_sets, numbers)
    assert rows.y is not None
    found: npt.NDArray[Any] = numbers[rows.y]
    return found


def join_scored(parts: Iterable[Scored]) -> Scored:
    """Return the scores, labels and query ids of all rows."""
    kept = list(parts)
    if not kept:
        return Scored(np.empty(0), np.empty(0))
    truth = [part.truth for part in kept if part.truth is not None]
    ids = [part.qid for part in kept if part.qid is not None]
    scores = np.concatenate([part.scores for part in kept])
    return Scored(scores, np.concatenate(truth) if truth else None, np.concatenate(ids) if ids else None)
