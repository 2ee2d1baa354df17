"""Two solvers that share the reads of the data: one with resident rows, and cutting planes with a line search.

Resident rows can mislead the first solver, and extreme scales can make it slow. In such cases the line search alone is
as good or better. Each solver keeps its own state and cuts. The result is the lower of both objectives P and the higher
of both lower bounds D.

The line search is dropped once it falls behind, so that later passes serve one solver only. It has fallen behind if the
first solver's gap is small (at most SMALL of P), the line search's gap is more than KEEPS_UP times as large, and its
lower bound is no higher than the first solver's. If the first solver is later stuck for RETURNS passes, or reports that
it is slow, the line search returns and continues from the best point. If the first solver is usually fast, the line
search starts only at that point.

A run ends as stalled when both solvers are stuck, or when the best P and the best D no longer change. The second
condition matters because one solver may creep for thousands of passes towards a P that the other has found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from streamsvm import passes as protocol
from streamsvm.numeric.rows import F64
from streamsvm.passes import All, Progress, Requests, Step, Take
from streamsvm.solvers.cutting_plane.cuts import STUCK_STEPS, CutState, drop_cuts, has_moved, move_to

KEEPS_UP = 4.0  # times the first solver's gap: with a larger gap, the line search has fallen behind
RETURNS = 5  # passes without progress by the first solver, after which the line search returns
SMALL = 0.003  # of P: while the gaps are larger than this, comparing them means little
KNOWN = ("best_w", "objective", "objective_rounding")
Maker = Callable[[Any], Requests]


@dataclass
class BothStates:
    """The best results of the two solvers, and the state of each.

    states: the state of the solver with resident rows, and the state of the line search; best_w (d+1,): the point with
    the lowest P; alone: whether the first solver runs alone, because the line search was dropped or has not started.
    """

    states: list[Any]
    best_w: F64
    objective: float = float("inf")
    lower_bound: float = 0.0
    objective_rounding: float = 0.0
    bound_rounding: float = 0.0
    passes: int = 0
    stuck: int = 0
    alone: bool = False
    added: ClassVar[tuple[str, ...]] = ("stuck",)

    @property
    def progress(self) -> Progress:
        """The best objective and lower bound of both solvers, with their rounding."""
        rounding, going_on = self.objective_rounding + self.bound_rounding, self.states[: 1 if self.alone else None]
        tried = [own.progress.tried_bound for own in going_on]
        least = min((bound for bound in tried if bound > 0.0), default=0.0)
        return Progress(self.objective, self.lower_bound, self.passes, rounding, least, self.bound_rounding)


def solve(makers: Sequence[Maker], tol: float, state: BothStates) -> Requests:
    """Run both solvers from a state. A run that is resumed from the state in any `Step` gives the same bits.

    makers: functions that resume a solver from its state, in the order of `states`: the line search comes last.
    """
    solvers = [make(own) for make, own in zip(makers, state.states, strict=True)]
    if state.alone:
        del solvers[1:]
    requests: list[Any] = [next(solver) for solver in solvers]
    while True:
        for k, request in enumerate(requests):
            if isinstance(request, Take):
                requests[k] = solvers[k].send((yield request))
        found = yield All(requests, in_walk=True)
        steps: list[Any] = [solver.send(totals) for solver, totals in zip(solvers, found, strict=True)]
        before, state = state, _take_over(state, [step.state for step in steps])
        state = replace(state, stuck=0 if has_moved(state, before) else before.stuck + 1)
        if state.alone:
            del solvers[1:]
        elif len(solvers) == 1:
            solvers.append(makers[1](state.states[1]))
        figures = {**steps[0].figures, "beside": len(solvers) - 1.0}
        status = protocol.find_status(state.progress, tol, state.stuck, STUCK_STEPS)
        if status is None and all(step.status == "stalled" for step in steps):
            status = "stalled"
        yield Step(state, state.progress, status, figures)
        requests = [next(solver) for solver in solvers]


def _take_over(state: Any, states: list[CutState]) -> Any:
    """Return the state with the best results of both solvers; drop the line search's cuts if it has fallen behind.

    A line search that returns begins at the best point, without cuts.
    """
    for own in states:
        state = move_to(state, own.best_w, own.objective, own.objective_rounding)
        if own.lower_bound > state.lower_bound:
            state = replace(state, lower_bound=own.lower_bound, bound_rounding=own.bound_rounding)
    passes, is_stuck = states[0].passes, states[0].stuck >= RETURNS or getattr(states[0], "slow", False)
    if state.alone:
        other = state.states[1]
        if is_stuck:
            other = replace(other, **{name: getattr(state, name) for name in KNOWN})
        return replace(state, states=[states[0], other], passes=passes, alone=not is_stuck)
    gaps = [own.objective - own.lower_bound for own in states]
    is_far = gaps[1] > KEEPS_UP * gaps[0] and states[1].lower_bound <= states[0].lower_bound
    behind = is_far and gaps[0] <= SMALL * states[0].objective and not is_stuck
    other = drop_cuts(states[1]) if behind else states[1]
    return replace(state, states=[states[0], other], passes=passes, alone=behind)
