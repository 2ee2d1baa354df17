"""Several solvers as one: a barrier at every step, problems that are done drop out, sums of what is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamsvm.passes import All, Progress, Requests, Step, Take
from streamsvm.solvers.many.classes import State, solve, start_state


@dataclass
class Count:
    """State of the solver below: its steps, and what it was sent."""

    steps: int = 0
    seen: float = 0.0


def count(requests: int, ends: int, status: str, bound: float | None, state: Count) -> Requests:
    """Ask for so many rows, one after another, in each of so many steps; add up what comes back."""
    while state.steps < ends:
        seen = state.seen
        for k in range(requests):
            seen += yield Take(np.array([requests, state.steps, k]))
        state = Count(state.steps + 1, seen)
        objective = 100.0 * requests - state.steps
        progress = Progress(objective, None if bound is None else bound - 1.0 / state.steps, requests * state.steps)
        yield Step(state, progress, status if state.steps == ends else None)


def answer(request: Any) -> list[float]:
    """Return a number for each of the requests."""
    assert isinstance(request, All)
    return [float(np.dot(one.rows, [100, 10, 1])) for one in request.requests if isinstance(one, Take)]


def run(solvers: Sequence[Any], state: State, most_steps: int = 100) -> tuple[list[list[list[int]]], list[Step]]:
    """Return who asked in each round of each step (by requests a step), and the steps."""
    solver = solve(solvers, state)
    rounds: list[list[list[int]]] = [[]]
    steps: list[Step] = []
    request = next(solver)
    while len(steps) < most_steps:
        if isinstance(request, Step):
            steps.append(request)
            if request.status:
                break
            rounds.append([])
            request = solver.send(None)
        else:
            rounds[-1].append([int(one.rows[0]) for one in request.requests])  # type: ignore[union-attr]
            request = solver.send(answer(request))
    return rounds, steps


SOLVERS = [
    partial(count, 1, 4, "converged", 5.0),
    partial(count, 3, 2, "converged", 7.0),
    partial(count, 2, 3, "converged", 9.0),
]


def test_a_step_of_the_whole_is_one_of_every_problem_that_is_not_done() -> None:
    rounds, steps = run(SOLVERS, start_state([Count()] * 3))
    assert rounds == [[[1, 3, 2], [3, 2], [3]]] * 2 + [[[1, 2], [2]], [[1]]]
    assert [step.figures["open_problems"] for step in steps] == [3, 2, 1, 0]
    assert [step.status for step in steps] == [None, None, None, "converged"]
    assert steps[-1].state.statuses.tolist() == ["converged"] * 3


def test_progress_is_summed_and_passes_are_those_of_the_longest() -> None:
    _, steps = run(SOLVERS, start_state([Count()] * 3))
    assert steps[0].progress == Progress(99.0 + 299.0 + 199.0, 4.0 + 6.0 + 8.0, 3)
    assert steps[1].progress == Progress(98.0 + 298.0 + 198.0, 4.5 + 6.5 + 8.5, 6)
    assert steps[3].progress.passes == 3 + 3 + 2 + 1
    assert steps[3].progress.objective == 96.0 + 298.0 + 197.0, "what is done counts as it was left"


def test_every_problem_gets_what_it_would_get_alone() -> None:
    _, steps = run(SOLVERS, start_state([Count()] * 3))
    for k, solver in enumerate(SOLVERS):
        alone = run([solver], start_state([Count()]))[1]
        assert steps[-1].state.problems[k] == alone[-1].state.problems[0]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_it_goes_on_from_any_step_as_if_it_had_not_stopped(stop: int) -> None:
    rounds, steps = run(SOLVERS, start_state([Count()] * 3))
    state = run(SOLVERS, start_state([Count()] * 3), stop)[1][-1].state
    rest, ends = run(SOLVERS, state)
    assert rest == rounds[stop:]
    assert ends[-1].progress == steps[-1].progress
    assert ends[-1].state.problems == steps[-1].state.problems


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        (["converged", "converged"], "converged"),
        (["converged", "stalled"], "stalled"),
        (["pass_limit"] * 2, "pass_limit"),
    ],
)
def test_the_whole_is_as_good_as_the_worst(statuses: list[str], whole: str) -> None:
    solvers = [partial(count, 1, 1 + k, status, 1.0) for k, status in enumerate(statuses)]
    assert run(solvers, start_state([Count()] * 2))[1][-1].status == whole


def test_a_limit_may_be_another_one_later_but_what_has_converged_is_done() -> None:
    state = replace(start_state([Count(1, 1.0), Count(5, 5.0)]), statuses=np.array(["pass_limit", "converged"]))
    rounds, steps = run([partial(count, 1, 3, "pass_limit", None)] * 2, state)
    assert [len(asked) for asked in rounds] == [1, 1]
    assert steps[-1].state.problems[1] == Count(5, 5.0)


def test_without_a_bound_of_all_there_is_none() -> None:
    solvers = [partial(count, 1, 1, "converged", bound) for bound in (1.0, None)]
    assert run(solvers, start_state([Count()] * 2))[1][-1].progress.lower_bound is None
