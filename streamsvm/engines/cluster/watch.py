"""Waiting for a cluster: silent and lost workers are logged, and a scheduler that stays silent is given up.

A process that is stopped, swaps, or has lost its network keeps its sockets: nothing fails, and nothing arrives. Workers
send a heartbeat every half second (every few seconds in large clusters), so the scheduler notices silent workers. It
gives up a worker after its `worker-ttl`; then the worker's groups of chunks move to other workers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from distributed import Client, Future, LocalCluster, wait
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from streamsvm.data.sources.dask_collections import describe_wishes, fits, list_wishes
from streamsvm.system import deadline
from streamsvm.system.errors import TimeLimitError, say_count
from streamsvm.system.interrupts import waiting


class LocalWorkers(LocalCluster):  # type: ignore[misc]
    """A LocalCluster that ignores messages about the end of an unknown worker.

    Such a message arrives if a worker is killed during its start. LocalCluster would stop listening to the scheduler,
    and raise KeyError on closing, after a successful training.
    """

    def _update_worker_status(self, op: str, msg: Any) -> None:
        if op != "remove" or msg in self.scheduler_info["workers"]:
            super()._update_worker_status(op, msg)


T = TypeVar("T")
LOGGER = logging.getLogger("streamsvm")

LOOK_SECONDS = 5.0  # seconds between two requests to the scheduler, which answers in milliseconds
SILENT_SECONDS = 30.0  # seconds until a silent process is logged; a busy process answers within a few seconds
GIVEN_UP_SECONDS = 120.0  # seconds until a silent worker of ours is replaced; on a busy machine its imports take 30 s
LOST_SECONDS = 60.0  # seconds until a silent scheduler is given up
DIRECT_SECONDS = 30.0  # seconds until a result that a worker does not send is requested from the scheduler
MOST_TRIES = 3  # the run ends after this many attempts at a task, each lost with four workers
IS_REACHED = WeakKeyDictionary[Client, bool]()  # whether this process can connect to the workers of a client
ENDING = "--resume continues a run in a folder from its last complete step"


def ask_within(client: Client, question: Callable[[], Any], seconds: float) -> Any:
    """Await an answer on the event loop of the client. Raises TimeoutError if it takes longer than `seconds`."""
    return client.sync(_ask, question, callback_timeout=seconds)


async def _ask(question: Callable[[], Any]) -> Any:
    return await question()


class ClusterWatch:
    """A watch over the heartbeats of workers, while some work waits for these workers.

    what: the waiting work, such as "read 3 of the data". known: the addresses of the workers when they were last
    listed, which the caller passes from one piece of work to the next; known workers that are missing are logged.
    threads: the number of threads of each worker that has sent a heartbeat between the last two lists. on_look: a
    function that gets the scheduler's record of each worker whenever it arrives.
    """

    def __init__(self, client: Client, what: str, known: set[str] | None = None, address: str | None = None) -> None:
        self.client, self.what, self.known = client, what, set() if known is None else known
        self.address: str = client.scheduler.address if address is None else address
        self._scheduler = f"scheduler {self.address}"
        self._answered = self._looked = self._peopled = time.monotonic()
        self._heard: dict[str, tuple[float, float]] = {}  # by worker: its last heartbeat, and when it was first seen
        self._logged: set[str] = set()
        self._is_idle = False  # whether no worker ran our tasks at the last check of the time limit
        self.threads: dict[str, int] = {}
        self.on_look: Callable[[Mapping[str, Any]], None] = lambda _: None
        self.name = uuid4().hex  # identifies the requests to workers

    @property
    def scheduler(self) -> Any:
        """The scheduler's RPC handle. Raises ConnectionError if the client has disconnected."""
        if self.client.scheduler is None:
            raise ConnectionError(f"{self._scheduler}: the connection is lost; {ENDING}")
        return self.client.scheduler

    def describe_workers(self) -> dict[str, Any]:
        """Return the scheduler's record of each worker, by address. Raises ConnectionError if there is no answer."""
        while True:
            workers = self.look()
            if workers is not None:
                return workers
            self._check_limit([])

    def list_slots(self) -> list[tuple[str, int]]:
        """Return (address, number) for each thread of the workers, in order. Raises the errors of describe_workers."""
        workers = self.describe_workers()
        return [(address, k) for address in sorted(workers) for k in range(workers[address]["nthreads"])]

    def results(
        self, submits: Sequence[Callable[[], Future]], submitted: Sequence[Future] | None = None
    ) -> Iterator[Any]:
        """Submit tasks, unless they are already submitted, and yield their results in order. See `result`.

        A lost task is submitted up to MOST_TRIES times in all. At the end, also after a failure or Ctrl-C, all tasks
        are released; running tasks then end early.
        """
        futures = [submit() for submit in submits] if submitted is None else list(submitted)
        try:
            for k, submit in enumerate(submits):
                for _ in range(MOST_TRIES - 1):
                    self._await(futures[k:])
                    if futures[k].status != "error" or not self.was_lost(futures[k]):
                        break
                    futures[k] = submit()
                found = self.result(futures[k])
                futures[k].release()
                yield found
        finally:
            for future in futures:
                future.release()

    def _await(self, futures: Sequence[Future]) -> None:
        """Wait until the first task is done or has failed. Raises ConnectionError if the scheduler is lost."""
        while not self.wait(futures[:1], LOOK_SECONDS):
            self.look_again(futures)

    def result(self, future: Future) -> Any:
        """Await the result of a task without a time limit. Raises ConnectionError if the scheduler is lost."""
        self._await([future])
        if future.status == "error" and self.was_lost(future):
            how_many = say_count(future.exception().allowed_failures + 1, "worker")
            lost = f"a task was lost with {how_many}, one after another; check whether they have enough memory"
            raise ConnectionError(f"{self.what}: {lost}; {ENDING}")
        if future.status == "error":
            future.result()  # raises the error of the task
        seconds = LOST_SECONDS + (DIRECT_SECONDS if IS_REACHED.get(self.client, False) else 0.0)
        fetch = partial(ask_within, self.client, partial(self.fetch, [future]), seconds)
        found = self._try(fetch, (CancelledError, CommClosedError))
        if found is None:
            raise ConnectionError(f"{self._scheduler}: no answer for {seconds:.0f} s; {ENDING}")
        return found[0][0]

    async def fetch(self, futures: Sequence[Future], errors: str = "raise") -> list[Any]:
        """Return the results of tasks, directly from their workers if this process can connect to these.

        If a worker is frozen, only the scheduler learns that it was given up; so after DIRECT_SECONDS the scheduler is
        asked, also for all later results.
        """
        found: list[Any]
        if IS_REACHED.get(self.client, False):
            try:
                async with asyncio.timeout(DIRECT_SECONDS):
                    found = await self.client.gather(futures, errors, direct=True)
                    return found
            except TimeoutError:
                IS_REACHED[self.client] = False  # a worker may have joined from a host that this process cannot reach
        found = await self.client.gather(futures, errors, direct=False)
        return found

    def was_lost(self, future: Future) -> bool:
        """Return whether a task has failed because all its workers were lost, one after another."""
        found = self._try(lambda: future.exception(timeout=LOST_SECONDS), (CancelledError,))
        return found is not None and isinstance(found[0], KilledWorker)

    def wait(self, futures: Sequence[Future], seconds: float) -> bool:
        """Wait for tasks for up to `seconds`; return whether all tasks were done or had failed by then."""
        with self.client.as_current():  # the client need not be Dask's default
            return self._try(lambda: wait(futures, timeout=seconds), (CancelledError,)) is not None

    def ask(self, question: Callable[..., Any], *arguments: Any, seconds: float | None = None, **named: Any) -> Any:
        """Return the answer of the scheduler or of workers; None if it takes longer than `seconds`."""
        asked = partial(question, *arguments, **named)
        found = self._try(lambda: ask_within(self.client, asked, seconds or LOOK_SECONDS), (CancelledError, OSError))
        return None if found is None else found[0]

    def run(self, function: Callable[..., Any], *arguments: Any, workers: list[str], **named: Any) -> dict[str, Any]:
        """Run a function on each of these workers without a time limit; return its result or error, by worker.

        Raises the errors of `describe_workers`, and TimeLimitError if a worker is silent or gone and no time is left.
        """
        question = partial(self.client.run, function, *arguments, workers=workers, on_error="return", **named)
        asked = asyncio.run_coroutine_threadsafe(_ask(question), self.client.loop.asyncio_loop)
        try:
            while (found := self._try(lambda: asked.result(LOOK_SECONDS), (CancelledError, OSError))) is None:
                if asked.done():
                    asked.result()  # the function itself has raised TimeoutError
                if self.look() is None or not self.threads.keys() >= set(workers):
                    self._check_limit([])
                elif deadline.is_over():
                    self._end_waits([self.name], workers)
            answers: dict[str, Any] = found[0]
            return answers
        finally:
            asked.cancel()

    def look_again(self, awaited: Sequence[Future]) -> dict[str, Any] | None:
        """Return `look()`, or None if the last look was less than LOOK_SECONDS ago."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return None
        workers = self.look()
        if workers is not None:
            self._check_limit(awaited)
        return workers

    def _check_limit(self, awaited: Sequence[Future]) -> None:
        """Raise TimeLimitError if the training is out of time, unless a worker runs one of these tasks.

        A running pass is awaited, since the last pass certifies the solver's result.
        """
        if not deadline.is_over() or any(future.done() for future in awaited):
            return
        with suppress(KeyError):  # the scheduler does not know a task yet
            answer = self.ask(self.scheduler.call_stack, keys=[future.key for future in awaited])
            if answer:
                self._end_waits([key for tasks in answer.values() for key in tasks], list(answer))
            before, self._is_idle = self._is_idle, not answer
            if before and self._is_idle:  # a single check may fall between two tasks
                late = f"max_seconds has passed, and no worker{describe_wishes()} runs it"
                raise TimeLimitError(f"{self.what}: {late}; {ENDING}")

    def _end_waits(self, names: list[str], workers: list[str]) -> None:
        """Make workers stop waiting for an object store in tasks with these names."""
        self.ask(partial(self.client.run, deadline.end, names, workers=workers, on_error="ignore"))

    def look(self) -> dict[str, Any] | None:
        """Return the scheduler's workers, and log silent and lost workers; None if the scheduler does not answer.

        Workers on which our tasks may not run are left out.
        """
        found = self.ask(self.scheduler.identity, n_workers=-1)
        now = self._looked = time.monotonic()
        if found is None:
            silent_seconds = now - self._answered
            if silent_seconds >= LOST_SECONDS:
                raise ConnectionError(f"{self._scheduler}: no answer for {silent_seconds:.0f} s; {ENDING}")
            if silent_seconds >= SILENT_SECONDS:
                self._log("scheduler", f"the {self._scheduler}, which has been silent for {silent_seconds:.0f} s")
            return None
        self._answered = now
        wishes = list_wishes()
        workers = {address: about for address, about in found["workers"].items() if fits(address, about, wishes)}
        for address in sorted(self.known - workers.keys()):
            LOGGER.warning("worker %s is lost; its groups of chunks move to other workers", address)
        self.known.clear()
        self.known.update(workers)
        self.threads = {}
        self.on_look(workers)
        self._check_workers(workers, now)
        for address, about in workers.items():
            beat, since = self._heard.get(address, (None, now))
            if beat != about["last_seen"]:
                self._heard[address] = (about["last_seen"], now)
                self.threads[address] = about["nthreads"]
            elif now - since >= SILENT_SECONDS:
                silent = f"worker {address}, which has been silent for {now - since:.0f} s"
                self._log(address, f"{silent}; its part moves to other workers when the scheduler gives it up")
        return workers

    def _try(self, action: Callable[[], T], lost: tuple[type[Exception], ...]) -> tuple[T] | None:
        """Return (result,) of an action, or None if it times out. Errors in `lost` become ConnectionError."""
        try:
            with waiting():
                return (action(),)
        except TimeoutError:
            return None
        except AttributeError:
            self.scheduler  # noqa: B018  raises ConnectionError if the client has just lost it
            raise
        except lost as error:
            raise ConnectionError(f"{self._scheduler}: the connection is lost; {ENDING}") from error

    def _check_workers(self, workers: Mapping[str, Any], now: float) -> None:
        """Log a warning if there are no workers. Raises ConnectionError if our own workers are not replaced in time."""
        if workers:
            self._peopled = now
            return
        self._log("workers", f"workers: {self._scheduler} has none{describe_wishes()}")
        if isinstance(self.client.cluster, LocalWorkers) and now - self._peopled >= GIVEN_UP_SECONDS:
            raise ConnectionError(f"{self.what}: all workers are lost; {ENDING}")

    def _log(self, key: str, what: str) -> None:
        """Log that the work waits for a process, once per process."""
        if key not in self._logged:
            self._logged.add(key)
            LOGGER.warning("%s waits for %s", self.what, what)
