"""Workers combine totals before they begin with further groups: they hold those of few groups at a time."""

from __future__ import annotations

from typing import Any

import pytest

from streamsvm.data.source import RowSource
from streamsvm.engines import dask as engine
from streamsvm.engines import group
from tests.engines.scans import trace_scan


class Recorder:
    """Stands in for a Client: takes note of what is submitted, and how urgent it is."""

    def __init__(self) -> None:
        self.urgency: dict[str, list[int]] = {}

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {"one": {}, "two": {}}}

    def submit(self, function: Any, *arguments: Any, priority: int = 0, **options: Any) -> object:
        self.urgency.setdefault(function.__name__, []).append(priority)
        return object()


@pytest.mark.usefixtures("many_groups")
def test_sums_are_more_urgent_than_groups(sources: dict[str, RowSource]) -> None:
    """Dask begins with what was submitted first: all groups, whose totals would then be held at once."""
    client = Recorder()
    engine.DistributedEngine(sources["dense"], client)._submit(trace_scan())  # type: ignore[arg-type]
    groups, sums = client.urgency[engine._run_group.__name__], client.urgency[engine._combine.__name__]
    assert len(groups) == len(group.plan_groups(sources["dense"])) == len(sums) + 1
    assert min(sums) > max(groups)
