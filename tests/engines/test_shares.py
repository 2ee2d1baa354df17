"""Who adds which groups: equal shares, and as few groups as possible move when workers come or go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engines.shares import MOST_RANGES, Slot, share_out

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
