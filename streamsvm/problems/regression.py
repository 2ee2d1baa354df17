"""Regression: the score of a row predicts its target, and a tube of half-width epsilon around it costs nothing.

    P(w, b) = 1/2 |w|^2 + sum_i C_i l(|t_i - (w.x_i + b)| - epsilon),      C_i = C * sample_weight_i

t_i is the target of row i, and l(e) is max(0, e), or its square. With epsilon = 0 these are the absolute and the
squared error. The targets are the numbers that `ingest` stored as such, or classes that are numbers.
Source: Smola & Schoelkopf 2004, "A tutorial on support vector regression", Statistics and Computing 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.checks import check_targets
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.convex_loss import ConvexLoss
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.smooth_loss import Kinks, Smoothing, SmoothLoss, smooth_hinge
from streamsvm.options import TrainOptions, is_finite
from streamsvm.problems.problem import Labels, Problem, Scored, read_truth

EPSILON = 0.1  # the default of LIBSVM and LIBLINEAR


@dataclass(frozen=True)
class EpsilonInsensitive:
    """C_i max(0, |t_i - f_i| - epsilon) as a ConvexLoss, or smoothed as a KinkedLoss.

    It is the sum of two hinges, with kinks at t_i + epsilon and t_i - epsilon. numbers: the target that each code of a
    label stands for, empty for rows that have targets; width: of the smoothing.
    """

    C: float
    epsilon: float
    numbers: F64
    width: float = 0.0

    def sharpen(self, width: float) -> EpsilonInsensitive:
        """See KinkedLoss."""
        return replace(self, width=width)

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See ConvexLoss and SmoothLoss."""
        costs = _read_costs(self.C, rows)
        (above, up), (below, down) = (smooth_hinge(u, self.width) for u in self._find_kinks(rows, scores))
        return costs * (above + below), costs * (up - down)

    def steepest(self, rows: Rows) -> F64:
        """See ConvexLoss: the costs."""
        return _read_costs(self.C, rows)

    def smooth(self, rows: Rows, scores: F64, reach: F64) -> Smoothing:
        """See KinkedLoss: within the width, q - max(0, u), and a quarter of the width."""
        found, costs = np.zeros((4, rows.n_rows)), _read_costs(self.C, rows)
        for u in self._find_kinks(rows, scores):
            near = np.flatnonzero(np.abs(u) < self.width)
            quarter = costs[near] * self.width / 4.0
            found[0, near] += quarter * (1.0 - np.abs(u[near]) / self.width) ** 2
            found[1, near] += quarter
            found[3] += costs * self.width / (2.0 * np.maximum(np.abs(u), self.width) ** 2) if self.width > 0.0 else 0.0
            found[2] = np.maximum(found[2], np.where(u + reach > -self.width, costs, 0.0))
        return Smoothing(*found)

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: C_i / (2 width) for each kink within whose width the row stays."""
        stays = np.sum(np.abs(self._find_kinks(rows, scores)) + reach < self.width, axis=0)
        least: F64 = self.sharpest(rows) / 2.0 * stays
        return least

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: C_i / (2 width) for each kink within whose width the row may come."""
        comes = np.sum(np.abs(self._find_kinks(rows, scores)) - reach <= self.width, axis=0)
        most: F64 = self.sharpest(rows) / 2.0 * comes
        return most

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss: both kinks may be near."""
        costs = _read_costs(self.C, rows)
        return costs / self.width if self.width > 0.0 else np.zeros_like(costs)

    def find_kinks(self, rows: Rows) -> Kinks:
        """See KinkedLoss."""
        truth, signs = read_truth(rows, self.numbers), np.array([[1.0], [-1.0]])
        ones = np.ones((2, rows.n_rows))
        return Kinks(signs * ones, truth + self.epsilon * signs, _read_costs(self.C, rows) * ones)

    def _find_kinks(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """Return how far the scores are beyond the upper and the lower kink, (n,) each."""
        error = scores - read_truth(rows, self.numbers)
        return error - self.epsilon, -error - self.epsilon


@dataclass(frozen=True)
class SquaredEpsilonInsensitive:
    """C_i max(0, |t_i - f_i| - epsilon)^2 as a SmoothLoss. numbers: see EpsilonInsensitive."""

    C: float
    epsilon: float
    numbers: F64

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See SmoothLoss."""
        error = scores - read_truth(rows, self.numbers)
        outside, costs = np.maximum(0.0, np.abs(error) - self.epsilon), _read_costs(self.C, rows)
        return costs * outside**2, 2.0 * costs * outside * np.sign(error)

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: 2 C_i if the row stays outside the tube, or if there is none."""
        away, bent = np.abs(scores - read_truth(rows, self.numbers)) - self.epsilon, self.sharpest(rows)
        return np.where(away > reach, bent, 0.0) if self.epsilon > 0.0 else bent

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: 2 C_i if the row can be outside the tube, or at it."""
        away, bent = np.abs(scores - read_truth(rows, self.numbers)) - self.epsilon, self.sharpest(rows)
        return np.where(away >= -reach, bent, 0.0)

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss."""
        return 2.0 * _read_costs(self.C, rows)


LOSSES: dict[str, Callable[[float, float, F64], ConvexLoss | SmoothLoss]] = {
    "epsilon_insensitive": EpsilonInsensitive,
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
}


def _read_costs(C: float, rows: Rows) -> F64:
    return np.full(rows.n_rows, C) if rows.sample_weight is None else C * rows.sample_weight


def tell_loss(source: RowSource, options: TrainOptions) -> dict[str, Any]:
    """Return the loss that the options name, as it is told in settings and models.

    Raises InputError for rows without targets, and for an epsilon that is no half-width.
    """
    read_numbers(source)
    epsilon = EPSILON if options.epsilon is None else options.epsilon
    if not (is_finite(epsilon) and epsilon >= 0.0):
        raise InputError(f"epsilon is {epsilon!r:.40}; the half-width of a tube is finite and not negative")
    return {"loss": options.loss or next(iter(LOSSES)), "row_cost": float(options.C), "tube": float(epsilon)}


def read_losses(told: Mapping[str, Any], source: RowSource, n_problems: int) -> list[ConvexLoss | SmoothLoss]:  # noqa: ARG001
    """Return the one loss that `tell_loss` told."""
    loss = LOSSES[str(told["loss"])]
    return [loss(float(told["row_cost"]), float(told["tube"]), read_numbers(source))]


def make_loss(source: RowSource, options: TrainOptions) -> ConvexLoss | SmoothLoss:
    """Return the loss that the options name."""
    return read_losses(tell_loss(source, options), source, 1)[0]


def read_numbers(source: RowSource) -> F64:
    """Return the targets that codes of labels stand for, empty if the rows have targets; InputError without any."""
    if source.has_targets:
        return np.empty(0)
    if source.classes is None:
        raise InputError(f"{source.name}: no labels to learn from")
    if source.classes.dtype.kind not in "biuf":
        raise InputError(f"{source.name}: labels are {str(source.classes[0])!r}, ..; a regression needs numbers")
    numbers = source.classes.astype(np.float64)
    check_targets(numbers, source.name)
    return numbers


def count_one(_: Any) -> int:
    """Return 1: there is one problem, and one score for each row."""
    return 1


def code_labels(labels: Labels, classes: Labels) -> F64:  # noqa: ARG001
    """Return the labels as numbers. InputError is raised for texts."""
    try:
        return labels.astype(np.float64)
    except ValueError:
        raise InputError(f"a label is {str(labels[0])!r}, but targets have to be numbers") from None


def evaluate(parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:  # noqa: ARG001
    """Return the mean absolute error, the root of the mean squared error, and R2, the explained share of the variance.

    R2 is None if all targets are equal.
    """
    n, absolute, squares, mean, scatter = 0, 0.0, 0.0, 0.0, 0.0
    for part in parts:
        assert part.truth is not None
        k, error = len(part.truth), part.scores - part.truth
        if not k:
            continue
        shift = float(np.mean(part.truth)) - mean
        scatter += float(np.sum((part.truth - np.mean(part.truth)) ** 2)) + shift**2 * n * k / (n + k)
        mean += shift * k / (n + k)
        n, absolute, squares = n + k, absolute + float(np.sum(np.abs(error))), squares + float(np.sum(error**2))
    return {
        "n_rows": n,
        "mean_absolute_error": absolute / n,
        "root_mean_squared_error": float(np.sqrt(squares / n)),
        "r2": 1.0 - squares / scatter if scatter > 0.0 else None,
    }


def draw_folds(source: RowSource, folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return the fold of each row, drawn at random. InputError if there are fewer rows than folds."""
    if source.n_rows < folds:
        rows = say_count(source.n_rows, "row")
        raise InputError(f"{source.name}: {rows} cannot be split into {folds} folds: add rows, or take fewer --folds")
    return (rng.permutation(source.n_rows) % folds).astype(np.uint8)


def measure_tile(scores: F64, truth: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the sum of the absolute errors, with a minus, and the number of rows."""
    return -float(np.sum(np.abs(scores - truth))), len(truth)


def measure_scores(scores: F64, truth: npt.NDArray[Any], qid: I64 | None) -> float:  # noqa: ARG001
    """Return the mean absolute error, with a minus: more is better."""
    errors, rows = measure_tile(scores, truth)
    return errors / rows


REGRESS = Problem(
    name="regress",
    models=("linear", "kernel"),
    predicts_labels=False,
    has_classes=False,
    has_class_costs=False,
    has_epsilon=True,
    reads_queries=False,
    measure="minus mean absolute error",
    error="Mean absolute error on held-out rows",
    best_score=0.0,
    score_name="prediction",
    count_problems=count_one,
    count_scores=count_one,
    code_labels=code_labels,
    evaluate=evaluate,
    draw_folds=draw_folds,
    measure_scores=measure_scores,
    measure_tile=measure_tile,
    make_loss=make_loss,
    tell_loss=tell_loss,
    read_losses=read_losses,
)
