"""Open an engine of workers: reach or start a cluster, prepare its workers, and plan the memory of its processes.

This module loads distributed. `engines.open` imports it only for runs on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace

from distributed import Client

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources.dask_collections import require_usable, thread_given_up
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.cluster.task import Load
from streamsvm.engines.cluster.tree import count_handed, find_fan_in
from streamsvm.engines.cluster.workers import ReadyWorker, connect, prepare_workers, start_workers
from streamsvm.engines.open import MemoryPlan, Opened, Planner, plan_memory, share_states
from streamsvm.options import TrainOptions
from streamsvm.system.machine import default_budget_bytes, default_threads, parse_bytes, resident_bytes

UNKNOWN_BYTES = 32 << 20  # the libraries of a worker take at most this much more memory than in the driver


@contextmanager
def open_cluster(
    planner: Planner, options: TrainOptions, threads: int, load: Load, client: Client | None
) -> Iterator[Opened]:
    """Open an engine on a cluster, and yield it with the plan of the process that needs the most memory.

    threads: the number of threads in each new worker. See `engines.open.open_engine`.
    """
    if client is not None:
        require_usable(client)
    driver, n_workers = planner.plan_driver(threads), options.workers or default_threads()
    if client is None and options.scheduler is None:
        worker = planner.plan_worker(n_workers, resident_bytes(), threads, "a worker", UNKNOWN_BYTES)
        max(driver, worker, key=lambda plan: plan.refusal.needed_bytes if plan.refusal else 0).require()
    driver.require()
    cluster = _reach_cluster(client, options.scheduler, n_workers, threads, planner.budget_bytes)
    with _open_engine(planner, cluster, driver, load) as opened:
        yield opened


@contextmanager
def open_workers(
    *,
    load: Load,
    need_bytes: int,
    budget_bytes: int | str | None,
    workers: int | None,
    scheduler: str | None,
    client: Client | None,
    remedy: str,
) -> Iterator[Client]:
    """Use a client, connect to a scheduler, or start single-threaded workers; yield a client once workers are ready.

    need_bytes: the memory that each thread of a worker needs, without interpreter and libraries. budget_bytes: the
    memory limit of a process. Raises MemoryBudgetError if the limit is too low, and InputError for an unusable
    scheduler.
    """
    budget = default_budget_bytes() if budget_bytes is None else parse_bytes(budget_bytes)
    if client is not None:
        require_usable(client)
    cluster = _reach_cluster(client, scheduler or None, workers or default_threads(), 1, budget)
    with _prepared(cluster, load, None, budget) as (reached, ready, limit):
        largest, threads = max(ready, key=lambda worker: worker.resident_bytes), max(worker.threads for worker in ready)
        named = f"worker {largest.address}"
        plan_memory(limit, largest.resident_bytes, threads, need_bytes, 0, 0, 0, remedy, process=named).require()
        yield reached


def _reach_cluster(
    client: Client | None, scheduler: str | None, n_workers: int, threads: int, memory_bytes: int
) -> AbstractContextManager[Client]:
    """Return a context that yields a client: the given client, or one connected to a scheduler or to new workers."""
    if client is not None:
        return nullcontext(client)
    return connect(scheduler) if scheduler is not None else start_workers(n_workers, threads, memory_bytes)


@contextmanager
def _prepared(
    cluster: AbstractContextManager[Client], load: Load, source: RowSource | None, budget_bytes: int
) -> Iterator[tuple[Client, list[ReadyWorker], int]]:
    """Enter a cluster; once its workers are ready, yield the client, the workers, and the memory limit of a process."""
    with thread_given_up(), cluster as client:
        ready = prepare_workers(client, load, source)
        yield client, ready, min([budget_bytes, *(worker.limit_bytes for worker in ready if worker.limit_bytes)])


@contextmanager
def _open_engine(
    planner: Planner, cluster: AbstractContextManager[Client], driver: MemoryPlan, load: Load
) -> Iterator[Opened]:
    source = planner.source
    stored, budget_bytes = source if source.on_disk else None, driver.budget_bytes
    with _prepared(cluster, load, stored, budget_bytes) as (client, ready, limit):
        largest, threads = max(ready, key=lambda worker: worker.resident_bytes), max(worker.threads for worker in ready)
        need, planner = planner.memory(threads), replace(planner, budget_bytes=limit)
        given = len(ready), largest.resident_bytes, threads, f"worker {largest.address}"
        # The driver takes over totals during a pass only if it has room for them, and the workers for waiting totals.
        most_handed = count_handed(planner.n_groups, need.totals_bytes, driver.spare_bytes)
        plan = planner.plan_worker(*given, hands_over=most_handed > 0)
        if most_handed and plan.refusal is not None:
            plan, most_handed = planner.plan_worker(*given), 0
        plan.require()
        driver = driver.hold_more(most_handed * need.totals_bytes) if most_handed else driver
        fan_in, states = find_fan_in(planner.n_groups, need.totals_bytes), share_states(need, len(ready))
        arithmetic = [worker.arithmetic for worker in ready]
        sizes = plan.pin_bytes, fan_in, arithmetic, limit, load, states, most_handed
        with closing(DistributedEngine(source, client, *sizes)) as engine:
            yield engine, max(plan, driver, key=lambda each: each.projected_bytes)
