"""The fixed tree of sums, and its division into whole subtrees, whose totals can be computed on any worker.

The leaves of the tree are the groups 0 to n - 1. A pair of neighbours on level k is

    [a, a + 2^k) and [a + 2^k, min(a + 2^(k+1), n))     with a a multiple of 2^(k+1)

and its sum is a node of level k + 1. The tree depends on n alone. Any range of groups consists of at most 2 log2(n)
nodes, so the totals of these nodes suffice for the range. Therefore the root has the same bits, no matter how the
groups are divided among tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streamsvm.engines.engine import Partial

MOST_STOLEN = 4  # per pass, the maximum number of times that a thread takes groups from another thread
STOLEN_SUBTREES = 2  # the maximum number of whole subtrees that a thread takes each time
FAN_IN = 16  # the maximum number of tasks whose subtrees one task joins
HANDED_BYTES = 256 << 20  # the maximum number of bytes of totals that the driver holds during a pass
HANDED_NODES = 8  # totals per level; with room for fewer, the driver holds none, because many could not be combined
JOIN_BYTES = 16 << 20  # the maximum number of bytes of totals that one task joins, if it joins more than two tasks

Combine = Callable[[Partial, Partial], Partial]


@dataclass(frozen=True)
class Subtree:
    """A node of the tree: the groups from `start` to `stop` - 1, and their sum."""

    start: int
    stop: int
    partial: Partial


def add_subtree(found: list[Subtree], one: Subtree, n_groups: int, combine: Combine) -> None:
    """Append a subtree that follows all subtrees in `found`. While the last two subtrees form a pair, combine them."""
    found.append(one)
    while len(found) > 1 and _are_pair(found[-2], found[-1], n_groups):
        right, left = found.pop(), found.pop()
        found.append(Subtree(left.start, right.stop, combine(left.partial, right.partial)))


def join_subtrees(parts: Iterable[Subtree], n_groups: int, combine: Combine) -> list[Subtree]:
    """Combine the parts into the fewest subtrees, and return these in order.

    A subtree contained in another one is dropped: after the loss of a worker, groups may have been added twice.
    """
    found: list[Subtree] = []
    for one in sorted(parts, key=lambda part: (part.start, -part.stop)):
        if not found or one.stop > found[-1].stop:
            add_subtree(found, one, n_groups, combine)
    return found


def _are_pair(left: Subtree, right: Subtree, n_groups: int) -> bool:
    size = left.stop - left.start
    whole = size & (size - 1) == 0 and left.start % (2 * size) == 0
    return whole and right.start == left.stop and right.stop == min(left.stop + size, n_groups)


def find_gaps(found: Sequence[Subtree], n_groups: int) -> list[range]:
    """Return the ranges of groups that no subtree covers. found: the subtrees, in order."""
    limits = [0, *(limit for one in found for limit in (one.start, one.stop)), n_groups]
    return [range(*pair) for pair in zip(limits[::2], limits[1::2], strict=True) if pair[0] < pair[1]]


def find_last_subtree(stop: int, most: int, n_groups: int) -> int:
    """Return the start of the largest whole subtree that ends at `stop` and has 1 to `most` groups."""
    start = stop - 1
    for level in range(1, n_groups.bit_length() + 1):
        before = (stop - 1) >> level << level
        if stop - before > most or (stop % (1 << level) and stop != n_groups):
            break
        start = before
    return start


def count_levels(n_groups: int) -> int:
    """Return the number of levels of the tree above its leaves."""
    return (n_groups - 1).bit_length()


def find_fan_in(n_groups: int, totals_bytes: int) -> int:
    """Return the number of tasks that one task joins: 2 to FAN_IN, as far as their totals fit into JOIN_BYTES."""
    part_bytes = 2 * max(1, count_levels(n_groups)) * max(1, totals_bytes)
    return max(2, min(FAN_IN, JOIN_BYTES // part_bytes))


def count_handed(n_groups: int, totals_bytes: int, room_bytes: int) -> int:
    """Return the number of totals that the driver may take over from tasks during a pass, given its free memory."""
    number = min(n_groups, min(HANDED_BYTES, room_bytes) // max(1, totals_bytes))
    return number if number >= min(n_groups, HANDED_NODES * count_levels(n_groups)) else 0


def count_waiting(n_groups: int, threads: int, hands_over: bool) -> int:
    """Return the largest number of totals that can wait on a worker, in addition to totals being computed.

    Each thread may hold the totals of its own groups, of the groups of a lost worker, and of stolen groups. The first
    two need at most two totals per level each. There are never more totals than groups. If totals are handed over, the
    totals of a finished task and of its successor wait at the same time. A task that joins two parts has fetched totals
    of other groups, and holds one sum per level.
    """
    levels = count_levels(n_groups)
    nodes = (8 if hands_over else 4) * levels
    return min(n_groups, threads * (nodes + MOST_STOLEN * STOLEN_SUBTREES)) + levels
