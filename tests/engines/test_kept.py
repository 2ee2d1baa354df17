"""The chunks that workers keep for an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.data.source import RowSource
from streamsvm.engines.kept import Terms, find_pins, release_pins


@pytest.mark.parametrize(("limit_bytes", "room"), [(None, 300), (1500, 300), (1000, 300), (800, 100), (600, 0)])
def test_a_worker_that_joins_with_less_memory_keeps_less(
    limit_bytes: int | None, room: int, sources: dict[str, RowSource]
) -> None:
    """300 bytes of chunks were planned for workers of 1000 bytes in all."""
    worker: Any = SimpleNamespace(address="tcp://a:1", memory_manager=SimpleNamespace(memory_limit=limit_bytes))
    terms = Terms(f"joined-{limit_bytes}", 300, 1000)
    assert find_pins(sources["dense"], terms, worker).limit_bytes == room
    release_pins(terms.engine, worker)
    assert find_pins(sources["dense"], terms, worker).limit_bytes == 0
