"""The parser of svmlight/libsvm text, which turns bytes into arrays in one pass and does no I/O.

    row    =  label [qid:N] index:value index:value ... [# comment]
    row    =  [label,label,...] index:value ...                    (lists of labels, if they are asked for)
    label  =  number              (float64)
    N      =  [+|-] digits        (int64)
    index  =  digits              (1 to 2^31 - 1, strictly ascending within the row; 0-based in the arrays)
    value  =  number              (float32)
    number =  [+|-] digits [. digits] [e [+|-] digits]        (digits on one side of the point are enough)

Tokens are separated by spaces and tabs. A carriage return counts as a space, but not within a comment, where it would
hide the rows behind it if it were meant to end a line. Lines that are blank or hold only a comment are no rows. `qid:`
is on all rows or on none.

The functions read `text[at]` without checking bounds, because the text ends in a newline and no token passes one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Text = npt.NDArray[np.uint8]

NEWLINE, RETURN, TAB, SPACE, HASH = ord("\n"), ord("\r"), ord("\t"), ord(" "), ord("#")
PLUS, MINUS, POINT, COLON, ZERO, NINE, COMMA = ord("+"), ord("-"), ord("."), ord(":"), ord("0"), ord("9"), ord(",")

# The codes of what can be wrong with the token at `error_at`.
OK, BAD_LABEL, BAD_QID, MISSING_QID, UNEXPECTED_QID, BAD_INDEX, BAD_VALUE, NUL_BYTE, LONE_RETURN = range(9)

# Whether the rows carry `qid:`, which is undecided until the first row.
QID_UNDECIDED, QID_ABSENT, QID_PRESENT = range(3)

MAX_INDEX = 2**31 - 1
MAX_QID = 2**63 - 1
MIN_FLOAT32_OVERFLOW = float(2**128 - 2**103)  # halfway between the largest float32 and 2^128; it rounds to inf
MAX_DIGITS = 18  # the most that always fit into an int64
MAX_EXPONENT = 10**15  # larger exponents saturate, since no run of zeros before them is long enough to matter
POWERS_OF_TEN = np.array([float(f"1e{k}") for k in range(309)])  # exact up to 10^22


class ParsedLines(NamedTuple):
    """Rows in CSR form; after an error, the rows before it and its place."""

    labels: npt.NDArray[np.float64]  # (rows,), or those of all lists one after another
    label_limits: npt.NDArray[np.int64]  # (rows + 1,), of the lists
    qid: npt.NDArray[np.int64]  # (rows,), meaningful if qid_rule is QID_PRESENT
    indptr: npt.NDArray[np.int64]  # (rows + 1,)
    indices: npt.NDArray[np.int32]  # (pairs,), 0-based
    values: npt.NDArray[np.float32]  # (pairs,)
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
    """Count lines and pairs, allocate the arrays, and parse row by row up to the first error."""
    n_lines, n_colons = count_byte(text, NEWLINE), count_byte(text, COLON)
    n_labels = n_lines + (count_byte(text, COMMA) if lists else 0)
    labels, label_limits = np.empty(n_labels, np.float64), np.zeros(n_lines + 1, np.int64)
    qid = np.empty(n_lines, np.int64)
    indptr = np.zeros(n_lines + 1, np.int64)
    indices = np.empty(n_colons, np.int32)
    values = np.empty(n_colons, np.float32)
    rows, n_columns, error, at = 0, 0, OK, 0
    while at < len(text):
        at = skip_blanks(text, at)
        if text[at] != NEWLINE and text[at] != HASH:
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
        while text[at] != NEWLINE and text[at] != 0 and text[at] != RETURN:  # skip a comment
            at += 1
        end = skip_blanks(text, at)
        if text[end] != NEWLINE:
            error = NUL_BYTE if text[at] == 0 else LONE_RETURN
            break
        at = end
        at += 1
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
def count_byte(text: Text, wanted: int) -> int:
    """Count a byte, to size the arrays. This takes a thirtieth of the parsing time."""
    count = 0
    for byte in text:
        count += byte == wanted
    return count


@njit(cache=True, nogil=True)
def parse_label(text: Text, at: int) -> tuple[int, int, float]:
    """Parse the label at text[at]. Return (error, where it ends or the bad token starts, label)."""
    label, end = parse_decimal(text, at)
    if not ends_token(text[end]):  # long, with an exponent, or no number
        label, end = parse_number(text, at)
    if end == at or not ends_token(text[end]) or not abs(label) < np.inf:
        return BAD_LABEL, at, label
    return OK, end, label


@njit(cache=True, nogil=True)
def parse_label_list(text: Text, at: int, n_labels: int, labels: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    """Append the labels of a list. Return (error, where it ends or the bad token starts, labels so far).

    The list is empty if the first token of the row is a pair, or if there is none.
    """
    end = at
    while not ends_token(text[end]) and text[end] != COLON:
        end += 1
    if text[end] == COLON:
        return OK, at, n_labels
    start = at
    while True:
        label, stop = parse_number(text, start)
        if stop == start or not (text[stop] == COMMA or stop == end) or not abs(label) < np.inf:
            return BAD_LABEL, at, n_labels
        labels[n_labels] = label
        n_labels += 1
        if stop == end:
            return OK, end, n_labels
        start = stop + 1


@njit(cache=True, nogil=True)
def parse_qid(text: Text, at: int, qid_rule: int) -> tuple[int, int, int, int]:
    """Parse `qid:N` if it comes next. Return (error, where it ends or the bad token starts, qid_rule, N)."""
    at = skip_blanks(text, at)
    if text[at] != ord("q") or text[at + 1] != ord("i") or text[at + 2] != ord("d") or text[at + 3] != COLON:
        error = MISSING_QID if qid_rule == QID_PRESENT else OK
        return error, at, max(qid_rule, QID_ABSENT), 0
    if qid_rule == QID_ABSENT:
        return UNEXPECTED_QID, at, qid_rule, 0
    start = at + 4
    negative = text[start] == MINUS
    start += negative or text[start] == PLUS
    qid, end = parse_digits(text, start, MAX_QID)
    if end == start or qid < 0 or not ends_token(text[end]):
        return BAD_QID, at, qid_rule, 0
    return OK, end, QID_PRESENT, -qid if negative else qid


@njit(cache=True, nogil=True)
def parse_pairs(
    text: Text, at: int, pairs: int, indices: npt.NDArray[np.int32], values: npt.NDArray[np.float32]
) -> tuple[int, int, int, int]:
    """Append a row's pairs. Return (error, where the row ends or the bad token starts, pairs, last index)."""
    previous = 0
    while True:
        at = skip_blanks(text, at)
        if text[at] == NEWLINE or text[at] == HASH:
            return OK, at, pairs, previous
        index, colon = parse_digits(text, at, MAX_INDEX)
        if text[colon] != COLON or index <= previous:
            return BAD_INDEX, at, pairs, previous
        value, end = parse_decimal(text, colon + 1)
        if not ends_token(text[end]):  # long, with an exponent, or no number
            value, end = parse_number(text, colon + 1)
        if end == colon + 1 or not ends_token(text[end]) or not abs(value) < MIN_FLOAT32_OVERFLOW:
            return BAD_VALUE, at, pairs, previous
        indices[pairs] = index - 1
        values[pairs] = value
        pairs += 1
        previous = index
        at = end


@njit(cache=True, nogil=True)
def parse_digits(text: Text, at: int, limit: int) -> tuple[int, int]:
    """Parse a run of digits. Return its value (negative beyond the limit) and its end, or (0, at) if there is none."""
    value = 0
    while is_digit(text[at]):
        if value > limit // 10:
            return -1, at
        value = value * 10 + (text[at] - ZERO)
        at += 1
    return value if value <= limit else -1, at  # just beyond 2^63 - 1 it has wrapped to a negative number


@njit(cache=True, nogil=True)
def parse_decimal(text: Text, start: int) -> tuple[float, int]:
    """Parse a number of at most 18 digits without an exponent. Return it and its end, or (0, start) for all else.

    This common case has a function of its own, because Numba counts references to `text` (atomically) in a function
    that is much longer, which would halve the speed of the parser.
    """
    at = start + (text[start] == MINUS or text[start] == PLUS)
    first = at
    mantissa, n_decimals = 0, 0
    while is_digit(text[at]):
        mantissa = mantissa * 10 + (text[at] - ZERO)
        at += 1
    n_digits = at - first
    if text[at] == POINT:
        at += 1
        point = at
        while is_digit(text[at]):
            mantissa = mantissa * 10 + (text[at] - ZERO)
            at += 1
        n_decimals = at - point
        n_digits += n_decimals
    if n_digits == 0 or n_digits > MAX_DIGITS:  # none, or the mantissa may have wrapped
        return 0.0, start
    value = mantissa / POWERS_OF_TEN[n_decimals]
    return -value if text[start] == MINUS else value, at


@njit(cache=True, nogil=True)
def parse_number(text: Text, start: int) -> tuple[float, int]:
    """Parse a number of any length. Return it and its end, or (0, start) if there is none.

    Digits after the 18th significant one are cut off, which is less than 2^-56 of the value.
    """
    at = start + (text[start] == MINUS or text[start] == PLUS)
    mantissa, exponent, n_digits, past_point = 0, 0, 0, False
    while is_digit(text[at]) or (text[at] == POINT and not past_point):
        if text[at] == POINT:
            past_point = True
        elif mantissa < 10 ** (MAX_DIGITS - 1):
            mantissa = mantissa * 10 + (text[at] - ZERO)
            exponent -= past_point
            n_digits += 1
        else:
            exponent += not past_point
        at += 1
    if n_digits == 0:
        return 0.0, start
    if text[at] == ord("e") or text[at] == ord("E"):
        written, end = parse_exponent(text, at + 1)
        if end == at + 1:
            return 0.0, start
        at, exponent = end, exponent + written
    value = scale(float(mantissa), exponent)
    return -value if text[start] == MINUS else value, at


@njit(cache=True, nogil=True)
def parse_exponent(text: Text, start: int) -> tuple[int, int]:
    """Parse the signed digits after `e`. Return the exponent and its end, or (0, start) if there are none."""
    at = start + (text[start] == MINUS or text[start] == PLUS)
    first = at
    exponent = 0
    while is_digit(text[at]):
        exponent = min(exponent * 10 + (text[at] - ZERO), MAX_EXPONENT)
        at += 1
    if at == first:
        return 0, start
    return -exponent if text[start] == MINUS else exponent, at


@njit(cache=True, nogil=True)
def scale(mantissa: float, exponent: int) -> float:
    """Return mantissa * 10^exponent, correctly rounded if mantissa < 2^53 and |exponent| <= 22.

    In that case both operands are exact (W. D. Clinger, How to read floating point numbers accurately, PLDI 1990).
    Otherwise there are at most four roundings of half a unit of float64, which is 2^-29 units of float32.
    """
    if mantissa == 0.0 or exponent < -616:
        mantissa = 0.0
    elif exponent > 308:
        mantissa = np.inf
    elif exponent >= 0:
        mantissa *= POWERS_OF_TEN[exponent]
    elif exponent >= -308:
        mantissa /= POWERS_OF_TEN[-exponent]
    else:
        mantissa = mantissa / POWERS_OF_TEN[308] / POWERS_OF_TEN[-exponent - 308]
    return mantissa


@njit(cache=True, nogil=True)
def skip_blanks(text: Text, at: int) -> int:
    """Return the place of the next byte that is neither space nor tab nor carriage return."""
    while text[at] == SPACE or text[at] == TAB or text[at] == RETURN:
        at += 1
    return at


@njit(cache=True, nogil=True)
def is_digit(byte: int) -> bool:
    """Tell whether a byte is a digit."""
    return ZERO <= byte <= NINE


@njit(cache=True, nogil=True)
def ends_token(byte: int) -> bool:
    """Tell whether a token ends before this byte."""
    return byte in (SPACE, NEWLINE, TAB, RETURN, HASH)
