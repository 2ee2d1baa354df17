"""The points at which the cuts of a run were made, and the multipliers with which its lower bound last rose.

A cut is recognised by a digest of its numbers, so that solvers need not record where their cuts came from. For solvers
whose states hold a share of every row (ascent on blocks, interior-point), the shares are kept instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.methods.cutting_plane import block_ascent, origins
from streamsvm.methods.cutting_plane.origins import Origin
from streamsvm.methods.interior_point.shares import read_point
from streamsvm.methods.ranking import origins as ranking_origins
from streamsvm.numeric import own_shares
from streamsvm.numeric.dual_points import DualPoint
from streamsvm.numeric.own_shares import OfCut, OwnShares
from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import Progress

DIGEST_BYTES = 16

U64 = npt.NDArray[np.uint64]


@dataclass
class State:
    """All that changes from step to step; it is saved as it is. inner: a list of the solver's own state alone.

    digests (m, 2), ends (m, 2), steps (m,), multipliers (m,) and vectors (p, width) describe the cuts whose origin is
    known, as in DualPoint; own_cuts, own_stops (c,), own_rows and own_shares (e,) are the rows that have a share of
    their own in these cuts (numeric.own_shares). share (n,) is that of every row, or empty; most, rows (k,) and
    corrections (k, 2) belong to it, as in DualPoint. bound: the lower bound that this dual point gives.
    """

    inner: list[Any]
    vectors: F64
    digests: U64 = field(default_factory=lambda: np.empty((0, 2), np.uint64))
    ends: I64 = field(default_factory=lambda: np.empty((0, 2), np.int64))
    steps: F64 = field(default_factory=lambda: np.empty(0))
    multipliers: F64 = field(default_factory=lambda: np.empty(0))
    share: F64 = field(default_factory=lambda: np.empty(0))
    most: float = 1.0
    rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    corrections: F64 = field(default_factory=lambda: np.empty((0, 2)))
    bound: float = 0.0
    own_cuts: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_stops: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_shares: F64 = field(default_factory=lambda: np.empty(0))
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "vectors": ("p", "d"),
        "digests": ("m", "2"),
        "ends": ("m", "2"),
        "steps": ("m",),
        "multipliers": ("m",),
        "share": ("n",),
        "rows": ("k",),
        "corrections": ("k", "2"),
        "own_cuts": ("c",),
        "own_stops": ("c",),
        "own_rows": ("e",),
        "own_shares": ("e",),
    }
    row_numbers: ClassVar[tuple[str, ...]] = ("rows", "own_rows")
    added: ClassVar[tuple[str, ...]] = ("most", "rows", "corrections", *OwnShares._fields)

    @property
    def own(self) -> OwnShares:
        """The rows that have a share of their own in a cut."""
        return OwnShares(self.own_cuts, self.own_stops, self.own_rows, self.own_shares)

    def check(self) -> None:
        """Raise ValueError if a cut refers to a vector that does not exist, or rows to a cut."""
        own_shares.check(self.own, len(self.ends))
        if self.ends.size and not 0 <= int(self.ends.min()) <= int(self.ends.max()) < len(self.vectors):
            raise ValueError(f"ends are not from 0 to {len(self.vectors) - 1}")


class Place(NamedTuple):
    """The place where a cut was made: at `step` of the segment from `start` to `end`; and its rows with own shares."""

    start: F64
    end: F64
    step: float
    own: OfCut


def read_dual_point(state: State) -> DualPoint:
    """Return the dual point behind the bound."""
    if len(state.share):
        return DualPoint(share=state.share, most=state.most, rows=state.rows, corrections=state.corrections)
    used, known = np.flatnonzero(state.multipliers), own_shares.split(state.own)
    places, ends = np.unique(state.ends[used], return_inverse=True)
    return DualPoint(
        vectors=state.vectors[places],
        ends=ends.reshape(-1, 2),
        steps=state.steps[used],
        multipliers=state.multipliers[used],
        **own_shares.join([known.get(k, own_shares.NONE) for k in used.tolist()])._asdict(),
    )


def note_shares(state: State, inner: Any, progress: Progress, shares: Sequence[F64]) -> State:
    """Return the state after a step of the interior-point method, or of an ascent on blocks.

    shares: of all rows, if the bound has risen and the state itself does not have them.
    """
    bound = progress.lower_bound or 0.0
    if bound > state.bound:
        is_ascent = isinstance(inner, block_ascent.State)
        point = DualPoint(share=inner.proved) if is_ascent else read_point(inner, shares[0])
        return replace(
            state,
            inner=[inner],
            share=point.share,
            most=point.most,
            rows=point.rows,
            corrections=point.corrections,
            bound=bound,
        )
    return replace(state, inner=[inner])


def note_pair_cuts(state: State, inner: Any, progress: Progress, notes: Sequence[Any]) -> State:
    """Return the state after a step of a ranking."""
    return note_cuts(state, inner, progress, list(ranking_origins.list_origins(notes, inner)))


def note_cuts(state: State, inner: Any, progress: Progress, made: Sequence[Origin]) -> State:
    """Return the state after a step that made these cuts, of which the solver may have kept only some."""
    known = dict(zip(_list_digests(state), _list_places(state), strict=True))
    known |= {_digest(one.cut, one.offset): Place(*one[2:]) for one in [*made, *origins.list_proved(inner)]}
    share, bound = state.share, progress.lower_bound or 0.0
    multipliers = dict(zip(_list_digests(state), state.multipliers.tolist(), strict=True))
    digests = {id(one): _digest_cuts(one) for one in origins.list_states(inner)}
    if bound > state.bound:
        found = origins.find_certificate(inner)
        shares = origins.read_shares(found)
        multipliers = _add_up(digests[id(found.state)], found.z) if shares is None else {}
        share = np.empty(0) if shares is None else shares
    used = [digest for digest, multiplier in multipliers.items() if multiplier > 0.0]
    live = dict.fromkeys([*(digest for several in digests.values() for digest in several), *used])
    after = replace(state, inner=[inner], share=share, bound=max(bound, state.bound))
    return _fill(after, {digest: known[digest] for digest in live if digest in known}, multipliers)


def _fill(state: State, places: Mapping[bytes, Place], multipliers: Mapping[bytes, float]) -> State:
    """Return the state with the cuts at these places; a vector that several cuts share is stored once."""
    vectors: dict[bytes, F64] = {}
    pairs = [tuple(_digest(w, 0.0) for w in (place.start, place.end)) for place in places.values()]
    for place, (start, end) in zip(places.values(), pairs, strict=True):
        vectors |= {start: place.start, end: place.end}
    rank = {digest: k for k, digest in enumerate(vectors)}
    return replace(
        state,
        vectors=np.stack(list(vectors.values())) if vectors else state.vectors[:0],
        digests=np.frombuffer(b"".join(places), np.uint64).reshape(-1, 2),
        ends=np.array([[rank[one] for one in pair] for pair in pairs], np.int64).reshape(-1, 2),
        steps=np.array([place.step for place in places.values()]),
        multipliers=np.array([multipliers.get(digest, 0.0) for digest in places]),
        **own_shares.join([place.own for place in places.values()])._asdict(),
    )


def _add_up(digests: Sequence[bytes], z: F64) -> dict[bytes, float]:
    """Return the multiplier of each cut by its digest; the multipliers of equal cuts are added."""
    found: dict[bytes, float] = {}
    for digest, multiplier in zip(digests, z.tolist(), strict=True):
        found[digest] = found.get(digest, 0.0) + multiplier
    return found


def _list_places(state: State) -> list[Place]:
    own = own_shares.split(state.own)
    pairs = enumerate(zip(state.ends.tolist(), state.steps.tolist(), strict=True))
    return [
        Place(state.vectors[start], state.vectors[end], step, own.get(k, own_shares.NONE))
        for k, ((start, end), step) in pairs
    ]


def _list_digests(state: State) -> list[bytes]:
    return [digest.tobytes() for digest in state.digests]


def _digest_cuts(state: Any) -> list[bytes]:
    """Return the digests of a state's cuts, or none for a state that holds shares of the rows."""
    if isinstance(state, block_ascent.State):
        return []
    return [_digest(cut, offset) for cut, offset in zip(state.cuts, state.offsets.tolist(), strict=True)]


def _digest(cut: F64, offset: float) -> bytes:
    """Return a digest that tells this cut, or this vector (offset 0), from all others."""
    content = hashlib.blake2b(np.ascontiguousarray(cut).data, digest_size=DIGEST_BYTES)
    content.update(np.float64(offset).tobytes())
    return content.digest()
