"""Opening an engine: first its memory is planned, or refused, and then its threads or workers are started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.cluster import DistributedEngine
from streamsvm.engines.dask import ThreadedEngine
from streamsvm.engines.kept import Load
from streamsvm.engines.memory import REMEDY, VARYING_BYTES, MemoryPlan, plan_memory
from streamsvm.engines.protocol import Engine
from streamsvm.engines.row_states import kept_bytes
from streamsvm.engines.subtrees import JOIN_BYTES, count_handed, count_levels, count_waiting, find_fan_in
from streamsvm.engines.workers import connect, prepare_workers, require_synchronous, start_workers
from streamsvm.errors import MemoryBudgetError
from streamsvm.machine import default_budget_bytes, default_threads, give_back_freed_arrays, resident_bytes
from streamsvm.requests import MemoryNeed

if TYPE_CHECKING:
    from distributed import Client

PARTS_BY_ROW = 3  # of the arrays by row: of a worker's own rows, packed and unpacked, and of the rows of a lost worker
SHARES_OF_STATES = 2  # of the numbers that rows keep: of a worker's own rows, and of as many of workers that are lost
UNKNOWN_BYTES = 32 << 20  # the most that the libraries of a worker, which has not started, take beyond the driver's
IN_MESSAGES = 4  # totals on their way to a worker and from it, packed and unpacked
Opened = tuple[Engine, MemoryPlan]


@contextmanager
def open_engine(
    source: RowSource,
    *,
    load: Load,
    memory: Callable[[int], MemoryNeed],
    budget_bytes: int | None = None,
    threads: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Client | None = None,
    remedy: str = REMEDY,
) -> Iterator[Opened]:
    """Open an engine, yield it with the plan of the process that needs the most memory, and close it at the end.

    A client, a scheduler or a number of workers asks for a cluster; otherwise the engine runs threads. `load` is called
    by each worker before its first task, to load the kernels. memory(threads) is what a process with so many threads
    needs beside the chunks. budget_bytes is for one process (None: half of the machine's memory). Raises
    MemoryBudgetError, whose message ends with `remedy`, before anything is started or read, and InputError for a
    scheduler that cannot be used.
    """
    give_back_freed_arrays()
    budget = default_budget_bytes() if budget_bytes is None else budget_bytes
    opened: AbstractContextManager[Opened]
    if client is not None:
        require_synchronous(client)
    if client is None and workers is None and scheduler is None:
        n_threads = threads or _fit_threads(source, budget, memory)
        opened = _open_threads(source, n_threads, budget, memory(n_threads), remedy)
    else:
        need = memory(threads or 1)
        held = need.driver_bytes + 2 * need.shared_bytes + need.gathered_bytes + need.by_row_bytes
        plan_driver = partial(plan_memory, budget, resident_bytes(), 1, 0, 2 * need.totals_bytes, held, 0, remedy)
        plans = [plan_driver]
        if client is None and scheduler is None:
            n_workers, asked = workers or default_threads(), (budget, resident_bytes(), threads or 1)
            plans.append(partial(_plan_worker, source, n_workers, *asked, need, remedy, UNKNOWN_BYTES))
        driver = _require_all(plans)[0]
        cluster: AbstractContextManager[Client] = nullcontext(client)
        if client is None and scheduler is not None:
            cluster = connect(scheduler)
        elif client is None:
            cluster = start_workers(workers or default_threads(), threads or 1, budget)
        opened = _open_cluster(source, cluster, driver, memory, load, remedy)
    with opened as engine_and_plan:
        yield engine_and_plan


def _require_all(plans: Sequence[Callable[[], MemoryPlan]]) -> list[MemoryPlan]:
    """Return the plans of several processes, or raise the error of the one that needs the most."""
    made, errors = list[MemoryPlan](), list[MemoryBudgetError]()
    for plan in plans:
        try:
            made.append(plan())
        except MemoryBudgetError as error:
            errors.append(error)
    if errors:
        raise max(errors, key=lambda error: error.needed_bytes)
    return made


def _fit_threads(source: RowSource, budget_bytes: int, memory: Callable[[int], MemoryNeed]) -> int:
    """Return how many threads to run if nobody has said it: as many as there are cores, or fewer if memory is short."""
    for n_threads in range(default_threads(), 1, -1):
        with suppress(MemoryBudgetError):
            _plan_threads(source, n_threads, budget_bytes, memory(n_threads), "")
            return n_threads
    return 1


def _plan_threads(source: RowSource, threads: int, budget_bytes: int, need: MemoryNeed, remedy: str) -> MemoryPlan:
    held = need.driver_bytes + need.walk_bytes + _waiting_bytes(source, need.totals_bytes)
    held += kept_bytes(need.state_bytes)
    data_bytes = source.nbytes if source.on_disk else 0
    chunks = source.stream_bytes()
    return plan_memory(budget_bytes, resident_bytes(), threads, chunks, need.totals_bytes, held, data_bytes, remedy)


@contextmanager
def _open_threads(
    source: RowSource, threads: int, budget_bytes: int, need: MemoryNeed, remedy: str
) -> Iterator[Opened]:
    plan = _plan_threads(source, threads, budget_bytes, need, remedy)
    engine = ThreadedEngine(source, threads, plan.pin_bytes, need.state_bytes)
    try:
        yield engine, plan
    finally:
        engine.close()


@contextmanager
def _open_cluster(
    source: RowSource,
    cluster: AbstractContextManager[Client],
    driver: MemoryPlan,
    memory: Callable[[int], MemoryNeed],
    load: Load,
    remedy: str,
) -> Iterator[Opened]:
    from streamsvm.data.dask_pieces import thread_given_up

    with thread_given_up(), cluster as client:
        ready = prepare_workers(client, load, source if source.on_disk else None)
        base = max(worker.resident_bytes for worker in ready)
        threads = max(worker.threads for worker in ready)
        limit = min([driver.budget_bytes, *(worker.limit_bytes for worker in ready if worker.limit_bytes)])
        need = memory(threads)
        plan_worker = partial(_plan_worker, source, len(ready), limit, base, threads, need, remedy)
        driver, plan, most_handed = _plan_handing_over(source, need.totals_bytes, driver, plan_worker)
        fan_in, states = _find_fan_in(source, need), _share_states(need, len(ready))
        arithmetic = [worker.arithmetic for worker in ready]
        engine = DistributedEngine(source, client, plan.pin_bytes, fan_in, arithmetic, limit, load, states, most_handed)
        try:
            yield engine, max(plan, driver, key=lambda each: each.projected_bytes)
        finally:
            engine.close()


def _plan_handing_over(
    source: RowSource, totals_bytes: int, driver: MemoryPlan, plan_worker: Callable[..., MemoryPlan]
) -> tuple[MemoryPlan, MemoryPlan, int]:
    """Return the plans of the driver and of a worker, and how many totals the driver holds that tasks have handed over.

    It holds none if it has no room for them, or a worker has none for those that wait until they are fetched.
    """
    most_handed = count_handed(len(plan_groups(source)), totals_bytes, driver.spare_bytes)
    if most_handed:
        with suppress(MemoryBudgetError):
            return driver.hold_more(most_handed * totals_bytes), plan_worker(hands_over=True), most_handed
    return driver, plan_worker(), 0


def _plan_worker(
    source: RowSource,
    n_workers: int,
    budget_bytes: int,
    base_bytes: int,
    threads: int,
    need: MemoryNeed,
    remedy: str,
    varying_bytes: int = VARYING_BYTES,
    hands_over: bool = False,
) -> MemoryPlan:
    """Plan one of some workers. hands_over: whether totals are handed to the driver while a pass goes on."""
    waiting = count_waiting(len(plan_groups(source)), threads, hands_over) + IN_MESSAGES
    held = waiting * need.totals_bytes + (JOIN_BYTES if need.totals_bytes and _find_fan_in(source, need) > 2 else 0)
    held += (2 + threads) * need.shared_bytes + need.walk_bytes + 2 * need.gathered_bytes
    held += PARTS_BY_ROW * need.by_row_bytes // n_workers
    held += kept_bytes(_share_states(need, n_workers))
    chunks = source.stream_bytes(), need.totals_bytes
    return plan_memory(budget_bytes, base_bytes, threads, *chunks, held, source.nbytes, remedy, varying_bytes)


def _find_fan_in(source: RowSource, need: MemoryNeed) -> int:
    return find_fan_in(len(plan_groups(source)), need.totals_bytes)


def _share_states(need: MemoryNeed, n_workers: int) -> int:
    """Return the bytes of the numbers that rows keep with one of some workers."""
    return min(need.state_bytes, SHARES_OF_STATES * need.state_bytes // n_workers)


def _waiting_bytes(source: RowSource, totals_bytes: int) -> int:
    """Return the memory of the totals in the tree that wait for their neighbours: one for each level."""
    return count_levels(len(plan_groups(source))) * totals_bytes
