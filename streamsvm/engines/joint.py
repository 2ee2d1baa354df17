"""Requests of several solvers, answered in one read of the data.

Passes become one: each chunk is read once, and added to the totals of all. Sequential passes that go through the same
chunks in the same order do, too: the carry of all is a tuple. Rows that several take are read once. The bits are those
of each request alone.

Where passes ask for scores of weight vectors, these are one matrix product X W' a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.numeric.rows import F64, Rows, compute_scores_of_parts
from streamsvm.requests import All, Question, Scan, Take, Walk

BLOCK = 8  # passes whose scores of a tile are held at once: 8 MiB for rows of two features, less for longer ones


@dataclass(frozen=True)
class Part:
    """A pass among others: its functions, and how many shared and by-row arrays are its own.

    block, place: where its scores are, if it asks for any.
    """

    start: Callable[[], Any]
    add: Callable[..., None]
    combine: Callable[[Any, Any], Any]
    n_shared: int
    n_by_row: int
    block: int | None
    place: int


def answer(engine: Engine, request: Question) -> Any:
    """Carry one request out, or all of an All together."""
    return answer_all(engine, [request])[0]


def answer_all(engine: Engine, questions: Sequence[Question]) -> list[Any]:
    """Carry requests out, passes of one kind together; return their answers in order."""
    found = iter(_answer_single(engine, [request for question in questions for request in _list(question)]))
    return [_collect(question, found) for question in questions]


def _list(question: Question) -> Iterator[Scan | Take | Walk]:
    """Single requests, in order."""
    if isinstance(question, All):
        for request in question.requests:
            yield from _list(request)
    else:
        yield question


def _collect(question: Question, found: Iterator[Any]) -> Any:
    """Return the next answers in the shape of the question."""
    return [_collect(part, found) for part in question.requests] if isinstance(question, All) else next(found)


def _answer_single(engine: Engine, requests: Sequence[Scan | Take | Walk]) -> list[Any]:
    answers: list[Any] = [None] * len(requests)
    scans = [k for k, request in enumerate(requests) if isinstance(request, Scan)]
    groups: dict[Any, list[int]] = {"scans": scans} if scans else {}
    for k, request in enumerate(requests):
        if isinstance(request, Walk):
            groups.setdefault(_name_orders(request), []).append(k)
        elif isinstance(request, Take):
            groups.setdefault(request.rows.tobytes(), []).append(k)
    for members in groups.values():
        found = _answer_alike(engine, [requests[k] for k in members])
        for k, one in zip(members, found, strict=True):
            answers[k] = one
    return answers


def _answer_alike(engine: Engine, alike: list[Any]) -> list[Any]:
    """Answer requests of one kind: all passes, sequential ones of the same orders, or the same rows."""
    match alike[0]:
        case Scan():
            return _scan(engine, alike) if len(alike) > 1 else [engine.scan(alike[0])]
        case Walk():
            return _walk(engine, alike) if len(alike) > 1 else [engine.walk(alike[0])]
    return [engine.take(alike[0])] * len(alike)


def _scan(engine: Engine, scans: Sequence[Scan]) -> list[Any]:
    blocks, places = _stack(scans, engine.source.n_features)
    parts = [
        Part(scan.start, scan.add, scan.combine, len(scan.shared), len(scan.by_row), *place)
        for scan, place in zip(scans, places, strict=True)
    ]
    shared = (*blocks, *(value for scan in scans for value in scan.shared))
    by_row = tuple(value for scan in scans for value in scan.by_row)
    add = partial(_add, parts, len(blocks))
    return list(engine.scan(Scan(partial(_start, parts), add, partial(_combine, parts), shared, by_row)))


def _stack(scans: Sequence[Scan], d: int) -> tuple[list[F64], list[tuple[int | None, int]]]:
    """Return blocks of weight vectors, (passes, k, d), and in which block and place each pass has its own."""
    blocks: list[list[F64]] = []
    places: list[tuple[int | None, int]] = []
    for scan in scans:
        if scan.scored is None:
            places.append((None, 0))
            continue
        weights = scan.shared[scan.scored][:, :d]
        if not blocks or len(blocks[-1]) == BLOCK or len(blocks[-1][0]) != len(weights):
            blocks.append([])
        places.append((len(blocks) - 1, len(blocks[-1])))
        blocks[-1].append(weights)
    return [np.stack(block) for block in blocks], places


def _start(parts: Sequence[Part]) -> list[Any]:
    return [part.start() for part in parts]


def _add(parts: Sequence[Part], n_blocks: int, totals: list[Any], rows: Rows, *arrays: Any) -> None:
    at, by_row = n_blocks, n_blocks + sum(part.n_shared for part in parts)
    scores, block = np.empty((0, 0, 0)), None
    for part, own in zip(parts, totals, strict=True):
        shared, slices = arrays[at : at + part.n_shared], arrays[by_row : by_row + part.n_by_row]
        if part.block != block and part.block is not None:
            scores, block = compute_scores_of_parts(rows.X, arrays[part.block]), part.block
        own_scores = None if part.block is None else scores[part.place]
        part.add(own, replace(rows, scores=own_scores), *shared, *slices)
        at, by_row = at + part.n_shared, by_row + part.n_by_row


def _combine(parts: Sequence[Part], left: list[Any], right: list[Any]) -> list[Any]:
    return [part.combine(a, b) for part, a, b in zip(parts, left, right, strict=True)]


def _name_orders(walk: Walk) -> tuple[Any, ...]:
    return tuple(tuple(tuple(group) for group in order) for order in walk.orders)


def _walk(engine: Engine, walks: Sequence[Walk]) -> list[Any]:
    carries = list(zip(*(walk.carries for walk in walks), strict=True))
    found = engine.walk(Walk(partial(_step, [walk.step for walk in walks]), carries, walks[0].orders))
    return [list(carries) for carries in zip(*found, strict=True)]


def _step(steps: Sequence[Callable[[Any, Rows], Iterator[Any]]], carries: tuple[Any, ...], rows: Rows) -> Iterator[Any]:
    after = list(carries)
    for k, step in enumerate(steps):
        for carry in step(carries[k], rows):
            after[k] = carry
            yield tuple(after)
