"""Which cases of a test with many parameters the suite runs, where it leaves the others to the slow tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, groupby

import pytest


def choose_covering(cases: Sequence[Mapping[str, object]], together: int) -> list[int]:
    """Return the positions of few cases, in which any values of so many parameters that meet in some case meet, too.

    The next one is always the first of those that bring most that is new (Cohen, Dalal, Fredman & Patton 1997).
    """
    values = [sorted((name, id(value)) for name, value in case.items()) for case in cases]
    meetings = [{met for n in range(1, together + 1) for met in combinations(each, n)} for each in values]
    left, chosen = set[tuple[tuple[str, int], ...]]().union(*meetings), []
    while left:
        chosen.append(max(range(len(cases)), key=lambda k: (len(meetings[k] & left), -k)))
        left -= meetings[chosen[-1]]
    return sorted(chosen)


def mark_cases(items: Sequence[pytest.Item]) -> None:
    """Mark the cases of tests with the mark `covering`: if some are chosen, as run once, and the others as slow."""
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        same = list(group)
        mark = same[0].get_closest_marker("covering")
        if mark is None:
            continue
        chosen = choose_covering([item.callspec.params for item in same], *mark.args)  # type: ignore[attr-defined]
        if len(chosen) < len(same):
            for k, item in enumerate(same):
                item.add_marker("once" if k in chosen else "slow")
