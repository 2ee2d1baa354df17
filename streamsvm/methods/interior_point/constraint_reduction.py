"""Choice of the rows Q that make up the normal equations (Jung, O'Leary & Tits 2008, section 3.2).

    |Q| = max(q_L, min(ceil(rho n), q_U)),   rho = mu^(1/beta),   beta = 4                                       (3.18)
    q_L = number of rows with 1 / omega >= theta sqrt(mu), theta = 100                                           (3.20)

n is the number of rows (the paper's m), mu the complementarity measure of the point, and q_U a setting. Q holds the
rows with the smallest keys. The key of a row is its omega (interior_point.steps; rule 2 of the paper), or its one-sided
distance y (f + b) + xi - 1 (rule 1). A balanced Q takes half of its rows from each class (3.21, 3.22), and more from
one class where the other has too few.

Two rules are ours. The rows outside Q have at most a tenth of the sum of all weights C / omega, because mu alone may be
small far from the optimum. And Q has at least half as many rows as there are features, if q_U allows it: with fewer
rows, w is not held back in some directions, and steps along them end early. (1,500 rows of ISOLET with 617 features
take 14 iterations with this rule, 28 without it, and 13 if Q has all rows.)

Rows in Q with small C |x|^2 / omega are light: their products are float32 (numeric.gram). This changes the matrix far
less than the rows outside Q do, since it adds errors of some 1e-7 of LIGHT_SUM to a matrix whose eigenvalues are at
least 1. Without a reduction, all products are float64, as a Newton step of the paper's Algorithm 1 asks for.
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
LIGHT_SUM = 1e6  # what all light rows together may add to the trace of the matrix
DROPPED_BITS = 47  # The sign, the exponent and 5 bits of the fraction are left of the 64 bits of a float64.
REDUCTIONS = ("adaptive-balanced", "adaptive", "fixed", "none")
RULES = ("omega", "distance")


@dataclass(frozen=True)
class Reduction:
    """Settings of the choice.

    name: one of REDUCTIONS; "fixed" is balanced and always takes q_U rows. rule: one of RULES, the key of a row.
    most_rows: q_U, or None for all rows. theta and beta are those of (3.20) and (3.18).
    """

    name: str = "adaptive-balanced"
    rule: str = "omega"
    most_rows: int | None = None
    theta: float = THETA
    beta: float = BETA


def find_most_light(reduction: Reduction, n_rows: int) -> float:
    """Return the most that a light row may add to the trace of the matrix; 0 if no row is light."""
    return 0.0 if reduction.name == "none" else LIGHT_SUM / n_rows


def find_keys(rule: str, point: Point, y: F64, bias: float) -> F64:
    """Return the key of every row, (n,); Q takes the smallest keys first."""
    return find_omega(point) if rule == "omega" else y * (point.f + bias) + point.xi - 1.0


@unwarned
def find_limits(
    reduction: Reduction, point: Point, y: F64, costs: F64, bias: float, mu: float, growth: float, n_features: float
) -> F64:
    """Return the largest key in Q of each class, (2,), y = -1 first; it is infinite where all rows are in Q.

    growth: the factor, at least 1, by which Q is larger than (3.18) says. Where the rows are a sample of a share p of
    all rows, q_U and n_features are p times what they are for all.
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
    """Return a flag for each row: it counts in q_L, or Q needs it to have nine tenths of the sum of the weights."""
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
    """Return a limit: the rows whose omega is not above it have a share 1 - LEFT_OUT of the sum of the weights.

    The limit is at most a 32nd too large, because only the leading bits of omega are compared: sign, exponent and 5
    bits of the fraction. As integers, they order positive numbers correctly, so a histogram replaces sorting.
    """
    bits = omega.view(np.int64) >> DROPPED_BITS
    first = int(bits.min())
    sums = np.cumsum(np.bincount(bits - first, weight))
    last = first + int(np.searchsorted(sums, (1.0 - LEFT_OUT) * sums[-1]))
    return float(np.array([(last + 1) << DROPPED_BITS]).view(np.float64)[0])


def _find_smallest(keys: F64, number: int) -> float:
    """Return the key that is the `number`-th smallest, or infinity if there are no more keys than that."""
    if number >= len(keys):
        return np.inf
    return float(np.partition(keys, max(0, number - 1))[max(0, number - 1)])
