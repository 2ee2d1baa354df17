"""Cuts below a convex loss: what Algorithms 1 and 2 of Joachims 2006 share.

A cut (a_c, b_c) says that the loss at any w is at least b_c - w.a_c, where a_c and b_c contain the rows' costs. A cut
that has been inactive for many steps is dropped.

Rounding: the first pass sums up M_j = sum_i C_i |x_ij|. A cut may count a row several times, for instance where a row
that has left the margin is subtracted again. If no row is counted more than k times, the sizes of the cut's terms for
feature j sum up to at most k M_j. A sum is off by at most gamma_n times the sizes of its terms (numeric.rounding),
where n is the largest number of additions that a term goes through. The bound of P is kept beside P. If it is too large
for the gap that is asked for, points are evaluated in twice the precision as well (cutting_plane.exact_points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from streamsvm import requests as protocol
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import Progress

IDLE_STEPS = 40  # A cut that has been inactive for more steps than this is dropped.
STUCK_STEPS = 30  # If neither P nor D has moved for so many steps, rounding is the limit.


@dataclass
class CutState:
    """What a cutting-plane solver knows.

    Parameters
    ----------
    best_w, master_w
        The best point so far, and the minimiser of the master problem, (width,) each.
    cuts, offsets, z
        The cuts a_c (m, width), their offsets b_c (m,), and their multipliers (m,).
    sizes
        For each cut the sum of the costs of all rows that were added to it or subtracted again, (m,) (`RowSums`).
    gram, idle
        The products G (m, m), and for how many steps the multiplier of each cut has been zero, (m,).
    objective, lower_bound
        P at the best point, and the highest proved D.
    slack
        The loss that the cuts give at master_w: the paper's xi, times the sum of all costs.
    passes, stuck
        Passes so far, and steps in a row that moved neither P nor D.
    magnitudes, largest, total_cost, terms
        M and max_i |x_ij|, (width,) each, sum C_i, and the largest number of additions that a term of a sum goes
        through. Before the first pass the first three are empty or 0, and the last counts what the driver itself adds.
    updates
        How many terms were added to the first cut, one after another, since it was made.
    objective_rounding, bound_rounding
        How far P of the best point can be off, and how much was subtracted from D.
    tried_rounding
        What would have been subtracted from the latest D, if that alone keeps it from being the highest; else 0.
    repeats, of_cuts
        How many times a cut may count a row, and the fields with a number for each cut that is 0 for a new one.
    """

    best_w: F64
    master_w: F64
    cuts: F64
    offsets: F64 = field(default_factory=lambda: np.empty(0))
    sizes: F64 = field(default_factory=lambda: np.empty(0))
    z: F64 = field(default_factory=lambda: np.empty(0))
    gram: F64 = field(default_factory=lambda: np.empty((0, 0)))
    idle: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    objective: float = float("inf")
    lower_bound: float = 0.0
    slack: float = 0.0
    passes: int = 0
    stuck: int = 0
    magnitudes: F64 = field(default_factory=lambda: np.empty(0))
    largest: F64 = field(default_factory=lambda: np.empty(0))
    total_cost: float = 0.0
    terms: float = 0.0
    updates: float = 0.0
    objective_rounding: float = 0.0
    bound_rounding: float = 0.0
    tried_rounding: float = 0.0
    repeats: ClassVar[float] = 1.0
    of_cuts: ClassVar[tuple[str, ...]] = ("z", "idle")
    added: ClassVar[tuple[str, ...]] = ("tried_rounding",)
    shapes: ClassVar[dict[str, tuple[str, ...]]] = {
        "best_w": ("d",),
        "cuts": ("m", "d"),
        "offsets": ("m",),
        "sizes": ("m",),
        "z": ("m",),
        "gram": ("m", "m"),
        "idle": ("m",),
        "magnitudes": ("d",),
        "largest": ("d",),
    }

    @property
    def is_slow(self) -> bool:
        """Whether a line search beside is wanted (cutting_plane.beside)."""
        return False

    @property
    def progress(self) -> Progress:
        """The objective, the lower bound, and the rounding of both."""
        tried = self.objective_rounding + self.tried_rounding if self.tried_rounding > 0.0 else 0.0
        own = self.objective_rounding + self.bound_rounding
        return Progress(self.objective, self.lower_bound, self.passes, own, tried, self.bound_rounding)

    def bound_loss(self, sizes: F64) -> float:
        """Return how far a computed P can be off at points whose entries |w_j| are at most `sizes` (width,)."""
        width, loss = len(self.magnitudes), self.total_cost + float(sizes @ self.magnitudes)
        return bound_rounding(2.0 * (self.terms + width + 8), loss) + bound_rounding(width + 8, float(sizes @ sizes))


S = TypeVar("S", bound=CutState)


@dataclass
class RowSums:
    """Sums over rows that record the size of their own terms, so that their rounding can be bounded.

    vectors (width,), offsets: sum C_i y_i x_i and sum C_i; sizes: the sum of |C_i| over all terms that were ever added
    or subtracted. Several sums together are (k, width), (k,) and (k,).
    """

    vectors: F64
    offsets: Any = 0.0
    sizes: Any = 0.0

    def __add__(self, other: RowSums) -> RowSums:
        return RowSums(self.vectors + other.vectors, self.offsets + other.offsets, self.sizes + other.sizes)

    def __sub__(self, other: RowSums) -> RowSums:
        return RowSums(self.vectors - other.vectors, self.offsets - other.offsets, self.sizes + other.sizes)

    def pick(self, chosen: Any) -> RowSums:
        """Return some of several sums."""
        return RowSums(self.vectors[chosen], self.offsets[chosen], self.sizes[chosen])


def join_sums(parts: Sequence[RowSums]) -> RowSums:
    """Return all sums of several parts together."""
    vectors, offsets, sizes = zip(*((part.vectors, part.offsets, part.sizes) for part in parts), strict=True)
    return RowSums(np.concatenate(vectors), np.concatenate(offsets), np.concatenate(sizes))


class Known(Protocol):
    """A state that knows P of its best point, how far this P can be off, and D."""

    objective: float
    lower_bound: float
    objective_rounding: float


def is_better(objective: float, rounding: float, known: Known) -> bool:
    """Return whether a point is better than the known one, rounding included.

    Its P has to be lower, or its rounding less than half as large; and P plus rounding has to be lower as well.
    """
    lower = objective < known.objective or rounding < known.objective_rounding / 2
    return lower and objective + rounding < known.objective + known.objective_rounding


def most_cuts(width: int) -> int:
    """Return how many cuts are kept at once: 500, or as many as fit into 128 MiB, but at least 64."""
    return int(np.clip((128 << 20) // (8 * width), 64, 500))


def cut_bytes(width: int, cuts: int) -> int:
    """Return the bytes of so many cuts and of their products while both are copied, and of the master problem."""
    return 8 * width * 2 * cuts + 2 * 8 * cuts**2 + master_bytes(cuts)


def master_bytes(cuts: int) -> int:
    """Return the bytes that the solution of the master problem takes: four matrices (cuts, cuts)."""
    return 4 * 8 * cuts**2


def add_cuts(state: S, new: RowSums, most: int) -> S:
    """Add new cuts, and drop those that have been idle for longest if there would be more than `most`.

    A new cut that equals the one before it is left out, and so are the first of the new cuts that have no room beside
    the cuts with multipliers: where those were dropped, the next steps would only find them again.
    """
    differs = np.concatenate(([True], np.any(np.diff(new.vectors, axis=0) != 0, axis=1)))
    keep = state.idle <= IDLE_STEPS
    room = max(1, most - int(np.count_nonzero(state.z > 0)))
    new = new.pick(np.flatnonzero(differs)[-room:])
    cuts = new.vectors
    if (excess := int(keep.sum()) + len(cuts) - most) > 0:
        expendable = np.lexsort((state.z, -state.idle))
        keep[expendable[keep[expendable]][:excess]] = False
    m = int(keep.sum())
    both = np.empty((m + len(cuts), cuts.shape[1]))  # one copy only: cuts may be most of the memory
    old = np.take(state.cuts, np.flatnonzero(keep), axis=0, out=both[:m], mode="clip")
    both[m:] = cuts
    kept = {name: getattr(state, name)[keep] for name in state.of_cuts}
    others: dict[str, Any] = {name: np.append(part, np.zeros(len(cuts), part.dtype)) for name, part in kept.items()}
    return replace(
        state,
        cuts=both,
        offsets=np.concatenate((state.offsets[keep], new.offsets)),
        sizes=np.concatenate((state.sizes[keep], new.sizes)),
        gram=extend_products(state.gram[np.ix_(keep, keep)], old, cuts),
        **others,
    )


def extend_products(gram: F64, old: F64, new: F64) -> F64:
    """Return the products of all cuts with one another, given the products of the old cuts."""
    across = new @ old.T
    return np.block([[gram, across.T], [across, new @ new.T]])


def drop_cuts(state: S) -> S:
    """Return the state without its cuts, so that it takes hardly any memory."""
    cuts, none, gram, idle = state.cuts[:0].copy(), np.empty(0), np.empty((0, 0)), np.empty(0, np.int64)
    return replace(state, cuts=cuts, offsets=none, sizes=none, z=none, gram=gram, idle=idle)


def count_pass(state: S, before: S, passes: int) -> S:
    """Return the state with these passes counted, and with `stuck` counted on if they moved neither P nor D."""
    return replace(state, passes=before.passes + passes, stuck=0 if has_moved(state, before) else before.stuck + 1)


def has_moved(state: Known, before: Known) -> bool:
    """Return whether P is lower or D is higher than before, by more than rounding."""
    return state.objective < before.objective * (1 - 1e-12) or state.lower_bound > before.lower_bound * (1 + 1e-12)


def find_status(state: CutState, tol: float, epsilon: float | None = None, violation: float = 0.0) -> str | None:
    """Return the status by the relative gap, or with epsilon by the paper's stop (line 9 of Algorithm 1).

    violation: by how much the loss at the master's minimiser is above all cuts, divided by the sum of costs.
    """
    status = protocol.find_status(state.progress, tol, state.stuck, STUCK_STEPS)
    if epsilon is None:
        return status
    if violation <= epsilon and state.passes > 1:
        return "converged" if status == "converged" else "paper_stop"
    return None if status == "converged" else status
