"""Dask engines: a pass is one small graph, a task a group of chunks and a fixed tree of sums over them.

ThreadedEngine runs it by Dask's threaded scheduler in this process; DistributedEngine on the workers of a Client.
Few, long tasks: a Dask task costs milliseconds. Vectors travel in the graph (scattered data is lost with its worker).
A group keeps to its worker, which may hold its chunks, and moves if that worker dies.
"""

from __future__ import annotations

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
from streamsvm.engines.fold import run_pass
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
from streamsvm.interrupts import waiting
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Fold, Scan, Take

if TYPE_CHECKING:
    from distributed import Client, Future

RELEASE_SECONDS = 5.0
MODELS_MAY_TRAVEL = {"distributed.admin.large-graph-warning-threshold": "1TB"}


class ThreadedEngine:
    """See Engine. threads: tasks at once; pin_bytes: memory for chunks that are kept."""

    def __init__(self, source: RowSource, threads: int, pin_bytes: int = 0) -> None:
        self.source, self.pin_bytes, self.costs = source, pin_bytes, Costs()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm")

    def scan(self, scan: Scan) -> Any:
        """See Engine."""
        groups, stopped = plan_groups(self.source), Event()
        graph: dict[Any, Any] = {}
        for k, group in enumerate(groups):
            mine = replace(scan, by_row=slice_by_row(self.source, group, scan))
            graph["group", k] = (partial(run_group, self.source, group, mine, self.pin_bytes, stopped.is_set),)
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
            stopped.set()  # where one has failed, or Ctrl-C has come, the others end early
        return self.costs.count(total)

    def take(self, take: Take) -> Rows:
        """See Engine."""
        rows = self.source.take(take.rows)
        self.costs.read_bytes += rows.nbytes if self.source.on_disk else 0
        return rows

    def fold(self, fold: Fold) -> Any:
        """See Engine."""
        stopped = Event()
        futures = [
            self._pool.submit(run_pass, self.source, fold.step, carry, order, self.pin_bytes, stopped.is_set)
            for carry, order in zip(fold.carries, fold.orders, strict=True)
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
    """See Engine. The source is a dataset that every worker can open by its path; pin_bytes: memory a worker."""

    def __init__(self, source: RowSource, client: Client, pin_bytes: int = 0) -> None:
        self.source, self.client, self.pin_bytes, self.costs = source, client, pin_bytes, Costs()
        self._passes = 0

    def _begin_pass(self) -> Patience:
        self._passes += 1
        return Patience(self.client, f"read {self._passes} of the data")

    def scan(self, scan: Scan) -> Any:
        """See Engine. ConnectionError if the scheduler is lost."""
        patience = self._begin_pass()
        with dask.config.set(MODELS_MAY_TRAVEL):
            total: Partial = patience.result(self._submit(scan, patience.list_workers()))
        return self.costs.count(total)

    def _submit(self, scan: Scan, workers: list[str]) -> Future:
        groups = plan_groups(self.source)
        shared = self.client.submit(_hold, scan.shared, pure=False)
        bare = replace(scan, shared=(), by_row=())
        futures = [
            self.client.submit(
                _run_group, self.source, group, bare, shared, slice_by_row(self.source, group, scan), self.pin_bytes,
                pure=False, workers=[workers[k * len(workers) // len(groups)]] if workers else None,
                allow_other_workers=bool(workers),
            )
            for k, group in enumerate(groups)
        ]  # fmt: skip
        if self.costs.report is not None:
            for group, future in zip(groups, futures, strict=True):
                future.add_done_callback(partial(_note, self.costs, count_rows(self.source, group)))
        for level in tree_levels(len(groups)):
            for left, right in level:  # before further groups, or a worker would hold the totals of all of its own
                parts = (futures[left], futures[right])
                futures[left] = self.client.submit(_combine, bare, *parts, pure=False, priority=1)
        return futures[0]

    def take(self, take: Take) -> Rows:
        """See Engine."""
        patience = Patience(self.client, "reading single rows")
        rows: Rows = patience.result(self.client.submit(_take, self.source, take.rows, pure=False))
        self.costs.read_bytes += rows.nbytes if self.source.on_disk else 0
        return rows

    def fold(self, fold: Fold) -> Any:
        """See Engine."""
        patience, n = self._begin_pass(), len(fold.carries)
        workers = patience.list_workers()
        with dask.config.set(MODELS_MAY_TRAVEL):
            futures = [
                self.client.submit(
                    _run_pass, self.source, fold.step, carry, order, self.pin_bytes, pure=False,
                    workers=[workers[k * len(workers) // n]] if workers else None, allow_other_workers=bool(workers),
                )
                for k, (carry, order) in enumerate(zip(fold.carries, fold.orders, strict=True))
            ]  # fmt: skip
            return [self.costs.count(patience.result(future)) for future in futures]

    def close(self) -> None:
        """See Engine. Workers that do not answer keep what they hold."""
        release = partial(self.client._run, release_pins, self.source.fingerprint, on_error="ignore")
        with suppress(TimeoutError, OSError):
            self.client.sync(release, callback_timeout=RELEASE_SECONDS)


def _note(costs: Costs, n_rows: int, future: Future) -> None:
    """Report the rows of a task that is done."""
    if future.status == "finished":
        costs.note_rows(n_rows)


def _hold(shared: tuple[Any, ...]) -> tuple[Any, ...]:
    return shared


def _run_group(
    source: RowSource, group: range, scan: Scan, shared: tuple[Any, ...], by_row: tuple[Any, ...], pin_bytes: int
) -> Partial:
    limit_blas_threads()
    return run_group(source, group, replace(scan, shared=shared, by_row=by_row), pin_bytes)


def _run_pass(source: RowSource, step: Any, carry: Any, order: Any, pin_bytes: int) -> Partial:
    limit_blas_threads()
    return run_pass(source, step, carry, order, pin_bytes)


def _combine(scan: Scan, left: Partial, right: Partial) -> Partial:
    return combine_partials(left, right, scan)


def _take(source: RowSource, rows: Any) -> Rows:
    return source.take(rows)
