"""Ordinal regression and ROC area by cutting planes, as `train` drives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.method import Report, TakeRows
from streamsvm.methods.ranking import solver as ranking
from streamsvm.methods.ranking.solver import Ranking, State
from streamsvm.models.model import RankModel
from streamsvm.numeric.pair_counts import Pairs
from streamsvm.options import TrainOptions, check_names, read_choice, read_count, read_positive
from streamsvm.problems.ranking import find_pairs
from streamsvm.requests import Solver

ROW_VECTORS = 28  # of 8 bytes a row at once: scores, in twice the precision too, and what counts the pairs
HELD_VECTORS = 7  # the pairs, this state and the next, scores that are waited for


@dataclass(frozen=True)
class Rankings:
    """See Algorithm; ranking.solver."""

    settings: Ranking
    task: str
    pairs: Pairs = field(repr=False)
    name: ClassVar[str] = "cutting-plane"

    def describe(self) -> dict[str, Any]:
        """See Algorithm."""
        return {"task": self.task, **asdict(self.settings)}

    def driver_bytes(self, source: RowSource) -> int:
        """See Algorithm."""
        return self.settings.driver_bytes(source.n_features) + 8 * ROW_VECTORS * source.n_rows

    def turn_bytes(self, source: RowSource) -> int:
        """See Algorithm: what counts pairs."""
        return self.settings.turn_bytes(source.n_features) + 8 * (ROW_VECTORS - HELD_VECTORS) * source.n_rows

    def totals_bytes(self, source: RowSource) -> int:
        """See Algorithm: sums of rows, or the scores of a group."""
        return 8 * (ranking.RETREATS + 1) * source.n_features + 16 * source.n_rows // len(plan_groups(source))

    def shared_bytes(self, source: RowSource) -> int:
        """See Algorithm: a vector; of the rows' own, each task is sent its part."""
        return 8 * source.n_features + 8 * (ranking.RETREATS + 1) * source.n_rows // len(plan_groups(source))

    def walk_bytes(self, source: RowSource, threads: int) -> int:  # noqa: ARG002
        """See Algorithm: there are none."""
        return 0

    def start_state(self, source: RowSource) -> State:
        """See Algorithm."""
        return ranking.start_state(source.n_features)

    def warm_state(self, source: RowSource, before: State, factor: float) -> State:  # noqa: ARG002
        """See Algorithm."""
        return ranking.warm_state(self.settings, before, factor)

    def solve(self, source: RowSource, state: State) -> Solver:  # noqa: ARG002
        """See Algorithm."""
        return ranking.solve(self.settings, self.pairs, state)

    def make_model(self, source: RowSource, state: State, take: TakeRows) -> RankModel:  # noqa: ARG002
        """See Algorithm."""
        return RankModel(
            coef=state.best_w,
            intercept=0.0,
            classes=np.asarray(source.classes),
            scaling=source.scaling,
            feature_names=source.feature_names,
        )

    def report(self, state: State) -> Report:
        """See Algorithm."""
        return Report(**vars(state.progress))


def make_rankings(source: RowSource, options: TrainOptions) -> Rankings:
    """Options: acceleration=line-search|none, epsilon, max_cuts."""
    if options.solver != "cutting-plane":
        raise InputError(f"solver {options.solver}: the task {options.task} is for cutting-plane alone")
    check_names(options, ("acceleration", "epsilon", "max_cuts"))
    for name, given in (("kernel", options.kernel != "linear"), ("resident rows", options.resident_rows is not None)):
        if given:
            raise InputError(f"{name}: not for the task {options.task}; leave that out")
    if options.class_weight is not None:
        raise InputError(f"class_weight: pairs have two ranks each, so it is not for the task {options.task}")
    pairs, weight = find_pairs(source, options.task)
    given_options = options.options
    settings = Ranking(
        pair_cost=float(options.C) * weight / pairs.total,
        tol=float(options.tol),
        epsilon=read_positive(given_options, "epsilon"),
        accelerated=read_choice(given_options, "acceleration", ("line-search", "none")) == "line-search",
        max_cuts=read_count(given_options, "max_cuts", ranking.RETREATS + 1),
    )
    return Rankings(settings, options.task, pairs)
