"""The smooth losses of two classes: squared hinge and logistic loss, which are proportional to a row's cost C_i.

squared hinge    C_i max(0, 1 - m_i)^2          m_i = y_i f_i
logistic loss    C_i log(1 + exp(-m_i))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, Rows


@dataclass(frozen=True)
class SquaredHinge:
    """C_i max(0, 1 - y_i f_i)^2 as a SmoothLoss. class_costs: C_i of the two classes before sample weights."""

    class_costs: tuple[float, float]

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See SmoothLoss."""
        y, costs = read_labels(self.class_costs, rows.y, rows.sample_weight)
        missing = np.maximum(0.0, 1.0 - y * scores)
        return costs * missing**2, -2.0 * costs * y * missing

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: 2 C_i if the row stays inside the margin."""
        y, costs = read_labels(self.class_costs, rows.y, rows.sample_weight)
        return np.where(1.0 - y * scores > reach, 2.0 * costs, 0.0)

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: 2 C_i if the row can be inside the margin, or at it."""
        y, costs = read_labels(self.class_costs, rows.y, rows.sample_weight)
        return np.where(1.0 - y * scores >= -reach, 2.0 * costs, 0.0)

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss."""
        costs: F64 = 2.0 * read_labels(self.class_costs, rows.y, rows.sample_weight)[1]
        return costs


def _bend_logistic(costs: F64, sizes: F64) -> F64:
    """Return the second derivative of the logistic loss at scores of these sizes, which must not be negative."""
    share = expit(-sizes)  # at most 1/2, so that 1 - share is accurate
    bent: F64 = costs * share * (1.0 - share)
    return bent


@dataclass(frozen=True)
class Logistic:
    """C_i log(1 + exp(-y_i f_i)) as a SmoothLoss. class_costs: C_i of the two classes before sample weights."""

    class_costs: tuple[float, float]

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """See SmoothLoss."""
        y, costs = read_labels(self.class_costs, rows.y, rows.sample_weight)
        margins = y * scores
        odds = np.exp(-np.abs(margins))  # at most 1
        share = np.where(margins > 0.0, odds, 1.0) / (1.0 + odds)
        return costs * (np.maximum(0.0, -margins) + np.log1p(odds)), -costs * y * share

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: the second derivative falls with the size of the score."""
        costs = read_labels(self.class_costs, rows.y, rows.sample_weight)[1]
        return _bend_logistic(costs, np.abs(scores) + reach)

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """See SmoothLoss: that of the score nearest to 0."""
        costs = read_labels(self.class_costs, rows.y, rows.sample_weight)[1]
        return _bend_logistic(costs, np.maximum(0.0, np.abs(scores) - reach))

    def sharpest(self, rows: Rows) -> F64:
        """See SmoothLoss."""
        costs: F64 = 0.25 * read_labels(self.class_costs, rows.y, rows.sample_weight)[1]
        return costs
