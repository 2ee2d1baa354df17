"""Cuts below a convex loss, common to Algorithms 1 and 2 of Joachims 2006, and the rounding of losses and cuts.

A cut (a_c, b_c) states that the loss at any w is at least b_c - w.a_c, where a_c and b_c include the rows' costs. A cut
that has been inactive for many steps is dropped.

Rounding: the first pass computes M_j = sum_i C_i |x_ij|. A cut may count a row several times, for instance if a row
that has left the margin is subtracted again. If no row is counted more than k times, the magnitudes of the cut's terms
for feature j sum to at most k M_j. The error of a sum is at most gamma_n times the magnitudes of its terms
(numeric.rounding), where n is the largest number of additions on any term. The error bound of P is stored with P.

If the rounding of P may exceed NOISE_SHARE of the requested gap, every pass also evaluates P in twice the precision
(certificates.double_double) at points on the line to the master's minimiser, and at the same points multiplied by
slightly more than 1. The longer points help if costs are so high that the best w has almost no loss: the loss of a
margin of 1 - 1e-16 then matters, and scaling w by 1 + 1e-15 removes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from streamsvm import passes as protocol
from streamsvm.certificates.double_double import add_exact, add_exact_classes, start_exact
from streamsvm.losses.hinge import FINE_STEPS
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import add_row_magnitudes, bound_rounding
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.passes import MemoryNeed, RowTotals, Scan, TriedBounds, axes, count_additions, grows, has_progressed

IDLE_STEPS = 40  # A cut that has been inactive for more steps than this is dropped.
STUCK_STEPS = 30  # Rounding is the limit if neither P nor D has moved for this many steps.
NOISE_SHARE = 0.1  # rounding of P below this share of the requested gap does not matter
ON_THE_LINE = (0.0, 1 / 32, 1 / 4, 1.0)  # steps of the points on the line
LONGER = (0.0, 2.0**-49, 2.0**-42, 2.0**-33, 2.0**-24)  # relative increases in the length of a point
LINE_STEPS = 17 * FINE_STEPS + 1  # the maximum number of changes summed along a line (cutting_plane.line_search)
MOST_VALUES = 1 << 21  # the largest number of entries of all points; with many features, fewer LONGER are tried


@dataclass
class CutState(TriedBounds):
    """The state of a cutting-plane solver.

    Parameters
    ----------
    best_w, master_w
        The best point so far, and the minimiser of the master problem, (width,) each.
    cuts, offsets, z
        The cuts a_c (m, width), their offsets b_c (m,), and their multipliers (m,).
    sizes
        For each cut, the sum of the costs of all rows ever added to it or subtracted again, (m,) (`RowSums`).
    gram, idle
        The products of all pairs of cuts, G (m, m), and the number of steps for which the multiplier of each cut has
        been zero, (m,).
    slack
        The largest loss that a cut gives at master_w: the paper's xi, times the sum of all costs.
    magnitudes, largest, total_cost, terms
        M and max_i |x_ij|, (width,) each, sum C_i, and the largest number of additions on any term of a sum. Before the
        first pass, the first two are empty, total_cost is 0, and terms counts only the additions in the driver.
    updates
        Unused; kept because checkpoints of earlier versions contain it.
    repeats, of_cuts
        The maximum number of times that a cut counts a row; and the names of the fields that have one number per cut,
        initially 0.
    """

    best_w: F64 = axes("d")
    master_w: F64 = axes("d")
    cuts: F64 = axes("m", "d")
    offsets: F64 = grows("m")
    sizes: F64 = grows("m")
    z: F64 = grows("m")
    gram: F64 = grows("m", "m")
    idle: I64 = grows("m", dtype=np.int64)
    slack: float = 0.0
    magnitudes: F64 = grows("d")
    largest: F64 = grows("d")
    total_cost: float = 0.0
    terms: float = 0.0
    updates: float = 0.0
    repeats: ClassVar[float] = 1.0
    of_cuts: ClassVar[tuple[str, ...]] = ("z", "idle")
    added: ClassVar[tuple[str, ...]] = ("tried_rounding",)

    @classmethod
    def at_zero(cls, width: int) -> Self:
        """Return the state before the first pass: w = 0, and no cuts."""
        return cls(np.zeros(width), np.zeros(width), np.empty((0, width)))

    def bound_loss(self, sizes: F64) -> float:
        """Return the error bound of a computed P at points whose entries |w_j| are at most `sizes` (width,)."""
        width, loss = len(self.magnitudes), self.total_cost + float(sizes @ self.magnitudes)
        return bound_rounding(2.0 * (self.terms + width + 8), loss) + bound_rounding(width + 8, float(sizes @ sizes))


S = TypeVar("S", bound=CutState)


@dataclass
class RowSums(RowTotals):
    """Sums over rows that record the magnitude of their terms, so that their rounding can be bounded.

    vectors (width,): sum C_i y_i x_i. offsets: sum C_i. sizes: the sum of |C_i| over all terms ever added or
    subtracted. Several sums together have shapes (k, width), (k,) and (k,).
    """

    vectors: F64
    offsets: Any = 0.0
    sizes: Any = 0.0

    def __sub__(self, other: RowSums) -> RowSums:
        return RowSums(self.vectors - other.vectors, self.offsets - other.offsets, self.sizes + other.sizes)

    def pick(self, chosen: Any) -> RowSums:
        """Return the sums with these indices."""
        return RowSums(self.vectors[chosen], self.offsets[chosen], self.sizes[chosen])


def move_to(state: S, w: F64, objective: float, rounding: float, **others: Any) -> S:
    """Return the state with w as its best point if w is better; else return the state unchanged.

    At a better point, P plus its rounding is lower. In addition, P is lower, or its rounding less than half as large.
    If w becomes the best point, the fields in `others` are also set.
    """
    lower = objective < state.objective or rounding < state.objective_rounding / 2
    if not (lower and objective + rounding < state.objective + state.objective_rounding):
        return state
    return replace(state, best_w=w, objective=float(objective), objective_rounding=float(rounding), **others)


def move_to_lowest(state: S, W: F64, losses: F64, sizes: F64 | None = None, **others: F64) -> tuple[S, int]:
    """Move to the point with the lowest P, as `move_to` does; return the state and the index of the point.

    W (k, width), losses (k,): the points and the losses there. sizes (width,): the largest |w_j| in the sums, which
    bound the rounding of the losses (None: the |w_j| of the lowest point). others: arrays with an entry for each point.
    """
    objectives = np.sum(W**2, axis=1) / 2 + losses
    best = int(np.argmin(objectives))
    fields = {name: values[best] for name, values in others.items()}
    rounding = state.bound_loss(np.abs(W[best]) if sizes is None else sizes)
    return move_to(state, W[best], objectives[best], rounding, **fields), best


def raise_bound(state: S, value: float, rounding: float, **others: Any) -> S:
    """Return the state with value - rounding as its lower bound, if this is the highest so far.

    If so, the fields in `others` are also set. If only the rounding keeps the bound from being the highest, the state
    records this rounding.
    """
    if value - rounding > state.lower_bound:
        return replace(state, lower_bound=value - rounding, bound_rounding=rounding, tried_rounding=0.0, **others)
    return replace(state, tried_rounding=0.0 if value <= state.lower_bound else rounding)


def most_cuts(width: int) -> int:
    """Return the number of cuts that are kept at once: as many as fit into 128 MiB, but at least 64 and at most 500."""
    return min(max((128 << 20) // (8 * width), 64), 500)


@dataclass(frozen=True, kw_only=True)
class CutSettings:
    """The common settings of cutting planes.

    tol: the relative gap to reach. max_cuts: the number of cuts kept (None: the result of `most_cuts`). vectors: the
    number of vectors that the driver holds besides the cuts.
    """

    tol: float = 1e-3
    max_cuts: int | None = None
    vectors: ClassVar[int] = 8

    def most_cuts(self, width: int) -> int:
        """Return the largest number of cuts kept at once."""
        return self.max_cuts or most_cuts(width)

    def driver_bytes(self, width: int) -> int:
        """Return the bytes that the driver needs for the cuts and a few vectors."""
        return cut_bytes(width, self.most_cuts(width)) + 8 * width * self.vectors

    def need_memory(
        self, width: int, totals_bytes: int, shared_bytes: int, more_bytes: int = 0, step_bytes: int = 0
    ) -> MemoryNeed:
        """Return the memory of a solver whose totals and shared data have the given sizes.

        more_bytes: memory of the driver beyond `driver_bytes`. step_bytes: more memory, used while a step is computed.
        """
        driver_bytes, turn_bytes = self.driver_bytes(width) + more_bytes, master_bytes(width, self.most_cuts(width))
        return MemoryNeed(driver_bytes + step_bytes, turn_bytes + step_bytes, totals_bytes, shared_bytes)


def cut_bytes(width: int, cuts: int) -> int:
    """Return the bytes of the cuts and their products while both are copied, plus the bytes of the master problem."""
    return 8 * width * 2 * cuts + 2 * 8 * cuts**2 + master_bytes(width, cuts)


def count_parts(width: int, cuts: int) -> int:
    """Return the number of parts in which wide cuts are factorised; a part is about as large as all factors R."""
    return math.isqrt(width // cuts)


def master_bytes(width: int, cuts: int) -> int:
    """Return the bytes needed to solve the master problem: matrices (cuts, cuts), and the parts of a factorisation."""
    factorised = max(1, min(cuts, width - 1))
    return 8 * (8 * cuts**2 + 2 * count_parts(width, factorised) * factorised**2)


def add_cuts(state: S, new: RowSums, most: int | None = None) -> S:
    """Add new cuts, and drop the longest-idle cuts if there would be more than `most` cuts (None: `most_cuts`).

    A new cut equal to its predecessor is left out. If the new cuts and the cuts with positive multipliers do not all
    fit, the first new cuts are left out. If cuts with positive multipliers were dropped instead, the next steps would
    only find them again.
    """
    most = most or most_cuts(new.vectors.shape[1])
    differs = np.concatenate(([True], np.any(np.diff(new.vectors, axis=0) != 0, axis=1)))
    keep = state.idle <= IDLE_STEPS
    room = max(1, most - int(np.count_nonzero(state.z > 0)))
    new = new.pick(np.flatnonzero(differs)[-room:])
    cuts = new.vectors
    if (excess := int(keep.sum()) + len(cuts) - most) > 0:
        expendable = np.lexsort((state.z, -state.idle))
        keep[expendable[keep[expendable]][:excess]] = False
    m = int(keep.sum())
    both = np.empty((m + len(cuts), cuts.shape[1]))  # only one copy: cuts may be most of the memory
    old = np.take(state.cuts, np.flatnonzero(keep), axis=0, out=both[:m], mode="clip")
    both[m:] = cuts
    gram = extend_products(state.gram[np.ix_(keep, keep)], old, cuts)
    added = {name: np.zeros(len(cuts), getattr(state, name).dtype) for name in state.of_cuts}
    added |= {"offsets": new.offsets, "sizes": new.sizes}
    grown: dict[str, Any] = {name: np.append(getattr(state, name)[keep], values) for name, values in added.items()}
    return replace(state, cuts=both, gram=gram, **grown)


def extend_products(gram: F64, old: F64, new: F64) -> F64:
    """Return the products of all pairs of old and new cuts, given the products of the old cuts."""
    across = new @ old.T
    return np.block([[gram, across.T], [across, new @ new.T]])


def drop_cuts(state: S) -> S:
    """Return the state without its cuts, to free their memory."""
    cuts, none, gram, idle = state.cuts[:0].copy(), np.empty(0), np.empty((0, 0)), np.empty(0, np.int64)
    return replace(state, cuts=cuts, offsets=none, sizes=none, z=none, gram=gram, idle=idle)


def count_pass(state: S, before: S, passes: int) -> S:
    """Return the state with `passes` more passes counted, and `stuck` updated.

    `stuck` is increased if neither P nor D has moved since the state `before`; otherwise it is reset to 0.
    """
    return replace(state, passes=before.passes + passes, stuck=0 if has_progressed(state, before) else before.stuck + 1)


def find_status(state: CutState, tol: float, epsilon: float | None = None, violation: float = 0.0) -> str | None:
    """Return the status by the relative gap or, if epsilon is given, by the paper's stop (line 9 of Algorithm 1).

    violation: the excess of the loss at the master's minimiser over all cuts, divided by the sum of costs.
    """
    status = protocol.find_status(state.progress, tol, state.stuck, STUCK_STEPS)
    if epsilon is None:
        return status
    if violation <= epsilon and state.passes > 1:
        return "converged" if status == "converged" else "paper_stop"
    return None if status == "converged" else status


@dataclass
class Magnitudes(RowTotals):
    """Sums over rows that bound the rounding of losses and cuts.

    sums (width,): sum_i C_i |x_ij|, with the constant feature last. largest (width,): max_i |x_ij|. cost: sum_i C_i.
    n_rows: the number of rows; a row that was added and later subtracted counts twice, here and in the sums. additions:
    the largest number of additions on any term of a sum over rows, if the rows of a group are added one after another.
    """

    sums: F64
    largest: F64
    cost: float = 0.0
    n_rows: int = 0
    additions: int = 0
    joined: ClassVar = {"largest": np.maximum, "additions": count_additions}

    def add(self, rows: Rows, steepest: F64, cost: float, bias_feature: float) -> None:
        """Add rows whose losses have slopes of at most `steepest` (n,), and whose costs sum to `cost`."""
        add_row_magnitudes(self.sums, self.largest, rows.X, steepest)
        self.sums[-1] += abs(bias_feature) * float(np.sum(steepest))
        self.largest[-1] = abs(bias_feature)
        self.cost += cost
        self.n_rows += len(steepest)
        self.additions += len(steepest)


def start_magnitudes(width: int) -> Magnitudes:
    """Return the magnitudes of no rows: all sums are 0."""
    return Magnitudes(np.zeros(width), np.zeros(width))


def add_magnitudes(totals: Magnitudes, rows: Rows, class_costs: F64, bias_feature: float) -> None:
    """Add the magnitudes of the rows."""
    _, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    totals.add(rows, costs, float(np.sum(costs)), bias_feature)


def take_magnitudes(state: S, answers: Sequence[Any], n_classes: int = 1) -> S:
    """Return the state with the magnitudes, which are the last answer to `look_for_rounding` in the first pass.

    The magnitudes are sums too, so they are raised by the bound of their own rounding. A sum has at most as many terms
    as there are rows. Sums along a line also add the changes from step to step, so LINE_STEPS is added to the number of
    additions. With the weights of several classes, a row may contribute a slope of up to C_i to any class, so the
    magnitudes of each class are sums over all rows. A term then takes part in 2 K more additions when the shares of a
    row are summed.
    """
    if len(state.magnitudes):
        return state
    found: Magnitudes = answers[-1]
    larger = 1.0 + bound_rounding(found.n_rows + 8, 1.0)
    sums, largest = np.tile(larger * found.sums, n_classes), np.tile(found.largest, n_classes)
    terms = max(state.terms, float(min(found.n_rows, found.additions + LINE_STEPS)))
    if n_classes > 1:
        terms = min(state.terms + found.additions, found.n_rows) + 2.0 * n_classes + 16.0
    return replace(state, magnitudes=sums, largest=largest, total_cost=larger * found.cost, terms=terms)


def is_noisy(state: CutState, tol: float) -> bool:
    """Return whether the rounding of P may be too large for the requested gap."""
    if not len(state.magnitudes) or not np.isfinite(state.objective):
        return False
    sizes = np.abs(state.best_w) + np.abs(state.master_w)
    return state.bound_loss(sizes) > NOISE_SHARE * tol * state.objective


def look_for_rounding(
    state: CutState, points: F64 | None, class_costs: F64, bias_feature: float, n_classes: int = 1
) -> list[Scan]:
    """Return the additional scans of a pass that serve to bound rounding.

    They compute the loss in twice the precision at the points, if any, and the magnitudes in the first pass. n_classes:
    the number of classes that have weights of their own; a point holds the weights of one class after another.
    """
    looks = []
    if points is not None:
        W, add_losses = points, add_exact
        if n_classes > 1:
            W, add_losses = points.reshape(len(points), n_classes, -1), add_exact_classes
        shared = (np.ascontiguousarray(W[..., :-1]), W[..., -1] * bias_feature, class_costs)
        looks.append(Scan(partial(start_exact, len(points)), add_losses, add, shared))
    if not len(state.magnitudes):
        start = partial(start_magnitudes, len(state.best_w) // n_classes)
        looks.append(Scan(start, add_magnitudes, add, (class_costs, bias_feature)))
    return looks


def take_rounding(state: S, points: F64 | None, answers: Sequence[Any], n_classes: int = 1) -> S:
    """Return the state after the scans of `look_for_rounding`, moved to the best of the points if it is better."""
    state = take_magnitudes(state, answers, n_classes)
    return state if points is None else take_exact(state, points, *answers[0].read(points.shape[1]))[0]


def choose_points(bases: F64) -> F64:
    """Return points (k, width): the given points, followed by lengthened copies of them."""
    return np.concatenate([(1.0 + longer) * bases for longer in LONGER[: _count_longer(bases.size)]])


def _count_longer(n_values: int) -> int:
    return min(max(MOST_VALUES // n_values, 1), len(LONGER))


def exact_bytes(width: int) -> int:
    """Return the bytes of the points of a pass. Each task receives the points and splits them into two parts."""
    n_values = len(ON_THE_LINE) * width
    return 8 * n_values * _count_longer(n_values)


def choose_line_points(state: CutState, ends: F64, tol: float) -> F64 | None:
    """Return points on a line, followed by lengthened copies of them; return None unless rounding may matter."""
    if not is_noisy(state, tol):
        return None
    return choose_points(np.stack([(1.0 - t) * ends[0] + t * ends[1] for t in ON_THE_LINE]))


def take_exact(state: S, W: F64, losses: F64, rounding: F64) -> tuple[S, int, float]:
    """Move to the best of the points W (k, width); return the state, the index of that point, and the loss there.

    The state moves only if the point is better despite rounding. losses, rounding (k,): the losses in twice the
    precision, and their error bounds.
    """
    halves = np.einsum("kj,kj->k", W, W) / 2
    rounding = rounding + np.array([bound_rounding(W.shape[1] + 8, 2 * half) for half in halves])
    objectives = halves + losses
    at = int(np.argmin(objectives + rounding))
    return move_to(state, W[at], objectives[at], rounding[at]), at, float(losses[at])
