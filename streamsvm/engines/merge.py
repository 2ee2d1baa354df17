"""The requests of several solvers, answered in one read of the data.

Passes are merged into one: each chunk is read once and added to the totals of every pass. Passes that need the scores
of weight vectors share one matrix product X W' per tile, in which a vector that several passes need occurs once. Walks
through the same chunks in the same order become one walk, whose carry is the tuple of their carries. If an `All` sets
`in_walk`, its walk also carries out its passes, and their sums follow the order of the walk. Rows that several solvers
request are read once, and copied for each solver. The answer to a request has the same bits as if it were the only
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from streamsvm.engines.engine import Engine
from streamsvm.numeric.rows import F64, I64, Rows, compute_scores_of_parts
from streamsvm.passes import All, Request, RowState, Scan, Take, Walk, WalkStep

TILE_ROWS = 4096  # in a walk, this number of rows is added to passes at a time
BLOCK_SCORES = 16  # scores per row that are held together: 8 MiB a tile for two features per row, less for more


@dataclass(frozen=True)
class MergedScan:
    """A pass within a merged pass.

    start, add, combine: the functions of the pass. shared, by_row, states: the slices of the merged pass's arrays and
    states that belong to this pass. scores: the position of the block of weight vectors among the arrays, and the
    position of this pass in the block; None if the pass needs no scores.
    """

    start: Callable[[], Any]
    add: Callable[..., None]
    combine: Callable[[Any, Any], Any]
    shared: slice
    by_row: slice
    states: slice
    scores: tuple[int, int] | None


def answer(engine: Engine, request: Request) -> Any:
    """Carry out one request; the requests of an All share a read."""
    return answer_all(engine, [request])[0]


def answer_all(engine: Engine, requests: Sequence[Request]) -> list[Any]:
    """Carry out several requests, in one read if possible, and return their answers in order."""
    found = iter(_answer_single(engine, [one for request in requests for one in _split(request)]))
    return [_collect(request, found) for request in requests]


def _split(request: Request) -> list[Scan | Take | Walk]:
    """Return the single requests within a request, in order. A walk that carries passes along replaces these passes."""
    if not isinstance(request, All):
        return [request]
    parts = [part for one in request.requests for part in _split(one)]
    if not (request.in_walk and _is_shared(parts)):
        return parts
    scans = [part for part in parts if isinstance(part, Scan)]
    assert not any(scan.states for scan in scans)
    (walk,) = [part for part in parts if isinstance(part, Walk)]
    (own,) = walk.carries
    carry = own, tuple(scan.start() for scan in scans)
    takes = [part for part in parts if isinstance(part, Take)]
    return [replace(walk, step=partial(_add_and_step, walk.step, scans), carries=[carry]), *takes]


def _is_shared(parts: Sequence[Scan | Take | Walk]) -> bool:
    """Return whether the requests contain a walk, which reads all rows, and passes that it can compute as well."""
    return {Walk, Scan} <= {type(part) for part in parts}


def _collect(request: Request, answers: Iterator[Any]) -> Any:
    """Assemble the next answers in the shape of the request."""
    if not isinstance(request, All):
        return next(answers)
    parts = _split(All(request.requests)) if request.in_walk else []
    if _is_shared(parts):
        ((carry, totals),) = next(answers)
        kinds: dict[type, Iterator[Any]] = {Walk: iter([[carry]]), Scan: iter(totals), Take: answers}
        answers = iter([next(kinds[type(part)]) for part in parts])
    return [_collect(part, answers) for part in request.requests]


def _add_and_step(
    step: WalkStep, scans: Sequence[Scan], carry: tuple[Any, tuple[Any, ...]], rows: Rows
) -> Iterator[tuple[Any, int]]:
    """Add the rows of a group to the totals of the passes, and carry out the step of the walk."""
    own, before = carry
    found = tuple(scan.start() for scan in scans)
    for at in range(0, rows.n_rows, TILE_ROWS):
        tile = rows.slice(slice(at, at + TILE_ROWS))
        numbers = slice(rows.start + at, rows.start + at + tile.n_rows)
        for scan, totals in zip(scans, found, strict=True):
            scan.add(totals, tile, *scan.shared, *(column[numbers] for column in scan.by_row))
    after = tuple(scan.combine(left, right) for scan, left, right in zip(scans, before, found, strict=True))
    for changed, n_rows in step(own, rows):
        yield (changed, after), n_rows


def _answer_single(engine: Engine, requests: Sequence[Scan | Take | Walk]) -> list[Any]:
    """Group the requests that can share a read, and return the answers in the order of the requests."""
    answers: list[Any] = [None] * len(requests)
    groups: dict[Any, list[int]] = {}
    for k, request in enumerate(requests):
        kind: Any = Take
        if isinstance(request, Scan):
            kind = Scan, request.among is not None, request.of_states
        elif isinstance(request, Walk):
            kind = tuple(tuple(map(tuple, order)) for order in request.orders)
        groups.setdefault(kind, []).append(k)
    for members in groups.values():
        found = _answer_alike(engine, [requests[k] for k in members])
        for k, one in zip(members, found, strict=True):
            answers[k] = one
    return answers


def _answer_alike(engine: Engine, alike: list[Any]) -> list[Any]:
    """Answer requests of one kind: passes, walks in the same order, or takes."""
    match alike[0]:
        case Scan():
            found = (
                _scan(engine, alike) if len(alike) > 1 else [engine.scan(replace(alike[0], rest=None, weights=None))]
            )
            rests = [scan.rest for scan in alike]  # the known totals of the rows outside the subset
            each = zip(alike, found, rests, strict=True)
            return [total if rest is None else scan.combine(total, rest) for scan, total, rest in each]
        case Walk():
            return _walk(engine, alike) if len(alike) > 1 else [engine.walk(alike[0])]
    return _take(engine, alike)


def _take(engine: Engine, takes: Sequence[Take]) -> list[Rows]:
    """Read the union of the requested rows once. Return the rows of each request; equal requests share one result."""
    wanted = {take.rows.tobytes(): take.rows for take in takes}
    if len(wanted) == 1:
        return [engine.take(takes[0])] * len(takes)
    every = np.unique(np.concatenate(list(wanted.values())))
    taken = engine.take(Take(every))
    parts = {key: taken.pick(np.searchsorted(every, rows)) for key, rows in wanted.items()}
    return [parts[take.rows.tobytes()] for take in takes]


def _scan(engine: Engine, scans: Sequence[Scan]) -> list[Any]:
    """Carry out several passes as one. Its arrays are blocks of weight vectors, and the other arrays of all passes."""
    blocks, scores = _stack_weights(scans, engine.source.n_features)
    shared = (*(array for block in blocks for array in block), *(value for scan in scans for value in scan.shared))
    by_row = tuple(value for scan in scans for value in scan.by_row)
    n, lengths = len(scans), [len(getattr(scan, name)) for name in ("shared", "by_row", "states") for scan in scans]
    limits = list(accumulate(lengths, initial=sum(map(len, blocks))))
    own = [slice(*pair) for pair in pairwise(limits)]
    places = zip(own[:n], own[n : 2 * n], own[2 * n :], scores, strict=True)
    parts = [MergedScan(scan.start, scan.add, scan.combine, *place) for scan, place in zip(scans, places, strict=True)]
    states = tuple(
        _move_altering(state, part.by_row.start - limits[n])
        for part, scan in zip(parts, scans, strict=True)
        for state in scan.states
    )
    held = max((scan.held for scan in scans if scan.held is not None), key=lambda rows: rows.n_rows, default=None)
    apart = next((scan.apart for scan in scans if scan.apart is not None), None)
    merged = Scan(partial(_start, parts), partial(_add, parts), partial(_combine, parts), shared, by_row, held=held)
    merged = replace(merged, states=states, of_states=scans[0].of_states, apart=apart, among=scans[0].among)
    return list(engine.scan(merged))


def _move_altering(state: RowState, places: int) -> RowState:
    """Return a row state for a merged pass whose `by_row` has `places` other arrays before those of this state."""
    return replace(state, altering=(state.altering[0] + places, state.altering[1] + places))


Block = tuple[F64, I64, I64]  # weight vectors, and which of them each pass uses (rows.compute_scores_of_parts)
BLOCK_ARRAYS = 3


def _stack_weights(scans: Sequence[Scan], d: int) -> tuple[list[Block], list[tuple[int, int] | None]]:
    """Return blocks of different weight vectors, and for each pass `MergedScan.scores`."""
    blocks: list[list[F64]] = []
    places: list[tuple[int, int] | None] = []
    for scan in scans:
        if scan.weights is None:
            places.append(None)
            continue
        if not blocks or sum(map(len, blocks[-1])) + len(scan.weights) > BLOCK_SCORES:
            blocks.append([])
        places.append((BLOCK_ARRAYS * (len(blocks) - 1), len(blocks[-1])))
        blocks[-1].append(np.ascontiguousarray(scan.weights[:, :d]))
    return [_share_weights(block) for block in blocks], places


def _share_weights(block: list[F64]) -> Block:
    """Return the different vectors of a block, in the order of their first use."""
    every = np.concatenate(block)
    known: dict[bytes, int] = {}
    columns = np.array([known.setdefault(w.tobytes(), len(known)) for w in every])
    _, first = np.unique(columns, return_index=True)
    return every[first], columns, np.array([0, *accumulate(map(len, block))])


def _start(parts: Sequence[MergedScan]) -> list[Any]:
    return [part.start() for part in parts]


def _add(parts: Sequence[MergedScan], totals: list[Any], rows: Rows, *arrays: Any) -> None:
    """Add a tile to the totals of every pass. The first pass of each block computes the scores for the whole block."""
    block_scores: list[F64] = []
    block = -1
    for part, own_totals in zip(parts, totals, strict=True):
        own_scores = None
        if part.scores is not None:
            if part.scores[0] != block:
                block = part.scores[0]
                block_scores = compute_scores_of_parts(rows.X, *arrays[block : block + BLOCK_ARRAYS])
            own_scores = block_scores[part.scores[1]]
        own = (*arrays[part.shared], *arrays[part.by_row], *arrays[part.states])
        part.add(own_totals, rows if own_scores is None else replace(rows, scores=own_scores), *own)


def _combine(parts: Sequence[MergedScan], left: list[Any], right: list[Any]) -> list[Any]:
    return [part.combine(a, b) for part, a, b in zip(parts, left, right, strict=True)]


def _walk(engine: Engine, walks: Sequence[Walk]) -> list[Any]:
    """Carry out several walks in the same order as one, whose carry is the tuple of their carries."""
    carries = list(zip(*(walk.carries for walk in walks), strict=True))
    found = engine.walk(replace(walks[0], step=partial(_step, [walk.step for walk in walks]), carries=carries))
    return [list(carries) for carries in zip(*found, strict=True)]


def _step(steps: Sequence[WalkStep], carries: tuple[Any, ...], rows: Rows) -> Iterator[tuple[Any, int]]:
    """Carry out the steps of all walks on the same rows, walk by walk."""
    after = list(carries)
    for k, step in enumerate(steps):
        for after[k], n_rows in step(carries[k], rows):  # noqa: B020
            yield tuple(after), n_rows // len(steps)
