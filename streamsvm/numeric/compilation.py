"""Compilation of kernels in a child process, and the arithmetic on which the last bits of sums depend.

A process does not return the memory that the compiler used. The kernels of cutting planes and decomposition take 64 MB
in a process that loads them, and 250 MB in a process that compiles them (budgeted SGD: 74 MB and 355 MB). So a child
process compiles them into numba's cache on disk, and the projected memory never includes the compiler, even in the
first run. Processes that compile the same function at the same time may corrupt each other's files (numba#4807), so
only one process compiles at a time.

Compilers and libraries choose instructions by the processor, and different instructions round in different places. So
models have the same bits only on processors of one kind, with one version of each library. The variable
OPENBLAS_CORETYPE may set the processor kind for OpenBLAS, and has to be the same everywhere. BLAS runs with one thread,
because several threads add in another order.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  loads SciPy's own BLAS, which would not be limited if it were loaded later
from llvmlite.binding import get_host_cpu_name
from numba import config, njit
from numba.core import event
from threadpoolctl import OpenBLASController, ThreadpoolController

from streamsvm.system.errors import InputError
from streamsvm.system.interrupts import waiting
from streamsvm.system.shared import SharedSetting

TEMPORARY = "streamsvm-kernels-"  # the prefix of a temporary folder's name


def find_cache_folder() -> str:
    """Return the folder in which numba stores the kernels of this package; create a temporary one if necessary.

    numba uses NUMBA_CACHE_DIR, `__pycache__` next to the source, or the user's cache folder. If it can write to none of
    these (another user's package, no home), it refuses to define cached functions. Raises InputError if no folder is
    writable, or if numba is disabled.
    """
    if config.DISABLE_JIT:
        raise InputError(
            "NUMBA_DISABLE_JIT is set, and most functions of streamsvm run only if numba compiles them: unset it"
        )
    try:
        return _try_numba()
    except RuntimeError:
        try:
            folder = tempfile.mkdtemp(prefix=TEMPORARY)
        except OSError as error:
            raise InputError(
                "no folder for compiled kernels is writable; set the variable NUMBA_CACHE_DIR to a writable folder, "
                f"or TMPDIR to one for temporary files ({error})"
            ) from error
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder  # Child processes read the variable.
        return _try_numba()


def _try_numba() -> str:
    return str(njit(cache=True)(_nothing).stats.cache_path)


def _nothing() -> None:
    """Do nothing; numba chooses a cache folder for this function, which is never compiled."""


CACHE_FOLDER = find_cache_folder()


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
    """A listener that stops the compiler in the thread that created the listener. Other threads may compile."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def on_start(self, _: Any) -> None:
        if threading.get_ident() == self.thread:
            raise NotCompiledError

    def on_end(self, _: Any) -> None:
        """Do nothing, since no compilation has started."""


@lru_cache
def load_or_compile(names: tuple[str, ...], run: Callable[[str], None], in_child: bool = True) -> None:
    """Call run(name), which calls kernels, for each name, once per process; compile kernels that are not in the cache.

    in_child: whether a single child process compiles the kernels of all names. `run` must then be a module-level
    function, so that the child can import it.
    """
    missing = [name for name in names if not _is_in_cache(name, run)]
    if not missing:
        return
    told = "about ten" if in_child else "a few"
    LOGGER.info("compiling kernels for %s, once; this takes %s seconds ...", ", ".join(missing), told)
    if in_child:
        code = CHILD.format(module=run.__module__, function=run.__name__)
        command = [sys.executable, "-c", code, json.dumps(sys.path), json.dumps(missing)]
        quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with suppress(OSError), waiting():
            subprocess.run(command, check=False, **quiet)
    with lock_cache():  # If the child has failed, the kernels are compiled here.
        for name in missing:
            run(name)


def _is_in_cache(name: str, run: Callable[[str], None]) -> bool:
    """Call run(name) if all its kernels are in the cache; return whether they are."""
    with suppress(NotCompiledError), event.install_listener("numba:compile", _Refusal()):
        run(name)
        return True
    return False


@contextmanager
def lock_cache() -> Iterator[None]:
    """Hold the lock of the cache, so that no other process compiles into it; the lock ends with this process.

    Each version of Python has its own files in the cache, and its own lock.
    """
    try:
        file = (Path(CACHE_FOLDER) / f"streamsvm.{sys.implementation.cache_tag}.lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # numba cannot write there either, or the file system does not support locks
        yield
        return
    with file:
        yield


MIXED = (
    "the processes of this run round sums differently (%s): the certificate holds, but the last bits of the model may "
    "differ from those of other runs"
)
LIBRARIES = ("numpy", "scipy", "numba")
Arithmetic = dict[str, str]


@lru_cache(maxsize=1)
def _describe() -> Arithmetic:
    blas = {
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
        for library in ThreadpoolController().info()
        if library["user_api"] == "blas" and "scipy.libs" not in library["filepath"]  # SciPy loads its BLAS on demand
    }
    told = {"processor": config.CPU_NAME or get_host_cpu_name(), "blas": ", ".join(sorted(blas))}
    return told | {name: version(name) for name in LIBRARIES}


def describe_arithmetic() -> Arithmetic:
    """Return the processor for which code is compiled, the kind of BLAS, and the versions of libraries."""
    return dict(_describe())


def list_kinds(found: Iterable[Arithmetic]) -> list[Arithmetic]:
    """Return the distinct descriptions of arithmetic, in order of appearance."""
    every = list(found)
    return [one for k, one in enumerate(every) if one not in every[:k]]


def name_differences(kinds: list[Arithmetic]) -> str:
    """Return the differences as a string, such as "blas: openblas 0.3.31 Haswell or openblas 0.3.31 SkylakeX"."""
    names = list(dict.fromkeys(name for one in kinds for name in one))
    values = {name: list(dict.fromkeys(one.get(name, "?") for one in kinds)) for name in names}
    return "; ".join(f"{name}: {' or '.join(each)}" for name, each in values.items() if len(each) > 1)


class _Limit(AbstractContextManager[Any]):
    """A context in which BLAS has one thread, even if another Python thread has set the number before.

    threadpoolctl accepts a number only from the first thread that set one. So its record of this thread is cleared.
    """

    def __init__(self) -> None:
        OpenBLASController.clear_controlling_thread(force=True)
        self._limiter = _find_libraries().limit(limits=1)

    def __exit__(self, *_: object) -> None:
        OpenBLASController.clear_controlling_thread(force=True)
        self._limiter.restore_original_limits()
        OpenBLASController.clear_controlling_thread(force=True)


@lru_cache(maxsize=1)
def _find_libraries() -> ThreadpoolController:
    """Return the BLAS libraries of this process; the search takes milliseconds, so it is done once."""
    return ThreadpoolController().select(user_api="blas")


# A context manager and decorator. The number of BLAS threads is restored when the last holder leaves.
one_blas_thread = SharedSetting(_Limit).held
