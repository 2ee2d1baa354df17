"""The options of budgeted SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamsvm.methods.option_fields import choice, count


@dataclass(frozen=True)
class BudgetedOptions:
    """See the help texts."""

    budget: int = count(1, default=500, help="support vectors of a model at most")
    merge: int | None = count(2, help="support vectors that become one where the budget is exceeded; 2 if not given")
    maintenance: Literal["merge", "gradient-merge", "projection", "removal"] = choice(
        "merge", "gradient-merge", "projection", "removal", help="how the budget is kept"
    )
    epochs: int = count(1, default=1, help="times that every row is learned")
    pack: int = count(1, default=64, help="rows that are met at once; changes nothing but the time")
    replicas: int = count(
        1, default=1, help="models that learn shares of the rows side by side; their mean is the result"
    )
    bias: str | None = choice(
        "none", "free", default=None, help="whether the model has a bias; one of a regression has if not given"
    )
