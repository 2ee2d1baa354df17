"""The rows that `train` and `tune` learn from: a dataset's, or their features (--map), which are made in each pass."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsvm.data.source import RowSource
    from streamsvm.methods.feature_map.options import FeatureOptions
    from streamsvm.options import TrainOptions
    from streamsvm.training.features import Report
    from streamsvm.training.spent import Spent
    from streamsvm.training.trials import Tuning


@dataclass(frozen=True)
class LearnedRows:
    """Rows, the settings of the method that learns from them, arguments of `train`, and what was spent on a map."""

    source: RowSource
    settings: TrainOptions
    arguments: dict[str, Any] = field(default_factory=dict)
    spent: Spent | None = None


def read_map(options: argparse.Namespace) -> FeatureOptions | None:
    """Return the feature map that --map asks for, or None."""
    from streamsvm.methods.feature_map.options import FeatureOptions

    return (
        None if options.map is None else FeatureOptions(options.map, options.rank or FeatureOptions.rank, options.seed)
    )


@contextmanager
def open_rows(
    options: argparse.Namespace, source: RowSource, settings: TrainOptions, out: Path | None, report: Report
) -> Iterator[LearnedRows]:
    """Find the map that is asked for, if any, and open the rows. Without `out` nothing is kept of the map's passes."""
    from streamsvm.training.on_the_fly import make_linear, open_mapped

    features = read_map(options)
    if features is None:
        yield LearnedRows(source, settings, {"resume": options.resume, "overwrite": options.overwrite})
        return
    keep_dual = getattr(options, "keep_dual", False)
    with open_mapped(
        source, features, settings, out, options.resume, options.overwrite, keep_dual=keep_dual, report=report
    ) as rows:
        arguments = {"resume": True, "lock": rows.lock, "spent": rows.spent}
        yield LearnedRows(rows.source, make_linear(features, settings, source), arguments, rows.spent)


def add_spent(tuning: Tuning, spent: Spent | None) -> Tuning:
    """Return a tuning whose passes, bytes and seconds include what was spent on a map."""
    if spent is None:
        return tuning
    return replace(
        tuning,
        passes=tuning.passes + spent.passes,
        read_bytes=tuning.read_bytes + spent.read_bytes,
        seconds=tuning.seconds + spent.seconds,
    )
