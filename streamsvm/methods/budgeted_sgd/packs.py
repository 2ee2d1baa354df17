"""Packs of rows.

A pack of rows meets the support vectors in one product (Zhu et al. 2009, P-packSVM). Then its steps are made one by
one, and a vector that is added or merged meets the remaining rows of the pack. Every product x.z is summed over the
features in their order, by fused multiply-adds. So packs of any size, and dense and sparse rows (with ascending
indices), give the same bits. A BLAS product would not, but would take 0.6 of the time on dense rows, and 0.4 on 784
features.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from streamsvm.methods.budgeted_sgd.state import VECTORS, BudgetRules, BudgetState, Pack, multiply_vectors
from streamsvm.numeric.kernel_values import apply_kernel
from streamsvm.numeric.rows import F32, I32, I64

VECTORS_OF_A_BLOCK = 512  # all rows of a pack meet these support vectors before the next, while they are in the cache


@register_jitable
def collect_pack(values: F32, indices: I32, indptr: I64, chosen: I64, position: I64) -> Pack:
    """Return the chosen rows as a pack. The first three arguments are those of `split`.

    position (d,): working memory, which is -1 at the beginning and again at the end.
    """
    size = 0
    for i in chosen:
        size += _count_items(values, indptr, i)
    items, features = np.empty(size, np.float32), np.empty(size, np.int64)
    starts, squares = np.zeros(chosen.size + 1, np.int64), np.empty(chosen.size, np.float32)
    for k in range(chosen.size):
        starts[k + 1] = _collect_items(values, indices, indptr, chosen[k], starts[k], items, features)
        square = 0.0
        for e in range(starts[k], starts[k + 1]):
            position[features[e]] = 0
            square += np.float64(items[e]) * items[e]
        squares[k] = square
    used = np.nonzero(position >= 0)[0]
    for e in range(used.size):  # arrays of places, and slices, take much longer to compile
        position[used[e]] = e
    tile = np.zeros((used.size, chosen.size), np.float32)
    for k in range(chosen.size):
        for e in range(starts[k], starts[k + 1]):
            tile[position[features[e]], k] = items[e]
    for e in range(used.size):
        position[used[e]] = -1
    return Pack(items, features, starts, squares, used, tile)


@register_jitable
def _count_items(values: F32, indptr: I64, i: int) -> int:
    if values.ndim == 2:
        return int(values.shape[1])
    return int(indptr[i + 1] - indptr[i])


@register_jitable
def _collect_items(values: F32, indices: I32, indptr: I64, i: int, at: int, items: F32, features: I64) -> int:
    """Write the items of row i that are not zero from place `at` on; return the place after them."""
    if values.ndim == 2:
        for j in range(values.shape[1]):
            if values[i, j] != 0.0:
                items[at], features[at] = values[i, j], j
                at += 1
    else:
        for e in range(indptr[i], indptr[i + 1]):
            if values[e] != 0.0:
                items[at], features[at] = values[e], indices[e]
                at += 1
    return at


@register_jitable
def meet_pack(state: BudgetState, rules: BudgetRules, pack: Pack, K: F32) -> None:
    """Set K[i, j] to k(x_i, z_j) for the rows of the pack and all support vectors."""
    n = state.counts[VECTORS]
    for at in range(0, n, VECTORS_OF_A_BLOCK):
        stop = min(at + VECTORS_OF_A_BLOCK, n)
        for i in range(pack.squares.size):
            first, last = pack.starts[i], pack.starts[i + 1]
            multiply_vectors(state.vectors, pack.features[first:last], pack.values[first:last], at, K[i, at:stop])
    for i in range(pack.squares.size):
        row = K[i, :n].reshape((1, n))
        gamma, coef0 = np.float32(rules.gamma), np.float32(rules.coef0)
        apply_kernel(rules.kernel, gamma, coef0, rules.degree, row, pack.squares[i : i + 1], state.squares[:n])
