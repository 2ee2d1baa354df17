"""The settings and the state of a decomposition, the sums of a pass, and the test of whether a step proved more.

A step is undone if it neither raises the proved value of D nor lowers the proved value of P. The state therefore keeps
the multipliers with the best proof. Multipliers that differ from them only by rounding do not replace them.

A pass computes how the changed multipliers change the sums f of all rows:

    change of f_i = sum_c coef_c k(x_i, z_c)      z_c, the rows whose multipliers a_c changed
                                                  coef_c, the change of a_c y_c

For a linear kernel the changed rows are folded into w = sum_c coef_c z_c, and the change is x_i.w; a precomputed kernel
is folded likewise. A problem with K classes has K sums per row; then each changed row has K coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from streamsvm.certificates.kernel import Proof
from streamsvm.kernels import kernel as kernels
from streamsvm.kernels import precomputed
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rows import F64, I32, Matrix, Rows, compute_scores, slice_rows, take_rows
from streamsvm.passes import ROUNDINGS, Progress, find_status, grows
from streamsvm.solvers.decomposition.hinges import AnyRows, SummedRows, Tube, make_hinges, split_total
from streamsvm.solvers.decomposition.inner_solvers import NO_LIMIT
from streamsvm.system.errors import CertificateError, InputError

FLOAT64_ROWS = 4096  # rows that are held in float64 at once


class Change(NamedTuple):
    """A change of f: either by changed rows, or by these rows folded into weights.

    columns (c, d): the changed rows. coefs: their coefficients, (c,) or (K, c). W: the folded rows, (1, d) or (K, d);
    columns and coefs are then empty. w_error: a bound of the error of each x.w, relative to |x|.
    """

    kernel: kernels.Kernel
    columns: Matrix
    coefs: F64
    W: F64
    w_error: float


def make_change(kernel: kernels.Kernel, columns: Matrix, coefs: F64) -> Change:
    """Return the change of f by the rows `columns`, float64, with the coefficients `coefs`."""
    if kernel.name not in ("linear", precomputed.NAME):
        return Change(kernel, columns, coefs, np.empty((0, 0)), 0.0)
    W, errors = zip(*(kernels.fold_columns(kernel, columns, coef) for coef in np.atleast_2d(coefs)), strict=True)
    return Change(kernel, take_rows(columns, np.empty(0, np.int64)), coefs[..., :0], np.stack(W), max(errors))


def sum_change(change: Change, X: Matrix, threads: int) -> tuple[F64, F64]:
    """Return the change of f of the rows X, (n,) or (n, K), and a bound of the error in each row, (n,)."""
    kernel, columns, coefs, W, w_error = change
    n, has_one = X.shape[0], coefs.ndim == 1
    f, errors = np.zeros((n, *coefs.shape[:-1])), np.zeros(n)
    if W.size and has_one:
        kernels.add_linear_sums(X, W[0], f, threads)
    elif W.size:
        f = compute_scores(X, W)
    elif has_one and coefs.size:
        kernels.add_kernel_sums(kernel, X, columns, coefs, f, threads, errors=errors)
    elif coefs.size:
        for at in range(0, n, FLOAT64_ROWS):
            part = slice(at, min(at + FLOAT64_ROWS, n))
            rows = kernels.to_float64(slice_rows(X, part))
            f[part], errors[part] = kernels.prove_kernel_sums(kernel, rows, columns, coefs, threads)
    return f, kernels.bound_linear_sums(X, w_error) if W.size else errors


class RowSums(NamedTuple):
    """The results of a pass for the rows of a tile, or for all rows. start: the number of the first row.

    f, errors: the changes of f, and bounds of their errors. The first pass also finds y, the label codes or the targets
    of a regression; sample_weight, if the data have it; and longest, the largest |x_i|^2.
    """

    start: int
    f: F64
    errors: F64
    y: I32 | F64 | None = None
    sample_weight: F64 | None = None
    longest: float = 0.0


def join_tiles(tiles: list[RowSums]) -> RowSums:
    """Return the sums of all rows, in row order."""

    def join(parts: Any) -> Any:
        return None if parts[0] is None else np.concatenate(parts)

    _, *columns, longest = zip(*sorted(tiles, key=lambda tile: tile.start), strict=True)
    return RowSums._make((0, *map(join, columns), max(longest)))


def read_y(rows: Rows) -> I32 | F64 | None:
    """Return the targets of the rows, or else the codes of their labels."""
    return rows.y if rows.target is None else rows.target


def add_sums(tiles: list[RowSums], rows: Rows, first: bool, threads: int, *change: Any) -> None:
    """Append a tile's results; the first pass also finds y, weights and lengths. change: the fields of a `Change`."""
    f, errors = sum_change(Change(*change), rows.X, threads)
    if not first:
        tiles.append(RowSums(rows.start, f, errors))
        return
    y, weight = copy(read_y(rows)), copy(rows.sample_weight)
    longest = float(np.max(kernels.compute_squares(rows.X, np.float64), initial=0.0))
    tiles.append(RowSums(rows.start, f, errors, y, weight, longest))


# D counts as risen if its growth exceeds the share LEAST_DUAL_RISE of D and the share LEAST_DUAL_RISE_OF_GAP of the
# gap. If the gap may be only rounding, the growth must also exceed the share LEAST_DUAL_RISE_OF_ROUNDING of the
# rounding bound. The gap counts as fallen if it shrank by more than LEAST_GAP_FALL of itself.
LEAST_DUAL_RISE, LEAST_DUAL_RISE_OF_GAP, LEAST_DUAL_RISE_OF_ROUNDING = 1e-14, 1e-6, 0.1
LEAST_GAP_FALL = 0.01
STUCK_STEPS = 10  # a run ends after this many steps in which D did not rise and the gap did not fall
LARGEST_SUM = 1e150  # the square of this number is still finite in float64
OUT_OF_RANGE = (
    "the training computed numbers beyond the range of float64 ({what}). The dual coefficients or intercepts are not "
    "finite: scale the features to about 1 (ingest --scale), or lower C and the weights of classes and rows"
)
LARGEST_RBF_EXPONENT = 1e4  # gamma (|x|^2 + |z|^2) beyond which float32 has no correct digits of |x - z|
SMALLEST_VALUE, LARGEST_VALUE = 1e-30, 1e30  # the range of k_ii in float32


@dataclass(frozen=True)
class ActiveRowSettings:
    """Settings of a training by active sets.

    class_costs: C_i of each class, in the order of the label codes, before sample weights. tol: the relative duality
    gap. working_rows: the number of rows of a working set. resident_rows, precise_rows: the number of rows of an active
    set in float32, and in float64 (None: the same number). cache_bytes: the memory for kernel columns.
    threads: the number of threads of the driver. pass_threads: the number of threads of each task of a pass, more than
    1 if there are fewer tasks than cores.
    """

    class_costs: tuple[float, ...]
    kernel: kernels.Kernel
    tol: float = 1e-3
    working_rows: int = 1024
    resident_rows: int = 10_000
    precise_rows: int | None = None
    cache_bytes: int = 256 << 20
    threads: int = 1
    pass_threads: int = 1
    seed: int = 0

    @property
    def is_definite(self) -> bool:
        """Whether the kernel is known to be positive semidefinite; otherwise there is no lower bound."""
        return self.kernel.is_definite

    def count_active(self, is_precise: bool) -> int:
        """Return the number of rows of an active set. is_precise: whether the active set is in float64."""
        return self.precise_rows if is_precise and self.precise_rows is not None else self.resident_rows

    def is_small(self, n_rows: int) -> bool:
        """Whether all rows form one working set, which is solved in float64."""
        return n_rows <= min(self.working_rows, self.resident_rows)


@dataclass(frozen=True)
class Decomposition(ActiveRowSettings):
    """Settings of a training of one problem.

    inner: a name in inner_solvers.INNER_SOLVERS; selection: one of working_set.RULES. max_pairs: the maximum number of
    pair steps of SMO.
    tube: epsilon of a regression, whose two class costs are C, or None for a classification. numbers: the target of
    each label code in a regression. nu: the nu of one class (whose class costs are 1), nu-SVC or nu-SVR (whose tube is
    0 here, see hinges.py), or None.
    two_sums: whether the multipliers of each class have a fixed sum, as in nu-SVC.
    """

    inner: str = "smo"
    selection: str = "second-order"
    tube: float | None = None
    numbers: F64 = field(default_factory=lambda: np.empty(0), compare=False)
    nu: float | None = None
    two_sums: bool = False
    max_pairs: int = NO_LIMIT

    def is_small(self, n_rows: int) -> bool:
        """Whether all rows form one working set, which pair steps solve in float64 to the limit of rounding."""
        return self.inner == "smo" and self.selection != "platt" and super().is_small(n_rows)


@dataclass(kw_only=True)
class ProvedState:
    """The part of a state that records what has been proved.

    objective, magnitude: P of the model, and the sum of the magnitudes of its terms.
    lower_bound: the greatest proved lower bound of the optimum, or NaN for an indefinite kernel, which allows none.
    dual: the greatest computed D of any step. rounding_bound: a bound of the rounding errors of P and D.
    dual_error: the part of rounding_bound that belongs to D. tried_bound: the largest rounding bound among the steps
    that were undone since the last progress, or 0.
    least_gap: the least P - D so far. passes: the number of steps so far; each reads all rows once.
    stuck: the number of steps since D last rose or the gap last fell. is_precise: whether active sets are float64.
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
        """P, its lower bound if there is one, and a bound of the rounding errors of both."""
        bound = None if math.isnan(self.lower_bound) else self.lower_bound
        rounding = max(self.rounding_bound, self.tried_bound)
        return Progress(self.objective, bound, self.passes, rounding, taken_off=self.dual_error)

    def prove(self, settings: Any) -> Proof:
        """Return the proof of P and D at the multipliers of the state.

        Raises InputError if numbers exceed the range of float64.
        """
        raise NotImplementedError


S = TypeVar("S", bound=ProvedState)


def move(
    settings: ActiveRowSettings,
    state: S,
    moved: S,
    noisy: bool,
    keeps_dual: bool = True,
    ascends: bool = True,
    proof: Proof | None = None,
) -> tuple[S, Proof]:
    """Return the state after a step, and its proof. The state keeps the old multipliers if the new ones prove no more.

    moved: the state with the new multipliers and their sums. noisy: whether more precise kernel values would help.
    keeps_dual: whether D is compared with the greatest D of earlier steps. ascends: whether the next step continues
    from the new multipliers. If so, a larger P is accepted if D rises; otherwise it is accepted only if the gap is
    halved. proof: the proof of `moved`, if it is known.
    """
    proof, tried_bound = proof or moved.prove(settings), 0.0
    bound = max(state.lower_bound, proof.dual - proof.dual_error) if settings.is_definite else math.nan
    dual_falls = not ascends or proof.dual - proof.rounding_bound < state.dual - state.rounding_bound
    closes_gap = proof.objective - proof.dual + proof.rounding_bound < state.least_gap / 2
    rises = proof.objective + proof.rounding_bound >= state.objective + state.rounding_bound
    if dual_falls and rises and not closes_gap:
        moved, noisy, undone = state, True, proof
        proof, tried_bound = state.prove(settings), undone.rounding_bound
    tried_bound = max(tried_bound, proof.lost, state.tried_bound if state.stuck else 0.0)
    gap = proof.objective - proof.dual
    is_rounded = gap <= ROUNDINGS * max(proof.rounding_bound, tried_bound)
    of_rounding = LEAST_DUAL_RISE_OF_ROUNDING * proof.rounding_bound if is_rounded else 0.0
    rise = max(LEAST_DUAL_RISE * abs(state.dual), LEAST_DUAL_RISE_OF_GAP * gap, of_rounding)
    moves = (keeps_dual and proof.dual > state.dual + rise) or state.least_gap - gap > LEAST_GAP_FALL * abs(gap)
    if bound > proof.objective + proof.objective_error:
        told = f"the lower bound {bound!r} is above the objective {proof.objective!r}"
        raise CertificateError(f"{told}: this is a bug in streamsvm; please report it with the data and command")
    after = replace(
        moved,
        magnitude=proof.magnitude,
        objective=proof.objective,
        lower_bound=bound,
        rounding_bound=proof.rounding_bound,
        dual_error=proof.dual_error,
        tried_bound=0.0 if moves or proof.is_within(settings.tol) else tried_bound,
        dual=max(state.dual, proof.dual) if keeps_dual else proof.dual,
        least_gap=min(gap, state.least_gap),
        passes=state.passes + 1,
        stuck=0 if moves else state.stuck + 1,
        is_precise=state.is_precise or noisy or not moves,
    )
    return after, proof


def find_end(settings: ActiveRowSettings, state: ProvedState) -> str | None:
    """Return the status with which the run ends, or None. decomposition.solver explains the status "stationary"."""
    if settings.is_definite:
        return find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS)
    if state.objective - state.dual + state.rounding_bound <= settings.tol * state.magnitude:
        return "stationary"
    return "stalled" if state.stuck >= STUCK_STEPS else None


@dataclass
class State(ProvedState):
    """All variables of a training on n rows. Checkpoints store the fields by name.

    alpha, f, costs, y: (n,) float64. f does not include the bias; y is -1 or +1; y and costs are known after the first
    pass. errors: (n,), a bound of the error of each f_i. longest: the largest |x_i|^2.
    targets: the targets of a regression, (n,); empty for a classification. width: epsilon. In a regression y is the
    side of each row.
    stretch, bias: the multipliers of the model are stretch * alpha, and its bias is `bias` (see certificates.kernel).
    total: the fixed sum of the multipliers (one class, nu-SVC), the upper bound of their sum (nu-SVR), or 0. With a
    fixed sum, P is 1/2 |w|^2, and D is a lower bound of P (see certificates.kernel).
    pairs: the number of pair steps of SMO so far.
    """

    alpha: F64
    f: F64
    costs: F64
    y: F64
    errors: F64
    bias: float = 0.0
    stretch: float = 1.0
    longest: float = 0.0
    targets: F64 = grows("n")
    width: float = 0.0
    total: float = 0.0
    pairs: int = 0
    added: ClassVar = ("dual_error", "targets", "width", "total", "pairs")

    @property
    def tube(self) -> Tube | None:
        """The tube around the targets; None for labels."""
        return Tube(self.targets, self.width) if len(self.targets) else None

    @property
    def hinges(self) -> AnyRows:
        """The hinges of all rows."""
        totals = None
        if self.total > 0.0:
            totals = split_total(self.total, self.tube is not None or bool(np.any(self.y < 0)))
        return make_hinges(self.y, self.costs, self.alpha, self.f, self.tube, totals)

    def prove(self, settings: Decomposition) -> Proof:
        """Return the proof of P and D."""
        largest = settings.kernel.bound_values(self.longest)
        return self.hinges.prove(self.errors, largest, settings.tol, settings.is_definite)


def start_state(n_rows: int, is_definite: bool = True) -> State:
    """Return the state before any row is read: all multipliers are 0."""
    alpha, f, costs, y, errors = np.zeros((5, n_rows))
    return State(alpha, f, costs, y, errors, lower_bound=0.0 if is_definite else math.nan)


def update_state(
    settings: Decomposition, state: State, moved: State, noisy: bool, ascends: bool = True, proof: Proof | None = None
) -> State:
    """Return `moved`, or `state` if `moved` proves no more; see `move`.

    Raises InputError if numbers exceed the range of float64.
    """
    sizes = {"the costs": moved.costs, "the multipliers": moved.alpha, "the sums f": moved.f}
    require_ranges(sizes | {"their errors": moved.errors, "the targets": moved.targets})
    # With fixed sums, P and D change places. If the kernel is also indefinite, an earlier D may be too high.
    keeps_dual = settings.is_definite or not isinstance(moved.hinges, SummedRows)
    after, proof = move(settings, state, moved, noisy, keeps_dual, ascends, proof)
    return replace(after, y=after.hinges.choose_sides(), bias=proof.bias, stretch=proof.stretch)


def require_ranges(sizes: Mapping[str, F64]) -> None:
    """Raise InputError if, for any of these arrays, the square of the sum of magnitudes may exceed float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        for what, values in sizes.items():
            if not np.abs(values).sum() < LARGEST_SUM:
                raise InputError(OUT_OF_RANGE.format(what=what))


def read_hinges(
    settings: Decomposition, n_rows: int, y: I32 | F64 | None, weight: F64 | None
) -> tuple[F64, F64, Tube | None]:
    """Return y_i, C_i and the tube of rows with the codes or targets `y`. In a regression every y_i is +1 at first."""
    if settings.nu is not None and not settings.two_sums and settings.tube is None:
        return np.ones(n_rows), np.ones(n_rows) if weight is None else np.array(weight, np.float64), None
    assert y is not None
    if settings.tube is None:
        return *read_labels(settings.class_costs, y, weight), None
    targets = np.asarray(y if y.dtype.kind == "f" else settings.numbers[y], np.float64)
    costs = np.full(len(targets), settings.class_costs[0])
    return np.ones(len(targets)), costs if weight is None else costs * weight, Tube(targets, settings.tube)


def require_kernel_range(kernel: kernels.Kernel, longest: float) -> None:
    """Raise InputError if kernel values of rows with |x|^2 up to `longest`, or their sums, may exceed float64."""
    if not max(kernel.bound_values(longest), longest) < LARGEST_SUM:
        raise InputError(OUT_OF_RANGE.format(what=f"kernel values of rows of length {math.sqrt(longest):.1e}"))


def needs_float64(settings: ActiveRowSettings, state: ProvedState, n_rows: int, longest: float) -> bool:
    """Return whether active rows with |x|^2 up to `longest` must be float64."""
    if settings.is_small(n_rows) or state.is_precise or not longest < LARGEST_VALUE:
        return True
    if settings.kernel.name == "rbf":
        return not 2 * settings.kernel.gamma * longest < LARGEST_RBF_EXPONENT
    return not SMALLEST_VALUE < settings.kernel.bound_values(longest) < LARGEST_VALUE
