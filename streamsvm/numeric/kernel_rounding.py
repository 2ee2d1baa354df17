"""Bounds of the rounding of sums f_i = sum_c coef_c k(x_i, z_c) that are computed in float64.

With u = 2^-53, |fl(x.z) - x.z| <= d u |x| |z|, where d is the number of items that x and z can have in common, and
|fl(|x|^2) - |x|^2| <= s u |x|^2, where s counts the roundings of a squared length (Higham 2002, section 3.1):

    rbf       gamma |x - z|^2 as gamma (|x|^2 + |z|^2 - 2 x.z) is off by at most (d + s + 6) u reach,
              reach = gamma (|x|^2 + |z|^2), and k by as large a share of k. If the reach exceeds CLOSE_REACH, pairs
              whose k is not negligible are computed from differences x - z, which have a relative error of (s + 4) u
              if rows are dense and of 6 u if they are sparse, whose sums are compensated (Ogita, Rump & Oishi 2005).
    poly      g = gamma x.z + coef0 is off by e = (d + 3) u (gamma |x| |z| + |coef0|), and k = g^p by at most
              p (|g| + e)^(p-1) e + p u |k|
    sigmoid   k = tanh g is off by the greatest slope near g times e, and some u

A dense row has d = s, the number of features. The length of a sparse row is a sum over all of its items, many of
which the other row may lack: d is the smaller and s the larger of both numbers of items. Blocks of BLOCK_ITEMS items
are summed in float64, and their sums in twice the precision (numeric.tiles), so that s is at most BLOCK_ITEMS + 2. The
6 holds four operations: the two sums and the difference lose 1, 3/2 and 2 times u reach, and the product with gamma
loses 2 u reach. Together they lose more than 6 u reach only where x.z < -0.8 |x| |z|, so that k < e^(-1.8 reach). There
the excess of at most u reach / 2 is within the 12 u of `bound_sums` for a reach up to 18, and below FAINT beyond.

The error of a kernel value counts |coef_c| times. So compiled code adds up the magnitudes sum_c |coef_c| |k_ic| beside
f (for poly and sigmoid the slopes, too), and `bound_sums` turns them into error bounds. A sum of m terms loses less
than (m / 4 + 4) u of the sum of the magnitudes, because four columns are added at a time.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from streamsvm.numeric.kernel_codes import POLY, RBF, CompiledKernel
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.rows import F64, I64, Values

CLOSE_REACH = 64.0  # with gamma = 1 / (features * variance), rows of ordinary scale stay below it
FAINT = 1e-22  # e^-50; smaller kernel values are less than the rounding of the others
SMALL = 0.015625  # below, tanh is summed as a series, since (e^2v - 1) / (e^2v + 1) has a large relative error
SQUASHED = 0.16  # times the share of `bound_sums` this is more than 4 u, the error of tanh itself
STEEP = 40.0  # beyond this argument tanh is 1 or -1 to the last bit


@register_jitable  # with "contract", products that are used twice would be fused in some processes only
def add_with_magnitudes(values: Values, coef: F64, f: F64, magnitudes: F64) -> None:
    """Add sum_c coef_c values_ci to f_i, as `add_columns` does, and sum_c |coef_c values_ci| to magnitudes_i."""
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


@register_jitable(fastmath={"contract"})
def add_slopes(
    kernel: CompiledKernel, unit: float, products: Values, left: Values, right: Values, coef: F64, magnitudes: F64
) -> None:
    """Add sum_c |coef_c| slope (gamma |x| |z| + |coef0|) to magnitudes_i, with the slope of poly or sigmoid near x.z.

    products: x_i.z_c, (columns, n); left and right: squared lengths of the columns z and the rows x.
    """
    code, gamma, coef0, degree = kernel
    n = right.size
    roots, bases, shares = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        roots[i] = np.sqrt(right[i])
    for c in range(products.shape[0]):
        row, of_column = products[c], gamma * np.sqrt(left[c])
        for i in range(n):
            magnitude = of_column * roots[i] + abs(coef0)
            shares[i] = magnitude * abs(coef[c])
            bases[i] = abs(gamma * row[i] + coef0) + (unit * magnitude if code == POLY else -unit * magnitude)
        if code == POLY:
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


def bound_sums(
    code: int, degree: int, n_items: I64, n_lengths: I64, n_columns: int, reach: F64, magnitudes: F64
) -> F64:
    """Return how far sums can be off, (n,), given their magnitudes.

    n_items, n_lengths: d and s of each row, (n,). reach: gamma (|x_i|^2 + the largest |z|^2), (n,).
    """
    of_values = n_items + (degree + 12.0)
    of_exponents = (n_items + n_lengths + 6) * np.minimum(reach, CLOSE_REACH)
    shares = of_exponents + of_values if code == RBF else 2 * of_values
    bound: F64 = UNIT * (n_columns / 4 + 4 + shares) * magnitudes
    return bound
