"""Working sets: the rules that select their rows, and the problem that a working set poses.

    e_i = c_i - f_i - b        f_i = sum_j a_j y_j k(x_i, x_j)

The corners c_i are the labels y_i, or those of a regression (hinges.py). b is half-way between the greatest c_i - f_i
of the rows that can move up and the least of those that can move down. (e_i is the error of Pérez-Cruz et al. 2000,
eqs. (9)-(11), and -E_i of Platt 1998.) A row violates its condition if it can move up (y_i a_i can grow) and e_i > tol,
or if it can move down and e_i < -tol. A row is free if 0 < a_i < C_i.

The rules are those of Joachims, Pérez-Cruz, Vapnik and Fan, Chen & Lin. The problem of a working set has the
multipliers of the set as its variables; all other multipliers are fixed:

    min over a    F(a) = 1/2 (a-a0)'Q(a-a0) + g'(a-a0)       Q_ij = y_i y_j K_ij,  g_i = y_i (f_i - c_i)
    subject to    0 <= a_i <= C_i,    y'a = y'a0

This is the QP of Platt 1998, eqs. (3)-(5), restricted to the working set. The sums f_i include the multipliers outside
it, which enter Pérez-Cruz et al. 2000 (section 2.1) as G_in and G_bin. Here the errors are e_i = -y_i g_i = c_i - f_i,
without a bias. A row can move up if y_i a_i can grow (y_i = +1 and a_i < C_i, or y_i = -1 and a_i > 0), and it can move
down if y_i a_i can fall. The optimality conditions are violated by

    violation = max over up of e_i - min over down of e_j          (LIBSVM's m(a) - M(a); <= 0 at the optimum)

`restore_balance` returns multipliers to the plane sum_i y_i a_i = 0 after rounding has moved them off it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numba.extending import intrinsic

from streamsvm.numeric.rounding import sum_exactly
from streamsvm.numeric.rows import F32, F64, I64, Flags

RULES = ("second-order", "largest", "smallest", "random", "chunking", "platt")
LEAST_WEIGHT = float(np.finfo(np.float64).tiny) ** 0.5  # the least weight of a row in a draw, safe to divide by
PREVIOUS_SET_DIVISOR = 2  # at most half of a working set comes from the working set before it


@dataclass  # not frozen: rounds on few rows would spend a tenth of their time on making frozen ones
class Conditions:
    """The optimality conditions of n rows.

    errors (n,): e_i. up, down, free: (n,), whether a row can move up, can move down, or is free. is_used: (n,), whether
    C_i > 0. violation: the largest violation by a pair, LIBSVM's m(a) - M(a), or 0 if that is negative or no pair of
    rows can move. bias: the b of the errors.
    """

    errors: F64
    up: Flags
    down: Flags
    free: Flags
    is_used: Flags
    violation: float
    bias: float

    @property
    def leeway(self) -> F64:
        """The change of e_i at which row i begins to violate its condition, (n,); negative if it already does.

        The leeway of a free row is -|e_i|.
        """
        above, below = np.where(self.up, self.errors, -np.inf), np.where(self.down, -self.errors, -np.inf)
        return np.asarray(-np.maximum(above, below))

    def find_violators(self, tol: float) -> tuple[Flags, Flags]:
        """Return two masks of the rows that violate their conditions by more than tol: upward, and downward."""
        return self.up & (self.errors > tol), self.down & (self.errors < -tol)

    def about(self, bias: float) -> Conditions:
        """Return the conditions with errors relative to another bias."""
        return replace(self, errors=self.errors + (self.bias - bias), bias=bias)

    def of_rows(self, rows: I64) -> Conditions:
        """Return the conditions of these rows alone; `violation` remains that of all rows."""
        arrays = ("errors", "up", "down", "free", "is_used")
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})

    def join(self, other: Conditions, is_own: Flags) -> Conditions:
        """Join the conditions of two groups of rows; the multipliers of each group have a fixed sum.

        is_own: (n,), whether a row belongs to this group rather than to the other. The violation is the greater of the
        two violations, and the bias is 0.
        """
        errors = np.where(is_own, self.errors, other.errors)
        up, down, is_used = self.up | other.up, self.down | other.down, self.is_used | other.is_used
        return Conditions(errors, up, down, self.free, is_used, max(self.violation, other.violation), 0.0)


def find_conditions(y: F64, costs: F64, alpha: F64, f: F64, corners: F64 | None = None) -> Conditions:
    """Return the conditions of rows, given their multipliers and sums f (without a bias). corners: None for labels."""
    errors = (y if corners is None else corners) - f
    is_used, (up, down) = costs > 0.0, find_movable(y, costs, alpha)
    free, up, down = up & down, up & is_used, down & is_used
    most, least = float(errors.max(where=up, initial=-np.inf)), float(errors.min(where=down, initial=np.inf))
    bias = (most + least) / 2 if math.isfinite(most + least) else (least if math.isfinite(least) else most)
    bias = bias if math.isfinite(bias) else 0.0
    violation = max(0.0, most - least) if math.isfinite(most - least) else 0.0
    return Conditions(errors - bias, up, down, free, is_used, violation, bias)


def find_movable(y: F64, costs: F64, alpha: F64) -> tuple[Flags, Flags]:
    """Return whether y_i a_i can rise, and whether it can fall, (n,) each."""
    above_zero, below_cost = alpha > 0.0, alpha < costs
    exchanged = (y > 0.0) & (above_zero ^ below_cost)  # for y_i > 0, the two flags change places
    return above_zero ^ exchanged, below_cost ^ exchanged


def choose_working_set(
    rule: str, conditions: Conditions, previous: I64, size: int, tol: float, rng: np.random.Generator
) -> I64:
    """Choose distinct rows by one of the RULES except "platt", which needs no working set.

    The rules choose at most `size` rows, except "chunking" (Vapnik), which chooses all free rows and the `size` worst
    violators. previous: the working set of the last round, in the order in which its rows joined it.
    """
    match rule:
        case "second-order":
            return _keep_and_join(conditions, previous, size)
        case "largest":
            return _pick_sides(conditions, size)
        case "chunking":
            return join_rows(np.flatnonzero(conditions.free), _pick_sides(conditions, size), len(conditions.errors))
    return choose_candidates(rule, conditions, size, tol, rng)


def _keep_and_join(conditions: Conditions, previous: I64, size: int) -> I64:
    """Return up to half of the previous set, and the worst violators.

    Free rows of the previous set are taken first, then the rows that joined it last.
    """
    free = conditions.free[previous]
    newest_first = np.concatenate((previous[free][::-1], previous[~free][::-1]))
    kept = newest_first[: size // PREVIOUS_SET_DIVISOR][::-1]
    return join_rows(kept, _pick_sides(conditions, size), size)


def _pick_sides(conditions: Conditions, size: int) -> I64:
    """Return the worst violators: alternately a row that can move up and a row that can move down."""
    up, down = np.flatnonzero(conditions.up), np.flatnonzero(conditions.down)
    above, below = conditions.errors[up], -conditions.errors[down]
    sides = (up[find_largest(above, size)], down[find_largest(below, size)])
    turns = np.full((max(map(len, sides)), 2), -1, np.int64)
    for side, rows in enumerate(sides):
        turns[: len(rows), side] = rows
    picked = turns.ravel()
    return join_rows(picked[picked >= 0], picked[:0], size)


def find_largest(values: F64, k: int) -> I64:
    """Return the positions of the k largest values, the largest value first; ties are ordered by position."""
    k = min(max(k, 0), len(values))
    if k == 0:
        return np.empty(0, np.int64)
    limit = np.partition(values, len(values) - k)[len(values) - k]
    candidates = np.flatnonzero(values >= limit)
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]


def join_rows(first: I64, then: I64, size: int) -> I64:
    """Return the first `size` distinct rows of `first` followed by `then`."""
    both = np.concatenate((first, then))
    _, places = np.unique(both, return_index=True)
    return both[np.sort(places)][:size]


def choose_candidates(rule: str, conditions: Conditions, size: int, tol: float, rng: np.random.Generator) -> I64:
    """Choose rows by the strategy of Pérez-Cruz et al. 2000, section 3.

    Violators and free rows are the candidates. On each side, one free violator and one at a bound come first. The
    others are drawn (rule "random") or have the least |e| (rule "smallest"). If there are fewer candidates than `size`,
    the rows with the least |e| among those that meet their conditions complete the set.
    """
    e, free = conditions.errors, conditions.free
    too_high, too_low = conditions.find_violators(tol)
    sides = [[side & part for part in (free, ~free) if np.any(side & part)] for side in (too_high, too_low)]
    # alternate between the sides, so that the first two rows can move as a pair
    kinds = [kind for pair in zip_longest(*sides) for kind in pair if kind is not None]
    firsts = np.array([_choose_one(kind, rule, e, rng) for kind in kinds], np.int64)
    candidates = np.flatnonzero(too_high | too_low | free)
    if len(candidates) > size:
        by_size = candidates[np.argsort(np.abs(e[candidates]), kind="stable")]
        in_order = rng.permutation(candidates) if rule == "random" else by_size
        return join_rows(firsts, in_order, size)
    others = np.flatnonzero(~(too_high | too_low | free) & conditions.is_used)
    nearest = others[find_largest(-np.abs(e[others]), size)]
    return join_rows(candidates, nearest, size)


def draw_active_rows(conditions: Conditions, size: int, tol: float, rng: np.random.Generator) -> I64:
    """Draw an active set, as ascending row numbers: free rows, and equally many violators on both sides, if possible.

    Free rows fill half of the set, or more if there are few violators. The sides are balanced because sum_i y_i a_i is
    fixed: the multipliers of one side can move only as far as the multipliers of the other side. If the set is not
    full, the remaining rows with the least |e| complete it. Rows are drawn with weights |e|: the worst violators are
    the most likely support vectors, but other violators also get their turn.
    """
    e, free = conditions.errors, conditions.free
    shares = np.abs(e) / max(float(np.max(np.abs(e))), LEAST_WEIGHT)
    sides = conditions.find_violators(tol)
    up, down = (draw_rows(np.flatnonzero(side & ~free), shares, size, rng) for side in sides)
    some_free = draw_rows(np.flatnonzero(free), shares, max(size // 2, size - len(up) - len(down)), rng)
    room = size - len(some_free)
    n_up = min(len(up), max(room // 2, room - len(down)))
    drawn = np.concatenate((some_free, up[:n_up], down[: room - n_up]))
    return complete_draw(drawn, np.abs(e), size)


def complete_draw(drawn: I64, distances: F64, size: int) -> I64:
    """Return the rows `drawn`, completed to `size` rows by the other rows of least distance, ascending.

    distances: (n,), the distances of all rows.
    """
    is_other = np.ones(len(distances), np.bool_)
    is_other[drawn] = False
    others = np.flatnonzero(is_other)
    return np.sort(np.concatenate((drawn, others[find_largest(-distances[others], size - len(drawn))])))


def draw_rows(rows: I64, weights: F64, size: int, rng: np.random.Generator) -> I64:
    """Draw at most `size` rows one after another with these weights (n,); return them in the order drawn.

    Efraimidis & Spirakis (2006), Weighted random sampling with a reservoir.
    """
    lives = rng.standard_exponential(len(rows)) / np.maximum(weights[rows], LEAST_WEIGHT)
    return np.asarray(rows[find_largest(-lives, size)])


def _choose_one(kind: Flags, rule: str, e: F64, rng: np.random.Generator) -> int:
    """Return one of the rows of a kind: a random row for the rule "random", otherwise the row with the least |e|."""
    rows = np.flatnonzero(kind)
    return int(rng.choice(rows) if rule == "random" else rows[np.argmin(np.abs(e[rows]))])


@intrinsic
def larger(_context: Any, a: Any, _b: Any) -> Any:
    """Return the larger of two numbers, neither of which is NaN.

    LLVM vectorises reductions with this function, but not those with max() or `if`.
    """

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        flags = ("nnan", "nsz")
        return builder.select(builder.fcmp_ordered(">", *args, flags=flags), *args, flags=flags)

    return a(a, a), generate


MOST_CORRECTIONS = 3


@dataclass  # not frozen: rounds on few rows would spend a tenth of their time on making frozen ones
class WorkingSet:
    """A working set of q rows at the multipliers a0. All arrays but K are float64.

    K: (q, q), symmetric kernel values in float32 or float64; K need not be positive semidefinite.
    y: (q,), -1 or +1. alpha: (q,), a0, with 0 <= a0_i <= C_i. costs: (q,), C_i >= 0.
    corners: (q,), c_i, or None if they are y.
    by_side: whether the sum of the multipliers of each side y_i is kept, and not only y'a (see FixedSum). If so, only
    pair steps can solve the problem, and the violation is the greater one of the two sides.
    f: (q,), the sum over ALL rows j, inside and outside of the set, of a0_j y_j k(x_i, x_j), without a bias.
    """

    K: F32 | F64
    y: F64
    alpha: F64
    f: F64
    costs: F64
    corners: F64 | None = None
    by_side: bool = False

    @property
    def errors(self) -> F64:
        """The errors e_i at a0, (q,)."""
        return np.asarray((self.y if self.corners is None else self.corners) - self.f)

    def bounds(self) -> tuple[F64, F64]:
        """Return the least and the greatest allowed values of y_i a_i, (q,) each."""
        farthest = self.y * self.costs
        return np.minimum(farthest, 0.0), np.maximum(farthest, 0.0)

    def moved_to(self, alpha: F64) -> WorkingSet:
        """Return the same problem at other multipliers of the working set."""
        return replace(self, alpha=alpha, f=self.f + self.K @ (self.y * (alpha - self.alpha)))

    def objective(self, alpha: F64) -> float:
        """Return F(alpha). F(a0) is 0, and the dual objective D of the whole problem changes by -F(alpha)."""
        step = self.y * (alpha - self.alpha)
        return float(step @ (self.K @ step) / 2 - step @ self.errors)

    def violation(self) -> float:
        """Return m(a0) - M(a0), or -inf if no row can move up or none can move down."""
        errors, (up, down) = self.errors, find_movable(self.y, self.costs, self.alpha)
        movable = [(up, down)]
        if self.by_side:
            movable = [(up & side, down & side) for side in (self.y > 0.0, self.y < 0.0)]
        return max(
            float(errors.max(where=rising, initial=-np.inf) - errors.min(where=falling, initial=np.inf))
            for rising, falling in movable
        )

    def repair(self, target: F64) -> F64:
        """Return feasible multipliers near `target`: 0 <= a_i <= C_i, and y'a = y'a0 to rounding.

        Multipliers outside the box are moved to the nearer bound. The multipliers between their bounds then make up the
        difference in the sum, each in proportion to its room, while the others stay on their bounds. If this room is
        too small, all multipliers take part.
        """
        least, greatest = self.bounds()
        moved = np.clip(self.y * target, least, greatest)
        wanted = float(np.sum(self.y * self.alpha))
        for _ in range(2):  # the second iteration corrects the rounding of the first
            lacking = wanted - float(np.sum(moved))
            room = (greatest if lacking > 0 else least) - moved
            inside = np.where((moved > least) & (moved < greatest), room, 0.0)
            if abs(float(np.sum(inside))) >= abs(lacking):
                room = inside
            total = float(np.sum(room))
            moved = np.clip(moved + room * (lacking / total if total else 0.0), least, greatest)
        return np.abs(moved)

    def best_towards(self, target: F64) -> F64:
        """Return the multipliers of least F on the segment from a0 to the feasible `target`."""
        step = self.y * (target - self.alpha)
        slope, curvature = float(step @ self.errors), float(step @ (self.K @ step))
        share = 1.0 if 2 * slope > curvature else 0.0  # without curvature, one of the ends is the best
        if curvature > 0:
            share = max(0.0, slope / curvature)
        if share > 1 - 1e-9:  # the target is the optimum to rounding: keep multipliers on their bounds
            return target
        return np.clip(self.alpha + share * (target - self.alpha), 0.0, self.costs)


def restore_balance(y: F64, alpha: F64, costs: F64, others: F64) -> None:
    """Change single multipliers in place, within 0 and C_i, until sum y_i a_i + sum others is zero to rounding.

    others: the terms y_j a_j of rows that are not in `alpha`. The sum is exact (math.fsum). One multiplier takes the
    whole correction: the free multiplier (0 < a_i < C_i) with the most room or, if none is free, any multiplier with
    the most room. Relative to this multiplier the correction is smallest, which matters because the kernel values of
    rows with small multipliers may be larger by any factor.
    """
    least_excess = math.inf
    for _ in range(MOST_CORRECTIONS):
        total = sum_exactly(y * alpha, others)
        if not 0.0 < abs(total) < least_excess:
            return
        least_excess = abs(total)
        rises = y * total < 0
        room = np.where(rises, costs - alpha, alpha)
        free_room = np.where((alpha > 0) & (alpha < costs), np.minimum(alpha, costs - alpha), 0.0)
        row = int(np.argmax(free_room if np.max(free_room, initial=0.0) > least_excess else room))
        alpha[row] = min(max(alpha[row] + (least_excess if rises[row] else -least_excess), 0.0), costs[row])
