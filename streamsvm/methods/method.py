"""What `train` needs of a solver: one adapter each, which knows the solver's settings, state and model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamsvm.data.source import RowSource
from streamsvm.models.model import Model
from streamsvm.numeric.rows import I64, Rows
from streamsvm.requests import Progress, Solver

TakeRows = Callable[[I64], Rows]


@dataclass(frozen=True)
class Report(Progress):
    """Where a state stands. finished: the solver has done all that it was asked for, without a proof of the optimum."""

    finished: bool = False


class Algorithm(Protocol):
    """A solver with its settings. A state is a dataclass of arrays, scalars and lists of states: it is saved as it is.

    `driver_bytes`, `totals_bytes` and `shared_bytes` are what engines.memory projects: memory of the solver itself, of
    the totals of one task, and of what every task of a pass is sent. `walk_bytes` is that of the sequential passes that
    a process with so many threads carries out at once.
    """

    @property
    def name(self) -> str:
        """What a user calls it."""

    def describe(self) -> dict[str, Any]:
        """Return its settings, as JSON: those that a resumed run must share with the run before."""

    def driver_bytes(self, source: RowSource) -> int:
        """Memory that the solver needs where it runs."""

    def turn_bytes(self, source: RowSource) -> int:
        """Part of `driver_bytes` that is in use only while a step is computed: problems that take turns share it."""

    def totals_bytes(self, source: RowSource) -> int:
        """Memory of one task's totals."""

    def shared_bytes(self, source: RowSource) -> int:
        """Memory of what all tasks of a pass are sent."""

    def walk_bytes(self, source: RowSource, threads: int) -> int:
        """Memory of the sequential passes that one process carries out at once."""

    def start_state(self, source: RowSource) -> Any:
        """Return the state before the first pass."""

    def warm_state(self, source: RowSource, before: Any, factor: float) -> Any:
        """Return a state to start from, given the last one of the same problem with all costs `factor` times smaller.

        Solvers that gain nothing by it start anew.
        """

    def solve(self, source: RowSource, state: Any) -> Solver:
        """Go on from a state."""

    def make_model(self, source: RowSource, state: Any, take: TakeRows) -> Model:
        """Return the best model so far, its `info` empty; `take` gives rows of the source (support vectors)."""

    def report(self, state: Any) -> Report:
        """Return what is known of the best model so far, after one pass at least."""


def count_driver_bytes(algorithms: Sequence[Algorithm], source: RowSource) -> int:
    """Memory of solvers that take turns."""
    turns = [algorithm.turn_bytes(source) for algorithm in algorithms]
    held = sum(algorithm.driver_bytes(source) for algorithm in algorithms) - sum(turns)
    return held + max(turns)
