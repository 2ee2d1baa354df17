"""The task of a sequential walk: it takes groups of chunks, one after another, into a carry of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.engines.group import Partial, Pins, bytes_to_read, load_or_pin
from streamsvm.engines.task_seconds import TaskSeconds
from streamsvm.machine import peak_bytes
from streamsvm.numeric.rows import Rows, stack_rows

WalkStep = Callable[[Any, Rows], Iterator[Any]]


def run_walk(
    source: RowSource,
    step: WalkStep,
    carry: Any,
    order: Sequence[Sequence[int]],
    pins: Pins,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Partial:
    """Carry out one walk, while a thread reads the next group; the walk ends early once `is_stopped` says so."""
    partial = Partial(carry)
    with ThreadPoolExecutor(1) as reader:
        following = [reader.submit(_read_chunks, source, chunks, pins) for chunks in order[:1]]
        for k in range(len(order)):
            began = time.perf_counter()
            rows, read_bytes = following.pop().result()
            came = time.perf_counter()
            if is_stopped():
                break
            following = [reader.submit(_read_chunks, source, chunks, pins) for chunks in order[k + 1 : k + 2]]
            partial.read_bytes += read_bytes
            for partial.totals in step(partial.totals, rows):  # noqa: B020  each step starts from the last carry
                if is_stopped():
                    break
            del rows
            partial.seconds += TaskSeconds(read=came - began, compute=time.perf_counter() - came)
    partial.peaks[os.getpid()] = peak_bytes()
    return partial


def _read_chunks(source: RowSource, chunks: Sequence[int], pins: Pins) -> tuple[Rows, int]:
    """Return some chunks, verified, as one `Rows`, and the bytes that were read from storage.

    Successive chunks are consecutive rows, whose first number is known.
    """
    parts, read_bytes = [], bytes_to_read(source, chunks, pins)
    for index in chunks:
        kept = load_or_pin(source, index, pins)
        parts.append(source.read(index) if kept is None else kept)
    if len(parts) == 1:
        return parts[0], read_bytes
    vectors = {name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors}
    start = parts[0].start if list(chunks) == list(range(chunks[0], chunks[0] + len(chunks))) else -1
    return Rows(start, stack_rows([part.X for part in parts]), **vectors), read_bytes
