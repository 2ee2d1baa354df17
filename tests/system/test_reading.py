"""The progress of a read: shown now and then, with its share, rate and time left, and not at its end."""

from __future__ import annotations

import pytest

from streamsvm.system import reading
from streamsvm.system.reading import Reading, shown


def test_what_is_shown_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], list[str]()
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    with shown(lambda one: told.append(one.describe())):
        one = Reading(1_000_000)
        for seconds in (0.1, 0.6, 0.7, 2.0, 400.0):
            now[0] = seconds
            one.add(200_000)
    assert told == [
        "40% of a pass, 666,667 rows/s, about 1 s left",
        "80% of a pass, 400,000 rows/s, about 0 s left",
    ]
    assert one.describe() == ""
    now[0] = 0.0
    slow = Reading(1000)
    slow.add(10)
    now[0] = 60.0
    slow.add(10)
    assert slow.describe() == "2% of a pass, 0 rows/s, about 49 min left"
    assert len(told) == 2  # nobody watches the second read


def test_a_read_of_unknown_length_and_the_rest_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], list[str]()
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    with shown(lambda one: told.append(one.describe())):
        unknown, rest = Reading(None), Reading(1000, 500)
        now[0] = 2.0
        unknown.add(5000)
        rest.add(100)
        rest.add(0)
    assert told == ["5,000 rows, 2,500 rows/s", "60% of a pass, 50 rows/s, about 8 s left"]
