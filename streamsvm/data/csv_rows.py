"""Where rows of CSV end: at LF, CR LF or CR outside of quoted values, exactly as Python's csv module reads them.

A quote opens a value only at the value's beginning. Within such a value two quotes are one character, and a single
quote ends the value.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_CLOSING = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')


def count_lines(text: bytes) -> int:
    """Return the number of line ends."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _find_quotes(text: bytes | bytearray, delimiter: str) -> tuple[npt.NDArray[np.intp], bool]:
    """Return where the quotes are, and whether the 1st, 3rd, ... open values and the 2nd, 4th, ... end them."""
    codes = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(codes == ord('"'))
    ends = np.zeros(256, np.bool_)
    ends[[ord("\n"), ord("\r"), ord(delimiter), ord('"')]] = True
    around = np.concatenate(([ord("\n")], codes, [ord("\n")]))
    return quotes, bool(ends[around[quotes[0::2]]].all() and ends[around[quotes[1::2] + 2]].all())


def find_last_end(text: bytes | bytearray, delimiter: str, ended: bool) -> tuple[int, int | None]:
    """Return where the last whole row ends, and where a quoted value begins that the text does not end; else None.

    ended: no text follows. Otherwise a CR at the end of the text may be the first half of CR LF.
    """
    end = _find_newline(text, 0, len(text), ended)
    if b'"' not in text:
        return end, None
    quotes, enclose = _find_quotes(text, delimiter)
    if not enclose:
        return _read_quotes(text, delimiter, ended)
    while end and (before := int(np.searchsorted(quotes, end))) % 2:
        end = _find_newline(text, 0, int(quotes[before - 1]), ended)
    if len(quotes) % 2 == 0:
        return end, None
    opening, closing = quotes[0::2], quotes[1::2]
    begins = np.append(True, opening[1:] > closing + 1)  # otherwise both quotes stand for one, within a value
    return end, int(opening[begins][-1])


def _read_quotes(text: bytes | bytearray, delimiter: str, ended: bool) -> tuple[int, int | None]:
    """Do what `find_last_end` does, value by value, for texts in which some quotes are parts of words."""
    opening, at, end = _find_opening(delimiter), 0, 0
    while opened := opening.search(text, at):
        end = _find_newline(text, at, opened.start(), ended) or end
        closed = _CLOSING.match(text, opened.end())
        if closed is None:
            return end, opened.start()
        at = closed.end()
    return _find_newline(text, at, len(text), ended) or end, None


def find_first_end(text: bytes | bytearray, start: int, delimiter: str) -> int:
    """Return where the row that begins at `start` ends: behind its line end, or at the end of the text."""
    opening, at = _find_opening(delimiter), start
    while newline := _NEWLINE.search(text, at):
        opened = opening.search(text, at, newline.start())
        if opened is None:
            return newline.end()
        closed = _CLOSING.match(text, opened.end())
        if closed is None:
            break
        at = closed.end()
    return len(text)


def _find_opening(delimiter: str) -> re.Pattern[bytes]:
    """Return the pattern of a quote that opens a value."""
    return re.compile(rb"(?:\A|(?<=[\r\n" + re.escape(delimiter.encode()) + rb']))"')


def _find_newline(text: bytes | bytearray, start: int, stop: int, ended: bool) -> int:
    """Return the byte behind the last line end in text[start:stop]; 0 if there is none."""
    last = stop if ended or stop < len(text) else stop - 1
    return max(text.rfind(b"\n", start, stop), text.rfind(b"\r", start, last)) + 1
