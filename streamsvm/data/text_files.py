"""Text files, read as bytes: plain files, compressed files and standard input; and why a file cannot be read."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from streamsvm.data.remote_files import open_binary
from streamsvm.interrupts import waiting

MARK_BYTES = 64  # of the beginning of a text, which tell UTF-16
ASCII_TEXT = bytes((0, *b"\t\n\r", *range(32, 127)))  # and the zero bytes between letters of UTF-16
PACKED_BYTES = 64 << 10  # of a compressed file that are read at a time
READING_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Streams(io.RawIOBase):
    """The content of a compressed file, whose streams follow one another; zeros may stand behind each.

    The classes of Python's own modules take no notice of other bytes behind a stream. start: begins a stream.
    """

    def __init__(self, file: IO[bytes], start: Callable[[], Any]) -> None:
        self._file, self._start, self._stream, self._is_first = file, start, start(), True

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, space: Any) -> int:
        """Read some bytes; 0 at the end of the file. Raises EOFError if a stream is truncated."""
        content = b""
        while not content:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data.lstrip(b"\0")
                while not packed:
                    if not (more := self._file.read(PACKED_BYTES)):
                        return 0
                    packed = more.lstrip(b"\0")
                self._stream, self._is_first = self._start(), False
            elif self._stream.needs_input and not (packed := self._file.read(PACKED_BYTES)):
                raise EOFError
            content = self._decompress(packed, len(space))
        space[: len(content)] = content
        return len(content)

    def _decompress(self, packed: bytes, most: int) -> bytes:
        try:
            return bytes(self._stream.decompress(packed, most))
        except (OSError, lzma.LZMAError) as error:
            where = "" if self._is_first else ", behind the end of a stream"
            raise OSError(f"{error}{where}") from error


def _open_streams(start: Callable[[], Any], file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(Streams(file, start), PACKED_BYTES)


OPENERS: dict[str, Callable[..., Any]] = {  # by ending
    ".gz": gzip.open,
    ".bz2": partial(_open_streams, bz2.BZ2Decompressor),
    ".xz": partial(_open_streams, lzma.LZMADecompressor),
}


def open_text(source: str | Path) -> AbstractContextManager[io.BufferedIOBase]:
    """Open a file, which is decompressed if it ends in .gz, .bz2 or .xz; "-" is standard input, which stays open.

    Raises OSError if the file cannot be opened; reading it may raise any of READING_ERRORS.
    """
    if str(source) == "-":
        return nullcontext(cast(io.BufferedIOBase, sys.stdin.buffer))
    opener = OPENERS.get(Path(source).suffix.lower())
    with waiting():  # a named pipe opens only when somebody writes to it
        file = open_binary(source)
    return cast(io.BufferedIOBase, file) if opener is None else _decompress(opener, file)


@contextmanager
def _decompress(opener: Callable[..., Any], file: IO[bytes]) -> Iterator[io.BufferedIOBase]:
    """Yield a compressed file as its content; close both at the end."""
    with file, opener(file) as opened:
        yield opened


def fill(file: io.BufferedIOBase, space: memoryview) -> int:
    """Read until `space` is full or the file ends, since pipes return less at a time, and return the bytes read."""
    filled = 0
    with waiting():
        while filled < len(space) and (n_bytes := file.readinto(space[filled:])):
            filled += n_bytes
    return filled


def find_mark(head: bytes | bytearray) -> int:
    """Return the bytes of the byte order mark of UTF-8 at the beginning of a text, 3 or 0.

    Raises OSError for UTF-16, which has a mark of its own, or a zero byte beside each letter of ASCII.
    """
    even, odd = bytes(head[0:MARK_BYTES:2]), bytes(head[1:MARK_BYTES:2])
    code = "UTF-16" if head[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else ""
    if len(even) > 1 and any(even) != any(odd) and not (even + odd).translate(None, ASCII_TEXT):
        code = "UTF-16LE" if any(even) else "UTF-16BE"
    if code:
        raise OSError(errno.EILSEQ, f"text in UTF-16: convert it, as `iconv -f {code} -t UTF-8` does")
    return len(BOM_UTF8) * head.startswith(BOM_UTF8)


def explain_reading(error: Exception) -> str:
    """Return one of READING_ERRORS in words that say why a file cannot be read."""
    if isinstance(error, EOFError):
        return "the compressed data are truncated"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the compressed data are corrupt ({error})"
