"""The plan of a training on features that are made in each pass, and whether storing them first would be faster.

No pass looks for the map. Random rows make a map that costs as much, on which the training is planned.

    mapping again     (passes - 1) * share that does not stay in memory * rows * CPU seconds of a row / threads
    storing           4 bytes a feature and row, written once and read in every pass
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.mapped import Mapped
from streamsvm.data.source import RowSource
from streamsvm.engines.serial import SerialEngine
from streamsvm.machine import default_threads, format_bytes
from streamsvm.methods.feature_map.options import FeatureOptions
from streamsvm.methods.set_up import set_up_map
from streamsvm.numeric.feature_maps import (
    FeatureMap,
    Features,
    KernelMap,
    PolynomialMap,
    make_nystrom_map,
    split_rows,
)
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import slice_rows
from streamsvm.options import TrainOptions
from streamsvm.training.calibrate import make_folds
from streamsvm.training.estimate import plan_training
from streamsvm.training.on_the_fly import make_linear
from streamsvm.training.plan import KEPT_SHARE, Plan, show_seconds
from streamsvm.training.probe import READ_BYTES_A_SECOND, draw_sample
from streamsvm.training.statistics import measure_gamma, needs_scale, put_stand_in

if TYPE_CHECKING:
    from distributed import Client

WRITE_BYTES_A_SECOND = 4e8  # features that are written with their checksums, as tests/benchmarks/on_the_fly.py measures
TIMED_ROWS = 1024


def plan_rows(
    source: RowSource,
    features: FeatureOptions | None,
    options: TrainOptions,
    client: Client | None = None,
    keep_dual: bool = False,
    probabilities: str | None = None,
) -> Plan:
    """Project a training on the features of rows, and tell in its note whether storing the features would be faster.

    Without `features` it is the plan of a training on the rows. probabilities: the way in which the model would get
    them, from fits on folds. The other arguments and errors are those of `plan_training`
    and `train_on_features`.
    """
    folds = None if probabilities is None else make_folds(source, options, probabilities)
    if features is None:
        return plan_training(source, options, client, keep_dual, folds)
    linear = make_linear(features, options, source)
    fit = set_up_map(source, features, put_stand_in(options))
    stand_in = fit.stand_in()
    sample = draw_sample(source, False, options.seed)
    with one_blas_thread():
        found = _make_like(stand_in, sample, options)
        seconds = _time_row(found, sample)
        mapped = Mapped(source, Features(found))
        own = None if folds is None else replace(folds, source=mapped)
        plan = plan_training(mapped, linear, client, keep_dual, own)
    more = fit.passes + int(isinstance(found, KernelMap) and needs_scale(options))
    note = " ".join(filter(None, (plan.note, _compare(plan, seconds))))
    return replace(plan, passes=plan.passes.add(more, "that find the map"), note=note)


def _make_like(stand_in: FeatureMap, sample: ArrayDataset, options: TrainOptions) -> FeatureMap:
    """Return a map of the size of `stand_in` that random rows make, with as many pivots as the sample has rows."""
    if isinstance(stand_in, PolynomialMap):
        plain = replace(stand_in, largest=1.0)
        return replace(plain, largest=float(np.max(np.abs(plain.apply(sample.take(np.arange(1)).X)))))
    kernel, (number, width) = stand_in.kernel, stand_in.matrix.shape
    if needs_scale(options):
        kernel = replace(kernel, gamma=measure_gamma(SerialEngine(sample)))
    found = make_nystrom_map(kernel, sample.take(np.arange(min(number, sample.n_rows))).X)
    return KernelMap(kernel, found.rows, found.matrix[:, -width:])


def _time_row(found: FeatureMap, sample: ArrayDataset) -> float:
    """Return the CPU seconds of mapping a row on one thread."""
    X = sample.take(np.arange(TIMED_ROWS) % sample.n_rows).X
    best = np.inf
    for _ in range(3):
        began = time.process_time()
        for part in split_rows(found, TIMED_ROWS):
            found.apply(slice_rows(X, part))
        best = min(best, time.process_time() - began)
    return float(best) / TIMED_ROWS


def _compare(plan: Plan, row_seconds: float) -> str:
    """Return what mapping in each pass costs, and whether it costs more than storing the features once."""
    source, options = plan.source, plan.options
    tasks = (options.workers or 1) * (options.threads or (1 if options.workers else default_threads()))
    once = source.n_rows * row_seconds / tasks
    said = f"Mapping a row takes {1e6 * row_seconds:.2g} us of CPU, and all rows {show_seconds(once)}."
    passes = plan.count_passes()[1]
    if passes is None:
        return said
    streamed = max(0.0, 1.0 - KEPT_SHARE * plan.memory.pin_bytes / source.nbytes)
    again = (passes - 1) * streamed
    stored_bytes = 4 * source.n_rows * source.n_features
    storing = stored_bytes / WRITE_BYTES_A_SECOND + (1 + again) * stored_bytes / READ_BYTES_A_SECOND
    verdict = "that would be faster" if storing < again * once else "mapping in each pass is faster"
    return (
        f"{said} {streamed:.0%} of them are mapped again in each later pass, {show_seconds(again * once)} in all. To "
        f"store the features once (`streamsvm features`) writes {format_bytes(stored_bytes)}, and takes some "
        f"{show_seconds(storing)} of writing and reading instead: {verdict}."
    )
