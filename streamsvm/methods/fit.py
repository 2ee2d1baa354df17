"""A fit: a method with its settings, ready for the rows of one source. `train` drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from streamsvm.machine import default_budget_bytes
from streamsvm.models.model import Model
from streamsvm.numeric.feature_maps import FeatureMap
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.options import TrainOptions
from streamsvm.requests import MemoryNeed, Progress, Solver

ONE_TRAINING = "scratch is for one training of two classes, whose rows are set aside there; leave it out"
TakeRows = Callable[[I64], Rows]


@dataclass(frozen=True)
class Report(Progress):
    """The progress of a state.

    finished: the solver has done all its work, although no optimum is proved. problems: where many problems are solved
    side by side, what is known of each of them, as JSON. pairs: the pair steps of SMO so far, if they are counted.
    """

    finished: bool = False
    problems: tuple[dict[str, Any], ...] = ()
    pairs: int | None = None


@dataclass(frozen=True)
class DualWatch:
    """How the dual point behind a lower bound is kept while a fit runs (methods.dual_points).

    kind: "cuts" (of rows), "pairs" (cuts of pairs of rows whose scores the driver holds) and "pairs at points" (cuts of
    pairs that are counted where rows are read) keep the points at which cuts were made; "shares" are read from a state
    that holds a share of every row. width: the number of entries of a point. most_cuts: the number of cuts in use at
    once. n_rows: the number of rows whose shares are held, or 0. n_own: how many rows have a share of their own in the
    cuts in use at once, at most.
    """

    kind: Literal["cuts", "pairs", "pairs at points", "shares"]
    width: int
    most_cuts: int
    n_rows: int = 0
    n_own: int = 0


@dataclass(frozen=True)
class FirstSample:
    """The rows that a fit takes by their numbers once, before its first pass, and whether it holds them during it."""

    rows: int
    is_held: bool


@dataclass(frozen=True)
class Fit:
    """A method that is set up for the rows of one source.

    The states of its solver are dataclasses of arrays, scalars and lists of states, and are saved as they are.

    Parameters
    ----------
    method
        The name of the method.
    settings
        The settings that a resumed run must share with the run before, as JSON.
    memory
        Returns the memory that the fit needs, from the number of threads of a process.
    start
        Returns the state before the first pass.
    solve
        Returns the solver that goes on from a state.
    make_model
        Returns the best model so far with an empty `info`, from a state and a function that takes rows by number.
    report
        Returns what is known of the best model so far, from a state after at least one pass.
    compiled
        The groups of compiled functions that the fit needs (methods.warm_up).
    dual
        How its dual point is kept for those who ask for it; None if it has none.
    model_bytes
        An upper limit of the bytes of its model, which is all that stays of a fit that has ended; None if there is no
        better limit than the memory of the driver.
    warm_start
        Returns a state to start from, given the last state of the same problem with costs that were smaller by a
        factor, and this factor. None stands for methods that gain nothing by it and start anew.
    start_at
        Returns the state before the first pass, to start from given weights (d+1,), whose last entry is that of the
        constant feature. None stands for methods that have no use for weights.
    start_each
        Returns the state before the first pass of many problems, to start each from its weights, or anew where None
        stands in their place. None stands for one problem, and for methods that have no use for weights.
    note
        What users are told of the fit before it runs, in whole sentences, if there is something to tell.
    sample
        What is taken before the first pass; None if rows are taken in every pass, or none are.
    scratch
        The folder in which a folder is made for rows that are set aside (requests.Subset); None for none.
    """

    method: str
    settings: Mapping[str, Any]
    memory: Callable[[int], MemoryNeed]
    start: Callable[[], Any]
    solve: Callable[[Any], Solver]
    make_model: Callable[[Any, TakeRows], Model]
    report: Callable[[Any], Report]
    compiled: tuple[str, ...]
    dual: DualWatch | None = None
    warm_start: Callable[[Any, float], Any] | None = None
    start_at: Callable[[F64], Any] | None = None
    start_each: Callable[[Sequence[F64 | None]], Any] | None = None
    note: str = ""
    model_bytes: int | None = None
    sample: FirstSample | None = None
    scratch: str | None = None

    def start_after(self, before: Any, factor: float) -> Any:
        """Return a state to start from, given the last one with costs that were `factor` times smaller."""
        return self.start() if self.warm_start is None else self.warm_start(before, factor)


@dataclass(frozen=True)
class MapFit:
    """A feature map that is to be found, set up like a `Fit`; `training.features` drives it.

    make_map: returns the map, from the last state and a function that takes rows by their numbers. stand_in: returns a
    map of the size that the map will have, from which the memory of what follows is projected before rows are read.
    passes: the reads of all rows that find the map, at most.
    """

    settings: Mapping[str, Any]
    memory: Callable[[int], MemoryNeed]
    start: Callable[[], Any]
    solve: Callable[[Any], Solver]
    make_map: Callable[[Any, TakeRows], FeatureMap]
    stand_in: Callable[[], FeatureMap]
    passes: int
    compiled: tuple[str, ...]


def report_progress(state: Any) -> Report:
    """Return the report of a state that has a `progress`."""
    return Report(**vars(state.progress))


def share_memory(options: TrainOptions, n_problems: int, process_bytes: int) -> TrainOptions:
    """Return the options of each of several problems that share the memory; what any process needs is there once."""
    budget = options.memory_bytes or default_budget_bytes()
    share = min(budget, process_bytes) + max(0, budget - process_bytes) // n_problems
    return replace(options, memory_bytes=share)


def sum_memory(needs: Sequence[MemoryNeed]) -> MemoryNeed:
    """Return the memory that several fits need together. Their solvers take turns, so turn_bytes count only once.

    Walks, which have no totals, go side by side; the other fits take turns with the working memory of tasks.
    """
    turn = max(need.turn_bytes for need in needs)
    in_turn = max((need.walk_bytes for need in needs if need.totals_bytes), default=0)
    return MemoryNeed(
        driver_bytes=sum(need.driver_bytes - need.turn_bytes for need in needs) + turn,
        turn_bytes=turn,
        totals_bytes=sum(need.totals_bytes for need in needs),
        shared_bytes=sum(need.shared_bytes for need in needs),
        walk_bytes=in_turn + sum(need.walk_bytes for need in needs if not need.totals_bytes),
        gathered_bytes=sum(need.gathered_bytes for need in needs),
        by_row_bytes=sum(need.by_row_bytes for need in needs),
        state_bytes=sum(need.state_bytes for need in needs),
    )


def need_in_turn(fits: Sequence[Fit], threads: int) -> MemoryNeed:
    """Return the memory of fits that follow one another: each starts from the state of the one before.

    One of them makes requests at a time, so the memory of totals and walks is that of the largest. If the sizes of the
    models are known, the driver holds the states of two fits, and the models of all; tasks are sent what one fit shares
    with them, or all models in the end, when they are compared. Otherwise every fit counts as long as the last.
    """
    needs = [fit.memory(threads) for fit in fits]
    states = [need.driver_bytes - need.turn_bytes for need in needs]
    shared = [need.shared_bytes for need in needs]
    models = [fit.model_bytes for fit in fits if fit.model_bytes is not None]
    held, sent = sum(states), sum(shared)
    if len(models) == len(fits) > 1:
        held = min(held, max(map(sum, pairwise(states))) + sum(models))
        sent = max(*shared, sum(models))
    turn = max(need.turn_bytes for need in needs)
    return MemoryNeed(
        driver_bytes=held + turn,
        turn_bytes=turn,
        totals_bytes=max(need.totals_bytes for need in needs),
        shared_bytes=sent,
        walk_bytes=max(need.walk_bytes for need in needs),
        gathered_bytes=max(need.gathered_bytes for need in needs),
        by_row_bytes=max(need.by_row_bytes for need in needs),
        state_bytes=max(need.state_bytes for need in needs),
    )
