"""Files of text as bytes: plain, compressed, or standard input; and why one cannot be read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

from streamsvm.interrupts import waiting

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # by ending
READING_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def open_text(source: str | Path) -> AbstractContextManager[io.BufferedIOBase]:
    """Open a file, decompressed by its ending (.gz, .bz2, .xz), or "-", standard input, which stays open.

    Raises OSError; reading may raise any of READING_ERRORS.
    """
    if str(source) == "-":
        return nullcontext(cast(io.BufferedIOBase, sys.stdin.buffer))
    with waiting():  # a pipe opens when somebody writes to it
        opened: AbstractContextManager[io.BufferedIOBase] = OPENERS.get(Path(source).suffix.lower(), open)(source, "rb")
    return opened


def explain_reading(error: Exception) -> str:
    """Say why a file cannot be read: one of READING_ERRORS in words."""
    if isinstance(error, EOFError):
        return "the compressed data are truncated"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the compressed data are corrupt ({error})"
