"""The state of a kernel SVM's decomposition, and the proof of its objectives after each step.

A step is undone if it neither raises the proved value of D nor lowers the proved value of P. So multipliers that differ
by rounding alone do not replace each other, and the best proved multipliers are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from streamsvm.errors import CertificateError, InputError
from streamsvm.methods.decomposition.fixed_sums import SummedRows, split_total
from streamsvm.methods.decomposition.nu_tube import NuTubeRows, Tube
from streamsvm.methods.decomposition.tube import AnyRows, Hinges, choose_sides
from streamsvm.numeric.certificates import Proof
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64
from streamsvm.requests import ROUNDINGS, Progress

# D has risen in a step if it grew by these shares of D and of the gap or, if the gap may be rounding alone, by this
# share of the rounding bound. The gap has fallen if it shrank by this share of itself.
LEAST_DUAL_RISE, LEAST_DUAL_RISE_OF_GAP, LEAST_DUAL_RISE_OF_ROUNDING = 1e-14, 1e-6, 0.1
LEAST_GAP_FALL = 0.01
LARGEST_SUM = 1e150  # the square of this number is still a float64
OUT_OF_RANGE = (
    "numbers beyond the range of float64 ({what}). The dual coefficients or intercepts are not finite: scale the "
    "features to about 1 (ingest --scale), or lower C and the weights"
)


@dataclass
class State:
    """All that changes during a training, of n rows. A checkpoint holds the fields by their names.

    alpha, f, costs, y: (n,) float64. f has no bias in it; y is -1 or +1; y and costs are known after the first pass.
    targets, width: (n,), the targets of a regression, empty for labels, and epsilon; y then is the side of each row.
    errors: (n,), a bound of the error of each f_i.
    stretch, bias: the model is `stretch` times the multipliers, and `bias` (see numeric.certificates).
    objective, magnitude: P of the model, and the sum of the magnitudes of its terms.
    lower_bound: the greatest proved lower bound of the optimum, or NaN for an indefinite kernel, which has none.
    dual: the greatest D of any multipliers as it was computed. rounding_bound: how far rounding can have moved P and D.
    tried_bound: the largest rounding bound of the steps undone since the last progress, or 0. dual_error: the part of
    rounding_bound that belongs to D.
    least_gap: the least P - D so far. longest: the largest |x_i|^2. passes: steps so far, each of one read of all rows.
    stuck: steps in a row that neither raised D nor lowered the gap. is_precise: active sets are held in float64.
    total: the sum that the multipliers of one class and of nu-SVC are to have, and the
    most that those of nu-SVR may have, otherwise 0. Of the former P is 1/2 |w|^2, and D a bound of
    it (see numeric.fixed_sum_certificates).
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
    dual_error: float = 0.0
    targets: F64 = field(default_factory=lambda: np.empty(0))
    width: float = 0.0
    total: float = 0.0
    added: ClassVar = ("dual_error", "targets", "width", "total")
    shapes: ClassVar = {"targets": ("n",)}

    @property
    def tube(self) -> Tube | None:
        """The tube around the targets; None for labels."""
        return Tube(self.targets, self.width) if len(self.targets) else None

    @property
    def hinges(self) -> AnyRows:
        """The hinges of all rows."""
        if self.total > 0.0 and self.tube is not None:
            totals = split_total(self.total, two_sums=True)
            return NuTubeRows(self.y, self.costs, self.alpha, self.f, self.tube, totals)
        if self.total > 0.0:
            totals = split_total(self.total, bool(np.any(self.y < 0)))
            return SummedRows(self.y, self.costs, self.alpha, self.f, totals)
        return Hinges(self.y, self.costs, self.alpha, self.f, self.tube)

    @property
    def progress(self) -> Progress:
        """P, its lower bound if there is one, and the most by which rounding can have moved both."""
        bound = None if math.isnan(self.lower_bound) else self.lower_bound
        rounding = max(self.rounding_bound, self.tried_bound)
        return Progress(self.objective, bound, self.passes, rounding, taken_off=self.dual_error)


def start_state(n_rows: int) -> State:
    """Return the state before any row is read: all multipliers are 0."""
    alpha, f, costs, y, errors = np.zeros((5, n_rows))
    return State(alpha, f, costs, y, errors)


def update_state(
    state: State,
    kernel: Kernel,
    tol: float,
    *,
    y: F64,
    alpha: F64,
    f: F64,
    errors: F64,
    noisy: bool,
    ascends: bool = True,
) -> State:
    """Return the state at the new multipliers, or at the old ones if the new ones prove no more.

    y, alpha, f, errors: (n,), the sides and the new multipliers, their sums, and a bound of the errors of the sums.
    noisy: whether kernel values of more digits would help.
    ascends: whether the next step goes on from the new multipliers, so that a larger P may be accepted for a higher D.
    """
    moved = replace(state, y=y, alpha=alpha, f=f, errors=errors)
    proof, tried_bound = _prove(moved, kernel, tol), 0.0
    bound = max(state.lower_bound, proof.dual - proof.dual_error) if kernel.is_definite else math.nan
    dual_falls = not ascends or proof.dual - proof.rounding_bound < state.dual - state.rounding_bound
    if dual_falls and proof.objective + proof.rounding_bound >= state.objective + state.rounding_bound:
        moved, noisy, undone = state, True, proof
        proof, tried_bound = _prove(state, kernel, tol), undone.rounding_bound
    tried_bound = max(tried_bound, proof.lost, state.tried_bound if state.stuck else 0.0)
    gap = proof.objective - proof.dual
    is_rounded = gap <= ROUNDINGS * max(proof.rounding_bound, tried_bound)
    # P and D of fixed sums have changed places, and without definiteness D may be too high on the way
    keeps_dual = kernel.is_definite or not isinstance(moved.hinges, SummedRows)
    moves = _has_progressed(state if keeps_dual else replace(state, dual=math.inf), proof, gap, is_rounded)
    if bound > proof.objective + proof.objective_error:
        told = f"the lower bound {bound!r} is above the objective {proof.objective!r}"
        raise CertificateError(f"{told}: this is a fault of streamsvm; please report it")
    return replace(
        moved,
        y=choose_sides(moved.hinges),
        bias=proof.bias,
        stretch=proof.stretch,
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


def _has_progressed(state: State, proof: Proof, gap: float, is_rounded: bool) -> bool:
    """Whether D has risen or the gap has fallen. is_rounded: whether the gap may be rounding alone."""
    rise = max(
        LEAST_DUAL_RISE * abs(state.dual),
        LEAST_DUAL_RISE_OF_GAP * gap,
        LEAST_DUAL_RISE_OF_ROUNDING * proof.rounding_bound if is_rounded else 0.0,
    )
    return proof.dual > state.dual + rise or state.least_gap - gap > LEAST_GAP_FALL * abs(gap)


def _prove(state: State, kernel: Kernel, tol: float) -> Proof:
    sizes = {"the costs": state.costs, "the multipliers": state.alpha, "the sums f": state.f}
    sizes |= {"their errors": state.errors, "the targets": state.targets}
    for what, values in sizes.items():
        require_range(values, what)
    largest = kernel.bound_values(state.longest)
    return state.hinges.prove(state.errors, largest, tol, kernel.is_definite)


def require_range(values: F64, what: str) -> None:
    """InputError if the sum of the magnitudes of `values` is too large for float64 to hold its square."""
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.sum(np.abs(values)))
    if not size < LARGEST_SUM:
        raise InputError(OUT_OF_RANGE.format(what=what))
