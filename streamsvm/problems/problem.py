"""The base class of all problems: the loss of a problem, the meaning of its scores, and measures of them.

    P(w, b) = 1/2 |w|^2 + the sum of all losses

To add a problem, add a file with a subclass of `Problem` and an entry in problems.registry.

The module also has the measures that several problems report, and codes labels as a model's classes even if they are
written differently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource
from streamsvm.data.tables.written import strip_guard
from streamsvm.losses.pairs import Pairs, swapped_pairs
from streamsvm.numeric.labels import pick_labels
from streamsvm.numeric.rows import F64, I32, I64, Rows
from streamsvm.options import TrainOptions
from streamsvm.system.errors import InputError, say_count

Labels = npt.NDArray[Any]
Folds = npt.NDArray[np.uint8]
NEVER = 255  # the fold of rows that are never held out


@dataclass(frozen=True)
class Scored:
    """The scores of some consecutive rows, with their labels and query ids.

    scores: f(x), (n,) or (n, K) float64. truth: the labels as the problem's `code_labels` returns them, (n,), or None
    for unlabelled rows. qid: query ids, (n,), or None for rows without queries. row_names: strings, (n,), or None for
    unnamed rows.
    """

    scores: F64
    truth: npt.NDArray[Any] | None = None
    qid: I64 | None = None
    row_names: npt.NDArray[np.object_] | None = None

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The labels of the rows; only for rows that have labels. See `truth`."""
        assert self.truth is not None
        return self.truth


class Problem(ABC):
    """The interface of a problem for solvers, models and training; the base class of all problems.

    Attributes
    ----------
    name
        The name of the problem for users: `--task`, `TrainOptions.task`.
    models
        The kinds of models that solve it: "linear", "kernel", "rank".
    predicts_labels
        Whether a score determines one of the training labels. If not, `predict` writes only the scores.
    has_classes
        Whether the labels are classes or ranks, which a model keeps. If not, they are numbers to predict.
    has_class_costs
        Whether the problem reads `class_weight`.
    has_label_sets
        Whether rows have any number of labels, each of which is a separate problem.
    has_epsilon
        Whether the problem reads `epsilon`, the half-width of the tube around a target.
    has_nu
        Whether the problem reads `nu`, the share of the rows that may lie outside.
    own_classes
        The classes of its models, if they differ from the training labels.
    needs_labels
        Whether rows need labels for training and evaluation.
    reads_queries
        Whether rows are compared within their queries. If so, queries are sampled and held out whole.
    score_name
        The name of a score in the tables that `predict` writes.
    measure, error, best_score
        The names under which `tune` reports the result of `measure_scores` and its distance from the best possible
        value, and that best value.
    measure_tile
        A function that returns two sums over the rows of a tile, from their scores and the result of `read_truth`. The
        ratio of the sums over all rows is the result of `measure_scores`. None if the measure has no such sums and
        needs all scores at once.
    """

    name: str
    models: tuple[str, ...]
    predicts_labels: bool = True
    has_classes: bool = True
    has_class_costs: bool = False
    has_label_sets: bool = False
    has_epsilon: bool = False
    has_nu: bool = False
    own_classes: tuple[int, ...] | None = None
    needs_labels: bool = True
    reads_queries: bool = False
    score_name: str = "score"
    measure: str = "right on held-out rows"
    error: str = "Wrong on held-out rows"
    best_score: float = 1.0
    measure_tile: Callable[[F64, npt.NDArray[Any]], tuple[float, float]] | None = None

    def count_problems(self, source: RowSource) -> int:  # noqa: ARG002
        """Return the number of problems that are trained for this source: 1, or K for one class against the rest."""
        return 1

    def count_scores(self, n_classes: int) -> int:  # noqa: ARG002
        """Return the number of scores that a model gives a row, from the number of its classes."""
        return 1

    def code_labels(self, labels: Any, classes: Labels) -> npt.NDArray[Any]:
        """Return the labels as `evaluate` and `measure_scores` need them: as places among the model's classes."""
        return code_as_classes(labels, classes)

    @abstractmethod
    def evaluate(self, parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:
        """Return the measures by name, from the scores of labelled rows and the classes."""

    def draw_folds(self, source: RowSource, folds: int, rng: np.random.Generator) -> Folds:
        """Return the fold of each row for cross-validation, (n,).

        Raises InputError if there are fewer rows than folds.
        """
        if source.n_rows < folds:
            rows = say_count(source.n_rows, "row")
            why = f"{rows} cannot be split into {folds} folds: add rows, or use fewer --folds"
            raise InputError(f"{source.name}: {why}")
        return (rng.permutation(source.n_rows) % folds).astype(np.uint8)

    def measure_scores(self, scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> float:  # noqa: ARG002
        """Return the quality of the scores of held-out rows; higher is better. truth: the result of `read_truth`."""
        assert self.measure_tile is not None
        total, size = self.measure_tile(scores, truth)
        return total / size if size else 0.0

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:  # noqa: ARG002
        """Return the description of the loss for settings and models; empty unless it is a function of one score."""
        return {}

    def read_losses(self, told: Mapping[str, Any], source: RowSource, n_problems: int) -> list[Any]:  # noqa: ARG002
        """Return the loss of each problem from its description; `verify` recomputes objectives with these losses.

        A loss is a ConvexLoss or a SmoothLoss, of a kind in the registry; None if it is not a function of a score.
        """
        return [None]

    def make_loss(self, source: RowSource, options: TrainOptions) -> Any:
        """Return the loss that the options choose."""
        return self.read_losses(self.tell_loss(source, options), source, 1)[0]


def read_truth(rows: Rows, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the targets of rows or, for rows with classes, the entry of `numbers` for each row's code.

    For rows with sets of labels, return the indicator matrix of the labels at the places `numbers`.
    """
    if rows.target is not None:
        return rows.target
    if rows.label_sets is not None:
        return pick_labels(rows.label_sets, numbers)
    return numbers[rows.codes]


def join_scored(parts: Iterable[Scored]) -> Scored:
    """Return the concatenated scores, labels and query ids of all parts."""
    kept = list(parts)
    if not kept:
        return Scored(np.empty(0), np.empty(0))
    truth = [part.truth for part in kept if part.truth is not None]
    ids = [part.qid for part in kept if part.qid is not None]
    scores = np.concatenate([part.scores for part in kept])
    return Scored(scores, np.concatenate(truth) if truth else None, np.concatenate(ids) if ids else None)


def read_as_numbers(labels: Any, what: str) -> F64:
    """Return labels as numbers. Raises InputError for strings. what: the noun for the labels, in the plural."""
    try:
        return np.asarray(labels, np.float64)
    except ValueError:
        raise InputError(f"a label is {str(labels[0])!r}, but {what} have to be numbers") from None


def code_as_classes(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> I32:
    """Return the place of each label among the classes, or -1 if it matches no class, as a value or as a string."""
    different, inverse = np.unique(labels, return_inverse=True)
    codes = np.full(len(different), -1, np.int32)
    for code, known in enumerate(classes.tolist()):
        codes[[_is_same_label(label, known) for label in different.tolist()]] = code
    return codes[inverse]


def _is_same_label(label: Any, known: Any) -> bool:
    """Return whether labels are equal as values or as strings, with or without the guard that `predict` writes."""
    return bool(label == known) or _to_text(known) in (_to_text(label), strip_guard(_to_text(label)))


def _to_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


CURVE_POINTS = 201


def roc_area(scores: F64, positive: npt.NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve, or None if all rows are of one class.

    It is the share of (positive, negative) pairs in the right order; a tie counts half.
    """
    n_positive = int(np.count_nonzero(positive))
    n_negative = len(scores) - n_positive
    if not n_positive or not n_negative:
        return None
    swapped = swapped_pairs(scores, Pairs(positive.astype(np.int32), np.ones(len(scores)), np.array([0, len(scores)])))
    return None if swapped is None else 1.0 - swapped


def trace_curves(scores: F64, positive: npt.NDArray[np.bool_]) -> tuple[float, dict[str, list[float]]]:
    """Return the average precision, and points of the ROC and precision-recall curves, of rows of both classes.

        average precision = sum_k (R_k - R_(k-1)) P_k    over the thresholds, which are the different scores

    The curves go from the highest threshold to the lowest: false_positive_rate, true_positive_rate (the recall R) and
    precision P, which is 1 if no row is above the threshold. At most CURVE_POINTS thresholds are kept, evenly spaced
    along the ROC curve.
    """
    n_positive = int(np.count_nonzero(positive))
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    right = np.cumsum(positive[order])[ends]
    wrong = ends + 1 - right
    precision, recall = np.append(1.0, right / (right + wrong)), np.append(0.0, right / n_positive)
    false = np.append(0.0, wrong / (len(scores) - n_positive))
    average = float(np.sum(np.diff(recall) * precision[1:]))
    at = np.arange(len(recall))
    if len(at) > CURVE_POINTS:
        at = np.unique(np.searchsorted(false + recall, np.linspace(0.0, 2.0, CURVE_POINTS)).clip(0, len(at) - 1))
    named = {"false_positive_rate": false, "true_positive_rate": recall, "precision": precision}
    return average, {name: values[at].tolist() for name, values in named.items()}
