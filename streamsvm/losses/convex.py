"""Losses of a row's score: any convex loss, smooth losses with their curvature, and the smoothing of losses with kinks.

A kink is a hinge max(0, u), where u is the score minus the place of the kink, or the negative of this. Within the width
m of the kink, the hinge is replaced by a parabola, which lies above it and has the same values and slopes at both ends:

    q(u) = (u + m)^2 / (4 m)      for |u| <= m,          max(0, u) otherwise

q(u) - m/4, continued beyond |u| = m with the slopes 0 and 1, is a lower bound on the hinge. So a smooth function of the
scores lies below the loss, by at most m/4 for each row near a kink.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np

from streamsvm.numeric.rows import F64, Rows


@runtime_checkable
class ConvexLoss(Protocol):
    """The loss C_i l_i(f_i) of a row as a convex function of its score; the object must be picklable for workers.

    Losses are nonnegative, and proportional to C and to the row's sample weight, since a fit with a larger C starts
    from the cuts of a smaller one, and held-out rows have weight 0. The slopes of a row's loss are bounded.
    """

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """Return the losses of the rows at these scores, (n,), and a subgradient of each, (n,).

        Both include the costs C_i with the sample weights.
        """

    def steepest(self, rows: Rows) -> F64:
        """Return the largest |slope| of each row's loss at any score, (n,); it bounds the effect of rounding."""


class SmoothLoss(Protocol):
    """The loss l_i(f_i) of a row, costs included, with a continuous slope; the object must be picklable for workers.

    The second derivative is bounded, but may jump (for example, that of the squared hinge does).
    """

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """Return the losses of the rows at these scores, (n,), and their slopes, (n,), costs included."""

    def bend(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the least second derivative of each row's loss, (n,), at scores less than reach (n,) away."""

    def bend_most(self, rows: Rows, scores: F64, reach: F64) -> F64:
        """Return the largest second derivative of each row's loss, (n,), at scores at most reach (n,) away."""

    def sharpest(self, rows: Rows) -> F64:
        """Return the largest second derivative of each row's loss at any score, (n,)."""


class Smoothing(NamedTuple):
    """The effect of the smoothing on rows at their scores, (n,) each.

    excess: the smoothed loss (the result of `measure`) minus the loss; slack: the smoothed loss minus a smooth lower
    bound on the loss, which has the same slope; steepest: the largest |slope| of the loss or the smoothed loss within
    the reach; tail: a curvature for steps that may reach a kink; it falls with the square of the distance from the
    kink.
    """

    excess: F64
    slack: F64
    steepest: F64
    tail: F64


class Kinks(NamedTuple):
    """The k hinges C_i max(0, sign (f_i - place)) whose sum is the loss of row i; the fields are (k, n) each."""

    signs: F64
    places: F64
    costs: F64


class KinkedLoss(SmoothLoss, Protocol):
    """A loss with kinks, smoothed with some width; with width 0 it is the loss itself."""

    def sharpen(self, width: float) -> Self:
        """Return the loss smoothed with this width."""

    def smooth(self, rows: Rows, scores: F64, reach: F64) -> Smoothing:
        """Return the effect of the smoothing on the rows at these scores, or at scores within reach (n,) of these."""

    def find_kinks(self, rows: Rows) -> Kinks:
        """Return the kinks of the rows."""


def has_kinks(loss: SmoothLoss) -> TypeGuard[KinkedLoss]:
    """Return whether a loss has kinks; isinstance would be slow, as it checks all methods of the protocol."""
    return hasattr(loss, "sharpen")


def smooth_hinge(u: F64, width: float) -> tuple[F64, F64]:
    """Return q and its slope at u; with width 0 these are the hinge and its slope."""
    if width == 0.0:
        return np.maximum(0.0, u), (u > 0.0).astype(np.float64)
    slope = np.clip((u + width) / (2.0 * width), 0.0, 1.0)
    return np.where(np.abs(u) < width, width * slope**2, np.maximum(0.0, u)), slope
