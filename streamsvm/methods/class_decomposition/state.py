"""The settings and the state of Crammer-Singer with kernels, and the proof of its objectives after each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from streamsvm.methods.class_decomposition.row_steps import judge_rows
from streamsvm.methods.decomposition.proved_state import ProvedState, move
from streamsvm.methods.decomposition.state import require_range
from streamsvm.numeric.certificates import Proof
from streamsvm.numeric.class_certificates import prove_classes
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import F64, I32


@dataclass(frozen=True)
class ClassDecomposition:
    """Settings of a training.

    class_costs: C_i of the K classes, before sample weights. bias_feature: the constant feature s whose weights are the
    biases; the kernel is k(x, z) + s^2. tol: the relative duality gap. working_rows: rows of a working set.
    resident_rows: rows of an active set; precise_rows: rows of an active set in float64. cache_bytes: memory for kernel
    columns. threads: of the driver; pass_threads: of each task of a pass.
    """

    class_costs: tuple[float, ...]
    kernel: Kernel
    bias_feature: float = 1.0
    tol: float = 1e-3
    working_rows: int = 1024
    resident_rows: int = 10_000
    precise_rows: int = 10_000
    cache_bytes: int = 256 << 20
    threads: int = 1
    pass_threads: int = 1
    seed: int = 0

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_costs)

    @property
    def constant(self) -> float:
        """The part s^2 of each kernel value."""
        return self.bias_feature**2

    @property
    def is_definite(self) -> bool:
        """Whether k + s^2 is positive semidefinite for certain."""
        return self.kernel.is_definite and not (self.kernel.name == "poly" and self.kernel.coef0 < 0.0)

    def bound_values(self, longest: float) -> float:
        """Return the greatest |k(x, z) + s^2| of rows with |x|^2 and |z|^2 up to `longest`."""
        return self.kernel.bound_values(longest) + self.constant


@dataclass
class State(ProvedState):
    """All that changes during a training, of n rows. A checkpoint holds the fields by their names.

    share (n, K): c_ik, and s_i for k = y_i (numeric.class_shares). F (n, K): the sums of all rows, with the constant.
    errors (n,): a bound of the error of each F_ik. y, costs (n,): known after the first pass. longest: the largest
    |x_i|^2.
    """

    share: F64
    F: F64
    errors: F64
    y: I32
    costs: F64
    longest: float = 0.0

    def judge(self) -> tuple[F64, F64]:
        """Return the violations, and by how much the best class of each row is ahead, (n,); see `judge_rows`."""
        violations, ahead = np.empty((2, len(self.y)))
        judge_rows(np.ascontiguousarray(self.F.T), self.y, self.costs, self.share, violations, ahead)
        return violations, ahead


def start_state(n_rows: int, n_classes: int) -> State:
    """Return the state before any row is read: no row has a share."""
    share, F = np.zeros((2, n_rows, n_classes))
    errors, costs = np.zeros((2, n_rows))
    return State(share, F, errors, np.zeros(n_rows, np.int32), costs)


def update_state(settings: ClassDecomposition, state: State, moved: State, noisy: bool) -> State:
    """Return `moved`, or the state if it proves no more. noisy: whether kernel values of more digits would help."""
    prove = partial(prove_state, settings)
    return move(state, moved, prove, settings.tol, is_definite=settings.is_definite, noisy=noisy)[0]


def prove_state(settings: ClassDecomposition, state: State) -> Proof:
    """Return the proof of P and D; InputError for numbers beyond the range of float64."""
    sizes = {"the costs": state.costs, "the sums f": state.F, "their errors": state.errors}
    for what, values in sizes.items():
        require_range(values, what)
    largest = settings.bound_values(state.longest)
    return prove_classes(state.share, state.y, state.costs, state.F, state.errors, largest, settings.is_definite)
