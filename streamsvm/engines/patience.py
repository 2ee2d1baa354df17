"""Waiting for a cluster: silent and lost workers are named, and a scheduler that stays silent is given up.

A process that is stopped, swaps, or sits behind a cut connection keeps its sockets: nothing fails, and nothing comes.
Workers send a heartbeat every half second (every few seconds in large clusters), so the scheduler knows which of them
are silent. It gives up a worker after its `worker-ttl`, and then the worker's groups of chunks move to others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from streamsvm.errors import say_count
from streamsvm.interrupts import waiting

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")
LOGGER = logging.getLogger("streamsvm")

LOOK_SECONDS = 5.0  # between two questions to the scheduler, which answers in milliseconds
SILENT_SECONDS = 30.0  # until a silent process is named; a process that computes answers within a few seconds
GIVEN_UP_SECONDS = 120.0  # until a worker of our own is replaced; on a busy machine its imports take 30 seconds
LOST_SECONDS = 60.0  # until a silent scheduler is given up
MOST_TRIES = 3  # at a task that is lost with four workers each time, until the run ends
ENDING = "the last complete step is kept, and a run in a folder goes on with --resume"


def ask_within(client: Client, question: Callable[[], Any], seconds: float) -> Any:
    """Return the answer to a question that the client asks on its event loop. TimeoutError if it takes longer."""

    async def ask() -> Any:
        return await question()

    return client.sync(ask, callback_timeout=seconds)


class Patience:
    """Keeps the time of each worker's last heartbeat.

    what: the waiting work, such as "read 3 of the data". known: the addresses of the workers that were seen last, which
    the caller keeps from one work to the next; a worker that is no longer there is named. threads: by worker, how many
    threads it has, if its heart has beaten since the last look but one.
    """

    def __init__(self, client: Client, what: str, known: set[str] | None = None, address: str | None = None) -> None:
        self.client, self.what, self.known = client, what, set() if known is None else known
        self.address: str = client.scheduler.address if address is None else address
        self._answered = self._looked = self._peopled = time.monotonic()
        self._heard: dict[str, tuple[float, float]] = {}  # by worker: its last heartbeat, and when we saw it
        self._named: set[str] = set()
        self.threads: dict[str, int] = {}

    @property
    def scheduler(self) -> Any:
        """The scheduler, to ask it. ConnectionError if the client has given it up, which it does while nobody asks."""
        if self.client.scheduler is None:
            raise ConnectionError(f"{self._scheduler()}: the connection is lost; {ENDING}")
        return self.client.scheduler

    def list_workers(self) -> list[str]:
        """Return the addresses of the workers, in order. ConnectionError if the scheduler stays silent."""
        return sorted({address for address, _ in self.list_slots()})

    def list_slots(self) -> list[tuple[str, int]]:
        """Return the threads of all workers, in order: the address and a number. Errors as for list_workers."""
        while True:
            workers = self.look()
            if workers is not None:
                return [(address, k) for address in sorted(workers) for k in range(workers[address]["nthreads"])]

    def results(
        self, submits: Sequence[Callable[[], Future]], submitted: Sequence[Future] | None = None
    ) -> Iterator[Any]:
        """Submit tasks, unless they are submitted already, and yield their results, in order. See `result`.

        A task that is lost is submitted again, unless it was lost MOST_TRIES times. In the end, also after a failure or
        Ctrl-C, all tasks are let go, so that those under way end early.
        """
        futures = [submit() for submit in submits] if submitted is None else list(submitted)
        try:
            for k, submit in enumerate(submits):
                for _ in range(MOST_TRIES - 1):
                    self._await(futures[k])
                    if futures[k].status != "error" or not self.was_lost(futures[k]):
                        break
                    futures[k] = submit()
                found = self.result(futures[k])
                futures[k].release()
                yield found
        finally:
            for future in futures:
                future.release()

    def _await(self, future: Future) -> None:
        """Return once a task is done, or has failed. ConnectionError if the scheduler is lost."""
        while not self.wait([future], LOOK_SECONDS):
            self.look()

    def result(self, future: Future) -> Any:
        """Return the result of a task, however long it takes. ConnectionError if the scheduler is lost."""
        from distributed.comm import CommClosedError

        self._await(future)
        if future.status == "error":
            self._raise_error(future)
        found = self._try(lambda: future.result(timeout=LOST_SECONDS), (CancelledError, CommClosedError))
        if found is None:
            raise ConnectionError(f"{self._scheduler()}: no answer for {LOST_SECONDS:.0f} s; {ENDING}")
        return found[0]

    def was_lost(self, future: Future) -> bool:
        """Return whether a task has failed because the workers that it was given to were lost, one after another."""
        from distributed.scheduler import KilledWorker

        found = self._try(lambda: future.exception(timeout=LOST_SECONDS), (CancelledError,))
        return found is not None and isinstance(found[0], KilledWorker)

    def _raise_error(self, future: Future) -> None:
        """Raise the error of a task."""
        if self.was_lost(future):
            how_many = say_count(future.exception().allowed_failures + 1, "worker")
            lost = f"a task was lost with {how_many}, one after another; see whether their memory is enough"
            raise ConnectionError(f"{self.what}: {lost}; {ENDING}")
        future.result()

    def wait(self, futures: Sequence[Future], seconds: float) -> bool:
        """Return whether tasks were done, or have failed, within so many seconds."""
        from distributed import wait

        with self.client.as_current():  # it may be none that Dask takes by default
            return self._try(lambda: wait(futures, timeout=seconds), (CancelledError,)) is not None

    def ask(self, question: Callable[..., Any], *arguments: Any, seconds: float | None = None, **named: Any) -> Any:
        """Return the answer of the scheduler or of workers to a question; None if it takes longer (than a look may)."""
        asked = partial(question, *arguments, **named)
        found = self._try(lambda: ask_within(self.client, asked, seconds or LOOK_SECONDS), (CancelledError, OSError))
        return None if found is None else found[0]

    def look_again(self) -> dict[str, Any] | None:
        """Look if the last look is long enough ago, and return what it gives."""
        return self.look() if time.monotonic() - self._looked >= LOOK_SECONDS else None

    def look(self) -> dict[str, Any] | None:
        """Ask the scheduler for its workers, and name those that are silent or lost; None if it does not answer."""
        found = self.ask(self.scheduler.identity, n_workers=-1)
        now = self._looked = time.monotonic()
        if found is None:
            self._judge_scheduler(now - self._answered)
            return None
        self._answered = now
        workers: dict[str, Any] = found["workers"]
        for address in sorted(self.known - workers.keys()):
            LOGGER.warning("worker %s is lost; its groups of chunks move to other workers", address)
        self.known.clear()
        self.known.update(workers)
        self.threads = {}
        self._judge_workers(workers, now)
        for address, about in workers.items():
            beat, since = self._heard.get(address, (None, now))
            if beat != about["last_seen"]:
                self._heard[address] = (about["last_seen"], now)
                self.threads[address] = about["nthreads"]
            elif now - since >= SILENT_SECONDS:
                silent = f"which has been silent for {now - since:.0f} s"
                moves = "its part moves to other workers when the scheduler gives it up"
                self._name(address, f"worker {address}, {silent}; {moves}")
        return workers

    def _try(self, action: Callable[[], T], lost: tuple[type[Exception], ...]) -> tuple[T] | None:
        """Return (result,) of an action, or None if it times out. Raises ConnectionError for the errors in `lost`."""
        try:
            with waiting():
                return (action(),)
        except TimeoutError:
            return None
        except AttributeError:
            self.scheduler  # noqa: B018  the client has none from one moment to the next
            raise
        except lost as error:
            raise ConnectionError(f"{self._scheduler()}: the connection is lost; {ENDING}") from error

    def _judge_scheduler(self, silent_seconds: float) -> None:
        if silent_seconds >= LOST_SECONDS:
            raise ConnectionError(f"{self._scheduler()}: no answer for {silent_seconds:.0f} s; {ENDING}")
        if silent_seconds >= SILENT_SECONDS:
            self._name("scheduler", f"the {self._scheduler()}, which has been silent for {silent_seconds:.0f} s")

    def _judge_workers(self, workers: Mapping[str, Any], now: float) -> None:
        """Say that there are no workers. Others may come, if they are not our own, whom nobody has replaced by now."""
        from streamsvm.engines.local_workers import LocalWorkers

        if workers:
            self._peopled = now
            return
        self._name("workers", f"workers: {self._scheduler()} has none")
        if isinstance(self.client.cluster, LocalWorkers) and now - self._peopled >= GIVEN_UP_SECONDS:
            raise ConnectionError(f"{self.what}: all workers are lost; {ENDING}")

    def _name(self, key: str, who: str) -> None:
        """Log once that we wait for this process."""
        if key not in self._named:
            self._named.add(key)
            LOGGER.warning("%s waits for %s", self.what, who)

    def _scheduler(self) -> str:
        return f"scheduler {self.address}"
