"""The settings and the state of one_read.solver, and the requests of its passes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from streamsvm.numeric.row_norms import RowNorm
from streamsvm.numeric.rows import F64, I64, draw_sample
from streamsvm.passes import grows
from streamsvm.solvers.cutting_plane.cuts import CutState
from streamsvm.solvers.cutting_plane.line_search import LineState
from streamsvm.solvers.cutting_plane.near_rows import Look

GROUP_SHARE = 2  # a group keeps this many times its share of the resident rows, as it may have more near rows
HELD_SHARE = 0.05  # a first sample above this share of the rows is held in memory during the first pass, not read again
ALLOWANCE = 1e-9  # the largest remainder in the bound of a move (RowNorm.bound_move), in units of |w_0|


@dataclass(frozen=True)
class OneRead:
    """Settings of `one-read`.

    class_costs (2,): C_i of the classes coded 0 and 1, before sample weights. resident_rows: the number of rows that a
    pass keeps. tol: the relative gap to reach. bias_feature: the value of the constant feature. seed: the seed of the
    random draws. sets_aside: whether rows that may change sides are set aside for later passes (one_read.solver).
    threads: the number of threads with which the driver solves problems in memory.
    """

    class_costs: tuple[float, float]
    resident_rows: int
    tol: float = 1e-3
    bias_feature: float = 1.0
    seed: int = 0
    sets_aside: bool = False
    threads: int = 1

    def holds_sample(self, n_rows: int) -> bool:
        """Return whether the first sample stays in memory during the first pass, so that it is not read twice."""
        return self.resident_rows > HELD_SHARE * n_rows


@dataclass
class State(LineState):
    """The state of a run. Vectors are (d+1,); their last entry is the weight of the constant feature.

    loss: the loss of all rows at the best point. best_cut: the cut a_c over all rows there. resident, weight (r,):
    the numbers of the rows kept by the last pass, and the number of rows that each represents. points (p, d+1): the
    points of the first cuts of the next sample. n_rows: the number of rows. centre: the centre of the last pass.
    A (d+1, d+1): the matrix of the norm of rows. radius: the distance from the centre within which F equals P. widest:
    the expected radius if no far rows are sampled. predicted: the expected distance from the centre to the minimiser.
    trust: the trust radius. repeats: a dual point of F counts a row up to three times: in the sum over all rows, in the
    sum over the near rows that is subtracted from it, and in the sum over the near rows with their shares.

    If the first pass sets rows aside (one_read.solver), five fields describe this. apart: the centre of that pass.
    apart_radius: the radius within which rows are set aside, or 0 for none. frozen, frozen_cost: the sums over the
    frozen rows, the rows not set aside. apart_share: the largest share of a group's rows that is set aside.

    Four fields serve to reconstruct the dual point behind the lower bound (solvers.keep_dual). proof (m,): the
    multipliers with which the bound last rose. n_own (m,): for each cut, the number of rows with a share of their own.
    own_rows, own_shares (e,): the numbers and shares of these rows in the last cut.
    """

    loss: float = 0.0
    best_cut: F64 = field(default_factory=partial(np.empty, 0))
    resident: I64 = grows("r", dtype=np.int64)
    weight: F64 = grows("r")
    points: F64 = grows("p", "d")
    n_rows: int = 0
    centre: F64 = grows("d")
    A: F64 = grows("k", "d")
    radius: float = 0.0
    widest: float = 0.0
    predicted: float = 0.0
    trust: float = 0.0
    proof: F64 = grows("m")
    n_own: I64 = grows("m", dtype=np.int64)
    own_rows: I64 = grows("e", dtype=np.int64)
    own_shares: F64 = grows("e")
    apart: F64 = grows("d")
    frozen: F64 = grows("d")
    apart_radius: float = 0.0
    apart_share: float = 0.0
    frozen_cost: float = 0.0
    added: ClassVar = (*LineState.added, "apart", "frozen", "apart_radius", "apart_share", "frozen_cost")
    repeats: ClassVar[float] = 3.0
    of_cuts: ClassVar = (*CutState.of_cuts, "proof", "n_own")
    row_numbers: ClassVar = ("resident", "own_rows")

    def check(self) -> None:
        """Raise ValueError if A does not fit the width of the vectors; A is empty before the first pass."""
        if len(self.A) not in (0, len(self.centre)):
            raise ValueError(f"A has {len(self.A)} rows instead of {len(self.centre)}")


def start_state(settings: OneRead, n_rows: int, n_features: int, is_shuffled: bool = False) -> State:
    """Return the state before the first pass: w = 0, no cuts, and a uniformly drawn sample."""
    none = np.zeros(n_features + 1)
    rows = draw_sample(settings.resident_rows, n_rows, settings.seed, is_shuffled)
    weight, terms = np.full(len(rows), n_rows / len(rows)), float(settings.resident_rows)
    state = replace(State.at_zero(len(none)), best_cut=none, centre=none, apart=none, frozen=none)
    return replace(state, terms=terms, resident=rows, weight=weight, points=none[None, :], n_rows=n_rows)


def look_at_centre(settings: OneRead, state: State, share: float = 1.0) -> Look:
    """Return the `Look` of the pass at the centre, which also samples far rows if a step out of the ball is expected.

    share: the largest share of a group's rows that the pass reads.
    """
    kept, draws = GROUP_SHARE * settings.resident_rows / (share * state.n_rows), state.predicted > state.widest
    return make_look(settings, state.centre, RowNorm(state.A), kept, draws, state.passes)


def make_look(settings: OneRead, w: F64, norm: RowNorm, share: float, draws: bool = False, passes: int = 0) -> Look:
    """Return the `Look` of a pass at the centre w that keeps up to this share of each group's rows.

    draws: whether far rows are sampled too. passes: the number of earlier passes, which changes the seed.
    """
    squares, class_costs, bias = norm.bound_by_squares(), np.array(settings.class_costs), settings.bias_feature
    most, left, seed = settings.resident_rows, ALLOWANCE * float(np.linalg.norm(w)), settings.seed + passes
    return Look(w, norm, squares, draws, min(1.0, share), most, left, class_costs, bias, seed)
