"""A solver that is shown other labels or weights than the rows have: they are altered on their way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import Rows
from streamsvm.requests import All, Question, Scan, Solver, Step, Take, Walk

Alter = Callable[..., Rows]  # rows, and the entries of `by_row` that are theirs
Columns = tuple[npt.NDArray[Any], ...]


def single_out(rows: Rows, *, code: int) -> Rows:
    """Return the rows with code 1 for one class and 0 for the rest."""
    y = None if rows.y is None else (rows.y == code).astype(np.int32)
    return replace(rows, y=y)


def weigh(rows: Rows, kept: npt.NDArray[np.bool_]) -> Rows:
    """Return the rows, those that are not kept with weight 0: so every solver leaves them out."""
    weight = kept.astype(np.float64) if rows.sample_weight is None else rows.sample_weight * kept
    return replace(rows, sample_weight=weight)


def alter_rows(solver: Solver, alter: Alter, by_row: Columns = ()) -> Solver:
    """Return a solver that asks for what this one does, and shows it alter(rows, *their entries of by_row).

    alter: importable by name, as workers import it. Rows of a sequential pass come without their numbers: by_row, each
    with an entry a row, is not for solvers that make one.
    """
    request = next(solver)
    while True:
        if isinstance(request, Step):
            yield request
            request = solver.send(None)
        else:
            found = yield _alter_question(request, alter, by_row)
            request = solver.send(_alter_answer(request, alter, by_row, found))


def _alter_question(request: Question, alter: Alter, by_row: Columns) -> Question:
    match request:
        case Scan():
            add = partial(_add, request.add, alter, len(request.shared), len(by_row))
            return replace(request, add=add, by_row=(*by_row, *request.by_row))
        case Walk():
            assert not by_row
            return replace(request, step=partial(_step, request.step, alter))
        case All():
            return All([_alter_question(one, alter, by_row) for one in request.requests])
    return request


def _alter_answer(request: Question, alter: Alter, by_row: Columns, found: Any) -> Any:
    if isinstance(request, All):
        pairs = zip(request.requests, found, strict=True)
        return [_alter_answer(one, alter, by_row, part) for one, part in pairs]
    return alter(found, *(column[request.rows] for column in by_row)) if isinstance(request, Take) else found


def _add(
    add: Callable[..., None], alter: Alter, n_shared: int, n_own: int, totals: Any, rows: Rows, *arrays: Any
) -> None:
    end = n_shared + n_own
    add(totals, alter(rows, *arrays[n_shared:end]), *arrays[:n_shared], *arrays[end:])


def _step(step: Callable[[Any, Rows], Iterator[Any]], alter: Alter, carry: Any, rows: Rows) -> Iterator[Any]:
    return step(carry, alter(rows))
