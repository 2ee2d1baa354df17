"""Where the threads of another process are, to the instruction: within compiled code or not (Linux, x86-64).

A thread is within compiled code if its instruction pointer is in executable memory that belongs to no file: that is
where numba's compiler puts what it makes, the functions and the wrappers that convert arguments and results.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
SEIZE, INTERRUPT, GETREGS, DETACH, WALL = 0x4206, 0x4207, 12, 17, 0x40000000
REGISTERS, INSTRUCTION_POINTER = 27, 16
BETWEEN_LOOKS = 0.001  # seconds in which the process goes on: looks in a row find it in one and the same call of BLAS


@contextmanager
def stopped(pid: int) -> Iterator[dict[int, bool]]:
    """Stop the threads of a process; give, by thread, whether it is within compiled code. Empty where not supported."""
    threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()] if SUPPORTED else []
    seized = [thread for thread in threads if _ptrace(SEIZE, thread) == 0 and _ptrace(INTERRUPT, thread) == 0]
    try:
        _wait_for_stops(pid, seized)
        regions = _read_compiled(pid)
        yield {thread: any(first <= _read_pointer(thread) < end for first, end in regions) for thread in seized}
    finally:
        for thread in seized:
            if _ptrace(DETACH, thread) != 0 and thread != pid:  # it has ended
                _take_status(thread)


def _wait_for_stops(pid: int, threads: list[int]) -> None:
    """Wait until each thread has stopped or ended.

    A process that ends meanwhile is not reported before the status of each of its other threads is taken. The status of
    the process itself is left to its parent.
    """
    running = set(threads)
    while running:
        for thread in threads:
            if thread != pid:
                told = _take_status(thread, os.WNOHANG)
            else:
                told = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG | WALL) is not None
            if told:
                running.discard(thread)


def _take_status(thread: int, options: int = 0) -> bool:
    """Return whether a thread has stopped or ended, in which case its status is taken."""
    try:
        return os.waitpid(thread, WALL | options)[0] != 0
    except ChildProcessError:
        return True  # its end was told before


def interrupt(pid: int, aim: int) -> tuple[bool, bool]:
    """Send SIGINT while the process is stopped; return whether its main thread, and any, was within compiled code.

    aim: looks at most; half of them are for the main thread, half for any. At the last look the signal is sent anyway.
    """
    for look in range(1, aim + 1):
        with stopped(pid) as inside:
            main, anywhere = inside.get(pid, False), any(inside.values())
            if main or (anywhere and 2 * look > aim) or look == aim:
                os.kill(pid, signal.SIGINT)
                return main, anywhere
        time.sleep(BETWEEN_LOOKS)
    raise AssertionError("aim is 1 at least")


def _ptrace(request: int, thread: int, data: int = 0) -> int:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace.restype = ctypes.c_long
    return int(ptrace(request, thread, None, data))


def _read_pointer(thread: int) -> int:
    registers = (ctypes.c_ulonglong * REGISTERS)()
    if _ptrace(GETREGS, thread, ctypes.addressof(registers)) != 0:
        return 0
    return int(registers[INSTRUCTION_POINTER])


def _read_compiled(pid: int) -> list[tuple[int, int]]:
    """Return the regions of executable memory without a file."""
    regions = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, access, *rest = line.split()
        if "x" in access and len(rest) == 3:  # offset, device, inode, and no name
            first, end = (int(part, 16) for part in span.split("-"))
            regions.append((first, end))
    return regions
