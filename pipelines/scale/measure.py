"""Measurements on this machine: tasks, sums, messages, the scheduler and the driver; and whole passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from distributed.protocol import deserialize_bytes, serialize_bytelist
from threadpoolctl import threadpool_limits

from streamsvm.data import groups
from streamsvm.data.dataset import Dataset
from streamsvm.data.generated import Truth
from streamsvm.data.groups import plan_groups
from streamsvm.data.readers import ingest
from streamsvm.engines.cluster import DistributedEngine
from streamsvm.engines.group import Pins, run_group
from streamsvm.engines.one_read import answer
from streamsvm.engines.serial import SerialEngine
from streamsvm.engines.workers import prepare_workers, start_workers
from streamsvm.methods.cutting_plane import solver as cutting_plane
from streamsvm.methods.cutting_plane.solver import CuttingPlane
from streamsvm.methods.warm_up import compile_kernels
from streamsvm.requests import All, Scan, Step

WORKER_BYTES = 4 << 30
TURNS = 8  # How often a task or a pass is timed.
PASSES = 4  # Passes of the solver before the pass that is measured.
ALL_BYTES = 1 << 40  # Keep every chunk in memory.
CHUNK_BYTES, TINY_BYTES = 2 << 20, 8 << 10


@dataclass(frozen=True)
class Line:
    """A time that grows with the size: seconds = fixed + slope * bytes."""

    fixed: float
    slope: float

    def at(self, nbytes: float) -> float:
        """Return the seconds for so many bytes."""
        return self.fixed + self.slope * nbytes


@dataclass(frozen=True)
class Costs:
    """What was measured.

    Attributes
    ----------
    kept, streamed : float
        CPU seconds a byte of a task, with rows in memory and with rows streamed from files.
    sigma : float
        Standard deviation of the logarithm of a task's seconds.
    combine, message : Line
        Seconds to add two totals, and to pack and unpack totals.
    overhead, worker_overhead : float
        CPU seconds that one more group, its task and its sum, costs the scheduler, and its worker.
    link : float
        Seconds of a task that waits for one before it.
    driver : float
        Seconds of the master problem and of the rest of a step.
    totals_bytes, shared_bytes : int
        Bytes that come from a task, and that go to it.
    """

    kept: float
    streamed: float
    sigma: float
    combine: Line
    message: Line
    overhead: float
    worker_overhead: float
    link: float
    driver: float
    totals_bytes: int
    shared_bytes: int


def measure(work: Path, data: Dataset, n_tasks: int) -> Costs:
    """Measure all costs; the scheduler is measured with n_tasks tasks that have next to no rows."""
    compile_kernels("cutting-plane")
    with threadpool_limits(1):
        scan, driver = find_pass(data)
        kept, streamed = (time_tasks(data, scan, pin_bytes) for pin_bytes in (ALL_BYTES, 0))
        sizes = [np.zeros(n) for n in (1000, 10_000, 100_000, 1_000_000)]
        combine = fit_line([(vector.nbytes, time_calls(partial(np.add, vector, vector))) for vector in sizes])
        message = fit_line([(vector.nbytes, time_calls(partial(pack, vector))) for vector in sizes])
    overhead, worker_overhead = time_overhead(work, data.n_features, n_tasks)
    return Costs(
        kept=float(np.median(kept)),
        streamed=float(np.median(streamed)),
        sigma=float(np.std(np.log(kept))),
        combine=combine,
        message=message,
        overhead=overhead,
        worker_overhead=worker_overhead,
        link=time_link(),
        driver=driver,
        totals_bytes=CuttingPlane((1.0, 1.0)).totals_bytes(data.n_features),
        shared_bytes=16 * (data.n_features + 1),
    )


def generate(work: Path, nbytes: int, n_features: int, chunk_bytes: int = CHUNK_BYTES) -> Dataset:
    """Write dense rows in small chunks, so that tasks of many sizes can be made of them."""
    truth = Truth(n_features)
    blocks = list(truth.make_blocks(nbytes // truth.row_bytes))
    X, y = (np.concatenate([getattr(rows, name) for rows in blocks]) for name in ("X", "y"))
    return ingest(X, work / f"{chunk_bytes}.zarr", y, shuffle=None, chunk_bytes=chunk_bytes)


def find_pass(data: Dataset) -> tuple[Scan, float]:
    """Return a pass from the middle of a run, and the median of the driver's seconds between two passes."""
    settings = CuttingPlane((1e-4, 1e-4), tol=1e-9)
    solver = cutting_plane.solve(settings, data.n_features, cutting_plane.start_state(data.n_features))
    engine, thought, request = SerialEngine(data, ALL_BYTES), [], next(solver)
    while True:
        assert isinstance(request, All)
        totals, began = answer(engine, request), time.perf_counter()
        step = solver.send(totals)
        assert isinstance(step, Step)
        request = next(solver)
        thought.append(time.perf_counter() - began)
        if len(thought) == PASSES:
            engine.close()
            assert isinstance(request, All)
            look = request.requests[0]
            assert isinstance(look, Scan)
            return look, median(thought)


def time_tasks(data: Dataset, scan: Scan, pin_bytes: int) -> list[float]:
    """Return the CPU seconds a byte of each task, timed several times without the first, which reads the files."""
    groups, found, pins = plan_groups(data), [], Pins(pin_bytes)
    for turn in range(TURNS):
        for chunks in groups:
            nbytes = data.nbytes * int(data.chunk_starts[chunks[-1] + 1] - data.chunk_starts[chunks[0]]) / data.n_rows
            began = time.process_time()
            run_group(data, chunks, scan, pins)
            if turn:
                found.append((time.process_time() - began) / nbytes)
    return found


def pack(vector: Any) -> Any:
    """Pack a vector as Dask does to send it to another process, and unpack it again."""
    return deserialize_bytes(b"".join(map(bytes, serialize_bytelist(vector))))


def time_calls(do: Callable[[], Any]) -> float:
    """Return the median of the seconds of 15 calls."""
    times = []
    for _ in range(15):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return median(times)


def fit_line(points: list[tuple[int, float]]) -> Line:
    """Return the line through the times of the smallest and of the largest size."""
    (small, fixed), (large, most) = points[0], points[-1]
    slope = (most - fixed) / (large - small)
    return Line(max(0.0, fixed - slope * small), slope)


def nothing(*_: Any) -> None:
    """Do nothing: the scheduler is what is timed."""


def time_link() -> float:
    """Return the seconds that a task takes in a chain of tasks, each of which waits for the one before it."""
    with start_workers(2, 1, WORKER_BYTES) as client:
        client.submit(nothing, pure=False).result()
        began, last = time.perf_counter(), client.submit(nothing, pure=False)
        for _ in range(50):
            last = client.submit(nothing, last, pure=False)
        last.result()
        return (time.perf_counter() - began) / 51


def time_overhead(work: Path, n_features: int, n_tasks: int) -> tuple[float, float]:
    """Return the CPU seconds that one more group with next to no rows costs a pass.

    The first number is for driver and scheduler, which are one process here, the second for the workers.
    """
    data = generate(work, n_tasks * TINY_BYTES, n_features, TINY_BYTES)
    few, many = (time_passes(data, 2, n) for n in (n_tasks // 4, n_tasks))
    more = many.n_tasks - few.n_tasks
    return (many.driver - few.driver) / more, (many.workers - few.workers) / more


@contextmanager
def cut_finely(n_groups: int) -> Iterator[None]:
    """Cut datasets into so many tasks within this context."""
    before = groups.GROUPS, groups.SMALLEST_GROUP_BYTES
    groups.GROUPS, groups.SMALLEST_GROUP_BYTES = n_groups, 1
    try:
        yield
    finally:
        groups.GROUPS, groups.SMALLEST_GROUP_BYTES = before


@dataclass(frozen=True)
class Passes:
    """Passes that were timed.

    Attributes
    ----------
    n_tasks : int
        Tasks of a pass.
    fastest : float
        Seconds of the fastest pass.
    driver, workers : float
        CPU seconds a pass of driver and scheduler together, and of all workers.
    """

    n_tasks: int
    fastest: float
    driver: float
    workers: float


def time_passes(data: Dataset, n_workers: int, n_groups: int) -> Passes:
    """Time passes on so many workers, which keep their rows in memory."""
    with cut_finely(n_groups), start_workers(n_workers, 1, WORKER_BYTES) as client:
        prepare_workers(client, compile_kernels)
        with threadpool_limits(1):
            scan, _ = find_pass(data)
        engine = DistributedEngine(data, client, WORKER_BYTES // 2)
        for _ in range(2):
            engine.scan(scan)
        seconds, driver, workers = [], time.process_time(), sum(client.run(time.process_time).values())
        for _ in range(TURNS):
            began = time.perf_counter()
            engine.scan(scan)
            seconds.append(time.perf_counter() - began)
        driver, workers = time.process_time() - driver, sum(client.run(time.process_time).values()) - workers
        engine.close()
        return Passes(len(plan_groups(data)), min(seconds), driver / TURNS, workers / TURNS)
