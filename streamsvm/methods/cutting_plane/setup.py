"""The setup of the linear SVM by cutting planes: settings, memory and model for the rows of a source."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.cutting_plane import line_search_setup, resident_setup
from streamsvm.methods.cutting_plane.coordinate_ascent import ascend, make_part
from streamsvm.methods.cutting_plane.options import CuttingPlaneOptions
from streamsvm.methods.cutting_plane.point_cuts import add_points, start_points
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows
from streamsvm.methods.cutting_plane.solver import CuttingPlane
from streamsvm.methods.fit import Fit
from streamsvm.numeric.exact_losses import add_exact, start_exact
from streamsvm.numeric.losses import FINE_STEPS, add_segment_totals
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.row_norms import bound_rows, make_norm, measure_rows
from streamsvm.numeric.row_products import compute_scores_of_parts
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions, compute_class_costs


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit:
    """Return the fit: with resident rows if enough of them fit into memory, unless the options ask for another."""
    asked_for_stop = own.epsilon is not None or own.max_cuts is not None
    acceleration, note = own.acceleration, ""
    if acceleration in ("auto", "guided") and asked_for_stop:
        acceleration = "line-search"
    if acceleration not in ("line-search", "none"):
        if asked_for_stop:
            raise InputError(
                f"epsilon and max_cuts are not for acceleration={acceleration}; use line-search, or leave them out"
            )
        fit = resident_setup.set_up(source, options, own)
        if fit is not None:
            return fit
        acceleration, note = "line-search", resident_setup.NO_ROWS
    if own.scratch is not None:
        raise InputError(resident_setup.NO_SCRATCH.format(acceleration))
    if options.resident_rows is not None:
        raise InputError(f"resident rows are not for acceleration={acceleration}; leave them out, or use auto")
    settings = CuttingPlane(
        accelerated=acceleration == "line-search",
        class_costs=compute_class_costs(source, options),
        tol=float(options.tol),
        epsilon=own.epsilon,
        bias_feature=own.intercept_scaling,
        max_cuts=own.max_cuts,
    )
    return line_search_setup.make_fit(source, settings, note)


def run_kernels(group: str, rows: Rows) -> None:
    """Call the compiled functions that find cuts and measure points; or those that `one_read` or an ascent needs."""
    if group == "one-read":
        norm = make_norm(rows, 1.0)
        measure_rows(norm, rows, 1.0)
        bound_rows(norm.bound_by_squares(), rows, 1.0)
        return
    if group == "ascent":
        part = make_part(rows, np.ones(2), 1.0, np.zeros(2))
        ascend([part], 1.0, np.zeros(3), 0.0, 0.0, 0.0, 1, (0,))
        HingeRows(rows, np.ones(2), np.ones(2), 1.0).add_products(None, np.arange(2), np.ones(2))
        return
    totals: tuple[Any, ...] = np.zeros((FINE_STEPS + 1, 2)), np.zeros(2), np.zeros((2, 3))
    add_segment_totals(rows, np.zeros((2, 3)), np.ones(2), np.ones(1), 1.0, *totals)
    compute_scores_of_parts(rows.X, np.zeros((1, 2, 2)))
    add_points(start_points(2, 3), rows, np.zeros((2, 3)), np.ones(2), 1.0)
    add_row_magnitudes(np.zeros(3), np.zeros(3), rows.X, np.ones(2))
    add_exact(start_exact(1), rows, np.zeros((1, 2)), np.zeros(1), np.ones(2))
