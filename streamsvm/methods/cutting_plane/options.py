"""The options of cutting planes for classification and for any convex loss."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import choice, count, positive

OTHER_BYTES = 320 << 20  # interpreter, libraries, streaming


@dataclass(frozen=True)
class CuttingPlaneOptions:
    """Options of the SVM, which their help texts explain. guided and one-read take neither epsilon nor max_cuts."""

    acceleration: str | None = choice(
        "guided",
        "one-read",
        "line-search",
        "none",
        default=None,
        help="guided by rows in memory, by exact solution for the rows near the margin (one-read), by a line search, "
        "or Algorithm 1 of Joachims 2006 as it is; guided unless the memory is too small for such rows, or epsilon or "
        "max_cuts is given",
    )
    epsilon: float | None = positive(help="the paper's stop: by how much the worst cut may be violated, per row")
    intercept_scaling: float = positive(default=1.0, help="value of the constant feature whose weight is the bias")
    max_cuts: int | None = count(4, help="cuts that are kept at once")


@dataclass(frozen=True)
class AnyLossOptions:
    """Options of cutting planes for any convex loss, which their help texts explain."""

    intercept_scaling: float = positive(default=1.0, help="value of the constant feature whose weight is the bias")
    max_cuts: int | None = count(4, help="cuts that are kept at once")
