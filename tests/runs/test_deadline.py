"""The limit of seconds holds within a start in memory, too: it ends with the best point so far, and a pass follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.data.rows.source import RowSource
from streamsvm.options import TrainOptions
from streamsvm.runs import train as run
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane import block_ascent, coordinate_ascent, kink_path, smoothed_newton
from streamsvm.solvers.label_newton import setup
from streamsvm.solvers.label_newton import solver as label_solver
from streamsvm.solvers.label_newton import steps as label_steps
from streamsvm.solvers.newton import l1_solver, solver
from streamsvm.system import deadline
from tests.conftest import make_problem
from tests.label_problems import make_labels
from tests.regression_problems import make_regression

LIMIT = 100.0
LABELS = make_labels(6, n=200, d=120)
ROWS = {"solver": "cutting-plane", "C": 1e3}
STARTS = {
    "a step of Newton's method": (solver, "sum_rows", {"loss": "logistic"}, False),
    "a step with the penalty l1": (l1_solver, "sum_rows", {"loss": "logistic", "penalty": "l1"}, False),
    "a step of the interior-point method": (
        kink_path,
        "_go_on",
        {"task": "regress", "loss": "epsilon_insensitive"},
        False,
    ),
    "a step of labels": (label_steps, "take_step", {"loss": "squared_hinge", "C": 1e4}, True),
    "an epoch of labels": (label_solver, "visit_rows", {"loss": "logistic", "C": 10.0}, True),
    "an epoch of rows": (
        coordinate_ascent,
        "_count_epochs",
        ROWS | {"options": {"acceleration": "block-ascent"}},
        False,
    ),
    "a step of labels by factors": (label_solver, "_look", {"loss": "squared_hinge", "C": 1e4}, True),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_in_memory_ends_when_its_time_is_over(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The clock moves with the parts of the start: three of them fit into the time, of many that would be made."""
    place, function, options, is_labels = STARTS[name]
    clock, made, real = SimpleNamespace(now=0.0), [0], getattr(place, function)

    def spend(*given: Any, **named: Any) -> Any:
        clock.now, made[0] = clock.now + LIMIT / 3.0 + 1.0, made[0] + 1
        return real(*given, **named)

    if name.startswith(("an epoch", "a step of labels by")):
        monkeypatch.setattr(setup, "MOST_WEIGHTS", 1)
        monkeypatch.setattr(smoothed_newton, "FEW_ROWS", 0)
        monkeypatch.setattr(block_ascent, "NEWTON_FEATURES", 0)
    monkeypatch.setattr(place, function, spend)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: clock.now))
    source: RowSource = make_problem(1).in_memory()
    if is_labels or "task" in options:
        source = (LABELS if is_labels else make_regression(1)).store(tmp_path / "rows")
    given = replace(TrainOptions(threads=1, tol=1e-9), **{"solver": "newton", **options})
    train(source, given)
    many, made[0], clock.now = made[0], 0, 0.0
    found = train(source, replace(given, max_seconds=LIMIT))
    assert many > 5
    assert made[0] <= 5
    assert (found.status, found.passes) == ("time_limit", 1)
    assert 0.0 <= found.lower_bound <= found.objective


def test_the_time_is_that_of_the_training_that_computes() -> None:
    """Runs of a grid take turns in one thread."""

    def compute() -> Iterator[bool]:
        for _ in range(2):
            yield deadline.is_over()

    late, early = (run.Clock().watch(compute(), is_late) for is_late in (lambda: True, lambda: False))  # type: ignore[arg-type]
    assert [next(late), next(early), next(late), next(early)] == [True, False, True, False]
    assert not deadline.is_over()
