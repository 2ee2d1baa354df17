"""Classification: minimise the sum of the rows' losses; the score of a row determines its class.

    P(w, b) = 1/2 |w|^2 + sum_i C_i l(y_i (w.x_i + b)),      C_i = C * class_weight[y_i] * sample_weight_i

The loss of a margin m_i = y_i f_i is the hinge loss by default, or a smooth one:

    hinge            C_i max(0, 1 - m_i)
    squared hinge    C_i max(0, 1 - m_i)^2
    logistic loss    C_i log(1 + exp(-m_i))

Two classes are a single problem: y_i is +1 for the second class, which a score f > 0 predicts. K > 2 classes are K
problems of one class against the rest, and the highest of the K scores determines the class.

The task crammer-singer is a single problem for all classes (Crammer & Singer 2001, J. Machine Learning Research 2):

    P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i max(0, max_{k != y_i} 1 + w_k.x_i - w_{y_i}.x_i)

C_i = C * class_weight[y_i] * sample_weight_i, and x_i includes the constant feature, whose weight is the bias. The
highest score determines the class. With two classes, w_1 = -w_2 at the optimum, so the model has one score, 2 w_2.x.

The task multinomial is multinomial logistic regression, another single problem, with the softmax loss

    P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i (log sum_k exp(w_k.x_i) - w_{y_i}.x_i)

for K > 2 classes, and with the same C_i and x_i. The highest score determines the class. Two classes are not trained as
this problem but as the classification task with the logistic loss, whose model has one score
(solvers.set_up.settle_task).

In the task multi-label, each row has any number of the L labels, and each label is a separate problem:

    P_k(w, b) = 1/2 |w|^2 + sum_i C_ik l(y_ik (w.x_i + b)),      C_ik = C * class_weight[y_ik] * sample_weight_i

y_ik is +1 if row i has label k, and -1 otherwise. The labels with scores above 0 are predicted for a row. P, D and the
rounding are sums over the labels; every label has its own gap.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from streamsvm.data.rows.source import LabelLists, RowSource, read_codes
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I32, I64, Rows
from streamsvm.options import TrainOptions, compute_class_costs, compute_class_factors, require_classes
from streamsvm.problems import problem
from streamsvm.problems.problem import Folds, Labels, Problem, Scored, Scoring
from streamsvm.system.errors import InputError, say_count

LOGGER = logging.getLogger("streamsvm")


@dataclass(frozen=True)
class OfMargins:
    """A loss of the margin y_i f_i. class_costs: C_i of the two classes before sample weights."""

    class_costs: tuple[float, float]

    def read(self, rows: Rows) -> tuple[F64, F64]:
        """Return y_i and C_i of the rows, (n,) each."""
        return read_labels(self.class_costs, rows.y, rows.sample_weight)


@dataclass(frozen=True)
class SquaredHinge(OfMargins):
    """C_i max(0, 1 - y_i f_i)^2 as a SmoothLoss."""

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See SmoothLoss."""
        y, costs = self.read(rows)
        missing = np.maximum(0.0, 1.0 - y * scores)
        return costs * missing**2, -2.0 * costs * y * missing

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return 2 C_i if the row stays inside the margin, else 0; see SmoothLoss."""
        y, costs = self.read(rows)
        return np.where(1.0 - y * scores > reach, 2.0 * costs, 0.0)

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return 2 C_i if the row can come inside or onto the margin, else 0; see SmoothLoss."""
        y, costs = self.read(rows)
        return np.where(1.0 - y * scores >= -reach, 2.0 * costs, 0.0)

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss."""
        return np.multiply(2.0, self.read(rows)[1])


@dataclass(frozen=True)
class Logistic(OfMargins):
    """C_i log(1 + exp(-y_i f_i)) as a SmoothLoss."""

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See SmoothLoss."""
        y, costs = self.read(rows)
        margins = y * scores
        odds = np.exp(-np.abs(margins))  # at most 1
        share = np.where(margins > 0.0, odds, 1.0) / (1.0 + odds)
        return costs * (np.maximum(0.0, -margins) + np.log1p(odds)), -costs * y * share

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the second derivative at the largest magnitude of the score within reach; see SmoothLoss."""
        return self._bend_at(rows, np.abs(scores) + reach)

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the second derivative at the score nearest to 0 within reach; see SmoothLoss."""
        return self._bend_at(rows, np.maximum(0.0, np.abs(scores) - reach))

    def _bend_at(self, rows: Rows, sizes: F64) -> F64:
        """Return the second derivatives at scores of these magnitudes, (n,), which must not be negative."""
        share = expit(-sizes)  # at most 1/2, so that 1 - share is accurate
        return np.asarray(self.read(rows)[1] * share * (1.0 - share), np.float64)

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss."""
        return np.multiply(0.25, self.read(rows)[1])


@dataclass(frozen=True)
class Hinge(OfMargins):
    """The loss C_i max(0, 1 - y_i f_i) as a ConvexLoss."""

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See ConvexLoss."""
        y, costs = self.read(rows)
        missing = np.maximum(0.0, 1.0 - y * scores)
        return costs * missing, np.where(missing > 0, -costs * y, 0.0)

    def steepest(self, rows: Rows) -> F64:
        """See ConvexLoss."""
        return self.read(rows)[1]


LOSSES = {"hinge": Hinge, "squared_hinge": SquaredHinge, "logistic": Logistic}


def choose(scores: F64) -> npt.NDArray[np.intp]:
    """Return the code of each row's class: by the sign of a single score, or by the highest of K (ties: the first)."""
    return (scores > 0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)


def choose_labels(scores: F64) -> npt.NDArray[np.bool_]:
    """Return flags (n, L) of the labels predicted for each row: the labels with scores above 0."""
    return scores > 0


def share_out(y: I32, folds: int, rng: np.random.Generator) -> Folds:
    """Return the fold of each row, given its code in y (n,). Each code's rows are spread evenly over the folds."""
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), np.uint8)
    fold[order] = np.arange(len(y)) % folds
    return fold


def list_ratios(rows: Any, right: Any, chosen: Any) -> dict[str, tuple[Any, Any]]:
    """Return the dividend and the divisor of recall, precision and F1 of classes or labels.

    rows: the number of rows of a class. right: the number of these that are predicted correctly. chosen: the number of
    rows predicted to be of the class.
    """
    return {"recall": (right, rows), "precision": (right, chosen), "f1": (2 * right, rows + chosen)}


def describe_class(rows: int, right: int, chosen: int) -> dict[str, Any]:
    """Return the rows, recall, precision and F1 of a class or label; a ratio is None if its divisor is zero."""
    ratios = list_ratios(rows, right, chosen)
    return {"rows": rows, **{name: part / whole if whole else None for name, (part, whole) in ratios.items()}}


AVERAGED = tuple(f"{name}_{kind}" for name in ("f1", "precision", "recall") for kind in ("macro", "micro", "weighted"))


def average_ratios(rows: I64, right: I64, chosen: I64) -> dict[str, float]:
    """Return the averages of recall, precision and F1 over classes or labels, (K,); a ratio with divisor 0 counts as 0.

    macro: the mean. micro: the ratio of the sums. weighted: the mean weighted by the rows of each class.
    """
    found = {}
    for name, (part, whole) in list_ratios(rows, right, chosen).items():
        ratios = np.divide(part, whole, out=np.zeros(len(rows)), where=whole > 0)
        found[f"{name}_macro"] = float(ratios.mean()) if len(rows) else 0.0
        found[f"{name}_micro"] = _divide(part.sum(), whole.sum())
        found[f"{name}_weighted"] = _divide(float(rows @ ratios), rows.sum())
    return found


def _divide(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def count_classes(scores: F64, truth: npt.NDArray[Any]) -> I64:
    """Return the arguments of `list_ratios` for K classes, (3, K + 1); the last column counts unknown labels."""
    n_classes, chosen = 2 if scores.ndim == 1 else scores.shape[1], choose(scores)
    codes = np.where(truth < 0, n_classes, truth), truth[chosen == truth], chosen
    return np.array([np.bincount(each, minlength=n_classes + 1) for each in codes])


def measure_classes(counts: I64) -> dict[str, float]:
    """Return the measures of predicted classes from the sum of `count_classes` over the rows.

    Averages are over the classes that occur or are predicted. With two classes, the second one is positive.
    """
    rows, right, chosen = counts[:, :-1]
    n_rows, n_right, present = float(counts[0].sum()), float(right.sum()), rows + chosen > 0
    recalls = right[rows > 0] / rows[rows > 0]
    covered = [n_rows**2 - float(np.sum(each.astype(np.float64) ** 2)) for each in (counts[0], chosen)]
    agreed = n_right * n_rows - float(np.sum(rows.astype(np.float64) * chosen))
    return {
        "accuracy": _divide(n_right, n_rows),
        "balanced_accuracy": float(recalls.mean()) if len(recalls) else 0.0,
        "matthews_corrcoef": _divide(agreed, math.sqrt(covered[0] * covered[1])),
        **average_ratios(rows[present], right[present], chosen[present]),
        **{name: _divide(*(each[1] for each in pair)) for name, pair in list_ratios(rows, right, chosen).items()},
    }


def count_sets(scores: F64, truth: npt.NDArray[np.bool_]) -> I64:
    """Return the arguments of `list_ratios` for L labels, (3, L + 1).

    The last column is the number of rows, the number of rows whose set is predicted exactly, and 0.
    """
    given = choose_labels(scores)
    by_label = np.array([truth.sum(axis=0), (truth & given).sum(axis=0), given.sum(axis=0)])
    return np.column_stack((by_label, np.array([len(truth), np.count_nonzero((truth == given).all(axis=1)), 0])))


def measure_sets(counts: I64) -> dict[str, float]:
    """Return the measures of predicted label sets from the sum of `count_sets`; accuracy is that of whole sets."""
    return {"accuracy": _divide(counts[1, -1], counts[0, -1]), **average_ratios(*counts[:, :-1])}


def measure_areas(scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> dict[str, float | None]:  # noqa: ARG001
    """Return the ROC area and the average precision of rows of two classes; None if all rows are of one class."""
    positive = truth == truth.max() if len(truth) else truth > 0
    area = problem.roc_area(scores, positive)
    return {"roc_auc": area, "average_precision": None if area is None else problem.trace_curves(scores, positive)[0]}


OF_CLASSES = Scoring(("accuracy", "balanced_accuracy", "matthews_corrcoef", *AVERAGED), measure_classes, count_classes)
OF_TWO_CLASSES = replace(OF_CLASSES, names=(*OF_CLASSES.names, "f1", "precision", "recall"))
OF_SETS = Scoring(tuple(dict.fromkeys(("f1_micro", "accuracy", *AVERAGED))), measure_sets, count_sets)
AREAS = Scoring(("roc_auc", "average_precision"), measure_areas)


class OfClasses(Problem):
    """A problem in which a row's scores determine its class."""

    models: tuple[str, ...] = ("linear", "kernel")
    has_class_costs = True
    scorings = (OF_CLASSES,)

    def list_scorings(self, n_classes: int) -> tuple[Scoring, ...]:
        """Return the scorings; two classes have more measures than others."""
        return (OF_TWO_CLASSES, AREAS) if n_classes == 2 else self.scorings

    def count_problems(self, source: RowSource) -> int:
        """Return the number of problems: one for each score of a row."""
        return self.count_scores(0 if source.classes is None else len(source.classes))

    def count_scores(self, n_classes: int) -> int:
        """Return the number of scores that a model gives a row: 1 for two classes, and K for K > 2."""
        return n_classes if n_classes > 2 else 1

    def draw_folds(self, source: RowSource, folds: int, rng: np.random.Generator) -> Folds:
        """Return the fold of each row; every class is distributed evenly, as by scikit-learn's StratifiedKFold.

        The only row of a class is never held out, since no fit could learn the class without it. Warn if a class has
        fewer rows than there are folds, and raise InputError if this applies to every class.
        """
        y, classes = read_codes(source), require_classes(source)
        counts = np.bincount(y, minlength=len(classes))
        fold = share_out(y, folds, rng)
        if counts.min() < folds:
            label, rows = classes[counts.argmin()], say_count(int(counts.min()), "row")
            fault = f"{source.name}: the class {label} has {rows}, too few for {folds} folds, each of which needs one"
            remedy = "remove the class, merge it with another, add rows of it, or tune with fewer --folds"
            if counts.max() < folds:
                raise InputError(f"{fault}, and no class has enough: {remedy}")
            LOGGER.warning(f"{fault}; some folds hold out no row of it: {remedy}")
            fold[counts[y] == 1] = problem.NEVER
        return fold

    def evaluate(self, parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:
        """Return accuracy, ROC area, average precision, measures of each class, confusion matrix and curves.

        Unknown labels are counted separately. Areas and curves (problems.problem) are computed for two classes, with
        classes[1] positive, and are None for more.
        """
        K, known = len(classes), list[Scored]()
        counts = np.zeros((K + 1) * K, np.int64)
        for part in parts:
            truth = part.labels.astype(np.int64)
            counts += np.bincount(np.where(truth < 0, K, truth) * K + choose(part.scores), minlength=len(counts))
            if K == 2:
                known.append(Scored(part.scores[truth >= 0], part.labels[truth >= 0]))
        table = counts.reshape(K + 1, K)
        confusion, n_rows = table[:K], int(counts.sum())
        sums = zip(confusion.sum(axis=1).tolist(), np.diag(confusion).tolist(), table.sum(axis=0).tolist(), strict=True)
        both = problem.join_scored(known)
        area = problem.roc_area(both.scores, both.labels == 1)
        precision, curves = (None, None) if area is None else problem.trace_curves(both.scores, both.labels == 1)
        return {
            "n_rows": n_rows,
            "accuracy": int(np.trace(confusion)) / n_rows,
            "roc_area": area,
            "average_precision": precision,
            "classes": {str(name): describe_class(*own) for name, own in zip(classes.tolist(), sums, strict=True)},
            "confusion": confusion.tolist(),
            "unknown_labels": int(counts[K * K :].sum()),
            "curves": curves,
        }


class Classify(OfClasses):
    """Classification with two classes, or with each of several classes against the rest."""

    name = "classify"

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:
        """Return the loss and the costs of the two classes, as settings and models report them."""
        return {"loss": options.loss or "hinge", "class_costs": list(compute_class_costs(source, options))}

    def read_losses(self, told: Mapping[str, Any], source: RowSource, n_problems: int) -> list[Any]:  # noqa: ARG002
        """Return the loss of each problem that `tell_loss` described; a single pair of costs applies to all of them."""
        costs = np.broadcast_to(np.atleast_2d(np.asarray(told["class_costs"], np.float64)), (n_problems, 2))
        loss = LOSSES[str(told.get("loss") or "hinge")]
        return [loss((float(rest), float(own))) for rest, own in costs]


class CrammerSinger(OfClasses):
    """The Crammer-Singer problem, one for all classes."""

    name, loss = "crammer-singer", "crammer_singer"

    def count_problems(self, source: RowSource) -> int:  # noqa: ARG002
        """Return 1, since all classes are one problem."""
        return 1

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:
        """Return the loss and the costs of the classes, as settings and models report them."""
        costs = options.C * compute_class_factors(source, options)
        return {"loss": self.loss, "class_costs": costs.tolist()}


class Multinomial(CrammerSinger):
    """Multinomial logistic regression, one problem for all classes."""

    name, loss = "multinomial", "softmax"


PRECISION_AT = (1, 3, 5)


class MultiLabel(Classify):
    """Classification with any number of labels for each row."""

    name, models = "multi-label", ("linear",)
    has_label_sets = True
    scorings = (OF_SETS,)

    def list_scorings(self, n_classes: int) -> tuple[Scoring, ...]:  # noqa: ARG002
        """Return the scoring of label sets."""
        return self.scorings

    def count_scores(self, n_classes: int) -> int:
        """Return the number of scores of a row: one for each label."""
        return n_classes

    def code_labels(self, labels: Any, classes: Labels) -> npt.NDArray[Any]:
        """Return flags (n, L) for label lists, or the places of `classes` among the labels of a source.

        The place of a class that the source lacks is -1.
        """
        if isinstance(labels, LabelLists):
            return labels.to_flags(classes)
        known = {label: place for place, label in enumerate(np.asarray(labels).tolist())}
        return np.array([known.get(label, -1) for label in classes.tolist()], np.int64)

    def draw_folds(self, source: RowSource, folds: int, rng: np.random.Generator) -> Folds:
        """Return the fold of each row, drawn at random, since few rows may have a label."""
        return Problem.draw_folds(self, source, folds, rng)

    def evaluate(self, parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:
        """Return F1 (of all decisions, and as a mean over labels), Hamming loss, subset accuracy, and precision at k.

        Precision at k is the share of true labels among a row's k labels with the highest scores, averaged over rows.
        """
        L = len(classes)
        counts, at = np.zeros((3, L + 1), np.int64), {k: 0 for k in PRECISION_AT if k <= L}
        for part in parts:
            truth, counts = part.labels, counts + count_sets(part.scores, part.labels)
            most = max(at)
            best = np.argpartition(-part.scores, most - 1, axis=1)[:, :most] if most < L else np.argsort(-part.scores)
            order = np.take_along_axis(best, np.argsort(-np.take_along_axis(part.scores, best, 1), 1, "stable"), 1)
            hits = np.take_along_axis(truth, order, 1)
            at = {k: n + int(hits[:, :k].sum()) for k, n in at.items()}
        (true, right, chosen), n_rows, found = counts[:, :-1], int(counts[0, -1]), measure_sets(counts)
        by_label = zip(classes.tolist(), *counts[:, :-1].tolist(), strict=True)
        described = {str(name): describe_class(*own) for name, *own in by_label}
        return {
            "n_rows": n_rows,
            "n_labels": L,
            "f1_micro": found["f1_micro"],
            "f1_macro": found["f1_macro"],
            "hamming_loss": int((true + chosen - 2 * right).sum()) / (n_rows * L),
            "subset_accuracy": found["accuracy"],
            "precision_at": {str(k): n / (k * n_rows) for k, n in at.items()},
            "labels": {name: {**own, "f1": own["f1"] or 0.0} for name, own in described.items()},
        }


CLASSIFY, CRAMMER_SINGER, MULTINOMIAL, MULTI_LABEL = Classify(), CrammerSinger(), Multinomial(), MultiLabel()
