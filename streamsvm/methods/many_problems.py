"""Several solvers as one: their requests are answered together, and all make a step before any makes the next.

A step of the whole is one step of every problem that is not done; one that has made it waits for the others. So it is
known where each stands at a step, and a run that is resumed there asks for the same passes again. Problems that are
done ask for nothing more. A problem is done by its own gap. The gap of the sums of objectives and bounds is at most the
largest gap of a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import All, Progress, Question, Request, Solver, Step

DONE = ("converged", "paper_stop", "stationary", "stalled")  # for good, the best first; limits may change


@dataclass
class State:
    """All that changes. problems: their states; by problem: statuses, "" where not done, and the last progress.

    lower_bounds: NaN where there is none; rounding_bounds: as in Progress; counts: passes as the problem counts them;
    passes: reads of the data.
    """

    problems: list[Any]
    statuses: npt.NDArray[np.str_]
    objectives: F64
    lower_bounds: F64
    rounding_bounds: F64
    counts: I64
    passes: int = 0

    @property
    def progress(self) -> Progress:
        """Sums over the problems; passes: reads of the data in which any of them took part."""
        bound, rounding = float(np.sum(self.lower_bounds)), float(np.sum(self.rounding_bounds))
        return Progress(float(np.sum(self.objectives)), None if np.isnan(bound) else bound, self.passes, rounding)


def start_state(problems: Sequence[Any]) -> State:
    """Return the state in which every problem is at its start."""
    n = len(problems)
    statuses, none = np.full(n, "", "<U16"), np.full(n, np.nan)
    return State(list(problems), statuses, np.full(n, np.inf), none, np.zeros(n), np.zeros(n, np.int64))


def solve(solvers: Sequence[Callable[[Any], Solver]], state: State) -> Solver:
    """Go on from a state; solvers: each goes on from the state of its problem."""
    open_problems = [k for k, status in enumerate(state.statuses.tolist()) if status not in DONE]
    running = {k: solvers[k](state.problems[k]) for k in open_problems}
    while running:
        steps = yield from _make_step(running)
        state = _update(state, steps)
        running = {k: solver for k, solver in running.items() if not state.statuses[k]}
        yield Step(state, state.progress, _find_status(state), _sum_figures(steps) | {"open_problems": len(running)})


def _make_step(running: Mapping[int, Solver]) -> Any:
    """Return the step of every solver; it asks for what they ask for, and is sent the answers."""
    steps: dict[int, Step] = {}
    waiting = _sort(steps, {k: next(solver) for k, solver in running.items()})
    while waiting:
        answers = yield All(list(waiting.values()))
        found = dict(zip(waiting, answers, strict=True))
        del answers
        waiting = _sort(steps, {k: running[k].send(found.pop(k)) for k in list(found)})
    return steps


def _sort(steps: dict[int, Step], requests: Mapping[int, Request]) -> dict[int, Question]:
    """Note the steps; return what is left to be asked."""
    steps |= {k: request for k, request in requests.items() if isinstance(request, Step)}
    return {k: request for k, request in requests.items() if not isinstance(request, Step)}


def _update(state: State, steps: Mapping[int, Step]) -> State:
    """Return the state after a step of those problems; the one that took the most passes took part in all of them."""
    after = State(
        list(state.problems),
        state.statuses.copy(),
        state.objectives.copy(),
        state.lower_bounds.copy(),
        state.rounding_bounds.copy(),
        state.counts.copy(),
        state.passes,
    )
    for k, step in steps.items():
        bound = step.progress.lower_bound
        after.problems[k], after.statuses[k] = step.state, step.status or ""
        after.objectives[k], after.lower_bounds[k] = step.progress.objective, np.nan if bound is None else bound
        after.rounding_bounds[k], after.counts[k] = step.progress.rounding_bound, step.progress.passes
    after.passes += int(np.max(after.counts - state.counts))
    return after


def _sum_figures(steps: Mapping[int, Step]) -> dict[str, float]:
    """Return what there is to be told of a stream that all read: its rows, and the support vectors of all."""
    first = next(iter(steps.values())).figures
    if "rows" not in first:
        return {}
    vectors = sum(step.figures["n_support_vectors"] for step in steps.values())
    return {"rows": first["rows"], "n_support_vectors": vectors}


def _find_status(state: State) -> str | None:
    """Return the status of the whole, once all are done: the least good one; limits are worse than those of DONE."""
    statuses = state.statuses.tolist()
    return None if "" in statuses else max(statuses, key=lambda one: DONE.index(one) if one in DONE else len(DONE))
