"""The folder for compiled kernels: numba's own choice, or a temporary one if numba may not write to any."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from numba import config, njit

from streamsvm.errors import InputError

TEMPORARY = "streamsvm-kernels-"  # the name of a temporary folder begins so


def find_cache_folder() -> str:
    """Return the folder in which numba will keep the kernels of this package; make a temporary one if need be.

    numba takes NUMBA_CACHE_DIR, `__pycache__` beside the source, or the user's cache folder. If it may write to none of
    these (another user's package, no home), it refuses to define a cached function. Raises InputError if no folder can
    be written to, and if numba is not to compile.
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
                "no folder for compiled kernels can be written to; name one by the variable NUMBA_CACHE_DIR, "
                f"or a folder for temporary files by TMPDIR ({error})"
            ) from error
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder  # child processes read the variable
        return _try_numba()


def _try_numba() -> str:
    return str(njit(cache=True)(_nothing).stats.cache_path)


def _nothing() -> None:
    """Do nothing: this function only asks numba for a cache folder, and is never compiled."""


CACHE_FOLDER = find_cache_folder()
