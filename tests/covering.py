"""The first tier: which tests, and which cases of a test with parameters, run without `--all`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest


def choose_covering(cases: Sequence[Mapping[str, object]]) -> list[int]:
    """Return the positions of a few cases in which each value of each parameter occurs.

    The next case is always the first of those with the most new values (Cohen, Dalal, Fredman & Patton 1997).
    """
    values = [
        {(name, value if isinstance(value, str) else id(value)) for name, value in case.items()} for case in cases
    ]
    left, chosen = set[tuple[str, str | int]]().union(*values), list[int]()
    for gain in range(max(map(len, values), default=0), 0, -1):
        for k, own in enumerate(values):
            if len(own & left) == gain:
                chosen.append(k)
                left -= own
    return sorted(chosen)


def choose_first_tier(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items that are not marked `slow`, reduced to cases in which each value of each parameter occurs.

    All values of a parameter `seed` count as one. The mark `same` replaces values before they are compared:
    `same(check=get_name)` counts checks of one name as one.
    """
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("slow") is None:
            tests[item.nodeid.partition("[")[0]].append(item)
    chosen = list[pytest.Item]()
    for same in tests.values():
        cases = [get_parameters(item) for item in same]
        chosen += [same[k] for k in choose_covering(cases)] if cases[0] else same
    return chosen


def get_parameters(item: pytest.Item) -> dict[str, object]:
    """Return the parameters of a case as they are compared; empty for a test without parameters."""
    parameters: dict[str, object] = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    parameters |= {"seed": None} if "seed" in parameters else {}
    mark = item.get_closest_marker("same")
    for name, replace in mark.kwargs.items() if mark else ():
        parameters[name] = replace(parameters[name])
    return parameters
