"""Solvers on altered rows: labels or weights of the rows are changed on their way from the engine to the solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from streamsvm.data.view import Alteration
from streamsvm.numeric.rows import Rows
from streamsvm.requests import All, Question, RowState, Scan, Solver, Step, Take, Walk


def alter_rows(solver: Solver, alteration: Alteration) -> Solver:
    """Return a solver that makes the requests of this one, and gives it the altered rows.

    An alteration with arrays by row needs walks whose groups are successive chunks: other rows come without numbers.
    One that leaves some rows only takes passes without arrays by row, and no walks.
    """
    request, taken = next(solver), None
    while True:
        if isinstance(request, Step):
            yield request
            request = solver.send(None)
        else:
            found = yield _alter_question(request, alteration, taken)
            taken = found if isinstance(request, Take) else None
            request = solver.send(_alter_answer(request, alteration, found))


def _alter_question(request: Question, alteration: Alteration, taken: Rows | None) -> Question:
    """Return the question as it is put to the engine. taken: the rows that a pass holds, as the engine gave them."""
    match request:
        case Take():
            return Take(alteration.number(request.rows))
        case Scan():
            n_altering = len(alteration.by_row)
            alter = leave_rows if request.of_states else alteration.alter
            add = AlteredAdd(request.add, alter, len(request.shared), n_altering)
            held, by_row = None if request.held is None else taken, (*alteration.by_row, *request.by_row)
            states = tuple(_alter_state(state, alteration, n_altering) for state in request.states)
            return replace(request, add=add, by_row=by_row, states=states, held=held)
        case Walk():
            return replace(request, step=AlteredStep(request.step, alteration))
        case All():
            return replace(request, requests=[_alter_question(one, alteration, taken) for one in request.requests])
    return request


def _alter_state(state: RowState, alteration: Alteration, n_altering: int) -> RowState:
    """Return a state whose changes see altered rows; the arrays of the alteration come first in the pass's `by_row`."""
    assert state.altering == (0, 0)
    changes = [
        replace(change, apply=AlteredChange(change.apply, alteration.alter, len(change.given)))
        if change.of_features
        else change
        for change in state.changes
    ]
    return replace(state, changes=changes, altering=(0, n_altering))


def leave_rows(rows: Rows, *_: Any) -> Rows:
    """Return the rows as they are: a pass over the numbers of rows has no use for their labels and weights."""
    return rows


def _alter_answer(request: Question, alteration: Alteration, found: Any) -> Any:
    if isinstance(request, All):
        pairs = zip(request.requests, found, strict=True)
        return [_alter_answer(one, alteration, part) for one, part in pairs]
    return alteration.apply(found, alteration.number(request.rows)) if isinstance(request, Take) else found


@dataclass(frozen=True)
class AlteredAdd:
    """The `add` of a pass, which alters the rows first.

    It is given the shared arrays of the pass, then the arrays by row: the alteration's, and after them the pass's own.
    """

    add: Callable[..., None]
    alter: Callable[..., Rows]
    n_shared: int
    n_altering: int

    def __call__(self, totals: Any, rows: Rows, *arrays: Any) -> None:
        """Alter the rows by their entries of the alteration's arrays, and add them."""
        shared, by_row = arrays[: self.n_shared], arrays[self.n_shared :]
        altering, own = by_row[: self.n_altering], by_row[self.n_altering :]
        altered = self.alter(rows, *altering)
        if altered.n_rows:
            self.add(totals, altered, *shared, *own)


@dataclass(frozen=True)
class AlteredChange:
    """The `apply` of a change of the rows' numbers, which alters the rows first. n_given: its arguments."""

    change: Callable[..., Any]
    alter: Callable[..., Rows]
    n_given: int

    def __call__(self, numbers: Any, rows: Rows, *arrays: Any) -> Any:
        """Return the numbers after the change, of rows altered by the arrays that come last."""
        return self.change(numbers, self.alter(rows, *arrays[self.n_given :]), *arrays[: self.n_given])


@dataclass(frozen=True)
class AlteredStep:
    """The `step` of a walk, which alters the rows first."""

    step: Callable[[Any, Rows], Iterator[Any]]
    alteration: Alteration

    def __call__(self, carry: Any, rows: Rows) -> Iterator[Any]:
        """Return the carries after each part of the altered rows."""
        assert rows.start >= 0 or not self.alteration.by_row
        return self.step(carry, self.alteration.apply(rows, slice(rows.start, rows.start + rows.n_rows)))
