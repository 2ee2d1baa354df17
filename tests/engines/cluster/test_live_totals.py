"""Totals are combined as soon as they can be: few are held at a time, and memory is planned for these."""

from __future__ import annotations

import threading
from itertools import combinations

import pytest

from streamsvm.data.rows import source as groups
from streamsvm.data.rows.source import RowSource
from streamsvm.engines import local as engine
from streamsvm.engines.cluster.tree import Subtree, add_subtree, find_fan_in
from streamsvm.engines.engine import Partial
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up


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


@pytest.mark.parametrize("n_groups", [16, 37])
def test_a_worker_holds_two_totals_a_level_and_three(n_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its range is: the whole subtrees of the range, the totals of a group, and two and their sum."""
    levels = (n_groups - 1).bit_length()
    for start, stop in combinations(range(n_groups + 1), 2):
        monkeypatch.setattr(Counted, "alive", 0)
        monkeypatch.setattr(Counted, "most", 0)
        found = list[Subtree]()
        for k in range(start, stop):
            add_subtree(found, Subtree(k, k + 1, Partial(Counted())), n_groups, combine_partials_counted)
        assert len(found) <= min(stop - start, 2 * levels)
        assert Counted.most <= 2 * levels + 3
        assert [one.start for one in found[1:]] == [one.stop for one in found[:-1]]
        assert (found[0].start, found[-1].stop) == (start, stop)
        del found


def combine_partials_counted(left: Partial, right: Partial) -> Partial:
    return Partial(combine_counted(left.totals, right.totals))


@pytest.mark.parametrize(("totals_bytes", "fan_in"), [(0, 16), (26_000, 16), (400_000, 5), (1 << 30, 2)])
def test_one_task_joins_few_large_totals(totals_bytes: int, fan_in: int) -> None:
    """As many parts as 16 MiB hold, of two totals a level each; two at least, and sixteen at most."""
    assert find_fan_in(16, totals_bytes) == fan_in
