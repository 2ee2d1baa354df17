"""Kernels are compiled by a child process, which leaves them in numba's cache on disk; from there they are loaded.

The compiler needs memory that its process does not give back: the kernels of cutting planes and decomposition are 64 MB
once they are loaded, and 250 MB in the process that has compiled them (of budgeted SGD 74 MB and 355 MB). Compiled by a
child, they are no part of the memory that is projected, on the first run as on all others. Processes that compile the
same function at the same time may mix up each other's files (numba#4807), so only one compiles at a time in a folder.
"""

from __future__ import annotations

import fcntl
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba.core import event

from streamsvm.interrupts import waiting
from streamsvm.numeric.cache_folder import CACHE_FOLDER

LOGGER = logging.getLogger("streamsvm")
CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from streamsvm.numeric.compilation import lock_cache
from {module} import {function}
with lock_cache():
    {function}(sys.argv[2])
"""


class NotCompiledError(Exception):
    """A kernel is not in the cache; it was not compiled."""


class _Refusal(event.Listener):  # type: ignore[misc]
    """Stops the compiler before it begins in the thread that made this object; other threads may compile."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def on_start(self, _: Any) -> None:
        if threading.get_ident() == self.thread:
            raise NotCompiledError

    def on_end(self, _: Any) -> None:
        """Do nothing: nothing has begun."""


def load_or_compile(name: str, run: Callable[[str], None]) -> None:
    """Carry out run(name), which calls kernels, without compiling in this process if that can be avoided.

    run: a function of a module, which a child process imports.
    """
    with suppress(NotCompiledError), event.install_listener("numba:compile", _Refusal()):
        run(name)
        return
    LOGGER.info("compiling kernels for %s, once ...", name or "all solvers")
    code = CHILD.format(module=run.__module__, function=run.__name__)
    command = [sys.executable, "-c", code, json.dumps(sys.path), name]
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with suppress(OSError), waiting():
        subprocess.run(command, check=False, **quiet)
    with lock_cache():  # if the child has failed, they are compiled here
        run(name)


@contextmanager
def lock_cache() -> Iterator[None]:
    """Wait until no other process compiles into the cache. A lock ends with its process.

    Each version of Python has files of its own in the cache, and so a lock of its own.
    """
    try:
        file = (Path(CACHE_FOLDER) / f"streamsvm.{sys.implementation.cache_tag}.lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # numba cannot write there either, or the file system knows no locks
        yield
        return
    with file:
        yield
