"""Workers hold the totals of few groups at a time, however many groups there are."""

from __future__ import annotations

import gc

import pytest
from distributed import Client, Event

from streamsvm.data.source import RowSource
from streamsvm.engines import group
from streamsvm.engines.dask import DistributedEngine
from streamsvm.numeric.rows import Rows
from streamsvm.solvers.protocol import Scan


class Counted:
    """Totals that know how many of them a process holds, and held at most."""

    alive = most = 0

    def __new__(cls) -> Counted:
        """Count, also what comes from another process."""
        cls.alive += 1
        cls.most = max(cls.most, cls.alive)
        return super().__new__(cls)

    def __del__(self) -> None:
        Counted.alive -= 1


def add_when_allowed(totals: Counted, rows: Rows) -> None:
    Event("all-is-submitted").wait()


def combine(left: Counted, right: Counted) -> Counted:
    return Counted()


def most_held() -> int:
    return Counted.most


def test_totals_are_combined_before_further_groups_begin(
    client: Client, sources: dict[str, RowSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "SMALLEST_GROUP_BYTES", 1)
    monkeypatch.setattr(group, "GROUPS", 32)
    n_groups = len(group.plan_groups(sources["dense"]))
    assert n_groups >= 24
    engine, allowed = DistributedEngine(sources["dense"], client), Event("all-is-submitted", client)
    total = engine._submit(Scan(Counted, add_when_allowed, combine))
    allowed.set()
    total.result()
    held = client.run(most_held)
    gc.collect()
    assert max(held.values()) <= 9, f"{held} of {n_groups} groups on 2 workers"
