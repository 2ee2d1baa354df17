"""A solver, and beside it the dual point that its lower bound rests on, for those who want to check the bound.

The solver runs as it would alone, to the same bits. What it asks for and is sent is looked at on the way, and so are
its states (methods.kept_cuts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.cutting_plane import origins
from streamsvm.methods.cutting_plane.cuts import most_cuts
from streamsvm.methods.cutting_plane.guided import Guided
from streamsvm.methods.cutting_plane.guided_setup import BESIDE_CUTS, GuidedPlanes
from streamsvm.methods.cutting_plane.setup import CuttingPlanes
from streamsvm.methods.interior_point.setup import InteriorPoints
from streamsvm.methods.kept_cuts import State, note_cuts, note_pair_cuts, note_shares, read_dual_point
from streamsvm.methods.method import Algorithm, Report, TakeRows
from streamsvm.methods.one_against_rest import OneAgainstRest
from streamsvm.methods.ranking import origins as ranking_origins
from streamsvm.methods.ranking.setup import Rankings
from streamsvm.models.model import Model
from streamsvm.numeric.dual_points import DualPoint
from streamsvm.requests import All, Progress, Solver, Step

ROW_VECTORS = 4  # of 8 bytes a row: shares of this state, of the next, of a checkpoint, and one in the making
TABLES = 4  # vectors a cut: two of each cut that is in use, and two of each that the bound rests on
MADE = 96  # vectors of a pass: the cuts that it has on offer, of which few are kept

Note = Callable[[Any, Any], Iterable[Any]]
Read = Callable[[State, Any, Progress, Sequence[Any]], State]


@dataclass(frozen=True)
class KeepsDualPoint:
    """See Algorithm: another solver, of two classes or of pairs, that is looked at as it runs."""

    solver: Algorithm

    @property
    def name(self) -> str:
        """See Algorithm."""
        return self.solver.name

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        return {**self.solver.describe(), "keep_dual": True}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm: tables of vectors besides, twice while they are copied; and shares of the rows."""
        tables = 8 * _count_width(self.solver, source) * (2 * TABLES * _count_cuts(self.solver, source) + MADE)
        rows = 0 if isinstance(self.solver, CuttingPlanes | Rankings) else 8 * ROW_VECTORS * source.n_rows
        return self.solver.driver_bytes(source) + tables + rows

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.solver.turn_bytes(source)

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.solver.totals_bytes(source)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.solver.shared_bytes(source)

    def fold_bytes(self, source: RowSource, threads: int) -> int:
        """See Algorithm."""
        return self.solver.fold_bytes(source, threads)

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        return State([self.solver.start_state(source)], np.empty((0, _count_width(self.solver, source))))

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:
        """See Algorithm: costs have changed, and with them all cuts, so what was known of their origins is not."""
        return replace(self.start_state(source), inner=[self.solver.warm_state(source, before.inner[0], factor)])

    def solve(self, source: RowSource, state: State) -> Solver:
        """See Algorithm."""
        note, read = _choose_reader(self.solver)
        inner = self.solver.solve(source, state.inner[0])
        notes: list[Any] = []
        request = next(inner)
        while True:
            if isinstance(request, Step):
                state = read(state, request.state, request.progress, notes)
                notes = []
                yield replace(request, state=state)
                request = inner.send(None)
            else:
                answers = [(yield request)]
                notes += [one for pair in _list_pairs(request, answers[0]) for one in note(*pair)]
                request = inner.send(answers.pop())

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> Model:
        """See Algorithm."""
        return self.solver.make_model(source, state.inner[0], take)

    def report(self, state: State) -> Report:
        """See Algorithm."""
        return self.solver.report(state.inner[0])


def keep_dual_points(algorithm: Algorithm) -> Algorithm:
    """Return the solver that keeps the dual point of each of its problems; InputError for one that has none to keep."""
    if isinstance(algorithm, OneAgainstRest):
        return OneAgainstRest(tuple(keep_dual_points(part) for part in algorithm.parts))
    if isinstance(algorithm, CuttingPlanes | GuidedPlanes | Rankings | InteriorPoints):
        return KeepsDualPoint(algorithm)
    raise InputError(
        f"{algorithm.name}: no dual point is kept; the model of smo or irwls is one, and budgeted-sgd proves no bound: "
        "leave --keep-dual out"
    )


def read_dual_points(state: Any) -> list[DualPoint]:
    """Return the dual points of a run that kept them, one of each problem."""
    problems = [state] if isinstance(state, State) else state.problems
    return [read_dual_point(problem) for problem in problems]


def _choose_reader(solver: Algorithm) -> tuple[Note, Read]:
    """Return what is noted of a pass, and what follows from the notes at the end of a step."""
    if isinstance(solver, InteriorPoints):
        return (lambda _request, _answer: ()), note_shares
    if isinstance(solver, Rankings):
        return ranking_origins.note_pass, note_pair_cuts
    return origins.list_origins, note_cuts


def _list_pairs(request: Any, answer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield single requests and their answers."""
    if isinstance(request, All):
        for one, part in zip(request.requests, answer, strict=True):
            yield from _list_pairs(one, part)
    else:
        yield request, answer


def _count_width(solver: Algorithm, source: RowSource) -> int:
    """Return the length of the vectors: a ranking has no bias."""
    return source.n_features + (not isinstance(solver, Rankings))


def _count_cuts(solver: Algorithm, source: RowSource) -> int:
    """Return the most cuts whose origins are needed at once."""
    if isinstance(solver, CuttingPlanes | Rankings):
        return solver.settings.most_cuts(source.n_features)
    if isinstance(solver, GuidedPlanes):
        return BESIDE_CUTS + (most_cuts(source.n_features + 1) if isinstance(solver.settings, Guided) else 0)
    return 0
