"""The options of Crammer-Singer."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import count, positive


@dataclass(frozen=True)
class CrammerSingerOptions:
    """Options of Crammer-Singer, which their help texts explain."""

    intercept_scaling: float = positive(
        default=1.0, or_zero=True, help="value of the constant feature whose weight is the bias; 0 is no bias"
    )
    max_cuts: int | None = count(4, help="cuts that are kept at once")
