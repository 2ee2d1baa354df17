"""The parser of svmlight/libsvm text, which turns bytes into arrays in one pass and does no I/O.

    row    =  label [qid:N] index:value index:value ... [# comment]
    row    =  [label,label,...] index:value ...                    (lists of labels, if they are asked for)
    label  =  number              (float64)
    N      =  [+|-] digits        (int64)
    index  =  digits              (1 to 2^31 - 1, strictly ascending within the row; 0-based in the arrays)
    value  =  number              (float32)
    number                        (as in text_numbers)

Tokens are separated by spaces and tabs. A carriage return counts as a space, but not within a comment, where it would
hide the rows behind it if it were meant to end a line. Lines that are blank or hold only a comment are no rows. `qid:`
is on all rows or on none.

Nothing checks bounds, because the text ends in a newline and no token passes one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from streamsvm.data.text_numbers import (
    MIN_FLOAT32_OVERFLOW,
    MINUS,
    NEWLINE,
    PLUS,
    RETURN,
    SPACE,
    TAB,
    ZERO,
    Address,
    Text,
    byte_at,
    is_digit,
    parse_decimal,
    parse_digits,
    parse_number,
)
from streamsvm.numeric.rows import F32, F64, I32, I64

HASH, COLON, COMMA = ord("#"), ord(":"), ord(",")

# The codes of what can be wrong with the token at `error_at`.
OK, BAD_LABEL, BAD_QID, MISSING_QID, UNEXPECTED_QID, BAD_INDEX, BAD_VALUE, NUL_BYTE, LONE_RETURN = range(9)

# Whether the rows carry `qid:`, which is undecided until the first row.
QID_UNDECIDED, QID_ABSENT, QID_PRESENT = range(3)

MAX_INDEX = 2**31 - 1
LEAST_QID, MAX_QID = -(2**63), 2**63 - 1
SHORT_INDEX = 9  # digits of an index that cannot be too large


class ParsedLines(NamedTuple):
    """Rows in CSR form; after an error, the rows before it and its place."""

    labels: F64  # (rows,), or those of all lists one after another
    label_limits: I64  # (rows + 1,), of the lists
    qid: I64  # (rows,), meaningful if qid_rule is QID_PRESENT
    indptr: I64  # (rows + 1,)
    indices: I32  # (pairs,), 0-based
    values: F32  # (pairs,)
    n_columns: int  # largest 1-based index
    n_lines: int  # in the whole text
    qid_rule: int  # QID_UNDECIDED, QID_ABSENT or QID_PRESENT
    error: int  # OK, or one of the codes above
    error_at: int  # byte where the bad token starts


def parse_lines(text: Text, qid_rule: int = QID_UNDECIDED, lists: bool = False) -> ParsedLines:
    """Parse whole lines; `text` (C-contiguous, writable) is empty or ends in a newline.

    `qid_rule` tells whether the rows above have `qid:`, and `lists` whether rows have lists of labels. Bad text raises
    nothing: `error` and `error_at` describe the first bad token. Values are within one unit in the last place of
    float32(float(token)), and equal to it up to 15 digits and powers of ten up to 22; values too small for float32
    become 0.
    """
    parsed: ParsedLines = parse_rows(text, qid_rule, lists)
    return parsed


@njit(cache=True, nogil=True)
def parse_rows(text: Text, qid_rule: int, lists: bool) -> ParsedLines:
    """Count lines and pairs, allocate the arrays, and fill them up to the first error."""
    n_lines, n_colons = count_byte(text, NEWLINE), count_byte(text, COLON)
    n_labels = n_lines + (count_byte(text, COMMA) if lists else 0)
    labels, label_limits = np.empty(n_labels, np.float64), np.zeros(n_lines + 1, np.int64)
    qid = np.empty(n_lines, np.int64)
    indptr = np.zeros(n_lines + 1, np.int64)
    indices = np.empty(n_colons, np.int32)
    values = np.empty(n_colons, np.float32)
    rows, n_columns, qid_rule, error, at = fill_rows(
        np.int64(text.ctypes.data), text.size, qid_rule, lists, labels, label_limits, qid, indptr, indices, values
    )
    pairs = indptr[rows]
    return ParsedLines(
        labels=labels[: label_limits[rows]],
        label_limits=label_limits[: rows + 1],
        qid=qid[:rows],
        indptr=indptr[: rows + 1],
        indices=indices[:pairs],
        values=values[:pairs],
        n_columns=n_columns,
        n_lines=n_lines,
        qid_rule=qid_rule,
        error=error,
        error_at=at,
    )


@njit(cache=True, nogil=True)
def fill_rows(
    text: Address,
    size: int,
    qid_rule: int,
    lists: bool,
    labels: F64,
    label_limits: I64,
    qid: I64,
    indptr: I64,
    indices: I32,
    values: F32,
) -> tuple[int, int, int, int, int]:
    """Parse row by row. Return (rows, largest index, qid_rule, error, where the text ends or the bad token starts)."""
    rows, n_columns, error, at = 0, 0, OK, 0
    while at < size:
        at = skip_blanks(text, at)
        if byte_at(text, at) != NEWLINE and byte_at(text, at) != HASH:
            if lists:
                error, at, label_limits[rows + 1] = parse_label_list(text, at, label_limits[rows], labels)
            else:
                error, at, labels[rows] = parse_label(text, at)
                label_limits[rows + 1] = rows + 1
            if error == OK:
                error, at, qid_rule, qid[rows] = parse_qid(text, at, qid_rule)
            if error == OK:
                error, at, indptr[rows + 1], last = parse_pairs(text, at, indptr[rows], indices, values)
            if error != OK:
                break
            n_columns = max(n_columns, last)
            rows += 1
        while byte_at(text, at) != NEWLINE and byte_at(text, at) != 0 and byte_at(text, at) != RETURN:  # skip a comment
            at += 1
        end = skip_blanks(text, at)
        if byte_at(text, end) != NEWLINE:
            error = NUL_BYTE if byte_at(text, at) == 0 else LONE_RETURN
            break
        at = end + 1
    return rows, n_columns, qid_rule, error, at


@njit(cache=True, nogil=True)
def count_byte(text: Text, wanted: int) -> int:
    """Count a byte, to size the arrays. This takes a thirtieth of the parsing time."""
    count = 0
    for byte in text:
        count += byte == wanted
    return count


@njit(cache=True, nogil=True)
def parse_label(text: Address, at: int) -> tuple[int, int, float]:
    """Parse the label at `at`. Return (error, where it ends or the bad token starts, label)."""
    label, end = parse_decimal(text, at)
    if not ends_token(byte_at(text, end)):  # long, with an exponent, or no number
        label, end = parse_number(text, at)
    if end == at or not ends_token(byte_at(text, end)) or not abs(label) < np.inf:
        return BAD_LABEL, at, label
    return OK, end, label


@njit(cache=True, nogil=True)
def parse_label_list(text: Address, at: int, n_labels: int, labels: F64) -> tuple[int, int, int]:
    """Append the labels of a list. Return (error, where it ends or the bad token starts, labels so far).

    The list is empty if the first token of the row is a pair, or if there is none.
    """
    end = at
    while not ends_token(byte_at(text, end)) and byte_at(text, end) != COLON:
        end += 1
    if byte_at(text, end) == COLON:
        return OK, at, n_labels
    start = at
    while True:
        label, stop = parse_number(text, start)
        if stop == start or not (byte_at(text, stop) == COMMA or stop == end) or not abs(label) < np.inf:
            return BAD_LABEL, at, n_labels
        labels[n_labels] = label
        n_labels += 1
        if stop == end:
            return OK, end, n_labels
        start = stop + 1


@njit(cache=True, nogil=True)
def parse_qid(text: Address, at: int, qid_rule: int) -> tuple[int, int, int, int]:
    """Parse `qid:N` if it comes next. Return (error, where it ends or the bad token starts, qid_rule, N)."""
    at = skip_blanks(text, at)
    if (
        byte_at(text, at) != ord("q")
        or byte_at(text, at + 1) != ord("i")
        or byte_at(text, at + 2) != ord("d")
        or byte_at(text, at + 3) != COLON
    ):
        error = MISSING_QID if qid_rule == QID_PRESENT else OK
        return error, at, max(qid_rule, QID_ABSENT), 0
    if qid_rule == QID_ABSENT:
        return UNEXPECTED_QID, at, qid_rule, 0
    start = at + 4
    negative = byte_at(text, start) == MINUS
    start += negative or byte_at(text, start) == PLUS
    qid, end = parse_digits(text, start, MAX_QID)
    is_least = negative and qid == LEAST_QID  # its digits have wrapped, and stay so when they are negated
    if end == start or (qid < 0 and not is_least) or not ends_token(byte_at(text, end)):
        return BAD_QID, at, qid_rule, 0
    return OK, end, QID_PRESENT, -qid if negative else qid


@njit(cache=True, nogil=True)
def parse_pairs(text: Address, at: int, pairs: int, indices: I32, values: F32) -> tuple[int, int, int, int]:
    """Append a row's pairs. Return (error, where the row ends or the bad token starts, pairs, last index)."""
    previous = 0
    while True:
        at = skip_blanks(text, at)
        if byte_at(text, at) == NEWLINE or byte_at(text, at) == HASH:
            return OK, at, pairs, previous
        index, colon = parse_index(text, at)
        if byte_at(text, colon) != COLON or index <= previous:
            return BAD_INDEX, at, pairs, previous
        value, end = parse_value(text, colon + 1)
        if not ends_token(byte_at(text, end)):  # long, with an exponent, or no number
            value, end = parse_number(text, colon + 1)
        if end == colon + 1 or not ends_token(byte_at(text, end)) or not abs(value) < MIN_FLOAT32_OVERFLOW:
            return BAD_VALUE, at, pairs, previous
        indices[pairs] = index - 1
        values[pairs] = value
        pairs += 1
        previous = index
        at = end


@njit(cache=True, nogil=True)
def parse_index(text: Address, at: int) -> tuple[int, int]:
    """Do what parse_digits does up to MAX_INDEX, without a look at the limit for every digit."""
    index, end = 0, at
    while is_digit(byte_at(text, end)):
        index = index * 10 + (byte_at(text, end) - ZERO)
        end += 1
    if end - at > SHORT_INDEX:
        index, end = parse_digits(text, at, MAX_INDEX)
    return index, end


@njit(cache=True, nogil=True)
def parse_value(text: Address, at: int) -> tuple[float, int]:
    """Do what parse_decimal does; a single digit, which all values of text and of categories are, takes less time."""
    if byte_at(text, at) != NEWLINE and byte_at(text, at + 1) == SPACE and is_digit(byte_at(text, at)):
        value, end = float(byte_at(text, at) - ZERO), at + 1
    else:
        value, end = parse_decimal(text, at)
    return value, end


@njit(cache=True, nogil=True)
def skip_blanks(text: Address, at: int) -> int:
    """Return the place of the next byte that is neither space nor tab nor carriage return."""
    while byte_at(text, at) == SPACE or byte_at(text, at) == TAB or byte_at(text, at) == RETURN:
        at += 1
    return at


@njit(cache=True, nogil=True)
def ends_token(byte: int) -> bool:
    """Tell whether a token ends before this byte."""
    return byte == SPACE or byte == NEWLINE or byte == TAB or byte == RETURN or byte == HASH  # noqa: PLR1714
