"""Which rows the normal equations are made of (Jung, O'Leary & Tits 2008, section 3.2).

The rows of Q are those with the smallest keys: omega (rule 2), or the one-sided distance y (f + b) + xi - 1 (rule 1).

    |Q| = max(q_L, min(ceil(rho n), q_U)),   rho = mu^(1/beta),   beta = 4                                       (3.18)
    q_L = number of rows with 1 / omega >= theta sqrt(mu), theta = 100                                           (3.20)

balanced: half of them of each class (3.21, 3.22), more of one class where the other has not so many. Two things are
ours. The rows that are left out have a tenth of the sum of all C / omega at most: far from the optimum, mu alone may be
small. And Q has half as many rows as there are features, if q_U lets it: with fewer, the directions in which no row of
Q holds w back end a step early (1,500 rows of ISOLET, 617 features: 28 iterations; 14 so, 13 with all rows).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamsvm.methods.interior_point.steps import Point, find_omega, unwarned
from streamsvm.numeric.rows import F64

Flags = npt.NDArray[np.bool_]
THETA, BETA = 100.0, 4.0
LEFT_OUT = 0.1
DROPPED_BITS = 47  # of the 64 of a number
REDUCTIONS = ("adaptive-balanced", "adaptive", "fixed", "none")
RULES = ("omega", "distance")


@dataclass(frozen=True)
class Reduction:
    """Settings. name: one of REDUCTIONS ("fixed" is balanced, with q_U rows always); most_rows: q_U (None: all)."""

    name: str = "adaptive-balanced"
    rule: str = "omega"
    most_rows: int | None = None
    theta: float = THETA
    beta: float = BETA


def find_keys(rule: str, point: Point, y: F64, bias: float) -> F64:
    """Return what the rows are ordered by, the smallest first."""
    return find_omega(point) if rule == "omega" else y * (point.f + bias) + point.xi - 1.0


@unwarned
def find_limits(
    reduction: Reduction, point: Point, y: F64, costs: F64, bias: float, mu: float, growth: float, n_features: int
) -> F64:
    """Return the largest key of a row in Q by class, (2,): of y = -1 and y = +1; infinite where all are in.

    growth: so many times more rows than (3.18) says, at least 1.
    """
    counted = costs > 0
    n = int(np.count_nonzero(counted))
    most = min(n, int(np.ceil(growth * (reduction.most_rows or n))))
    if reduction.name == "none" or most == 0:
        return np.full(2, np.inf)
    keys = find_keys(reduction.rule, point, y, bias)
    least, wanted = np.zeros(len(y), dtype=bool), most
    if reduction.name != "fixed":
        least = _find_indispensable(reduction, point, costs, mu) & counted
        rho = max(mu ** (1 / reduction.beta), n_features / (2 * n))
        wanted = min(int(np.ceil(min(1.0, growth * rho) * n)), most)
    sides = [counted & (y < 0), counted & (y > 0)]
    if reduction.name == "adaptive":
        limit = _find_smallest(keys[counted], max(int(least.sum()), wanted))
        return np.full(2, limit)
    sizes = [int(np.count_nonzero(side)) for side in sides]
    numbers = [
        max(int(np.count_nonzero(least & side)), min(-(-wanted // 2), size))
        for side, size in zip(sides, sizes, strict=True)
    ]
    for k in (0, 1):
        missing = max(int(least.sum()), wanted) - sum(numbers)
        numbers[k] = min(sizes[k], numbers[k] + max(0, missing))
    return np.array([_find_smallest(keys[side], number) for side, number in zip(sides, numbers, strict=True)])


def _find_indispensable(reduction: Reduction, point: Point, costs: F64, mu: float) -> Flags:
    """Whether rows count in q_L, or are needed for all but a tenth of the sum of the weights."""
    omega = find_omega(point)
    largest = _find_heavy(omega, costs / omega)
    bound = reduction.theta * np.sqrt(mu)
    if reduction.rule == "omega":
        large: Flags = bound * omega <= 1.0
    else:
        large = (point.t >= bound * point.s) | (point.s <= np.sqrt(mu))
    large |= omega <= largest
    return large


def _find_heavy(omega: F64, weight: F64) -> float:
    """Return an omega up to which there is 1 - LEFT_OUT of the sum of the weights, at most a 32nd too large.

    By the leading bits of omega, which order positive numbers as they are: sign, exponent, 5 bits of the fraction.
    """
    bits = omega.view(np.int64) >> DROPPED_BITS
    first = int(bits.min())
    sums = np.cumsum(np.bincount(bits - first, weight))
    last = first + int(np.searchsorted(sums, (1.0 - LEFT_OUT) * sums[-1]))
    return float(np.array([(last + 1) << DROPPED_BITS]).view(np.float64)[0])


def _find_smallest(keys: F64, number: int) -> float:
    """Return the key of that rank."""
    if number >= len(keys):
        return np.inf
    return float(np.partition(keys, max(0, number - 1))[max(0, number - 1)])
