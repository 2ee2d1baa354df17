"""How a training is projected: its engine is opened, a sample is trained on, and a few chunks are read.

The passes are those of the sample: with the same total cost sum C_i they hardly depend on the number of rows. On Adult,
Covertype, ijcnn1 and Web, solvers of linear models made 0.6 to 1.6 times as many on all rows as on 8,000, hence LEAST
and MOST. Resident rows guide better the more there are: the sample is tried with as large a share of its rows resident
as of all, and with as many; what all rows then took lay between. Decompositions (smo, irwls) are not estimated: what
they take depends on how many rows become support vectors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.data.source import RowSource
from streamsvm.engines.memory import MemoryPlan
from streamsvm.engines.protocol import Engine
from streamsvm.errors import InputError
from streamsvm.machine import default_budget_bytes, default_threads
from streamsvm.methods.fit import Fit
from streamsvm.methods.set_up import choose_method, read_own_options, set_up
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_problem
from streamsvm.training.plan import KEPT_SHARE, Passes, Plan
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
from streamsvm.training.statistics import put_stand_in
from streamsvm.training.train import open_for

if TYPE_CHECKING:
    from distributed import Client

LEAST, MOST = 0.6, 1.6  # of the passes on the sample
TIMES, FEW = 5, 8  # rows are repeated so often, for so few passes, to see how thinking grows with them where it does

Found = tuple[Passes, Speed, float | None, float]  # seconds between two passes, rows taken by number in each


def plan_training(
    source: RowSource, options: TrainOptions, client: Client | None = None, keep_dual: bool = False
) -> Plan:
    """Project a training; a few chunks are read, and a sample of rows is trained on, for some seconds.

    InputError and MemoryBudgetError as `train` raises them.
    """
    asked = put_stand_in(options)
    fit = set_up(source, asked, keep_dual)
    with threadpool_limits(1), open_for(source, asked, [fit], client) as (engine, memory):
        n_tasks = (options.workers or 1) * (options.threads or (1 if options.workers else default_threads()))
        match choose_method(options).passes:
            case "unknown":
                passes, speed, between, taken = _plan_unknown(fit, engine, memory, n_tasks)
            case "epochs":
                passes, speed, between, taken = _plan_epochs(options, engine, memory, n_tasks)
            case "sampled":
                passes, speed, between, taken = _plan_passes(fit, options, engine, memory, n_tasks)
    speed = _slow_down(source, memory, speed)
    first, later = speed.first * source.n_rows, speed.later * source.n_rows
    taken_bytes = int(taken * source.nbytes / source.n_rows) if source.on_disk else 0
    return Plan(source, options, memory, passes, first, later, between, taken_bytes, speed.n_chunks)


def _plan_unknown(fit: Fit, engine: Engine, memory: MemoryPlan, n_tasks: int) -> Found:
    whole = int(np.min(fit.settings.get("resident_rows", 0))) >= engine.source.n_rows
    unknown = Passes(2, None, None, f"{fit.method} is not estimated: it depends on the support vectors")
    passes = Passes(1, 1, 1, "all rows are active at once") if whole else unknown
    return passes, measure_reading(engine, n_tasks, memory), None, 0.0


def _plan_epochs(options: TrainOptions, engine: Engine, memory: MemoryPlan, n_tasks: int) -> Found:
    """Rows are learned one after another in each replica; in the sample's second epoch, its budget is full."""
    source, own = engine.source, read_own_options(options)
    passes = Passes(own.epochs, own.epochs, own.epochs, "the epochs asked for")
    sample = draw_sample(source, False, options.seed)
    twice = replace(options, options={**options.options, "epochs": "2"})
    try:
        tried = try_sample(sample, source, twice, memory)
    except InputError:
        return passes, measure_reading(engine, n_tasks, memory), None, 0.0
    read = measure_reading(engine, n_tasks, memory)
    learned = tried.walk_seconds / tried.n_rows / min(own.replicas, n_tasks)
    speed = Speed(max(read.first, learned), max(read.later, learned), read.n_chunks)
    return passes, speed, tried.between, 0.0


def _plan_passes(fit: Fit, options: TrainOptions, engine: Engine, memory: MemoryPlan, n_tasks: int) -> Found:
    source = engine.source
    sample = draw_sample(source, find_problem(options.task).reads_queries, options.seed)
    resident = fit.settings.get("resident_rows")
    try:
        if resident is None:
            tries = [try_sample(sample, source, options, memory)]
        else:
            share = max(2, round(int(np.max(resident)) * sample.n_rows / source.n_rows))
            counts = share, min(int(np.max(resident)), sample.n_rows)
            tries = [try_sample(sample, source, replace(options, resident_rows=n), memory) for n in counts]
    except InputError as error:
        passes = Passes(None, None, None, f"not estimated: {error}")
        return passes, measure_reading(engine, n_tasks, memory), None, 0.0
    between, taken = tries[-1].between, tries[0].taken_rows
    if resident is not None:
        between *= max(1.0, int(np.max(resident)) / sample.n_rows)
        taken *= source.n_rows / sample.n_rows
    elif any(scan.by_row for scan, _ in tries[0].scans):
        short, long = (try_sample(rows, source, options, memory, FEW) for rows in (sample, repeat(sample, TIMES)))
        slope = (long.between - short.between) / (long.n_rows - short.n_rows)
        between += max(0.0, slope) * (source.n_rows - sample.n_rows)
    return _expect(tries, source.n_rows), measure_passes(engine, n_tasks, memory, tries[-1]), between, taken


def _expect(tries: list[Tried], n_rows: int) -> Passes:
    """Return passes by those on the sample, which may have been tried in two ways."""
    counts = [tried.passes for tried in tries]
    if any(tried.status == "time_limit" for tried in tries):
        how = f"{tries[0].n_rows:,} rows were not done in {SAMPLE_SECONDS:g} s"
        return Passes(min(counts), None, None, how)
    how = f"the same settings on {tries[0].n_rows:,} rows"
    if tries[0].n_rows == n_rows:
        return Passes(counts[0], counts[0], counts[0], "tried on all rows, which are few")
    if min(counts) < max(counts):
        return Passes(min(counts), round(math.sqrt(counts[0] * counts[-1])), max(counts), how)
    return Passes(max(1, math.floor(LEAST * counts[0])), counts[0], math.ceil(MOST * counts[0]), how)


def _slow_down(source: RowSource, memory: MemoryPlan, speed: Speed) -> Speed:
    """Return the speed of data that the system cannot hold: what is not kept is read from disk in later passes, too."""
    streamed = max(0.0, 1.0 - KEPT_SHARE * memory.pin_bytes / max(1, source.nbytes))
    if streamed * source.nbytes <= 2 * default_budget_bytes():
        return speed
    return replace(speed, later=max(speed.later, streamed * speed.first))
