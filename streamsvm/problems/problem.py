"""What a problem is: what is minimised, what its scores say of a row, and how good they are. A record of functions.

    P(w, b) = 1/2 |w|^2 + the sum of all losses

Adding one: a file with such a record, and a line in problems.registry.
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
from streamsvm.options import TrainOptions

Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class Scored:
    """Scores of some consecutive rows, and what is known of the rows.

    scores: f(x), (n,) or (n, K) float64. truth: the labels as the problem's `code_labels` returns them, (n,); None
    without labels. qid: query ids, (n,); None without queries.
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
        What a user calls it: `--task`, `TrainOptions.task`.
    models
        The kinds of models that it has: "linear", "kernel", "rank".
    predicts_labels
        Whether a score stands for one of the labels of training. If not, `predict` writes the scores alone.
    has_class_costs
        Whether `class_weight` means something to it.
    reads_queries
        Whether rows are compared within their queries: then queries are sampled and held out whole.
    count_problems
        How many problems of one score a row the labels of a source make: 1, or K for one class against the rest.
    count_scores
        How many scores a model with so many classes gives a row.
    code_labels
        Labels of any rows, and the model's classes, into what `evaluate` and `share_right` compare scores with.
    evaluate
        Scores of labelled rows, and the classes, into measures by name.
    draw_folds
        The fold of each row for cross-validation, (n,) uint8, given the source, the folds and a generator.
    share_right
        How good the scores of held-out rows are, from 0 to 1, given scores, codes of labels and query ids.
    count_right
        How many rows of a tile the scores get right, given scores and codes: for problems whose `share_right` is the
        share of such rows. None: rows cannot be judged one by one, and all their scores are needed.
    make_loss
        The loss as a convex function of a row's score, given the source and what is asked for; None if it is none.
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
    make_loss: Callable[[RowSource, TrainOptions], ConvexLoss] | None = None


def join_scored(parts: Iterable[Scored]) -> Scored:
    """Return the scores, labels and query ids of all rows."""
    kept = list(parts)
    if not kept:
        return Scored(np.empty(0), np.empty(0))
    truth = [part.truth for part in kept if part.truth is not None]
    ids = [part.qid for part in kept if part.qid is not None]
    scores = np.concatenate([part.scores for part in kept])
    return Scored(scores, np.concatenate(truth) if truth else None, np.concatenate(ids) if ids else None)
