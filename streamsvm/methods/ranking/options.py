"""The options of cutting planes for rankings."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import choice, count, positive


@dataclass(frozen=True)
class RankingOptions:
    """Options of rankings, which their help texts explain."""

    acceleration: str = choice("line-search", "none", help="by a line search, or Algorithm 2 of Joachims 2006 as it is")
    epsilon: float | None = positive(help="the paper's stop: by how much the worst cut may be violated, per pair")
    max_cuts: int | None = count(9, help="cuts that are kept at once")
