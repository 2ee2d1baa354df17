"""Ctrl-C and SIGTERM set a flag, and work looks at the flag at points where nothing is half done.

By default Python raises KeyboardInterrupt wherever the main thread happens to be, even while a compiled function takes
its arguments or returns its result; then that function ends in SystemError or in a crash. So within `caught` the
handler raises nothing while the main thread computes. Instead `check` raises, between two steps or two chunks. The
handler raises at once only while the main thread waits for a file, or for other threads and processes (`waiting`).
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
LONGEST_WAIT = 1.0  # seconds that the handler waits for this line, since nobody may read standard error


@dataclass
class _Flag:
    """The state of signals while they are caught.

    asked: a signal has come. accepted: the work has stopped and is being saved, so that further signals are ignored.
    waits: the main thread is waiting. on_signal: a function to call when the first signal is handled.
    """

    asked: bool = False
    accepted: bool = False
    waits: bool = False
    on_signal: Callable[[], None] | None = None


_FLAG = _Flag()


def check() -> None:
    """Raise KeyboardInterrupt in the main thread if a signal has come. Call this when nothing is half done."""
    if _FLAG.asked and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def are_ending() -> bool:
    """Tell whether a signal has come that ends what other threads do for the main thread."""
    return _FLAG.asked or _FLAG.accepted


def accept() -> None:
    """Clear the flag and ignore further signals: the work has stopped, and is now saved undisturbed."""
    _FLAG.asked, _FLAG.accepted = False, True


@contextmanager
def waiting() -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt at once, while the main thread waits and runs no compiled code.

    Where it meets a lock that is just being acquired, Python's own clean-up fails with another error ("release unlocked
    lock"). KeyboardInterrupt is raised in place of that, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        _FLAG.waits = True
        check()
        yield
    except Exception as error:
        if _follows_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        _FLAG.waits = False


def _follows_interrupt(error: BaseException) -> bool:
    """Tell whether an error was raised while KeyboardInterrupt was on its way."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _follows_interrupt(before))


@contextmanager
def caught() -> Iterator[None]:
    """Let Ctrl-C set the flag within the block, and restore Python's own handler afterwards.

    The handlers of a notebook or a framework stay as they are, and nothing changes in threads other than the main one.
    An interrupt that comes after the last call of `check` is raised at the end.
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
    """Let Ctrl-C and SIGTERM set the flag while a command runs; a second Ctrl-C ends the process at once.

    on_signal is called in the main thread when the first signal is handled. A thread prints that the command stops, and
    waits for the second Ctrl-C, so that this ends the process even while the main thread runs compiled code. The
    handler waits until that line is printed, so that it precedes what the main thread prints next.
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
    """Handle these signals within the block, and restore their handlers afterwards."""
    _FLAG.asked, _FLAG.accepted, _FLAG.on_signal = False, False, on_signal
    before = {number: signal.signal(number, _ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _FLAG.asked, _FLAG.accepted, _FLAG.on_signal = False, False, None


def _ask(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal: set the flag, and raise KeyboardInterrupt if the main thread is waiting."""
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
    """Run a thread that learns of signals as they arrive, whatever the main thread does."""
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
                os._exit(128 + signal.SIGINT)  # the status that shells give a process that Ctrl-C ended
            if number in (signal.SIGINT, signal.SIGTERM) and not asked:
                asked = True
                _tell()
                told.set()


def _tell() -> None:
    """Print that the command stops, without the buffer of standard error, to which the main thread may be writing."""
    if sys.__stderr__ is None:
        return
    with suppress(OSError):
        start = "\n" if sys.__stderr__.isatty() else ""  # the line of progress has no end yet
        os.write(sys.__stderr__.fileno(), f"{start}{STOPPING}\n".encode())
