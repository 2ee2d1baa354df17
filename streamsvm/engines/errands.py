"""Work apart from passes that the workers of a cluster do: many calls of one function, whose results come in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from streamsvm.engines.cluster import models_may_travel
from streamsvm.engines.kept import Load
from streamsvm.engines.memory import plan_memory
from streamsvm.engines.patience import Patience
from streamsvm.engines.workers import connect, prepare_workers, start_workers
from streamsvm.machine import default_budget_bytes, default_threads

if TYPE_CHECKING:
    from distributed import Client, Future

Result = TypeVar("Result")


def carry_out(
    client: Client, what: str, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]
) -> Iterator[Result]:
    """Yield function(*each) for each of the arguments, in order, while workers carry out those that follow.

    what: the work, for messages. A call is made once more by another worker if its own is lost; one that is lost with
    four workers is tried again as a task of a pass is. Raises the error of the first call that fails, and
    ConnectionError if the scheduler is lost; the calls that have not begun are given up.
    """
    if not arguments:
        return
    with models_may_travel():
        futures = client.map(function, *zip(*arguments, strict=True), pure=False)
    again = [partial(_submit, client, function, each) for each in arguments]
    yield from Patience(client, what).results(again, futures)


def _submit(client: Client, function: Callable[..., Result], arguments: tuple[Any, ...]) -> Future:
    """Submit a call that is waited for, before those that follow."""
    with models_may_travel():
        return client.submit(function, *arguments, pure=False, priority=1)


def step_aside() -> None:
    """Let the worker that carries out this call begin its next one, while this one waits. Elsewhere nothing is done."""
    from distributed import secede

    with suppress(ValueError):  # there is no worker
        secede()


@contextmanager
def open_workers(
    *,
    load: Load,
    need_bytes: int,
    budget_bytes: int | None,
    workers: int | None,
    scheduler: str | None,
    remedy: str,
) -> Iterator[Client]:
    """Start workers of one thread, or connect to a scheduler, and yield a client once the workers are ready.

    need_bytes: what a thread of a worker needs beside interpreter and libraries; budget_bytes: what a process may take.
    Raises MemoryBudgetError if that is too little, and InputError for a scheduler that cannot be used.
    """
    from streamsvm.data.dask_pieces import thread_given_up

    budget = default_budget_bytes() if budget_bytes is None else budget_bytes
    cluster: AbstractContextManager[Client]
    cluster = connect(scheduler) if scheduler else start_workers(workers or default_threads(), 1, budget)
    with thread_given_up(), cluster as client:
        ready = prepare_workers(client, load)
        base, threads = max(worker.resident_bytes for worker in ready), max(worker.threads for worker in ready)
        limit = min([budget, *(worker.limit_bytes for worker in ready if worker.limit_bytes)])
        plan_memory(limit, base, threads, need_bytes, 0, 0, 0, remedy)
        yield client
