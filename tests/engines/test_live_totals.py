"""Totals are combined as soon as they can be: few are held at a time, and memory is planned for these."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamsvm.data import groups
from streamsvm.data.source import RowSource
from streamsvm.engines import dask as engine
from streamsvm.methods.set_up import set_up
from streamsvm.numeric.rows import Rows
from streamsvm.requests import Scan
from streamsvm.training.train import Event, TrainOptions, train
from tests.engines.scans import trace_scan


class Counted:
    """Totals that know how many of them there are, and were at most."""

    alive = most = 0
    lock = threading.Lock()

    def __init__(self) -> None:
        with Counted.lock:
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        with Counted.lock:
            Counted.alive -= 1


def add_nothing(totals: Counted, rows: Rows) -> None:
    pass


def combine_counted(left: Counted, right: Counted) -> Counted:
    return Counted()


def cut_into(n_groups: int, monkeypatch: pytest.MonkeyPatch, source: RowSource) -> int:
    """Let there be about so many groups; return how many."""
    monkeypatch.setattr(groups, "SMALLEST_GROUP_BYTES", 1)
    monkeypatch.setattr(groups, "GROUPS", n_groups)
    return len(groups.plan_groups(source))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_hold_three_totals_each_and_one_a_level(
    threads: int, sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    n_groups = cut_into(32, monkeypatch, sources["dense"])
    assert n_groups >= 16
    monkeypatch.setattr(Counted, "most", 0)
    threaded = engine.ThreadedEngine(sources["dense"], threads)
    threaded.scan(Scan(Counted, add_nothing, combine_counted))
    threaded.close()
    assert 2 < Counted.most <= 3 * threads + (n_groups - 1).bit_length()  # two and their sum


def test_memory_is_planned_for_one_total_a_level(
    sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, options, events = sources["dense"], TrainOptions(threads=1, max_passes=1), list[Event]()
    n_groups = cut_into(32, monkeypatch, source)
    need = set_up(source, options).memory(1)
    train(source, options, listener=events.append)
    waiting = events[0].plan.parts["solver"] - need.driver_bytes
    assert waiting >= (n_groups - 1).bit_length() * need.totals_bytes


class Recorder:
    """Stands in for a Client: takes note of what is submitted, and how urgent it is."""

    def __init__(self) -> None:
        self.urgency: dict[str, list[int]] = {}

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {"one": {}, "two": {}}}

    def submit(self, function: Any, *arguments: Any, priority: int = 0, **options: Any) -> object:
        self.urgency.setdefault(function.__name__, []).append(priority)
        return object()


def test_for_workers_sums_are_more_urgent_than_groups(
    sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask begins with what was submitted first: all groups, whose totals would then be held at once."""
    n_groups, client = cut_into(5, monkeypatch, sources["dense"]), Recorder()
    engine.DistributedEngine(sources["dense"], client)._submit(trace_scan(), [])
    groups, sums = client.urgency[engine._run_group.__name__], client.urgency[engine._combine.__name__]
    assert len(groups) == n_groups == len(sums) + 1
    assert min(sums) > max(groups)
