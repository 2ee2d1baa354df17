"""Memory limits that are imposed on processes from outside.

If the user may create control groups, the limit is a control group for all processes of a run (cgroup v2, memory.max
without swap). Otherwise, it is RLIMIT_DATA in every process. RLIMIT_DATA does not count the file pages of libraries
(about 100 MB), but it counts reserved memory that is never touched (about 150 MB of BLAS buffers and stacks). It is
therefore set 64 MB above the budget.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamsvm.system.machine import format_bytes

RESERVED_BYTES = 64 * 10**6


@dataclass(frozen=True)
class Limit:
    """The shell commands that put a process under a memory limit, and a description of the limit."""

    prologue: str
    description: str


def limit_data(limit_bytes: int) -> str:
    """Return the shell commands that set RLIMIT_DATA. They also make stacks smaller, which then reserve less memory."""
    return f"ulimit -s 2048 && ulimit -d {limit_bytes // 1024}"  # both numbers are in KiB


@contextmanager
def limit_memory(budget_bytes: int, processes: int) -> Iterator[Limit]:
    """Make a control group for this number of processes; if this is not allowed, use RLIMIT_DATA in each process."""
    group = make_control_group(budget_bytes * processes)
    if group is None:
        limit_bytes = budget_bytes + RESERVED_BYTES
        yield Limit(limit_data(limit_bytes), f"RLIMIT_DATA {format_bytes(limit_bytes)} a process")
        return
    size = format_bytes(budget_bytes * processes)
    try:
        yield Limit(f"echo $$ > '{group}/cgroup.procs'", f"cgroup memory.max {size}, no swap")
    finally:
        group.rmdir()


def make_control_group(limit_bytes: int, mount: Path = Path("/sys/fs/cgroup")) -> Path | None:
    """Make a control group next to or below the group of this process. Return None if this is not allowed."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = mount / next(line[3:] for line in lines if line.startswith("0::")).strip("/")
    except (OSError, StopIteration):
        return None  # there are no control groups, or they are of version 1
    for parent in (own.parent, own):
        group = parent / f"streamsvm-{os.getpid()}"
        if not (parent / "cgroup.controllers").exists():
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in (("memory.max", limit_bytes), ("memory.swap.max", 0)):
                with (group / name).open("r+") as file:
                    file.write(str(value))
            return group
        except OSError:
            group.rmdir()
    return None
