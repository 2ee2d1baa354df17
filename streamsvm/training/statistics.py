"""The statistic that is measured over all rows before a method is set up: the number that gamma "scale" stands for.

An engine carries out the pass, so all threads or workers take part in it. The training, or several of them, go on with
the same engine, and the chunks that fit into memory stay there. The sums of tiles are added in the order of the rows,
so every engine finds the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamsvm.engines.protocol import Engine
from streamsvm.numeric.kernel_codes import has_gamma
from streamsvm.numeric.moments import add_moments, compute_variance, join_moments
from streamsvm.options import TrainOptions
from streamsvm.requests import Scan


def needs_scale(options: TrainOptions) -> bool:
    """Tell whether the rows have to be read for gamma."""
    return has_gamma(options.kernel) and options.gamma == "scale"


def put_stand_in(options: TrainOptions) -> TrainOptions:
    """Return the options, with gamma "auto" in place of "scale", so that no rows have to be read for gamma.

    A method is set up with them first, so that settings that cannot be trained are refused, and the memory is
    projected, before the rows are read for the right gamma.
    """
    return replace(options, gamma="auto") if needs_scale(options) else options


def measure_gamma(engine: Engine) -> float:
    """Return 1 / (features * variance of all values) of an engine's rows, or 1 if all values are equal, in one pass."""
    d = engine.source.n_features
    variance = compute_variance(engine.scan(Scan(list, add_moments, join_moments, shared=(np.ones((1, d)),))))
    return 1.0 / (d * variance) if variance > 0 else 1.0


def settle_gammas(engine: Engine, many: Sequence[TrainOptions]) -> list[TrainOptions]:
    """Return the settings, with the measured number in place of every gamma "scale". The rows are read once at most."""
    if not any(map(needs_scale, many)):
        return list(many)
    gamma = measure_gamma(engine)
    return [replace(options, gamma=gamma) if needs_scale(options) else options for options in many]


def settle_gamma(engine: Engine, options: TrainOptions) -> TrainOptions:
    """Return the options, with the measured number in place of gamma "scale"."""
    return settle_gammas(engine, [options])[0]
