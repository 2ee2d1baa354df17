"""What a training does not keep: the state at each step, and the rows from which its equations are formed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.engines.one_read import answer
from streamsvm.engines.serial import SerialEngine
from streamsvm.methods.interior_point.constraint_reduction import Flags, find_keys
from streamsvm.methods.interior_point.solver import InteriorPoint, solve
from streamsvm.methods.interior_point.state import State, start_state
from streamsvm.requests import Scan, Step

LIMITS, ALLOWED = 4, -1  # Where the pass `assemble` has them, among its shared values and its values by row.


def follow_steps(rows: ArrayDataset, settings: InteriorPoint) -> Iterator[tuple[Step, Flags]]:
    """Solve, and yield with each step the rows in the Q with which the next step begins."""
    engine, solver = SerialEngine(rows), solve(settings, start_state(rows.n_rows, rows.n_features))
    assembled: Scan | None = None
    with threadpool_limits(1):
        request = next(solver)
        while True:
            if isinstance(request, Step):
                assert assembled is not None
                yield request, find_chosen(settings, request.state, assembled)
                if request.status is not None:
                    return
                request = solver.send(None)
            elif isinstance(request, Scan):
                assembled = request  # The last pass before a step is `assemble`.
                request = solver.send(engine.scan(request))
            else:  # The pass finds rows that bound the step, or it is an exact pass.
                request = solver.send(answer(engine, request))


def find_chosen(settings: InteriorPoint, state: State, assembled: Scan) -> Flags:
    """Return which rows are in Q; RuntimeError if their number is not the solver's."""
    keys = find_keys(settings.reduction.rule, state.point, state.y, state.bias)
    limits = assembled.shared[LIMITS]
    chosen: Flags = assembled.by_row[ALLOWED] & (keys <= np.where(state.y > 0, limits[1], limits[0]))
    if int(chosen.sum()) != state.chosen_rows:
        raise RuntimeError(f"{chosen.sum()} rows were found in Q, and the solver has {state.chosen_rows}")
    return chosen


def tell_support(state: State) -> tuple[Flags, Flags]:
    """Return which rows are support vectors, and which of them are on the boundary of their class.

    At the end either s or alpha is 0, and either xi or u (Table 2.1): the larger of the two is the one that is not 0.
    """
    support: Flags = state.t > state.s
    return support, support & (state.r > state.xi)
