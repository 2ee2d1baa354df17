"""The projection of a training: its engine is opened, a model is trained on a sample, and a few chunks are read.

The number of passes is measured on the sample. It hardly depends on the number of rows, if the total cost sum C_i is
the same: on Adult, Covertype, ijcnn1 and Web, solvers of linear models made 0.6 to 1.6 times as many passes over all
rows as over 8,000 rows (hence LEAST and MOST). A solver with resident rows needs fewer passes the more rows are
resident. It is therefore tried twice, with the share and with the number of resident rows that the training has; the
passes of the whole training lay between the two. The passes of a decomposition (smo, irwls) are not estimated, because
they depend on how many rows become support vectors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.engines.cluster import DistributedEngine
from streamsvm.engines.memory import MemoryPlan
from streamsvm.engines.protocol import Engine
from streamsvm.engines.subsets import plan_scratch
from streamsvm.errors import InputError, say_count
from streamsvm.machine import default_budget_bytes, default_threads
from streamsvm.methods.fit import Fit
from streamsvm.methods.set_up import choose_method, read_own_options, settle_task
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.training.cluster_cost import find_cluster
from streamsvm.training.fold_fits import FoldFits
from streamsvm.training.plan import KEPT_SHARE, NOTHING, Passes, Plan, Taken
from streamsvm.training.probe import (
    SAMPLE_SECONDS,
    Speed,
    Tried,
    draw_sample,
    measure_passes,
    measure_reading,
    repeat,
    try_sample,
)
from streamsvm.training.statistics import needs_scale, put_stand_in
from streamsvm.training.train import open_for, set_up_group

if TYPE_CHECKING:
    from distributed import Client

NUMBER_BYTES = 8 + 8  # for a row: its number, and its part of the heads of blocks
LEAST, MOST = 0.6, 1.6  # least and most passes over all rows, as multiples of the passes over the sample
# Where the time between two passes grows with the rows, it is measured on the sample, and on a sample repeated TIMES
# times, for FEW passes each.
TIMES, FEW = 5, 8

# The passes, their speed, the seconds between two passes (None: unknown), and the rows that are taken by number.
Found = tuple[Passes, Speed, float | None, Taken]


def plan_training(
    source: RowSource,
    options: TrainOptions,
    client: Client | None = None,
    keep_dual: bool = False,
    folds: FoldFits | None = None,
) -> Plan:
    """Project the passes, seconds, bytes and memory of a training, in some seconds and without a full pass.

    A model is trained on a sample of the rows, and a few chunks are read as the training would read them.

    Parameters
    ----------
    source : RowSource
        The rows to train on.
    options : TrainOptions
        The settings and limits of the training.
    client : distributed.Client, optional
        A Dask cluster that would carry out the passes. By default `options` says where they are carried out.
    keep_dual : bool, default False
        Whether the training would keep its dual point, which takes memory.
    folds : FoldFits, optional
        The fits beside the training that would give its model probabilities (calibrate.make_folds).

    Returns
    -------
    Plan
        The projection. Passes and times that cannot be estimated are None in it.

    Raises
    ------
    InputError
        If the settings or the data cannot be trained with, as in `train`.
    MemoryBudgetError
        If the training would exceed its memory budget, as in `train`.
    """
    options = settle_task(source, options)
    asked = put_stand_in(options)
    fits = set_up_group(source, asked, keep_dual, None, folds)
    fit, n_fits = fits[0], len(fits)
    with one_blas_thread(), open_for(source, asked, [[each] for each in fits], client) as (engine, memory):
        cluster = find_cluster(engine)
        n_tasks = cluster.workers * cluster.threads if cluster else options.threads or default_threads()
        match choose_method(options).passes:
            case "unknown":
                passes, speed, between, taken = _plan_unknown(fit, engine, memory, n_tasks)
            case "epochs":
                passes, speed, between, taken = _plan_epochs(options, engine, memory, n_tasks)
            case "sampled":
                passes, speed, between, taken = _plan_passes(fit, n_fits, options, engine, memory, n_tasks)
    if needs_scale(options):
        passes = passes.add(1, "for gamma")
    if folds is not None:
        passes = passes.add(1, "that scores the rows that were held out")
    speed = _slow_down(source, memory.pin_bytes * (cluster.workers if cluster else 1), speed)
    first, later = speed.first * source.n_rows, speed.later * source.n_rows
    scratch, most_bytes = fit.scratch or "", _project_scratch(fit, source, memory)
    own = between, taken, speed.n_chunks, fit.note, scratch, most_bytes
    return Plan(source, options, memory, passes, first, later, *own, cluster=cluster)


def _project_scratch(fit: Fit, source: RowSource, memory: MemoryPlan) -> int:
    """Return the most bytes of the rows that are set aside: each has its number with it."""
    scratch = plan_scratch(fit.scratch, source, memory.pin_bytes)
    return 0 if scratch is None else round(scratch.most_share * (source.nbytes + NUMBER_BYTES * source.n_rows))


def _plan_unknown(fit: Fit, engine: Engine, memory: MemoryPlan, n_tasks: int) -> Found:
    """Return one pass if all rows are active at once, and otherwise at least two passes and no estimate."""
    whole = int(np.min(fit.settings.get("resident_rows", 0))) >= engine.source.n_rows
    unknown = Passes(2, None, None, f"{fit.method} is not estimated: it depends on the support vectors")
    passes = Passes(1, 1, 1, "all rows are active at once") if whole else unknown
    return passes, measure_reading(engine, n_tasks, memory), None, NOTHING


def _plan_epochs(options: TrainOptions, engine: Engine, memory: MemoryPlan, n_tasks: int) -> Found:
    """Project budgeted SGD, whose passes are the epochs that were asked for.

    Each replica learns its rows one after another. The second epoch on the sample is timed, since the budget of support
    vectors is full by then.
    """
    source, own = engine.source, read_own_options(options)
    passes = Passes(own.epochs, own.epochs, own.epochs, "the epochs asked for")
    sample = draw_sample(source, False, options.seed)
    twice = replace(options, options={**options.options, "epochs": "2"})
    try:
        tried = try_sample(sample, source, twice, memory)
    except InputError:
        return passes, measure_reading(engine, n_tasks, memory), None, NOTHING
    return passes, _measure_walks(engine, n_tasks, memory, tried, own.replicas), tried.between, NOTHING


def _measure_walks(engine: Engine, n_tasks: int, memory: MemoryPlan, tried: Tried, side_by_side: int) -> Speed:
    """Return the speed of walks through all rows, of which some are made side by side: of reading, or learning."""
    read = measure_reading(engine, n_tasks, memory)
    learned = tried.walk_seconds / tried.n_rows / min(side_by_side, n_tasks)
    return Speed(max(read.first, learned), max(read.later, learned), read.n_chunks)


def _plan_passes(
    fit: Fit, n_fits: int, options: TrainOptions, engine: Engine, memory: MemoryPlan, n_tasks: int
) -> Found:
    """Project a solver whose passes are estimated from its passes over a sample.

    n_fits: how many such fits share the reads; their solvers compute one after another.
    """
    source = engine.source
    sample = draw_sample(source, find_problem(options.task).reads_queries, options.seed)
    resident = fit.settings.get("resident_rows")
    own = {name: value for name, value in options.options.items() if name != "scratch"}
    options = replace(options, options=own)  # rows in memory are not set aside
    try:
        if resident is None:
            tries = [try_sample(sample, source, options, memory)]
        else:
            share = max(2, round(int(np.max(resident)) * sample.n_rows / source.n_rows))
            counts = share, min(int(np.max(resident)), sample.n_rows)
            tries = [try_sample(sample, source, replace(options, resident_rows=n), memory) for n in counts]
    except InputError as error:
        passes = Passes(None, None, None, f"not estimated: {error}")
        return passes, measure_reading(engine, n_tasks, memory), None, NOTHING
    between = tries[-1].between
    if resident is not None:
        between *= max(1.0, int(np.max(resident)) / sample.n_rows)
    elif any(scan.by_row for scan, _ in tries[0].scans):
        short, long = (try_sample(rows, source, options, memory, FEW) for rows in (sample, repeat(sample, TIMES)))
        slope = (long.between - short.between) / (long.n_rows - short.n_rows)
        between += max(0.0, slope) * (source.n_rows - sample.n_rows)
    taken = _measure_taken(engine, fit, tries[0], sample.n_rows)  # before the probe, which changes the engine's source
    # The first try keeps the same share of the rows as the training, so that the probe keeps no more rows than fit.
    if tries[0].scans:
        speed = measure_passes(engine, n_tasks, memory, tries[0], n_fits)
    else:
        speed = _measure_walks(engine, n_tasks, memory, tries[0], 1)
    return _expect(tries, source.n_rows), speed, n_fits * between, taken


def _measure_taken(engine: Engine, fit: Fit, tried: Tried, sample_rows: int) -> Taken:
    """Return the bytes of rows that are taken by number: for each pass, and of a sample that is taken once."""
    source = engine.source
    if fit.sample is not None and not source.is_shuffled:
        return Taken(0, _count_bytes(source, fit.sample.rows))
    if fit.sample is not None:
        first, end = 0, fit.sample.rows
        if fit.sample.is_held and not isinstance(engine, DistributedEngine):
            # In the first pass threads do not read the chunks that lie within the first rows once more.
            first = source.chunk_starts[np.searchsorted(source.chunk_starts, end, side="right") - 1]
        return Taken(0, source.take_bytes(np.arange(first, end)))
    found = sum(_count_bytes(source, number * source.n_rows // sample_rows) for number in tried.taken)
    return Taken(found // max(1, tried.passes), 0)


def _count_bytes(source: RowSource, number: int) -> int:
    """Return the bytes that are read for so many rows from all over the data."""
    return source.take_bytes(np.linspace(0, source.n_rows - 1, number).astype(np.int64)) if number else 0


def _expect(tries: list[Tried], n_rows: int) -> Passes:
    """Return the passes to expect from the passes over the sample, which was tried once or twice."""
    counts = [tried.passes for tried in tries]
    if any(tried.status == "time_limit" for tried in tries):
        how = f"{say_count(tries[0].n_rows, 'row')} were not done in {SAMPLE_SECONDS:g} s"
        return Passes(min(counts), None, None, how)
    how = f"the same settings on {say_count(tries[0].n_rows, 'row')}"
    if tries[0].n_rows == n_rows:
        return Passes(counts[0], counts[0], counts[0], "tried on all rows, which are few")
    if min(counts) < max(counts):
        more = 0 if tries[0].scans else 1  # a walk through blocks in another order may take another one
        return Passes(min(counts), round(math.sqrt(counts[0] * counts[-1])), max(counts) + more, how)
    return Passes(max(1, math.floor(LEAST * counts[0])), counts[0], math.ceil(MOST * counts[0]), how)


def _slow_down(source: RowSource, pin_bytes: int, speed: Speed) -> Speed:
    """Return the speed, with slower later passes if the system's file cache cannot hold the chunks that are not pinned.

    pin_bytes: of all processes together. Chunks that are not pinned are read from disk in every pass; the probe reads
    few chunks, which stay in the cache.
    """
    streamed = max(0.0, 1.0 - KEPT_SHARE * pin_bytes / max(1, source.nbytes))
    if streamed * source.nbytes <= 2 * default_budget_bytes():
        return speed
    return replace(speed, later=max(speed.later, streamed * speed.first))
