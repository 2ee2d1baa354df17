"""One against the rest: for each of K classes a solver for two, all in one read of the data, as `train` drives them.

Problem k separates the rows of class k (+1) from all others (-1); C_i = C * class_weight[k] * sample_weight_i of its
own rows, C * sample_weight_i of the others, whatever their classes' weights: so do LIBLINEAR and scikit-learn's
LinearSVC. The class of a row is the one whose model gives it the highest score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.machine import default_budget_bytes
from streamsvm.methods import together
from streamsvm.methods.altered import alter_rows, single_out
from streamsvm.methods.decomposition.setup import share_budget
from streamsvm.methods.method import Algorithm, Report, TakeRows, count_driver_bytes
from streamsvm.methods.together import State
from streamsvm.models.model import KernelModel, LinearModel, Model
from streamsvm.numeric.rows import F64, I64, Rows, stack_rows
from streamsvm.options import TrainOptions, compute_class_factors
from streamsvm.requests import Solver

A = TypeVar("A", bound=Algorithm)
REST, ONE = 0, 1


class OneClass:
    """The same rows, with two classes: 1 for one of theirs, 0 for the rest. All else is theirs."""

    classes = np.array([REST, ONE])

    def __init__(self, source: RowSource, code: int) -> None:
        self.source, self.code = source, code

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    @property
    def class_counts(self) -> I64 | None:
        """Rows of the rest, and of the class."""
        counts = self.source.class_counts
        return None if counts is None else self._split(counts)

    def sum_weights(self) -> F64 | None:
        """Sum of the sample weights of the rest, and of the class."""
        sums = self.source.sum_weights()
        return None if sums is None else self._split(sums)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.source.column(name)
        return (values == self.code).astype(np.int32) if name == "y" and values is not None else values

    def read(self, index: int) -> Rows:
        """See RowSource."""
        return single_out(self.source.read(index), code=self.code)

    def take(self, rows: I64) -> Rows:
        """See RowSource."""
        return single_out(self.source.take(rows), code=self.code)

    def _split(self, by_class: Any) -> Any:
        return np.array([by_class.sum() - by_class[self.code], by_class[self.code]])


def view_class(source: RowSource, code: int) -> RowSource:
    """Return the rows as the problem of one class sees them."""
    return cast("RowSource", OneClass(source, code))


@dataclass(frozen=True)
class OneAgainstRest:
    """See Algorithm; parts: the solver of each class."""

    parts: tuple[Algorithm, ...]

    @property
    def name(self) -> str:
        """See Algorithm."""
        return self.parts[0].name

    def describe(self) -> dict[str, Any]:
        """See Algorithm: what the problems have in common, and lists of what differs."""
        each = [part.describe() for part in self.parts]
        columns = {name: [one[name] for one in each] for name in each[0]}
        same = {name: all(value == values[0] for value in values) for name, values in columns.items()}
        return {"problems": len(each)} | {name: v[0] if same[name] else v for name, v in columns.items()}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return count_driver_bytes(self.parts, source)

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return max(part.turn_bytes(source) for part in self.parts)

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return sum(part.totals_bytes(source) for part in self.parts)

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return sum(part.shared_bytes(source) for part in self.parts)

    def fold_bytes(self, source: RowSource, threads: int) -> int:
        """See Algorithm: they take turns with one buffer of rows; each has a model before, a model after, and one."""
        first, *others = self.parts
        return first.fold_bytes(source, threads) + 3 * sum(part.shared_bytes(source) for part in others)

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        return together.start_state([part.start_state(source) for part in self.parts])

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:
        """See Algorithm."""
        pairs = zip(self.parts, before.problems, strict=True)
        return together.start_state([part.warm_state(source, one, factor) for part, one in pairs])

    def solve(self, source: RowSource, state: State) -> Solver:
        """See Algorithm."""
        solvers = [partial(_solve, part, source, code) for code, part in enumerate(self.parts)]
        return together.solve(solvers, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> Model:
        """See Algorithm."""
        chosen: list[I64] = []
        models = [
            part.make_model(source, one, partial(_note, chosen, take))
            for part, one in zip(self.parts, state.problems, strict=True)
        ]
        return join_models(models, chosen, take)

    def report(self, state: State) -> Report:
        """See Algorithm."""
        reports = [part.report(one) for part, one in zip(self.parts, state.problems, strict=True)]
        passes = state.passes + max(report.passes - int(n) for report, n in zip(reports, state.counts, strict=True))
        bounds = [report.lower_bound for report in reports]
        return Report(
            objective=sum(report.objective for report in reports),
            lower_bound=None if None in bounds else sum(cast("list[float]", bounds)),
            passes=passes,
            rounding_bound=sum(report.rounding_bound for report in reports),
            finished=all(report.finished for report in reports),
        )


def _solve(part: Algorithm, source: RowSource, code: int, state: Any) -> Solver:
    return alter_rows(part.solve(source, state), partial(single_out, code=code))


def _note(chosen: list[I64], take: TakeRows, rows: I64) -> Rows:
    """Note which rows a model takes; they are taken once, for all models."""
    chosen.append(rows)
    return take(rows[:0])


def join_models(models: list[Any], chosen: list[I64], take: TakeRows) -> Model:
    """Return models of two classes as one; chosen: numbers of their support vectors, where these are rows."""
    first, intercept = models[0], np.array([model.intercept for model in models])
    if isinstance(first, LinearModel):
        return replace(first, coef=np.stack([model.coef for model in models]), intercept=intercept)
    if chosen:
        rows = np.unique(np.concatenate(chosen))
        places, vectors = [np.searchsorted(rows, mine) for mine in chosen], take(rows).X
    else:
        ends = np.cumsum([0, *(len(model.dual_coef) for model in models)])
        places = [np.arange(at, end) for at, end in pairwise(ends.tolist())]
        vectors = stack_rows([model.support_vectors for model in models])
    dual_coef = np.zeros((len(models), vectors.shape[0]))
    for model, mine, coef in zip(models, places, dual_coef, strict=True):
        coef[mine] = model.dual_coef
    return KernelModel(first.kernel, vectors, dual_coef, intercept, first.classes, first.scaling, first.feature_names)


def make_one_against_rest(
    source: RowSource, options: TrainOptions, make: Callable[[RowSource, TrainOptions], Algorithm]
) -> OneAgainstRest:
    """Make a solver for each class by the function that makes one for two classes; InputError as that."""
    return OneAgainstRest(tuple(algorithm for _, algorithm in make_each(source, options, make)))


def make_each(
    source: RowSource, options: TrainOptions, make: Callable[[RowSource, TrainOptions], A]
) -> list[tuple[RowSource, A]]:
    """Return what each problem sees of the rows, and its solver; InputError as the function that makes solvers.

    Each has an equal part of the memory that the budget leaves for rows.
    """
    factors = compute_class_factors(source, options)
    views = [view_class(source, code) for code in range(len(factors))]
    budget = share_budget(options.memory_bytes or default_budget_bytes(), len(views))
    given = replace(options, memory_bytes=budget, class_weight=None)
    each = [replace(given, class_weight={ONE: float(factor)}) for factor in factors]
    return [(view, make(view, its)) for view, its in zip(views, each, strict=True)]
