"""Who adds which groups of chunks: each worker a range of its own, in every pass the same, since it keeps their chunks.

Workers are named by their slots, one for each of their threads. If workers come or go, the others keep their groups, up
to an equal share, and only groups that nobody has move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

Slot = tuple[str, int]  # the address of a worker, and the number of one of its threads
MOST_RANGES = 2  # of a slot; with more of them, more totals would wait than memory is planned for


def share_out(n_groups: int, slots: Sequence[Slot], before: Mapping[Slot, Sequence[range]]) -> dict[Slot, list[range]]:
    """Return the ranges of groups of each slot, in order. `before` is who had which groups until now.

    Without a past, the shares are contiguous. They are made anew, too, where a slot would have more than MOST_RANGES.
    """
    quota = np.diff(np.arange(len(slots) + 1) * n_groups // len(slots))
    owner = np.full(n_groups, -1)
    for number, slot in enumerate(slots):
        groups = [k for groups in before.get(slot, ()) for k in groups if k < n_groups]
        owner[groups[: quota[number]]] = number
    lacking = quota - np.bincount(owner[owner >= 0], minlength=len(slots))
    owner[owner < 0] = np.repeat(np.arange(len(slots)), lacking)
    shares = _list_ranges(owner, slots)
    if any(len(ranges) > MOST_RANGES for ranges in shares.values()):
        return _list_ranges(np.repeat(np.arange(len(slots)), quota), slots)
    return shares


def _list_ranges(owner: np.ndarray, slots: Sequence[Slot]) -> dict[Slot, list[range]]:
    shares: dict[Slot, list[range]] = {slot: [] for slot in slots}
    limits = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(owner)]
    for start, stop in pairwise(limits):
        shares[slots[owner[start]]].append(range(start, stop))
    return shares
