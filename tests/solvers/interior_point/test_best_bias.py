"""The best bias, found in passes over the numbers of the rows, against the sorted corners of all rows."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.numeric.rows import F64, Rows
from streamsvm.passes import RowState
from streamsvm.solvers.interior_point import passes
from streamsvm.solvers.interior_point.passes import _number, find_bias, order_bits
from streamsvm.solvers.interior_point.steps import N_NUMBERS

KINDS = ("normal", "equal", "two values", "huge", "tiny")


def draw_corners(kind: str, n: int, random: np.random.Generator) -> F64:
    """f of so many rows."""
    match kind:
        case "equal":
            return np.zeros(n)
        case "two values":
            return random.choice([-0.25, 0.5], n)
        case "huge":
            return random.normal(size=n) * 10.0 ** random.uniform(-200, 200, n)
        case "tiny":
            return random.normal(size=n) * 1e-300
    return random.normal(size=n)


def find(f: F64, y: F64, costs: F64) -> float:
    """Answer the solver's passes, in parts of 100 rows."""
    numbers = np.zeros((N_NUMBERS, len(f)))
    numbers[0], numbers[5], numbers[6] = f, y, costs
    size = float(np.finfo(float).eps * len(f) * costs.sum())
    solver = find_bias(RowState("one", ()), len(f), -float(costs[y > 0].sum()), size)
    try:
        request = next(solver)
        while True:
            parts = []
            for at in range(0, len(f), 100):
                own = np.ascontiguousarray(numbers[:, at : at + 100])
                parts.append(request.start())
                request.add(parts[-1], Rows(at, np.empty((own.shape[1], 0), np.float32)), *request.shared, own)
            request = solver.send(reduce(request.combine, parts))
    except StopIteration as ended:
        return float(ended.value)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    few_rows=st.sampled_from([1, 20, 10**6]),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    weighted=st.booleans(),
)
def test_no_corner_is_better(seed: int, kind: str, few_rows: int, share: float, weighted: bool) -> None:
    """Of any distribution, whether the last corners are told, or there are too many even in one bin."""
    random = np.random.default_rng(seed)
    n = int(random.choice([1, 30, 400]))
    f, y = draw_corners(kind, n, random), np.where(random.random(n) < share, 1.0, -1.0)
    costs = random.integers(0, 3, n).astype(float) if weighted else np.ones(n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "FEW_ROWS", few_rows)
        bias = find(f, y, costs)
    losses = [float(np.sum(costs * np.maximum(0.0, 1.0 - y * (f + b)))) for b in (bias, *(y - f))]
    rounding = 4 * np.finfo(float).eps * costs.sum() * max(1.0, np.abs(f).max())
    assert losses[0] <= min(losses) * (1 + 1e-12) + rounding


def test_few_corners_are_told() -> None:
    """Of 100,000 rows the driver is told less than FEW_ROWS."""
    random = np.random.default_rng(0)
    f, y = random.normal(size=100_000), random.choice([-1.0, 1.0], 100_000)
    told: list[int] = []
    add = passes.add_corners

    def add_and_count(totals: list[F64], *arguments: Any) -> None:
        add(totals, *arguments)
        told.append(totals[-1].shape[1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "add_corners", add_and_count)
        find(f, y, np.ones(100_000))
    assert 0 < sum(told) < passes.FEW_ROWS


def test_bits_are_in_the_order_of_numbers() -> None:
    values = np.array([-np.inf, -1e300, -2.0, -1.0, -1e-320, 0.0, 1e-320, 1.0, np.nextafter(1, 2), np.inf])
    places = order_bits(values).tolist()
    assert all(map(operator.lt, places, places[1:]))
    assert [_number(place) for place in places] == values.tolist()
