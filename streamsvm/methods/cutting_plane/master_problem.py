"""The master problem over the cuts (line 4 of Algorithms 1 and 2 of Joachims 2006), and its dual (OP3 of the paper).

    min_w  1/2 |w|^2 + max(0, max_c b_c - w.a_c),      D(z) = b'z - 1/2 z'Gz,  z >= 0, sum z <= 1,  w = sum z_c a_c

where G holds the products a_c.a_d of the cuts. Any feasible multipliers z give a lower bound D(z) of the minimum of
P(w) = 1/2 |w|^2 + loss(w) over all rows. D is evaluated from the cuts, not from their products, and its rounding bound
is subtracted from it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState, S
from streamsvm.methods.cutting_plane.master_qp import EPS, solve_master
from streamsvm.methods.cutting_plane.master_refinement import refine_master
from streamsvm.numeric.rounding import bound_rounding, sum_exactly
from streamsvm.numeric.rows import F64, I64

DOUBTFUL_STEPS = 5  # If neither has moved for so many steps, the rounding of the products may be the reason.
CUT_ROUNDINGS = 12  # of a term, besides n additions; the two terms of a row that leaves a line have 2 n + 15 + 4 in all
SCALING_ROUNDINGS = 8.0  # of a term whose cost is scaled: factor, product, magnitude, and the cost that is meant
MASTER_SHARE = 0.05  # The master problem is solved to this share of the gap that is left, or that is asked for.


def minimise_master(state: S, tol: float) -> S:
    """Solve the master problem; return the state with its multipliers, its minimiser, and the highest lower bound."""
    wanted = MASTER_SHARE * max(state.objective - state.lower_bound, tol * state.objective)
    trusted = state.stuck < DOUBTFUL_STEPS
    z, master_w = solve_cuts(state.cuts, state.offsets, state.gram, state.z, wanted, trusted)
    value, rounding = bound_dual(state, z)
    rises = value - rounding > state.lower_bound
    return replace(
        state,
        z=z,
        master_w=master_w,
        lower_bound=value - rounding if rises else state.lower_bound,
        bound_rounding=rounding if rises else state.bound_rounding,
        tried_rounding=0.0 if rises or value <= state.lower_bound else rounding,
        slack=max(0.0, float(np.max(state.offsets - state.cuts @ master_w))),
        idle=np.where(z > 0, 0, state.idle + 1),
    )


def solve_cuts(cuts: F64, offsets: F64, gram: F64, start: F64, wanted: float, trusted: bool = True) -> tuple[F64, F64]:
    """Return multipliers and minimiser of the master problem over these cuts, to a gap of `wanted` if rounding allows.

    The problem is solved with the products of the cuts as long as these are trusted and their rounding, of the order of
    eps |a_c|^2, is less than `wanted`. Otherwise it is solved with the cuts themselves, which takes longer.
    """
    lengths, z = np.sqrt(np.maximum(gram.diagonal(), 0.0)), start
    if trusted and 8 * EPS * float(lengths @ z) ** 2 <= wanted:
        solution = solve_master(gram, offsets, start, wanted)
        z = solution.z
        if solution.gap <= wanted and 8 * EPS * float(lengths @ z) ** 2 <= wanted:
            return z, z @ cuts
    refined, w = refine_master(cuts, offsets, z, wanted)
    return refined.z, w


def bound_dual(state: CutState, z: F64) -> tuple[float, float]:
    """Return D(z) of the computed cuts, and how far it can be from D(z) of the same cuts without rounding."""
    used, w = np.flatnonzero(z), z @ state.cuts
    shares, offsets, lengths = z[used], state.offsets[used], np.abs(w)
    value = float(shares @ offsets - w @ w / 2)
    products = [float(np.abs(state.cuts[k]) @ lengths) for k in used]  # one by one, as cuts may be most of the memory
    combined = float(shares @ (np.abs(offsets) + products))
    missed = _bound_combination(state, used, shares)
    most_cost, most = state.repeats * state.total_cost, state.repeats * float(lengths @ state.magnitudes)
    sizes = state.sizes[used]
    summed = float(shares @ (np.minimum(most_cost, sizes) + np.minimum(most, sizes * float(lengths @ state.largest))))
    ascended = float(z[0]) * state.sizes[0] * (1.0 + float(lengths @ state.largest)) if state.updates else 0.0
    own = bound_rounding(len(used) + len(w) + 8, combined) + bound_rounding(state.updates, ascended)
    own += max(0.0, sum_exactly(shares) - 1.0) * abs(value)  # D is concave, so a feasible share of z loses no more
    return value, own + bound_rounding(state.terms + CUT_ROUNDINGS, summed) + float(missed @ missed) / 2


def _bound_combination(state: CutState, used: I64, shares: F64) -> F64:
    """Return how far each entry of w = z @ cuts can be off, (width,).

    The square of this error is part of the error of |w|^2. It matters where long cuts cancel in w.
    """
    summed, combined = np.zeros(len(state.magnitudes)), np.zeros(len(state.magnitudes))
    for k, share in zip(used.tolist(), shares.tolist(), strict=True):
        summed += share * np.minimum(state.repeats * state.magnitudes, state.sizes[k] * state.largest)
        combined += share * np.abs(state.cuts[k])
    missed: F64 = bound_rounding(state.terms + CUT_ROUNDINGS, 1.0) * summed
    return missed + bound_rounding(len(used) + 8, 1.0) * combined


def scale_costs(state: S, factor: float, tol: float) -> S:
    """Return the state to go on from if all costs are `factor` times larger: the cuts times `factor` are cuts again."""
    half, none = float(state.best_w @ state.best_w) / 2, np.zeros(len(state.z))
    moved = bound_rounding(len(state.best_w) + SCALING_ROUNDINGS, 2 * half + state.objective)
    scaled = replace(
        state,
        cuts=factor * state.cuts,
        offsets=factor * state.offsets,
        sizes=factor * state.sizes,
        z=none,
        gram=factor**2 * state.gram,
        idle=none.astype(np.int64),
        objective=half + factor * (state.objective - half),
        lower_bound=0.0,
        slack=0.0,
        passes=0,
        stuck=0,
        magnitudes=factor * state.magnitudes,
        total_cost=factor * state.total_cost,
        terms=state.terms + SCALING_ROUNDINGS,
        objective_rounding=max(1.0, factor) * (state.objective_rounding + moved),
        bound_rounding=0.0,
        tried_rounding=0.0,
    )
    return minimise_master(scaled, tol)
