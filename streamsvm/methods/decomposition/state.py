"""The state of a kernel SVM's decomposition, and the proof of its objectives after each step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.decomposition.fixed_sums import SummedRows, split_total
from streamsvm.methods.decomposition.nu_tube import NuTubeRows, Tube
from streamsvm.methods.decomposition.proved_state import ProvedState, move
from streamsvm.methods.decomposition.tube import AnyRows, Hinges, choose_sides
from streamsvm.numeric.certificates import Proof
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64

LARGEST_SUM = 1e150  # the square of this number is still a float64
OUT_OF_RANGE = (
    "numbers beyond the range of float64 ({what}). The dual coefficients or intercepts are not finite: scale the "
    "features to about 1 (ingest --scale), or lower C and the weights"
)


@dataclass
class State(ProvedState):
    """All that changes during a training, of n rows. A checkpoint holds the fields by their names.

    alpha, f, costs, y: (n,) float64. f has no bias in it; y is -1 or +1; y and costs are known after the first pass.
    targets, width: (n,), the targets of a regression, empty for labels, and epsilon; y then is the side of each row.
    errors: (n,), a bound of the error of each f_i.
    stretch, bias: the model is `stretch` times the multipliers, and `bias` (see numeric.certificates).
    longest: the largest |x_i|^2.
    total: the sum that the multipliers of one class and of nu-SVC are to have, and the
    most that those of nu-SVR may have, otherwise 0. Of the former P is 1/2 |w|^2, and D a bound of
    it (see numeric.fixed_sum_certificates).
    pairs: the pair steps of SMO so far.
    """

    alpha: F64
    f: F64
    costs: F64
    y: F64
    errors: F64
    bias: float = 0.0
    stretch: float = 1.0
    longest: float = 0.0
    targets: F64 = field(default_factory=lambda: np.empty(0))
    width: float = 0.0
    total: float = 0.0
    pairs: int = 0
    added: ClassVar = ("dual_error", "targets", "width", "total", "pairs")
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
    # P and D of fixed sums have changed places, and without definiteness D may be too high on the way
    keeps_dual = kernel.is_definite or not isinstance(moved.hinges, SummedRows)
    prove = partial(_prove, kernel=kernel, tol=tol)
    after, proof = move(
        state, moved, prove, tol, is_definite=kernel.is_definite, keeps_dual=keeps_dual, noisy=noisy, ascends=ascends
    )
    return replace(after, y=choose_sides(after.hinges), bias=proof.bias, stretch=proof.stretch)


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
