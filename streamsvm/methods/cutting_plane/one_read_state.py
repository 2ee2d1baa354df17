"""What the solver of cutting_plane.one_read knows, and what its passes look for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from streamsvm.methods.cutting_plane.cuts import CutState, cut_bytes, most_cuts
from streamsvm.methods.cutting_plane.near_rows import Look
from streamsvm.methods.cutting_plane.sample_model import INNER_STEPS
from streamsvm.methods.cutting_plane.segments import LineState, totals_bytes
from streamsvm.methods.cutting_plane.smoothed_newton import HingeRows
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.samples import draw_sample

LINE_POINTS = 16  # cuts that a pass offers on the line to the master's minimiser
POINTS = 16  # points of the sample's active cuts at which a pass cuts the problem of all rows, at most
KEPT_POINTS = 50  # points of old samples at which a new sample is cut before it is minimised
TILE_ROWS = 4096  # rows of the sample whose scores at many points are held at once
ROW_VECTORS = 24  # vectors of 8 bytes that problems in memory take for each of their rows
MATRICES = 8  # matrices (width, width): norms, Newton's matrix and its factor, the pull
GROUP_SHARE = 2  # a group keeps so many times its share of the resident rows: near rows may be more frequent there
HELD_SHARE = 0.05  # a first sample that is a larger share of the rows is not read again in the first pass, but held
HELD = 6  # a group that is being read may hold twice the rows that it keeps, and copies some
MOST_OWN = 3  # the cuts have so many times as many rows with a share of their own as there are resident rows
ALLOWANCE = 1e-9  # of |w_0|: what the bound of a move may charge to the rows' lengths


@dataclass(frozen=True)
class OneRead:
    """Settings of the solver.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights; resident_rows: how many rows a pass
    keeps; tol: the relative gap to reach; bias_feature: the value of the constant feature; seed: of the random draws;
    sets_aside: whether rows that may change sides are set aside for later passes (cutting_plane.undecided).
    """

    class_costs: tuple[float, float]
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0
    sets_aside: bool = False

    def driver_bytes(self, n_features: int) -> int:
        """Return the bytes of the driver without the rows that are kept: cuts, and problems over these rows."""
        width, sample_cuts = n_features + 1, KEPT_POINTS + 2 * INNER_STEPS
        problems = 8 * (ROW_VECTORS * self.resident_rows + MATRICES * width**2)
        work = 8 * width * (3 * sample_cuts + 4 * (POINTS + 3)) + 32 * TILE_ROWS * (KEPT_POINTS + 1)
        return cut_bytes(width, most_cuts(width) + sample_cuts) + work + problems

    def turn_bytes(self, n_features: int) -> int:
        """Return the part of the driver's bytes that is in use only while a step is computed."""
        return self.driver_bytes(n_features) - cut_bytes(n_features + 1, most_cuts(n_features + 1))

    def shared_bytes(self, n_features: int) -> int:
        """Return the bytes that every task of a pass is sent, twice: passes of several fits in one read copy them."""
        width = n_features + 1
        return 8 * 2 * ((POINTS + 7) * width + width**2)

    def totals_bytes(self, n_features: int) -> int:
        """Return the bytes of one task's totals without the rows that they hold."""
        lines = 2 * totals_bytes(LINE_POINTS, n_features + 1)
        return lines + 8 * (POINTS + 4) * (n_features + 3)

    def holds_sample(self, n_rows: int) -> bool:
        """Return whether the first sample stays in memory during the first pass, so that it is not read twice."""
        return self.resident_rows > HELD_SHARE * n_rows

    def count_held(self, group_rows: int, share: float) -> int:
        """Return how many rows the totals of a group may hold, if this share of its rows is to be resident."""
        return HELD * (int(group_rows * share) + 1)


@dataclass
class State(LineState):
    """All that changes. Vectors are (d+1,); their last entry is the weight of the constant feature.

    loss, best_cut: the loss of all rows at the best point, and their cut a_c there; resident, weight (r,): the rows
    that the last pass kept, and how many rows each stands for; points (p, d+1): where the next sample is cut first;
    n_rows: how many rows there are; centre (d+1,): the point at which the last pass looked; A (d+1, d+1): of the norm
    of rows; radius: the distance from the centre within which F equals P; widest: the radius if no far rows were drawn;
    predicted: the expected distance from the centre to the minimiser; trust: how far a step may go. A dual point of F
    counts a row up to three times, hence `repeats`: in the sum over all rows, from which the sum over the near rows is
    subtracted, and in the sum over the near rows with their shares.

    If the first pass sets rows aside (cutting_plane.undecided): apart (d+1,): its centre; apart_radius: rows that are
    farther from the margin are not among them, and 0 is for no rows; frozen (d+1,), frozen_cost: the sums over all
    other rows; apart_share: of a group those rows are no larger share.

    What others need to form the dual point behind the lower bound anew (cutting_plane.origins): proof (m,): the
    multipliers with which the bound last rose; n_own (m,): how many rows have a share of their own in each cut;
    own_rows, own_shares (e,): their numbers, and their shares, in the last cut.
    """

    loss: float = 0.0
    best_cut: F64 = field(default_factory=lambda: np.empty(0))
    resident: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    weight: F64 = field(default_factory=lambda: np.empty(0))
    points: F64 = field(default_factory=lambda: np.empty((0, 0)))
    n_rows: int = 0
    centre: F64 = field(default_factory=lambda: np.empty(0))
    A: F64 = field(default_factory=lambda: np.empty((0, 0)))
    radius: float = 0.0
    widest: float = 0.0
    predicted: float = 0.0
    trust: float = 0.0
    proof: F64 = field(default_factory=lambda: np.empty(0))
    n_own: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_rows: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    own_shares: F64 = field(default_factory=lambda: np.empty(0))
    apart: F64 = field(default_factory=lambda: np.empty(0))
    frozen: F64 = field(default_factory=lambda: np.empty(0))
    apart_radius: float = 0.0
    apart_share: float = 0.0
    frozen_cost: float = 0.0
    added: ClassVar = (*LineState.added, "apart", "frozen", "apart_radius", "apart_share", "frozen_cost")
    repeats: ClassVar[float] = 3.0
    of_cuts: ClassVar = (*CutState.of_cuts, "proof", "n_own")
    shapes: ClassVar = CutState.shapes | {
        "resident": ("r",),
        "weight": ("r",),
        "points": ("p", "d"),
        "centre": ("d",),
        "A": ("k", "d"),
        "proof": ("m",),
        "n_own": ("m",),
        "apart": ("d",),
        "frozen": ("d",),
        "own_rows": ("e",),
        "own_shares": ("e",),
    }
    row_numbers: ClassVar = ("resident", "own_rows")

    def check(self) -> None:
        """Raise ValueError if A is not of rows of this width; before the first pass it is empty."""
        if len(self.A) not in (0, len(self.centre)):
            raise ValueError(f"A has {len(self.A)} rows")


def start_state(settings: OneRead, n_rows: int, n_features: int, is_shuffled: bool = False) -> State:
    """Return the state before the first pass: w = 0, no cuts, and a sample that is drawn uniformly."""
    none = np.zeros(n_features + 1)
    rows = draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled)
    return State(
        best_w=none,
        master_w=none,
        cuts=np.empty((0, n_features + 1)),
        terms=float(settings.resident_rows),
        best_cut=none,
        resident=rows,
        weight=np.full(len(rows), n_rows / len(rows)),
        points=none[None, :],
        n_rows=n_rows,
        centre=none,
        apart=none,
        frozen=none,
    )


def start_state_at(settings: OneRead, n_rows: int, is_shuffled: bool, w: F64) -> State:
    """Return the state before the first pass, which looks at w unless the sample says that it is far away."""
    state = start_state(settings, n_rows, len(w) - 1, is_shuffled)
    return replace(state, best_w=w, centre=w, points=w[None, :])


def note_proof(state: State, before: State) -> State:
    """Return the state with its multipliers as its proof if these have raised the lower bound."""
    return replace(state, proof=state.z) if state.lower_bound > before.lower_bound else state


def make_look(settings: OneRead, state: State, share: float = 1.0) -> Look:
    """Return the `Look` of the pass at the centre; far rows are drawn as well if the ball is expected to be left.

    share: of the rows of a group that the pass is over, at most.
    """
    norm = RowNorm(state.A)
    return Look(
        w=state.centre,
        norm=norm,
        squares=norm.bound_by_squares(),
        draws=state.predicted > state.widest,
        share=min(1.0, GROUP_SHARE * settings.resident_rows / (share * state.n_rows)),
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
