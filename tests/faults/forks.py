"""Commands as processes of their own that begin at once: forks of a process that has imported everything."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.instants import describe

LONGEST_SECONDS = 120.0  # that a process may take to end once it was told to


@dataclass
class Forked:
    """A command under way; its standard error goes to a file."""

    pid: int
    told: Path
    began: float

    def wait(self, seconds: float = LONGEST_SECONDS) -> int:
        """Return how it ended: the exit status, or a signal's number below zero. TimeoutError if it does not end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        raise TimeoutError

    def has_ended(self) -> bool:
        """Return whether it has ended, and leave its status to `wait`."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None


def fork(arguments: Sequence[object], told: Path) -> Forked:
    """Begin `streamsvm` with these arguments; the caller has one thread."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for number, path in ((1, os.devnull), (2, told)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            from streamsvm.cli.main import main

            code = main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return Forked(pid, told, time.monotonic())


def run(arguments: Sequence[object], told: Path) -> int:
    """Carry a command out; return how it ended."""
    return fork(arguments, told).wait(600.0)


def describe_run(out: Path) -> dict[str, Any]:
    """What must be the same however often a run was stopped."""
    return describe(out)


def describe_folder(path: Path) -> str:
    """SHA-256 over the names and contents of a file or of all files of a folder."""
    digest = hashlib.sha256()
    for file in sorted([path] if path.is_file() else path.rglob("*")):
        if file.is_file():
            digest.update(json.dumps(file.relative_to(path).as_posix()).encode() + file.read_bytes())
    return digest.hexdigest()
