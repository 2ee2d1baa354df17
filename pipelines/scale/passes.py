"""The costs of a pass, except reading, for driver, scheduler and workers, phase by phase, measured on very few rows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.scale.processes import SILENT_SECONDS, SmallWorkers, start_small_workers
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import engine as passes
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.cluster.workers import prepare_workers
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan
from streamsvm.solvers.set_up import ALL_MODELS, compile_all

QUIET_SECONDS = 0.5  # the seconds after a pass until the scheduler has forgotten all its tasks
WAIT_SECONDS = 0.01


@dataclass(frozen=True)
class Phases:
    """The seconds of one pass, by process and phase. They are CPU seconds, except `seconds`.

    Attributes
    ----------
    sends, ends : float
        The driver, until all workers have begun, and afterwards.
    gives, hears, frees : float
        The scheduler, until all workers have begun, then until the driver has the sum, and afterwards.
    workers : float
        All workers together.
    seconds : float
        Wall seconds from the call to the sum, without the time for which workers wait for one another.
    """

    sends: float
    ends: float
    gives: float
    hears: float
    frees: float
    workers: float
    seconds: float


def time_phases(data: Dataset, scan: Scan, n_workers: int, n_passes: int, gates: Path) -> Phases:
    """Return the minimum of each phase over several passes, since other programs can only lengthen a phase."""
    pauses = passes.SHORTEST_PAUSE, passes.LONGEST_PAUSE
    passes.SHORTEST_PAUSE = passes.LONGEST_PAUSE = SILENT_SECONDS  # workers do not take groups from one another here
    try:
        with start_small_workers(n_workers) as cluster, ThreadPoolExecutor(1) as pool:
            prepare_workers(cluster.client, partial(compile_all, ALL_MODELS))
            engine = DistributedEngine(data, cluster.client, 64 << 20)
            engine.scan(scan)
            found = [_time_pass(engine, cluster, pool, scan, n_workers, gates / str(k)) for k in range(n_passes)]
            engine.close()
    finally:
        passes.SHORTEST_PAUSE, passes.LONGEST_PAUSE = pauses
    return Phases(*(min(getattr(each, name) for each in found) for name in Phases.__dataclass_fields__))


def _time_pass(
    engine: DistributedEngine,
    cluster: SmallWorkers,
    pool: ThreadPoolExecutor,
    scan: Scan,
    n_workers: int,
    gate: Path,
) -> Phases:
    """Return the phases of a pass in which each worker waits in its first group until all workers have begun."""
    gate.mkdir(parents=True)
    workers = sum(cluster.client.run(time.process_time).values())
    time.sleep(QUIET_SECONDS)
    marks = [(time.process_time(), cluster.scheduler_seconds(), time.perf_counter())]

    def mark() -> None:
        marks.append((time.process_time(), cluster.scheduler_seconds(), time.perf_counter()))

    waiting = pool.submit(engine.scan, replace(scan, add=partial(add_at_gate, gate, scan.add)))
    while len(os.listdir(gate)) < n_workers:
        time.sleep(WAIT_SECONDS)
    mark()
    time.sleep(QUIET_SECONDS)
    mark()
    (gate / "open").touch()
    waiting.result()
    mark()
    time.sleep(QUIET_SECONDS)
    mark()
    workers = sum(cluster.client.run(time.process_time).values()) - workers
    driver, scheduler, clock = (np.diff([each[k] for each in marks]) for k in range(3))
    return Phases(
        sends=driver[0] + driver[1],
        ends=driver[2] + driver[3],
        gives=scheduler[0] + scheduler[1],
        hears=scheduler[2],
        frees=scheduler[3],
        workers=workers,
        seconds=clock[0] + clock[2],
    )


def add_at_gate(gate: Path, add: Callable[..., None], totals: Any, rows: Rows, *arguments: Any) -> None:
    """Record that this worker waits for the gate, and add the rows once the gate is open."""
    opened = gate / "open"
    if not opened.exists():
        (gate / f"{os.getpid()}-{threading.get_ident()}").touch()
        while not opened.exists():
            time.sleep(WAIT_SECONDS)
    add(totals, rows, *arguments)
