"""The chunks and numbers of rows that workers keep from pass to pass, until the engine is closed that they are for.

A worker may join while a training is under way, and with less memory than those that were there when memory was
planned. So tasks bring along what the engine asks of a worker, and each worker sees to it before its first task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Pins
from streamsvm.engines.row_states import KeptStates
from streamsvm.errors import InputError, IntegrityError, ReadError

if TYPE_CHECKING:
    from distributed import Worker

EVERY_WORKER = "; every worker opens the dataset by this path: use a folder that all of them share, or an object store"
Load = Callable[[], object]  # a function, importable by name, that loads the kernels of the tasks to come

_kept: dict[tuple[str, str, str], Pins] = {}  # by the engine's name, the worker's address and the rows' fingerprint
_kept_states: dict[tuple[str, str], KeptStates] = {}  # by the engine's name and the worker's address
_closed: deque[str] = deque(maxlen=1000)  # engines whose last tasks may still be under way, or even begin
_lock = Lock()  # a task that has found its engine open keeps nothing once that is closed


def load_nothing() -> None:
    """Stand for the kernels of tasks that have none."""


@dataclass(frozen=True)
class Terms:
    """What an engine asks of each worker.

    engine: its name, under which workers keep chunks. pin_bytes: for chunks, in a worker that may use budget_bytes in
    all (0: as much as it likes). load: loads the kernels; it costs nothing after the first time. state_bytes: for the
    numbers of rows (None: as many as there are).
    """

    engine: str
    pin_bytes: int = 0
    budget_bytes: int = 0
    load: Load = load_nothing
    state_bytes: int | None = None


def require_data(source: RowSource | None, worker: Worker) -> None:
    """Raise InputError, with the name of the worker, if this worker cannot open the dataset of a source."""
    try:
        if source is not None:
            _ = source.fingerprint
    except (IntegrityError, ReadError):  # their messages name the cause
        raise
    except (InputError, OSError) as error:
        raise InputError(f"worker {worker.address}: {error}{EVERY_WORKER}") from error


def find_pins(source: RowSource, terms: Terms, worker: Worker) -> Pins:
    """Return the chunks of a dataset that a worker of this process keeps for an engine: none if it is closed.

    A worker with less memory than was planned for keeps fewer of them.
    """
    limit_bytes = int(worker.memory_manager.memory_limit or terms.budget_bytes)
    room = max(0, terms.pin_bytes - max(0, terms.budget_bytes - limit_bytes))
    with _lock:
        if terms.engine in _closed:
            return Pins(0)
        return _kept.setdefault((terms.engine, worker.address, source.fingerprint), Pins(room))


def find_states(terms: Terms, worker: Worker) -> KeptStates:
    """Return the numbers of rows that a worker of this process keeps for an engine: none if it is closed."""
    with _lock:
        if terms.engine in _closed:
            return KeptStates(0)
        return _kept_states.setdefault((terms.engine, worker.address), KeptStates(terms.state_bytes))


def release_pins(engine: str, dask_worker: Worker) -> None:
    """Free what a worker keeps for an engine, which is closed. Tasks of it that begin later keep nothing."""
    with _lock:
        _closed.append(engine)
        for key in [key for key in _kept if key[:2] == (engine, dask_worker.address)]:
            del _kept[key]
        _kept_states.pop((engine, dask_worker.address), None)
