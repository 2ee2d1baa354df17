"""The requests and steps that a solver yields; a solver is a generator.

The engine sends the answer to each request back to the solver. A solver never reads data; an engine does, in this
process or on a cluster. A solver can therefore be tested without data or an engine, and runs unchanged on every engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import Rows
from streamsvm.system.errors import CertificateError, InputError

ROUNDINGS = 10.0  # a gap of up to this many rounding bounds may be due to rounding alone
MORE_PATIENCE = 10  # a run whose gap is larger may take this many times as many steps without progress


@dataclass(frozen=True)
class Subset:
    """A subset of the rows: choose(rows, *shared) returns the ascending positions of its rows in a tile.

    A solver uses the same subset in all its passes.
    """

    choose: Callable[..., npt.NDArray[np.int64]]
    shared: tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """A change of a row state: apply(numbers, rows, *given) returns the new numbers, (k, n).

    `apply` does not modify its arguments. Before the first change, numbers is None. of_features: whether `apply` needs
    the features of the rows. `apply` is importable by name, because workers import it.
    """

    apply: Callable[..., npt.NDArray[np.float64]]
    given: tuple[Any, ...] = ()
    of_features: bool = True


@dataclass(frozen=True)
class RowState:
    """Numbers that a process stores for every row it reads: an array (k, n) for the n rows of a tile.

    The rows and all changes since the start of the run determine these numbers. A process may lack them because it
    joined late, replaces a lost process, or resumes a run. It then repeats all changes and obtains the same bits.

    Parameters
    ----------
    name
        A unique name.
    changes
        All changes since the start of the run, in order.
    altering
        A range of positions in `Scan.by_row`. The slices of these arrays for the rows of a tile are the last arguments
        of each change that needs the features of the rows.
    """

    name: str
    changes: Sequence[Change]
    altering: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Scan:
    """A pass: totals = start(); add(totals, rows, *shared, *slices) for all rows; combine(left, right).

    The rows of a group of chunks are added, tile by tile and in place, to the totals of the group. The totals of the
    groups are combined in a fixed tree, so every engine returns the same bits. The answer is the combined totals.

    Parameters
    ----------
    start
        Returns empty totals. Like the other two functions, it is importable by name, because workers import it.
    add
        Adds the rows of a tile to totals in place. It gets `shared`, the slices of `by_row` for the rows, and the row
        states.
    combine
        Returns the totals of two groups as a new object; it does not modify its arguments, which may be used again.
    shared
        Arrays that are sent to every task.
    by_row
        Arrays with one entry for each row of the source.
    weights
        Weight vectors W, (k, at least d), whose scores X W' `add` needs. If several passes are merged, their scores are
        computed together, and `rows.scores` holds the scores for this pass; otherwise `add` computes them.
    held
        The first rows of the source, which the solver holds in memory; an engine need not read them again. If several
        scans run together, only one of them needs to supply these rows.
    apart
        A subset of the rows that later passes will request. In each tile, `rows.chosen` gives the positions of the rows
        in this subset. An engine may copy these rows to files that are faster to read.
    among
        The subset of the rows that the pass covers. A tile holds the chosen rows of a tile of the source, with their
        numbers, and without qid and target. The bits of the answer do not depend on where the rows are read from.
    rest
        If `among` is given, the totals of all rows outside the subset; they are combined with the totals of the subset.
    states
        The row states. Their changes are applied before the rows are added.
    of_states
        Whether the pass needs only the row states. If so, `rows` has no features and covers several tiles, and chunks
        are read only if row states are missing.
    """

    start: Callable[[], Any]
    add: Callable[..., None]
    combine: Callable[[Any, Any], Any]
    shared: tuple[Any, ...] = ()
    by_row: tuple[npt.NDArray[Any], ...] = ()
    weights: npt.NDArray[np.float64] | None = None
    held: Rows | None = None
    apart: Subset | None = None
    among: Subset | None = None
    rest: Any = None
    states: tuple[RowState, ...] = ()
    of_states: bool = False


@dataclass
class RowTotals:
    """Totals over rows. The sum of two totals adds each field, unless `joined` has another function for the field."""

    joined: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {}

    def __add__(self, other: Self) -> Self:
        """Return the totals of both groups as a new object."""
        pairs = {name: (value, getattr(other, name)) for name, value in vars(self).items()}
        with np.errstate(over="ignore", invalid="ignore"):  # Solvers end a run if numbers are not finite.
            return replace(self, **{name: self.joined.get(name, add)(*pair) for name, pair in pairs.items()})


def add_each(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Return the sums of the totals in two lists, as a new list."""
    return [a + b for a, b in zip(left, right, strict=True)]


def count_additions(left: int, right: int) -> int:
    """Return the largest number of additions on a term when the sums of two groups are added."""
    return max(left, right) + 1


@dataclass(frozen=True)
class Take:
    """The rows with these numbers, in this order. The answer is one `Rows`."""

    rows: npt.NDArray[np.int64]


WalkStep = Callable[[Any, Rows], Iterator[tuple[Any, int]]]
Order = Sequence[Sequence[int]]  # groups of chunks


@dataclass(frozen=True)
class Walk:
    """Walks that run side by side; each visits groups of chunks in sequence and hands a carry from group to group.

    Walk k starts with carries[k] and visits the groups of chunks in orders[k]. The chunks of a group are read whole, as
    one `Rows`, while the next group is read ahead. step(carry, rows) yields the carry after each part of the rows, and
    the number of rows in this part; the walk can be abandoned after each part. The last carry of a group goes to the
    `step` of the next group. `step` modifies neither of its arguments. The answer is the list of the last carries.

    before, after: if the walks are only a part of a pass, the rest of each order. They serve to report the progress.
    """

    step: WalkStep
    carries: Sequence[Any]
    orders: Sequence[Order]
    before: Sequence[Order] = ()
    after: Sequence[Order] = ()


@dataclass(frozen=True)
class All:
    """Several requests, carried out in one read of the data where possible. The answer is the list of their answers.

    in_walk: whether the walk among the requests also computes the passes. Their sums are then formed in the order of
    the walk.
    """

    requests: Sequence[Scan | Take | Walk | All]
    in_walk: bool = False


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a fit needs in addition to chunks, from which an engine estimates the memory of a process.

    Parameters
    ----------
    driver_bytes
        Memory of the process of the solver, including the arrays that it sends to tasks.
    turn_bytes
        The part of driver_bytes that is used only during the computation of a step; fits that take turns share it.
    totals_bytes
        The totals of one task.
    shared_bytes
        The arrays that are sent to every task of a pass.
    walk_bytes
        The memory of the walks that one process runs at once; without walks, the working memory of its tasks, not
        counting totals.
    gathered_bytes
        The amount by which the combined total of all tasks exceeds the total of one task. It is a part of driver_bytes.
        A process that combines totals and sends them needs twice this amount in addition.
    by_row_bytes
        The arrays with an entry for each row of the source (`Scan.by_row`) that are sent to other processes. The driver
        packs all of them; each worker gets the part of its own rows.
    state_bytes
        The row states of all rows (`RowState`).
    """

    driver_bytes: int
    turn_bytes: int
    totals_bytes: int
    shared_bytes: int
    walk_bytes: int = 0
    gathered_bytes: int = 0
    by_row_bytes: int = 0
    state_bytes: int = 0


NOTHING = MemoryNeed(0, 0, 0, 0)


@dataclass(frozen=True)
class Progress:
    """Progress of a solver: the objective P of its best point, a proved lower bound D of the optimum, and the passes.

    lower_bound: None for solvers that prove none. rounding_bound: a bound on the joint rounding error of P and D. The
    error of D is already subtracted from lower_bound, so lower_bound holds despite rounding; the error of P is added to
    the gap when the gap is compared with a tolerance. tried_bound: if rounding kept the latest D from raising
    lower_bound, the rounding bound of that D; otherwise 0. It is not part of the proof, but shows that rounding limits
    the progress. taken_off: the part of rounding_bound that is known to be subtracted from lower_bound; 0 if unknown.
    """

    objective: float
    lower_bound: float | None
    passes: int
    rounding_bound: float = 0.0
    tried_bound: float = 0.0
    taken_off: float = 0.0

    @property
    def relative_gap(self) -> float | None:
        """The relative gap (P - D) / P, or None without a lower bound."""
        if self.lower_bound is None:
            return None
        return (self.objective - self.lower_bound) / self.objective if self.objective > 0 else 0.0

    def is_proved(self, tol: float) -> bool:
        """Return whether the relative gap is at most tol despite rounding.

        Let P be the true objective and e the rounding error of the computed one p: P <= p + e. D >= 0 is the bound
        after subtraction of its own rounding error. Then

            (P - D) / P = 1 - D / P <= (p + e - D) / (p + e) <= tol      if p + e - D <= tol p

        So only e is added: the error of D has already been subtracted from D.
        """
        if self.lower_bound is None:
            return False
        of_objective = max(0.0, self.rounding_bound - self.taken_off)
        return self.objective - self.lower_bound + of_objective <= tol * self.objective

    def check(self) -> None:
        """Raise InputError for non-finite numbers, and CertificateError if rounding cannot explain a negative gap."""
        P, D, rounding = self.objective, self.lower_bound, self.rounding_bound
        if not all(map(math.isfinite, (P, D or 0.0, rounding))):
            raise InputError(
                f"after pass {self.passes}, the objective ({P}), the lower bound ({D}) or their rounding error is "
                "beyond the range of float64: scale the features to about 1 (ingest --scale), or lower C and the "
                "weights of classes and rows"
            )
        if D is not None and rounding < D - P:
            raise CertificateError(
                f"the lower bound {D!r} is above the objective {P!r} by more than the rounding bound {rounding!r}: "
                "this is a bug in streamsvm; please report it with the data and command"
            )

    def report_rounding(self, status: str) -> float | None:
        """Return the rounding bound for reports, or None if there is neither a rounding bound nor a lower bound.

        For a stalled run, return tried_bound if it is larger than the rounding bound.
        """
        bound = max(self.rounding_bound, self.tried_bound) if status == "stalled" else self.rounding_bound
        return None if self.lower_bound is None and bound == 0.0 else bound

    @property
    def is_rounded(self) -> bool:
        """Whether the gap may be due to rounding alone, that is, whether it is at most ten rounding bounds."""
        rounding = max(self.rounding_bound, self.tried_bound)
        return self.lower_bound is not None and self.objective - self.lower_bound <= ROUNDINGS * rounding


def find_status(progress: Progress, tol: float, stuck: int, patience: int) -> str | None:
    """Return "converged" if the gap is proved, "stalled" if steps no longer make progress, else None.

    stuck: the number of successive steps without progress. patience: the number of such steps that ends a run whose gap
    may be due to rounding. A run with a larger gap may take MORE_PATIENCE times as many steps, because only a fault in
    the solver can stall it.
    """
    if progress.is_proved(tol):
        return "converged"
    enough = patience if progress.is_rounded else MORE_PATIENCE * patience
    return "stalled" if stuck >= enough else None


@dataclass(frozen=True)
class Step:
    """The end of an outer step. `state` is complete and can be saved. The engine sends no answer to a `Step`.

    status: the reason why the run ends, or None if it continues. figures: further numbers for the history of the run.
    """

    state: Any
    progress: Progress
    status: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


def axes(*names: str) -> Any:
    """Return a required field of a state: an array whose axes have the given names (see runs.records)."""
    return field(metadata={"axes": names})


def grows(*names: str, dtype: Any = np.float64) -> Any:
    """Return a field of a state: an initially empty array whose axes have the given names (see runs.records).

    If the name of an axis is a number, the axis has this length.
    """
    shape = [int(name) if name.isdigit() else 0 for name in names]
    return field(default_factory=partial(np.empty, shape, dtype), metadata={"axes": names})


LEAST_MOVE = 1e-12  # smaller relative changes of P and D may be rounding
LEAST_FALL = 1e-3  # if all but this share of the gap is rounding, only steps that lower the gap by this share count
LEAST_GAIN = 1e-8  # a smaller relative fall of P in a step is no progress if rounding hides the whole gap


@dataclass(kw_only=True)
class Bounds:
    """The part of a state that records what has been proved.

    objective, lower_bound: the objective P at the best point, and the highest proved D. objective_rounding: a bound of
    the rounding error of the objective; bound_rounding: the amount that was subtracted from D for the rounding of D.
    passes: the number of passes so far. stuck: the number of successive steps, or passes, that moved neither P nor D.
    """

    objective: float = float("inf")
    objective_rounding: float = 0.0
    lower_bound: float = 0.0
    bound_rounding: float = 0.0
    passes: int = 0
    stuck: int = 0

    @property
    def tried_bound(self) -> float:
        """See Progress."""
        return 0.0

    @property
    def progress(self) -> Progress:
        """The objective, the lower bound, and their rounding errors."""
        own = self.objective_rounding + self.bound_rounding
        return Progress(self.objective, self.lower_bound, self.passes, own, self.tried_bound, self.bound_rounding)

    def has_moved(self, before: Bounds, least_fall: float = LEAST_MOVE) -> bool:
        """Return whether D is higher than before by more than rounding, or P is lower by the share least_fall."""
        rises = self.lower_bound > before.lower_bound * (1.0 + LEAST_MOVE)
        return rises or self.objective < before.objective * (1.0 - least_fall)


@dataclass(kw_only=True)
class TriedBounds(Bounds):
    """Bounds that also record the rounding error of the latest D.

    tried_rounding: the rounding error subtracted from the latest D, if this subtraction alone kept D from being the
    highest so far; else 0.
    """

    tried_rounding: float = 0.0

    @property
    def tried_bound(self) -> float:
        """See Progress."""
        return self.objective_rounding + self.tried_rounding if self.tried_rounding > 0.0 else 0.0


def has_progressed(state: Bounds, before: Bounds) -> bool:
    """Return whether P is lower or D is higher than before, by more than rounding.

    If all but LEAST_FALL of the gap is rounding, the gap must fall by LEAST_FALL of itself, since only a smaller
    rounding bound can close it. If nothing is proved, and the rounding of the latest D exceeds the gap, P must fall by
    the share LEAST_GAIN.
    """
    gap, last = state.objective - state.lower_bound, before.objective - before.lower_bound
    if (1 - LEAST_FALL) * gap <= state.objective_rounding + state.bound_rounding:
        return gap < (1 - LEAST_FALL) * last
    is_hidden = gap <= state.tried_bound and gap > (1 - LEAST_GAIN) * state.objective
    return state.has_moved(before, LEAST_GAIN if is_hidden else LEAST_MOVE)


Request = Scan | Take | Walk | All
Requests = Generator[Request | Step, Any, None]  # the type of a solver


def only_takes(request: Request) -> bool:
    """Return whether a request is only for rows by number, without any pass."""
    if isinstance(request, All):
        return bool(request.requests) and all(map(only_takes, request.requests))
    return isinstance(request, Take)
