"""Whole subtrees of the fixed tree of sums: the same root, whoever adds which groups."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engines.cluster.tree import Subtree, add_subtree, find_gaps, find_last_subtree, join_subtrees
from streamsvm.engines.engine import Partial
from tests.engines.scans import neighbours_combined


def combine(left: Partial, right: Partial) -> Partial:
    """Write the sum down: it is neither commutative nor associative."""
    return Partial([left.totals, right.totals])


def add_range(start: int, stop: int, n_groups: int) -> list[Subtree]:
    """The subtrees of a range, as a worker finds them."""
    found = list[Subtree]()
    for k in range(start, stop):
        add_subtree(found, Subtree(k, k + 1, Partial(k)), n_groups, combine)
    return found


def list_nodes(n_groups: int) -> set[tuple[int, int]]:
    """All nodes of the tree, level by level, by their groups."""
    level = [(k, k + 1) for k in range(n_groups)]
    nodes = set(level)
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [(pair[0][0], pair[-1][1]) for pair in pairs]
        nodes |= set(level)
    return nodes


@st.composite
def cut_groups(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A number of groups, and ranges that cover them all, some perhaps twice, in any order."""
    n_groups = draw(st.integers(1, 70))
    limits = sorted({0, n_groups, *draw(st.lists(st.integers(0, n_groups), max_size=6))})
    ranges = list(pairwise(limits))
    places = st.tuples(st.integers(0, n_groups), st.integers(0, n_groups)).filter(lambda pair: pair[0] < pair[1])
    return n_groups, draw(st.permutations([*ranges, *draw(st.lists(places, max_size=3))]))


@given(cut_groups(), st.data())
def test_the_root_does_not_depend_on_the_ranges(cut: tuple[int, list[tuple[int, int]]], data: Any) -> None:
    """Nor on groups that were added twice, nor on which parts are joined first."""
    n_groups, ranges = cut
    parts = [add_range(*one, n_groups) for one in ranges]
    while len(parts) > 1:
        first = data.draw(st.integers(0, len(parts) - 2))
        joined = join_subtrees([one for part in parts[first : first + 2] for one in part], n_groups, combine)
        parts[first : first + 2] = [joined]
    (root,) = join_subtrees(parts[0], n_groups, combine)
    assert (root.start, root.stop) == (0, n_groups)
    assert root.partial.totals == neighbours_combined(range(n_groups))


@given(st.integers(1, 70), st.data())
def test_a_range_is_the_fewest_nodes_of_the_tree(n_groups: int, data: Any) -> None:
    start = data.draw(st.integers(0, n_groups - 1))
    stop = data.draw(st.integers(start + 1, n_groups))
    nodes, found = list_nodes(n_groups), add_range(start, stop, n_groups)
    inside = [(a, b) for a, b in nodes if start <= a and b <= stop]
    largest = {one for one in inside if not any(a <= one[0] and one[1] <= b for a, b in inside if (a, b) != one)}
    assert [(one.start, one.stop) for one in found] == sorted(largest)


@given(st.integers(1, 70), st.sets(st.integers(0, 69)))
def test_gaps_are_the_groups_in_no_subtree(n_groups: int, missing: set[int]) -> None:
    there = [Subtree(k, k + 1, Partial(k)) for k in range(n_groups) if k not in missing]
    gaps = find_gaps(join_subtrees(there, n_groups, combine), n_groups)
    assert [k for gap in gaps for k in gap] == sorted(missing & set(range(n_groups)))
    assert all(before.stop < after.start for before, after in pairwise(gaps))


@given(st.integers(1, 70), st.data())
def test_the_last_subtree_is_the_largest_that_is_not_too_large(n_groups: int, data: Any) -> None:
    stop, most = data.draw(st.integers(1, n_groups)), data.draw(st.integers(1, n_groups))
    fitting = [a for a, b in list_nodes(n_groups) if b == stop and b - a <= most]
    assert find_last_subtree(stop, most, n_groups) == min(fitting)
