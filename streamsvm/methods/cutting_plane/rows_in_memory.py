"""The optimal shares of rows that are all in memory: by coordinate ascent, and by Newton's method where it is slow.

Coordinate ascent (cutting_plane.coordinate_ascent) comes near the optimum in a few epochs if costs are low. Each visit
moves a multiplier C_i c_i by 1 / |x_i|^2 or so, so with high costs it takes many epochs. Newton's method for a smoothed
hinge (cutting_plane.smoothed_newton) does not mind the costs, and takes matrices of all pairs of features. It begins at
the ascent's w, since a start near the optimum saves it half of its steps.

With more than NEWTON_FEATURES features there is no Newton's method. If all rows are so many numbers that the epochs
would take minutes, a step ends after fewer of them. The ascent gives up, and leaves the rest to the line search beside
(cutting_plane.beside), if it expects to take more epochs than a step has time for.

Of up to MOST_ROWS rows the products of all pairs of rows are smaller, and an interior-point method takes its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.methods.cutting_plane.coordinate_ascent import ascend, make_part
from streamsvm.methods.cutting_plane.multiplier_qp import MOST_ROWS, maximise_shares, multiply_rows
from streamsvm.methods.cutting_plane.multiplier_refinement import can_refine, refine_shares
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows, Linear, minimise
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, CsrRows, Rows

if TYPE_CHECKING:
    from streamsvm.methods.cutting_plane.block_ascent import State
    from streamsvm.methods.cutting_plane.block_walk import BlockAscent

ASCENT_PASSES = 3  # after so many passes over a few rows an interior-point method takes the ascent's place
TRIES = 3  # of the interior-point method in a row that have moved neither P nor D: another one would not, either
ASCENT_SHARE = 0.9  # of the gap that is asked for, at which the ascent ends: its gap is that of w on the way
LESS = 0.5  # times as large a gap ends the ascent after a pass that has not proved enough
FEW_SHARE = 0.5  # of the gap that is asked for, at which the interior-point method ends
NEWTON_SHARE = 0.8  # of the gap that is asked for, at which Newton's method ends, whose gap the pass will prove
NEWTON_FEATURES = 400  # with more features Newton's matrices cost more than further epochs
NEWTON_EPOCHS = 10.0  # Newton's method costs as much as so many epochs over all rows, and as its matrices
CUBES = 0.5  # of d^3 over the numbers in all rows: as many epochs cost as much as all factorisations of matrices
MOST_NUMBERS = 2e10  # that the epochs of a step visit without Newton's method: some seconds
FAR = 2.0  # times the gap that is asked for: with a larger one the ascent has been cut short, and need not go further
MOST_BESIDE = 50_000  # features: with more of them, the cuts of a line search beside take too much memory
WIDTH = 0.2  # of the smoothed hinge where Newton's method begins


def improve(settings: BlockAscent, state: State, rows: Rows) -> tuple[State, F64]:
    """Return the state with better shares of all rows and with their w, and a point to look from to this w for P."""
    class_costs, bias = np.array(settings.class_costs), settings.bias_feature
    if state.passes >= ASCENT_PASSES and rows.n_rows <= MOST_ROWS:
        if state.stuck < TRIES:
            state = _improve_few(class_costs, bias, FEW_SHARE * settings.tol, state, rows)
        return state, state.best_w
    by_newton, most = has_newton(rows.n_rows, rows.X.shape[1]), _count_affordable(rows)
    is_long = not by_newton and state.epochs > most
    gives_up = is_long and rows.X.shape[1] <= MOST_BESIDE
    patience = _count_epochs(rows) if by_newton else float(most) if gives_up else np.inf
    part, epochs = make_part(rows, class_costs, bias, state.share), most if is_long else state.epochs
    is_far = is_long and state.objective - state.lower_bound > FAR * settings.tol * state.objective
    tol = ASCENT_SHARE * LESS ** (0 if is_far else state.passes) * settings.tol
    seed = settings.seed, state.passes
    found = ascend([part], bias, state.master_w, 0.0, 0.0, tol, epochs, seed, patience, tries_all=False)
    state = replace(state, share=part.share.copy(), master_w=found.w)
    if found.epochs < epochs and is_long and not found.is_enough:
        return replace(state, epochs=0, slow=True), found.mean
    if found.is_enough or not by_newton:
        return state, found.mean
    return _descend(class_costs, bias, NEWTON_SHARE * settings.tol, state, rows)


def has_newton(n_rows: int, n_features: int) -> bool:
    """Return whether Newton's method goes on where the ascent is slow."""
    return n_rows > MOST_ROWS and n_features <= NEWTON_FEATURES


def _count_epochs(rows: Rows) -> float:
    """Return how many epochs over all rows cost as much as Newton's method."""
    n_numbers = rows.X.data.size if isinstance(rows.X, CsrRows) else rows.X.size
    return NEWTON_EPOCHS + CUBES * float(rows.X.shape[1]) ** 3 / max(1, n_numbers)


def _count_affordable(rows: Rows) -> int:
    """Return how many epochs over all rows a step has time for."""
    n_numbers = rows.X.data.size if isinstance(rows.X, CsrRows) else rows.X.size
    return max(1, int(MOST_NUMBERS / max(1, n_numbers)))


def _descend(class_costs: F64, bias: float, tol: float, state: State, rows: Rows) -> tuple[State, F64]:
    """Go on by Newton's method; return the state, whose shares change if their D is higher, and the w of the least P.

    The w of the shares is not this w until both are the optimum.
    """
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    data, none = HingeRows(rows, y, costs, bias), Linear(np.zeros(len(state.master_w)), 0.0)
    found = minimise(data, none, tol, state.master_w, smoothing=WIDTH)
    if found.lower_bound <= float(costs @ state.share) - float(state.master_w @ state.master_w) / 2:
        return state, found.w
    return replace(state, share=found.shares, master_w=data.combine(found.shares)), found.w


def _improve_few(class_costs: F64, bias: float, tol: float, state: State, rows: Rows) -> State:
    """Improve the shares of a few hundred rows by an interior-point method."""
    products = multiply_rows(rows, bias)
    share, is_enough = maximise_shares(rows, products, class_costs, bias, state.share, state.master_w, 0.0, 0.0, tol)
    w = _sum_up(class_costs, bias, rows, share)
    if not is_enough and can_refine(rows.n_rows, len(w)):
        share = refine_shares(rows, class_costs, bias, share, w, tol)
        w = _sum_up(class_costs, bias, rows, share)
    return replace(state, share=share, master_w=w)


def _sum_up(class_costs: F64, bias: float, rows: Rows, share: F64) -> F64:
    """Return w of the shares of these rows."""
    y, costs = read_labels(class_costs, rows.y, rows.sample_weight)
    return HingeRows(rows, y, costs, bias).combine(share)
