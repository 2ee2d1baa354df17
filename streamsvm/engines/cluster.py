"""The engine of workers: a pass is one task a worker, on the workers of a Client. See engines.pass_on_workers.

Vectors travel with tasks, because scattered data is lost with its worker. A group stays with one worker, which may hold
the group's chunks in memory; it moves to another worker if that one dies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.config

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.group import Partial
from streamsvm.engines.kept import Load, Terms, find_pins, load_nothing, release_pins, require_data
from streamsvm.engines.part import Groups, Pass, watch_task
from streamsvm.engines.pass_on_workers import PassOnWorkers
from streamsvm.engines.patience import Patience, ask_within
from streamsvm.engines.protocol import Costs
from streamsvm.engines.shares import Slot, share_out
from streamsvm.engines.subsets import plan_scratch
from streamsvm.engines.subtrees import FAN_IN
from streamsvm.engines.takes import cut_take, join_taken
from streamsvm.engines.walk import WalkStep, run_walk
from streamsvm.numeric.arithmetic import MIXED, Arithmetic, describe_arithmetic, list_kinds, name_differences
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.numeric.rows import I64, Rows
from streamsvm.requests import Scan, Take, Walk
from streamsvm.shared_setting import SharedSetting

if TYPE_CHECKING:
    from distributed import Client, Future

LOGGER = logging.getLogger("streamsvm")
RELEASE_SECONDS = 5.0
SMALL_BYTES = 64 << 10
models_may_travel = SharedSetting(
    partial(dask.config.set, {"distributed.admin.large-graph-warning-threshold": "1TB"})
).held


class DistributedEngine:
    """An Engine on a cluster. Every worker must be able to open the dataset `source` by its path.

    pin_bytes: for decoded chunks, in a worker that may use budget_bytes in all; one with less keeps less. fan_in: how
    many tasks' totals one task joins at most. arithmetic: the kinds that the workers have (numeric.arithmetic). load:
    loads the kernels of the tasks. state_bytes: for the numbers of rows that a worker keeps (None: without a limit).
    most_handed: how many totals of a pass under way this process keeps, so that they are not lost with a worker.
    """

    def __init__(
        self,
        source: RowSource,
        client: Client,
        pin_bytes: int = 0,
        fan_in: int = FAN_IN,
        arithmetic: Sequence[Arithmetic] = (),
        budget_bytes: int = 0,
        load: Load = load_nothing,
        state_bytes: int | None = None,
        most_handed: int = 0,
    ) -> None:
        self.source, self.client, self.pin_bytes, self.costs = source, client, pin_bytes, Costs()
        self.fan_in, self.most_handed = fan_in, most_handed
        self.scratch: str | None = None
        self.arithmetic = list_kinds([describe_arithmetic(), *arithmetic])
        self._address: str = client.scheduler.address
        self._terms = Terms(uuid4().hex, pin_bytes, budget_bytes, load, state_bytes)
        self._passes, self._workers, self._described = 0, set[str](), set[str]()
        self._shares: dict[Slot, list[range]] = {}
        self._sent: tuple[RowSource, Future] | None = None
        self._answered: Patience | None = None  # what waited for the last pass, if it was completed

    def _send_data(self) -> Future:
        """Return the source, with the feature map it has, and its groups as the result of a task.

        So each worker gets them once. They are sent anew if that task was lost with its workers.
        """
        if self._sent is None or self._sent[0] is not self.source or self._sent[1].status == "error":
            data = self.source, plan_groups(self.source)
            self._sent, self._shares = (self.source, self._hold(data)), {}
        return self._sent[1]

    def _send(self, work: Pass, is_small: bool) -> tuple[Future, Pass | Future]:
        """Return the source and a pass as tasks of the pass take them."""
        return self._send_data(), work if is_small else self._hold(work)

    def _hold(self, shared: Any) -> Future:
        """Return what tasks share as the result of a task: it is sent to each worker once, by the others."""
        return self._submit("data", _hold, shared)

    def list_slots(self) -> list[Slot]:
        """Return the threads of all workers that are there now. Raises ConnectionError if the scheduler is lost."""
        return Patience(self.client, "counting workers", None, self._address).list_slots()

    def _list_slots(self, patience: Patience) -> list[Slot]:
        """Return the threads of all workers, and note how those add that have joined."""
        slots = patience.list_slots()
        joined = sorted(self._workers - self._described)
        if joined:
            ask = partial(self.client.run, describe_arithmetic, workers=joined, on_error="ignore")
            found: dict[str, Arithmetic] = patience.ask(ask) or {}
            self._described.update(joined)
            self.arithmetic, before = list_kinds([*self.arithmetic, *found.values()]), self.arithmetic
            if len(self.arithmetic) > len(before):
                LOGGER.warning(MIXED, name_differences(self.arithmetic))
        return slots

    def _begin_pass(self) -> Patience:
        self._passes, self._answered = self._passes + 1, None
        return Patience(self.client, f"read {self._passes} of the data", self._workers, self._address)

    def scan(self, scan: Scan) -> Any:
        """See Engine. Raises ConnectionError if the scheduler is lost."""
        patience, groups = self._begin_pass(), plan_groups(self.source)
        slots, name = self._list_slots(patience), f"{self._terms.engine}-{self._passes}"
        room = self.pin_bytes * max(1, len({address for address, _ in slots}))
        bare, scratch = replace(scan, by_row=(), held=None), plan_scratch(self.scratch, self.source, room)
        work = Pass(name, self._terms, bare, scratch)
        with models_may_travel():
            send = partial(self._send, work, _is_small(work))
            self._shares = share_out(len(groups), slots, self._shares) if slots else {}
            sizes = self.fan_in, self.most_handed
            under_way = PassOnWorkers(name, self.source, groups, scan, send, patience, self.costs, *sizes)
            total = under_way.carry_out(self._shares)
        self._answered = patience
        return self.costs.count(total)

    def take(self, take: Take) -> Rows:
        """See Engine."""
        patience = Patience(self.client, "reading single rows", None, self._address)
        threads = len(patience.list_slots())
        with models_may_travel():
            parts = cut_take(self.source, plan_groups(self.source), take.rows, threads)
            found = patience.results([partial(self._submit_on_data, "rows", _take, part) for part in parts])
            rows: Rows = join_taken(found) if len(parts) > 1 else next(found)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        patience, tasks = self._begin_pass(), []
        workers = patience.list_workers()
        with models_may_travel():
            for k, (carry, order) in enumerate(zip(walk.carries, walk.orders, strict=True)):
                arguments = walk.step, carry, order, self._terms
                preferred = _prefer_worker(workers, k, len(walk.carries))
                tasks.append(partial(self._submit_on_data, "walk", _run_walk, *arguments, **preferred))
            parts = list(patience.results(tasks))
        self._answered = patience
        return [self.costs.count(part) for part in parts]

    def _submit(self, kind: str, function: Callable[..., Any], *arguments: Any, **preferred: Any) -> Future:
        """Send a task to the scheduler, under a key of its own."""
        return self.client.submit(function, *arguments, key=_name_task(kind), **preferred)

    def _submit_on_data(self, kind: str, function: Callable[..., Any], *arguments: Any, **preferred: Any) -> Future:
        """Send a task whose first argument is the source and its groups."""
        return self._submit(kind, function, self._send_data(), *arguments, **preferred)

    def close(self) -> None:
        """See Engine. Workers that were lost in the last pass are named. Those that do not answer keep their chunks."""
        if self._answered is not None:
            with suppress(ConnectionError):
                self._answered.look()
        self._sent = None
        if self.client.scheduler is None:  # the client has given it up
            return
        release = partial(self.client.run, release_pins, self._terms.engine, on_error="ignore")
        with suppress(TimeoutError, OSError):
            ask_within(self.client, release, RELEASE_SECONDS)


def _prefer_worker(workers: list[str], task: int, n_tasks: int) -> dict[str, Any]:
    """Return the arguments of Client.submit that send a task to its own worker, and to another if that one is lost.

    Consecutive tasks go to the same worker. Without a list of workers the scheduler chooses.
    """
    if not workers:
        return {"workers": None, "allow_other_workers": False}
    return {"workers": [workers[task * len(workers) // n_tasks]], "allow_other_workers": True}


def _is_small(work: Pass) -> bool:
    """Return whether the pass can travel with each task: as a result of its own it costs two messages a worker."""
    from distributed.protocol.pickle import dumps

    buffers: list[Any] = []
    rest = dumps(work, buffer_callback=buffers.append)
    nbytes: int = len(rest) + sum(buffer.raw().nbytes for buffer in buffers)
    return nbytes <= SMALL_BYTES


def _name_task(kind: str) -> str:
    """Return a key that no other task has, of which the dashboard shows "streamsvm" and the kind."""
    return f"streamsvm-{kind}-{uuid4().hex}"


def _hold(shared: Any) -> Any:
    return shared


@one_blas_thread()
def _run_walk(
    data: tuple[RowSource, Groups],
    step: WalkStep,
    carry: Any,
    order: Sequence[Sequence[int]],
    terms: Terms,
) -> Partial:
    from distributed import get_worker

    terms.load()
    require_data(data[0], get_worker())
    pins = find_pins(data[0], terms, get_worker())
    return run_walk(data[0], step, carry, order, pins, watch_task())


def _take(data: tuple[RowSource, Groups], rows: I64) -> Rows:
    from distributed import get_worker

    require_data(data[0], get_worker())
    return data[0].take(rows)
