"""The feature map of `train` and `tune` (--map), and what was spent on it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from streamsvm.errors import InputError

if TYPE_CHECKING:
    from streamsvm.methods.feature_map.options import FeatureOptions
    from streamsvm.options import TrainOptions
    from streamsvm.training.spent import Spent
    from streamsvm.training.trials import Tuning


def read_map(options: argparse.Namespace) -> FeatureOptions | None:
    """Return the feature map that --map asks for, or None."""
    from streamsvm.methods.feature_map.options import FeatureOptions

    return (
        None if options.map is None else FeatureOptions(options.map, options.rank or FeatureOptions.rank, options.seed)
    )


def put_gamma(options: argparse.Namespace, settings: TrainOptions) -> TrainOptions:
    """Return the settings of `tune` with the gamma of the map, if there is one: all fits share one map."""
    if options.map is None or not options.gamma:
        return settings
    if len(options.gamma) > 1:
        raise InputError("--gamma: all fits share one map (--map), so one value is expected")
    return replace(settings, gamma=options.gamma[0])


def add_spent(tuning: Tuning, spent: Spent) -> Tuning:
    """Return a tuning whose passes, bytes and seconds include what was spent on a map."""
    return replace(
        tuning,
        passes=tuning.passes + spent.passes,
        read_bytes=tuning.read_bytes + spent.read_bytes,
        seconds=tuning.seconds + spent.seconds,
    )
