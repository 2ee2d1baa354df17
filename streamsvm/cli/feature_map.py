"""The feature map of `train` and `tune` (--map), and what was spent on it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamsvm.methods.feature_map.options import FeatureOptions
    from streamsvm.training.spent import Spent
    from streamsvm.training.trials import Tuning


def read_map(options: argparse.Namespace) -> FeatureOptions | None:
    """Return the feature map that --map asks for, or None."""
    from streamsvm.methods.feature_map.options import FeatureOptions

    return (
        None if options.map is None else FeatureOptions(options.map, options.rank or FeatureOptions.rank, options.seed)
    )


def add_spent(tuning: Tuning, spent: Spent) -> Tuning:
    """Return a tuning whose passes, bytes and seconds include what was spent on a map."""
    return replace(
        tuning,
        passes=tuning.passes + spent.passes,
        read_bytes=tuning.read_bytes + spent.read_bytes,
        seconds=tuning.seconds + spent.seconds,
    )
