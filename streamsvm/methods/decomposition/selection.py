"""Selection of the rows of a working set, by the rules of Joachims, Pérez-Cruz, Vapnik and Fan, Chen & Lin.

    e_i = c_i - f_i - b        f_i = sum_j a_j y_j k(x_i, x_j)

The corners c_i are the labels y_i, or those of a regression (tube.py). b lies half-way between the extremes of the two
sides. (e_i is the error of Pérez-Cruz et al. 2000, eqs. (9)-(11), and
-E_i of Platt 1998.) A row violates its condition if it can move up (y_i a_i can grow) and e_i > tol, or if it can move
down and e_i < -tol. A row is free if 0 < a_i < C_i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64, I64

RULES = ("second-order", "largest", "smallest", "random", "chunking", "platt")
LEAST_WEIGHT = float(np.finfo(np.float64).tiny) ** 0.5  # of a row in a draw, so that its weight can be divided by
PREVIOUS_SET_DIVISOR = 2  # at most half of a working set comes from the working set before it

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Conditions:
    """The optimality conditions of n rows: e_i (n,), which rows can move, and the extremes of e_i + b.

    up, down, free: (n,), whether a row can move up, can move down, or is free; is_used: (n,), whether C_i > 0.
    most: the greatest c_i - f_i of the rows that can move up; least: the least of the rows that can move down.
    """

    errors: F64
    up: Mask
    down: Mask
    free: Mask
    is_used: Mask
    most: float
    least: float
    bias: float

    @property
    def violation(self) -> float:
        """LIBSVM's m(a) - M(a), but 0 at the optimum and if no pair of rows can move."""
        return max(0.0, self.most - self.least) if np.isfinite(self.most - self.least) else 0.0

    @property
    def leeway(self) -> F64:
        """By how much e_i may move before the row violates its condition, (n,): below 0 if it does, -|e_i| if free."""
        above, below = np.where(self.up, self.errors, -np.inf), np.where(self.down, -self.errors, -np.inf)
        leeway: F64 = -np.maximum(above, below)
        return leeway

    def find_violators(self, tol: float) -> tuple[Mask, Mask]:
        """Return which rows violate their condition by more than tol: those that can move up, and down."""
        return self.up & (self.errors > tol), self.down & (self.errors < -tol)

    def about(self, bias: float) -> Conditions:
        """Return the conditions with errors about another bias."""
        return replace(self, errors=self.errors + (self.bias - bias), bias=bias)

    def of_rows(self, rows: I64) -> Conditions:
        """Return the conditions of these rows alone, with the extremes of all rows."""
        arrays = ("errors", "up", "down", "free", "is_used")
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})


def find_conditions(y: F64, costs: F64, alpha: F64, f: F64, corners: F64 | None = None) -> Conditions:
    """Return the conditions of rows with these multipliers and sums f, without a bias. corners: None for labels."""
    errors = (y if corners is None else corners) - f
    is_used, above_zero, below_cost = costs > 0, alpha > 0, alpha < costs
    up = np.where(y > 0, below_cost, above_zero) & is_used
    down = np.where(y > 0, above_zero, below_cost) & is_used
    most = float(np.max(errors, where=up, initial=-np.inf))
    least = float(np.min(errors, where=down, initial=np.inf))
    bias = (most + least) / 2 if np.isfinite(most + least) else (least if np.isfinite(least) else most)
    bias = bias if np.isfinite(bias) else 0.0
    return Conditions(errors - bias, up, down, above_zero & below_cost, is_used, most, least, bias)


def join_conditions(first: Conditions, second: Conditions, is_first: Mask) -> Conditions:
    """Return the conditions of rows of which each sum has those of its own rows. is_first: (n,), of the first sum.

    `most` and `least` are those of the greater violation, about a bias of 0.
    """
    half = max(first.violation, second.violation) / 2
    return Conditions(
        np.where(is_first, first.errors, second.errors),
        first.up | second.up,
        first.down | second.down,
        first.free,
        first.is_used | second.is_used,
        half,
        -half,
        0.0,
    )


def choose_working_set(
    rule: str, conditions: Conditions, previous: I64, size: int, tol: float, rng: np.random.Generator
) -> I64:
    """Choose different rows by one of the RULES, except "platt", which needs no working set.

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
    """Return up to half of the previous set, free rows and late comers first, and the worst violators."""
    free = conditions.free[previous]
    newest_first = np.concatenate((previous[free][::-1], previous[~free][::-1]))
    kept = newest_first[: size // PREVIOUS_SET_DIVISOR][::-1]
    return join_rows(kept, _pick_sides(conditions, size), size)


def _pick_sides(conditions: Conditions, size: int) -> I64:
    """Return the worst violators: alternately a row that can move up and one that can move down."""
    up, down = np.flatnonzero(conditions.up), np.flatnonzero(conditions.down)
    above, below = conditions.errors[up], -conditions.errors[down]
    sides = (up[find_largest(above, size)], down[find_largest(below, size)])
    turns = np.full((max(map(len, sides)), 2), -1, np.int64)
    for side, rows in enumerate(sides):
        turns[: len(rows), side] = rows
    picked = turns.ravel()
    return join_rows(picked[picked >= 0], picked[:0], size)


def find_largest(values: F64, k: int) -> I64:
    """Return the positions of the k largest values, largest first; equal values are ordered by position."""
    k = min(max(k, 0), len(values))
    if k == 0:
        return np.empty(0, np.int64)
    if k < len(values):
        limit = np.partition(values, len(values) - k)[len(values) - k]
        candidates = np.flatnonzero(values >= limit)
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]


def join_rows(first: I64, then: I64, size: int) -> I64:
    """Return the rows of `first` and then those of `then`, each row once, and at most `size` rows."""
    both = np.concatenate((first, then))
    _, places = np.unique(both, return_index=True)
    return both[np.sort(places)][:size]


def choose_candidates(rule: str, conditions: Conditions, size: int, tol: float, rng: np.random.Generator) -> I64:
    """Choose rows by the strategy of Pérez-Cruz et al. 2000, section 3.

    Violators and free rows are the candidates. One row of each class and each violated condition comes first; the rule
    says whether the others are drawn ("random") or have the "smallest" |e|. If there are fewer candidates than `size`,
    the rows with the least |e| among those that fulfil their conditions complete the set.
    """
    e, free = conditions.errors, conditions.free
    too_high, too_low = conditions.find_violators(tol)
    sides = [[side & part for part in (free, ~free) if np.any(side & part)] for side in (too_high, too_low)]
    # the kinds alternate between the sides, so that the first two rows can move as a pair
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
    """Draw an active set, as ascending row numbers: free rows, and as many violators of one side as of the other.

    Free rows make up half of the set, or what the violators leave. The sides are equal, if they can be, because
    multipliers of one side can only move as far as those of the other: sum_i y_i a_i stays. If the set is not full,
    the rows with the least |e| among all others complete it. Rows are drawn with weights |e|: who violates most is most
    often a support vector in the end, and the others have their turn, too.
    """
    e, free = conditions.errors, conditions.free
    shares = np.abs(e) / max(float(np.max(np.abs(e))), LEAST_WEIGHT)
    sides = conditions.find_violators(tol)
    up, down = (draw_rows(np.flatnonzero(side & ~free), shares, size, rng) for side in sides)
    some_free = draw_rows(np.flatnonzero(free), shares, max(size // 2, size - len(up) - len(down)), rng)
    room = size - len(some_free)
    n_up = min(len(up), max(room // 2, room - len(down)))
    drawn = np.concatenate((some_free, up[:n_up], down[: room - n_up]))
    is_other = np.ones(len(e), np.bool_)
    is_other[drawn] = False
    others = np.flatnonzero(is_other)
    return np.sort(np.concatenate((drawn, others[find_largest(-np.abs(e[others]), size - len(drawn))])))


def draw_rows(rows: I64, weights: F64, size: int, rng: np.random.Generator) -> I64:
    """Return at most `size` rows in a random order, in which they are drawn one after the other with these weights.

    Efraimidis & Spirakis (2006), Weighted random sampling with a reservoir.
    """
    lives = rng.standard_exponential(len(rows)) / np.maximum(weights[rows], LEAST_WEIGHT)
    drawn: I64 = rows[find_largest(-lives, size)]
    return drawn


def _choose_one(kind: Mask, rule: str, e: F64, rng: np.random.Generator) -> int:
    """Return a row of this kind, drawn or with the smallest |e|, as the rule says."""
    rows = np.flatnonzero(kind)
    return int(rng.choice(rows) if rule == "random" else rows[np.argmin(np.abs(e[rows]))])
