"""The value of gamma "scale", measured over all rows before a solver is set up.

Measuring takes one pass over the rows, which an engine carries out on all threads or workers. The subsequent trainings
use the same engine, so chunks that fit into memory stay there. The sums of tiles are added in row order, so every
engine computes the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamsvm.engines.engine import Engine
from streamsvm.kernels.kernel import add_moments, compute_variance, join_moments
from streamsvm.kernels.names import has_gamma
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan
from streamsvm.system import deadline


def needs_scale(options: TrainOptions) -> bool:
    """Return whether gamma is "scale", for which the rows must be read."""
    return has_gamma(options.kernel) and options.gamma == "scale"


def stand_in_for_gamma(options: TrainOptions) -> TrainOptions:
    """Return the options with gamma "auto", which needs no read of the rows, in place of "scale".

    A solver is first set up with these options, so that impossible settings are refused and the memory is projected
    before the rows are read to compute gamma.
    """
    return replace(options, gamma="auto") if needs_scale(options) else options


def measure_gamma(engine: Engine) -> float:
    """Return 1 / (features * variance of all values), or 1 if all values are equal. This takes one pass."""
    d = engine.source.n_features
    variance = compute_variance(engine.scan(Scan(list, add_moments, join_moments, shared=(np.ones((1, d)),))))
    return 1.0 / (d * variance) if variance > 0 else 1.0


def resolve_gammas(engine: Engine, many: Sequence[TrainOptions]) -> list[TrainOptions]:
    """Return the settings with gamma "scale" replaced by its measured value. This takes at most one pass."""
    if not any(map(needs_scale, many)):
        return list(many)
    with deadline.limit(many[0].max_seconds):
        gamma = measure_gamma(engine)
    return [replace(options, gamma=gamma) if needs_scale(options) else options for options in many]


def resolve_gamma(engine: Engine, options: TrainOptions) -> TrainOptions:
    """Return the options with gamma "scale" replaced by its measured value."""
    return resolve_gammas(engine, [options])[0]
