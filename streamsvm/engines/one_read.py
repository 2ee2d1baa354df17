"""The requests of several solvers, answered in one read of the data.

Passes become one pass: each chunk is read once, and added to the totals of all. Walks through the same chunks in the
same order become one walk, whose carry is the tuple of their carries. If an `All` asks for it (`in_walk`), its walk
carries its passes along: their sums are then made in the order of the walk. Rows that several solvers take are read
once, and copied for each. The answer to a question has the bits that it would have without the other questions.

Passes that need scores of weight vectors share one matrix product X W' a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.numeric.row_products import compute_scores_of_parts
from streamsvm.numeric.rows import F64, Rows
from streamsvm.requests import All, Question, RowState, Scan, Take, Walk

TILE_ROWS = 4096  # rows of a walk that are added to passes at a time
BLOCK_PASSES = 8  # passes whose scores of a tile are held at once: 8 MiB for rows of two features, less for longer rows


@dataclass(frozen=True)
class ScorePlace:
    """The block of weight vectors (passes, k, d) in which a pass has its own, and its position in that block."""

    block: int
    position: int


@dataclass(frozen=True)
class MergedScan:
    """A pass among others, without its arrays: those are slices of the arrays of all passes, as are its states.

    scores: the place of its weight vectors, or None if the pass needs no scores.
    """

    scan: Scan
    shared: slice
    by_row: slice
    states: slice
    scores: ScorePlace | None


def answer(engine: Engine, request: Question) -> Any:
    """Carry out one request; the requests of an All share a read."""
    return answer_all(engine, [request])[0]


def answer_all(engine: Engine, questions: Sequence[Question]) -> list[Any]:
    """Carry out several requests, in one read where they allow it, and return their answers in order."""
    parts = [part for question in questions for part in _split(question)]
    found = iter(_answer_single(engine, [request for part in parts for request in _put_into_walk(part)]))
    answers = iter([one for part in parts for one in _take_from_walk(part, found)])
    return [_collect(question, answers) for question in questions]


def _split(question: Question) -> list[list[Scan | Take | Walk]]:
    """Return the single requests of a question, in order; a walk and the passes that it carries along are one list."""
    if isinstance(question, All) and not question.in_walk:
        return [part for request in question.requests for part in _split(request)]
    return [list(_list(question))]


def _is_shared(part: Sequence[Scan | Take | Walk]) -> bool:
    """Return whether a walk carries the passes of this part along."""
    kinds = {type(request) for request in part}
    return Walk in kinds and Scan in kinds


def _put_into_walk(part: Sequence[Scan | Take | Walk]) -> list[Scan | Take | Walk]:
    """Return the part with its passes carried along by its walk, if it has both: the walk reads all rows anyway."""
    if not _is_shared(part):
        return list(part)
    (walk,) = [request for request in part if isinstance(request, Walk)]
    scans = [request for request in part if isinstance(request, Scan)]
    assert not any(scan.states for scan in scans)
    (own,) = walk.carries
    carry = own, tuple(scan.start() for scan in scans)
    others = [request for request in part if isinstance(request, Take)]
    return [Walk(partial(_add_and_step, walk.step, scans), [carry], walk.orders), *others]


def _take_from_walk(part: Sequence[Scan | Take | Walk], answers: Iterator[Any]) -> Iterator[Any]:
    """Yield the answers to the requests of a part, in their order."""
    if not _is_shared(part):
        for _ in part:
            yield next(answers)
        return
    ((carry, totals),) = next(answers)
    of_scans = iter(totals)
    for request in part:
        match request:
            case Walk():
                yield [carry]
            case Scan():
                yield next(of_scans)
            case _:
                yield next(answers)


def _add_and_step(
    step: Callable[[Any, Rows], Iterator[Any]], scans: Sequence[Scan], carry: tuple[Any, tuple[Any, ...]], rows: Rows
) -> Iterator[Any]:
    """Add the rows of a group to the totals of passes, and take the step of the walk."""
    own, before = carry
    found = tuple(scan.start() for scan in scans)
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = rows.slice(slice(at, at + TILE_ROWS))
        numbers = slice(rows.start + at, rows.start + at + tile.n_rows)
        for scan, totals in zip(scans, found, strict=True):
            scan.add(totals, tile, *scan.shared, *(column[numbers] for column in scan.by_row))
    after = tuple(scan.combine(left, right) for scan, left, right in zip(scans, before, found, strict=True))
    for changed in step(own, rows):
        yield changed, after


def _list(question: Question) -> Iterator[Scan | Take | Walk]:
    """Yield the single requests of a question, in order."""
    if isinstance(question, All):
        for request in question.requests:
            yield from _list(request)
    else:
        yield question


def _collect(question: Question, answers: Iterator[Any]) -> Any:
    """Take the next answers, in the shape of the question."""
    return [_collect(part, answers) for part in question.requests] if isinstance(question, All) else next(answers)


def _answer_single(engine: Engine, requests: Sequence[Scan | Take | Walk]) -> list[Any]:
    """Group the requests that can share a read, and return the answers in the order of the requests."""
    answers: list[Any] = [None] * len(requests)
    groups: dict[Any, list[int]] = {}
    for k, request in enumerate(requests):
        if isinstance(request, Scan):
            groups.setdefault(("scans", request.among is not None, request.of_states), []).append(k)
        elif isinstance(request, Walk):
            groups.setdefault(_make_order_key(request), []).append(k)
        elif isinstance(request, Take):
            groups.setdefault("takes", []).append(k)
    for members in groups.values():
        found = _answer_alike(engine, [requests[k] for k in members])
        for k, one in zip(members, found, strict=True):
            answers[k] = one
    return answers


def _answer_alike(engine: Engine, alike: list[Any]) -> list[Any]:
    """Answer requests of one kind: all are passes, or walks in the same orders, or take rows."""
    match alike[0]:
        case Scan():
            found = _scan(engine, alike) if len(alike) > 1 else [engine.scan(replace(alike[0], rest=None))]
            return [_add_rest(scan, totals) for scan, totals in zip(alike, found, strict=True)]
        case Walk():
            return _walk(engine, alike) if len(alike) > 1 else [engine.walk(alike[0])]
    return _take(engine, alike)


def _take(engine: Engine, takes: Sequence[Take]) -> list[Rows]:
    """Read the rows that any of several requests asks for once, and return those of each; equal requests share them."""
    wanted = {take.rows.tobytes(): take.rows for take in takes}
    if len(wanted) == 1:
        return [engine.take(takes[0])] * len(takes)
    every = np.unique(np.concatenate(list(wanted.values())))
    taken = engine.take(Take(every))
    parts = {key: taken.pick(np.searchsorted(every, rows)) for key, rows in wanted.items()}
    return [parts[take.rows.tobytes()] for take in takes]


def _add_rest(scan: Scan, totals: Any) -> Any:
    """Return the totals with those of all rows that a pass over a subset leaves out."""
    return totals if scan.rest is None else scan.combine(totals, scan.rest)


def _scan(engine: Engine, scans: Sequence[Scan]) -> list[Any]:
    """Carry out several passes as one. Its arrays are the blocks of weight vectors, then `shared`, `by_row`, states."""
    blocks, places = _stack_weights(scans, engine.source.n_features)
    shared = (*blocks, *(value for scan in scans for value in scan.shared))
    by_row = tuple(value for scan in scans for value in scan.by_row)
    states: list[RowState] = []
    parts: list[MergedScan] = []
    at_shared, at_by_row, at_states = len(blocks), len(shared), len(shared) + len(by_row)
    for scan, place in zip(scans, places, strict=True):
        own_shared = slice(at_shared, at_shared + len(scan.shared))
        own_by_row = slice(at_by_row, at_by_row + len(scan.by_row))
        own_states = slice(at_states, at_states + len(scan.states))
        bare = replace(scan, shared=(), by_row=(), states=(), held=None, apart=None, among=None, rest=None)
        parts.append(MergedScan(bare, own_shared, own_by_row, own_states, place))
        states += [_move_altering(state, at_by_row - len(shared)) for state in scan.states]
        at_shared, at_by_row, at_states = own_shared.stop, own_by_row.stop, own_states.stop
    held = max((scan.held for scan in scans if scan.held is not None), key=lambda rows: rows.n_rows, default=None)
    apart = next((scan.apart for scan in scans if scan.apart is not None), None)
    merged = Scan(partial(_start, parts), partial(_add, parts), partial(_combine, parts), shared, by_row, held=held)
    merged = replace(merged, states=tuple(states), of_states=scans[0].of_states)
    return list(engine.scan(replace(merged, apart=apart, among=scans[0].among)))


def _move_altering(state: RowState, places: int) -> RowState:
    """Return the state for a pass in whose `by_row` the arrays that alter its rows are so many places later."""
    return replace(state, altering=(state.altering[0] + places, state.altering[1] + places))


def _stack_weights(scans: Sequence[Scan], d: int) -> tuple[list[F64], list[ScorePlace | None]]:
    """Return blocks of weight vectors, (passes, k, d), and the place of each pass in them."""
    blocks: list[list[F64]] = []
    places: list[ScorePlace | None] = []
    for scan in scans:
        if scan.scored is None:
            places.append(None)
            continue
        weights = scan.shared[scan.scored][:, :d]
        if not blocks or len(blocks[-1]) == BLOCK_PASSES or len(blocks[-1][0]) != len(weights):
            blocks.append([])
        places.append(ScorePlace(len(blocks) - 1, len(blocks[-1])))
        blocks[-1].append(weights)
    return [np.stack(block) for block in blocks], places


def _start(parts: Sequence[MergedScan]) -> list[Any]:
    return [part.scan.start() for part in parts]


def _add(parts: Sequence[MergedScan], totals: list[Any], rows: Rows, *arrays: Any) -> None:
    """Add a tile to the totals of every pass; the scores of a block are computed when its first pass needs them."""
    block_scores, block = np.empty((0, 0, 0)), None
    for part, own_totals in zip(parts, totals, strict=True):
        own_scores = None
        if part.scores is not None:
            if part.scores.block != block:
                block = part.scores.block
                block_scores = compute_scores_of_parts(rows.X, arrays[block])
            own_scores = block_scores[part.scores.position]
        own = (*arrays[part.shared], *arrays[part.by_row], *arrays[part.states])
        part.scan.add(own_totals, replace(rows, scores=own_scores), *own)


def _combine(parts: Sequence[MergedScan], left: list[Any], right: list[Any]) -> list[Any]:
    return [part.scan.combine(a, b) for part, a, b in zip(parts, left, right, strict=True)]


def _make_order_key(walk: Walk) -> tuple[Any, ...]:
    """Return the orders of a walk as a key: walks of equal keys visit the same chunks in the same order."""
    return tuple(tuple(tuple(group) for group in order) for order in walk.orders)


def _walk(engine: Engine, walks: Sequence[Walk]) -> list[Any]:
    """Carry out several walks of the same orders as one, whose carry is the tuple of their carries."""
    carries = list(zip(*(walk.carries for walk in walks), strict=True))
    found = engine.walk(Walk(partial(_step, [walk.step for walk in walks]), carries, walks[0].orders))
    return [list(carries) for carries in zip(*found, strict=True)]


def _step(steps: Sequence[Callable[[Any, Rows], Iterator[Any]]], carries: tuple[Any, ...], rows: Rows) -> Iterator[Any]:
    """Take the steps of all walks on the same rows, one walk after another."""
    after = list(carries)
    for k, step in enumerate(steps):
        for carry in step(carries[k], rows):
            after[k] = carry
            yield tuple(after)
