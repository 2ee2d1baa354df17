"""Whole subtrees of the fixed tree of sums, in which their totals can be added up wherever the groups are read.

The leaves of the tree are the groups 0 to n - 1. A pair of neighbours on level k is

    [a, a + 2^k) and [a + 2^k, min(a + 2^(k+1), n))     with a a multiple of 2^(k+1)

and its sum is a node of level k + 1. The tree depends on n alone. A range of groups consists of at most 2 log2(n) nodes
that are as large as they can be: so many totals stand for the range, whoever has added it up, and the nodes of all
ranges give the root with the same bits for any ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streamsvm.engines.group import Partial

MOST_STOLEN = 4  # how often in a pass a thread may take groups that were given to another one
STOLEN_SUBTREES = 2  # how many whole subtrees it takes at a time, at most
FAN_IN = 16  # how many tasks' subtrees one task joins, at most
HANDED_BYTES = 256 << 20  # of totals that the driver holds while a pass goes on, at most
HANDED_NODES = 8  # a level: with room for fewer totals the driver holds none, since many have no neighbour there yet
JOIN_BYTES = 16 << 20  # of totals that one task joins, if they are those of more than two tasks

Combine = Callable[[Partial, Partial], Partial]


@dataclass(frozen=True)
class Subtree:
    """A node of the tree: the groups from start to stop - 1, and what they add up to."""

    start: int
    stop: int
    partial: Partial


def add_subtree(found: list[Subtree], one: Subtree, n_groups: int, combine: Combine) -> None:
    """Append a subtree that starts after those in `found`, and combine neighbours as long as they are a pair."""
    found.append(one)
    while len(found) > 1 and _are_pair(found[-2], found[-1], n_groups):
        right, left = found.pop(), found.pop()
        found.append(Subtree(left.start, right.stop, combine(left.partial, right.partial)))


def join_subtrees(parts: Iterable[Subtree], n_groups: int, combine: Combine) -> list[Subtree]:
    """Return the fewest subtrees that the parts add up to, in order.

    A subtree within another one is left out: where a worker was lost, groups may have been added twice.
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
    """Return the ranges of groups that are in none of the subtrees, which are in order."""
    limits = [0, *(limit for one in found for limit in (one.start, one.stop)), n_groups]
    return [range(*pair) for pair in zip(limits[::2], limits[1::2], strict=True) if pair[0] < pair[1]]


def find_last_subtree(stop: int, most: int, n_groups: int) -> int:
    """Return where the largest whole subtree begins that ends before `stop` and has at most `most` groups, or one."""
    start = stop - 1
    for level in range(1, n_groups.bit_length() + 1):
        before = (stop - 1) >> level << level
        if stop - before > most or (stop % (1 << level) and stop != n_groups):
            break
        start = before
    return start


def count_levels(n_groups: int) -> int:
    """Return the levels of the tree above its leaves."""
    return (n_groups - 1).bit_length()


def find_fan_in(n_groups: int, totals_bytes: int) -> int:
    """Return how many tasks' totals one task joins: at most FAN_IN, two at least, and otherwise JOIN_BYTES of them."""
    part_bytes = 2 * max(1, count_levels(n_groups)) * max(1, totals_bytes)
    return max(2, min(FAN_IN, JOIN_BYTES // part_bytes))


def count_handed(n_groups: int, totals_bytes: int, room_bytes: int) -> int:
    """Return how many totals the driver may hold that tasks have handed over, if it has room for so many bytes."""
    number = min(n_groups, min(HANDED_BYTES, room_bytes) // max(1, totals_bytes))
    return number if number >= min(n_groups, HANDED_NODES * count_levels(n_groups)) else 0


def count_waiting(n_groups: int, threads: int, hands_over: bool) -> int:
    """Return how many totals may wait on a worker, beside those that its threads are computing.

    Each thread may hold the totals of its own groups and of the groups of a lost worker, two nodes a level at most for
    either, and of the groups that it took from others; but no more than there are groups. Where totals are handed over,
    the nodes of a task that has ended and those of the task that goes on wait at the same time. A task that joins two
    parts has fetched totals of other groups, and holds one sum a level.
    """
    levels = count_levels(n_groups)
    nodes = (8 if hands_over else 4) * levels
    return min(n_groups, threads * (nodes + MOST_STOLEN * STOLEN_SUBTREES)) + levels
