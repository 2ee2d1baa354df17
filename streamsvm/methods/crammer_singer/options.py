"""The options of Crammer-Singer."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import choice, count, positive


@dataclass(frozen=True)
class CrammerSingerOptions:
    """Options of Crammer-Singer, which their help texts explain."""

    acceleration: str = choice(
        "auto",
        "block-ascent",
        "line-search",
        help="by dual coordinate ascent on one block of the rows after another, or by a line search, which holds no "
        "rows and no shares of them; auto takes the first, unless the memory is too small or max_cuts is given",
    )
    intercept_scaling: float = positive(
        default=1.0, or_zero=True, help="value of the constant feature whose weight is the bias; 0 is no bias"
    )
    max_cuts: int | None = count(4, help="cuts that are kept at once")
