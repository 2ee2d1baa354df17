"""Opening an engine: memory is projected, what does not fit is refused, then threads or workers are made ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.dask import DistributedEngine, ThreadedEngine
from streamsvm.engines.memory import REMEDY, MemoryPlan, plan_memory
from streamsvm.engines.protocol import Engine
from streamsvm.engines.workers import Load, connect, prepare_workers, start_workers
from streamsvm.machine import default_budget_bytes, default_threads, resident_bytes

if TYPE_CHECKING:
    from distributed import Client

Opened = tuple[Engine, MemoryPlan]


@contextmanager
def open_engine(
    source: RowSource, *, load: Load, totals_bytes: int, solver_bytes: int, shared_bytes: int = 0,
    fold_bytes: Callable[[int], int] = lambda _: 0, budget_bytes: int | None = None, threads: int | None = None,
    workers: int | None = None, scheduler: str | None = None, client: Client | None = None,
    remedy: str = REMEDY,
) -> Iterator[Opened]:  # fmt: skip
    """Open the engine that was asked for, and close it at the end: a client's, a scheduler's, workers, or threads.

    totals_bytes: of one task; solver_bytes: of the driver, what it sends to all tasks included; shared_bytes: of that
    alone, which workers hold, too; fold_bytes: of sequential passes, or of what tasks work with besides their totals,
    by the threads of a process; budget_bytes: of one process (None: half of the machine's); load: what workers call
    before the first task, to load their kernels; remedy: what the error says that needs less memory.
    Yields the engine and the plan of the process that needs the most. MemoryBudgetError before anything is started or
    read, InputError for a scheduler that cannot be used.
    """
    budget = default_budget_bytes() if budget_bytes is None else budget_bytes
    opened: AbstractContextManager[Opened]
    if client is None and workers is None and scheduler is None:
        n_threads = threads or default_threads()
        opened = _open_threads(source, n_threads, budget, totals_bytes, solver_bytes + fold_bytes(n_threads), remedy)
    else:
        held = solver_bytes + 2 * shared_bytes
        driver = plan_memory(budget, resident_bytes(), 1, 0, 2 * totals_bytes, held, 0, remedy)
        cluster: AbstractContextManager[Client] = nullcontext(client)
        if client is None and scheduler is not None:
            cluster = connect(scheduler)
        elif client is None:
            cluster = start_workers(workers or default_threads(), threads or 1, budget)
        opened = _open_cluster(source, cluster, driver, totals_bytes, shared_bytes, fold_bytes, load, remedy)
    with opened as engine_and_plan:
        yield engine_and_plan


@contextmanager
def _open_threads(
    source: RowSource, threads: int, budget_bytes: int, totals_bytes: int, solver_bytes: int, remedy: str
) -> Iterator[Opened]:
    held = solver_bytes + _waiting_bytes(source, totals_bytes)
    data_bytes = source.nbytes if source.on_disk else 0
    stream_bytes = source.stream_bytes()
    plan = plan_memory(budget_bytes, resident_bytes(), threads, stream_bytes, totals_bytes, held, data_bytes, remedy)
    engine = ThreadedEngine(source, threads, plan.pin_bytes)
    try:
        yield engine, plan
    finally:
        engine.close()


@contextmanager
def _open_cluster(
    source: RowSource, cluster: AbstractContextManager[Client], driver: MemoryPlan, totals_bytes: int,
    shared_bytes: int, fold_bytes: Callable[[int], int], load: Load, remedy: str,
) -> Iterator[Opened]:  # fmt: skip
    with cluster as client:
        ready = prepare_workers(client, load)
        base = max(worker.resident_bytes for worker in ready)
        threads = max(worker.threads for worker in ready)
        limit = min([driver.budget_bytes, *(worker.limit_bytes for worker in ready if worker.limit_bytes)])
        held = 4 * totals_bytes + _waiting_bytes(source, totals_bytes) + (2 + threads) * shared_bytes
        held += fold_bytes(threads)
        stream_bytes = source.stream_bytes()
        plan = plan_memory(limit, base, threads, stream_bytes, totals_bytes, held, source.nbytes, remedy)
        engine = DistributedEngine(source, client, plan.pin_bytes)
        try:
            yield engine, max(plan, driver, key=lambda each: each.projected_bytes)
        finally:
            engine.close()


def _waiting_bytes(source: RowSource, totals_bytes: int) -> int:
    """Return the memory of sums of the tree that wait for their other halves."""
    return (len(plan_groups(source)) - 1).bit_length() * totals_bytes
