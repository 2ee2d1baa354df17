"""Reading text as bytes, from plain or compressed files and standard input."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from streamsvm.data.remote.files import open_binary
from streamsvm.system.interrupts import waiting

MARK_BYTES = 64  # the number of bytes at the beginning of a text that are examined for UTF-16 and UTF-32
BYTE_ORDER_MARKS = {BOM_UTF32_LE: "UTF-32", BOM_UTF32_BE: "UTF-32", BOM_UTF16_LE: "UTF-16", BOM_UTF16_BE: "UTF-16"}
ASCII_TEXT = bytes((0, *b"\t\n\r", *range(32, 127)))  # with the zero bytes between the letters in UTF-16
ZEROS: dict[tuple[bool, ...], str] = {  # which of four bytes are nonzero, in encodings without a byte order mark
    (True, False, True, False): "UTF-16LE",
    (False, True, False, True): "UTF-16BE",
    (True, False, False, False): "UTF-32LE",
    (False, False, False, True): "UTF-32BE",
}
PACKED_BYTES = 64 << 10  # the number of bytes of a compressed file that are read at a time
READING_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


class Streams(io.RawIOBase):
    """The decompressed content of a file that consists of compressed streams, one after another.

    Zeros may follow each stream. Bytes other than zeros after a stream cause an error, whereas Python's classes would
    ignore them. start: a function that returns the decompressor of a new stream.
    """

    def __init__(self, file: IO[bytes], start: Callable[[], Any]) -> None:
        self._file, self._start, self._stream, self._is_first = file, start, start(), True

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, space: Any) -> int:
        """Read some bytes; return 0 at the end of the file. Raises EOFError if a stream is truncated."""
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
            try:
                content = self._stream.decompress(packed, len(space))
            except (OSError, lzma.LZMAError) as error:
                raise OSError(f"{error}{', behind the end of a stream' * (not self._is_first)}") from error
        space[: len(content)] = content
        return len(content)


def _open_streams(start: Callable[[], Any], file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(Streams(file, start), PACKED_BYTES)


OPENERS: dict[str, Callable[..., Any]] = {  # by file name ending
    ".gz": gzip.open,
    ".bz2": partial(_open_streams, bz2.BZ2Decompressor),
    ".xz": partial(_open_streams, lzma.LZMADecompressor),
}


@contextmanager
def open_text(source: str | Path) -> Iterator[io.BufferedIOBase]:
    """Open a file, decompressing it if it ends in .gz, .bz2 or .xz; "-" is standard input, which is not closed.

    Raises OSError if the file cannot be opened; reading it may raise any of READING_ERRORS.
    """
    if str(source) == "-":
        yield cast(io.BufferedIOBase, sys.stdin.buffer)
        return
    opener = OPENERS.get(Path(source).suffix.lower(), nullcontext)
    with waiting():  # a named pipe opens only when another process writes to it
        file = open_binary(source)
    with file, opener(file) as opened:
        yield opened


def read_bytes(file: io.BufferedIOBase, n_bytes: int) -> bytes:
    """Return the next `n_bytes` of a file; fewer at the end of the file."""
    with waiting():
        return file.read(n_bytes) or b""  # None if standard input would block


def find_mark(head: bytes | bytearray) -> int:
    """Return the length of the UTF-8 byte order mark at the head of a file: 3 or 0.

    Raises OSError for UTF-16 and UTF-32, recognised by their marks or by zero bytes next to ASCII letters.
    """
    head = bytes(head[:MARK_BYTES])
    code = next((name for mark, name in BYTE_ORDER_MARKS.items() if head.startswith(mark)), "")
    if len(head) > 2 and not head.translate(None, ASCII_TEXT):
        code = ZEROS.get(tuple(any(head[k::4]) for k in range(4)), code)
    if code:
        raise OSError(errno.EILSEQ, f"text in {code[:6]}: convert it, as `iconv -f {code} -t UTF-8` does")
    return len(BOM_UTF8) * head.startswith(BOM_UTF8)


def explain_reading(error: Exception) -> str:
    """Return the reason of one of READING_ERRORS in words, for messages."""
    if isinstance(error, EOFError):
        return "the compressed data are truncated"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the compressed data are corrupt ({error})"
