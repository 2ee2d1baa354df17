"""The cores and memory of this machine, what memory this process holds and gives back, and sizes in bytes as text."""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
import sys
from functools import cache
from pathlib import Path

import psutil

from streamsvm.errors import InputError

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
# Arrays from this size on are given back to the system when they are freed. Temporary arrays of tiles are smaller, and
# so stay with malloc: with 1 MiB the ascent on blocks took 1.5 times the CPU seconds, with 4 MiB no more than before.
GIVEN_BACK_BYTES = 4 << 20


def resident_bytes() -> int:
    """Return the resident memory of this process now."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """Return the largest resident memory of this process since it began or since `reset_peak`."""
    peak = _read_status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def file_page_bytes() -> int | None:
    """Return the resident bytes of mapped files, such as libraries, which the system may drop; None if unknown."""
    return _read_status("RssFile")


def reset_peak() -> None:
    """Restart the measurement of the peak, on Linux. Elsewhere the peak is that since the process began."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


@cache
def give_back_freed_arrays() -> None:
    """Let malloc give the memory of large arrays back as soon as they are freed, in this process from now on.

    Left alone, glibc takes the largest array that was freed, up to 32 MiB, for the size of arrays to come, and then
    keeps up to twice that size for each thread: memory that nobody holds and no plan can know. Other C libraries have
    no such function, or keep less.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, GIVEN_BACK_BYTES)
            mallopt(M_TRIM_THRESHOLD, GIVEN_BACK_BYTES)


def default_budget_bytes() -> int:
    """Return half of the memory that this process may use, which a control group may limit."""
    limits = [psutil.virtual_memory().total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):
            continue  # no such control group, or no limit ("max")
    return int(min(limits)) // 2


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_bytes(text: str | int) -> int:
    """Return the bytes of "2GB", "512MiB", "1.5G" or a number. Raises InputError for all else."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?I?)B?\s*", str(text).upper())
    size = float(match[1]) * UNITS[match[2]] if match is not None and match[2] in UNITS else math.inf
    if not math.isfinite(size):
        raise InputError(f"{str(text)[:40]!r} is no size in bytes: write 2GB, 512MiB or a number of bytes")
    return int(size)


def format_bytes(n: float, up: bool = False) -> str:
    """Return a size as text for people. `up` rounds up, so that the figure suffices as an option."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            shown = n / size
            return f"{-(-n // (size / 100)) / 100:.2f} {unit}".replace(" ", "") if up else f"{shown:.1f} {unit}"
    return f"{int(n)} bytes"


def _read_status(name: str) -> int | None:
    """Return a size in /proc/self/status, in bytes; None where there is no such file or line."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None
