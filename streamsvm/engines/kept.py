"""The chunks that workers keep in memory from pass to pass, until the engine is closed that they keep them for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Pins

if TYPE_CHECKING:
    from distributed import Worker

_kept: dict[tuple[str, str, str], Pins] = {}  # by the engine's name, the worker's address and the rows' fingerprint
_closed: deque[str] = deque(maxlen=1000)  # engines whose last tasks may still be under way, or even begin


def find_pins(source: RowSource, pin_bytes: int, engine: str, worker: str) -> Pins:
    """Return the chunks of a dataset that a worker of this process keeps for an engine: none if it is closed."""
    if engine in _closed:
        return Pins(0)
    return _kept.setdefault((engine, worker, source.fingerprint), Pins(pin_bytes))


def release_pins(engine: str, dask_worker: Worker) -> None:
    """Free the chunks that a worker keeps for an engine, which is closed. Tasks of it that begin later keep none."""
    _closed.append(engine)
    for key in [key for key in _kept if key[:2] == (engine, dask_worker.address)]:
        del _kept[key]
