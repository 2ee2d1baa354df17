"""Regression: the score of a row predicts its target; errors up to epsilon, the half-width of a tube, cost nothing.

    P(w, b) = 1/2 |w|^2 + sum_i C_i l(|t_i - (w.x_i + b)| - epsilon),      C_i = C * sample_weight_i

t_i is the target of row i, and l(e) is max(0, e), or its square. With epsilon = 0 these are the absolute and the
squared error. The targets are the numbers that `ingest` stored as targets, or numeric classes.
Source: Smola & Schoelkopf 2004, "A tutorial on support vector regression", Statistics and Computing 14.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource
from streamsvm.data.store.layouts import check_targets
from streamsvm.losses.convex import Kinks, Smoothing, smooth_hinge
from streamsvm.numeric.rounding import add_two
from streamsvm.numeric.rows import F64, Rows
from streamsvm.options import TrainOptions, is_finite
from streamsvm.problems.problem import Labels, Problem, Scored, Scoring, read_as_numbers, read_truth
from streamsvm.system.errors import InputError

EPSILON = 0.1  # the default of LIBSVM and LIBLINEAR


@dataclass(frozen=True)
class OfErrors:
    """A loss of the error f_i - t_i. numbers: the target for each label code; empty if the rows have targets."""

    C: float
    epsilon: float
    numbers: F64

    def read_costs(self, rows: Rows) -> F64:
        """Return C_i of the rows, (n,)."""
        return self.C * rows.weights

    def find_excess(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """Return f_i - t_i - epsilon and t_i - f_i - epsilon, (n,) each: distances beyond the edges of the tube.

        Their rounding errors are relative to these distances, as the bounds of sums of losses assume. The rounding
        error of f_i - t_i alone may be larger than the loss of a row near an edge.
        """
        with np.errstate(invalid="ignore"):  # of scores that overflow
            error, missed = add_two(np.asarray(scores, np.float64), -read_truth(rows, self.numbers))
        missed = np.where(np.isfinite(missed), missed, 0.0)
        return (error - self.epsilon) + missed, (-error - self.epsilon) - missed


@dataclass(frozen=True)
class EpsilonInsensitive(OfErrors):
    """C_i max(0, |t_i - f_i| - epsilon) as a ConvexLoss, or smoothed as a KinkedLoss.

    It is the sum of two hinges, with kinks at t_i + epsilon and t_i - epsilon. width: the width of the smoothing.
    """

    width: float = 0.0

    def sharpen(self, width: float) -> EpsilonInsensitive:
        """See KinkedLoss."""
        return replace(self, width=width)

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See ConvexLoss and SmoothLoss."""
        costs = self.read_costs(rows)
        (above, up), (below, down) = (smooth_hinge(u, self.width) for u in self.find_excess(rows, scores))
        return costs * (above + below), costs * (up - down)

    def steepest(self, rows: Rows) -> F64:
        """Return C_i, the steepest slope of each row's loss; see ConvexLoss."""
        return self.read_costs(rows)

    def smooth(self, rows: Rows, scores: F64, reach: F64) -> Smoothing:
        """See KinkedLoss: within the width, excess is C_i (q - max(0, u)), and slack is C_i width / 4."""
        found, costs = np.zeros((4, rows.n_rows)), self.read_costs(rows)
        for u in self.find_excess(rows, scores):
            near = np.flatnonzero(np.abs(u) < self.width)
            quarter = costs[near] * self.width / 4.0
            found[0, near] += quarter * (1.0 - np.abs(u[near]) / self.width) ** 2
            found[1, near] += quarter
            found[3] += costs * self.width / (2.0 * np.maximum(np.abs(u), self.width) ** 2) if self.width > 0.0 else 0.0
            found[2] = np.maximum(found[2], np.where(u + reach > -self.width, costs, 0.0))
        return Smoothing(*found)

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the sum of C_i / (2 width) over the kinks within whose width the row surely stays; see SmoothLoss."""
        stays = np.sum(np.abs(self.find_excess(rows, scores)) + reach < self.width, axis=0)
        return np.asarray(self.sharpest(rows) / 2.0 * stays, np.float64)

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the sum of C_i / (2 width) over the kinks within whose width the row may lie; see SmoothLoss."""
        comes = np.sum(np.abs(self.find_excess(rows, scores)) - reach <= self.width, axis=0)
        return np.asarray(self.sharpest(rows) / 2.0 * comes, np.float64)

    def sharpest(self, rows: Rows) -> F64:
        """Return the sum of C_i / (2 width) over both kinks, since a score may be near both; see SmoothLoss."""
        costs = self.read_costs(rows)
        return costs / self.width if self.width > 0.0 else np.zeros_like(costs)

    def find_kinks(self, rows: Rows) -> Kinks:
        """See KinkedLoss."""
        truth, signs = read_truth(rows, self.numbers), np.array([[1.0], [-1.0]])
        ones = np.ones((2, rows.n_rows))
        return Kinks(signs * ones, truth + self.epsilon * signs, self.read_costs(rows) * ones)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(OfErrors):
    """C_i max(0, |t_i - f_i| - epsilon)^2 as a SmoothLoss."""

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See SmoothLoss."""
        (above, below), costs = np.maximum(0.0, self.find_excess(rows, scores)), self.read_costs(rows)
        return costs * (above**2 + below**2), 2.0 * costs * (above - below)

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return 2 C_i if the row stays outside the tube, or if epsilon is 0, else 0; see SmoothLoss."""
        away, bent = np.max(self.find_excess(rows, scores), axis=0), self.sharpest(rows)
        return np.where(away > reach, bent, 0.0) if self.epsilon > 0.0 else bent

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return 2 C_i if the row can be outside the tube or on its edge, else 0; see SmoothLoss."""
        away, bent = np.max(self.find_excess(rows, scores), axis=0), self.sharpest(rows)
        return np.where(away >= -reach, bent, 0.0)

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss."""
        return 2.0 * self.read_costs(rows)


LOSSES = {"epsilon_insensitive": EpsilonInsensitive, "squared_epsilon_insensitive": SquaredEpsilonInsensitive}


def read_numbers(source: RowSource) -> F64:
    """Return the target for each label code, empty if the rows have targets.

    Raises InputError if labels are not numbers.
    """
    if source.has_targets:
        return np.empty(0)
    if source.classes is None:
        raise InputError(f"{source.name}: there are no labels to learn from; ingest the rows with their targets")
    if source.classes.dtype.kind not in "biuf":
        raise InputError(f"{source.name}: labels are {str(source.classes[0])!r}, ..., but a regression needs numbers")
    numbers = source.classes.astype(np.float64)
    check_targets(numbers, source.name)
    return numbers


def add_errors(scores: F64, truth: npt.NDArray[Any]) -> F64:
    """Return the number of rows, the sums of absolute and squared errors, and the mean and scatter of the targets.

    The scatter is the sum of the squared distances of the targets from their mean.
    """
    if not len(truth):
        return np.zeros(5)
    error, mean = scores - truth, np.mean(truth)
    scatter = np.sum((truth - mean) ** 2)
    return np.array([len(truth), np.sum(np.abs(error)), np.sum(error**2), mean, scatter])


def combine_errors(left: F64, right: F64) -> F64:
    """Return the sums of `add_errors` over the rows of both."""
    n, absolute, squares, mean, scatter = left.tolist()
    k, more_absolute, more_squares, other_mean, more_scatter = right.tolist()
    if not k:
        return left
    shift = other_mean - mean
    scatter += more_scatter + shift**2 * n * k / (n + k)
    return np.array([n + k, absolute + more_absolute, squares + more_squares, mean + shift * k / (n + k), scatter])


def measure_errors(sums: F64) -> dict[str, Any]:
    """Return the measures of predicted numbers from the sums of `add_errors`; R2 is None if all targets are equal."""
    n, absolute, squares, _, scatter = sums.tolist()
    n = max(1.0, n)
    return {
        "neg_mean_absolute_error": -absolute / n,
        "neg_mean_squared_error": -squares / n,
        "neg_root_mean_squared_error": -math.sqrt(squares / n),
        "r2": 1.0 - squares / scatter if scatter > 0.0 else None,
    }


ERRORS = ("neg_mean_absolute_error", "neg_mean_squared_error", "neg_root_mean_squared_error", "r2")


class OfTargets(Problem):
    """A problem whose scores predict numbers."""

    models: tuple[str, ...] = ("linear", "kernel")
    predicts_labels, has_classes = False, False
    scorings = (Scoring(ERRORS, measure_errors, add_errors, combine_errors),)
    score_name = "prediction"

    def code_labels(self, labels: Any, classes: Labels) -> F64:  # noqa: ARG002
        """Return the labels as numbers. Raises InputError for strings."""
        return read_as_numbers(labels, "targets")

    def evaluate(self, parts: Iterable[Scored], classes: Labels) -> dict[str, Any]:  # noqa: ARG002
        """Return the mean absolute error, the root mean squared error, and R2, the explained share of variance.

        R2 is None if all targets are equal.
        """
        sums = reduce(combine_errors, (add_errors(part.scores, part.labels) for part in parts), np.zeros(5))
        found = measure_errors(sums)
        return {
            "n_rows": int(sums[0]),
            "mean_absolute_error": abs(found["neg_mean_absolute_error"]),
            "root_mean_squared_error": abs(found["neg_root_mean_squared_error"]),
            "r2": found["r2"],
        }


class Regress(OfTargets):
    """Support-vector regression with a tube."""

    name, has_epsilon = "regress", True

    def tell_loss(self, source: RowSource, options: TrainOptions) -> dict[str, Any]:
        """Return the loss that the options choose, as settings and models report it.

        Raises InputError for rows without targets, and for an epsilon that is negative or not finite.
        """
        read_numbers(source)
        epsilon = EPSILON if options.epsilon is None else options.epsilon
        if not (is_finite(epsilon) and epsilon >= 0.0):
            raise InputError(
                f"epsilon is {epsilon!r:.40}, but the half-width of a tube must be finite and not negative"
            )
        return {"loss": options.loss or next(iter(LOSSES)), "row_cost": float(options.C), "tube": float(epsilon)}

    def read_losses(self, told: Mapping[str, Any], source: RowSource, n_problems: int) -> list[Any]:  # noqa: ARG002
        """Return the single loss that `tell_loss` described."""
        return [LOSSES[str(told["loss"])](float(told["row_cost"]), float(told["tube"]), read_numbers(source))]


REGRESS = Regress()
