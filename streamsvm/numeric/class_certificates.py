"""The duality gap of Crammer-Singer with a kernel, from the shares of all rows and their K sums.

With the multipliers alpha_ik = -C_i c_ik for k != y_i, and alpha_iy = C_i s_i (numeric.class_shares),

    F_ik = sum_j alpha_jk k(x_i, x_j),   |W|^2 = sum_ik alpha_ik F_ik
    P = 1/2 |W|^2 + sum_i C_i max(0, max_{k != y_i} 1 + F_ik - F_iy)
    D = sum_i C_i s_i - 1/2 |W|^2              for 0 <= c_ik, sum_k c_ik = s_i <= 1

F_ik may be off by e_i, which moves |W|^2 by at most sum_i e_i sum_k |alpha_ik|, and the loss of a row by 2 C_i e_i. In
floating point the alpha_ik of a row sum to r_i, which is not 0. The nearest multipliers that are a dual point differ
from them by at most 2 |r_i|, so that their W is within d = 2 sum_i |r_i| max sqrt(k_ii), and

    D - sum_i |r_i| - |W| d - d^2 / 2      bounds the optimum.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.numeric.certificates import Proof
from streamsvm.numeric.class_shares import multiply_shares
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I32


def prove_classes(share: F64, y: I32, costs: F64, F: F64, errors: F64, largest: float, is_definite: bool) -> Proof:
    """Return the proof of P and D. share, F: (n, K); y, costs, errors: (n,); largest: the largest k_ii."""
    every, alpha = np.arange(len(y)), multiply_shares(share, y, costs)
    sizes = np.sum(np.abs(alpha), axis=1)
    products = alpha * F
    square = math.fsum(np.sum(products, axis=1).tolist())
    square = max(square, 0.0) if is_definite else square
    square_error = 1.01 * float(sizes @ errors) + UNIT * (F.shape[1] + 4) * float(np.sum(np.abs(products)))
    leads = 1.0 + (F - F[every, y][:, None])
    leads[every, y] = -np.inf
    top, reach = np.max(leads, axis=1), np.max(np.abs(F), axis=1)
    loss, loss_error = _add_losses(costs, top, 2.02 * errors + 4 * UNIT * (1.0 + 2 * reach))
    gain = math.fsum(alpha[every, y].tolist())
    lacking = float(np.sum(np.abs(np.sum(alpha, axis=1)) + UNIT * F.shape[1] * sizes))
    moved = 2 * lacking * math.sqrt(largest)
    of_point = lacking + math.sqrt(max(0.0, square + square_error)) * moved + moved**2 / 2
    magnitude = abs(square) / 2 + loss
    return Proof(
        objective=square / 2 + loss,
        objective_error=1.01 * (square_error / 2 + loss_error) + 4 * UNIT * magnitude,
        dual=gain - square / 2,
        dual_error=1.01 * (square_error / 2 + of_point) + 2 * UNIT * (gain + abs(square)),
        bias=0.0,
        stretch=1.0,
        magnitude=magnitude,
    )


def _add_losses(costs: F64, top: F64, own: F64) -> tuple[float, float]:
    """Return the sum of C_i max(0, top_i), and how far it can be off if each top_i is off by own_i."""
    losing = np.flatnonzero((top + own > 0.0) & (costs > 0.0))
    loss = math.fsum((costs[losing] * np.maximum(top[losing], 0.0)).tolist())
    return loss, float(np.sum(costs[losing] * np.minimum(own, top + own)[losing])) + 2 * UNIT * loss
