"""The state of a kernel SVM's decomposition, and what it proves after a step.

A step is taken back where it proves no more than the state before: neither a higher bound of D nor a lower P. So
multipliers that only rounding tells apart do not replace each other, and the best that is proved is what is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from streamsvm.errors import CertificateError, InputError
from streamsvm.numeric.certificates import Proof, prove
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64
from streamsvm.requests import ROUNDINGS, Progress

RISE, GAP_RISE = 1e-14, 1e-6  # of D, as shares of itself and of the gap: less is none
ROUNDED_RISE = 0.1  # times the rounding bound: a rise of less is none, where rounding may be all that is left
GAP_FALL = 0.01
LARGEST = 1e150  # its square can be computed
OUT_OF_RANGE = (
    "numbers beyond the range of float64 ({what}): scale the features to about 1 (ingest --scale), or lower C and the "
    "weights"
)


@dataclass
class State:
    """All that changes. alpha, f (no bias), costs, y (-1 or +1): (n,) float64; y and costs are known after a pass.

    errors: (n,), how far f can be off. The model is `stretch` times the multipliers, and the bias. lower_bound: NaN
    where the kernel has none; dual: D of the multipliers as it was computed; magnitude: of the terms of P.
    tried_bound: rounding of points that were given up for the one before since the last progress, or 0.
    longest: the largest |x|^2. is_precise: active sets are held in float64.
    """

    alpha: F64
    f: F64
    costs: F64
    y: F64
    errors: F64
    bias: float = 0.0
    stretch: float = 1.0
    objective: float = float("inf")
    lower_bound: float = 0.0
    rounding_bound: float = 0.0
    tried_bound: float = 0.0
    dual: float = 0.0
    magnitude: float = 0.0
    least_gap: float = float("inf")
    longest: float = 0.0
    passes: int = 0
    stuck: int = 0
    is_precise: bool = False

    @property
    def progress(self) -> Progress:
        """P, its lower bound if there is one, and what rounding can have done."""
        bound = None if math.isnan(self.lower_bound) else self.lower_bound
        return Progress(self.objective, bound, self.passes, max(self.rounding_bound, self.tried_bound))


def start_state(n_rows: int) -> State:
    """Return the state before any row is read: all multipliers 0."""
    alpha, f, costs, y, errors = np.zeros((5, n_rows))
    return State(alpha, f, costs, y, errors)


def update_state(
    state: State, kernel: Kernel, tol: float, alpha: F64, f: F64, errors: F64, noisy: bool, ascends: bool = True
) -> State:
    """Return the state with new multipliers and sums, and what they prove; with the old ones if that is no more.

    errors: how far f can be off, (n,); noisy: whether kernel values of more digits would help; ascends: whether steps
    go on from the new multipliers, so that a P that is larger for a while does no harm.
    """
    proof, tried_bound = _prove(state, kernel, tol, alpha, f, errors), 0.0
    bound = max(state.lower_bound, proof.dual - proof.dual_error) if kernel.is_definite else math.nan
    falls = not ascends or proof.dual - proof.rounding_bound < state.dual - state.rounding_bound
    if falls and proof.objective + proof.rounding_bound >= state.objective + state.rounding_bound:
        alpha, f, errors, noisy, tried = state.alpha, state.f, state.errors, True, proof
        proof, tried_bound = _prove(state, kernel, tol, alpha, f, errors), tried.rounding_bound
    tried_bound = max(tried_bound, proof.lost, state.tried_bound if state.stuck else 0.0)
    gap = proof.objective - proof.dual
    is_rounded = gap <= ROUNDINGS * max(proof.rounding_bound, tried_bound)
    rise = max(RISE * abs(state.dual), GAP_RISE * gap, ROUNDED_RISE * proof.rounding_bound if is_rounded else 0.0)
    moves = proof.dual > state.dual + rise or state.least_gap - gap > GAP_FALL * abs(gap)
    if bound > proof.objective + proof.objective_error:
        told = f"the lower bound {bound!r} is above the objective {proof.objective!r}"
        raise CertificateError(f"{told}: a fault of streamsvm; please report it")
    return replace(
        state, alpha=alpha, f=f, errors=errors, bias=proof.bias, stretch=proof.stretch, objective=proof.objective,
        lower_bound=bound, rounding_bound=proof.rounding_bound, dual=max(state.dual, proof.dual),
        tried_bound=0.0 if moves or proof.is_within(tol) else tried_bound, magnitude=proof.magnitude,
        least_gap=min(gap, state.least_gap), passes=state.passes + 1, stuck=0 if moves else state.stuck + 1,
        is_precise=state.is_precise or noisy or not moves,
    )  # fmt: skip


def _prove(state: State, kernel: Kernel, tol: float, alpha: F64, f: F64, errors: F64) -> Proof:
    sizes = {"the costs": state.costs, "the multipliers": alpha, "the sums f": f, "their errors": errors}
    for what, values in sizes.items():
        require_range(values, what)
    largest = kernel.bound_values(state.longest)
    return prove(state.y, state.costs, alpha, f, errors, largest, tol, kernel.is_definite)


def require_range(values: F64, what: str) -> None:
    """InputError where the sum of their magnitudes is beyond what float64 can hold with room to spare."""
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.sum(np.abs(values)))
    if not size < LARGEST:
        raise InputError(OUT_OF_RANGE.format(what=what))
