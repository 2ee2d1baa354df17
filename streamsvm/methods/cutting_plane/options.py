"""The options of cutting planes for classification and for any convex loss."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import choice, count, folder, positive

LEAST_ROWS = 1000  # fewer resident rows are not worth it, unless these are all rows
OTHER_BYTES = 288 << 20  # interpreter, libraries, slack


@dataclass(frozen=True)
class CuttingPlaneOptions:
    """Options of the SVM, which their help texts explain."""

    acceleration: str = choice(
        "auto",
        "one-read",
        "block-ascent",
        "guided",
        "line-search",
        "none",
        help="by the exact solution for the rows near the margin (one-read), by dual coordinate ascent on one block "
        "of the rows after another (block-ascent), by a line search, or by Algorithm 1 of Joachims 2006 as it is "
        "(none); auto takes the first that suits the number of features and the memory, or a line search if epsilon or "
        "max_cuts is given; one-read gives way to block-ascent if there are too many features or too few resident "
        "rows, and says so; guided is the earlier name of auto",
    )
    epsilon: float | None = positive(help="the paper's stop: by how much the worst cut may be violated, per row")
    intercept_scaling: float = positive(
        default=1.0, or_zero=True, help="value of the constant feature whose weight is the bias; 0 is no bias"
    )
    max_cuts: int | None = count(4, help="cuts that are kept at once")
    scratch: str | None = folder(
        help="folder to which the first read of one-read writes the rows that may change sides, so that later reads "
        "are of these rows alone; for two classes; nothing is written where one read is expected to be enough, or "
        "where most rows may change sides"
    )


@dataclass(frozen=True)
class OneClassOptions:
    """Options of the linear one-class SVM: it has none."""


@dataclass(frozen=True)
class AnyLossOptions:
    """Options of cutting planes for any convex loss, which their help texts explain."""

    intercept_scaling: float = positive(
        default=1.0, or_zero=True, help="value of the constant feature whose weight is the bias; 0 is no bias"
    )
    max_cuts: int | None = count(4, help="cuts that are kept at once")
