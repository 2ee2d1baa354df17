"""Commands called in this process, within the folder of the golden inputs."""

from __future__ import annotations

import io
import json
import signal
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsvm.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The object on the last line of standard output."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


def call(folder: Path, *arguments: object) -> Ended:
    """Call a command within the folder."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse ends the process
            status = int(error.code or 0)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return Ended(status, out.getvalue(), err.getvalue())


def do(folder: Path, *arguments: object, may_disagree: bool = False) -> Ended:
    """Call a command that has to succeed, stop at its limit or, with may_disagree, find that a model disagrees."""
    ended = call(folder, *arguments)
    if ended.status not in ((0, 1) if may_disagree else (0, 3)):
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {ended.err}")
    return ended
