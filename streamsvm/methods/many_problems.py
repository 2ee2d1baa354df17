"""Several solvers as one: their requests are answered together, and all make a step before any makes the next.

A step of the whole is one step of every problem that is not done; a problem that has made its step waits for the
others. So the state of every problem is known at each step, and a run that is resumed there makes the same passes
again. A problem is done by its own relative gap, and then makes no more requests. The relative gap of the sums of
objectives and bounds is at most the largest relative gap of a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import All, Progress, Question, Request, Solver, Step, only_takes

DONE = ("converged", "paper_stop", "stationary", "stalled")  # These are final, the best first; limits may change.


@dataclass
class State:
    """All that changes from step to step; it is saved as it is.

    problems: the state of each problem. The arrays have an entry for each problem: statuses is "" where a problem is
    not done, lower_bounds is NaN where there is no bound, rounding_bounds is as in Progress, counts is the number of
    passes as the problem counts them, and steps is the number of its steps. passes: reads of the data.
    """

    problems: list[Any]
    statuses: npt.NDArray[np.str_]
    objectives: F64
    lower_bounds: F64
    rounding_bounds: F64
    counts: I64
    passes: int = 0
    steps: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    added: ClassVar = ("steps",)

    @property
    def progress(self) -> Progress:
        """The sums over the problems; passes are reads of the data in which any problem took part."""
        bound, rounding = float(np.sum(self.lower_bounds)), float(np.sum(self.rounding_bounds))
        return Progress(float(np.sum(self.objectives)), None if np.isnan(bound) else bound, self.passes, rounding)


def start_state(problems: Sequence[Any]) -> State:
    """Return the state in which every problem is at its start."""
    n = len(problems)
    statuses, none = np.full(n, "", "<U16"), np.full(n, np.nan)
    counts, steps = np.zeros((2, n), np.int64)
    return State(list(problems), statuses, np.full(n, np.inf), none, np.zeros(n), counts, steps=steps)


def solve(solvers: Sequence[Callable[[Any], Solver]], state: State) -> Solver:
    """Go on from a state; solvers: for each problem, the function that goes on from the problem's state."""
    open_problems = [k for k, status in enumerate(state.statuses.tolist()) if status not in DONE]
    running = {k: solvers[k](state.problems[k]) for k in open_problems}
    while running:
        steps = yield from _make_step(running)
        state = _update(state, steps)
        running = {k: solver for k, solver in running.items() if not state.statuses[k]}
        yield Step(state, state.progress, _find_status(state), _sum_figures(steps) | {"open_problems": len(running)})


def _make_step(running: Mapping[int, Solver]) -> Any:
    """Return the next step of every solver, after the requests of all solvers were made together.

    Rows by their numbers are taken first, while passes wait, so that the passes of all solvers come together.
    """
    steps: dict[int, Step] = {}
    waiting = _sort(steps, {k: next(solver) for k, solver in running.items()})
    while waiting:
        asked = {k: one for k, one in waiting.items() if only_takes(one)} or waiting
        answers = yield All(list(asked.values()))
        found = dict(zip(asked, answers, strict=True))
        del answers
        held = {k: one for k, one in waiting.items() if k not in found}
        new = _sort(steps, {k: running[k].send(found.pop(k)) for k in list(found)})
        waiting = dict(sorted((held | new).items()))
    return steps


def _sort(steps: dict[int, Step], requests: Mapping[int, Request]) -> dict[int, Question]:
    """Add the steps among the requests to `steps`, and return the questions among them."""
    steps |= {k: request for k, request in requests.items() if isinstance(request, Step)}
    return {k: request for k, request in requests.items() if not isinstance(request, Step)}


def _update(state: State, steps: Mapping[int, Step]) -> State:
    """Return the state after a step of these problems; the one with the most passes took part in all passes."""
    after = State(
        list(state.problems),
        state.statuses.copy(),
        state.objectives.copy(),
        state.lower_bounds.copy(),
        state.rounding_bounds.copy(),
        state.counts.copy(),
        state.passes,
        state.steps.copy(),
    )
    for k, step in steps.items():
        bound = step.progress.lower_bound
        after.problems[k], after.statuses[k] = step.state, step.status or ""
        after.objectives[k], after.lower_bounds[k] = step.progress.objective, np.nan if bound is None else bound
        after.steps[k] += 1
        after.rounding_bounds[k], after.counts[k] = step.progress.rounding_bound, step.progress.passes
    after.passes += int(np.max(after.counts - state.counts))
    return after


def _sum_figures(steps: Mapping[int, Step]) -> dict[str, float]:
    """Return the figures of problems that read one stream: its rows, and the sum of their support vectors."""
    first = next(iter(steps.values())).figures
    if "rows" not in first:
        return {}
    vectors = sum(step.figures["n_support_vectors"] for step in steps.values())
    return {"rows": first["rows"], "n_support_vectors": vectors}


def _find_status(state: State) -> str | None:
    """Return the worst status once all problems are done, else None."""
    statuses = state.statuses.tolist()
    return None if "" in statuses else find_worst(statuses)


def find_worst(statuses: Sequence[str]) -> str:
    """Return the worst of these statuses; one that is not in DONE is worse than all of them."""
    return max(statuses, key=lambda one: DONE.index(one) if one in DONE else len(DONE))
