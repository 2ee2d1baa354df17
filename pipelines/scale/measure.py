"""Measurements on this machine: reading, sums, messages, the driver, and the cost per worker of a pass."""

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
from distributed import Client
from distributed.protocol import deserialize_bytes, serialize_bytelist
from threadpoolctl import threadpool_limits

from pipelines.scale.passes import Phases, time_phases
from pipelines.scale.processes import start_small_workers
from streamsvm.data.rows import source as groups
from streamsvm.data.rows.source import plan_groups
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.merge import answer
from streamsvm.engines.row_states import TileStates
from streamsvm.engines.tasks import ChunkCache, run_group
from streamsvm.ingestion.generated import Truth
from streamsvm.ingestion.readers import ingest
from streamsvm.passes import All, Scan, Step
from streamsvm.solvers.cutting_plane import line_search
from streamsvm.solvers.cutting_plane.line_search import CuttingPlane
from streamsvm.solvers.set_up import compile_all

TURNS = 8  # the number of times that each group and each pass is timed
PASSES = 4  # the number of passes of the solver before the measured pass
ALL_BYTES = 1 << 40  # large enough that every chunk stays in memory
CHUNK_BYTES, TINY_BYTES = 2 << 20, 8 << 10
GROUPS_A_WORKER = 8
LINKS = 10


@dataclass(frozen=True)
class Line:
    """A time that grows with a size: seconds = fixed + slope * size."""

    fixed: float
    slope: float

    def at(self, size: float) -> float:
        """Return the seconds for a size."""
        return self.fixed + self.slope * size


@dataclass(frozen=True)
class Costs:
    """The measurements.

    Attributes
    ----------
    kept, streamed : float
        CPU seconds per byte of a group, for rows in memory and for rows streamed from files.
    sigma : float
        The standard deviation of the logarithm of a group's seconds.
    combine, message : Line
        Seconds to add two totals, and to pack and unpack totals, by their bytes.
    sends, ends : Line
        CPU seconds of the driver until all workers have begun, and afterwards, by the number of workers.
    gives, hears, frees : Line
        CPU seconds of the scheduler until all workers have begun, then until the driver has the sum, and afterwards.
    worker : float
        CPU seconds of a worker for its task and its share of the joins.
    link : float
        Seconds of a task that waits for its predecessor.
    driver : float
        Seconds of the master problem and of the rest of a step.
    totals_bytes, shared_bytes : int
        Bytes of the totals of a group, and of the data that all tasks share.
    """

    kept: float
    streamed: float
    sigma: float
    combine: Line
    message: Line
    sends: Line
    ends: Line
    gives: Line
    hears: Line
    frees: Line
    worker: float
    link: float
    driver: float
    totals_bytes: int
    shared_bytes: int


def measure(work: Path, data: Dataset, workers: tuple[int, ...]) -> tuple[Costs, dict[int, Phases]]:
    """Measure all costs.

    workers: the numbers of workers to measure. Return the costs, and the phases by number of workers.
    """
    compile_all(("cutting-plane",))
    with threadpool_limits(1):
        scan, driver = find_pass(data)
        kept, streamed = (time_groups(data, scan, pin_bytes) for pin_bytes in (ALL_BYTES, 0))
        sizes = [np.zeros(n) for n in (1000, 10_000, 100_000, 1_000_000)]
        combine = fit_ends([(vector.nbytes, time_calls(partial(np.add, vector, vector))) for vector in sizes])
        message = fit_ends([(vector.nbytes, time_calls(partial(pack, vector))) for vector in sizes])
    n_groups, width = GROUPS_A_WORKER * max(workers), data.n_features + 1
    tiny = generate(work, n_groups * TINY_BYTES, data.n_features, TINY_BYTES)
    with cut_finely(n_groups):
        phases = {n: time_phases(tiny, scan, n, TURNS, work / "gates" / str(n)) for n in workers}
    lines = {name: fit_workers(phases, name) for name in ("sends", "ends", "gives", "hears", "frees")}
    costs = Costs(
        kept=float(np.median(kept)),
        streamed=float(np.median(streamed)),
        sigma=float(np.std(np.log(kept))),
        combine=combine,
        message=message,
        **lines,
        worker=fit_workers(phases, "workers").slope,
        link=time_link(),
        driver=driver,
        totals_bytes=line_search.totals_bytes(CuttingPlane((1.0, 1.0)).cut_points(width), width),
        shared_bytes=16 * width,
    )
    return costs, phases


def generate(work: Path, nbytes: int, n_features: int, chunk_bytes: int = CHUNK_BYTES) -> Dataset:
    """Write dense rows in small chunks, so that groups of many sizes can be formed."""
    truth = Truth(n_features)
    blocks = list(truth.make_blocks(nbytes // truth.row_bytes))
    X, y = (np.concatenate([getattr(rows, name) for rows in blocks]) for name in ("X", "y"))
    return ingest(X, work / f"{chunk_bytes}.zarr", y, shuffle=None, chunk_bytes=chunk_bytes)


def find_pass(data: Dataset) -> tuple[Scan, float]:
    """Return a pass from the middle of a run, and the median of the seconds of the driver between two passes."""
    settings = CuttingPlane((1e-4, 1e-4), tol=1e-9)
    solver = line_search.solve(settings, line_search.LineState.at_zero(data.n_features + 1))
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


def time_groups(data: Dataset, scan: Scan, pin_bytes: int) -> list[float]:
    """Measure the CPU seconds per byte of each group, repeatedly.

    The first time, which reads the files, is left out.
    """
    groups, found, kept = plan_groups(data), [], (ChunkCache(pin_bytes), TileStates(0))
    for turn in range(TURNS):
        for chunks in groups:
            nbytes = data.nbytes * int(data.chunk_starts[chunks[-1] + 1] - data.chunk_starts[chunks[0]]) / data.n_rows
            began = time.process_time()
            run_group(data, chunks, scan, kept, lambda: False, None)
            if turn:
                found.append((time.process_time() - began) / nbytes)
    return found


def pack(vector: Any) -> Any:
    """Pack a vector as Dask does to send it to another process, and unpack it again."""
    return deserialize_bytes(b"".join(map(bytes, serialize_bytelist(vector))))


def time_calls(do: Callable[[], Any]) -> float:
    """Call a function 15 times, and return the median of the seconds."""
    times = []
    for _ in range(15):
        began = time.perf_counter()
        do()
        times.append(time.perf_counter() - began)
    return median(times)


def fit_ends(points: list[tuple[int, float]]) -> Line:
    """Return the line through the points of the smallest and the largest size."""
    (small, fixed), (large, most) = points[0], points[-1]
    slope = (most - fixed) / (large - small)
    return Line(max(0.0, fixed - slope * small), slope)


def fit_workers(phases: dict[int, Phases], name: str) -> Line:
    """Fit a line to the seconds of a phase against the number of workers."""
    slope, fixed = np.polyfit(list(phases), [getattr(each, name) for each in phases.values()], 1)
    return Line(max(0.0, float(fixed)), max(0.0, float(slope)))


def nothing(*_: Any) -> None:
    """Do nothing: only the time between one task and the next is measured."""


def time_link() -> float:
    """Return the seconds per task in the fastest of several chains. In a chain, each task waits for its predecessor."""
    with start_small_workers(2) as cluster:
        return min(time_chain(cluster.client) for _ in range(TURNS)) / LINKS


def time_chain(client: Client) -> float:
    """Run a chain of tasks, and return the seconds."""
    began, last = time.perf_counter(), client.submit(nothing, pure=False)
    for _ in range(LINKS - 1):
        last = client.submit(nothing, last, pure=False)
    last.result()
    return time.perf_counter() - began


@contextmanager
def cut_finely(n_groups: int) -> Iterator[None]:
    """Within the block, let datasets have this number of groups of chunks."""
    before = groups.GROUPS, groups.SMALLEST_GROUP_BYTES
    groups.GROUPS, groups.SMALLEST_GROUP_BYTES = n_groups, 1
    try:
        yield
    finally:
        groups.GROUPS, groups.SMALLEST_GROUP_BYTES = before
