"""Any convex loss of a linear model, by a model that a sample of the rows gives: few reads of the data.

    P(w) = 1/2 |w|^2 + L(w)

L is the loss of all rows, and L_S the loss of a sample S in memory, weighted to stand for all rows. At the best point v
so far, the corrected loss of the sample

    L_v(w) = L_S(w) + (g - g_S).(w - v) + (L(v) - L_S(v))            g, g_S: subgradients of L and L_S at v

has the value and the slope of L. The step to the minimiser of 1/2 |w|^2 + L_v(w) is found in memory. A pass evaluates P
at several points of this step and makes cuts over all rows there. The lower bound is the value of the master problem
over these cuts (cutting_plane.cuts), so it never depends on the sample. Without a best point, the first step leads from
0 to the sample's minimiser.

A step to the master's minimiser replaces a step of the model that did not lower P. So the passes converge as cutting
planes with a line search do, even if the sample misleads.

Sources: Shamir, Srebro & Zhang 2014, "Communication-efficient distributed optimization using an approximate Newton-type
method", ICML (the corrected loss); Franc & Sonnenburg 2008, "Optimized cutting plane algorithm for support vector
machines", ICML (cuts along a line).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streamsvm.numeric.rows import F64, I64, Rows, draw_sample, find_first_rows
from streamsvm.passes import All, Requests, Scan, Step, Take, grows
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, RowSums
from streamsvm.solvers.cutting_plane.line_search import CutTotals
from streamsvm.solvers.cutting_plane.master import take_cuts

FIRST_STEPS = (0.3, 0.7, 1.0)  # points of the first step, from 0 to the sample's minimiser: it may overfit
STEPS = (0.5, 0.75, 1.0, 1.5)  # points of a later step, as multiples of the last step taken


@dataclass
class ModelState(CutState):
    """The state of a run. Vectors are flat (width,).

    slope: the subgradient of L at best_w. step: the last step taken, as a share of the whole step.
    resident: the numbers of the sample's rows, ascending. n_rows: the number of all rows.
    """

    slope: F64 = grows("d")
    step: float = 1.0
    resident: I64 = grows("r", dtype=np.int64)
    n_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class SampleModel(CutSettings, ABC):
    """The settings of the solver, with what a loss defines. resident_rows: the size of the sample; seed: its seed."""

    resident_rows: int
    seed: int = 0
    state: ClassVar[type[ModelState]] = ModelState

    def start(self, width: int, n_rows: int, is_shuffled: bool) -> ModelState:
        """Return the state before the first pass: w = 0, and a sample."""
        state = self.state.at_zero(width)
        resident = draw_sample(self.resident_rows, n_rows, self.seed, is_shuffled)
        return replace(state, resident=resident, n_rows=n_rows)

    def choose_steps(self, state: ModelState) -> F64:
        """Return the points of a pass, as shares of the step."""
        if len(state.resident) == state.n_rows:
            return np.array([state.step])
        return state.step * np.array(STEPS) if len(state.slope) else np.array(FIRST_STEPS)

    @abstractmethod
    def hold(self, rows: Rows) -> Any:
        """Return the sample as `minimise` needs it. Each row's weight counts the rows that it represents."""

    @abstractmethod
    def minimise(self, sample: Any, state: Any) -> F64:
        """Return the minimiser of the model, (width,), or of the sample's own problem if there is no best point."""

    @abstractmethod
    def look_at(self, points: F64, held: Rows | None) -> Scan:
        """Return the scan for the losses, the cuts and the sums of the loss at the points, (k, width)."""

    @abstractmethod
    def read(self, state: Any, points: F64, found: Any) -> tuple[Any, RowSums]:
        """Return the state with what the scan found besides, and the cuts at the points."""

    def take_move(self, before: Any, state: Any) -> Any:  # noqa: ARG002
        """Return the state with what the loss keeps of the move of the best point since the state `before`."""
        return state

    @abstractmethod
    def look_for_rounding(self, state: Any, held: Rows | None) -> list[Scan]:
        """Return the scans of a pass that bound rounding errors."""

    @abstractmethod
    def take_rounding(self, state: Any, answers: Sequence[Any]) -> Any:
        """Return the state with the results of the scans of `look_for_rounding`."""


def solve(settings: SampleModel, state: Any) -> Requests:
    """Train from a state. A run resumed from the state in any `Step` gives the same bits."""
    rows = yield Take(state.resident)
    held = find_first_rows(rows, state.resident)
    sample = settings.hold(rows.weigh(state.n_rows / rows.n_rows))
    del rows
    while True:
        before = state
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            end = settings.minimise(sample, state) if state.stuck % 2 == 0 else state.master_w
        if not np.isfinite(end).all():
            end = state.master_w
        steps = settings.choose_steps(state)
        points = state.best_w + steps[:, None] * (end - state.best_w)
        found, *others = yield All([settings.look_at(points, held), *settings.look_for_rounding(state, held)])
        state = settings.take_rounding(state, others)
        state, new = settings.read(state, points, found)
        state = settings.take_move(before, take_best(state, points, steps, found, new))
        state = take_cuts(state, before, new, settings.max_cuts, settings.tol)
        del before, points, found, new, end, others  # otherwise held during the checkpoint and the next step
        yield Step(state, state.progress, cuts.find_status(state, settings.tol))


def take_best(state: Any, points: F64, steps: F64, found: CutTotals, new: RowSums) -> Any:
    """Return the state moved to the best of the points if it lowers P, and with the step for the next pass."""
    moved, best = cuts.move_to_lowest(state, points, found.losses)
    if moved is state:
        return replace(state, step=state.step / 4)
    return replace(moved, slope=-new.vectors[best], step=float(np.clip(steps[best], 0.25, 1.0)))
