"""A convex loss of a row's score for a method that uses its curvature, and the smoothing of a loss that has kinks.

A kink is a hinge max(0, u), where u is a score less the place of the kink, or the opposite. Within a width m of the
kink a parabola takes its place, which lies above it and has the same value and slope at both ends:

    q(u) = (u + m)^2 / (4 m)      for |u| <= m,          max(0, u) otherwise

q(u) - m/4 is a lower bound of the hinge, if it goes on beyond |u| = m with the slopes 0 and 1. So a function of the
scores that is smooth lies below the loss by no more than m/4 for each row near a kink.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self, TypeGuard

import numpy as np

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


class Smoothing(NamedTuple):
    """What the smoothing does to rows at their scores, (n,) each.

    excess: by how much `measure` is above the losses; slack: by how much it is above a smooth lower bound of them,
    which has the same slope; steepest: the largest slope that the loss, or `measure`, may have within the reach;
    tail: a curvature for steps that may come to a kink, which falls with the square of the distance from it.
    """

    excess: F64
    slack: F64
    steepest: F64
    tail: F64


class Kinks(NamedTuple):
    """The hinges C_i max(0, u), u = sign (f_i - place), whose sum is the loss of a row; k for each row, (k, n) each."""

    signs: F64
    places: F64
    costs: F64


class KinkedLoss(SmoothLoss, Protocol):
    """A loss with kinks, of which a SmoothLoss shows the smoothing of some width; with the width 0 it is the loss."""

    def sharpen(self, width: float) -> Self:
        """Return the loss smoothed with this width."""

    def smooth(self, rows: Rows, scores: F64, reach: F64) -> Smoothing:
        """Return what the smoothing does to the rows at these scores, or within their reach of them."""

    def find_kinks(self, rows: Rows) -> Kinks:
        """Return the kinks of the rows."""


def has_kinks(loss: SmoothLoss) -> TypeGuard[KinkedLoss]:
    """Return whether a loss has kinks. isinstance would look for all methods of the protocol, for each tile of rows."""
    return hasattr(loss, "sharpen")


def smooth_hinge(u: F64, width: float) -> tuple[F64, F64]:
    """Return q and its slope at u. A width of 0 smooths nothing."""
    if width == 0.0:
        return np.maximum(0.0, u), (u > 0.0).astype(np.float64)
    slope = np.clip((u + width) / (2.0 * width), 0.0, 1.0)
    return np.where(np.abs(u) < width, width * slope**2, np.maximum(0.0, u)), slope
