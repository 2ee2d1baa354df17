"""Who adds which groups: equal shares, and as few groups as possible move when workers come or go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engines.cluster.engine import MOST_RANGES, Slot, halve, share_out
from streamsvm.engines.cluster.tree import Subtree, join_subtrees
from streamsvm.engines.engine import Partial

SLOTS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 1)), min_size=1, max_size=8, unique=True)


def count(ranges: list[range]) -> int:
    return sum(map(len, ranges))


@given(st.integers(1, 60), st.lists(SLOTS, min_size=1, max_size=5))
def test_every_group_has_one_worker_whoever_comes_and_goes(n_groups: int, history: list[list[Slot]]) -> None:
    shares: dict[Slot, list[range]] = {}
    for slots in history:
        shares = share_out(n_groups, slots, shares)
        assert list(shares) == slots
        assert sorted(k for ranges in shares.values() for one in ranges for k in one) == list(range(n_groups))
        assert max(map(count, shares.values())) - min(map(count, shares.values())) <= 1
        assert max(map(len, shares.values())) <= MOST_RANGES
        assert share_out(n_groups, slots, shares) == shares, "nobody came or went"


def test_shares_are_contiguous_at_first() -> None:
    assert share_out(7, [("a", 0), ("b", 0)], {}) == {("a", 0): [range(3)], ("b", 0): [range(3, 7)]}


def test_groups_of_a_lost_worker_move_and_no_others() -> None:
    """A worker that takes its place gets what it had, wherever its address is in the order."""
    before = share_out(12, [("a", 0), ("b", 0), ("c", 0)], {})
    after = share_out(12, [("a", 0), ("c", 0)], before)
    assert after == {("a", 0): [range(6)], ("c", 0): [range(6, 12)]}
    assert share_out(12, [("Z", 0), ("a", 0), ("c", 0)], before) == {
        ("Z", 0): [range(4, 8)],
        ("a", 0): [range(4)],
        ("c", 0): [range(8, 12)],
    }


def test_a_new_worker_gets_what_is_over_an_equal_share() -> None:
    before = share_out(12, [("b", 0), ("c", 0)], {})
    after = share_out(12, [("a", 0), ("b", 0), ("c", 0)], before)
    assert after == {("a", 0): [range(4, 6), range(10, 12)], ("b", 0): [range(4)], ("c", 0): [range(6, 10)]}


@given(st.integers(1, 200), st.data())
def test_halves_have_one_node_of_the_tree_more_at_most(n_groups: int, data: st.DataObject) -> None:
    """Memory is planned for the nodes of a range: each of them is a total that waits."""
    start = data.draw(st.integers(0, n_groups - 1))
    groups = range(start, data.draw(st.integers(start + 1, n_groups)))
    halves = [part for half in halve([groups], n_groups) for part in half]
    assert [k for half in halves for k in half] == list(groups)
    assert len(halves) == min(2, len(groups))
    assert sum(count_nodes(half, n_groups) for half in halves) <= count_nodes(groups, n_groups) + 1
    assert halve([range(3), range(5, 6)], 8) == [[range(3)], [range(5, 6)]]


def count_nodes(groups: range, n_groups: int) -> int:
    leaves = [Subtree(k, k + 1, Partial(None)) for k in groups]
    return len(join_subtrees(leaves, n_groups, lambda left, _: left))
