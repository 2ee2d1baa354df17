"""Which rows a working set is made of: the rules of Joachims, Pérez-Cruz, Vapnik and Fan, Chen & Lin.

Errors e_i = y_i - f_i - b, b between the extremes of the two sides (Pérez-Cruz et al. 2000, eqs. (9)-(11); Platt's E is
-e). A row violates its condition if it can move up (y a may grow) and e > tol, or can move down and e < -tol.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import F64, I64

RULES = ("second-order", "largest", "smallest", "random", "chunking", "platt")
KEPT_SHARE = 2  # one in so many rows of a working set may be of the one before


@dataclass(frozen=True)
class Conditions:
    """How rows stand: e (n,), which can move up, which down, the extremes of e on both sides, and the bias.

    violation = most - least, LIBSVM's m(a) - M(a); negative or zero at the optimum.
    """

    errors: F64
    up: npt.NDArray[np.bool_]
    down: npt.NDArray[np.bool_]
    most: float
    least: float
    bias: float

    @property
    def violation(self) -> float:
        """m(a) - M(a); 0 if nothing can move."""
        return max(0.0, self.most - self.least) if np.isfinite(self.most - self.least) else 0.0


def find_conditions(y: F64, costs: F64, alpha: F64, f: F64) -> Conditions:
    """Return how rows with those multipliers and sums f (no bias) stand."""
    errors = y - f
    moves = costs > 0
    up = np.where(y > 0, alpha < costs, alpha > 0) & moves
    down = np.where(y > 0, alpha > 0, alpha < costs) & moves
    most = float(np.max(errors, where=up, initial=-np.inf))
    least = float(np.min(errors, where=down, initial=np.inf))
    bias = (most + least) / 2 if np.isfinite(most + least) else (least if np.isfinite(least) else most)
    bias = bias if np.isfinite(bias) else 0.0
    return Conditions(errors - bias, up, down, most, least, bias)


def choose_working_set(
    rule: str, conditions: Conditions, alpha: F64, costs: F64, before: I64, size: int, tol: float,
    rng: np.random.Generator,
) -> I64:  # fmt: skip
    """Choose rows by a rule of RULES but "platt", which needs no working set; each row once.

    No more than `size`, except by "chunking" (Vapnik): all free multipliers, and the `size` worst violators; those at
    their bounds can do without. before: the working set of the last round, the rows that joined it first in front.
    """
    match rule:
        case "second-order":
            return _keep_and_join(conditions, alpha, costs, before, size)
        case "largest":
            return _pick_sides(conditions, size)
        case "chunking":
            free = np.flatnonzero((alpha > 0) & (alpha < costs))
            return _fill(free, _pick_sides(conditions, size), len(alpha))
    return choose_candidates(rule, conditions, alpha, costs, size, tol, rng)


def _keep_and_join(conditions: Conditions, alpha: F64, costs: F64, before: I64, size: int) -> I64:
    """Half of the set before stays: free multipliers first, of those at a bound the ones that joined last."""
    free = (alpha[before] > 0) & (alpha[before] < costs[before])
    newest_first = np.concatenate((before[free][::-1], before[~free][::-1]))
    kept = newest_first[: size // KEPT_SHARE][::-1]
    return _fill(kept, _pick_sides(conditions, size), size)


def _pick_sides(conditions: Conditions, size: int) -> I64:
    """Return the worst violators, one that can move up and one that can move down in turn."""
    up, down = np.flatnonzero(conditions.up), np.flatnonzero(conditions.down)
    above, below = conditions.errors[up], -conditions.errors[down]
    sides = (up[_largest(above, size)], down[_largest(below, size)])
    turns = np.full((max(map(len, sides)), 2), -1, np.int64)
    for side, rows in enumerate(sides):
        turns[: len(rows), side] = rows
    picked = turns.ravel()
    return _fill(picked[picked >= 0], picked[:0], size)


def _largest(values: F64, k: int) -> I64:
    """Return the positions of the k largest, largest first; ties by position."""
    if 0 < k < len(values):
        limit = np.partition(values, len(values) - k)[len(values) - k]
        candidates = np.flatnonzero(values >= limit)
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]


def _fill(first: I64, then: I64, size: int) -> I64:
    """Return `first`, then those of `then` that are not among them, each once, no more than size."""
    both = np.concatenate((first, then))
    _, places = np.unique(both, return_index=True)
    return both[np.sort(places)][:size]


def choose_candidates(
    rule: str, conditions: Conditions, alpha: F64, costs: F64, size: int, tol: float, rng: np.random.Generator
) -> I64:
    """Pérez-Cruz, section 3: violators and free rows are candidates, one of each class and condition first.

    The rest of the set by the rule: "random" among them, or the "smallest" |e|. If they are too few, rows that
    fulfil their condition with the least |e| complete the set.
    """
    e = conditions.errors
    free = (alpha > 0) & (alpha < costs)
    too_high, too_low = conditions.up & (e > tol), conditions.down & (e < -tol)
    sides = [[side & part for part in (free, ~free) if np.any(side & part)] for side in (too_high, too_low)]
    kinds = [kind for pair in zip_longest(*sides) for kind in pair if kind is not None]  # two rows are a pair
    firsts = np.array([_one_of(kind, rule, e, rng) for kind in kinds], np.int64)
    candidates = np.flatnonzero(too_high | too_low | free)
    if len(candidates) > size:
        by_size = candidates[np.argsort(np.abs(e[candidates]), kind="stable")]
        in_order = rng.permutation(candidates) if rule == "random" else by_size
        return _fill(firsts, in_order, size)
    others = np.flatnonzero(~(too_high | too_low | free) & (costs > 0))
    nearest = others[_largest(-np.abs(e[others]), size)]
    return _fill(candidates, nearest, size)


def draw_active_rows(
    conditions: Conditions, alpha: F64, costs: F64, size: int, tol: float, rng: np.random.Generator
) -> I64:
    """Draw an active set: free rows, half of it or what violators leave, and as many violators of either side.

    Multipliers of one side can only move as far as those of the other do: sum y_i a_i stays. If there are fewer rows
    than `size`, those that fulfil their condition with the least |e| complete the set. Ascending row numbers.
    """
    e, free = conditions.errors, (alpha > 0) & (alpha < costs)
    up, down = (
        rng.permutation(np.flatnonzero(side & (violation > tol) & ~free))
        for side, violation in ((conditions.up, e), (conditions.down, -e))
    )
    some_free = rng.permutation(np.flatnonzero(free))[: max(size // 2, size - len(up) - len(down))]
    room = size - len(some_free)
    n_up = min(len(up), max(room // 2, room - len(down)))
    drawn = np.concatenate((some_free, up[:n_up], down[: room - n_up]))
    others = np.ones(len(e), np.bool_)
    others[drawn] = False
    nearest = np.flatnonzero(others)
    return np.sort(np.concatenate((drawn, nearest[_largest(-np.abs(e[nearest]), size - len(drawn))])))


def _one_of(kind: npt.NDArray[np.bool_], rule: str, e: F64, rng: np.random.Generator) -> int:
    rows = np.flatnonzero(kind)
    return int(rng.choice(rows) if rule == "random" else rows[np.argmin(np.abs(e[rows]))])
