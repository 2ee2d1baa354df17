"""Any convex loss of a row's score: what a method needs to know of it, and no more."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from streamsvm.numeric.rows import F64, Rows


@runtime_checkable
class ConvexLoss(Protocol):
    """The loss C_i l_i(f_i) of a row as a convex function of its score. An object that workers can be sent.

    Losses are never negative, and they are proportional to C and to the row's sample weight: a fit with larger C starts
    from the cuts of a smaller one, and rows that are held out have weight 0. The slopes of a row are bounded.
    """

    def measure(self, rows: Rows, scores: F64) -> tuple[F64, F64]:
        """Return the losses of the rows at these scores, (n,), and a slope (subgradient) of each there, (n,).

        Both contain the costs C_i, sample weights included.
        """

    def steepest(self, rows: Rows) -> F64:
        """Return the largest size of a slope of each row's loss at any score, (n,): what rounding is bounded by."""
