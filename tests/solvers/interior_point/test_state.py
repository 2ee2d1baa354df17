"""States of the interior point that somebody has made up are refused, before anything divides by their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamsvm.solvers.interior_point.state import start_state
from streamsvm.solvers.interior_point.steps import BEGIN


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ({"n_rows": -5}, "n_rows, passes: "),
        ({"change_kinds": start_state(9, 2).change_kinds}, "n_rows, passes: "),
        ({"total_cost": 0.0}, "total_cost: it must be positive if the objective is"),
    ],
)
def test_a_state_that_cannot_be_is_refused(forged: dict[str, Any], message: str) -> None:
    state = replace(start_state(9, 2).change(BEGIN, (1.0, 1.0)), passes=1, total_cost=9.0, objective=4.0)
    state.check()
    start_state(9, 2).check()
    replace(state, total_cost=0.0, objective=0.0).check()
    with pytest.raises(ValueError, match=message):
        replace(state, **forged).check()
