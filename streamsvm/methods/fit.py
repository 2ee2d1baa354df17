"""A method with its settings, ready for the rows of one source: what `train` drives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamsvm.models.model import Model
from streamsvm.numeric.feature_maps import FeatureMap
from streamsvm.numeric.rows import I64, Rows
from streamsvm.requests import MemoryNeed, Progress, Solver

TakeRows = Callable[[I64], Rows]


@dataclass(frozen=True)
class Report(Progress):
    """Where a state stands. finished: the solver has done all that it was asked for, without a proof of the optimum."""

    finished: bool = False


@dataclass(frozen=True)
class DualWatch:
    """How the dual point behind a lower bound is kept as a fit runs (methods.dual_points).

    kind: "cuts" and "pairs" are known by the points at which cuts were made, of rows or of pairs of rows; "shares" are
    read off a state that has one of every row. width: entries of such a point; most_cuts: cuts in use at once; n_rows:
    rows whose shares are held, 0 if none are.
    """

    kind: Literal["cuts", "pairs", "shares"]
    width: int
    most_cuts: int
    n_rows: int = 0


@dataclass(frozen=True)
class Fit:
    """A method, set up. A state is a dataclass of arrays, scalars and lists of states: it is saved as it is.

    Parameters
    ----------
    method
        Name of the method.
    settings
        Its settings, as JSON: those that a resumed run must share with the run before.
    memory
        What the fit needs where a process has so many threads.
    start
        Returns the state before the first pass.
    solve
        Goes on from a state.
    make_model
        Returns the best model so far, its `info` empty; it is given a function that takes rows by their numbers.
    report
        Tells what is known of the best model so far, after one pass at least.
    warm_start
        Returns a state to start from, given the last state of the same problem with all costs so many times smaller;
        None for methods that gain nothing by it and start anew.
    dual
        How its dual point is kept for those who ask for it; None if there is none to keep.
    kernels
        Groups of compiled functions that it needs (methods.warm_up).
    """

    method: str
    settings: Mapping[str, Any]
    memory: Callable[[int], MemoryNeed]
    start: Callable[[], Any]
    solve: Callable[[Any], Solver]
    make_model: Callable[[Any, TakeRows], Model]
    report: Callable[[Any], Report]
    kernels: tuple[str, ...]
    dual: DualWatch | None = None
    warm_start: Callable[[Any, float], Any] | None = None

    def start_after(self, before: Any, factor: float) -> Any:
        """Return a state to start from, given the last one with costs so many times smaller."""
        return self.start() if self.warm_start is None else self.warm_start(before, factor)


@dataclass(frozen=True)
class MapFit:
    """A feature map that is to be found, set up as a `Fit` is: what `training.features` drives.

    make_map: returns the map of the last state; it is given a function that takes rows by their numbers.
    """

    settings: Mapping[str, Any]
    memory: Callable[[int], MemoryNeed]
    start: Callable[[], Any]
    solve: Callable[[Any], Solver]
    make_map: Callable[[Any, TakeRows], FeatureMap]
    kernels: tuple[str, ...]


def report_progress(state: Any) -> Report:
    """Return the report of a state that tells its progress."""
    return Report(**vars(state.progress))


def sum_memory(needs: Sequence[MemoryNeed]) -> MemoryNeed:
    """Return what several fits need together. Their solvers take turns: what a step needs is there once."""
    turn = max(need.turn_bytes for need in needs)
    return MemoryNeed(
        driver_bytes=sum(need.driver_bytes - need.turn_bytes for need in needs) + turn,
        turn_bytes=turn,
        totals_bytes=sum(need.totals_bytes for need in needs),
        shared_bytes=sum(need.shared_bytes for need in needs),
        walk_bytes=sum(need.walk_bytes for need in needs),
    )
