"""Solvers by name."""

from __future__ import annotations

from collections.abc import Callable

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.budgeted_sgd.setup import make_budgeted
from streamsvm.methods.cutting_plane.setup import make_cutting_planes
from streamsvm.methods.decomposition.setup import make_decomposition
from streamsvm.methods.feature_map.setup import FeatureMaps, FeatureOptions, make_feature_maps
from streamsvm.methods.interior_point.setup import make_interior_points
from streamsvm.methods.method import Algorithm, Report, TakeRows, count_driver_bytes
from streamsvm.methods.one_against_rest import make_one_against_rest
from streamsvm.methods.ranking.setup import make_rankings
from streamsvm.options import TrainOptions, check_costs, check_numbers

__all__ = [
    "FACTORIES",
    "Algorithm",
    "FeatureMaps",
    "FeatureOptions",
    "Report",
    "TakeRows",
    "count_driver_bytes",
    "make_algorithm",
    "make_feature_maps",
]

FACTORIES: dict[str, Callable[[RowSource, TrainOptions], Algorithm]] = {
    "cutting-plane": make_cutting_planes,
    "smo": make_decomposition,
    "irwls": make_decomposition,
    "budgeted-sgd": make_budgeted,
    "interior-point": make_interior_points,
}
TASKS = ("classify", "rank", "roc-area")


def make_algorithm(source: RowSource, options: TrainOptions) -> Algorithm:
    """Return the solver that was asked for, with its settings; InputError for what cannot be trained."""
    if options.solver not in FACTORIES:
        raise InputError(f"solver {options.solver!r}: choose from {', '.join(FACTORIES)}")
    if options.task not in TASKS:
        raise InputError(f"task {options.task!r}: choose from {', '.join(TASKS)}")
    check_numbers(options)
    check_costs(source, options)
    if options.task != "classify":
        return make_rankings(source, options)
    make = FACTORIES[options.solver]
    several = source.classes is not None and len(source.classes) > 2
    return make_one_against_rest(source, options, make) if several else make(source, options)
