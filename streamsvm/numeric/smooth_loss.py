"""A smooth convex loss of a row's score: what a method that uses its curvature needs to know of it."""

from __future__ import annotations

from typing import Protocol

from streamsvm.numeric.rows import F64, Rows


class SmoothLoss(Protocol):
    """The loss l_i(f_i) of a row, costs included, with a slope that is continuous. An object that workers can be sent.

    The second derivative may jump, as that of the squared hinge does. It is bounded.
    """

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """Return the losses of the rows at these scores, (n,), and their slopes there, (n,), costs included."""

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the least second derivative of each row's loss at scores that are nearer than its reach, (n,)."""

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the largest second derivative of each row's loss at scores not farther than its reach, (n,)."""

    def sharpest(self, rows: Rows) -> F64:
        """Return the largest second derivative of each row's loss at any score, (n,)."""
