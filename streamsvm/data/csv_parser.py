"""The parser of CSV text, which turns the bytes of a block into arrays in one pass and does no I/O.

It reads what Python's csv module reads, and takes numbers as `values.parse_number` does. A block in which it meets
anything else is irregular: it may be wrong, and Python looks at it again.

    cell   =  blanks number blanks  |  blanks (true | false) blanks  |  text without quotes at its beginning
           |  " any of these, where two quotes stand for one "
    number =  [+|-] digits [. digits] [e [+|-] digits]        (digits on one side of the point are enough)

Nothing checks bounds, because the text ends in a newline and no cell passes one, except for quoted cells, which look
where the text ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.data.text_numbers import (
    MIN_FLOAT32_OVERFLOW,
    MINUS,
    NEWLINE,
    POINT,
    POWERS_OF_TEN,
    RETURN,
    SPACE,
    TAB,
    ZERO,
    Address,
    Text,
    byte_at,
    is_digit,
    parse_number,
)
from streamsvm.numeric.rows import F64, I32, I64

QUOTE = ord('"')
TRUE, FALSE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"false", np.uint8)
LOWER = 32  # the bit that makes an ASCII letter a small one
SKIPPED = -1  # the place of a column that nobody reads; from there down: columns of words
MOST_CELL_BYTES = 1 << 17  # Python's csv module reads so many characters, and judges longer cells
MOST_DOUBTS = 4096  # numbers of a block that Python has to round
EXACT_CHARACTERS = 15  # numbers of so few characters are correctly rounded
ROUNDING = 2.0**-50  # of all other numbers: four roundings of float64, and the digits that are cut off


class ParsedTable(NamedTuple):
    """The cells of a block.

    X: the features, (rows, d). words: for each column of words the bytes of all cells, back to back, and where each
    cell begins and ends in them, (rows + 1,).
    """

    X: F64
    words: list[tuple[Text, I32]]


def parse_table(
    text: bytearray, n_lines: int, delimiter: str, features: Sequence[int], words: Sequence[int], n_columns: int
) -> ParsedTable | None:
    """Parse `n_lines` whole lines, and an empty one. Return None if there are no rows, or irregular ones.

    `features` and `words` are the columns that are read. A feature is float(token) up to 15 digits; of all others its
    float32 is float32(float(token)), bit by bit.
    """
    buffer = np.frombuffer(text, np.uint8)
    places = np.full(n_columns, SKIPPED)
    places[list(features)] = np.arange(len(features))
    places[list(words)] = SKIPPED - 1 - np.arange(len(words))
    n_lines = min(n_lines, len(text) // n_columns)  # a whole row has a byte for each column at least
    X = np.empty((n_lines + 1, len(features)))
    starts = np.empty((len(words), n_lines + 1), np.int32)
    limits = np.zeros((len(words), n_lines + 2), np.int32)
    doubts = np.empty((MOST_DOUBTS, 4), np.int64)
    n_rows, n_doubts = parse_cells(buffer.ctypes.data, buffer.size, ord(delimiter), places, X, starts, limits, doubts)
    if n_rows <= 0:
        return None
    for row, j, start, stop in doubts[:n_doubts].tolist():
        X[row, j] = float(text[start:stop])
    if (np.abs(X[doubts[:n_doubts, 0], doubts[:n_doubts, 1]]) >= MIN_FLOAT32_OVERFLOW).any():
        return None
    columns = []
    for first, ends in zip(starts, limits[:, : n_rows + 1], strict=True):
        cells = np.empty(ends[-1], np.uint8)
        copy_cells(buffer, first, cells, ends)
        columns.append((cells[: ends[-1]], ends))
    return ParsedTable(X[:n_rows], columns)


def count_line_ends(text: bytearray) -> int:
    """Return the number of line ends, without the newline at the end of the text, unless that makes CR LF of a CR."""
    return int(count_ends(np.frombuffer(text, np.uint8))) - (text[-2:] != b"\r\n")


@njit(cache=True, nogil=True)
def count_ends(text: Text) -> int:
    """Count LF, CR LF and CR, in a loop without a branch, which runs in vector registers."""
    before, after = text[:-1], text[1:]
    count = int(text[-1] == NEWLINE)
    for k in range(before.size):
        count += int((before[k] == NEWLINE) | ((before[k] == RETURN) & (after[k] != NEWLINE)))
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def parse_cells(
    text: Address, size: int, delimiter: int, places: I64, X: F64, starts: I32, limits: I32, doubts: I64
) -> tuple[int, int]:
    """Fill X and, for each column of words, where its cells start and the sums of their lengths.

    Return the number of rows (-1 if the text is irregular) and of numbers in doubt. A number that may lie halfway
    between two numbers of float32 is in doubt: its row, feature, begin and end are noted.
    """
    at, row, n_doubts = np.int64(0), 0, 0  # a plain 0 has a type of its own, so that all is compiled twice
    while at < size:
        blank = skip_blanks(text, at, delimiter)
        if byte_at(text, blank) == NEWLINE or byte_at(text, blank) == RETURN:
            at = blank + 1
            continue
        for j in range(places.size):
            place = places[j]
            if place >= 0:
                X[row, place], stop = parse_short_number(text, at)
                if stop == at or not ends_cell(byte_at(text, stop), delimiter):
                    value, start, end, stop = parse_feature(text, at, delimiter)
                    X[row, place] = value
                    if is_in_doubt(value):
                        if n_doubts == MOST_DOUBTS:
                            return -1, 0
                        doubts[n_doubts, 0], doubts[n_doubts, 1] = row, place
                        doubts[n_doubts, 2], doubts[n_doubts, 3] = start, end
                        n_doubts += 1
            else:
                start, end, stop = find_cell(text, size, at, delimiter)
                if place < SKIPPED:
                    k = SKIPPED - 1 - place
                    starts[k, row], limits[k, row + 1] = start, limits[k, row] + end - start
            if stop < 0 or stop - at > MOST_CELL_BYTES or (byte_at(text, stop) == delimiter) != (j < places.size - 1):
                return -1, 0
            at = stop + 1
        row += 1
    return row, n_doubts


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def parse_short_number(text: Address, at: int) -> tuple[float, int]:
    """Parse a number of at most EXACT_CHARACTERS without an exponent. Return it and its end, or (0, at) for all else.

    Nearly all numbers are of this kind, for which both operands of the division are exact (see text_numbers.scale).
    """
    start = at + (byte_at(text, at) == MINUS)
    mantissa, n_decimals, end = 0, 0, start
    while is_digit(byte_at(text, end)):
        mantissa = mantissa * 10 + (byte_at(text, end) - ZERO)
        end += 1
    n_digits = end - start
    if byte_at(text, end) == POINT:
        point = end
        end += 1
        while is_digit(byte_at(text, end)):
            mantissa = mantissa * 10 + (byte_at(text, end) - ZERO)
            end += 1
        n_decimals = end - point - 1
        n_digits += n_decimals
    if n_digits == 0 or end - start > EXACT_CHARACTERS:
        return 0.0, at
    value = mantissa / POWERS_OF_TEN[n_decimals]
    return -value if start > at else value, end


@njit(cache=True, nogil=True)
def parse_feature(text: Address, at: int, delimiter: int) -> tuple[float, int, int, int]:
    """Return the number of the cell at `at`, where it begins and ends, and where the cell ends (-1: irregular)."""
    quoted = byte_at(text, at) == QUOTE
    start = skip_blanks(text, at + quoted, delimiter)
    value, end = parse_number(text, start)
    if end == start:
        value, end = parse_boolean(text, start)
    stop = find_stop(text, end, delimiter, quoted)
    if end == start or not abs(value) < MIN_FLOAT32_OVERFLOW:
        stop = -1
    return value, start, end, stop


@njit(cache=True, nogil=True)
def find_stop(text: Address, end: int, delimiter: int, quoted: bool) -> int:
    """Return the place of the delimiter or line end behind a number that ends at `end`; -1 if there is more."""
    stop = skip_blanks(text, end, delimiter)
    if quoted:
        if byte_at(text, stop) != QUOTE:
            return -1
        stop += 1
    return stop if ends_cell(byte_at(text, stop), delimiter) else -1


@njit(cache=True, nogil=True)
def find_cell(text: Address, size: int, at: int, delimiter: int) -> tuple[int, int, int]:
    """Return where the text of the cell at `at` begins and ends, and where the cell ends (-1: irregular)."""
    start = end = at
    if byte_at(text, at) != QUOTE:
        while not ends_cell(byte_at(text, end), delimiter):
            end += 1
        return start, end, end
    start = end = at + 1
    while end < size and (byte_at(text, end) != QUOTE or byte_at(text, end + 1) == QUOTE):
        end += 1 + (byte_at(text, end) == QUOTE)
    if end < size and ends_cell(byte_at(text, end + 1), delimiter):
        return start, end, end + 1
    return start, end, -1


@njit(cache=True, nogil=True)
def copy_cells(text: Text, starts: I32, cells: Text, limits: I32) -> None:
    """Copy the texts of cells back to back. Two quotes within a quoted cell become one, and limits lower."""
    to, before = 0, 0
    for row in range(limits.size - 1):
        at, end = starts[row], starts[row] + limits[row + 1] - before
        before = limits[row + 1]
        quoted = at > 0 and text[at - 1] == QUOTE
        while at < end:
            cells[to] = text[at]
            to += 1
            at += 1 + (quoted and text[at] == QUOTE)
        limits[row + 1] = to


@njit(cache=True, nogil=True)
def parse_boolean(text: Address, at: int) -> tuple[float, int]:
    """Parse `true` or `false`, in any case. Return 1 or 0 and its end, or (0, at) if it is neither."""
    is_true = byte_at(text, at) | LOWER == TRUE[0]
    word = TRUE if is_true else FALSE
    for k in range(word.size):
        if byte_at(text, at + k) | LOWER != word[k]:
            return 0.0, at
    return (1.0 if is_true else 0.0), at + word.size


@njit(cache=True, nogil=True)
def is_in_doubt(value: float) -> bool:
    """Tell whether two numbers of float32 may be the nearest one, since the value itself was rounded."""
    return bool(np.float32(value * (1 - ROUNDING)) != np.float32(value * (1 + ROUNDING)))


@njit(cache=True, nogil=True)
def skip_blanks(text: Address, at: int, delimiter: int) -> int:
    """Return the place of the next byte that is neither a space nor a tab, which may be the delimiter."""
    while byte_at(text, at) == SPACE or (byte_at(text, at) == TAB and delimiter != TAB):
        at += 1
    return at


@njit(cache=True, nogil=True)
def ends_cell(byte: int, delimiter: int) -> bool:
    """Tell whether a cell that is not quoted ends before this byte."""
    return byte == delimiter or byte == NEWLINE or byte == RETURN  # noqa: PLR1714
