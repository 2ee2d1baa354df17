"""Classification: the sum of the rows' losses is minimised, and the score of a row tells its class.

    P(w, b) = 1/2 |w|^2 + sum_i C_i l(y_i (w.x_i + b)),      C_i = C * class_weight[y_i] * sample_weight_i

The loss of a margin m is max(0, 1 - m) by default, or one of problems.smooth_losses.

Two classes are one problem: y_i is +1 for the second class, and a score f > 0 stands for it. K > 2 classes are K
problems of one class against the rest, and the highest of the K scores tells the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I32, I64, Rows
from streamsvm.numeric.smooth_loss import SmoothLoss
from streamsvm.options import TrainOptions, compute_class_costs, require_classes
from streamsvm.problems.labels import code_as_classes
from streamsvm.problems.measures import roc_area, trace_curves
from streamsvm.problems.problem import Labels, Problem, Scored, join_scored
from streamsvm.problems.smooth_losses import Logistic, SquaredHinge


@dataclass(frozen=True)
class Hinge:
    """The loss C_i max(0, 1 - y_i f_i) as a ConvexLoss. class_costs: C_i of the two classes before sample weights."""

    class_costs: tuple[float, float]

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See ConvexLoss."""
        y, costs = read_labels(self.class_costs, rows.y, rows.sample_weight)
        missing = np.maximum(0.0, 1.0 - y * scores)
        return costs * missing, np.where(missing > 0, -costs * y, 0.0)

    def steepest(self, rows: Rows) -> F64:
        """See ConvexLoss."""
        return read_labels(self.class_costs, rows.y, rows.sample_weight)[1]


SMOOTH: dict[str, Callable[[tuple[float, float]], SmoothLoss]] = {"squared_hinge": SquaredHinge, "logistic": Logistic}


def make_smooth_loss(name: str, class_costs: tuple[float, float]) -> SmoothLoss:
    """Return the smooth loss of this name."""
    return SMOOTH[name](class_costs)


def make_loss(source: RowSource, options: TrainOptions) -> ConvexLoss | SmoothLoss:
    """Return the loss of two classes that the options name."""
    class_costs = compute_class_costs(source, options)
    return Hinge(class_costs) if options.loss in (None, "hinge") else make_smooth_loss(str(options.loss), class_costs)


def tell_loss(source: RowSource, options: TrainOptions) -> dict[str, Any]:
    """Return the loss and the costs of the two classes, as they are told in settings and models."""
    return {"loss": options.loss or "hinge", "class_costs": list(compute_class_costs(source, options))}


def read_losses(told: Mapping[str, Any], source: RowSource, n_problems: int) -> list[ConvexLoss | SmoothLoss]:  # noqa: ARG001
    """Return the loss of each problem that `tell_loss` told; the costs may be those of all problems."""
    costs = np.broadcast_to(np.atleast_2d(np.asarray(told["class_costs"], np.float64)), (n_problems, 2))
    each = [(float(own[0]), float(own[1])) for own in costs]
    name = str(told.get("loss") or "hinge")
    return [Hinge(own) if name == "hinge" else make_smooth_loss(name, own) for own in each]


def choose(scores: F64) -> npt.NDArray[np.intp]:
    """Return the code of each row's class: by the sign of one score, or by the highest of K (ties: the first)."""
    return (scores > 0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)


def choose_labels(scores: F64) -> npt.NDArray[np.bool_]:
    """Return which labels each row is given, (n, L), if rows have any number of them: those with a score above 0."""
    return scores > 0


def count_problems(source: RowSource) -> int:
    """Return the number of problems: 1 for two classes, and K for K > 2, one for each class against the rest."""
    n_classes = 2 if source.classes is None else len(source.classes)
    return n_classes if n_classes > 2 else 1


def count_scores(n_classes: int) -> int:
    """Return the number of scores that a model gives a row: 1 for two classes, and K for K > 2."""
    return n_classes if n_classes > 2 else 1


def measure_tile(scores: F64, y: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the number of rows whose scores stand for their true class, and the number of rows."""
    return int(np.count_nonzero(choose(scores) == y)), len(y)


def measure_scores(scores: F64, y: npt.NDArray[Any], qid: I64 | None) -> float:  # noqa: ARG001
    """Return the accuracy: the share of rows whose scores stand for their true class."""
    right, rows = measure_tile(scores, y)
    return right / rows


def draw_folds(source: RowSource, folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return the fold of each row; every class is spread evenly. InputError if a class has fewer rows than folds."""
    y = source.column("y")
    assert y is not None
    if (counts := np.bincount(y)).min() < folds:
        label, rows = require_classes(source)[counts.argmin()], say_count(int(counts.min()), "row")
        raise InputError(
            f"{source.name}: the class {label} has {rows}, too few for {folds} folds, each of which needs one: leave "
            "the class out, join it to another, or add rows of it; tune can also take fewer --folds"
        )
    return share_out(y, folds, rng)


def share_out(y: I32, folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return the fold of each row; the rows of each code are spread evenly over the folds."""
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), np.uint8)
    fold[order] = np.arange(len(y)) % folds
    return fold


def evaluate(parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:
    """Return accuracy, ROC area, average precision, measures of each class, confusion matrix and curves.

    Unknown labels are counted apart. Areas and curves (problems.measures) are found for two classes, and are None for
    more; classes[1] is the positive one.
    """
    K, known = len(classes), list[Scored]()
    counts = np.zeros((K + 1) * K, np.int64)
    for part in parts:
        assert part.truth is not None
        truth = part.truth.astype(np.int64)
        counts += np.bincount(np.where(truth < 0, K, truth) * K + choose(part.scores), minlength=len(counts))
        if K == 2:
            known.append(Scored(part.scores[truth >= 0], part.truth[truth >= 0]))
    table = counts.reshape(K + 1, K)
    confusion, n_rows = table[:K], int(counts.sum())
    both = join_scored(known)
    assert both.truth is not None
    curves = trace_curves(both.scores, both.truth == 1)
    return {
        "n_rows": n_rows,
        "accuracy": int(np.trace(confusion)) / n_rows,
        "roc_area": roc_area(both.scores, both.truth == 1),
        "average_precision": None if curves is None else curves[0],
        "classes": {str(name): _describe_class(table, code) for code, name in enumerate(classes.tolist())},
        "confusion": confusion.tolist(),
        "unknown_labels": int(counts[K * K :].sum()),
        "curves": None if curves is None else curves[1],
    }


def _describe_class(table: I64, code: int) -> dict[str, Any]:
    """Return the rows, recall, precision and F1 of a class; a ratio is None where its divisor is zero.

    F1 = 2 right / (rows of the class + rows that are predicted to be of it)
    """
    right, rows, chosen = (int(n) for n in (table[code, code], table[code].sum(), table[:, code].sum()))
    return {
        "rows": rows,
        "recall": right / rows if rows else None,
        "precision": right / chosen if chosen else None,
        "f1": 2 * right / (rows + chosen) if rows + chosen else None,
    }


CLASSIFY = Problem(
    name="classify",
    models=("linear", "kernel"),
    predicts_labels=True,
    has_class_costs=True,
    reads_queries=False,
    count_problems=count_problems,
    count_scores=count_scores,
    code_labels=code_as_classes,
    evaluate=evaluate,
    draw_folds=draw_folds,
    measure_scores=measure_scores,
    measure_tile=measure_tile,
    make_loss=make_loss,
    tell_loss=tell_loss,
    read_losses=read_losses,
)
