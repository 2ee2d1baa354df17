"""What a solver may ask for, and what it reports. A solver is a generator that yields these and is sent the answers.

It never reads data: an engine does, anywhere. So a solver is tested without either, and runs on both.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.rows import Rows

ROUNDINGS = 10.0
MORE_PATIENCE = 10


@dataclass(frozen=True)
class Scan:
    """A pass: totals = start(); add(totals, rows, *shared, *slices) for all rows; combine(left, right).

    The rows of a group of chunks are added one tile after another to totals of the group's own, in place. The groups'
    totals are combined in a fixed tree, each time into a new object (a scheduler may use the parts again), so the
    same bits come out of any engine. The functions are importable by name: workers import them. shared: arrays that
    every task is sent; by_row: arrays with an entry a row, of which `add` gets the rows' slices. Answer: the totals.
    scored: the place in `shared` of weight vectors W (k, at least d), whose scores X W' `add` needs: where passes of
    several solvers are one, so is this product, and `rows.scores` holds the solver's part.
    """

    start: Callable[[], Any]
    add: Callable[..., None]
    combine: Callable[[Any, Any], Any]
    shared: tuple[Any, ...] = ()
    by_row: tuple[npt.NDArray[Any], ...] = ()
    scored: int | None = None


@dataclass(frozen=True)
class Take:
    """Those rows, in that order. Answer: `Rows`."""

    rows: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Walk:
    """Sequential walks through groups of chunks, side by side. In each, carry = the last of step(carry, rows).

    Walk k starts with carries[k] and visits the groups of chunks that orders[k] lists, in that order. The chunks of a
    group are read whole, and are one `Rows`; the next group is read ahead. `step` yields the carry after each part of
    the rows, where a walk can be given up; it changes neither the carry that it is given nor the rows. The answer is
    the list of the carries after the last groups.
    """

    step: Callable[[Any, Rows], Iterator[Any]]
    carries: Sequence[Any]
    orders: Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class All:
    """Several requests, answered in one read of the data where they allow it. Answer: theirs, in order."""

    requests: Sequence[Scan | Take | Walk | All]


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a fit needs beside the chunks that are read; an engine projects the process from them.

    driver_bytes: where the solver runs, what it sends to tasks included; turn_bytes: the part of them that is in use
    only while a step is computed, which fits that take turns share; totals_bytes: the totals of one task; shared_bytes:
    what every task of a pass is sent; walk_bytes: the walks that one process carries out at once, or what its tasks
    work with besides their totals.
    """

    driver_bytes: int
    turn_bytes: int
    totals_bytes: int
    shared_bytes: int
    walk_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """Where a solver stands: P of the best point, a proved lower bound D of the optimum, passes so far.

    rounding_bound: the most by which rounding can have moved P and D together. D's share is taken off lower_bound
    already, so that the bound holds whatever was rounded; P's share counts when the gap is compared with a tolerance.
    """

    objective: float
    lower_bound: float | None
    passes: int
    rounding_bound: float = 0.0

    @property
    def relative_gap(self) -> float | None:
        """(P - D) / P."""
        if self.lower_bound is None:
            return None
        return (self.objective - self.lower_bound) / self.objective if self.objective > 0 else 0.0

    def is_proved(self, tol: float) -> bool:
        """Whether the relative gap is at most tol, whatever was rounded."""
        if self.lower_bound is None:
            return False
        return self.objective - self.lower_bound + self.rounding_bound <= tol * self.objective

    @property
    def told_rounding_bound(self) -> float | None:
        """The rounding bound, or None if the solver bounds no rounding. P alone has one if there is no lower bound."""
        return None if self.lower_bound is None and self.rounding_bound == 0.0 else self.rounding_bound

    @property
    def is_rounded(self) -> bool:
        """Whether rounding may be what is left of the gap: it is within ten times the rounding bound."""
        return self.lower_bound is not None and self.objective - self.lower_bound <= ROUNDINGS * self.rounding_bound


def find_status(progress: Progress, tol: float, stuck: int, patience: int) -> str | None:
    """Return "converged" where the gap is proved, "stalled" where steps no longer change what is proved, else None.

    stuck: steps in a row that moved neither P nor D; patience: how many of them end a run whose gap is rounding. A run
    whose gap is larger goes on for MORE_PATIENCE times as long, since only a fault of the solver can be the reason.
    """
    if progress.is_proved(tol):
        return "converged"
    enough = patience if progress.is_rounded else MORE_PATIENCE * patience
    return "stalled" if stuck >= enough else None


@dataclass(frozen=True)
class Step:
    """End of an outer step: the state is complete. `status` is set when the solver is done; no answer is sent.

    figures: what else the history is to tell of the step.
    """

    state: Any
    progress: Progress
    status: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


Question = Scan | Take | Walk | All
Request = Question | Step
Solver = Generator[Request, Any, None]
