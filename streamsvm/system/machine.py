"""The cores and memory of this machine, the memory of this process, and sizes in bytes as text."""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path

import psutil

from streamsvm.system.errors import InputError

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # constants of glibc's malloc.h
# Arrays of at least this size are returned to the system when they are freed. Temporary arrays of tiles are smaller and
# stay with malloc. With a threshold of 1 MiB, block ascent took 1.5 times the CPU seconds; with 4 MiB, it took no more
# than with the default.
GIVEN_BACK_BYTES = 4 << 20


def resident_bytes() -> int:
    """Return the current resident memory of this process."""
    return int(_find_process(os.getpid()).memory_info().rss)


@lru_cache(maxsize=1)
def _find_process(pid: int) -> psutil.Process:
    """Return the process with this number. Finding it takes longer than reading its memory."""
    return psutil.Process(pid)


def peak_bytes() -> int:
    """Return the largest resident memory of this process since it started or since `reset_peak`."""
    peak = _read_status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def file_page_bytes() -> int | None:
    """Return the resident bytes of mapped files, such as libraries, which the system may evict; None if unknown."""
    return _read_status("RssFile")


def reset_peak() -> None:
    """Reset the peak on Linux. On other systems, the peak is measured since the start of the process."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


@cache
def give_back_freed_arrays() -> None:
    """Make malloc return the memory of large arrays as soon as they are freed, in this process from now on.

    By default, glibc expects further arrays of the size of the largest freed array, up to 32 MiB, and keeps up to twice
    that size per thread. No memory plan can account for this unused memory. Other C libraries have no such setting, or
    keep less memory.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, GIVEN_BACK_BYTES)
            mallopt(M_TRIM_THRESHOLD, GIVEN_BACK_BYTES)


def default_budget_bytes() -> int:
    """Return half of the memory of the machine, or of this process's control group if that has less."""
    limits = [_machine_bytes()]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):
            continue  # there is no such control group, or it has no limit ("max")
    return min(limits) // 2


@cache
def _machine_bytes() -> int:
    return int(psutil.virtual_memory().total)


_MOST_THREADS: ContextVar[int | None] = ContextVar("most_threads", default=None)


@contextmanager
def most_threads(limit: int) -> Iterator[None]:
    """Let `default_threads` return at most this number within the block."""
    token = _MOST_THREADS.set(limit)
    try:
        yield
    finally:
        _MOST_THREADS.reset(token)


def default_threads() -> int:
    """Return the number of cores that this process may use, or a lower limit that is set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS.get() or cores)


def parse_bytes(text: str | int, name: str = "") -> int:
    """Return the number of bytes given as "2GB", "512MiB", "1.5G" or a number. Raises InputError for anything else.

    name: the option whose value this is, for the message.
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?I?)B?\s*", str(text).upper())
    size = float(match[1]) * UNITS[match[2]] if match is not None and match[2] in UNITS else math.inf
    if not math.isfinite(size):
        shown = f"{name} {str(text)[:40]!r}".lstrip()
        raise InputError(f"{shown} is not a size in bytes: write 2GB, 512MiB or a number of bytes")
    return int(size)


def format_bytes(n: float, up: bool = False) -> str:
    """Return a size as text. up: round up and omit the space, so that the text can be passed as an option."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            shown = n / size
            return f"{-(-n // (size / 100)) / 100:.2f} {unit}".replace(" ", "") if up else f"{shown:.1f} {unit}"
    return f"{int(n)} bytes"


def _read_status(name: str) -> int | None:
    """Return a size in /proc/self/status, in bytes; None if there is no such file or line."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None
