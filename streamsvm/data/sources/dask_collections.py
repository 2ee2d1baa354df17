"""The partitions of Dask collections, computed on the cluster that holds them, or in this process.

Rows, labels and weights often come from the same data. Their partitions are computed together in one graph, which loads
the data only once.

With a client, the workers of its cluster compute several partitions at once, ahead of the partition that is requested.
Partitions that are already stored on workers (`persist`) are not computed again. Without a client, the calling thread
computes the partitions.

A `with dask.annotate(...)` block may restrict its tasks to workers with certain resources or names. If no worker may
run a task, Dask holds the task and waits, without a report.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import InputError, TimeLimitError

if TYPE_CHECKING:
    import distributed

LOOK_SECONDS = 5.0  # time between two checks whether workers compute the awaited partitions
ANSWER_SECONDS = 5.0  # time after which a worker counts as unresponsive


class Partitions:
    """The partitions of several Dask collections, computed together. All collections have the same number of partitions
    along their rows.

    If a partition of one collection is requested, the corresponding partitions of the other collections are computed,
    too, and stored until they are requested. If corresponding partitions turn out to differ in length, each collection
    is computed separately from then on, and no further partitions are stored.
    """

    def __init__(self, collections: Sequence[Any]) -> None:
        self._collections, self._n_computed = collections, 0
        self._computed = [_compute_in_one_graph(collections, 0)]  # one iterator for all collections, or one for each
        self._waiting: list[deque[Any]] = [deque() for _ in collections]
        self.n_partitions = count_partitions(collections[0])

    def __getitem__(self, k: int) -> Iterator[Callable[[], Any]]:
        """Return an iterator of functions, each of which returns the next partition of collection k."""
        return (partial(self._take, k) for _ in range(self.n_partitions))

    def _take(self, k: int) -> Any:
        if self._waiting[k]:
            return self._waiting[k].popleft()
        if len(self._computed) == 1 and any(part.shape[0] for waiting in self._waiting for part in waiting):
            self._computed = [_compute_in_one_graph([each], self._n_computed) for each in self._collections]
        if len(self._computed) > 1:
            return next(self._computed[k])()[0]
        for waiting, part in zip(self._waiting, next(self._computed[0])(), strict=True):
            waiting.append(part)
        self._n_computed += 1
        return self._waiting[k].popleft()


def _compute_in_one_graph(collections: Sequence[Any], first: int) -> Iterator[Callable[[], Sequence[Any]]]:
    """Yield, for each partition number from `first` on, a function that returns this partition of every collection.

    The number of partitions that workers compute ahead exceeds the number of their threads by one.
    """
    parts = ([each.partitions[i] for each in collections] for i in range(first, count_partitions(collections[0])))
    import dask

    client = find_client(collections)
    if client is None:
        yield from (partial(dask.compute, *some, scheduler="synchronous") for some in parts)
        return
    require_usable(client)
    refuse_unmet(client)
    waiting: deque[Any] = deque()
    for some in parts:
        waiting.append(client.compute(some))
        while len(waiting) > 1 + sum(client.nthreads().values()):  # workers come and go
            yield partial(_await, waiting.popleft())
    while waiting:
        yield partial(_await, waiting.popleft())


def count_partitions(values: Any) -> int:
    """Return the number of partitions of a Dask array or frame along its rows."""
    return int(values.numblocks[0] if hasattr(values, "numblocks") else values.npartitions)


def have_same_partitions(left: Any, right: Any) -> bool:
    """Return whether two arrays, or two frames, have the same number of partitions, of equal length as far as known."""
    if hasattr(left, "chunks") != hasattr(right, "chunks"):
        return False  # Dask would turn frames into graphs that it cannot optimise
    lengths = [getattr(values, "chunks", [[math.nan] * count_partitions(values)])[0] for values in (left, right)]
    if len(lengths[0]) != len(lengths[1]):
        return False
    return all(a == b or math.isnan(a) or math.isnan(b) for a, b in zip(*lengths, strict=True))


def _await(partitions: list[distributed.Future]) -> list[Any]:
    """Wait for partitions and return them. Ctrl-C ends the wait.

    Raises TimeLimitError if `max_seconds` has passed and no worker computes them.
    """
    import distributed

    client, is_idle = partitions[0].client, False
    with thread_given_up(), interrupts.waiting(), client.as_current():
        while True:
            try:
                distributed.wait(partitions, timeout=LOOK_SECONDS)
                return [partition.result() for partition in partitions]
            except TimeoutError:
                if any(partition.status == "error" for partition in partitions):
                    raise  # an error of the user's own code
                before, is_idle = is_idle, deadline.is_over() and not _are_computed(client, partitions)
                if before and is_idle:  # a single check may fall between the end of a task and the start of the next
                    late = f"max_seconds has passed, and no worker{describe_wishes()} computes partitions of the rows"
                    raise TimeLimitError(f"scheduler {client.scheduler.address}: {late}") from None


def _are_computed(client: distributed.Client, partitions: list[distributed.Future]) -> bool:
    """Return whether any responsive worker computes these partitions."""
    ask = partial(client.scheduler.call_stack, keys=[partition.key for partition in partitions])
    with suppress(TimeoutError, KeyError):
        return bool(client.sync(ask, callback_timeout=ANSWER_SECONDS))
    return False


@contextmanager
def thread_given_up() -> Iterator[None]:
    """Release the worker's thread while the running task waits, in the block, for other tasks.

    Otherwise, a worker with a single thread could never start the other tasks. Outside a task, or in a task that has
    already released its thread (distributed.worker_client), this does nothing.
    """
    import distributed

    with ExitStack() as stack:
        with suppress(ValueError, KeyError, AttributeError):
            distributed.secede()
            stack.callback(distributed.rejoin)
        yield


def find_client(values: Any) -> distributed.Client | None:
    """Return the client of the cluster that stores parts of a collection; otherwise the current client, or None."""
    import distributed

    if futures := distributed.futures_of(values):
        return futures[0].client
    with suppress(ValueError):
        return distributed.default_client()
    return None


def list_wishes() -> dict[str, Any]:
    """Return the resources and worker names that the enclosing `dask.annotate` block requires."""
    import dask

    notes = dask.get_annotations()
    names = ("resources",) if notes.get("allow_other_workers") else ("resources", "workers")
    return {name: notes[name] for name in names if name in notes and not callable(notes[name])}


def describe_wishes() -> str:
    """Return the requirements of `list_wishes` as part of an error message; "" if there are none."""
    listed = ", ".join(f"{name}={value}" for name, value in list_wishes().items())
    return f" for dask.annotate({listed})" if listed else ""


def fits(address: str, about: Mapping[str, Any], wishes: Mapping[str, Any]) -> bool:
    """Return whether a worker meets requirements. about: the scheduler's facts about it. wishes: see `list_wishes`."""
    resources: Mapping[str, float] = wishes.get("resources", {})
    names = {address, address.partition("://")[2], about["host"], about["name"]}
    is_named = "workers" not in wishes or not names.isdisjoint(wishes["workers"])
    return is_named and all(about["resources"].get(name, 0) >= amount for name, amount in resources.items())


def describe_lack(address: str) -> str:
    """Return the error message for a scheduler without suitable workers."""
    return f"scheduler {address}: no workers are connected to it{describe_wishes()}; start some first"


def require_usable(client: distributed.Client) -> None:
    """Raise InputError for a client that is closed or asynchronous, and for another object."""
    if not hasattr(client, "asynchronous"):
        raise InputError(f"client is {client!r:.40}: give a distributed.Client, or the address of a scheduler")
    if client.status in ("closing", "closed"):
        raise InputError("client: is closed; create another one")
    if client.asynchronous:
        raise InputError("client: is asynchronous, but training waits for results: create it without asynchronous=True")


def refuse_unmet(client: distributed.Client) -> None:
    """Raise InputError if the cluster has workers, but none meets the requirements of `list_wishes`."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if workers and not any(fits(address, about, list_wishes()) for address, about in workers.items()):
        raise InputError(describe_lack(client.scheduler.address))
