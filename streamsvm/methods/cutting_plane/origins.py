"""The points at which the cuts of a pass were made, read from the solver's request and the totals that answer it.

The origin of a cut is a segment of weight vectors and a step on it; both ends of the segment are equal if the cut was
made at a point. With the origins and the multipliers of the master problem anyone can form the dual point behind a
lower bound anew (numeric.dual_points).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamsvm.methods.cutting_plane import beside, block_ascent, one_read_state
from streamsvm.methods.cutting_plane.cuts import CutState
from streamsvm.methods.cutting_plane.master_problem import bound_dual
from streamsvm.methods.cutting_plane.point_cuts import PointTotals, read_cuts
from streamsvm.methods.cutting_plane.segments import SegmentTotals, list_cuts
from streamsvm.numeric.own_shares import NONE, OfCut
from streamsvm.numeric.rows import F64
from streamsvm.requests import Scan


class Origin(NamedTuple):
    """A cut as the solver adds it to its master problem, and where it was made. Vectors are (width,).

    cut, offset: a_c and b_c; start, end, step: the cut was made at (1 - step) start + step end; own: the rows that have
    a share of their own in it.
    """

    cut: F64
    offset: float
    start: F64
    end: F64
    step: float
    own: OfCut = NONE


def list_origins(request: Any, answer: Any) -> Iterator[Origin]:
    """Yield the origins of all cuts that a pass has on offer; nothing if it makes no cuts."""
    if not isinstance(request, Scan):
        return
    if isinstance(answer, SegmentTotals):
        ends, _, cut_steps, _ = request.shared
        cuts = list_cuts(answer)
        yield Origin(cuts.vectors[0], float(cuts.offsets[0]), ends[0], ends[0], 1.0)
        for k, step in enumerate(cut_steps.tolist(), start=1):
            yield Origin(cuts.vectors[k], float(cuts.offsets[k]), ends[0], ends[1], step)
    elif isinstance(answer, PointTotals):
        cuts = read_cuts(answer)
        for w, cut, offset in zip(request.shared[0], cuts.vectors, cuts.offsets, strict=True):
            yield Origin(cut, float(offset), w, w, 1.0)


def list_proved(state: Any) -> Iterator[Origin]:
    """Yield the origins of cuts that a solver has made of rows in memory: the last cut of one read."""
    for one in list_states(state):
        if isinstance(one, one_read_state.State):
            own = OfCut(one.own_rows, one.own_shares)
            yield Origin(one.cuts[-1], float(one.offsets[-1]), one.centre, one.centre, 1.0, own)


def list_states(state: Any) -> list[CutState]:
    """Return the states that hold cuts: one, or two if two solvers run side by side."""
    return list(state.states) if isinstance(state, beside.State) else [state]


class Certificate(NamedTuple):
    """A state and multipliers z (m,) of its cuts, which give a lower bound."""

    state: CutState
    z: F64

    @property
    def bound(self) -> float:
        """The lower bound, from which its rounding bound is subtracted."""
        if isinstance(self.state, block_ascent.State):
            return self.state.lower_bound
        if not self.z.any():
            return 0.0
        value, rounding = bound_dual(self.state, self.z)
        return value - rounding


def find_certificate(state: Any) -> Certificate:
    """Return the certificate with the highest lower bound at the end of a step."""
    found = [
        Certificate(one, one.proof if isinstance(one, one_read_state.State) else one.z) for one in list_states(state)
    ]
    return max(found, key=lambda one: one.bound)


def read_shares(found: Certificate) -> F64 | None:
    """Return the share of every row, (n,), or None if the state does not hold it and the cuts' origins are needed."""
    return found.state.proved if isinstance(found.state, block_ascent.State) else None
