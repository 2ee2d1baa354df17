"""The settings of a decomposition, and what follows from them and from single rows alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from streamsvm.errors import InputError
from streamsvm.methods.decomposition.nu_tube import Tube
from streamsvm.methods.decomposition.state import LARGEST_SUM, OUT_OF_RANGE
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I32

LARGEST_RBF_EXPONENT = 1e4  # gamma (|x|^2 + |z|^2) beyond which float32 has no digits of |x - z|
SMALLEST_VALUE, LARGEST_VALUE = 1e-30, 1e30  # of k_ii in float32


@dataclass(frozen=True)
class Decomposition:
    """Settings of a training.

    class_costs: C_i of the classes coded 0 and 1, before sample weights. tol: the relative duality gap.
    tube: epsilon of a regression, whose two class costs are C, or None for a classification. numbers: the targets that
    codes of labels stand for in a regression. nu: of one class, whose class costs are 1, of nu-SVC, and of nu-SVR,
    whose tube is 0 here (nu_tube.py); else None.
    two_sums: of nu-SVC, which has labels; the multipliers of each of its classes have a fixed sum.
    inner: a name of active_set.INNER_SOLVERS; selection: one of selection.RULES. max_pairs: the most pair steps
    of SMO, or None for no limit.
    working_rows: rows of a working set. resident_rows: rows of an active set; precise_rows: rows of an active set in
    float64, or None for as many. cache_bytes: memory for kernel columns.
    threads: of the driver; pass_threads: of each task of a pass, more than 1 if there are fewer tasks than cores.
    """

    class_costs: tuple[float, float]
    kernel: Kernel
    inner: str = "smo"
    selection: str = "second-order"
    tol: float = 1e-3
    working_rows: int = 1024
    resident_rows: int = 10_000
    cache_bytes: int = 256 << 20
    threads: int = 1
    pass_threads: int = 1
    seed: int = 0
    precise_rows: int | None = None
    tube: float | None = None
    numbers: F64 = field(default_factory=lambda: np.empty(0), compare=False)
    nu: float | None = None
    two_sums: bool = False
    max_pairs: int | None = None


def takes_pairs_only(settings: Decomposition) -> bool:
    """Whether working sets may keep two sums, so that only pair steps solve them."""
    return settings.nu is not None and (settings.two_sums or settings.tube is not None)


def is_small(settings: Decomposition, n_rows: int) -> bool:
    """Whether all rows make one working set of pair steps, which are then solved in float64, to its rounding."""
    most = min(settings.working_rows, settings.resident_rows)
    return settings.inner == "smo" and settings.selection != "platt" and n_rows <= most


def read_hinges(
    settings: Decomposition, n_rows: int, y: I32 | F64 | None, weight: F64 | None
) -> tuple[F64, F64, Tube | None]:
    """Return y_i, C_i and the tube of rows whose codes or targets are `y`; the sides of a regression are not chosen."""
    if settings.nu is not None and not settings.two_sums and settings.tube is None:
        return np.ones(n_rows), np.ones(n_rows) if weight is None else np.array(weight, np.float64), None
    assert y is not None
    if settings.tube is None:
        return *read_labels(settings.class_costs, y, weight), None
    targets = np.asarray(y if y.dtype.kind == "f" else settings.numbers[y], np.float64)
    costs = np.full(len(targets), settings.class_costs[0])
    return np.ones(len(targets)), costs if weight is None else costs * weight, Tube(targets, settings.tube)


def require_kernel_range(kernel: Kernel, longest: float) -> None:
    """Raise InputError if float64 does not hold kernel values, and their sums, of rows with |x|^2 up to `longest`."""
    if not max(kernel.bound_values(longest), longest) < LARGEST_SUM:
        raise InputError(OUT_OF_RANGE.format(what=f"kernel values of rows of length {math.sqrt(longest):.1e}"))


def suits_float32(kernel: Kernel, longest: float) -> bool:
    """Whether float32 holds the kernel values of rows with |x|^2 up to `longest`."""
    if kernel.name == "rbf":
        return 2 * kernel.gamma * longest < LARGEST_RBF_EXPONENT and longest < LARGEST_VALUE
    return longest < LARGEST_VALUE and SMALLEST_VALUE < kernel.bound_values(longest) < LARGEST_VALUE
