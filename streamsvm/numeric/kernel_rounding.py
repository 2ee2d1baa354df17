"""How far sums f_i = sum_c coef_c k(x_i, z_c), formed in float64, can be from the sums that are meant.

With u = 2^-53, d the number of items of a row, and |fl(x.z) - x.z| <= d u |x| |z| (Higham 2002, section 3.1):

    rbf       gamma |x - z|^2 as gamma (|x|^2 + |z|^2 - 2 x.z) is off by at most (2 d + 6) u reach,
              reach = gamma (|x|^2 + |z|^2), and k by as large a share of k. Where the reach is more than CLOSE_REACH,
              pairs whose k is not negligible are formed from differences x - z, which are off by d u of themselves.
    poly      g = gamma x.z + coef0 is off by e = (d + 3) u (gamma |x| |z| + |coef0|), and k = g^p by at most
              p (|g| + e)^(p-1) e + p u |k|
    sigmoid   k = tanh g by the greatest slope near g times e, and some u

Kernel values enter with |coef_c|, so compiled code adds up the magnitudes sum_c |coef_c| |k_ic| (and, of poly and
sigmoid, the slopes) beside f; `bound_sums` makes error bounds of them. Sums of m terms lose less than (m / 4 + 4) u of
the sum of the magnitudes: four columns are added at a time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, Values

CLOSE_REACH = 64.0  # rows of ordinary scale stay below it, at gamma = 1 / (features * variance)
FAINT = 1e-22  # e^-50: smaller kernel values are nothing beside the rounding of others
SMALL = 0.015625  # below, tanh is formed by its series, which has a relative error; (e^2v - 1) / (e^2v + 1) has not
SQUASHED = 0.16  # times what `bound_sums` makes of it, more than 4 u
STEEP = 40.0  # beyond, tanh is 1 or -1 to the last bit


@njit(cache=True, nogil=True)  # "contract" would fuse products that are used twice in one process only
def add_with_magnitudes(values: Values, coef: F64, f: F64, magnitudes: F64) -> None:
    """f_i += sum_c coef_c values_ci, as `kernel_values.add_columns` does; magnitudes_i += sum_c |coef_c values_ci|."""
    k, n = 0, values.shape[0]
    while k < n:
        if k + 3 < n:
            u, v, w, x = values[k], values[k + 1], values[k + 2], values[k + 3]
            a, b, c, d = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
            for i in range(f.size):
                p, q, r, s = a * u[i], b * v[i], c * w[i], d * x[i]
                f[i] += (p + q) + (r + s)
                magnitudes[i] += (abs(p) + abs(q)) + (abs(r) + abs(s))
            k += 4
        else:
            u, a = values[k], coef[k]
            for i in range(f.size):
                f[i] += a * u[i]
                magnitudes[i] += abs(a * u[i])
            k += 1


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_slopes(
    code: int, gamma: float, coef0: float, degree: int, unit: float, products: Values, left: Values, right: Values,
    coef: F64, magnitudes: F64,
) -> None:  # fmt: skip
    """magnitudes_i += sum_c |coef_c| slope (gamma |x| |z| + |coef0|): poly's or sigmoid's slope near the products."""
    n = right.size
    roots, bases, shares = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        roots[i] = np.sqrt(right[i])
    for c in range(products.shape[0]):
        row, of_column = products[c], gamma * np.sqrt(left[c])
        for i in range(n):
            magnitude = of_column * roots[i] + abs(coef0)
            shares[i] = magnitude * abs(coef[c])
            bases[i] = abs(gamma * row[i] + coef0) + (unit * magnitude if code == 2 else -unit * magnitude)
        if code == 2:
            for _ in range(degree - 1):
                for i in range(n):
                    shares[i] *= bases[i]
            for i in range(n):
                magnitudes[i] += degree * shares[i]
        else:
            for i in range(n):  # 1 / cosh(v)^2 <= 4 e^(-2 |v|)
                slope = np.exp(-2.0 * min(bases[i], STEEP)) if bases[i] > 0.0 else 1.0
                magnitudes[i] += SQUASHED * abs(coef[c]) * min(1.0, bases[i] / SMALL)
                magnitudes[i] += min(1.0, 4.0 * slope) * shares[i] if bases[i] < STEEP else 0.0


def bound_sums(code: int, degree: int, n_items: int, n_columns: int, reach: F64, magnitudes: F64) -> F64:
    """Return how far sums can be off, (n,), given their magnitudes; reach: gamma (|x_i|^2 + the largest |z|^2)."""
    of_values = n_items + degree + 12.0
    if code == 1:
        shares: F64 = (2 * n_items + 6) * np.minimum(reach, CLOSE_REACH) + of_values
    else:
        shares = np.full(len(reach), 2 * of_values)
    return UNIT * (n_columns / 4 + 4 + shares) * magnitudes
