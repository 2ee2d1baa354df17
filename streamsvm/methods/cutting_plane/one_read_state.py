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

ROW_VECTORS = 24  # vectors of 8 bytes that problems in memory take for each of their rows
MATRICES = 8  # matrices (width, width): norms, Newton's matrix and its factor, the pull
GROUP_SHARE = 2.0  # a group keeps so many times its share of the resident rows: near rows may be more frequent there
HELD = 6  # a group that is being read may hold twice the rows that it keeps, and copies some
ALLOWANCE = 1e-9  # of |w_0|: what the bound of a move may charge to the rows' lengths


@dataclass(frozen=True)
class OneRead(Guided):
    """Settings of the solver: those of `Guided`; resident_rows: how many rows a pass keeps."""

    def driver_bytes(self, n_rows: int, n_features: int) -> int:  # noqa: ARG002
        """Return the bytes of the driver without the rows that are kept: cuts, and problems over these rows."""
        problems = 8 * (ROW_VECTORS * self.resident_rows + MATRICES * (n_features + 1) ** 2)
        return super().driver_bytes(0, n_features) + problems

    def shared_bytes(self, n_features: int) -> int:
        """Return the bytes that every task of a pass is sent."""
        return super().shared_bytes(n_features) + 8 * 2 * (n_features + 1) ** 2

    def count_held(self, group_rows: int, n_rows: int) -> int:
        """Return how many rows the totals of a group of `group_rows` rows may hold."""
        return HELD * (group_rows * self.resident_rows // n_rows + 1)


@dataclass
class State(guided.State):
    """All that changes, beside what `guided.State` holds: the sample is what the last pass kept.

    n_rows: all rows; centre: where the last pass looked, or where the next one looks; A: of the norm of
    rows; radius: within which F equals P; widest: the radius if no far rows were drawn; predicted: how far the centre
    is expected to be from the minimiser; trust: how far a step may go; expected: what the model says of P at the
    centre; stepped: how far the centre is from the best point before it.
    """

    n_rows: int = 0
    centre: F64 = field(default_factory=lambda: np.empty(0))
    A: F64 = field(default_factory=lambda: np.empty((0, 0)))
    radius: float = 0.0
    widest: float = 0.0
    predicted: float = 0.0
    trust: float = 0.0
    expected: float = 0.0
    stepped: float = 0.0
    shapes: ClassVar = guided.State.shapes | {"centre": ("d",), "A": ("k", "d")}


def start_state(settings: OneRead, n_rows: int, n_features: int) -> State:
    """Return the state before the first pass: w = 0, no cuts, and a sample that is drawn uniformly."""
    first, none = guided.start_state(settings, n_rows, n_features), np.zeros(n_features + 1)
    return State(**vars(first), n_rows=n_rows, centre=none)


def warm_state(settings: OneRead, before: State, factor: float) -> State:
    """Return the state to start from, given the last state of the problem whose costs are `factor` times smaller."""
    return guided.warm_state(settings, before, factor)


def make_look(settings: OneRead, state: State) -> Look:
    """Return what the pass at the centre looks for: far rows, too, if the ball is expected to be left."""
    return Look(
        w=state.centre,
        norm=RowNorm(state.A),
        draws=state.predicted > state.widest,
        share=min(1.0, GROUP_SHARE * settings.resident_rows / state.n_rows),
        most=settings.resident_rows,
        left=ALLOWANCE * float(np.linalg.norm(state.centre)),
        class_costs=np.array(settings.class_costs),
        bias_feature=settings.bias_feature,
        seed=settings.seed + state.passes,
    )


def read_rows(settings: OneRead, rows: Rows) -> HingeRows:
    """Return rows in memory with their labels and costs."""
    y, costs = read_labels(np.array(settings.class_costs), rows.y, rows.sample_weight)
    return HingeRows(rows, y, costs, settings.bias_feature)


def choose_rows(rows: Rows, chosen: I64) -> Rows:
    """Return the rows with these places, in memory of their own."""
    assert rows.y is not None
    weight = None if rows.sample_weight is None else rows.sample_weight[chosen]
    return Rows(0, take_rows(rows.X, chosen), rows.y[chosen], weight)
