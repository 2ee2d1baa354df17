"""`Solver`, the interface of all solvers: an object that is ready for the rows of one source and is driven by `train`.

`Budget` is the memory that a solver may take, decided once and passed to the solver. The functions sum the memory of
several solvers that share a process, and make models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from streamsvm.data.rows.source import RowSource
from streamsvm.kernels import precomputed
from streamsvm.kernels.kernel import Kernel
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, slice_rows
from streamsvm.options import TrainOptions, count_resident
from streamsvm.passes import MemoryNeed, Progress, Requests
from streamsvm.system.machine import default_budget_bytes

ONE_TRAINING = "scratch can hold the rows of only one training of two classes; remove the option scratch"
LEAST_ROWS = 1000  # Fewer resident rows do not help, unless the data have no more rows.
# Only one solver needs these at a time.
IN_TURN = ("totals_bytes", "walk_bytes", "gathered_bytes", "by_row_bytes", "state_bytes")
TakeRows = Callable[[I64], Rows]


@dataclass(frozen=True)
class Budget:
    """The memory of one solver: the total, and the part that any process needs (interpreter, libraries, slack)."""

    total_bytes: int
    process_bytes: int = 0

    @classmethod
    def of(cls, options: TrainOptions, process_bytes: int = 0) -> Budget:
        """Return the memory that the options allow; by default half of the machine's memory."""
        return cls(options.memory_bytes or default_budget_bytes(), process_bytes)

    @property
    def spare_bytes(self) -> int:
        """The memory left for rows, models and tasks; negative if the process alone needs more than the total."""
        return self.total_bytes - self.process_bytes

    def part(self, share: int, of: int) -> int:
        """Return the memory of a solver that gets process_bytes and the fraction `share / of` of the spare memory."""
        return min(self.total_bytes, self.process_bytes) + max(0, self.spare_bytes) * share // of

    def count_rows(
        self, n_rows: int, asked: int | str | None, row_bytes: int, other_bytes: int, wanted: int | None = None
    ) -> int:
        """Return the number of rows to hold: the requested number, or as many as fit, up to `wanted`.

        The result is 0 if fewer than LEAST_ROWS fit. other_bytes: the solver's memory without its resident rows.
        """
        if asked is not None:
            return count_resident(asked, n_rows)
        fit = max(0, (self.spare_bytes - other_bytes) // row_bytes)
        number = fit if wanted is None else min(n_rows, wanted, fit)
        return number if number >= min(n_rows, LEAST_ROWS) else 0


@dataclass(frozen=True)
class Report(Progress):
    """The progress of a state.

    finished: whether the solver has done all its work although no optimum is proved. problems: the progress of each
    problem as JSON, if many problems are solved side by side. pairs: the number of pair steps of SMO so far, if they
    are counted.
    """

    finished: bool = False
    problems: tuple[dict[str, Any], ...] = ()
    pairs: int | None = None


@dataclass(frozen=True)
class DualWatch:
    """The way in which solvers.keep_dual keeps the dual point behind a lower bound, and the sizes involved.

    kind: "cuts" if the points are kept at which cuts were made, and "shares" if the states of the solver hold the dual
    share of every row. width: the number of entries of a point. most_cuts: the maximum number of cuts in use at once.
    n_rows: the number of rows whose shares are held, or 0. n_own: the maximum number of rows that have shares of their
    own in the cuts in use.
    """

    kind: Literal["cuts", "shares"]
    width: int
    most_cuts: int
    n_rows: int = 0
    n_own: int = 0


@dataclass(frozen=True)
class FirstSample:
    """The number of rows that a solver fetches before its first pass, and whether it holds them during that pass."""

    rows: int
    is_held: bool


class Solver(ABC):
    """A solver, ready for the rows of one source.

    Its states are dataclasses of arrays, scalars and lists of states, which are saved as they are.

    Attributes
    ----------
    name
        The name by which users choose it.
    settings
        The settings, as JSON, that a resumed run must share with the interrupted one.
    compiled
        The groups of compiled functions that it calls (solvers.set_up).
    dual
        The way to keep its dual point; None if it has none.
    model_bytes
        The size of its model; when the solver has ended, only the model stays in memory. None if the size is limited
        only by the driver's memory.
    n_starts
        The number of problems that can start from given weights; 0 if it cannot use weights.
    reason
        Why this solver was chosen, and what was second, in whole sentences; empty if nothing was weighed.
    note
        A message to users before it runs, in whole sentences; empty for none.
    sample
        The rows that it fetches before the first pass; None if it fetches rows in every pass, or never.
    scratch
        The folder to which passes write a subset of the rows (passes.Subset); None for no folder.
    starts_warm
        Whether a fit of a grid starts from the last state of the fit with the next smaller C.
    """

    name: str
    settings: Mapping[str, Any]
    compiled: tuple[str, ...]
    dual: DualWatch | None = None
    model_bytes: int | None = None
    n_starts: int = 0
    note: str = ""
    reason: str = ""
    sample: FirstSample | None = None
    scratch: str | None = None
    starts_warm: bool = True

    @abstractmethod
    def start(self) -> Any:
        """Return the state before the first pass."""

    @abstractmethod
    def solve(self, state: Any) -> Requests:
        """Yield the requests of a run from this state, and after each step a `Step` with the whole new state."""

    @abstractmethod
    def memory(self, threads: int) -> MemoryNeed:
        """Return the memory that the solver needs. threads: the number of threads of a process."""

    @abstractmethod
    def make_model(self, state: Any, take: TakeRows) -> Model:
        """Return the best model so far, with an empty `info`. take: a function that returns rows by number."""

    def report(self, state: Any) -> Report:
        """Return the progress of the best model so far, from a state after at least one pass."""
        return Report(**vars(state.progress))

    def warm_start(self, before: Any, factor: float) -> Any:  # noqa: ARG002
        """Return the state from which to start, given `before`, the last state for costs `factor` times smaller.

        By default, it is the state before the first pass, and `before` is not used.
        """
        return self.start()

    def start_at(self, w: F64) -> Any:
        """Return the state before the first pass, at given weights (d+1,); the constant feature's weight is last.

        Only for solvers with n_starts = 1.
        """
        raise NotImplementedError

    def start_each(self, weights: Sequence[F64 | None]) -> Any:
        """Return the state in which each problem starts at its weights, or at its usual start if these are None."""
        return self.start() if weights[0] is None else self.start_at(weights[0])


class LinearSolver(Solver):
    """A solver for one linear model.

    Its states hold best_w (d+1,), the best weights, with the weight of the bias last.
    """

    source: RowSource
    bias_feature: float
    has_classes: bool = True

    def make_model(self, state: Any, take: TakeRows) -> LinearModel:  # noqa: ARG002
        """Return the model with the best weights."""
        return make_linear_model(self.source, state.best_w[:-1], state.best_w[-1] * self.bias_feature, self.has_classes)


class Wrapper(Solver):
    """A solver that delegates to another solver, `inner`; subclasses override what they change.

    driver_bytes, shared_bytes: the memory that the wrapper needs in addition.
    """

    def __init__(self, inner: Solver, driver_bytes: int = 0, shared_bytes: int = 0) -> None:
        for name in Solver.__annotations__:
            setattr(self, name, getattr(inner, name))
        self.inner, self.driver_bytes, self.shared_bytes = inner, driver_bytes, shared_bytes

    def start(self) -> Any:
        """Return the inner solver's start."""
        return self.inner.start()

    def solve(self, state: Any) -> Requests:
        """Yield the inner solver's requests."""
        return self.inner.solve(state)

    def memory(self, threads: int) -> MemoryNeed:
        """Return the inner solver's memory plus the additional memory."""
        need = self.inner.memory(threads)
        driver, shared = need.driver_bytes + self.driver_bytes, need.shared_bytes + self.shared_bytes
        return replace(need, driver_bytes=driver, shared_bytes=shared)

    def make_model(self, state: Any, take: TakeRows) -> Model:
        """Return the inner solver's model."""
        return self.inner.make_model(state, take)

    def report(self, state: Any) -> Report:
        """Return the inner solver's report."""
        return self.inner.report(state)

    def warm_start(self, before: Any, factor: float) -> Any:
        """Return the inner solver's warm start."""
        return self.inner.warm_start(before, factor)

    def start_at(self, w: F64) -> Any:
        """Return the inner solver's start at given weights."""
        return self.inner.start_at(w)

    def start_each(self, weights: Sequence[F64 | None]) -> Any:
        """Return the inner solver's start at the weights of each problem."""
        return self.inner.start_each(weights)


def describe_parameters(parameters: Any, *left_out: str) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON. left_out: the fields that a resumed run need not share."""
    told = {name: value for name, value in vars(parameters).items() if name not in left_out}
    told |= {name: describe_parameters(value) for name, value in told.items() if is_dataclass(value)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}


def share_memory(options: TrainOptions, n_problems: int, process_bytes: int) -> TrainOptions:
    """Return the options for one of several problems, with an equal part of the memory of a process."""
    return replace(options, memory_bytes=Budget.of(options, process_bytes).part(1, n_problems))


def sum_memory(needs: Sequence[MemoryNeed]) -> MemoryNeed:
    """Return the memory that several solvers need together.

    Between passes the solvers compute in turn, so only the largest turn_bytes count. Solvers without totals walk over
    the rows side by side, so their walk_bytes add up. All other solvers take turns, so only the largest of their
    walk_bytes counts.
    """
    turn = max(need.turn_bytes for need in needs)
    sums = {part.name: sum(getattr(need, part.name) for need in needs) for part in fields(MemoryNeed)}
    in_turn = max((need.walk_bytes for need in needs if need.totals_bytes), default=0)
    sums["driver_bytes"] += turn - sums["turn_bytes"]
    sums["walk_bytes"] = in_turn + sum(need.walk_bytes for need in needs if not need.totals_bytes)
    return MemoryNeed(**{**sums, "turn_bytes": turn})


def need_in_turn(solvers: Sequence[Solver], threads: int) -> MemoryNeed:
    """Return the memory of solvers that run one after the other.

    Only one solver makes requests at a time, so the memory of totals and walks is the largest need of any solver. If
    the sizes of all models are known, the driver holds the state of a solver, that of its predecessor for a warm start,
    and all models; tasks receive the data that one solver shares, or all models when these are compared in the end.
    Otherwise the states of all solvers count.
    """
    needs = [solver.memory(threads) for solver in solvers]
    states = [need.driver_bytes - need.turn_bytes for need in needs]
    shared = [need.shared_bytes for need in needs]
    models = [solver.model_bytes for solver in solvers if solver.model_bytes is not None]
    held, sent = sum(states), sum(shared)
    if len(models) == len(solvers) > 1:
        at_once = map(sum, pairwise(states)) if any(solver.starts_warm for solver in solvers) else states
        held = min(held, max(at_once) + sum(models))
        sent = max(*shared, sum(models))
    turn = max(need.turn_bytes for need in needs)
    largest = {name: max(getattr(need, name) for need in needs) for name in IN_TURN}
    return MemoryNeed(driver_bytes=held + turn, turn_bytes=turn, shared_bytes=sent, **largest)


def make_linear_model(source: RowSource, coef: F64, intercept: Any, has_classes: bool = True) -> LinearModel:
    """Return a linear model with the scaling, feature names and classes (if has_classes) of the source."""
    return LinearModel(
        coef=coef,
        intercept=intercept if np.ndim(intercept) else float(intercept),
        classes=np.asarray(source.classes) if has_classes else np.empty(0),
        scaling=source.scaling,
        feature_names=source.feature_names,
    )


def make_kernel_model(
    source: RowSource,
    kernel: Kernel,
    vectors: Matrix,
    dual_coef: F64,
    intercept: float | F64,
    classes: Any,
    support: I64 | None = None,
) -> KernelModel:
    """Return a kernel model; with a precomputed kernel it keeps only `support`, the numbers of its support vectors."""
    return KernelModel(
        kernel=kernel,
        support_vectors=slice_rows(vectors, slice(0, 0)) if kernel.name == precomputed.NAME else vectors,
        dual_coef=dual_coef,
        intercept=intercept,
        classes=np.asarray(classes),
        scaling=source.scaling,
        feature_names=source.feature_names,
        support=support,
    )
