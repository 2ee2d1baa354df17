"""The start of labels with many weights: coordinate ascent on their dual problems, side by side, on rows in memory.

    D(a) = -1/2 |w|^2 - sum_i l*(-a_i),    w = sum_i y_i a_i x_i

A visit of a row sets its a of every label to the optimum with all others fixed. With q = |x|^2 the margin is then m' =
m + q (a' - a), and a' = -l'(m') is

squared hinge    2 C max(0, 1 - m + q a) / (1 + 2 C q)
logistic loss    C / (1 + exp(m')), where m' is found by Newton's method

Weights are stored by features, (d+1, k), so that the labels of a value of a row are worked on in vector registers: a
visit costs about as much as one product of a Hessian and a vector, and few epochs of visits are worth many products.
All of this is float32, since it chooses points only.

Sources: Hsieh, Chang, Lin, Keerthi & Sundararajan 2008, "A dual coordinate descent method for large-scale linear SVM",
ICML; Yu, Huang & Lin 2011, "Dual coordinate descent methods for logistic regression", Machine Learning 85.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from streamsvm import deadline, interrupts
from streamsvm.methods.label_newton.row_losses import as_flags, measure
from streamsvm.methods.label_newton.sample import choose_shares
from streamsvm.methods.label_newton.sample_factors import minimise_by_factors
from streamsvm.methods.label_newton.steps import SHARPEST, LabelNewton, State
from streamsvm.methods.label_newton.sums import BLOCK_LABELS, find_labels
from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.rows import F32, F64, I32, I64, Rows, Split, split
from streamsvm.numeric.samples import weigh_rows

MOST_EPOCHS = 30
# The gap of the dual points is far smaller than |w + g|^2 / 2, the gap that the passes prove, since all rows share some
# directions. Where the sample is all rows, passes prove nearly all labels at once after this share of the tolerance.
SHARE_OF_TOL = 1e-4
SLOW = 0.9  # An epoch after which more than this share of the gap is left is the last one: passes would be faster.
LITTLE = 0.01  # gap at which another sample would have other minimisers
SHARE_PROVED = 0.1  # of the tolerance: the gap of the sample by factors, where the sample is all rows
ROOT_STEPS, CLOSE = 12, 1e-4  # of Newton's method for a margin, which ends where it is so close


def ascend_sample(settings: LabelNewton, state: State, codes: I64, sample: Rows) -> State:
    """Return the state, in place, with the next points of these labels, which are found for some labels at a time."""
    rows = weigh_rows(sample, settings.n_rows / sample.n_rows)
    is_whole = sample.n_rows == settings.n_rows
    enough = SHARE_OF_TOL * settings.tol if is_whole else LITTLE
    for at in range(0, len(codes), BLOCK_LABELS):
        if deadline.is_over():
            break
        part = codes[at : at + BLOCK_LABELS]
        W, is_near = _ascend(settings, part, rows, 1.0, enough)
        state.next_w[part - state.first] = W.T
        if settings.factor_rows and not is_near:
            shares = choose_shares(settings, part, rows)
            start = W if len(shares) == 1 else _ascend(settings, part, rows, shares[0], LITTLE)[0]
            gap = SHARE_PROVED * settings.tol if is_whole else LITTLE
            minimise_by_factors(settings, state, part, rows, start.T.astype(np.float64), shares, gap)
    return state


def _ascend(settings: LabelNewton, codes: I64, rows: Rows, share: float, enough: float) -> tuple[F32, bool]:
    """Return the weights (d+1, k) of these labels for a share of the costs, and whether their gaps are small enough.

    The epochs end before that if the gap does not shrink fast.
    """
    k, n, bias = len(codes), rows.n_rows, settings.bias_feature
    W, a = np.zeros((settings.n_features + 1, k), np.float32), np.zeros((n, k), np.float32)
    squares, has = compute_squares(rows.X, np.float64) + bias**2, as_flags(find_labels(rows, codes))
    costs, weight = share * settings.costs[codes], rows.sample_weight
    assert weight is not None
    gap, is_near = np.inf, False
    for epoch in range(MOST_EPOCHS):
        interrupts.check()
        order, sums = np.random.default_rng(epoch).permutation(n), np.zeros((2, k))
        visit_rows(
            settings.loss, SHARPEST[settings.loss], bias, split(rows.X), order, squares, has, weight, costs, W, a, sums
        )
        objectives = sums[0] + np.einsum("dk,dk->k", W, W, dtype=np.float64) / 2
        before, gap = gap, float(np.sum(sums[1]))
        is_near = bool(np.all(sums[1] <= enough * objectives))
        if is_near or gap > SLOW * before or deadline.is_over():
            break
    W[:, ~np.isfinite(np.sum(W, axis=0))] = 0.0
    return W, is_near


@njit(cache=True, nogil=True)
def visit_rows(
    loss: int,
    sharpest: float,
    bias: float,
    X: Split,
    order: I64,
    squares: F64,
    has: npt.NDArray[np.uint8],
    weight: F64,
    costs: F64,
    W: F32,
    a: F32,
    sums: F64,
) -> None:
    """Visit rows in this order, and change W (d+1, k) and a (n, k).

    squares (n,): |x|^2 with the constant feature; has (n, k): which rows have the labels; costs (k, 2): of rows without
    and with a label. Added to sums (2, k): the losses, and a lower estimate of the gap, the sum of (a + l'(m))^2 / (2
    L), where L is the largest curvature of the loss; both are found at the visits, as w moves.
    """
    values, indices, indptr = X
    moves, last = np.zeros(W.shape[1], np.float32), W.shape[0] - 1
    for i in order:
        for j in range(moves.size):
            moves[j] = bias * W[last, j]
        _score(values, indices, indptr, i, W, moves)
        for j in range(moves.size):
            y, cost, old = 1.0 if has[i, j] else -1.0, costs[j, has[i, j]] * weight[i], float(a[i, j])
            margin = y * moves[j]
            value, best, _ = measure(loss, cost, margin)
            sums[0, j] += value
            if cost > 0.0:
                sums[1, j] += (best - old) ** 2 / (2.0 * sharpest * cost)
            a[i, j] = _maximise(loss, cost, margin, squares[i], old)
            moves[j] = y * (a[i, j] - old)
        for j in range(moves.size):
            W[last, j] += bias * moves[j]
        _add(values, indices, indptr, i, moves, W)


@register_jitable
def _maximise(loss: int, cost: float, margin: float, square: float, old: float) -> float:
    """Return the best a of a row; the margin is that with the old one."""
    if loss == 0:
        return 2.0 * cost * max(0.0, 1.0 - margin + square * old) / (1.0 + 2.0 * cost * square)
    low, high, at, best = margin - square * old, margin + square * (cost - old), margin, old
    for _ in range(ROOT_STEPS):
        _, best, bend = measure(loss, cost, at)
        off = at - margin - square * (best - old)
        if abs(off) <= CLOSE:
            break
        low, high = (low, at) if off > 0.0 else (at, high)
        at -= off / (1.0 + square * bend)
        if not low <= at <= high:
            at = (low + high) / 2.0
    return best


@register_jitable
def _score(values: F32, indices: I32, indptr: I64, i: int, W: F32, scores: F32) -> None:
    """Add the scores (k,) of row i, for four of its values at a time, so that scores are loaded and stored once."""
    if values.ndim == 1:
        e, end = indptr[i], indptr[i + 1]
        while e + 3 < end:
            x0, x1, x2, x3 = values[e], values[e + 1], values[e + 2], values[e + 3]
            w0, w1, w2, w3 = W[indices[e]], W[indices[e + 1]], W[indices[e + 2]], W[indices[e + 3]]
            for j in range(scores.size):
                scores[j] += (x0 * w0[j] + x1 * w1[j]) + (x2 * w2[j] + x3 * w3[j])
            e += 4
        while e < end:
            x, weights = values[e], W[indices[e]]
            for j in range(scores.size):
                scores[j] += x * weights[j]
            e += 1
    else:
        for d in range(values.shape[1]):
            x, weights = values[i, d], W[d]
            if x != 0.0:
                for j in range(scores.size):
                    scores[j] += x * weights[j]


@register_jitable
def _add(values: F32, indices: I32, indptr: I64, i: int, moves: F32, W: F32) -> None:
    """Add row i times the moves (k,) to the weights."""
    if values.ndim == 1:
        for e in range(indptr[i], indptr[i + 1]):
            x, weights = values[e], W[indices[e]]
            for j in range(moves.size):
                weights[j] += x * moves[j]
    else:
        for d in range(values.shape[1]):
            x, weights = values[i, d], W[d]
            if x != 0.0:
                for j in range(moves.size):
                    weights[j] += x * moves[j]


def run_ascent(rows: Rows) -> None:
    """Call the compiled function."""
    n, W = rows.n_rows, np.zeros((rows.X.shape[1] + 1, 2), np.float32)
    numbers, has, a = np.ones(n), np.zeros((n, 2), np.uint8), np.zeros((n, 2), np.float32)
    visit_rows(0, 2.0, 1.0, split(rows.X), np.arange(n), numbers, has, numbers, np.ones((2, 2)), W, a, np.zeros((2, 2)))
