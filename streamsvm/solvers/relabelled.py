"""A solver for two classes that is given one of many, and the rest: labels are recoded on their way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.numeric.rows import Rows
from streamsvm.solvers.protocol import All, Fold, Question, Scan, Solver, Step, Take


def single_out(rows: Rows, code: int) -> Rows:
    """Return the rows with code 1 for one class and 0 for the rest."""
    y = None if rows.y is None else (rows.y == code).astype(np.int32)
    return Rows(rows.start, rows.X, y, rows.sample_weight, rows.qid, rows.scores)


def relabel(solver: Solver, code: int) -> Solver:
    """Return a solver that asks for what this one does, and shows it rows of that class as 1, others as 0."""
    request = next(solver)
    while True:
        if isinstance(request, Step):
            yield request
            request = solver.send(None)
        else:
            request = solver.send(_relabel_answer(request, code, (yield _relabel_question(request, code))))


def _relabel_question(request: Question, code: int) -> Question:
    match request:
        case Scan():
            return replace(request, add=partial(_add, request.add, code))
        case Fold():
            return replace(request, step=partial(_step, request.step, code))
        case All():
            return All([_relabel_question(one, code) for one in request.requests])
    return request


def _relabel_answer(request: Question, code: int, found: Any) -> Any:
    if isinstance(request, All):
        return [_relabel_answer(one, code, part) for one, part in zip(request.requests, found, strict=True)]
    return single_out(found, code) if isinstance(request, Take) else found


def _add(add: Callable[..., None], code: int, totals: Any, rows: Rows, *arrays: Any) -> None:
    add(totals, single_out(rows, code), *arrays)


def _step(step: Callable[[Any, Rows], Iterator[Any]], code: int, carry: Any, rows: Rows) -> Iterator[Any]:
    return step(carry, single_out(rows, code))
