"""Details that the result of a training lacks: the state at each step, and the rows that form its equations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.numeric.rows import F64, Flags
from streamsvm.passes import Scan, Step
from streamsvm.solvers.interior_point.equations import find_keys
from streamsvm.solvers.interior_point.passes import add_number, is_drawn, join_gathered, scan_states
from streamsvm.solvers.interior_point.solver import InteriorPoint, solve
from streamsvm.solvers.interior_point.state import State, start_state
from streamsvm.solvers.interior_point.steps import N_NUMBERS, Y, point_of

LIMITS, DRAWN = 1, 3  # the positions of these values among the shared values of the pass `assemble`


def follow_steps(rows: ArrayDataset, settings: InteriorPoint) -> Iterator[tuple[Step, F64, Flags]]:
    """Solve, and yield each step with its row states and with the rows in the Q of the next step."""
    engine, solver = SerialEngine(rows), solve(settings, start_state(rows.n_rows, rows.n_features))
    assembled: Scan | None = None
    with threadpool_limits(1):
        request = next(solver)
        while True:
            if isinstance(request, Step):
                assert assembled is not None
                numbers = read_numbers(engine, request.state)
                yield request, numbers, find_chosen(settings, request.state, numbers, assembled)
                if request.status is not None:
                    return
                request = solver.send(None)
            else:
                if isinstance(request, Scan) and not request.of_states:
                    assembled = request  # the last pass over rows before a step is `assemble`
                request = solver.send(answer(engine, request))


def read_numbers(engine: SerialEngine, state: State) -> F64:
    """Return the numbers of all rows at a state (row_numbers), (10, n)."""
    held = state.hold("numbers")
    return np.stack([join_gathered(engine.scan(scan_states(held, list, add_number, k))) for k in range(N_NUMBERS)])


def find_chosen(settings: InteriorPoint, state: State, numbers: F64, assembled: Scan) -> Flags:
    """Return flags of the rows in Q. Raises RuntimeError if their number differs from that of the solver."""
    y, limits = numbers[Y], assembled.shared[LIMITS]
    keys = find_keys(settings.reduction.rule, point_of(numbers), y, state.bias)
    chosen: Flags = is_drawn(0, len(y), *assembled.shared[DRAWN]) & (keys <= np.where(y > 0, limits[1], limits[0]))
    if int(chosen.sum()) != state.chosen_rows:
        raise RuntimeError(f"{chosen.sum()} rows were found in Q, and the solver has {state.chosen_rows}")
    return chosen


def tell_support(numbers: F64) -> tuple[Flags, Flags]:
    """Return flags of the support vectors, and of those on the boundary of their class.

    At the optimum, s or alpha is 0, and xi or u is 0 (Table 2.1). Here, the smaller of the two counts as 0.
    """
    point = point_of(numbers)
    support: Flags = point.t > point.s
    return support, support & (point.r > point.xi)
