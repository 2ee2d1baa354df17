"""What a state of decomposition has proved, and whether a step has proved more.

A step is undone if it neither raises the proved value of D nor lowers the proved value of P. So multipliers that differ
by rounding alone do not replace each other, and the best proved multipliers are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from streamsvm.errors import CertificateError
from streamsvm.numeric.certificates import Proof
from streamsvm.requests import ROUNDINGS, Progress, find_status

# D has risen in a step if it grew by these shares of D and of the gap or, if the gap may be rounding alone, by this
# share of the rounding bound. The gap has fallen if it shrank by this share of itself.
LEAST_DUAL_RISE, LEAST_DUAL_RISE_OF_GAP, LEAST_DUAL_RISE_OF_ROUNDING = 1e-14, 1e-6, 0.1
LEAST_GAP_FALL = 0.01
STUCK_STEPS = 10  # a run ends after so many steps in which neither D has risen nor the gap has fallen


@dataclass(kw_only=True)
class ProvedState:
    """The part of a state that tells what was proved.

    objective, magnitude: P of the model, and the sum of the magnitudes of its terms.
    lower_bound: the greatest proved lower bound of the optimum, or NaN for an indefinite kernel, which has none.
    dual: the greatest D of any multipliers as it was computed. rounding_bound: how far rounding can have moved P and D.
    tried_bound: the largest rounding bound of the steps undone since the last progress, or 0. dual_error: the part of
    rounding_bound that belongs to D.
    least_gap: the least P - D so far. passes: steps so far, each of one read of all rows.
    stuck: steps in a row that neither raised D nor lowered the gap. is_precise: active sets are held in float64.
    """

    objective: float = float("inf")
    lower_bound: float = 0.0
    rounding_bound: float = 0.0
    tried_bound: float = 0.0
    dual: float = 0.0
    magnitude: float = 0.0
    least_gap: float = float("inf")
    passes: int = 0
    stuck: int = 0
    is_precise: bool = False
    dual_error: float = 0.0

    @property
    def progress(self) -> Progress:
        """P, its lower bound if there is one, and the most by which rounding can have moved both."""
        bound = None if math.isnan(self.lower_bound) else self.lower_bound
        rounding = max(self.rounding_bound, self.tried_bound)
        return Progress(self.objective, bound, self.passes, rounding, taken_off=self.dual_error)


S = TypeVar("S", bound=ProvedState)


def move(
    state: S,
    moved: S,
    prove: Callable[[S], Proof],
    tol: float,
    *,
    is_definite: bool,
    noisy: bool,
    keeps_dual: bool = True,
    ascends: bool = True,
) -> tuple[S, Proof]:
    """Return the state at new multipliers, or at the old ones if the new ones prove no more, and its proof.

    moved: the state with the new multipliers and their sums. is_definite: whether D is a lower bound. noisy: whether
    kernel values of more digits would help. keeps_dual: whether the greatest D of earlier steps is compared with.
    ascends: whether the next step goes on from the new multipliers, so that a larger P may be accepted for a higher D.
    """
    proof, tried_bound = prove(moved), 0.0
    bound = max(state.lower_bound, proof.dual - proof.dual_error) if is_definite else math.nan
    dual_falls = not ascends or proof.dual - proof.rounding_bound < state.dual - state.rounding_bound
    if dual_falls and proof.objective + proof.rounding_bound >= state.objective + state.rounding_bound:
        moved, noisy, undone = state, True, proof
        proof, tried_bound = prove(state), undone.rounding_bound
    tried_bound = max(tried_bound, proof.lost, state.tried_bound if state.stuck else 0.0)
    gap = proof.objective - proof.dual
    is_rounded = gap <= ROUNDINGS * max(proof.rounding_bound, tried_bound)
    moves = _has_progressed(state.dual if keeps_dual else math.inf, state.least_gap, proof, gap, is_rounded)
    if bound > proof.objective + proof.objective_error:
        told = f"the lower bound {bound!r} is above the objective {proof.objective!r}"
        raise CertificateError(f"{told}: this is a fault of streamsvm; please report it")
    after = replace(
        moved,
        magnitude=proof.magnitude,
        objective=proof.objective,
        lower_bound=bound,
        rounding_bound=proof.rounding_bound,
        dual_error=proof.dual_error,
        tried_bound=0.0 if moves or proof.is_within(tol) else tried_bound,
        dual=max(state.dual, proof.dual) if keeps_dual else proof.dual,
        least_gap=min(gap, state.least_gap),
        passes=state.passes + 1,
        stuck=0 if moves else state.stuck + 1,
        is_precise=state.is_precise or noisy or not moves,
    )
    return after, proof


def _has_progressed(dual: float, least_gap: float, proof: Proof, gap: float, is_rounded: bool) -> bool:
    """Whether D has risen above `dual` or the gap has fallen. is_rounded: whether the gap may be rounding alone."""
    rise = max(
        LEAST_DUAL_RISE * abs(dual),
        LEAST_DUAL_RISE_OF_GAP * gap,
        LEAST_DUAL_RISE_OF_ROUNDING * proof.rounding_bound if is_rounded else 0.0,
    )
    return proof.dual > dual + rise or least_gap - gap > LEAST_GAP_FALL * abs(gap)


def find_end(state: ProvedState, tol: float, is_definite: bool) -> str | None:
    """Return why the run ends after this step, or None if it goes on. See decomposition.solver for "stationary"."""
    if is_definite:
        return find_status(state.progress, tol, state.stuck, STUCK_STEPS)
    if state.objective - state.dual + state.rounding_bound <= tol * state.magnitude:
        return "stationary"
    return "stalled" if state.stuck >= STUCK_STEPS else None
