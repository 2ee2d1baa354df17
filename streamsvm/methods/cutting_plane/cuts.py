"""Cuts below a convex loss, and the master problem over them: what Algorithms 1 and 2 of Joachims 2006 share.

A cut (a_c, b_c) says that the loss at any w is at least b_c - w.a_c, where a_c and b_c contain the rows' costs. The
master problem over the cuts (line 4 of both algorithms) and its dual (OP3 of the paper) are

    min_w  1/2 |w|^2 + max(0, max_c b_c - w.a_c),      D(z) = b'z - 1/2 z'Gz,  z >= 0, sum z <= 1,  w = sum z_c a_c

where G holds the products a_c.a_d of the cuts. Any feasible multipliers z give a lower bound D(z) of the minimum of
P(w) = 1/2 |w|^2 + loss(w) over all rows. A cut that has been inactive for many steps is dropped.

Rounding: the first pass sums up M_j = sum_i C_i |x_ij|. A cut may count a row several times, for instance where a row
that has left the margin is subtracted again. If no row is counted more than k times, the sizes of the cut's terms for
feature j sum up to at most k M_j. A sum is off by at most gamma_n times the sizes of its terms (numeric.rounding),
where n is the largest number of additions that a term goes through. D is evaluated from the cuts, not from their
products, and its rounding bound is subtracted from it. The bound of P is kept beside P. If it is too large for the gap
that is asked for, points are evaluated in twice the precision as well (cutting_plane.exact_points).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from streamsvm import requests as protocol
from streamsvm.methods.cutting_plane.master_qp import EPS, solve_master
from streamsvm.methods.cutting_plane.master_refinement import refine_master
from streamsvm.numeric.rounding import bound_rounding
from streamsvm.numeric.rows import F64, I64
from streamsvm.requests import Progress

IDLE_STEPS = 40  # A cut that has been inactive for more steps than this is dropped.
STUCK_STEPS = 30  # If neither P nor D has moved for so many steps, rounding is the limit.
DOUBTFUL_STEPS = 5  # If neither has moved for so many steps, the rounding of the products may be the reason.
CUT_ROUNDINGS = 12  # of a term, besides n additions; the two terms of a row that leaves a line have 2 n + 15 + 4 in all
MASTER_SHARE = 0.05  # The master problem is solved to this share of the gap that is left, or that is asked for.


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
        For each cut the sum of the costs of all rows that were added to it or subtracted again, (m,).
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


def add_cuts(state: S, cuts: F64, offsets: F64, sizes: F64, most: int) -> S:
    """Add new cuts, and drop those that have been idle for longest if there would be more than `most`.

    A new cut that equals the one before it is left out.
    """
    differs = np.concatenate(([True], np.any(np.diff(cuts, axis=0) != 0, axis=1)))
    cuts, offsets, sizes = cuts[differs], offsets[differs], sizes[differs]
    keep = state.idle <= IDLE_STEPS
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
        offsets=np.concatenate((state.offsets[keep], offsets)),
        sizes=np.concatenate((state.sizes[keep], sizes)),
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


def minimise_master(state: S, tol: float) -> S:
    """Solve the master problem; return the state with its multipliers, its minimiser, and the highest lower bound."""
    wanted = MASTER_SHARE * max(state.objective - state.lower_bound, tol * state.objective)
    trusted = state.stuck < DOUBTFUL_STEPS
    z, master_w = solve_cuts(state.cuts, state.offsets, state.gram, state.z, wanted, trusted)
    value, rounding = bound_dual(state, z)
    rises = value - rounding > state.lower_bound
    return replace(
        state,
        z=z,
        master_w=master_w,
        lower_bound=value - rounding if rises else state.lower_bound,
        bound_rounding=rounding if rises else state.bound_rounding,
        tried_rounding=0.0 if rises or value <= state.lower_bound else rounding,
        slack=max(0.0, float(np.max(state.offsets - state.cuts @ master_w))),
        idle=np.where(z > 0, 0, state.idle + 1),
    )


def solve_cuts(cuts: F64, offsets: F64, gram: F64, start: F64, wanted: float, trusted: bool = True) -> tuple[F64, F64]:
    """Return multipliers and minimiser of the master problem over these cuts, to a gap of `wanted` if rounding allows.

    The problem is solved with the products of the cuts as long as these are trusted and their rounding, of the order of
    eps |a_c|^2, is less than `wanted`. Otherwise it is solved with the cuts themselves, which takes longer.
    """
    lengths, z = np.sqrt(np.maximum(gram.diagonal(), 0.0)), start
    if trusted and 8 * EPS * float(lengths @ z) ** 2 <= wanted:
        solution = solve_master(gram, offsets, start, wanted)
        z = solution.z
        if solution.gap <= wanted and 8 * EPS * float(lengths @ z) ** 2 <= wanted:
            return z, z @ cuts
    refined, w = refine_master(cuts, offsets, z, wanted)
    return refined.z, w


def bound_dual(state: CutState, z: F64) -> tuple[float, float]:
    """Return D(z) of the computed cuts, and how far it can be from D(z) of the same cuts without rounding."""
    used, w = np.flatnonzero(z), z @ state.cuts
    shares, offsets, lengths = z[used], state.offsets[used], np.abs(w)
    value = float(shares @ offsets - w @ w / 2)
    products = [float(np.abs(state.cuts[k]) @ lengths) for k in used]  # one by one, as cuts may be most of the memory
    combined = float(shares @ (np.abs(offsets) + products))
    missed = _bound_combination(state, used, shares)
    most_cost, most = state.repeats * state.total_cost, state.repeats * float(lengths @ state.magnitudes)
    sizes = state.sizes[used]
    summed = float(shares @ (np.minimum(most_cost, sizes) + np.minimum(most, sizes * float(lengths @ state.largest))))
    ascended = float(z[0]) * state.sizes[0] * (1.0 + float(lengths @ state.largest)) if state.updates else 0.0
    own = bound_rounding(len(used) + len(w) + 8, combined) + bound_rounding(state.updates, ascended)
    return value, own + bound_rounding(state.terms + CUT_ROUNDINGS, summed) + float(missed @ missed) / 2


def _bound_combination(state: CutState, used: I64, shares: F64) -> F64:
    """Return how far each entry of w = z @ cuts can be off, (width,).

    The square of this error is part of the error of |w|^2. It matters where long cuts cancel in w.
    """
    summed, combined = np.zeros(len(state.magnitudes)), np.zeros(len(state.magnitudes))
    for k, share in zip(used.tolist(), shares.tolist(), strict=True):
        summed += share * np.minimum(state.repeats * state.magnitudes, state.sizes[k] * state.largest)
        combined += share * np.abs(state.cuts[k])
    missed: F64 = bound_rounding(state.terms + CUT_ROUNDINGS, 1.0) * summed
    return missed + bound_rounding(len(used) + 8, 1.0) * combined


def scale_costs(state: S, factor: float, tol: float) -> S:
    """Return the state to go on from if all costs are `factor` times larger: the cuts times `factor` are cuts again."""
    half, none = float(state.best_w @ state.best_w) / 2, np.zeros(len(state.z))
    scaled = replace(
        state,
        cuts=factor * state.cuts,
        offsets=factor * state.offsets,
        sizes=factor * state.sizes,
        z=none,
        gram=factor**2 * state.gram,
        idle=none.astype(np.int64),
        objective=half + factor * (state.objective - half),
        lower_bound=0.0,
        slack=0.0,
        passes=0,
        stuck=0,
        magnitudes=factor * state.magnitudes,
        total_cost=factor * state.total_cost,
        objective_rounding=max(1.0, factor) * state.objective_rounding,
        bound_rounding=0.0,
        tried_rounding=0.0,
    )
    return minimise_master(scaled, tol)


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
