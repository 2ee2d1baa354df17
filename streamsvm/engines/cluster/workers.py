"""Worker processes on this machine, and connections to existing clusters.

Every worker process that we start, also in place of a dead worker, preloads this module and calls `dask_setup`.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import math
import pkgutil
import resource
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any
from uuid import uuid4

import dask.config
from distributed import Client, Worker
from distributed.comm import CommClosedError, get_address_host_port
from distributed.core import connect as open_comm
from distributed.core import send_recv
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources.dask_collections import describe_lack
from streamsvm.engines.cluster.task import Load, require_data
from streamsvm.engines.cluster.watch import (
    GIVEN_UP_SECONDS,
    IS_REACHED,
    MOST_TRIES,
    ClusterWatch,
    LocalWorkers,
    ask_within,
)
from streamsvm.numeric.compilation import Arithmetic, describe_arithmetic
from streamsvm.system import deadline
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.interrupts import waiting
from streamsvm.system.machine import resident_bytes
from streamsvm.system.shared import SharedSetting


def dask_setup(worker: Any) -> None:
    """Close the port for web pages, and skip garbage collection at exit. Dask calls this once the worker listens."""
    # Dask opens the port even if there are no pages, and requires no key. Compilers leave so many objects that the
    # garbage collection at exit takes half a second.
    worker.http_server.stop()
    atexit.register(gc.freeze)


LOGGER = logging.getLogger("streamsvm")
ANSWER_SECONDS = 10  # seconds until a silent scheduler is given up
REACH_SECONDS = 3.0  # seconds until a worker counts as unreachable from this process
CHECK_ADDRESS = "check the address, and that the scheduler is running"
FIRST_WORKER_SECONDS = 60.0  # seconds until a cluster without workers is given up; imports take a while

PAUSE_SECONDS = 0.5  # seconds between two checks whether a worker has joined

# For its web pages, which are off, Dask profiles the threads of workers, event loops and processes. With two idle
# workers this takes a fifteenth of a core.
NOTHING_MEASURED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "10 s",
}

# the driver holds 33 open files with one worker, 44 with two and 67 with four
BASE_DESCRIPTORS, DESCRIPTORS_PER_WORKER = 64, 16


@dataclass(frozen=True)
class ReadyWorker:
    """A worker whose kernels are loaded.

    address: its address. resident_bytes: its resident memory. threads: its number of threads. limit_bytes: its memory
    limit, or 0 for no limit. arithmetic: its processor and libraries (numeric.compilation).
    """

    address: str
    resident_bytes: int
    threads: int
    limit_bytes: int
    arithmetic: Arithmetic


async def prepare_worker(
    dask_worker: Worker, load: Load, source: RowSource | None = None, name: str = ""
) -> ReadyWorker:
    """Load the kernels in a worker, so that its memory can be projected, and open the dataset of the source.

    name: the name of this work for `system.deadline.end`.

    A thread loads the kernels, because their first compilation takes minutes on a busy machine. If it blocked the event
    loop, the worker would send no heartbeat, and the scheduler would give it up.
    """
    await asyncio.to_thread(load)
    with deadline.held(lambda: name in deadline.ENDED):
        await asyncio.to_thread(require_data, source, dask_worker)  # the thread inherits the time limit
    limit_bytes = int(dask_worker.memory_manager.memory_limit or 0)
    threads = dask_worker.state.nthreads
    return ReadyWorker(dask_worker.address, resident_bytes(), threads, limit_bytes, describe_arithmetic())


def prepare_workers(client: Client, load: Load, source: RowSource | None = None) -> list[ReadyWorker]:
    """Prepare one worker on each host, then the others, which find the compiled kernels in the host's cache.

    Processes that compile the same cached function at the same time have crashed each other (numba#4807). Workers that
    are lost meanwhile are left out; if all are lost, new ones are awaited, as in a pass. Raises InputError if no worker
    joins at first, or if a worker cannot open the dataset of the source. Raises ConnectionError if the scheduler is
    lost, or if all workers are lost in each of MOST_TRIES attempts.
    """
    watch = ClusterWatch(client, "the preparation of the workers")
    lost = f"scheduler {watch.address}: its workers were lost before the first pass"
    # An adaptive cluster starts no worker without a task, and would end a worker while it loads the kernels if this
    # result were not held. The task calls a Python built-in, so a worker without streamsvm can run it, too.
    demand = client.submit(bool, key=f"streamsvm-start-{uuid4().hex}")
    try:
        _await_workers(watch, FIRST_WORKER_SECONDS)
        _require_package(watch)
        for tries in range(MOST_TRIES):
            if tries:
                LOGGER.warning("%s; waiting for others", lost)
                _await_workers(watch)
            if ready := _prepare(watch, load, source):
                IS_REACHED[client] = _can_reach(watch)
                return ready
    finally:
        demand.release()
    raise ConnectionError(f"{lost}, {MOST_TRIES} times in a row; check whether they have enough memory")


def _require_package(watch: ClusterWatch) -> None:
    """Raise InputError, naming the worker, if a worker cannot import streamsvm.

    The workers call a function of Python's standard library, since they cannot unpickle a function of a missing
    package.
    """
    answers = watch.run(pkgutil.resolve_name, "streamsvm:__version__", workers=list(watch.describe_workers()))
    for address, answer in answers.items():
        if isinstance(answer, ImportError):
            raise InputError(f"worker {address}: cannot import streamsvm ({answer}): install it there") from answer


def _prepare(watch: ClusterWatch, load: Load, source: RowSource | None) -> list[ReadyWorker]:
    """Prepare the current workers, and return those that were not lost meanwhile. Raises the error of a live worker."""
    hosts = {address: about["host"] for address, about in watch.describe_workers().items()}
    first_of_host = {host: address for address, host in hosts.items()}.values()
    ready: list[ReadyWorker] = []
    for workers in filter(None, (list(first_of_host), [each for each in hosts if each not in first_of_host])):
        answers = watch.run(prepare_worker, load=load, source=source, name=watch.name, workers=workers)
        known = watch.describe_workers()  # may list a worker whose connection is closing, but none that is unreachable
        for address, answer in answers.items():
            is_lost = isinstance(answer, CommClosedError) or (isinstance(answer, OSError) and address not in known)
            if isinstance(answer, ReadyWorker):
                ready.append(answer)
            elif not is_lost:
                raise answer
    return ready


def _can_reach(watch: ClusterWatch) -> bool:
    """Return whether this process can connect to the workers of every host.

    It then fetches results from the workers. Otherwise results travel through the scheduler, which takes several times
    as long and holds them in memory.
    """
    hosts = {about["host"]: address for address, about in watch.describe_workers().items()}
    security = watch.client.security.get_connection_args("client")

    async def connect(address: str) -> None:
        (await open_comm(address, REACH_SECONDS, **security)).abort()

    async def connect_all() -> None:
        await asyncio.gather(*map(connect, hosts.values()))

    try:
        ask_within(watch.client, connect_all, 2 * REACH_SECONDS)
    except (TimeoutError, OSError):
        return False
    return True


def _await_workers(watch: ClusterWatch, most_seconds: float = math.inf) -> None:
    """Wait for the first worker. A cluster that grows on demand, or wakes from sleep, has none at first.

    Raises InputError after `most_seconds`. Raises ConnectionError if the scheduler is lost, or if all workers that we
    started are lost.
    """
    began = time.monotonic()
    while not watch.describe_workers():
        if deadline.is_over() or time.monotonic() - began >= most_seconds:
            waited = "max_seconds has passed" if deadline.is_over() else f"none joined within {most_seconds:.0f} s"
            raise InputError(f"{describe_lack(watch.address)} ({waited})")
        with waiting():
            time.sleep(PAUSE_SECONDS)


def _set_configuration() -> AbstractContextManager[Any]:
    """Configure Dask for our own clusters: workers do not spill to disk, and there are no web pages.

    By default, Dask would also give up a dead worker that is not replaced within 15 seconds; on a busy machine, a
    process takes longer to start.
    """
    no_spilling = {f"distributed.worker.memory.{what}": False for what in ("target", "spill", "pause")}
    no_routes: dict[str, list[str]] = {f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")}
    no_routes["distributed.worker.preload"] = [__name__]
    given_up = ("distributed.scheduler.worker-ttl", "distributed.deploy.lost-worker-timeout")
    replaced = dict.fromkeys(given_up, f"{GIVEN_UP_SECONDS} s")
    settings = {**no_spilling, **no_routes, **replaced, "distributed.worker.memory.terminate": 0.99}
    changed: AbstractContextManager[Any] = dask.config.set(settings | NOTHING_MEASURED)
    return changed


configured = SharedSetting(_set_configuration).held


@contextmanager
def start_workers(
    n_workers: int, threads: int, memory_bytes: int, security: Security | None = None
) -> Iterator[Client]:
    """Start worker processes on this machine, connect to them, and end them at the end of the block.

    Every socket is on loopback, and there is no dashboard. Connections are encrypted, and both ends must hold the key
    of the cluster, which is in memory only; otherwise other users of the machine could run programs through the
    cluster. A worker that is silent for GIVEN_UP_SECONDS is killed and replaced. security: the certificates of a
    cluster to which other processes connect (cluster/local.py); None makes new ones.
    """
    _check_descriptors(n_workers)
    with ExitStack() as stack:
        stack.enter_context(configured())
        with _interrupts_blocked():
            cluster = LocalWorkers(
                n_workers=n_workers,
                threads_per_worker=threads,
                processes=True,
                memory_limit=memory_bytes,
                host="127.0.0.1",
                worker_dashboard_address=None,
                silence_logs="CRITICAL",  # errors of workers are raised here anyway
                protocol="tls",
                security=security or Security.temporary(),
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # the default is port 8787
            )
            stack.enter_context(cluster)
            cluster.scheduler.http_server.stop()  # the server listens even without pages
            client = stack.enter_context(Client(cluster))
        yield client


def _check_descriptors(n_workers: int) -> None:
    """Raise InputError if this process may not open enough files and connections for the workers."""
    needed = BASE_DESCRIPTORS + DESCRIPTORS_PER_WORKER * n_workers
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise InputError(
            f"{say_count(n_workers, 'worker')}: {needed} open files are needed, and the limit is {limit}; raise it "
            f"(ulimit -n {needed}), use fewer workers, or use threads"
        )


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for child processes. The terminal sends it to them as well, but the driver should end them."""
    resource_tracker.ensure_running()  # a later start would lift the block (until Python 3.12)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to a scheduler. TLS is configured by Dask (`distributed.comm.tls`)."""
    _check_scheduler(address)
    try:
        client = Client(address, timeout=ANSWER_SECONDS)
    except OSError as error:
        raise InputError(f"scheduler {address}: {error}; {CHECK_ADDRESS}") from error
    with silence_logging_cmgr("CRITICAL"), client:  # errors are raised here, too
        yield client


def _check_scheduler(address: str) -> None:
    """Raise InputError unless a scheduler answers. A Client would retry after a refusal, or wait forever.

    A failed Client also leaves an event loop behind, which can delay the start of the next one.
    """
    try:
        if address.startswith(("tcp://", "tls://")):
            socket.create_connection(get_address_host_port(address), timeout=ANSWER_SECONDS).close()
        with ThreadPoolExecutor(1) as thread, waiting():  # the caller's thread may already run an event loop
            role = thread.submit(asyncio.run, _ask_role(address)).result()
    except TimeoutError as error:
        raise InputError(f"scheduler {address}: no answer in {ANSWER_SECONDS} s; {CHECK_ADDRESS}") from error
    except (OSError, ValueError, TypeError) as error:  # TypeError: a tls:// address without TLS in Dask's configuration
        raise InputError(f"scheduler {address}: {error}; {CHECK_ADDRESS}") from error
    except Exception as error:  # Dask fails in many ways on the bytes of another program
        raise InputError(f"scheduler {address}: a program other than Dask answers there; {CHECK_ADDRESS}") from error
    if role != "Scheduler":
        raise InputError(f"scheduler {address}: a {role.lower()} answers there, not a scheduler; {CHECK_ADDRESS}")


async def _ask_role(address: str) -> str:
    """Return the type of the server at an address: "Scheduler", "Worker" or "Nanny"."""
    async with asyncio.timeout(ANSWER_SECONDS):
        comm = await open_comm(address, timeout=ANSWER_SECONDS, **Security().get_connection_args("client"))
        try:
            identity = await send_recv(comm, op="identity")
        finally:
            comm.abort()
    return str(identity["type"])
