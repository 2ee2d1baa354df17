"""Progress: one line that is rewritten on a terminal, plain lines now and then elsewhere, never on standard output."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsvm.cli.progress import Display, Line, RowCounter
from streamsvm.engines.open import MemoryPlan
from streamsvm.runs.results import Event
from streamsvm.system.reading import Reading
from tests.conftest import make_problem

COLUMNS = 50
START = "\r\x1b[K"  # of a line that is written over


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set what the time is."""
    now = [0.0]
    monkeypatch.setattr("streamsvm.cli.progress.time.monotonic", lambda: now[0])

    def set_time(seconds: float) -> None:
        now[0] = seconds

    return set_time


def make_event(passes: int, gap: float | None, seconds: float) -> Event:
    line = {"passes": passes, "relative_gap": gap, "seconds": seconds, "memory_bytes": 3 * 10**8}
    return Event(line, MemoryPlan(2 * 10**9, {}, 0))


def show_all(events: list[Event], tol: float = 1e-3) -> list[str]:
    """Texts of those events, each of them shown."""
    texts: list[str] = []
    line: Any = Line(io.StringIO())
    line.show = texts.append
    display = Display(1000, 4 * 10**6, tol, line)
    for event in events:
        display.show(event)
    return texts


def test_plain_lines_come_now_and_then_and_the_last_one_always(clock: Callable[[float], None]) -> None:
    stream = io.StringIO()
    with Line(stream) as line:
        for second in range(12):
            clock(second)
            line.show(f"at {second}")
    assert stream.getvalue().splitlines() == ["at 0", "at 5", "at 10", "at 11"]
    assert "\x1b" not in stream.getvalue()


def test_a_line_that_was_shown_is_not_shown_again(clock: Callable[[float], None]) -> None:
    stream = io.StringIO()
    with Line(stream) as line:
        pass
    assert stream.getvalue() == ""
    with line:
        line.show("once")
    assert stream.getvalue() == "once\n"


def test_what_a_step_shows() -> None:
    (text,) = show_all([make_event(passes=10, gap=0.25, seconds=4.0)])
    for part in ("pass 10 ", "gap 2.50e-01 (to 0.001)", "2,500 rows/s", "10 MB/s", "memory 300.0 MB of 2.0 GB"):
        assert part in text


def test_a_step_without_a_lower_bound() -> None:
    (text,) = show_all([make_event(passes=10, gap=None, seconds=4.0)])
    assert text.startswith("pass 10  no bound yet  2,500 rows/s")


@pytest.mark.parametrize(
    ("gaps", "left"),
    [
        ([1e-1, 1e-2], "about 10 s left"),  # a factor of ten took 10 s, one more is needed
        ([1e-1, 1e-1], "time left unknown"),
        ([1e-1, 5e-4], "done"),
        ([1e-1, 0.0], "done"),
        ([1e-1, 9e-2], "about 7 min left"),  # 10 s * ln(90) / ln(10/9) = 427 s
    ],
)
def test_time_left_goes_by_the_fall_of_the_gap(gaps: list[float], left: str) -> None:
    texts = show_all([make_event(k + 1, gap, 10.0 * (k + 1)) for k, gap in enumerate(gaps)])
    assert f"  {left}  " in texts[-1]


def test_time_left_is_unknown_while_problems_wait() -> None:
    """When the last of them have begun it goes by the steps from then on."""
    events = [make_event(k + 1, gap, 10.0 * (k + 1)) for k, gap in enumerate([0.9, 0.899, 1e-1, 1e-2])]
    for event, waiting in zip(events, (5, 5, 0, 0), strict=True):
        event.line["waiting_problems"] = waiting
    texts = show_all(events)
    assert ["time left unknown" in text for text in texts] == [True, True, True, False]
    assert "about 10 s left" in texts[-1]


def test_progress_within_a_pass_comes_before_the_last_step() -> None:
    """It is shown at intervals and never kept for the end."""
    texts: list[str] = []
    line: Any = Line(io.StringIO())
    line.show_passing = texts.append
    display = Display(1000, 4 * 10**6, 1e-3, line)
    assert display.describe_reading() == ""
    reading = Reading(1000)
    reading.add(250)
    display.show_reading(reading)
    display.show(make_event(passes=10, gap=0.25, seconds=4.0))
    display.show_reading(reading)
    assert texts[0].startswith("25% of a pass, ")
    assert texts[1].endswith(" left; pass 10 ended: gap 2.50e-01 (to 0.001)  time left unknown")
    assert display.describe_reading().startswith("25% of a pass, ")


def test_passing_text_is_dropped_between_plain_lines(clock: Callable[[float], None]) -> None:
    stream = io.StringIO()
    with Line(stream) as line:
        for second in range(8):
            clock(second)
            line.show_passing(f"{second}")
        line.show("step")
    assert stream.getvalue().splitlines() == ["0", "5", "step"]


def test_rows_read(clock: Callable[[float], None]) -> None:
    stream = io.StringIO()
    counter = RowCounter(Line(stream))
    clock(2.0)
    counter.show(3000)
    assert stream.getvalue() == "3,000 rows read, 1,500 rows/s\n"


EACH_TEXT = """
import sys
from streamsvm.cli import progress
from streamsvm.cli.main import main

progress.LIVE_SECONDS = 0.0
sys.exit(main())
"""


def run_on_terminal(*arguments: object) -> tuple[int, str, str]:
    """Run a command whose standard error is a terminal of COLUMNS -> exit status, standard output, what it shows.

    Each text of its line is shown, however soon it comes after the one before.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    command = [sys.executable, "-c", EACH_TEXT, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        os.close(ours)
        assert process.stdout is not None
        return process.wait(), process.stdout.read().decode(), shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


def test_one_line_is_rewritten_on_a_terminal(tmp_path: Path) -> None:
    data = make_problem(3, n=2000, d=30).store(tmp_path / "rows.zarr")
    code, out, shown = run_on_terminal(
        "train",
        data.path,
        "--out",
        tmp_path / "run",
        "--C",
        "100",
        "--option",
        "acceleration=none",
        "--max-passes",
        "5",
        "--json",
    )
    assert (code, out.count("\n")) == (3, 1)
    assert shown.endswith("\r\n")  # the terminal makes two of a newline
    texts = shown.removesuffix("\r\n").split(START)
    assert texts[0] == ""
    assert len(texts) == 6
    for text in texts[1:]:
        assert re.match(r"pass \d+  gap \d\.\d\de[+-]\d\d \(to 0\.001\)  ", text)
        assert len(text) < COLUMNS  # or it would wrap, and could not be rewritten
        assert "\n" not in text


def test_an_error_stands_alone_on_a_terminal(tmp_path: Path) -> None:
    data = make_problem(3).store(tmp_path / "rows.zarr")
    code, out, shown = run_on_terminal("train", data.path, "--out", tmp_path / "run", "--memory", "1KB")
    assert (code, out) == (2, "")
    assert shown.startswith("streamsvm train: ")
    assert shown.count("\n") == 1
