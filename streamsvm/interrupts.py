"""Ctrl-C and SIGTERM set a flag. Work looks at the flag where nothing is half done.

By default Python raises KeyboardInterrupt wherever the main thread happens to be, also while a compiled function takes
its arguments or hands over its result. That function then ends in SystemError or in a crash. So within `caught` the
handler raises nothing while the main thread computes: `check` raises, between two steps or two chunks. Only while the
main thread merely waits, for a file or for other threads and processes, does the handler raise at once (`waiting`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

STOPPING = "stopping, and keeping what is complete; press Ctrl-C again to end at once"
LONGEST_WAIT = 1.0  # seconds that the handler waits for this line: standard error may be a pipe that nobody reads


@dataclass
class _Flag:
    """What is known of signals while they are caught.

    asked: a signal has come; accepted: the work has stopped and is being saved, more signals change nothing; waits: the
    main thread merely waits; on_signal: called when the first signal is handled.
    """

    asked: bool = False
    accepted: bool = False
    waits: bool = False
    on_signal: Callable[[], None] | None = None


_FLAG = _Flag()


def check() -> None:
    """Raise KeyboardInterrupt in the main thread if a signal has come. Call this where nothing is half done."""
    if _FLAG.asked and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def accept() -> None:
    """Take the flag down for good: the work has stopped, and is saved undisturbed."""
    _FLAG.asked, _FLAG.accepted = False, True


@contextmanager
def waiting() -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt at once: in here the main thread waits, and runs nothing compiled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        _FLAG.waits = True
        check()
        yield
    finally:
        _FLAG.waits = False


@contextmanager
def caught() -> Iterator[None]:
    """Let Ctrl-C set the flag; put Python's own handler back afterwards.

    Handlers of others, a notebook's or a framework's, stay as they are, and so do all handlers in other threads than
    the main one. An interrupt that comes after the last look at the flag is raised at the end.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    with _handled([signal.SIGINT], None):
        yield
        check()


@contextmanager
def caught_by_command(on_signal: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM set the flag while a command runs; another Ctrl-C ends the process at once.

    on_signal is called in the main thread when the first signal is handled. A thread prints that the command stops,
    and waits for the second Ctrl-C, which so ends the process while the main thread is within compiled code, too. The
    handler waits for the line of that thread, so that the line stands before whatever the main thread prints next.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = threading.Event()

    def on_first_signal() -> None:
        told.wait(LONGEST_WAIT)
        on_signal()

    with _watched(told), _handled([signal.SIGINT, signal.SIGTERM], on_first_signal):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], on_signal: Callable[[], None] | None) -> Iterator[None]:
    """Install the handler of these signals, and put the handlers back that were there."""
    _FLAG.asked, _FLAG.accepted, _FLAG.on_signal = False, False, on_signal
    before = {number: signal.signal(number, _ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _FLAG.asked, _FLAG.accepted, _FLAG.on_signal = False, False, None


def _ask(_number: int, _frame: FrameType | None) -> None:
    """Set the flag; raise where the main thread merely waits."""
    if _FLAG.accepted:
        return
    first, _FLAG.asked = not _FLAG.asked, True
    if first and _FLAG.on_signal is not None:
        _FLAG.on_signal()
    if _FLAG.waits:
        _FLAG.waits = False
        raise KeyboardInterrupt


@contextmanager
def _watched(told: threading.Event) -> Iterator[None]:
    """Start the thread that is told of signals as they arrive, whatever the main thread does."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch, args=(read_end, told), name="streamsvm-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_end)
        thread.join()
        os.close(read_end)


def _watch(read_end: int, told: threading.Event) -> None:
    """Read the numbers of signals as they arrive, until the pipe is closed."""
    asked = False
    while numbers := os.read(read_end, 64):
        for number in numbers:
            if number == signal.SIGINT and asked:
                os._exit(128 + signal.SIGINT)  # as shells name a process that Ctrl-C has ended
            if number in (signal.SIGINT, signal.SIGTERM) and not asked:
                asked = True
                _tell()
                told.set()


def _tell() -> None:
    """Say that the command stops; past the buffer of standard error, which the main thread may be writing to."""
    if sys.__stderr__ is None:
        return
    with suppress(OSError):
        start = "\n" if sys.__stderr__.isatty() else ""  # the line of progress is not finished
        os.write(sys.__stderr__.fileno(), f"{start}{STOPPING}\n".encode())
