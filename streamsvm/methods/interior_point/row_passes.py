"""Passes over the numbers of the rows alone (interior_point.row_numbers), for what is needed between two reads.

Each returns a request. Most are sums. Where the rows have to be put in order, the driver is told some of them: the rows
with the smallest keys (`Smallest`), or rows drawn from all (`Sample`), from which it estimates how many rows have a key
below a limit. So what it holds does not grow with the rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.methods.interior_point.row_numbers import (
    CORRECTED,
    COSTS,
    N_NUMBERS,
    PREDICTED,
    Course,
    F,
    Y,
    find_corrected,
    find_predicted,
    point_of,
)
from streamsvm.methods.interior_point.steps import (
    Point,
    find_omega,
    find_ratios,
    find_residuals,
    move,
    move_inside,
    unwarned,
)
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.requests import RowState, Scan

Flags = npt.NDArray[np.bool_]
SAMPLE_ROWS = 1 << 14
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 times the golden ratio less 1: the multiples of it are spread evenly (Weyl)


def is_drawn(start: int, n_rows: int, share: float, seed: int = 0) -> Flags:
    """Return which of the rows from `start` on are among those drawn, about a share of all; any stretch has as many."""
    if share >= 1.0:
        return np.ones(n_rows, dtype=bool)
    places = (np.arange(start, start + n_rows, dtype=np.uint64) + np.uint64(seed)) * np.uint64(GOLDEN)
    drawn: Flags = places < np.uint64(share * 2.0**64)
    return drawn


def sum_complementarity(point: Point, costs: F64) -> float:
    """Return sum C (s t + xi r), which is 2 mu sum C."""
    return float(np.sum(costs * (point.s * point.t + point.xi * point.r)))


def aim(state: RowState, bias: float, change: float, length: float) -> Scan:
    """Return the pass for sum C (s t + xi r) after a step of this length along the predictor."""
    return Scan(partial(np.zeros, 1), add_aim, np.add, (bias, change, length), states=(state,), of_states=True)


@unwarned
def add_aim(totals: F64, rows: Rows, bias: float, change: float, length: float, numbers: F64) -> None:  # noqa: ARG001
    """Add the complementarity of the rows after the step."""
    after = move(point_of(numbers), find_predicted(numbers, bias, change), length)
    totals[0] += sum_complementarity(after, numbers[COSTS])


@dataclass
class Smallest:
    """The rows with the smallest keys, at most `number` of them, in the order of their keys.

    keys, rows (m,): the keys, and which rows they are of. numbers (10, m): the numbers of these rows (row_numbers).
    is_finite: whether all guesses of X dw were finite.
    """

    number: int
    keys: F64 = field(default_factory=lambda: np.empty(0))
    rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: F64 = field(default_factory=lambda: np.empty((N_NUMBERS, 0)))
    is_finite: bool = True

    def add(self, keys: F64, rows: I64, numbers: F64) -> None:
        """Add rows, which come after those that are there; of equal keys the first rows count."""
        if len(self.keys) == self.number:
            few = np.flatnonzero(keys < self.keys[-1])
            keys, rows, numbers = keys[few], rows[few], numbers[:, few]
        elif len(keys) > self.number:
            few = np.flatnonzero(~(keys > np.partition(keys, self.number - 1)[self.number - 1]))
            keys, rows, numbers = keys[few], rows[few], numbers[:, few]
        keys, rows = np.concatenate((self.keys, keys)), np.concatenate((self.rows, rows))
        order = np.argsort(keys, kind="stable")[: self.number]
        self.numbers = np.concatenate((self.numbers, numbers), axis=1)[:, order]
        self.keys, self.rows = keys[order], rows[order]

    def by_row(self) -> tuple[I64, F64]:
        """Return which rows they are, ascending, and their numbers (10, m) in this order."""
        order = np.argsort(self.rows)
        return self.rows[order], np.ascontiguousarray(self.numbers[:, order])


def combine_smallest(left: Smallest, right: Smallest) -> Smallest:
    """Return the rows with the smallest keys of both groups, `left` being the one that comes first."""
    both = Smallest(left.number, left.keys, left.rows, left.numbers, left.is_finite and right.is_finite)
    both.add(right.keys, right.rows, right.numbers)
    return both


def find_smallest(state: RowState, number: int, add: Callable[..., None], *shared: Any) -> Scan:
    """Return the pass for so many rows with the smallest of the keys that `add` finds."""
    return Scan(partial(Smallest, number), add, combine_smallest, shared, states=(state,), of_states=True)


@unwarned
def add_critical(totals: Smallest, rows: Rows, course: Course, coefs: F64, numbers: F64) -> None:
    """Add rows by the length at which one of their variables becomes 0, with X dw guessed (solver.Guess)."""
    df = guess(numbers, coefs)
    totals.is_finite = totals.is_finite and bool(np.isfinite(df).all())
    keys = find_ratios(point_of(numbers), find_corrected(numbers, Course(*course), df))
    totals.add(keys, np.arange(rows.start, rows.start + len(keys)), numbers)


@unwarned
def add_free(totals: Smallest, rows: Rows, numbers: F64) -> None:
    """Add rows with the largest C / omega first: their multipliers are far from both bounds."""
    totals.add(-numbers[COSTS] / find_omega(point_of(numbers)), rows.start + np.arange(numbers.shape[1]), numbers)


def add_counted(totals: Smallest, rows: Rows, numbers: F64) -> None:
    """Add the rows of positive cost."""
    counted = np.flatnonzero(numbers[COSTS] > 0)
    totals.add(np.zeros(len(counted)), rows.start + counted, numbers[:, counted])


def guess(numbers: F64, coefs: F64) -> F64:
    """Return a guess of X dw from products that are known: coefs (3,) are of predictor, centering, and f."""
    found: F64 = coefs[0] * numbers[PREDICTED] + coefs[1] * numbers[CORRECTED] + coefs[2] * numbers[F]
    return found


@dataclass
class Sample:
    """Rows drawn from all of them, at the point where a step is expected to end, as parts of numbers (7, k).

    complementarity: sum C (s t + xi r) of all rows there. The rows of `numbers` are f, s, t, xi, r, y and C.
    """

    complementarity: float = 0.0
    parts: list[F64] = field(default_factory=list)


def combine_samples(left: Sample, right: Sample) -> Sample:
    """Return the rows drawn from both groups."""
    return Sample(left.complementarity + right.complementarity, left.parts + right.parts)


def draw(state: RowState, n_rows: int, course: Course, coefs: F64, critical: I64, known: F64) -> Scan:
    """Return the pass for a sample. critical, known (k,): rows whose X dw is known, and X dw of these, is not guessed.

    A course of length 0 leaves the rows where they are.
    """
    shared = (min(1.0, SAMPLE_ROWS / n_rows), course, coefs, critical, known)
    return Scan(Sample, add_drawn, combine_samples, shared, states=(state,), of_states=True)


@unwarned
def add_drawn(
    totals: Sample, rows: Rows, share: float, course: Course, coefs: F64, critical: I64, known: F64, numbers: F64
) -> None:
    """Add the complementarity of the rows at the end of the course, and those of them that are drawn."""
    course, point, n_rows = Course(*course), point_of(numbers), numbers.shape[1]
    if course.length > 0.0:
        df, inside = guess(numbers, coefs), slice(*np.searchsorted(critical, (rows.start, rows.start + n_rows)))
        df[critical[inside] - rows.start] = known[inside]
        point = move_inside(point, find_corrected(numbers, course, df), course.length)
    totals.complementarity += sum_complementarity(point, numbers[COSTS])
    drawn = is_drawn(rows.start, n_rows, share)
    totals.parts.append(np.stack([*point, numbers[Y], numbers[COSTS]])[:, drawn])


@dataclass
class Measures:
    """What a point is, but for the sums of its rows.

    losses: sum C_i max(0, 1 - y (f + b)) at the bias that was asked for. losing: the sum of C_i of the rows whose loss
    may be above 0. complementarity: sum C (s t + xi r). most: the largest t. residual: the largest of (3.3) and (3.4).
    is_finite: whether f is. additions: how many sums of tiles were added to one another, at most.
    """

    losses: float = 0.0
    losing: float = 0.0
    complementarity: float = 0.0
    most: float = 0.0
    residual: float = 0.0
    is_finite: bool = True
    additions: int = 0


def combine_measures(left: Measures, right: Measures) -> Measures:
    """Return the measures of the rows of both groups."""
    return Measures(
        left.losses + right.losses,
        left.losing + right.losing,
        left.complementarity + right.complementarity,
        max(left.most, right.most),
        max(left.residual, right.residual),
        left.is_finite and right.is_finite,
        max(left.additions, right.additions) + 1,
    )


def measure(state: RowState, bias: float, best_bias: float, below: float) -> Scan:
    """Return the pass that measures a point. bias: of the point. best_bias: at which losses are found.

    below: how far 1 - y (f + b) may be below 0 where rounding may have hidden a loss.
    """
    shared = (bias, best_bias, below)
    return Scan(Measures, add_measures, combine_measures, shared, states=(state,), of_states=True)


@unwarned
def add_measures(
    totals: Measures,
    rows: Rows,  # noqa: ARG001
    bias: float,
    best_bias: float,
    below: float,
    numbers: F64,
) -> None:
    """Add the measures of the rows, whose numbers are at the point."""
    y, costs, point = numbers[Y], numbers[COSTS], point_of(numbers)
    slack = 1.0 - y * (point.f + best_bias)
    totals.losses += float(np.sum(costs * np.maximum(slack, 0.0)))
    totals.losing += float(np.sum(costs, where=slack > -below))
    totals.complementarity += sum_complementarity(point, costs)
    totals.most = max(totals.most, float(np.max(point.t)))
    r_s, r_u = find_residuals(point, y, bias)
    of_rows = np.maximum(np.abs(r_s), np.abs(costs * r_u))
    totals.residual = max(totals.residual, float(np.max(of_rows, where=costs > 0, initial=0.0)))
    totals.is_finite = totals.is_finite and bool(np.isfinite(point.f).all())
    totals.additions += 1


def gather(state: RowState, number: int) -> Scan:
    """Return the pass that brings one number of all rows to the driver, for those who ask for all of them."""
    return Scan(list, add_number, operator.add, (number,), states=(state,), of_states=True)


def add_number(totals: list[tuple[int, F64]], rows: Rows, number: int, numbers: F64) -> None:
    """Add the number of the rows of a tile, with the first of these rows."""
    totals.append((rows.start, numbers[number].copy()))


def join_gathered(tiles: list[tuple[int, F64]]) -> F64:
    """Return what `gather` has brought, in the order of the rows."""
    return np.concatenate([values for _, values in sorted(tiles, key=lambda tile: tile[0])])
