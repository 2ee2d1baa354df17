"""The requests that a solver makes, and the steps that it reports. A solver is a generator: it yields them.

After each request, the solver is sent the answer. It never reads data; an engine reads them, in this process or on a
cluster. So a solver can be tested without data and without an engine, and runs unchanged on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import Rows

ROUNDINGS = 10.0  # A gap of up to so many rounding bounds may be rounding alone.
MORE_PATIENCE = 10  # A run whose gap is larger goes on so many times as long without a change.


@dataclass(frozen=True)
class Subset:
    """The rows that a function chooses: choose(rows, *shared) returns their places in a tile, ascending.

    A solver has one subset in all its passes.
    """

    choose: Callable[..., npt.NDArray[np.int64]]
    shared: tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """A change of the numbers that rows have (RowState): apply(numbers, rows, *given) returns the new ones, (k, n).

    The numbers that it is given stay as they are; before the first change there are none (None). of_features: whether
    it needs the features of the rows. `apply` is importable by name, because workers import it.
    """

    apply: Callable[..., npt.NDArray[np.float64]]
    given: tuple[Any, ...] = ()
    of_features: bool = True


@dataclass(frozen=True)
class RowState:
    """Numbers of every row, which stay in the process that reads the row: an array (k, n) for the n rows of a tile.

    They follow from the rows and the changes since the start. So a process that does not have them, because it has
    joined late, or does the work of one that is lost, or goes on with a resumed run, makes all changes anew, and finds
    the same bits.

    Parameters
    ----------
    name
        Unlike that of any other state.
    changes
        All changes since the start, in order.
    altering
        From where to where in `Scan.by_row` the arrays are whose slices the changes are given last.
    """

    name: str
    changes: Sequence[Change]
    altering: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Scan:
    """A pass: totals = start(); add(totals, rows, *shared, *slices) for all rows; combine(left, right).

    The rows of a group of chunks are added, one tile after another and in place, to totals that belong to the group.
    The totals of the groups are combined in a fixed tree, so that every engine finds the same bits. The answer is the
    combined totals.

    Parameters
    ----------
    start
        Returns empty totals. Like the other two functions, it is importable by name, because workers import it.
    add
        Adds the rows of a tile to totals in place; it is given `shared`, the rows' slices of `by_row`, and the rows'
        numbers of each of `states`.
    combine
        Returns the totals of two groups as a new object; the parts stay as they are, since they may be used again.
    shared
        Arrays that every task is sent.
    by_row
        Arrays with one entry for each row of the source.
    scored
        The place in `shared` of weight vectors W, (k, at least d), whose scores X W' `add` needs. Where the passes of
        several solvers are made as one, so is this product, and `rows.scores` holds the part of the solver.
    held
        The first rows of the source, which the solver has taken into memory; an engine need not read them again. Only
        one of several scans that are carried out together needs to have them.
    apart
        A subset of the rows that later passes will ask for. `rows.chosen` has the places of its rows in each tile, and
        an engine may set them aside where they can be read again with less effort.
    among
        The subset of the rows that the pass is over. A tile has its rows of a tile of the source, with their numbers
        and without qid and target. The bits of the answer do not depend on where the rows are read.
    rest
        The totals of all other rows, if `among` is given; they are combined with those that are found.
    states
        Numbers of the rows that stay where the rows are read. They are changed before rows are added.
    of_states
        Whether the pass is over these numbers alone. `rows` then has no features, and stands for several tiles; chunks
        are read only where the numbers are not there.
    """

    start: Callable[[], Any]
    add: Callable[..., None]
    combine: Callable[[Any, Any], Any]
    shared: tuple[Any, ...] = ()
    by_row: tuple[npt.NDArray[Any], ...] = ()
    scored: int | None = None
    held: Rows | None = None
    apart: Subset | None = None
    among: Subset | None = None
    rest: Any = None
    states: tuple[RowState, ...] = ()
    of_states: bool = False


@dataclass(frozen=True)
class Take:
    """The rows with these numbers, in this order. The answer is one `Rows`."""

    rows: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Walk:
    """Sequential walks through groups of chunks, side by side; each hands a carry from one group to the next.

    Walk k starts with carries[k] and visits the groups of chunks that orders[k] lists, in that order. The chunks of a
    group are read whole, as one `Rows`, while the next group is read ahead. step(carry, rows) yields the carry after
    each part of the rows; the walk can be given up there. The next `step` is given the last of them. `step` changes
    neither the carry that it is given nor the rows. The answer is the list of the carries after the last groups.
    """

    step: Callable[[Any, Rows], Iterator[Any]]
    carries: Sequence[Any]
    orders: Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class All:
    """Several requests, carried out in one read of the data where possible. The answer is the list of their answers.

    in_walk: a walk that is among them carries the passes along, whose sums are then made in its order.
    """

    requests: Sequence[Scan | Take | Walk | All]
    in_walk: bool = False


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a fit needs besides the chunks that are read; an engine projects the memory of a process from them.

    Parameters
    ----------
    driver_bytes
        Memory of the process where the solver runs, with the arrays that it sends to tasks.
    turn_bytes
        The part of driver_bytes that is in use only while a step is computed; fits that take turns share it.
    totals_bytes
        The totals of one task.
    shared_bytes
        The arrays that every task of a pass is sent.
    walk_bytes
        The walks that one process carries out at once, or the working memory of all its tasks besides their totals.
    gathered_bytes
        What the total of all tasks holds beyond the total of one. It is a part of driver_bytes; where another process
        adds the totals up and sends them, it is in memory twice more.
    by_row_bytes
        The arrays with an entry for each row of the source (`Scan.by_row`), as far as they are sent to other processes.
        The driver packs all of them, and each worker is sent the part of its own rows.
    state_bytes
        The numbers of all rows that stay where the rows are read (`RowState`).
    """

    driver_bytes: int
    turn_bytes: int
    totals_bytes: int
    shared_bytes: int
    walk_bytes: int = 0
    gathered_bytes: int = 0
    by_row_bytes: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """Progress of a solver: the objective P of its best point, a proved lower bound D of the optimum, and the passes.

    lower_bound is None for solvers that prove none. rounding_bound: the most by which rounding can have moved P and D
    together. The part of D is taken off lower_bound already, so that lower_bound holds whatever was rounded; the part
    of P counts when the gap is compared with a tolerance. tried_bound: the rounding bound that kept the latest D from
    raising lower_bound, or 0; it takes no part in the proof, but it tells that rounding is the limit. taken_off: how
    much of rounding_bound was taken off lower_bound for certain; 0 where a solver does not know it.
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
        """Return whether the relative gap is at most tol, whatever was rounded.

        With P the true objective and e the rounding of the computed one p, P <= p + e. As D >= 0 is what is left after
        its own rounding was taken off,

            (P - D) / P = 1 - D / P <= (p + e - D) / (p + e) <= tol      if p + e - D <= tol p

        So e alone is charged, and not once more the part of D.
        """
        if self.lower_bound is None:
            return False
        of_objective = max(0.0, self.rounding_bound - self.taken_off)
        return self.objective - self.lower_bound + of_objective <= tol * self.objective

    def tell_rounding(self, status: str) -> float | None:
        """Return the rounding bound as it is reported: None if there is no lower bound, and none of the rounding of P.

        Of a run that has stalled it is that of the latest D, if this is larger.
        """
        told = max(self.rounding_bound, self.tried_bound) if status == "stalled" else self.rounding_bound
        return None if self.lower_bound is None and told == 0.0 else told

    @property
    def is_rounded(self) -> bool:
        """Whether the gap may be rounding alone, because it is at most ten times the rounding bound."""
        rounding = max(self.rounding_bound, self.tried_bound)
        return self.lower_bound is not None and self.objective - self.lower_bound <= ROUNDINGS * rounding


def find_status(progress: Progress, tol: float, stuck: int, patience: int) -> str | None:
    """Return "converged" if the gap is proved, "stalled" if steps no longer make progress, else None.

    stuck: the number of steps in a row without progress. patience: the number of them that ends a run whose gap is
    rounding. A run whose gap is larger goes on MORE_PATIENCE times as long, because only a fault of the solver can be
    the reason.
    """
    if progress.is_proved(tol):
        return "converged"
    enough = patience if progress.is_rounded else MORE_PATIENCE * patience
    return "stalled" if stuck >= enough else None


@dataclass(frozen=True)
class Step:
    """The end of an outer step: `state` is complete and can be saved. The solver is sent no answer.

    status: why the solver is done, or None while it goes on. figures: further numbers for the history of the run.
    """

    state: Any
    progress: Progress
    status: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


Question = Scan | Take | Walk | All
Request = Question | Step
Solver = Generator[Request, Any, None]


def only_takes(question: Question) -> bool:
    """Return whether a question asks for rows by their numbers alone, and for no pass."""
    if isinstance(question, All):
        return bool(question.requests) and all(map(only_takes, question.requests))
    return isinstance(question, Take)
