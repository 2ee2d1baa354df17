"""A solver that is shown other labels or weights than the rows have: they are altered on their way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from streamsvm.data.view import Alteration
from streamsvm.numeric.rows import Rows
from streamsvm.requests import All, Question, Scan, Solver, Step, Take, Walk


def alter_rows(solver: Solver, alteration: Alteration) -> Solver:
    """Return a solver that asks for what this one does, and shows it the rows altered.

    Rows of a sequential pass come without their numbers: an alteration by row is not for solvers that make one.
    """
    request = next(solver)
    while True:
        if isinstance(request, Step):
            yield request
            request = solver.send(None)
        else:
            found = yield _alter_question(request, alteration)
            request = solver.send(_alter_answer(request, alteration, found))


def _alter_question(request: Question, alteration: Alteration) -> Question:
    match request:
        case Scan():
            add = AlteredAdd(request.add, alteration.alter, len(request.shared), len(alteration.by_row))
            return replace(request, add=add, by_row=(*alteration.by_row, *request.by_row))
        case Walk():
            assert not alteration.by_row
            return replace(request, step=AlteredStep(request.step, alteration.alter))
        case All():
            return All([_alter_question(one, alteration) for one in request.requests])
    return request


def _alter_answer(request: Question, alteration: Alteration, found: Any) -> Any:
    if isinstance(request, All):
        pairs = zip(request.requests, found, strict=True)
        return [_alter_answer(one, alteration, part) for one, part in pairs]
    return alteration.apply(found, request.rows) if isinstance(request, Take) else found


@dataclass(frozen=True)
class AlteredAdd:
    """What a pass does with rows, once they are altered; its arrays begin with those of the alteration."""

    add: Callable[..., None]
    alter: Callable[..., Rows]
    n_shared: int
    n_altering: int

    def __call__(self, totals: Any, rows: Rows, *arrays: Any) -> None:
        """Add rows that are altered by their own entries of the arrays."""
        shared, by_row = arrays[: self.n_shared], arrays[self.n_shared :]
        altering, own = by_row[: self.n_altering], by_row[self.n_altering :]
        self.add(totals, self.alter(rows, *altering), *shared, *own)


@dataclass(frozen=True)
class AlteredStep:
    """What a sequential pass does with rows, once they are altered."""

    step: Callable[[Any, Rows], Iterator[Any]]
    alter: Callable[..., Rows]

    def __call__(self, carry: Any, rows: Rows) -> Iterator[Any]:
        """Return the carries after each part of the rows."""
        return self.step(carry, self.alter(rows))
