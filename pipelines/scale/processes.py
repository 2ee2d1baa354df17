"""A cluster of many small workers on this machine. As on a real cluster, the scheduler is a separate process."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import dask.config
import distributed.scheduler
from distributed import Client, Scheduler, Worker
from distributed.security import Security

from streamsvm.engines.cluster.workers import NOTHING_MEASURED

START_SECONDS = 120
SILENT_SECONDS = 600.0
# switches off periodic work of the processes, which does not depend on passes
SETTINGS = {
    **NOTHING_MEASURED,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.monitor-interval": "1 h",
}


@dataclass(frozen=True)
class SmallWorkers:
    """The small workers: a client of their cluster, and the process id of the scheduler."""

    client: Client
    scheduler_pid: int

    def scheduler_seconds(self) -> float:
        """Return the CPU seconds that the scheduler has taken so far."""
        return time.clock_gettime(~self.scheduler_pid << 3 | 2)  # on Linux, the id of the CPU clock of a process


def _silent(_: int) -> float:
    """Return the seconds between two heartbeats of a worker, so many that none occurs."""
    return SILENT_SECONDS


def _run(server: Coroutine[Any, Any, None]) -> None:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # when the cluster ends, it logs many errors
    with dask.config.set(SETTINGS):
        asyncio.run(server)


def _run_scheduler(told: Connection, security: Security) -> None:
    async def run() -> None:
        distributed.scheduler.heartbeat_interval = _silent
        async with Scheduler(host="127.0.0.1", port=0, protocol="tls", security=security, dashboard=False) as scheduler:
            told.send(scheduler.address)
            await scheduler.finished()

    _run(run())


def _run_worker(scheduler: str, security: Security) -> None:
    async def run() -> None:
        async with Worker(scheduler, nthreads=1, memory_limit=0, security=security) as worker:
            await worker.finished()

    _run(run())


@contextmanager
def start_small_workers(n_workers: int) -> Iterator[SmallWorkers]:
    """Within the block, run a scheduler and workers with one thread each, with TLS.

    All are forked from one server process.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.worker_server"])
    security, (heard, told) = Security.temporary(), context.Pipe(duplex=False)
    processes: list[Any] = [context.Process(target=_run_scheduler, args=(told, security), daemon=True)]
    processes[0].start()
    address = heard.recv()
    processes += [context.Process(target=_run_worker, args=(address, security), daemon=True) for _ in range(n_workers)]
    for process in processes[1:]:
        process.start()
    with Client(address, security=security, set_as_default=False) as client:
        client.wait_for_workers(n_workers, timeout=START_SECONDS)
        try:
            yield SmallWorkers(client, processes[0].pid)
        finally:
            client.shutdown()
            for process in processes:
                process.join(START_SECONDS)
