"""A fit that keeps the dual point behind its lower bound, so that others can check the bound.

The solver itself is unchanged and finds the same bits. Its requests, the answers and its states are observed on their
way, and the dual point is put together from them (methods.kept_cuts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.cutting_plane import origins
from streamsvm.methods.fit import DualWatch, Fit, Report, TakeRows
from streamsvm.methods.interior_point.row_numbers import T
from streamsvm.methods.interior_point.row_passes import gather, join_gathered
from streamsvm.methods.kept_cuts import State, note_cuts, note_pair_cuts, note_shares, read_dual_point
from streamsvm.methods.ranking import origins as ranking_origins
from streamsvm.models.model import Model
from streamsvm.numeric.dual_points import DualPoint
from streamsvm.requests import All, MemoryNeed, Progress, RowState, Scan, Solver, Step

ROW_VECTORS = 4  # vectors of 8 bytes a row: shares of this state, of the next, of a checkpoint, and one being formed
TABLES = 4  # vectors for each cut: two ends if the cut is in use, and two ends if the bound rests on it
OWN_SHARES = 2  # times the rows with a share of their own: in the cuts in use, and in those that the bound rests on
MADE = 96  # vectors of the cuts that a pass finds, of which only a few are kept


class Reader(NamedTuple):
    """Functions for one kind of dual point.

    note: returns notes of a request and its answer. read: returns the state after a step, from the notes of the step.
    ask: returns a request for what else `read` needs where the lower bound has risen, from the notes of the step; its
    answer is then the only note.
    """

    note: Callable[[Any, Any], Iterable[Any]]
    read: Callable[[State, Any, Progress, Sequence[Any]], State]
    ask: Callable[[Sequence[Any]], Scan | None] = lambda _: None


def note_row_states(request: Any, answer: Any) -> Iterable[Any]:  # noqa: ARG001
    """Return the numbers that rows keep where they are read, for methods whose states do not have them."""
    return getattr(request, "states", ())


def ask_shares(states: Sequence[RowState]) -> Scan | None:
    """Return the pass over the numbers of the rows, as they are now, that brings their shares to the driver."""
    return gather(states[-1], T) if states else None


READERS = {
    "cuts": Reader(origins.list_origins, note_cuts),
    "pairs": Reader(ranking_origins.note_pass, note_pair_cuts),
    "pairs at points": Reader(ranking_origins.note_summed_cuts, note_cuts),
    "shares": Reader(note_row_states, note_shares, ask_shares),
}


def keep_dual_point(fit: Fit) -> Fit:
    """Return the fit with its dual point kept; InputError if the method has no dual point to keep."""
    if fit.dual is None:
        raise InputError(
            f"{fit.method}: no dual point is kept for this task and loss (the model of smo or irwls is one itself): "
            "leave --keep-dual out"
        )
    return replace(
        fit,
        settings={**fit.settings, "keep_dual": True},
        memory=partial(_need_memory, fit, fit.dual),
        start=partial(_start, fit, fit.dual),
        warm_start=partial(_start_warm, fit, fit.dual),
        solve=partial(_solve, fit, READERS[fit.dual.kind]),
        make_model=partial(_make_model, fit),
        report=partial(_report, fit),
    )


def read_dual_points(state: Any) -> list[DualPoint]:
    """Return the dual points of a run that kept them, one for each of its problems."""
    problems = [state] if isinstance(state, State) else state.problems
    return [read_dual_point(problem) for problem in problems]


def _need_memory(fit: Fit, dual: DualWatch, threads: int) -> MemoryNeed:
    """Return the memory of the fit, of the tables of vectors and the shares of cuts (twice while they are copied), and
    of the shares of rows.
    """
    need = fit.memory(threads)
    gathered = 8 * dual.n_rows if need.state_bytes else 0
    tables = 8 * dual.width * (2 * TABLES * dual.most_cuts + MADE) + 16 * 2 * OWN_SHARES * dual.n_own
    driver = need.driver_bytes + tables + 8 * ROW_VECTORS * dual.n_rows
    return replace(need, driver_bytes=driver, gathered_bytes=need.gathered_bytes + gathered)


def _start(fit: Fit, dual: DualWatch) -> State:
    return State([fit.start()], np.empty((0, dual.width)))


def _start_warm(fit: Fit, dual: DualWatch, before: State, factor: float) -> State:
    """Return a warm start. The costs differ and with them all cuts, so the known origins of cuts are dropped."""
    return replace(_start(fit, dual), inner=[fit.start_after(before.inner[0], factor)])


def _solve(fit: Fit, reader: Reader, state: State) -> Solver:
    inner = fit.solve(state.inner[0])
    notes: list[Any] = []
    request = next(inner)
    while True:
        if isinstance(request, Step):
            has_risen = (request.progress.lower_bound or 0.0) > state.bound
            if has_risen and (more := reader.ask(notes)) is not None:
                notes = [join_gathered((yield more))]
            state = reader.read(state, request.state, request.progress, notes)
            notes = []
            yield replace(request, state=state)
            request = inner.send(None)
        else:
            answers = [(yield request)]
            notes += [one for pair in _list_pairs(request, answers[0]) for one in reader.note(*pair)]
            request = inner.send(answers.pop())


def _make_model(fit: Fit, state: State, take: TakeRows) -> Model:
    return fit.make_model(state.inner[0], take)


def _report(fit: Fit, state: State) -> Report:
    return fit.report(state.inner[0])


def _list_pairs(request: Any, answer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every single request with its answer."""
    if isinstance(request, All):
        for one, part in zip(request.requests, answer, strict=True):
            yield from _list_pairs(one, part)
    else:
        yield request, answer
