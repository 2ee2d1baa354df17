"""Long calls end in time: their results, their errors, and how they are given up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Event

import pytest

from streamsvm.system import deadline
from streamsvm.system.errors import TimeLimitError


def late_after(n_checks: int) -> Callable[[], bool]:
    """A time limit that passes after this many checks."""
    checks = count()
    return lambda: next(checks) >= n_checks


def test_a_long_call_that_ends_in_time() -> None:
    assert deadline.finish(divmod, 7, 3) == (2, 1)
    with deadline.held(late_after(1)), pytest.raises(ZeroDivisionError):
        deadline.finish(divmod, 7, 0)


def test_a_long_call_is_given_up_and_ends_at_its_next_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go on for a while, but does not begin if the time is over before."""
    monkeypatch.setattr(deadline, "LOOK_SECONDS", 0.001)
    given_up, ended, begun = Event(), Event(), list[int]()

    def work() -> None:
        begun.append(1)
        deadline.check()
        given_up.wait(60)
        try:
            deadline.check()
        except TimeLimitError:
            ended.set()

    with deadline.held(late_after(3)), pytest.raises(TimeLimitError, match="max_seconds has passed"):
        deadline.finish(work)
    given_up.set()
    assert ended.wait(60)
    with deadline.held(lambda: True), pytest.raises(TimeLimitError):
        deadline.finish(work)
    assert begun == [1]
    deadline.check()  # elsewhere it never raises
