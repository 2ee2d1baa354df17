"""Dask engines: a pass is one small graph. Each task reads a group of chunks; a fixed tree adds the groups' totals.

ThreadedEngine runs the graph by Dask's threaded scheduler in this process, DistributedEngine on the workers of a
Client. There are few, long tasks, because a Dask task costs milliseconds. Vectors travel in the graph, because
scattered data is lost with its worker. A group stays with one worker, which may hold the group's chunks in memory; it
moves to another worker if that one dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import dask.config
import dask.threaded

from streamsvm.data.groups import plan_groups
from streamsvm.data.source import RowSource
from streamsvm.engines.group import (
    Partial,
    combine_partials,
    count_rows,
    limit_blas_threads,
    release_pins,
    run_group,
    slice_by_row,
    tree_levels,
)
from streamsvm.engines.patience import Patience
from streamsvm.engines.protocol import Costs
from streamsvm.engines.subsets import Scratch, plan_scratch
from streamsvm.engines.walk import WalkStep, run_walk
from streamsvm.interrupts import waiting
from streamsvm.numeric.arithmetic import Arithmetic, describe_arithmetic, list_kinds
from streamsvm.numeric.rows import I64, Rows
from streamsvm.requests import Scan, Take, Walk

if TYPE_CHECKING:
    from distributed import Client, Future

RELEASE_SECONDS = 5.0
MODELS_MAY_TRAVEL = {"distributed.admin.large-graph-warning-threshold": "1TB"}


class ThreadedEngine:
    """An Engine that runs up to `threads` tasks at once and keeps up to `pin_bytes` of decoded chunks in memory."""

    def __init__(self, source: RowSource, threads: int, pin_bytes: int = 0) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = [describe_arithmetic()]
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm")

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        groups, stopped = plan_groups(self.source), Event()
        graph: dict[Any, Any] = {}
        scratch = plan_scratch(self.scratch, self.source, self.pin_bytes)
        for k, group in enumerate(groups):
            mine = replace(scan, by_row=slice_by_row(self.source, group, scan))
            graph["group", k] = (partial(run_group, self.source, group, mine, self.pin_bytes, stopped.is_set, scratch),)
        keys: list[Any] = list(graph)
        for depth, level in enumerate(tree_levels(len(groups))):
            for left, right in level:
                graph["sum", depth, left] = (partial(_combine, scan), keys[left], keys[right])
                keys[left] = ("sum", depth, left)

        def note(key: Any, *_: Any) -> None:
            if key[0] == "group":
                self.costs.note_rows(count_rows(self.source, groups[key[1]]))

        try:
            with waiting():
                total: Partial = dask.threaded.get(
                    graph, keys[0], pool=self._pool, callbacks=[(None, None, None, note, None)]
                )
        finally:
            stopped.set()  # after a failure or Ctrl-C the other tasks end early
        return self.costs.count(total)

    def take(self, take: Take) -> Rows:
        """See Engine."""
        rows = self.source.take(take.rows)
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        stopped = Event()
        futures = [
            self._pool.submit(run_walk, self.source, walk.step, carry, order, self.pin_bytes, stopped.is_set)
            for carry, order in zip(walk.carries, walk.orders, strict=True)
        ]
        try:
            with waiting():
                parts = [future.result() for future in futures]
        finally:
            stopped.set()
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine."""
        self._pool.shutdown()
        release_pins(self.source.fingerprint)


class DistributedEngine:
    """An Engine on a cluster. Every worker must be able to open the dataset `source` by its path.

    pin_bytes: memory of each worker for decoded chunks. arithmetic: the kinds that the workers have.
    """

    def __init__(
        self, source: RowSource, client: Client, pin_bytes: int = 0, arithmetic: Sequence[Arithmetic] = ()
    ) -> None:
        self.source, self.client, self.pin_bytes, self.costs = source, client, pin_bytes, Costs()
        self.scratch: str | None = None
        self.arithmetic = list_kinds([describe_arithmetic(), *arithmetic])
        self._passes, self._workers = 0, set[str]()
        self._sent: tuple[RowSource, Future] | None = None
        self._answered: Patience | None = None  # what waited for the last pass, if it was completed

    def _send_source(self) -> Future:
        """Return the source as the result of a task, so that each worker gets it once, with the feature map it has."""
        if self._sent is None or self._sent[0] is not self.source:
            self._sent = self.source, self.client.submit(_hold, self.source, pure=False)
        return self._sent[1]

    def _begin_pass(self) -> Patience:
        self._passes, self._answered = self._passes + 1, None
        return Patience(self.client, f"read {self._passes} of the data", self._workers)

    def scan(self, scan: Scan) -> Any:
        """See Engine. Raises ConnectionError if the scheduler is lost."""
        patience = self._begin_pass()
        with dask.config.set(MODELS_MAY_TRAVEL):
            total: Partial = patience.result(self._submit(scan, patience.list_workers()))
        self._answered = patience
        return self.costs.count(total)

    def _submit(self, scan: Scan, workers: list[str]) -> Future:
        groups = plan_groups(self.source)
        source, shared = self._send_source(), self.client.submit(_hold, scan.shared, pure=False)
        bare = replace(scan, shared=(), by_row=(), held=None)
        scratch = plan_scratch(self.scratch, self.source, self.pin_bytes * max(1, len(workers)))
        futures = []
        for k, group in enumerate(groups):
            by_row = slice_by_row(self.source, group, scan)
            task = (_run_group, source, group, bare, shared, by_row, self.pin_bytes, scratch)
            futures.append(self.client.submit(*task, pure=False, **_prefer_worker(workers, k, len(groups))))
            if self.costs.report is not None:
                futures[k].add_done_callback(partial(_note, self.costs, count_rows(self.source, group)))
        for level in tree_levels(len(groups)):
            for left, right in level:  # sums have priority, or a worker would hold the totals of all its groups
                parts = (futures[left], futures[right])
                futures[left] = self.client.submit(_combine, bare, *parts, pure=False, priority=1)
        return futures[0]

    def take(self, take: Take) -> Rows:
        """See Engine."""
        patience = Patience(self.client, "reading single rows")
        with dask.config.set(MODELS_MAY_TRAVEL):
            source = self._send_source()
        rows: Rows = patience.result(self.client.submit(_take, source, take.rows, pure=False))
        self.costs.read_bytes += self.source.take_bytes(take.rows)
        return rows

    def walk(self, walk: Walk) -> list[Any]:
        """See Engine."""
        patience, futures = self._begin_pass(), []
        workers = patience.list_workers()
        with dask.config.set(MODELS_MAY_TRAVEL):
            source = self._send_source()
            for k, (carry, order) in enumerate(zip(walk.carries, walk.orders, strict=True)):
                task = (_run_walk, source, walk.step, carry, order, self.pin_bytes)
                preferred = _prefer_worker(workers, k, len(walk.carries))
                futures.append(self.client.submit(*task, pure=False, **preferred))
            parts = [patience.result(future) for future in futures]
        self._answered = patience
        return [self.costs.count(part) for part in parts]

    def close(self) -> None:
        """See Engine. Workers that were lost in the last pass are named. Those that do not answer keep their chunks."""
        if self._answered is not None:
            with suppress(ConnectionError):
                self._answered.look()
        self._sent = None
        release = partial(self.client._run, release_pins, self.source.fingerprint, on_error="ignore")
        with suppress(TimeoutError, OSError):
            self.client.sync(release, callback_timeout=RELEASE_SECONDS)


def _prefer_worker(workers: list[str], task: int, n_tasks: int) -> dict[str, Any]:
    """Return the arguments of Client.submit that send a task to its own worker, and to another if that one is lost.

    Consecutive tasks go to the same worker. Without a list of workers the scheduler chooses.
    """
    if not workers:
        return {"workers": None, "allow_other_workers": False}
    return {"workers": [workers[task * len(workers) // n_tasks]], "allow_other_workers": True}


def _note(costs: Costs, n_rows: int, future: Future) -> None:
    """Report the rows of a task that is done."""
    if future.status == "finished":
        costs.note_rows(n_rows)


def _hold(shared: Any) -> Any:
    """Return what tasks share: as the result of a task it is sent to each worker once, not with every task."""
    return shared


def _run_group(
    source: RowSource,
    group: range,
    scan: Scan,
    shared: tuple[Any, ...],
    by_row: tuple[Any, ...],
    pin_bytes: int,
    scratch: Scratch | None,
) -> Partial:
    limit_blas_threads()
    return run_group(source, group, replace(scan, shared=shared, by_row=by_row), pin_bytes, scratch=scratch)


def _run_walk(source: RowSource, step: WalkStep, carry: Any, order: Sequence[Sequence[int]], pin_bytes: int) -> Partial:
    limit_blas_threads()
    return run_walk(source, step, carry, order, pin_bytes)


def _combine(scan: Scan, left: Partial, right: Partial) -> Partial:
    return combine_partials(left, right, scan)


def _take(source: RowSource, rows: I64) -> Rows:
    return source.take(rows)
