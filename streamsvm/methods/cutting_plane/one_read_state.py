"""What the solver of cutting_plane.one_read knows, and what its passes look for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from streamsvm.methods.cutting_plane import guided
from streamsvm.methods.cutting_plane.guided import Guided
from streamsvm.methods.cutting_plane.near_rows import Look
from streamsvm.methods.cutting_plane.row_norms import RowNorm
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I64, Rows, take_rows

ALLOWANCE = 1e-9  # of |w_0|: what the bound of a move may charge to the rows' lengths


@dataclass
class State(guided.State):
    """All that changes, beside what `guided.State` holds: the sample is what the last pass kept.

    centre: where the last pass looked, or where the next one looks; far_gradient, far_cost: g and c; A: of the norm of
    rows; radius: within which F equals P; widest: the radius if no far rows were drawn; predicted: how far the centre
    is expected to be from the minimiser; trust: how far a step may go; expected: what the model says of P at the
    centre; stepped: how far the centre is from the best point before it.
    """

    centre: F64 = field(default_factory=lambda: np.empty(0))
    far_gradient: F64 = field(default_factory=lambda: np.empty(0))
    far_cost: float = 0.0
    A: F64 = field(default_factory=lambda: np.empty((0, 0)))
    radius: float = 0.0
    widest: float = 0.0
    predicted: float = 0.0
    trust: float = 0.0
    expected: float = 0.0
    stepped: float = 0.0
    shapes: ClassVar = guided.State.shapes | {"centre": ("d",), "far_gradient": ("d",), "A": ("k", "d")}


def start_state(settings: Guided, n_rows: int, n_features: int) -> State:
    """Return the state before the first pass: w = 0, no cuts, and a sample that is drawn uniformly."""
    first, none = guided.start_state(settings, n_rows, n_features), np.zeros(n_features + 1)
    return State(**vars(first), centre=none, far_gradient=none)


def make_look(settings: Guided, state: State, n_rows: int) -> Look:
    """Return what the pass at the centre looks for: far rows, too, if the ball is expected to be left."""
    return Look(
        w=state.centre,
        norm=RowNorm(state.A),
        draws=state.predicted > state.widest,
        share=settings.resident_rows / n_rows,
        left=ALLOWANCE * float(np.linalg.norm(state.centre)),
        class_costs=np.array(settings.class_costs),
        bias_feature=settings.bias_feature,
        seed=settings.seed + state.passes,
    )


def read_rows(settings: Guided, rows: Rows) -> HingeRows:
    """Return rows in memory with their labels and costs."""
    y, costs = read_labels(np.array(settings.class_costs), rows.y, rows.sample_weight)
    return HingeRows(rows, y, costs, settings.bias_feature)


def choose_rows(rows: Rows, chosen: I64) -> Rows:
    """Return the rows with these places, in memory of their own."""
    assert rows.y is not None
    weight = None if rows.sample_weight is None else rows.sample_weight[chosen]
    return Rows(0, take_rows(rows.X, chosen), rows.y[chosen], weight)
