"""The start of labels with many weights and large costs: Newton's method on rows in memory, for the squared hinge.

With B the rows x of a label that have a curvature, each times the root r of that curvature, and y = +1 or -1, the
minimum of the parabolas of these rows and of 1/2 |w|^2 is

    w = B' (I + B B')^-1 (r y) = (I + B'B)^-1 B' (r y)

so the smaller of two matrices is factorised: of the rows, which are few where costs are large, or of the features. If
the same rows have a curvature at w, it is the minimiser. Where a row alone could decide, steps from far away would be
made much shorter again and again, so costs grow in stages.

Source: Keerthi & DeCoste 2005, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve
from scipy.sparse import csr_array, hstack

from streamsvm import deadline, interrupts
from streamsvm.methods.label_newton.products import Products, add_looked, start_products
from streamsvm.methods.label_newton.steps import (
    SHARPEST,
    LabelNewton,
    State,
    is_accepted,
    note_found,
    read_totals,
    start_state,
)
from streamsvm.methods.label_newton.sums import find_labels
from streamsvm.numeric.factors import factorise
from streamsvm.numeric.rows import F64, I64, CsrRows, Matrix, Rows, to_dense
from streamsvm.numeric.samples import pick_rows

LABELS, LABEL_POINTS = 16, 10  # that are worked on side by side, and vectors (d+1,) of each, which take memory
LOOKED_ROWS = 1024  # whose float64 values are in memory at a time
SCALED_COPIES = 6  # of rows, by their float32 bytes, while they are scaled in float64
DENSE_SHARE = 1 / 4  # of values that are not 0, from which on an array takes no more memory than SCALED_COPIES
MOST_STEPS = 30  # of a stage
LITTLE_BEFORE = 0.1  # relative gap at the end of a stage that is not the last


def minimise_by_factors(
    settings: LabelNewton, state: State, codes: I64, rows: Rows, start: F64, shares: list[float], gap: float
) -> None:
    """Move the next points of these labels, in place, to their minimisers for the rows, up to this relative gap.

    start (k, d+1): points for the first of the shares of the costs, with which P is minimised one after the other. The
    next point of a label whose matrix is too large, or whose gap remains too large in a stage, stays as it is.
    """
    for at in range(0, len(codes), LABELS):
        part, W = codes[at : at + LABELS], start[at : at + LABELS]
        for share in shares:
            if deadline.is_over() or not len(part):
                return
            stage = replace(settings, costs=share * settings.costs, tol=gap if share == 1.0 else LITTLE_BEFORE)
            part, W = _minimise(stage, part, rows, W)
        state.next_w[part - state.first] = W


def _minimise(settings: LabelNewton, codes: I64, rows: Rows, W: F64) -> tuple[I64, F64]:
    """Return the labels whose gaps are small enough for these costs, and their best points.

    The steps of all labels are made side by side.
    """
    costs, k = settings.costs[codes], len(codes)
    own = replace(settings, costs=costs, at_zero=np.full(k, np.inf), side_by_side=k)
    state, places = replace(start_state(own), next_w=W.copy()), np.arange(k)
    for _ in range(MOST_STEPS):
        points = state.next_w[places]
        active, totals = _look(settings, codes[places], rows, points)
        gradients = np.ascontiguousarray(totals.gradients.T)
        found = read_totals(own, points, costs[places], totals.sums, gradients, totals.squares)
        note_found(own, state, places, points, found)
        has_room = _find_sizes(settings, active) <= settings.factor_rows
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


def _look(settings: LabelNewton, codes: I64, rows: Rows, W: F64) -> tuple[npt.NDArray[np.bool_], Products]:
    """Return which rows have a curvature for each label at its point, (n, k), and the sums over all rows."""
    totals, points = start_products(W.shape[1], len(codes), 0), W.T.copy()
    active = np.empty((rows.n_rows, len(codes)), np.bool_)
    for first in range(0, rows.n_rows, LOOKED_ROWS):
        part, about = slice(first, first + LOOKED_ROWS), (settings.loss, settings.bias_feature)
        interrupts.check()
        active[part] = add_looked(totals, rows.slice(part), points, codes, settings.costs[codes], about) != 0.0
    return active, totals


def _find_sizes(settings: LabelNewton, active: npt.NDArray[np.bool_]) -> I64:
    """Return the rows of the matrix that a step of each label factorises."""
    sizes: I64 = np.minimum(np.count_nonzero(active, axis=0), settings.n_features + 1)
    return sizes


def _find_aim(settings: LabelNewton, rows: Rows, code: int, active: I64) -> F64 | None:
    """Return the minimum of the parabolas of the active rows, (d+1,), or None if it overflows."""
    picked = pick_rows(rows, active)
    assert picked.sample_weight is not None
    has = find_labels(picked, np.array([code]))[:, 0]
    roots = np.sqrt(SHARPEST[settings.loss] * settings.costs[code][has.astype(np.int64)] * picked.sample_weight)
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

    Sparse rows with many values become an array, whose products are many times as fast.
    """
    last = (bias * roots)[:, None]
    if isinstance(X, CsrRows) and DENSE_SHARE * X.shape[0] * X.shape[1] <= len(X.data):
        X = to_dense(X)
    if isinstance(X, CsrRows):
        scaled = csr_array((X.data * np.repeat(roots, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
        return hstack((scaled, last), format="csr")
    return np.hstack((X * roots[:, None], last))
