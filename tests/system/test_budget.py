"""Memory of commands that stream rows: projected, kept by fewer threads, or refused."""

from __future__ import annotations

import pytest

from streamsvm.system import budget, machine
from streamsvm.system.budget import memory_kept
from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import default_threads, most_threads

HELD, MB = 100 << 20, 1 << 20


def test_as_many_threads_work_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(budget, "resident_bytes", lambda: HELD)
    before = HELD + budget.SLACK_BYTES
    for room, threads in ((1000, 8), (80, 8), (79, 7), (10, 1)):
        with memory_kept(before + room * MB, lambda n: 10 * n * MB):
            assert default_threads() == threads
        assert default_threads() == 8
    with memory_kept(None, lambda _: 1 << 60), most_threads(3):
        assert default_threads() == 3
    told = r"165\.7 MB of memory .* with one thread.* limit is 155\.2 MB: .*166\.7\dMB, or less"
    with pytest.raises(MemoryBudgetError, match=told), memory_kept(before, lambda n: 10 * n * MB, ", or less"):
        raise AssertionError
