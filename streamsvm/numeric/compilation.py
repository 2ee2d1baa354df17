"""Compilation of kernels in a child process, which leaves them in numba's cache on disk, from where we load them.

The compiler needs memory that its process does not give back. The kernels of cutting planes and decomposition take
64 MB when they are loaded, and 250 MB in the process that compiled them (budgeted SGD: 74 MB and 355 MB). With a child
process the compiler is not part of the projected memory, on the first run as on all others. Processes that compile the
same function at the same time may mix up each other's files (numba#4807), so one process compiles at a time.
"""

from __future__ import annotations

import fcntl
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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
    for name in json.loads(sys.argv[2]):
        {function}(name)
"""


class NotCompiledError(Exception):
    """A kernel is not in the cache, and this process may not compile it."""


class _Refusal(event.Listener):  # type: ignore[misc]
    """Stops the compiler before it begins, in the thread that made this object; other threads may compile."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def on_start(self, _: Any) -> None:
        if threading.get_ident() == self.thread:
            raise NotCompiledError

    def on_end(self, _: Any) -> None:
        """Do nothing, since no compilation has begun."""


def load_or_compile(names: Sequence[str], run: Callable[[str], None]) -> None:
    """Call run(name) for each name, which calls kernels, without compiling here if that can be avoided.

    One child process compiles what any of the names need. run: a function of a module, so that the child can import it.
    """
    missing = [name for name in names if not _is_in_cache(name, run)]
    if not missing:
        return
    LOGGER.info("compiling kernels for %s, once, for some ten seconds ...", ", ".join(missing))
    code = CHILD.format(module=run.__module__, function=run.__name__)
    command = [sys.executable, "-c", code, json.dumps(sys.path), json.dumps(missing)]
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with suppress(OSError), waiting():
        subprocess.run(command, check=False, **quiet)
    with lock_cache():  # if the child has failed, the kernels are compiled here
        for name in missing:
            run(name)


def load_or_compile_here(name: str, run: Callable[[str], None]) -> None:
    """Call run(name), which calls kernels and compiles them in this process, if need be; the user is told before."""
    if not _is_in_cache(name, run):
        LOGGER.info("compiling kernels for %s, once, for some seconds ...", name)
        with lock_cache():
            run(name)


def _is_in_cache(name: str, run: Callable[[str], None]) -> bool:
    """Call run(name) if all its kernels are in the cache; return whether they are."""
    with suppress(NotCompiledError), event.install_listener("numba:compile", _Refusal()):
        run(name)
        return True
    return False


@contextmanager
def lock_cache() -> Iterator[None]:
    """Hold the lock of the cache, so that no other process compiles into it. The lock ends with its process.

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
