"""The task of a worker in a pass, while other threads of its process change what it looks at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.data.rows.source import plan_groups
from streamsvm.engines.cluster import task as part
from streamsvm.engines.cluster.task import Pass, TaskGroups, WorkerBudget, add_groups, leave_groups, watch_task
from streamsvm.numeric.rows import Rows
from streamsvm.passes import Scan
from tests.conftest import make_problem
from tests.engines.scans import join_lists, start_flags


class Vanishing(dict[str, Any]):
    """Entries of which each is removed as soon as somebody has looked whether it is there."""

    def __contains__(self, key: object) -> bool:
        return self.pop(key, None) is not None  # type: ignore[call-overload]


def make_worker(monkeypatch: pytest.MonkeyPatch, tasks: dict[str, Any]) -> Any:
    """Let this thread carry out the task "a" of a worker."""
    worker = SimpleNamespace(
        address="tcp://here:1",
        metrics={},
        loop=SimpleNamespace(add_callback=lambda function, *arguments: function(*arguments)),
        memory_manager=SimpleNamespace(memory_limit=None),
        get_current_task=lambda: "a",
        state=SimpleNamespace(tasks=tasks),
    )
    monkeypatch.setattr(part, "get_worker", lambda: worker)
    return worker


def test_a_task_that_is_forgotten_while_it_looks_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop removes the task between two looks at it, which is no error of the task."""
    tasks = Vanishing(a=SimpleNamespace(state="executing"))
    make_worker(monkeypatch, tasks)
    is_stopped = watch_task()
    assert not is_stopped()
    tasks.pop("a")
    assert is_stopped()


def test_a_task_may_be_carried_out_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By two workers of one process, of which the scheduler has given up one, which lives on."""
    worker = make_worker(monkeypatch, {"a": SimpleNamespace(state="executing")})
    source = make_problem(1, n=50).in_memory()
    data, what = (source, plan_groups(source)), TaskGroups((range(1),), ((),))
    found: list[Any] = []

    def add(totals: list[Any], rows: Rows) -> None:
        if not found:
            found.append(None)
            found.append(add_groups(data, work, what))
            assert [task.key for task in part._running] == ["a"]
            assert leave_groups("pass", worker) == {"a": []}
        totals.append(rows.start)

    work = Pass("pass", WorkerBudget("engine"), Scan(start_flags, add, join_lists), None)
    mine = add_groups(data, work, what)
    assert mine[0].partial.totals == found[1][0].partial.totals
    assert not part._running
