"""The duality gap of nu-SVR, from its multipliers a, sides y and the sums f of all rows.

With s_i = y_i a_i, r_i = t_i - f_i, N = nu sum_i C_i, u = b + epsilon and v = epsilon - b (epsilon >= 0)

    f_i = sum_j s_j k(x_i, x_j),   |w|^2 = sum_i s_i f_i
    P   = 1/2 |w|^2 + N (u + v) / 2 + sum_i C_i [max(0, r_i - u) + max(0, -r_i - v)]
    D   = sum_i t_i s_i - 1/2 |w|^2                          for sum_i s_i = 0, sum_i |s_i| <= N

P is 1/2 |w|^2 + N epsilon + sum_i C_i max(0, |r_i - b| - epsilon), and u and v minimise their parts of it by
themselves: u is exceeded by residuals whose C_i sum to N / 2, and v by negated residuals. Since nu <= 1, u + v is not
negative at the minimum. Where rounding leaves d = sum_i s_i, and sum_i |s_i| = N + e, D bounds the optimum less

    |d| |b*| + max(0, e) epsilon*,      where |b* - b| and epsilon* are at most max |t_i - b| + |w*| max sqrt(k_ii)
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.numeric.certificates import Certificate, Proof, find_best_bias
from streamsvm.numeric.rounding import UNIT, sum_exactly
from streamsvm.numeric.rows import F64


def find_tube(costs: F64, residuals: F64, total: float) -> tuple[float, float]:
    """Return b and epsilon that minimise total epsilon + sum_i C_i max(0, |r_i - b| - epsilon)."""
    ones, none = np.ones(len(residuals)), np.zeros(len(residuals))
    above = find_best_bias(ones, costs, none, residuals, total / 2)
    below = find_best_bias(ones, costs, none, -residuals, total / 2)
    return (above - below) / 2, max(0.0, (above + below) / 2)


def certify_nu_tube(y: F64, costs: F64, alpha: F64, f: F64, targets: F64, total: float) -> Certificate:
    """Evaluate P and D at the best b and epsilon, without rounding."""
    bias, width = find_tube(costs, targets - f, total)
    losses = costs * np.maximum(np.abs(targets - f - bias) - width, 0.0)
    half_square = float(alpha @ (y * f)) / 2
    dual = float(alpha @ (y * (targets - bias))) - half_square
    shares = losses - alpha * (y * (targets - f - bias) - width)
    return Certificate(half_square + total * width + float(np.sum(losses)), dual, bias, shares)


def prove_nu_tube(
    y: F64,
    costs: F64,
    alpha: F64,
    f: F64,
    targets: F64,
    total: float,
    errors: F64,
    largest: float,
    is_definite: bool,
) -> Proof:
    """Return the proof of P and D; see `numeric.certificates.prove`. total: N."""
    bias, width = find_tube(costs, targets - f, total)
    slack = np.abs(targets - f - bias) - width
    own = 1.25 * errors + 4 * UNIT * (np.abs(targets) + np.abs(f) + abs(bias) + width)
    losing, support = np.flatnonzero((slack + own > 0.0) & (costs > 0.0)), np.flatnonzero(alpha)
    losses = costs[losing] * np.maximum(slack[losing], 0.0)
    loss, edge = sum_exactly(losses), total * width
    loss_error = float(np.sum(costs[losing] * np.minimum(own, slack + own)[losing])) + 4 * UNIT * (loss + edge)
    a, side, sums = alpha[support], y[support], (y * f)[support]
    square = sum_exactly(a * sums)
    square = max(square, 0.0) if is_definite else square
    square_error = 1.01 * float(a @ (errors[support] + 2 * UNIT * np.abs(sums)))
    objective = square / 2 + loss + edge
    objective_error = 1.01 * (square_error / 2 + loss_error) + 4 * UNIT * (abs(square) + loss + edge)
    gain = sum_exactly(a * (side * (targets - bias)[support]))
    lacking = abs(sum_exactly(a * side)) + max(0.0, sum_exactly(a, np.array([-total])))
    farthest = float(np.max(np.abs(targets - bias), initial=0.0))
    reach = farthest + math.sqrt(max(0.0, 2 * (objective + objective_error) * largest)) if lacking else 0.0
    size = 3 * float(a @ (np.abs(targets[support]) + abs(bias)))
    dual_error = square_error / 2 + 1.01 * lacking * reach + 2 * UNIT * (size + abs(square))
    magnitude = abs(square) / 2 + loss + edge
    return Proof(objective, objective_error, gain - square / 2, dual_error, bias, 1.0, magnitude)
