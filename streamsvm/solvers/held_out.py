"""A solver that learns some of the rows: the others reach it with a weight of zero, so every solver does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import Rows
from streamsvm.solvers.protocol import All, Fold, Question, Scan, Solver, Step, Take

Flags = npt.NDArray[np.bool_]


def weigh(rows: Rows, kept: Flags) -> Rows:
    """Return the rows, those that are not kept with weight 0."""
    weight = kept.astype(np.float64) if rows.sample_weight is None else rows.sample_weight * kept
    return Rows(rows.start, rows.X, rows.y, weight, rows.qid, rows.scores)


def hold_out(solver: Solver, kept: Flags) -> Solver:
    """Return a solver that asks for what this one does, and shows it weight 0 where `kept` (n,) is not set."""
    request = next(solver)
    while True:
        if isinstance(request, Step):
            yield request
            request = solver.send(None)
        else:
            request = solver.send(_weigh_answer(request, kept, (yield _weigh_question(request, kept))))


def _weigh_question(request: Question, kept: Flags) -> Question:
    match request:
        case Scan():
            add = partial(_add, request.add, len(request.shared))
            return replace(request, add=add, by_row=(kept, *request.by_row))
        case All():
            return All([_weigh_question(one, kept) for one in request.requests])
        case Fold():
            raise NotImplementedError("rows of a sequential pass come without their numbers")
    return request


def _weigh_answer(request: Question, kept: Flags, found: Any) -> Any:
    if isinstance(request, All):
        return [_weigh_answer(one, kept, part) for one, part in zip(request.requests, found, strict=True)]
    return weigh(found, kept[request.rows]) if isinstance(request, Take) else found


def _add(add: Callable[..., None], n_shared: int, totals: Any, rows: Rows, *arrays: Any) -> None:
    add(totals, weigh(rows, arrays[n_shared]), *arrays[:n_shared], *arrays[n_shared + 1 :])
