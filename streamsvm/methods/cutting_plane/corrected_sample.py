"""The rows in memory as a model of all rows: their loss gets the value and the slope of the loss of all rows.

    1/2 |w|^2 + max(f_S(w) + h.w + r, max_c b_c - w.a_c),     h = f'(w_b) - f_S'(w_b),   r = f(w_b) - f_S(w_b) - h.w_b

Here f is the loss of all rows, f_S the weighted loss of the sample that is in memory, w_b the best point so far, and
(a_c, b_c) are the cuts of all rows (cutting_plane.cuts). The correction by h and r makes both losses touch at w_b, and
the maximum keeps the model at or above all cuts that are known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.methods.cutting_plane.one_read_state import KEPT_POINTS, POINTS, TILE_ROWS, OneRead, State
from streamsvm.methods.cutting_plane.point_cuts import PointTotals, add_points, read_cuts, start_points
from streamsvm.methods.cutting_plane.sample_model import SampleModel, minimise_sample
from streamsvm.numeric.rows import F64, Rows

SAMPLE_SHARE = 0.1  # the sample's problem is solved to this share of the gap


def correct_sample(settings: OneRead, state: State, sample: Rows) -> tuple[F64, float]:
    """Return h and r of the module's docstring."""
    totals = _cut(sample, settings, state.best_w[None, :])
    h = read_cuts(totals).vectors[0] - state.best_cut
    return h, state.loss - float(totals.losses[0]) - float(h @ state.best_w)


def minimise_model(settings: OneRead, state: State, model: SampleModel) -> tuple[State, F64]:
    """Minimise the model; return the state with points where the next sample is cut first, and where to cut all rows.

    The first three of the latter are the best point so far, the model's minimiser, and the minimiser of the model's
    master problem.
    """
    known = _cut(model.rows, settings, state.points)
    wanted = SAMPLE_SHARE * max(state.objective - state.lower_bound, settings.tol * state.objective)
    found = minimise_sample(model, state, state.points, read_cuts(known), wanted)
    order = np.argsort(-found.z, kind="stable")[:POINTS]
    ends = [state.best_w, found.best, found.master_w]
    W = np.concatenate((np.stack(ends), found.points[order[found.z[order] > 0.0]]))
    return replace(state, points=found.points[-KEPT_POINTS:]), W


def _cut(rows: Rows, settings: OneRead, W: F64) -> PointTotals:
    totals, class_costs = start_points(len(W), W.shape[1]), np.array(settings.class_costs)
    for at in range(0, rows.n_rows, TILE_ROWS):
        add_points(totals, rows.slice(slice(at, at + TILE_ROWS)), W, class_costs, settings.bias_feature)
    return totals
