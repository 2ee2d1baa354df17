"""Ranges of rows: empty ones dropped, neighbours joined, and cut at the limits of chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.numeric.rows import I64


def join_neighbours(starts: I64, stops: I64) -> tuple[I64, I64]:
    """Return the ranges that are not empty; ranges that touch each other become one."""
    some = stops > starts
    starts, stops = starts[some], stops[some]
    apart = starts[1:] != stops[:-1]
    return starts[np.append(True, apart)[: len(starts)]], stops[np.append(apart, True)[: len(stops)]]


def cut_ranges(starts: I64, stops: I64, step: int) -> Iterator[tuple[int, I64, I64]]:
    """Cut ascending ranges at the multiples of `step`. Yield (k, starts, stops) for each k that has some of them."""
    if not len(starts):
        return
    for k in range(int(starts[0]) // step, -(-int(stops[-1]) // step)):
        here = slice(np.searchsorted(stops, k * step, side="right"), np.searchsorted(starts, (k + 1) * step))
        if here.start < here.stop:
            low, high = (np.clip(limits[here], k * step, (k + 1) * step) for limits in (starts, stops))
            yield k, low, high
