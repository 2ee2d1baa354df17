"""Worker processes on this machine, and connections to existing clusters."""

from __future__ import annotations

import asyncio
import logging
import pkgutil
import resource
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import dask.config

from streamsvm.data.source import RowSource
from streamsvm.engines import worker_start
from streamsvm.engines.kept import Load, require_data
from streamsvm.engines.patience import GIVEN_UP_SECONDS, MOST_TRIES, Patience
from streamsvm.errors import InputError, say_count
from streamsvm.interrupts import waiting
from streamsvm.machine import resident_bytes
from streamsvm.numeric.arithmetic import Arithmetic, describe_arithmetic
from streamsvm.shared_setting import SharedSetting

if TYPE_CHECKING:
    from distributed import Client, Worker
    from distributed.security import Security

LOGGER = logging.getLogger("streamsvm")
ANSWER_SECONDS = 10  # until a scheduler that does not answer is given up
FIRST_WORKER_SECONDS = 60.0  # until a cluster without workers is given up; a worker that starts imports for a while

PAUSE_SECONDS = 0.5  # between two looks whether a worker has replaced those that were lost

# Dask measures for its web pages, which we do not have, what the threads of workers are doing, whether event loops are
# late, and how busy each process is. With two workers at rest this takes a fifteenth of a core.
NOTHING_MEASURED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "10 s",
}

# The driver holds 33 open files with one worker, 44 with two and 67 with four.
BASE_DESCRIPTORS, DESCRIPTORS_PER_WORKER = 64, 16


@dataclass(frozen=True)
class ReadyWorker:
    """A worker that has loaded its kernels: its memory, its threads, its memory limit (0: none), and its arithmetic."""

    resident_bytes: int
    threads: int
    limit_bytes: int
    arithmetic: Arithmetic


async def prepare_worker(dask_worker: Worker, load: Load, source: RowSource | None = None) -> ReadyWorker:
    """Load the kernels in a worker, so that its memory can be projected, and open the dataset of the source.

    A thread loads them: where they are compiled first, on a busy machine, this takes minutes, and a worker whose event
    loop stood still for so long would be given up by the scheduler, since no heartbeat comes.
    """
    await asyncio.to_thread(load)
    await asyncio.to_thread(require_data, source, dask_worker)
    limit_bytes = int(dask_worker.memory_manager.memory_limit or 0)
    return ReadyWorker(resident_bytes(), dask_worker.state.nthreads, limit_bytes, describe_arithmetic())


def prepare_workers(client: Client, load: Load, source: RowSource | None = None) -> list[ReadyWorker]:
    """Prepare one worker of each host, and then the others, which find the compiled kernels in the host's cache.

    Processes that compile the same cached function at once have crashed each other (numba#4807). A worker that is lost
    meanwhile is left out, and if all are lost, others are waited for, as in a pass. Raises InputError if no worker
    comes at first, or if a worker cannot open the dataset of the source; and ConnectionError if the scheduler is lost,
    or all workers of MOST_TRIES tries.
    """
    patience = Patience(client, "the preparation of the workers")
    _wait_for_workers(client)
    _require_package(client)
    lost = f"scheduler {patience.address}: its workers were lost before the first pass"
    for tries in range(MOST_TRIES):
        if tries:
            LOGGER.warning("%s; waiting for others", lost)
            _await_others(patience)
        ready = _prepare_all(client, load, source)
        if ready:
            return ready
    raise ConnectionError(f"{lost}, {MOST_TRIES} times in a row; see whether their memory is enough")


def require_synchronous(client: Client) -> None:
    """Raise InputError for a client whose answers have to be awaited."""
    if client.asynchronous:
        raise InputError("client: is asynchronous, and training waits for answers: make it without asynchronous=True")


def _require_package(client: Client) -> None:
    """Raise InputError, with the name of the worker, if a worker cannot import streamsvm.

    The first question is one of Python's own functions, since a worker can unpickle no function of a missing package.
    """
    with waiting():
        answers = client.run(pkgutil.resolve_name, "streamsvm:__version__", on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, ImportError):
            raise InputError(f"worker {address}: cannot import streamsvm ({answer}): install it there") from answer


def _prepare_all(client: Client, load: Load, source: RowSource | None) -> list[ReadyWorker]:
    """Prepare the workers that are there now; none are returned if all are lost meanwhile."""
    hosts = {address: about["host"] for address, about in _list_workers(client).items()}
    first_of_host = {host: address for address, host in hosts.items()}.values()
    others = [address for address in hosts if address not in first_of_host]
    ready: list[ReadyWorker] = []
    for workers in (list(first_of_host), others):
        if workers:
            ready += _prepare(client, load, source, workers)
    return ready


def _await_others(patience: Patience) -> None:
    """Return once there are workers. ConnectionError if the scheduler is lost, or nobody replaces workers of ours."""
    while not patience.list_workers():
        with waiting():
            time.sleep(PAUSE_SECONDS)


def _wait_for_workers(client: Client) -> None:
    """Return as soon as there is a worker. A cluster that grows on demand, or wakes from sleep, has none at first."""
    if _list_workers(client):
        return
    who = f"scheduler {client.scheduler.address}"
    LOGGER.warning("%s has no workers; waiting for one for up to %.0f s", who, FIRST_WORKER_SECONDS)
    try:
        with waiting():
            client.wait_for_workers(1, timeout=FIRST_WORKER_SECONDS)
    except TimeoutError as error:
        raise InputError(f"{who}: no workers are connected to it; start some first") from error


def _prepare(client: Client, load: Load, source: RowSource | None, workers: Sequence[str]) -> list[ReadyWorker]:
    """Prepare these workers. Leave out a worker that is lost meanwhile; raise the error of a worker that lives."""
    from distributed.comm import CommClosedError

    with waiting():
        answers = client.run(prepare_worker, load=load, source=source, workers=workers, on_error="return")
    known = _list_workers(client)  # may list a worker whose connection closes, but no unreachable one
    for address, answer in answers.items():
        is_lost = isinstance(answer, CommClosedError) or (isinstance(answer, OSError) and address not in known)
        if isinstance(answer, BaseException) and not is_lost:
            raise answer
    return [answer for answer in answers.values() if isinstance(answer, ReadyWorker)]


def _list_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Return what the scheduler tells of each worker, by its address."""
    workers: dict[str, dict[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def _set_configuration() -> AbstractContextManager[Any]:
    """Change what Dask's configuration says of the clusters that start: nothing is spilled, and there are no pages."""
    no_spilling = {f"distributed.worker.memory.{what}": False for what in ("target", "spill", "pause")}
    no_routes: dict[str, list[str]] = {f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")}
    no_routes["distributed.worker.preload"] = [worker_start.__name__]
    replaced = {"distributed.scheduler.worker-ttl": f"{GIVEN_UP_SECONDS} s"}
    settings = {**no_spilling, **no_routes, **replaced, "distributed.worker.memory.terminate": 0.99}
    changed: AbstractContextManager[Any] = dask.config.set(settings | NOTHING_MEASURED)
    return changed


configured = SharedSetting(_set_configuration).held


@contextmanager
def start_workers(
    n_workers: int, threads: int, memory_bytes: int, security: Security | None = None
) -> Iterator[Client]:
    """Start worker processes on this machine, connect to them, and end them at the end of the block.

    Every socket is on loopback, and there is no dashboard. Every connection is encrypted, and both ends must hold the
    cluster's key, because other users of the machine could otherwise run programs through it. `security` holds the
    certificates (None: a key that is made now and lives in memory only). A worker that is silent for GIVEN_UP_SECONDS
    is killed and replaced.
    """
    from distributed import Client
    from distributed.security import Security

    from streamsvm.engines.local_workers import LocalWorkers

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
                silence_logs="CRITICAL",  # an error in a worker is raised here anyway
                protocol="tls",
                security=security or Security.temporary(),
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # the default is port 8787
            )
            stack.enter_context(cluster)
            cluster.scheduler.http_server.stop()  # it would listen even without pages
            client = stack.enter_context(Client(cluster))
        yield client


def _check_descriptors(n_workers: int) -> None:
    """Raise InputError if this process may not open enough files and connections to talk to the workers."""
    needed = BASE_DESCRIPTORS + DESCRIPTORS_PER_WORKER * n_workers
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise InputError(
            f"{say_count(n_workers, 'worker')}: {needed} open files are needed and the limit is {limit}; raise it "
            f"(ulimit -n {needed}), or use fewer workers, or threads"
        )


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for processes that start within: a terminal would send it to them, too, but the driver ends them."""
    resource_tracker.ensure_running()  # starting it later would lift the block (until Python 3.12)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to a scheduler. The settings of TLS come from Dask's configuration (`distributed.comm.tls`)."""
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    _check_scheduler(address)
    try:
        client = Client(address, timeout=ANSWER_SECONDS)
    except OSError as error:
        raise InputError(f"scheduler {address}: {error}") from error
    with silence_logging_cmgr("CRITICAL"), client:  # errors are raised here, too
        yield client


def _check_scheduler(address: str) -> None:
    """Raise InputError unless a scheduler answers. A Client keeps trying after a refusal, and awaits silence for ever.

    Where a Client fails, it also leaves an event loop behind whose end can hold up the start of the next one.
    """
    from distributed.comm import get_address_host_port

    try:
        if address.startswith(("tcp://", "tls://")):
            socket.create_connection(get_address_host_port(address), timeout=ANSWER_SECONDS).close()
        with ThreadPoolExecutor(1) as thread, waiting():  # the caller's thread may have an event loop of its own
            role = thread.submit(asyncio.run, _ask_role(address)).result()
    except TimeoutError as error:
        raise InputError(f"scheduler {address}: no answer in {ANSWER_SECONDS} s") from error
    except (OSError, ValueError, TypeError) as error:  # TypeError: a tls:// address, and no TLS in Dask's configuration
        raise InputError(f"scheduler {address}: {error}") from error
    except Exception as error:  # whatever Dask makes of the bytes of another program
        raise InputError(f"scheduler {address}: another program than Dask's answers there") from error
    if role != "Scheduler":
        raise InputError(f"scheduler {address}: a {role.lower()} answers there")


async def _ask_role(address: str) -> str:
    """Return what the server at the address calls itself: "Scheduler", "Worker" or "Nanny"."""
    from distributed.core import connect, send_recv
    from distributed.security import Security

    async with asyncio.timeout(ANSWER_SECONDS):
        comm = await connect(address, timeout=ANSWER_SECONDS, **Security().get_connection_args("client"))
        try:
            identity = await send_recv(comm, op="identity")
        finally:
            comm.abort()
    return str(identity["type"])
