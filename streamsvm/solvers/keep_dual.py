"""A solver that keeps the dual point behind its lower bound, so that the bound can be checked independently.

The dual point consists of the points at which the cuts of a run were made, and of the multipliers with which the lower
bound last rose. A cut is recognised by a digest of its numbers, so solvers need not record where their cuts came from.
If the states of a solver hold the dual share of every row (block ascent, interior-point), the shares are kept instead.

The origin of a cut is a segment between two weight vectors and a step on this segment. It is read from the request of a
pass and from the totals that answer the request. If the cut was made at a single point, both ends of the segment are
equal. The origins and the multipliers of the master problem determine the dual point (certificates.dual_points).

The solver itself is unchanged and computes the same bits: only its requests, their answers and its states are observed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.certificates.dual_points import NONE, OWN, DualPoint, OfCut, Origin, join_own
from streamsvm.losses.pairs import QuerySums
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64
from streamsvm.passes import All, MemoryNeed, Progress, Requests, Scan, Step, grows
from streamsvm.solvers.cutting_plane import block_ascent, line_search
from streamsvm.solvers.cutting_plane.cuts import CutState
from streamsvm.solvers.cutting_plane.master import bound_dual
from streamsvm.solvers.interior_point.passes import add_number, join_gathered, scan_states
from streamsvm.solvers.interior_point.state import read_point
from streamsvm.solvers.interior_point.steps import T
from streamsvm.solvers.one_read import state as one_read_state
from streamsvm.solvers.ranking.solver import QueryCuts, add_histogram_cuts, add_sums
from streamsvm.solvers.solver import Report, Solver, TakeRows, Wrapper
from streamsvm.system.errors import InputError

DIGEST_BYTES = 16

ROW_VECTORS = 4  # vectors of 8 bytes per row: shares of this state, the next, and a checkpoint, and one being formed
TABLES = 4  # vectors per cut: both ends of its segment for the cuts in use, and both ends for the cuts behind the bound
OWN_SHARES = 2  # copies of the rows' own shares: one for the cuts in use, and one for the cuts behind the bound
MADE = 96  # vectors of the cuts that a pass finds, of which only a few are kept


@dataclass(frozen=True)
class State(DualPoint):
    """The state of a run, saved as it is. inner: a list with the solver's own state as its only entry.

    The fields of a DualPoint describe all cuts with a known origin. The multiplier of a cut is 0 if the bound does not
    depend on the cut. digests (m, 2): the digests of these cuts. share (n,): the share of every row, or empty. bound:
    the lower bound that the dual point proves.
    """

    inner: list[Any] = field(default_factory=list)
    digests: npt.NDArray[np.uint64] = grows("m", "2", dtype=np.uint64)
    bound: float = 0.0
    row_numbers: ClassVar[tuple[str, ...]] = ("rows", "own_rows")
    added: ClassVar[tuple[str, ...]] = ("most", "rows", "corrections", *OWN)


Place = tuple[F64, F64, float, OfCut]  # the fields start, end, step and own of an Origin: where a cut was made


def read_dual_point(state: State) -> DualPoint:
    """Return the dual point that proves the bound."""
    if len(state.share):
        return DualPoint(share=state.share, most=state.most, rows=state.rows, corrections=state.corrections)
    used, known = np.flatnonzero(state.multipliers), state.split_own()
    places, ends = np.unique(state.ends[used], return_inverse=True)
    return DualPoint(
        vectors=state.vectors[places],
        ends=ends.reshape(-1, 2),
        steps=state.steps[used],
        multipliers=state.multipliers[used],
        **join_own([known.get(k, NONE) for k in used.tolist()]),
    )


def list_origins(request: Scan, answer: Any) -> Iterator[Origin]:
    """Yield the origins of all cuts that the answer of a pass contains; a pass without cuts yields nothing."""
    sums, add = answer.sums if isinstance(answer, QuerySums) else answer, request.add
    if isinstance(answer, line_search.SegmentTotals):
        if len(answer.gradients) < len(answer.costs):  # the pass left out the sums over rows
            return
        ends, _, cut_steps, _ = request.shared
        cuts = line_search.list_cuts(answer)
        yield Origin(cuts.vectors[0], float(cuts.offsets[0]), ends[0], ends[0], 1.0)
        for k, step in enumerate(cut_steps.tolist(), start=1):
            yield Origin(cuts.vectors[k], float(cuts.offsets[k]), ends[0], ends[1], step)
    elif isinstance(answer, line_search.PointTotals):
        cuts = line_search.read_cuts(answer)
        yield from _list_at_points(request.shared[0], cuts.vectors, cuts.offsets)
    elif isinstance(sums, QueryCuts):
        yield from _list_at_points(sums.W, sums.gradients, sums.costs)
    elif add is add_sums:
        yield from _list_at_points(request.shared[0], sums, request.shared[1])
    elif isinstance(add, partial) and add.func is add_histogram_cuts:
        yield from _list_at_points(request.shared[0], sums.of_rows, [one.offset for one in add.args[0]])


def _list_at_points(W: F64, cuts: F64, offsets: Iterable[float]) -> Iterator[Origin]:
    """Yield the origins of cuts (k, width) at the points W (k, width)."""
    for w, cut, offset in zip(W, cuts, offsets, strict=True):
        yield Origin(cut, float(offset), w, w, 1.0)


def list_proved(state: Any) -> Iterator[Origin]:
    """Yield the origins of cuts that a solver made from rows in memory: the last cut of solvers.one_read."""
    for one in list_states(state):
        if isinstance(one, one_read_state.State) and len(one.cuts):
            own = OfCut(one.own_rows, one.own_shares)
            yield Origin(one.cuts[-1], float(one.offsets[-1]), one.centre, one.centre, 1.0, own)


def list_states(state: Any) -> list[CutState]:
    """Return the states that hold cuts: one state, or two if two solvers run side by side."""
    return list(state.states) if isinstance(state, line_search.BothStates) else [state]


class Certificate(NamedTuple):
    """A lower bound and its proof.

    bound: the lower bound, after subtraction of its rounding error. state, z (m,): the state whose cuts, with these
    multipliers, prove the bound.
    """

    bound: float
    state: CutState
    z: F64


def find_certificate(state: Any) -> Certificate:
    """Return the certificate with the highest lower bound at the end of a step."""
    found = list[Certificate]()
    for one in list_states(state):
        z, value, rounding = one.proof if isinstance(one, one_read_state.State) else one.z, 0.0, 0.0
        if isinstance(one, block_ascent.State):
            value = one.lower_bound
        elif z.any():
            value, rounding = bound_dual(one, z)
        found.append(Certificate(value - rounding, one, z))
    return max(found, key=lambda one: one.bound)


def note_cuts(state: State, inner: Any, progress: Progress, made: Sequence[Origin]) -> State:
    """Return the state after a step that made these cuts; the solver need not have kept all of them."""
    before = [digest.tobytes() for digest in state.digests]
    known = dict(zip(before, _list_places(state), strict=True))
    known |= {_digest(one.cut, one.offset): one[2:] for one in [*made, *list_proved(inner)]}
    share, bound = state.share, progress.lower_bound or 0.0
    multipliers = dict(zip(before, state.multipliers.tolist(), strict=True))
    digests = {id(one): [*map(_digest, one.cuts, one.offsets.tolist())] for one in list_states(inner)}
    if bound > state.bound:
        found, share = find_certificate(inner), np.empty(0)
        if isinstance(found.state, block_ascent.State):
            multipliers, share = {}, found.state.proved
        else:
            multipliers = defaultdict(float)  # The multipliers of equal cuts are added.
            for digest, multiplier in zip(digests[id(found.state)], found.z.tolist(), strict=True):
                multipliers[digest] += multiplier
    used = [digest for digest, multiplier in multipliers.items() if multiplier > 0.0]
    live = dict.fromkeys([*(digest for several in digests.values() for digest in several), *used])
    after = replace(state, inner=[inner], share=share, bound=max(bound, state.bound))
    return _fill(after, {digest: known[digest] for digest in live if digest in known}, multipliers)


def _fill(state: State, places: Mapping[bytes, Place], multipliers: Mapping[bytes, float]) -> State:
    """Return the state with the cuts of these origins. A vector that occurs in several cuts is stored once."""
    pairs = [[_digest(w, 0.0) for w in place[:2]] for place in places.values()]
    each = zip(pairs, places.values(), strict=True)
    vectors = {digest: w for pair, place in each for digest, w in zip(pair, place[:2], strict=True)}
    rank = {digest: k for k, digest in enumerate(vectors)}
    return replace(
        state,
        vectors=np.stack(list(vectors.values())) if vectors else state.vectors[:0],
        digests=np.frombuffer(b"".join(places), np.uint64).reshape(-1, 2),
        ends=np.array([[rank[one] for one in pair] for pair in pairs], np.int64).reshape(-1, 2),
        steps=np.array([step for _, _, step, _ in places.values()]),
        multipliers=np.array([multipliers.get(digest, 0.0) for digest in places]),
        **join_own([own for *_, own in places.values()]),
    )


def _list_places(state: State) -> list[Place]:
    own = state.split_own()
    pairs = enumerate(zip(state.ends.tolist(), state.steps.tolist(), strict=True))
    return [(state.vectors[start], state.vectors[end], step, own.get(k, NONE)) for k, ((start, end), step) in pairs]


def _digest(cut: F64, offset: float) -> bytes:
    """Return a digest that identifies this cut, or this vector if offset is 0."""
    content = hashlib.blake2b(np.ascontiguousarray(cut).data, digest_size=DIGEST_BYTES)
    content.update(np.float64(offset).tobytes())
    return content.digest()


class KeepDual(Wrapper):
    """A solver whose dual point is kept. Raises InputError if the solver has no dual point."""

    def __init__(self, inner: Solver) -> None:
        if inner.dual is None:
            raise InputError(
                f"{inner.name}: no dual point is kept for this task and loss (the model of smo or irwls is "
                "itself a dual point): remove --keep-dual"
            )
        super().__init__(inner)
        self.watch = inner.dual
        self.settings = {**inner.settings, "keep_dual": True}

    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory of the solver and of the dual point: vectors, shares in cuts, and row shares.

        Vectors and shares in cuts count twice, since they are copied.
        """
        need, watch = self.inner.memory(threads), self.watch
        gathered = 8 * watch.n_rows if need.state_bytes else 0
        tables = 8 * watch.width * (2 * TABLES * watch.most_cuts + MADE) + 16 * 2 * OWN_SHARES * watch.n_own
        driver = need.driver_bytes + tables + 8 * ROW_VECTORS * watch.n_rows
        return replace(need, driver_bytes=driver, gathered_bytes=need.gathered_bytes + gathered)

    def start(self) -> State:
        """Return the state before the first pass, without a dual point."""
        return State(inner=[self.inner.start()], vectors=np.empty((0, self.watch.width)))

    def warm_start(self, before: State, factor: float) -> State:
        """Return a warm start without any origins of cuts, since other costs imply other cuts."""
        return replace(self.start(), inner=[self.inner.warm_start(before.inner[0], factor)])

    def solve(self, state: State) -> Requests:
        """Yield the requests of the solver, and in between requests that collect its dual point."""
        inner, notes, has_cuts = self.inner.solve(state.inner[0]), list[Any](), self.watch.kind == "cuts"
        answers = list[Any]([None])
        while True:
            request = inner.send(answers.pop())
            if isinstance(request, Step):
                state, notes = (yield from self._note_step(state, request, notes)), []
                request = replace(request, state=state)
            answers.append((yield request))
            passes = _list_pairs(request, answers[0])
            notes += [one for pair in passes for one in (list_origins(*pair) if has_cuts else pair[0].states)]

    def _note_step(self, state: State, step: Step, notes: Sequence[Any]) -> Generator[Any, Any, State]:
        """Return the state after a step, given the records of its passes. Row shares are requested if needed."""
        inner, bound = step.state, step.progress.lower_bound or 0.0
        if self.watch.kind != "shares":
            return note_cuts(state, inner, step.progress, notes)
        if bound <= state.bound:
            return replace(state, inner=[inner])
        if isinstance(inner, block_ascent.State):
            return replace(state, inner=[inner], share=inner.proved, bound=bound)
        found = read_point(inner, join_gathered((yield scan_states(notes[-1], list, add_number, T))))
        state = replace(state, inner=[inner], share=found.share, bound=bound)
        return replace(state, most=found.most, rows=found.rows, corrections=found.corrections)

    def make_model(self, state: State, take: TakeRows) -> Model:
        """Return the solver's model."""
        return self.inner.make_model(state.inner[0], take)

    def report(self, state: State) -> Report:
        """Return the solver's report."""
        return self.inner.report(state.inner[0])


def read_dual_points(state: Any) -> list[DualPoint]:
    """Return the dual points that a run kept, one for each of its problems."""
    problems = [state] if isinstance(state, State) else state.problems
    return [read_dual_point(problem) for problem in problems]


def _list_pairs(request: Any, answer: Any) -> Iterator[tuple[Scan, Any]]:
    """Yield every pass with its totals, splitting `All` into its parts."""
    if isinstance(request, All):
        for one, part in zip(request.requests, line_search.add_starts(answer), strict=True):
            yield from _list_pairs(one, part)
    elif isinstance(request, Scan):
        yield request, answer
