"""The passes of an interior-point iteration (interior_point.solver), summed one tile of rows at a time.

`predict` and `assemble` read the rows. W = diag(C / omega) and the other symbols are those of interior_point.steps
(Jung, O'Leary & Tits 2008, section 3). All sums are float64. Only the rows in Q enter the Gram matrix.

The other passes read only the row states (`numbers`), for what the driver needs between two reads of the rows. Each
function returns a request. Most requests are sums. If rows have to be ordered, the driver receives only a few of them:
the rows with the smallest keys (`Smallest`), or a random sample (`Sample`), from which it estimates how many rows have
a key below a limit. So the memory of the driver does not grow with the number of rows.

The best bias for w, which minimises sum_i C_i max(0, 1 - y_i (f_i + b)) over b, is computed where the rows are. The
sum is convex and piecewise linear, and its slope grows by C_i at the corner y_i - f_i (certificates.kernel). A pass
computes the slope at the edges of 4,096 bins, and the next pass divides the bins in which the slope changes sign. Bins
are ranges of the corners' bit patterns, which are in the order of the numbers, so a bin can be as narrow as a single
float64 number. Once few corners are left, the driver receives all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numba import njit

from streamsvm.certificates.double_double import ExactSums, add_exact_sums
from streamsvm.certificates.kernel import choose_corner
from streamsvm.numeric.equations import move
from streamsvm.numeric.gram import GramSum
from streamsvm.numeric.rounding import join_magnitudes
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Flags, Matrix, Rows, add_rows, split
from streamsvm.passes import RowState, RowTotals, Scan, count_additions
from streamsvm.solvers.interior_point import steps
from streamsvm.solvers.interior_point.steps import COSTS, Course, F, Point, Y, compiled, find_omega, point_of, unwarned

U64 = npt.NDArray[np.uint64]
WEIGHTS, PREDICTOR, CENTERING, POSITIVE, NEGATIVE, CHOSEN = range(6)  # rows of AssembledSums.sums
N_SUMS = 6
N_MAGNITUDES = 2
SAMPLE_ROWS = 1 << 14
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 (golden ratio - 1); its multiples modulo 2^64 are spread evenly (Weyl)
BIN_BITS = 12
FEW_ROWS = 1 << 14
SIGN, ALL_BITS = 1 << 63, (1 << 64) - 1


def is_drawn(start: int, n_rows: int, share: float, seed: int = 0) -> Flags:
    """Return whether each of the `n_rows` rows from `start` on is drawn; any range of rows has about the same share."""
    if share >= 1.0:
        return np.ones(n_rows, dtype=bool)
    places = (np.arange(start, start + n_rows, dtype=np.uint64) + np.uint64(seed)) * np.uint64(GOLDEN)
    return places < np.uint64(share * 2.0**64)


def sum_complementarity(point: Point, costs: F64) -> float:
    """Return sum C (s t + xi r), which equals 2 mu times the sum of the costs."""
    return float(np.sum(costs * (point.s * point.t + point.xi * point.r)))


@dataclass
class AssembledSums(RowTotals):
    """The totals of the pass `assemble`, at the new point.

    gram and chosen_rows are X'WX and e'e over Q. sums (6, d) has the rows WEIGHTS to CHOSEN: X'We, X'YW r_Omega of the
    predictor, X'Y (1/r - 1/t) / omega, sum alpha_i x_i of the classes +1 and -1, and X'We over Q. ones (6,): the same
    sums for a feature that is 1 in all rows. depth: the largest number of additions that a term of `sums` has gone
    through. additions: the largest number of additions that the sum of a tile in `ones` has gone through. shortest: the
    step length at which the first variable of any row becomes 0. complementarity: sum C (s t + xi r).

    The other fields are set in the first pass only. magnitudes (2, d): sum C_i |x_ij| and the largest |x_ij| of the
    rows of positive cost. total_cost: sum C. positive_cost: sum C over the class +1. largest_cost: the largest C.
    counted_rows: the number of rows of positive cost.
    """

    gram: GramSum
    sums: F64
    ones: F64
    magnitudes: F64
    chosen_rows: int = 0
    depth: int = 0
    additions: int = 0
    shortest: float = float("inf")
    complementarity: float = 0.0
    total_cost: float = 0.0
    positive_cost: float = 0.0
    largest_cost: float = 0.0
    counted_rows: int = 0
    joined: ClassVar = {
        **dict.fromkeys(("depth", "additions"), count_additions),
        **{"magnitudes": join_magnitudes, "shortest": min, "largest_cost": max},
    }


def start_assembled(n_features: int, most_light: float = 0.0) -> AssembledSums:
    """Return zero totals. most_light: the limit for light rows of the Gram matrix (numeric.gram)."""
    sums, magnitudes = np.zeros((N_SUMS, n_features)), np.zeros((N_MAGNITUDES, n_features))
    return AssembledSums(GramSum(n_features, most_light), sums, np.zeros(N_SUMS), magnitudes)


@unwarned
def add_assembled(
    totals: AssembledSums,
    rows: Rows,
    course: Course,
    limits: F64,
    rule: str,
    drawn: tuple[float, int],
    first: bool,
    numbers: F64,
) -> None:
    """Add the sums of a tile at the end of a step. With a step of length 0, they are sums at the current point.

    limits (2,): the largest key in Q, per class. rule: the key of a row (Reduction.rule). drawn: the share and the seed
    of the rows that may be in Q (`is_drawn`). first: whether this is the first pass.
    """
    course, before, costs = Course(*course), point_of(numbers), numbers[COSTS]
    point = before
    if course.length > 0.0:
        direction = steps.find_corrected(numbers, course, numbers[steps.CORRECTED])
        totals.shortest = min(totals.shortest, float(np.min(steps.find_ratios(before, direction), initial=np.inf)))
        point = steps.move_inside(before, direction, course.length)
    totals.complementarity += sum_complementarity(point, costs)
    bias, allowed = course.bias + course.length * course.bias_change, is_drawn(rows.start, rows.n_rows, *drawn)
    coefs = _weigh(point, numbers[steps.AFTER], numbers[Y], costs, bias, limits, rule == "omega", allowed)
    chosen = np.flatnonzero(coefs[CHOSEN])
    totals.gram.add(rows.X, chosen, coefs[CHOSEN, chosen])
    totals.chosen_rows += len(chosen)
    totals.ones += np.sum(coefs, axis=1)
    _add_products(*split(rows.X), coefs, totals.sums)
    totals.depth += rows.n_rows if isinstance(rows.X, CsrRows) else -(-rows.n_rows // 4) + 2  # see _add_products
    totals.additions += 1
    if first:
        _add_magnitudes(rows.X, costs, totals.magnitudes)
        totals.total_cost += float(np.sum(costs))
        totals.positive_cost += float(np.sum(costs, where=numbers[Y] > 0))
        totals.largest_cost = max(totals.largest_cost, float(np.max(costs)))
        totals.counted_rows += int(np.count_nonzero(costs))


@compiled
def _weigh(point: Point, after: F64, y: F64, costs: F64, bias: float, limits: F64, by_omega: bool, allowed: Any) -> F64:
    """Return the coefficients (6, n) of the rows in `AssembledSums.sums`. after: f at the end of the step."""
    coefs = np.zeros((N_SUMS, y.size))
    for i in range(y.size):
        t_i, xi_i, r_i = point.t[i], point.xi[i], point.r[i]
        omega, distance = point.s[i] / t_i + xi_i / r_i, y[i] * (after[i] + bias) + xi_i - 1.0
        weight = costs[i] / omega
        coefs[WEIGHTS, i] = weight
        coefs[PREDICTOR, i] = y[i] * weight * (distance - xi_i * (1.0 - t_i) / r_i)  # r_sv = s t, r_xu = xi r
        coefs[CENTERING, i] = y[i] / omega * (1.0 / r_i - 1.0 / t_i) if costs[i] > 0 else 0.0
        coefs[POSITIVE if y[i] > 0 else NEGATIVE, i] = costs[i] * t_i
        key = omega if by_omega else y[i] * (point.f[i] + bias) + xi_i - 1.0  # The limits were computed with this f.
        if allowed[i] and key <= limits[1 if y[i] > 0 else 0]:
            coefs[CHOSEN, i] = weight
    return coefs


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_products(values: F32, indices: I32, indptr: I64, coefs: F64, totals: F64) -> None:
    """Add coefs (6, n) X to totals (6, d). A dense X is processed four rows and two sums at a time."""
    if values.ndim == 1:
        for i in range(indptr.size - 1):
            for e in range(indptr[i], indptr[i + 1]):
                for k in range(N_SUMS):
                    totals[k, indices[e]] += coefs[k, i] * values[e]
        return
    n = values.shape[0]
    padded = np.zeros((N_SUMS, n + 3))
    for k in range(N_SUMS):  # A slice assignment takes twice as long to compile.
        for i in range(n):
            padded[k, i] = coefs[k, i]
    for i in range(0, n, 4):
        x0, x1, x2, x3 = values[i], values[min(i + 1, n - 1)], values[min(i + 2, n - 1)], values[min(i + 3, n - 1)]
        for k in range(0, N_SUMS, 2):
            a, b, p, q = totals[k], totals[k + 1], padded[k, i : i + 4], padded[k + 1, i : i + 4]
            a0, a1, a2, a3, b0, b1, b2, b3 = p[0], p[1], p[2], p[3], q[0], q[1], q[2], q[3]
            for j in range(x0.size):
                a[j] += (a0 * x0[j] + a1 * x1[j]) + (a2 * x2[j] + a3 * x3[j])
                b[j] += (b0 * x0[j] + b1 * x1[j]) + (b2 * x2[j] + b3 * x3[j])


def _add_magnitudes(X: Matrix, costs: F64, magnitudes: F64) -> None:
    """Add a tile to magnitudes (2, d): sum C_i |x_ij|, and the largest |x_ij| of the rows of positive cost."""
    row, counted = np.arange(len(costs)), costs > 0
    if isinstance(X, CsrRows):
        size: Matrix = CsrRows(np.abs(X.data), X.indices, X.indptr, X.n_features)
        np.maximum.at(magnitudes[1], X.indices, np.abs(X.data) * np.repeat(counted, np.diff(X.indptr)))
    else:
        size = np.abs(X)
        np.maximum(magnitudes[1], np.max(size, axis=0, where=counted[:, None], initial=0.0), out=magnitudes[1])
    add_rows(magnitudes[:1], size, row, np.zeros_like(row), costs)


@dataclass
class PredictedSums(RowTotals):
    """The totals of the pass `predict`.

    second_order (1, d): X'YW (ds dt / t - dxi dr / r) with limited products (steps.find_products). one: the same sum
    for a feature that is 1 in all rows. shortest: the step length at which the first variable of any row becomes 0.
    """

    second_order: F64
    one: float = 0.0
    shortest: float = float("inf")
    joined: ClassVar = {"shortest": min}


def start_predicted(n_features: int) -> PredictedSums:
    """Return empty totals."""
    return PredictedSums(np.zeros((1, n_features)))


@unwarned
def add_predicted(
    totals: PredictedSums, rows: Rows, bias: float, change: float, mu: float, mean_cost: float, numbers: F64
) -> None:
    """Add the sums of a tile. bias, change: b, and its change by the predictor."""
    point, y, costs = point_of(numbers), numbers[Y], numbers[COSTS]
    predicted = steps.find_predicted(numbers, bias, change)
    totals.shortest = min(totals.shortest, float(np.min(steps.find_ratios(point, predicted), initial=np.inf)))
    scales = steps.find_scales(costs, mean_cost)
    coefs: F64 = y * costs / find_omega(point) * steps.find_second_order(point, predicted, mu, scales)
    row = np.arange(rows.n_rows)
    add_rows(totals.second_order, rows.X, row, np.zeros_like(row), coefs)
    totals.one += float(np.sum(coefs))


def add_exact_multipliers(totals: ExactSums, rows: Rows, numbers: F64) -> None:
    """Add the sums of alpha_i x_i of a tile in twice the precision."""
    add_exact_sums(totals, rows, numbers[COSTS] * numbers[steps.T])


def scan_states(state: RowState, start: Callable[[], Any], add: Callable[..., None], *shared: Any) -> Scan:
    """Return a pass over the row states alone."""
    return Scan(start, add, operator.add, shared, states=(state,), of_states=True)


@unwarned
def add_aim(totals: F64, _: Rows, bias: float, change: float, length: float, numbers: F64) -> None:
    """Add C (s t + xi r) of the rows of a tile, after a step of this length along the predictor."""
    after = move(point_of(numbers), steps.find_predicted(numbers, bias, change), length)
    totals[0] += sum_complementarity(after, numbers[COSTS])


@dataclass
class Smallest:
    """The `number` rows with the smallest keys, or fewer, sorted by key.

    keys, rows (m,): the keys of these rows, and their row numbers. numbers (10, m): their states.
    is_finite: whether all estimates of X dw were finite.
    """

    number: int
    keys: F64 = field(default_factory=lambda: np.empty(0))
    rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: F64 = field(default_factory=lambda: np.empty((steps.N_NUMBERS, 0)))
    is_finite: bool = True

    def add(self, keys: F64, rows: I64, numbers: F64) -> None:
        """Add rows that come later in the dataset than the rows held so far.

        Among equal keys, earlier rows come first.
        """
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

    def __add__(self, later: Smallest) -> Smallest:
        """Return the rows with the smallest keys of both groups; the rows of `later` come later in the dataset."""
        both = replace(self, is_finite=self.is_finite and later.is_finite)
        both.add(later.keys, later.rows, later.numbers)
        return both

    def by_row(self) -> tuple[I64, F64]:
        """Return the row numbers, ascending, and the row states (10, m) in this order."""
        order = np.argsort(self.rows)
        return self.rows[order], np.ascontiguousarray(self.numbers[:, order])


@unwarned
def add_critical(totals: Smallest, rows: Rows, course: Course, coefs: F64, numbers: F64) -> None:
    """Add the rows of a tile. The key is the step length at which a variable of a row becomes 0; X dw is a `guess`."""
    df = guess(numbers, coefs)
    totals.is_finite = totals.is_finite and bool(np.isfinite(df).all())
    keys = steps.find_ratios(point_of(numbers), steps.find_corrected(numbers, Course(*course), df))
    totals.add(keys, np.arange(rows.start, rows.start + len(keys)), numbers)


@unwarned
def add_free(totals: Smallest, rows: Rows, numbers: F64) -> None:
    """Add the rows of a tile, those with the largest C / omega first: their multipliers are far from both bounds."""
    totals.add(-numbers[COSTS] / find_omega(point_of(numbers)), rows.start + np.arange(numbers.shape[1]), numbers)


def add_counted(totals: Smallest, rows: Rows, numbers: F64) -> None:
    """Add the rows of positive cost in a tile."""
    counted = np.flatnonzero(numbers[COSTS] > 0)
    totals.add(np.zeros(len(counted)), rows.start + counted, numbers[:, counted])


def guess(numbers: F64, coefs: F64) -> F64:
    """Return an estimate of X dw. coefs (3,): its coefficients of X dw of the predictor and of centering, and of f."""
    found: F64 = coefs[0] * numbers[steps.PREDICTED] + coefs[1] * numbers[steps.CORRECTED] + coefs[2] * numbers[F]
    return found


@dataclass
class Sample(RowTotals):
    """A random sample of rows at the expected end of a step.

    complementarity: sum C (s t + xi r) over all rows, at the end of the step. parts: arrays (7, k) of f, s, t, xi, r, y
    and C of the k drawn rows of a tile.
    """

    complementarity: float = 0.0
    parts: list[F64] = field(default_factory=list)


def draw(state: RowState, n_rows: int, course: Course, coefs: F64, critical: I64, known: F64) -> Scan:
    """Return the pass that draws a sample.

    critical, known (k,): the numbers of the rows whose X dw is known, and their X dw. X dw of the other rows is
    estimated (`guess`). A course of length 0 keeps the current point.
    """
    shared = (min(1.0, SAMPLE_ROWS / n_rows), course, coefs, critical, known)
    return scan_states(state, Sample, add_drawn, *shared)


@unwarned
def add_drawn(
    totals: Sample, rows: Rows, share: float, course: Course, coefs: F64, critical: I64, known: F64, numbers: F64
) -> None:
    """Add the complementarity of a tile at the end of the step, and the rows of the tile that are drawn."""
    course, point, n_rows = Course(*course), point_of(numbers), numbers.shape[1]
    if course.length > 0.0:
        df, inside = guess(numbers, coefs), slice(*np.searchsorted(critical, (rows.start, rows.start + n_rows)))
        df[critical[inside] - rows.start] = known[inside]
        point = steps.move_inside(point, steps.find_corrected(numbers, course, df), course.length)
    totals.complementarity += sum_complementarity(point, numbers[COSTS])
    drawn = is_drawn(rows.start, n_rows, share)
    totals.parts.append(np.stack([*point, numbers[Y], numbers[COSTS]])[:, drawn])


@dataclass
class Measures(RowTotals):
    """The scalar measures of a point, summed over its row states.

    losses: sum C_i max(0, 1 - y (f + b)) at the requested bias. losing: the sum of C_i of the rows whose loss may be
    above 0. complementarity: sum C (s t + xi r). most: the largest t. residual: the largest residual of (3.3) and
    (3.4). is_finite: whether f is finite. additions: a bound on the additions that the sum of a tile went through.
    """

    losses: float = 0.0
    losing: float = 0.0
    complementarity: float = 0.0
    most: float = 0.0
    residual: float = 0.0
    is_finite: bool = True
    additions: int = 0
    joined: ClassVar = {"most": max, "residual": max, "is_finite": operator.and_, "additions": count_additions}


@unwarned
def add_measures(totals: Measures, _: Rows, bias: float, best_bias: float, below: float, numbers: F64) -> None:
    """Add the measures of a tile. bias: the bias of the point. best_bias: the bias for the losses.

    below: the rounding bound of 1 - y (f + b). A row whose computed value is below 0 by no more than this bound may
    have a loss.
    """
    y, costs, point = numbers[Y], numbers[COSTS], point_of(numbers)
    slack = 1.0 - y * (point.f + best_bias)
    totals.losses += float(np.sum(costs * np.maximum(slack, 0.0)))
    totals.losing += float(np.sum(costs, where=slack > -below))
    totals.complementarity += sum_complementarity(point, costs)
    totals.most = max(totals.most, float(np.max(point.t)))
    r_s, r_u = steps.find_residuals(point, y, bias)
    of_rows = np.maximum(np.abs(r_s), np.abs(costs * r_u))
    totals.residual = max(totals.residual, float(np.max(of_rows, where=costs > 0, initial=0.0)))
    totals.is_finite = totals.is_finite and bool(np.isfinite(point.f).all())
    totals.additions += 1


def add_number(totals: list[tuple[int, F64]], rows: Rows, number: int, numbers: F64) -> None:
    """Append one number of every row in a tile, and the row number with which the tile starts (see `join_gathered`)."""
    totals.append((rows.start, numbers[number].copy()))


def join_gathered(tiles: list[tuple[int, F64]]) -> F64:
    """Return the numbers that `add_number` collected from all rows as one array, in row order."""
    return np.concatenate([values for _, values in sorted(tiles, key=lambda tile: tile[0])])


def find_bias(state: RowState, n_rows: int, lowest: float, size: float) -> Generator[Scan, Any, float]:
    """Return the middle of all biases that minimise the sum of losses, or one of them if too many corners coincide.

    lowest: the slope of the sum below all corners. size: the largest error of a sum of costs.
    """
    low, n_bits, before, few, start = 0, 64, lowest, n_rows <= FEW_ROWS, partial(np.zeros, (2, 1 << BIN_BITS))
    while not few:
        if n_bits == 0:
            return _number(low)
        shift = max(0, n_bits - BIN_BITS)
        sums, counts = yield scan_states(state, start, add_bins, low, shift)
        slopes, used = before + np.cumsum(sums), np.flatnonzero(counts)
        if not len(used):
            return 0.0
        first = int(np.clip(np.searchsorted(slopes, -2 * size), used[0], used[-1]))
        last = int(np.clip(np.searchsorted(slopes, 2 * size, side="right"), first, used[-1]))
        few, before = counts[first : last + 1].sum() <= FEW_ROWS, before if first == 0 else float(slopes[first - 1])
        low, n_bits = low + (first << shift), shift + (last - first).bit_length()
        if last > first and not few:  # The sum is flat from the end of the first bin to the beginning of the last one.
            return (_number(low + (1 << shift)) + _number(low + ((last - first) << shift))) / 2
    found = yield scan_states(state, list, add_corners, low, min(low + (1 << n_bits) - 1, ALL_BITS))
    corners, costs = np.concatenate(found, axis=1)
    return choose_corner(corners, costs, before, size) if len(corners) else 0.0


@unwarned
def add_bins(totals: F64, _: Rows, low: int, shift: int, numbers: F64) -> None:
    """Add the costs and the number of the corners to the bins, which begin at `low` and are 2^shift wide."""
    places, costs = order_bits(numbers[Y] - numbers[F]), numbers[COSTS]
    bins = (places - np.uint64(low)) >> np.uint64(shift)
    near = np.flatnonzero((costs > 0) & (places >= np.uint64(low)) & (bins < np.uint64(totals.shape[1])))
    found = bins[near].astype(np.int64)
    totals[0] += np.bincount(found, costs[near], totals.shape[1])
    totals[1] += np.bincount(found, minlength=totals.shape[1])


@unwarned
def add_corners(totals: list[F64], _: Rows, low: int, high: int, numbers: F64) -> None:
    """Add the corners whose ordered bits are from `low` to `high`, and their costs."""
    corners, costs = numbers[Y] - numbers[F], numbers[COSTS]
    places = order_bits(corners)
    near = (costs > 0) & (places >= np.uint64(low)) & (places <= np.uint64(high))
    totals.append(np.stack((corners[near], costs[near])))


def order_bits(values: F64) -> U64:
    """Return the bits of float64 numbers as unsigned integers in the same order."""
    bits, sign = values.view(np.uint64), np.uint64(SIGN)
    return np.where(bits >= sign, ~bits, bits | sign)


def _number(bits: int) -> float:
    """Return the float64 number with these ordered bits, the inverse of `order_bits`."""
    own = bits ^ SIGN if bits >= SIGN else ALL_BITS - bits
    return float(np.array([own], np.uint64).view(np.float64)[0])
