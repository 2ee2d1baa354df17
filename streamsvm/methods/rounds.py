"""Many problems in rounds: each round trains as many of them side by side as the memory has room for.

A round is `many_problems.solve`. When it ends, the model of each of its problems and what is proved of it stay, and the
solvers' states are given up. So the memory of the driver grows with the problems by their models alone. A problem whose
round has not begun has the model w = 0, whose objective is the sum of its rows' losses at the score 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamsvm.methods import many_problems
from streamsvm.methods.fit import Fit, Report
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import MemoryNeed, Progress, Solver, Step

KEPT = (
    "statuses",
    "objectives",
    "lower_bounds",
    "rounding_bounds",
    "counts",
    "steps",
)  # of each problem, from its round
MODELS = 4  # copies of all models: of two states, of a checkpoint, and of the model that is saved
ProblemSolver = Callable[[Any], Solver]


@dataclass
class State:
    """All that changes from step to step; it is saved as it is.

    coefs (K, d) and intercepts (K,): the models of problems whose round has ended, and 0 for all others. The next
    arrays, (K,), are those of `many_problems.State` for these problems; tried_bounds (K,) is as in Progress. passes:
    reads of the data in the rounds that have ended. first: the first problem of the round under way; under_way: its
    state, alone in a list. A last round of fewer problems is filled up with problems that are done.
    """

    coefs: F64
    intercepts: F64
    statuses: npt.NDArray[np.str_]
    objectives: F64
    lower_bounds: F64
    rounding_bounds: F64
    counts: I64
    tried_bounds: F64
    passes: int
    first: int
    under_way: list[many_problems.State]
    steps: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    added: ClassVar = ("steps",)

    def check(self) -> None:
        """Raise ValueError for numbers that no run can have reached."""
        if not 0 <= self.first <= len(self.statuses) or self.passes < 0:
            raise ValueError(f"the round under way begins at problem {self.first}, after {self.passes} passes")

    @property
    def members(self) -> slice:
        """The problems of the round under way."""
        return slice(self.first, min(self.first + len(self.under_way[0].problems), len(self.statuses)))

    def gather(self) -> State:
        """Return the state with what is known of the problems of the round under way in the arrays."""
        inner, mine = self.under_way[0], self.members
        known = {name: getattr(self, name).copy() for name in KEPT}
        has_begun = np.isfinite(inner.objectives[: mine.stop - mine.start])
        for name, values in known.items():
            own = getattr(inner, name)[: mine.stop - mine.start]
            values[mine] = np.where(has_begun, own, values[mine])
        return replace(self, **known)

    @property
    def progress(self) -> Progress:
        """The sums over all problems."""
        known = self.gather()
        bound = float(np.sum(known.lower_bounds))
        assert not np.isnan(bound)  # linear methods have bounds
        passes = self.passes + self.under_way[0].passes * (self.first < len(self.statuses))
        rounding = float(np.sum(known.rounding_bounds))
        return Progress(float(np.sum(known.objectives)), bound, passes, rounding)


@dataclass(frozen=True)
class Rounds:
    """The problems: their fits, how each is solved, their objectives at w = 0, (K,), and how many make a round."""

    parts: Sequence[Fit]
    solvers: Sequence[ProblemSolver]
    at_zero: F64
    size: int
    n_features: int

    def start(self) -> State:
        """Return the state before the first pass."""
        K = len(self.parts)
        return State(
            coefs=np.zeros((K, self.n_features)),
            intercepts=np.zeros(K),
            statuses=np.full(K, "", "<U16"),
            objectives=self.at_zero.copy(),
            lower_bounds=np.zeros(K),
            rounding_bounds=np.zeros(K),
            counts=np.zeros(K, np.int64),
            tried_bounds=np.zeros(K),
            passes=0,
            first=0,
            under_way=[self._start_round(0)],
            steps=np.zeros(K, np.int64),
        )

    def _start_round(self, first: int) -> many_problems.State:
        """Return the state of a round at its start, filled up with problems that are done."""
        n = min(self.size, len(self.parts) - first)
        state = many_problems.start_state([self.parts[first + min(k, n - 1)].start() for k in range(self.size)])
        state.statuses[n:] = many_problems.DONE[0]
        for name in ("objectives", "lower_bounds"):
            getattr(state, name)[n:] = 0.0
        return state

    def solve(self, state: State) -> Solver:
        """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
        while state.first < len(self.parts):
            mine = state.members
            solver = many_problems.solve(self.solvers[mine], state.under_way[0])
            answer: Any = None
            while (request := _ask(solver, answer)) is not None:
                if not isinstance(request, Step):
                    answer = yield request
                    continue
                answer, state = None, replace(state, under_way=[request.state])
                if request.status is not None:
                    state = self._end_round(state)
                status = _find_status(state) if state.first == len(self.parts) else None
                left = {
                    "open_problems": int(np.count_nonzero(state.gather().statuses == "")),
                    "waiting_problems": len(self.parts) - state.members.stop,
                }
                yield Step(state, state.progress, status, {**request.figures, **left})

    def _end_round(self, state: State) -> State:
        """Return the state at the start of the next round, or after the last one."""
        models = self.make_models(state)
        known, mine, tried = state.gather(), state.members, state.tried_bounds.copy()
        ended = zip(self.parts[mine], state.under_way[0].problems, strict=False)
        tried[mine] = [part.report(one).tried_bound for part, one in ended]
        after = mine.stop
        return replace(
            known,
            coefs=models.coef,
            intercepts=np.asarray(models.intercept),
            tried_bounds=tried,
            passes=state.passes + state.under_way[0].passes,
            first=after,
            under_way=[self._start_round(after)] if after < len(self.parts) else state.under_way,
        )

    def make_models(self, state: State) -> LinearModel:
        """Return the models of all problems as one, which lacks the classes."""
        coefs, intercepts, mine = state.coefs.copy(), state.intercepts.copy(), state.members
        first: Any = None
        for k, one in zip(range(mine.start, mine.stop), state.under_way[0].problems, strict=False):
            first = self.parts[k].make_model(one, _take_none)
            coefs[k], intercepts[k] = first.coef, first.intercept
        first = first or self.parts[0].make_model(self.parts[0].start(), _take_none)
        model: LinearModel = replace(first, coef=coefs, intercept=intercepts)
        return model

    def report(self, state: State) -> Report:
        """Return what is known of all problems."""
        known, progress = state.gather(), state.progress
        columns = zip(*(getattr(known, name).tolist() for name in KEPT), strict=True)
        return Report(
            **{
                **{part.name: getattr(progress, part.name) for part in fields(Progress)},
                "tried_bound": float(np.sum(np.maximum(known.rounding_bounds, known.tried_bounds))),
            },
            problems=tuple(_describe(*column) for column in columns),
        )

    def need_memory(self, need_round: MemoryNeed) -> MemoryNeed:
        """Return the memory of the largest round and of all models."""
        model_bytes = MODELS * 8 * len(self.parts) * (self.n_features + 1)
        return replace(need_round, driver_bytes=need_round.driver_bytes + model_bytes)


def _ask(solver: Solver, answer: Any) -> Any:
    """Return the solver's next request, or None if it is done."""
    try:
        return solver.send(answer)
    except StopIteration:
        return None


def _take_none(rows: I64) -> Rows:
    raise AssertionError(f"a linear model takes no rows, and not {rows}")


def _find_status(state: State) -> str:
    """Return the worst status of all problems; see many_problems."""
    return many_problems.find_worst(state.statuses.tolist())


def _describe(
    status: str, objective: float, lower_bound: float, rounding_bound: float, passes: int, steps: int
) -> dict[str, Any]:
    """Return the certificate of a problem; the status is "" while its solver goes on, or has not begun."""
    progress = Progress(objective, lower_bound, passes, rounding_bound)
    return {
        "status": status,
        "objective": objective,
        "lower_bound": lower_bound,
        "relative_gap": progress.relative_gap,
        "passes": passes,
        "steps": steps,
    }
