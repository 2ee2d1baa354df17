"""Newton's method for many labels with a smooth loss; every pass serves all labels whose gap is not proved.

    P_k(w) = 1/2 |w|^2 + sum_i C_ik l(y_ik w.x_i)                bias: a constant feature, penalised

For each label, a pass computes P, a dual point and its value D, the gradient, and an estimate of the Hessian (sums).
Each label then makes its own step (steps). With many features, Hessians would be too large; steps then use products of
Hessians with vectors, which take additional passes (steps.take_products). P - D is half the square of the gradient,
which Newton's method drives to 0. A label whose gap is proved leaves the passes. If memory has no room for all labels,
they are solved in blocks, one block after the other.

Sources: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6
(squared hinge); Byrd, Chin, Neveitt & Nocedal 2011, "On the use of stochastic Hessian information in optimization
methods for machine learning", SIAM J. Optimization 21 (the Hessian from a share of the rows).

Every label starts at its minimiser for a sample of the rows, in memory. Each of its m rows represents n / m rows. The
steps of a label on the sample end once the next step is expected to lower P by less than the sampling error.

If costs are so large that a single row can dominate, rows lose and gain curvature along a step, and steps would be
shortened again and again. So P is minimised with smaller costs first, and each minimiser is the start for costs that
are STAGE times as large.

If labels have many weights, their start is found by coordinate ascent on their dual problems, side by side:

    D(a) = -1/2 |w|^2 - sum_i l*(-a_i),    w = sum_i y_i a_i x_i

A visit to a row sets its a, for every label, to the optimum with all other multipliers fixed. With q = |x|^2 the margin
becomes m' = m + q (a' - a), and a' = -l'(m') is

squared hinge    2 C max(0, 1 - m + q a) / (1 + 2 C q)
logistic loss    C / (1 + exp(m')), where m' is found by Newton's method

Weights are stored by features, (d+1, k), so that each value of a row updates all labels in vector registers. An epoch
costs about as much as one product with a Hessian, and a few epochs achieve as much as many products. All of this is
float32, since it only chooses points.

If costs are large as well, Newton's method for the squared hinge continues from there. Let the rows of B be the rows x
that have a curvature for a label, each times the square root r of that curvature, and let y = +1 or -1. The minimiser
of the sum of these rows' parabolas and 1/2 |w|^2 is

    w = B' (I + B B')^-1 (r y) = (I + B'B)^-1 B' (r y)

The smaller of the two matrices is factorised: over the rows, which are few if costs are large, or over the features. If
the same rows have a curvature at w, then w is the minimiser.

Sources of the start: Hsieh, Chang, Lin, Keerthi & Sundararajan 2008, "A dual coordinate descent method for large-scale
linear SVM", ICML; Yu, Huang & Lin 2011, "Dual coordinate descent methods for logistic regression", Machine Learning 85;
Keerthi & DeCoste 2005.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable
from scipy.linalg import cho_solve
from scipy.sparse import csr_array, hstack

from streamsvm.kernels.kernel import compute_squares
from streamsvm.numeric.equations import factorise
from streamsvm.numeric.rows import F32, F64, I32, I64, U8, CsrRows, Matrix, Rows, Split, add_row_to_all, split, to_dense
from streamsvm.passes import Requests, Scan, Step, Take
from streamsvm.solvers.label_newton import steps, sums
from streamsvm.solvers.label_newton.steps import SHARPEST, LabelNewton, State, is_accepted, note_found, start_state
from streamsvm.solvers.label_newton.sums import BLOCK_LABELS, Totals, as_flags, find_labels, measure
from streamsvm.system import deadline, interrupts

LITTLE = 1e-3  # The sample counts as minimised if the next step is expected to lower P by less than this share.
MOST_STEPS = 30  # the maximum number of steps with the same costs
ROWS_A_WEIGHT = 8  # rows per weight for the curvature of a label
SMALL = 10.0  # Costs are small if the curvature of a row's loss, along the row's own direction, is at most this.
STAGE = 3.0  # the factor by which the costs grow from one stage to the next
LITTLE_BEFORE = 0.01  # replaces LITTLE in all stages but the last
LABELS, LABEL_POINTS = 16, 10  # the number of labels solved side by side, and of vectors (d+1,) that each needs
LOOKED_ROWS = 1024  # rows whose float64 values are in memory at a time
SCALED_COPIES = 6  # the memory of rows scaled in float64, as a multiple of their float32 bytes
DENSE_SHARE = 1 / 4  # If a larger share of the values is not 0, a dense array needs no more memory than SCALED_COPIES.
MOST_FACTOR_STEPS = 30  # the maximum number of steps of a stage by factors
LITTLE_FACTOR = 0.1  # the relative gap at which all stages but the last end
MOST_EPOCHS = 30
# Ascent stops at this share of the tolerance if the sample has all rows. The first passes then prove nearly all labels.
# The share is small because the gap of the ascent's dual points is far below |w + g|^2 / 2, the gap that passes prove:
# all rows share some directions.
SHARE_OF_TOL = 1e-4
SLOW = 0.9  # An epoch that leaves more than this share of the gap is the last one: passes would be faster.
LITTLE_ASCENT = 0.01  # the relative gap at which the choice of the sample matters more than its minimisation
SHARE_PROVED = 0.1  # the gap at which steps by factors end, as a share of the tolerance, if the sample has all rows
ROOT_STEPS, CLOSE = 12, 1e-4  # the maximum number of Newton steps for a margin, and the error at which they end


def solve(settings: LabelNewton, state: State) -> Requests:
    """Run the solver from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    while "" in state.statuses:
        block = state.statuses[state.first : state.first + settings.side_by_side]
        codes = state.first + np.flatnonzero(block == "")
        if not len(codes):
            state = steps.begin_next(settings, state)
            continue
        if len(settings.sample) and not state.counts[codes].any():
            sample = yield Take(settings.sample)
            state = (ascend_sample if settings.by_products else minimise_sample)(settings, state, codes, sample)
            del sample
        totals = yield (_ask_for_products if settings.by_products else _ask_for_curvatures)(settings, state, codes)
        totals.finish()
        state = (steps.take_products if settings.by_products else steps.take_step)(settings, state, codes, totals)
        ended = "stalled" if "stalled" in state.statuses else "converged"
        status = None if "" in state.statuses else ended
        n_later = len(state.statuses) - state.first - settings.side_by_side  # the labels in later blocks
        n_open, worst, mean = int(np.sum(state.statuses == "")), float(np.max(state.gaps)), float(np.mean(state.gaps))
        figures = {"open_problems": n_open, "waiting_problems": max(n_later, 0), "worst_gap": worst, "mean_gap": mean}
        yield Step(state, state.progress, status, figures)


def _ask_for_curvatures(settings: LabelNewton, state: State, codes: I64) -> Scan:
    """Return the pass that computes gradients and curvatures at the next points of these labels."""
    shares = np.minimum(1.0, settings.curvature_rows / state.active[codes])
    shared = (state.next_w[codes - state.first], codes, settings.costs[codes], shares, settings.about)
    start = partial(sums.start_totals, len(codes), settings.n_features + 1)
    return Scan(start, sums.add_totals, sums.combine_totals, shared)


def _ask_for_products(settings: LabelNewton, state: State, codes: I64) -> Scan:
    """Return the pass that computes gradients, or Hessian products for labels in the middle of a step."""
    looked, bent = steps.divide(state, codes)
    W = state.next_w[looked - state.first].T.copy()
    both = state.base_w, state.conjugates[steps.DIRECTIONS]
    V, P = (of[bent - state.first].T.astype(np.float32, "C") for of in both)
    shared = (W, looked, V, P, bent, settings.costs[np.concatenate((looked, bent))], settings.about)
    start = partial(sums.start_products, settings.n_features + 1, len(looked), len(bent))
    return Scan(start, sums.add_products, sums.combine_totals, shared)


def minimise_sample(settings: LabelNewton, state: State, codes: I64, sample: Rows) -> State:
    """Return the state with the sample's minimisers as the next points of these labels, BLOCK_LABELS at a time."""
    rows = sample.weigh(settings.n_rows / sample.n_rows)
    few = min(ROWS_A_WEIGHT * (settings.n_features + 1), settings.curvature_rows)
    next_w = state.next_w.copy()
    for at in range(0, len(codes), BLOCK_LABELS):
        part = codes[at : at + BLOCK_LABELS]
        W = np.zeros((len(part), settings.n_features + 1))
        shares = choose_shares(settings, part, sample)
        # With small costs, a step near the optimum needs few rows. With large costs, steps are short anyway.
        n_curved = few if len(shares) == 1 else settings.curvature_rows
        # settings.at_zero is for all rows, not for the sample: no point may be replaced by w = 0 because of it.
        own = replace(settings, at_zero=np.full(len(part), np.inf), tol=0.0, curvature_rows=n_curved)
        for share in shares:
            if deadline.is_over():
                break
            few_labels = replace(own, costs=share * settings.costs[part], side_by_side=len(part))
            W = _minimise(few_labels, part, rows, W, LITTLE if share == 1.0 else LITTLE_BEFORE)
        next_w[part - state.first] = W
    return replace(state, next_w=next_w)


def choose_shares(settings: LabelNewton, codes: I64, rows: Rows) -> list[float]:
    """Return increasing shares of the costs with which P is minimised in turn; the last one is 1."""
    values = rows.X.data if isinstance(rows.X, CsrRows) else rows.X.reshape(-1)
    square = float(np.einsum("i,i->", values, values, dtype=np.float64)) / rows.n_rows + settings.bias_feature**2
    curvature = SHARPEST[settings.loss] * float(np.max(settings.costs[codes])) * square
    shares = [1.0]
    while curvature * shares[-1] > SMALL:
        shares.append(shares[-1] / STAGE)
    return shares[::-1]


def _minimise(settings: LabelNewton, codes: I64, rows: Rows, W: F64, little: float) -> F64:
    """Return the best points (k, d+1) of the labels with these codes, starting from W (k, d+1).

    little: a label is done if its next step is expected to lower P by less than this share.
    """
    state, places = replace(start_state(settings), next_w=W), np.arange(len(codes))
    for _ in range(MOST_STEPS):
        interrupts.check()
        totals = sums.start_totals(len(places), settings.n_features + 1)
        shares, costs = np.minimum(1.0, settings.curvature_rows / state.active[places]), settings.costs[places]
        sums.add_totals(totals, rows, state.next_w[places], codes[places], costs, shares, settings.about)
        totals.finish()
        state = steps.take_step(settings, state, places, totals)
        near = (state.lengths == 1.0) & (-state.slopes / 2 <= little * state.objectives) & np.isfinite(state.values)
        places = np.flatnonzero(~near & (state.statuses == ""))
        if not len(places) or deadline.is_over():
            break
    return np.where(near[:, None], state.next_w, state.best_w)  # A large step may end at a higher P.


def minimise_by_factors(
    settings: LabelNewton, state: State, codes: I64, rows: Rows, start: F64, shares: list[float], gap: float
) -> None:
    """Move the next points of these labels, in place, to their minimisers for the rows, up to this relative gap.

    P is minimised with each of these shares of the costs in turn. start (k, d+1): the points at which the first stage
    starts. If a label's matrix is too large, or its gap stays too large in a stage, its next point does not change.
    """
    for at in range(0, len(codes), LABELS):
        part, W = codes[at : at + LABELS], start[at : at + LABELS]
        for share in shares:
            if deadline.is_over() or not len(part):
                return
            stage = replace(settings, costs=share * settings.costs, tol=gap if share == 1.0 else LITTLE_FACTOR)
            part, W = _minimise_factored(stage, part, rows, W)
        state.next_w[part - state.first] = W


def _minimise_factored(settings: LabelNewton, codes: I64, rows: Rows, W: F64) -> tuple[I64, F64]:
    """Return the codes of the labels whose gaps become small enough with these costs, and their best points.

    The labels make their steps side by side.
    """
    costs, k = settings.costs[codes], len(codes)
    own = replace(settings, costs=costs, at_zero=np.full(k, np.inf), side_by_side=k, by_products=False)
    state, places = replace(start_state(own), next_w=W.copy()), np.arange(k)
    for _ in range(MOST_FACTOR_STEPS):
        points = state.next_w[places]
        active, totals = _look(settings, codes[places], rows, points)
        gradients = np.ascontiguousarray(totals.gradients.T)
        found = steps.read_totals(own, points, costs[places], totals.sums, gradients, totals.squares)
        note_found(own, state, places, points, found)
        # A step of a label factorises a matrix over its active rows, or over the features if these are fewer.
        has_room = np.minimum(np.count_nonzero(active, axis=0), settings.n_features + 1) <= settings.factor_rows
        state.statuses[places[~has_room & (state.statuses[places] == "")]] = "stalled"
        for at, place in enumerate(places.tolist()):
            if not state.statuses[place] and is_accepted(own, state, place, points[at], found.P[at], found.P_off[at]):
                interrupts.check()
                aim = _find_aim(settings, rows, int(codes[place]), np.flatnonzero(active[:, at]))
                step = -found.gradients[at] if aim is None else aim - points[at]
                state.slopes[place] = float(found.gradients[at] @ step)
                state.next_w[place] = points[at] + step
        places = np.flatnonzero(state.statuses == "")
        if not len(places) or deadline.is_over():
            break
    done = state.statuses == "converged"
    return codes[done], state.best_w[done]


def _look(settings: LabelNewton, codes: I64, rows: Rows, W: F64) -> tuple[npt.NDArray[np.bool_], Totals]:
    """Return flags (n, k): whether a row has a curvature for a label at the label's point.

    Also return the sums over all rows.
    """
    totals, points = sums.start_products(W.shape[1], len(codes), 0), W.T.copy()
    active = np.empty((rows.n_rows, len(codes)), np.bool_)
    for first in range(0, rows.n_rows, LOOKED_ROWS):
        interrupts.check()
        part = slice(first, first + LOOKED_ROWS)
        slopes = sums.add_looked(totals, rows.slice(part), points, codes, settings.costs[codes], settings.about)
        active[part] = slopes != 0.0
    return active, totals


def _find_aim(settings: LabelNewton, rows: Rows, code: int, active: I64) -> F64 | None:
    """Return the minimiser (d+1,) of the active rows' parabolas plus 1/2 |w|^2, or None if it overflows."""
    picked = rows.pick(active)
    has = find_labels(picked, np.array([code]))[:, 0]
    roots = np.sqrt(SHARPEST[settings.loss] * settings.costs[code][has.astype(np.int64)] * picked.weights)
    B, target = _scale(picked.X, settings.bias_feature, roots), np.where(has, roots, -roots)
    by_rows = len(active) <= settings.n_features + 1
    M = B @ B.T if by_rows else B.T @ B
    if not isinstance(M, np.ndarray):
        M = M.toarray()
    M[np.diag_indices(len(M))] += 1.0
    _, factor = factorise(M)
    if factor is None:
        return None
    aim: F64 = B.T @ cho_solve((factor, False), target) if by_rows else cho_solve((factor, False), B.T @ target)
    return aim


def _scale(X: Matrix, bias: float, roots: F64) -> Any:
    """Return the rows with the constant feature, each times its root, as an array or a sparse matrix (n, d+1).

    Sparse rows with many values become a dense array, whose products are many times faster.
    """
    last = (bias * roots)[:, None]
    if isinstance(X, CsrRows) and DENSE_SHARE * X.shape[0] * X.shape[1] <= len(X.data):
        X = to_dense(X)
    if isinstance(X, CsrRows):
        scaled = csr_array((X.data * np.repeat(roots, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
        return hstack((scaled, last), format="csr")
    return np.hstack((X * roots[:, None], last))


def ascend_sample(settings: LabelNewton, state: State, codes: I64, sample: Rows) -> State:
    """Return the state with the sample's minimisers, found by coordinate ascent, as these labels' next points.

    The state is changed in place, BLOCK_LABELS labels at a time.
    """
    rows = sample.weigh(settings.n_rows / sample.n_rows)
    is_whole = sample.n_rows == settings.n_rows
    enough = SHARE_OF_TOL * settings.tol if is_whole else LITTLE_ASCENT
    for at in range(0, len(codes), BLOCK_LABELS):
        if deadline.is_over():
            break
        part = codes[at : at + BLOCK_LABELS]
        W, is_near = _ascend(settings, part, rows, 1.0, enough)
        state.next_w[part - state.first] = W.T
        if settings.factor_rows and not is_near:
            shares = choose_shares(settings, part, rows)
            start = W if len(shares) == 1 else _ascend(settings, part, rows, shares[0], LITTLE_ASCENT)[0]
            gap = SHARE_PROVED * settings.tol if is_whole else LITTLE_ASCENT
            minimise_by_factors(settings, state, part, rows, start.T.astype(np.float64), shares, gap)
    return state


def _ascend(settings: LabelNewton, codes: I64, rows: Rows, share: float, enough: float) -> tuple[F32, bool]:
    """Return the weights (d+1, k) of these labels for a share of the costs, and whether their gaps are small enough.

    The epochs end early if the gap shrinks slowly.
    """
    k, n, bias = len(codes), rows.n_rows, settings.bias_feature
    W, a = np.zeros((settings.n_features + 1, k), np.float32), np.zeros((n, k), np.float32)
    squares, has = compute_squares(rows.X, np.float64) + bias**2, as_flags(find_labels(rows, codes))
    costs, weight = share * settings.costs[codes], rows.sample_weight
    gap, is_near = np.inf, False
    for epoch in range(MOST_EPOCHS):
        interrupts.check()
        order = np.random.default_rng(epoch).permutation(n)
        found = visit_rows(settings.loss, bias, split(rows.X), order, squares, has, weight, costs, W, a)
        objectives = found[0] + np.einsum("dk,dk->k", W, W, dtype=np.float64) / 2
        before, gap = gap, float(np.sum(found[1]))
        is_near = bool(np.all(found[1] <= enough * objectives))
        if is_near or gap > SLOW * before or deadline.is_over():
            break
    W[:, ~np.isfinite(np.sum(W, axis=0))] = 0.0
    return W, is_near


@njit(cache=True, nogil=True)
def visit_rows(
    loss: int, bias: float, X: Split, order: I64, squares: F64, has: U8, weight: F64, costs: F64, W: F32, a: F32
) -> F64:
    """Visit rows in this order, and update W (d+1, k) and a (n, k) in place.

    squares (n,): |x|^2 with the constant feature. has (n, k): whether a row has a label. costs (k, 2): the costs of
    rows without and with each label. Return an array (2, k): the losses of each label, and a lower estimate of its gap:
    the sum of (a + l'(m))^2 / (2 L), where L is the largest curvature of the loss. Both use the w at the time of each
    visit.
    """
    sums = np.zeros((2, W.shape[1]))
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
                sums[1, j] += (best - old) ** 2 / (2.0 * SHARPEST[loss] * cost)
            a[i, j] = _maximise(loss, cost, margin, squares[i], old)
            moves[j] = y * (a[i, j] - old)
        for j in range(moves.size):
            W[last, j] += bias * moves[j]
        add_row_to_all(values, indices, indptr, i, moves, W)
    return sums


@register_jitable
def _maximise(loss: int, cost: float, margin: float, square: float, old: float) -> float:
    """Return the best a of a row. margin: the margin with the old a. square: |x|^2."""
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
    """Add row i's scores (k,), four of its values at a time, to load and store the scores less often."""
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
