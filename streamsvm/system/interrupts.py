"""Ctrl-C and SIGTERM set a flag, which is checked when no work is half done.

By default, Python raises KeyboardInterrupt anywhere in the main thread, even while a compiled function takes its
arguments or returns its result; that function then ends in SystemError or a crash. So within `caught`, the handler
raises nothing during computations. Instead, `check` raises KeyboardInterrupt between two steps or two chunks. The
handler raises it at once only while the main thread waits for a file, or for other threads or processes (`waiting`).
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
LONGEST_WAIT = 1.0  # the handler waits at most this many seconds for its line, since standard error may block


@dataclass
class _Flag:
    """The state of signals while they are caught.

    asked: whether a signal has arrived. accepted: whether the work has stopped and is being saved; further signals are
    then ignored. waits: whether the main thread is waiting. on_signal: called when the first signal is handled.
    """

    asked: bool = False
    accepted: bool = False
    waits: bool = False
    on_signal: Callable[[], None] | None = None


_FLAG = _Flag()


def check() -> None:
    """Raise KeyboardInterrupt in the main thread if a signal has arrived. Call this when nothing is half done."""
    if _FLAG.asked and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def are_ending() -> bool:
    """Return whether a signal has arrived. Threads that work for the main thread should then end."""
    return _FLAG.asked or _FLAG.accepted


def accept() -> None:
    """Clear the flag and ignore further signals, while stopped work is being saved."""
    _FLAG.asked, _FLAG.accepted = False, True


@contextmanager
def waiting() -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt at once, while the main thread waits and runs no compiled code.

    If a lock is being acquired at that moment, Python's own clean-up fails with another error ("release unlocked
    lock"). In this case, KeyboardInterrupt is raised in place of that error.
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
    """Return whether an error was raised during the handling of KeyboardInterrupt."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _follows_interrupt(before))


@contextmanager
def caught() -> Iterator[None]:
    """Let Ctrl-C set the flag within the block; afterwards, restore Python's own handler.

    Handlers installed by a notebook or a framework stay in place, and threads other than the main thread are not
    affected. An interrupt after the last call of `check` is raised at the end of the block.
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

    on_signal: called in the main thread when the first signal is handled. Another thread prints that the command stops,
    and waits for the second Ctrl-C. The process thus ends even while the main thread runs compiled code. The handler
    waits until the line is printed, so that further output of the main thread follows it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    printed = threading.Event()

    def on_first_signal() -> None:
        printed.wait(LONGEST_WAIT)
        on_signal()

    with _watched(printed), _handled([signal.SIGINT, signal.SIGTERM], on_first_signal):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], on_signal: Callable[[], None] | None) -> Iterator[None]:
    """Handle these signals within the block; afterwards, restore their previous handlers."""
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
def _watched(printed: threading.Event) -> Iterator[None]:
    """Within the block, let a thread receive signals as they arrive, even while the main thread is busy."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch, args=(read_end, printed), name="streamsvm-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_end)
        thread.join()
        os.close(read_end)


def _watch(read_end: int, printed: threading.Event) -> None:
    """Read the numbers of signals as they arrive, until the pipe is closed."""
    asked = False
    while numbers := os.read(read_end, 64):
        for number in numbers:
            if number == signal.SIGINT and asked:
                os._exit(128 + signal.SIGINT)  # the exit status of shells for a process ended by Ctrl-C
            if number in (signal.SIGINT, signal.SIGTERM) and not asked:
                asked = True
                _print_stopping()
                printed.set()


def _print_stopping() -> None:
    """Print that the command stops, bypassing the buffer of standard error, which the main thread may be using."""
    if sys.__stderr__ is None:
        return
    with suppress(OSError):
        start = "\n" if sys.__stderr__.isatty() else ""  # the progress line is unfinished
        os.write(sys.__stderr__.fileno(), f"{start}{STOPPING}\n".encode())
