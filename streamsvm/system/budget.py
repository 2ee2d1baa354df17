"""The memory of commands that stream rows: projected before they begin, and kept by fewer threads, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamsvm.system.errors import MemoryBudgetError
from streamsvm.system.machine import (
    default_threads,
    format_bytes,
    give_back_freed_arrays,
    most_threads,
    resident_bytes,
)

SLACK_BYTES = 48 << 20  # garbage between two collections, the stacks of threads, messages in flight


@contextmanager
def memory_kept(memory_bytes: int | None, count_bytes: Callable[[int], int], remedy: str = "") -> Iterator[None]:
    """Let no more threads work within the block than fit into memory_bytes (None: no limit).

    count_bytes: returns what the work takes with a number of threads, in addition to what the process holds. remedy:
    the end of the message of a refusal. Raises MemoryBudgetError if one thread takes too much.
    """
    if memory_bytes is None:
        yield
        return
    give_back_freed_arrays()
    held, needs = resident_bytes() + SLACK_BYTES, dict[int, int]()
    for threads in range(default_threads(), 0, -1):
        needs[threads] = held + count_bytes(threads)
        if needs[threads] <= memory_bytes:
            break
    if needs[threads] > memory_bytes:
        enough = format_bytes(needs[threads] + (1 << 20), up=True)
        raise MemoryBudgetError(
            f"{format_bytes(needs[threads])} of memory is needed with one thread (of these, interpreter, libraries and "
            f"slack take {format_bytes(held)}), but the limit is {format_bytes(memory_bytes)}: raise --memory to at "
            f"least {enough}{remedy}",
            needs[threads] + (1 << 20),
        )
    with most_threads(threads):
        yield
