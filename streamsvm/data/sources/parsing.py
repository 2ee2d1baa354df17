"""Compiled parsers of numbers and of CSV text. They turn text in memory into arrays in one pass, and do no I/O.

    number =  [+|-] digits [. digits] [e [+|-] digits]        (digits on one side of the point suffice)

`text` is the memory address at which the text begins, and `at` is an offset from this address. If `text` were an array,
compiled code would test whether each offset is negative and count references (atomically) at every call; parsing would
take twice as long. Bounds are not checked. The caller keeps the text in memory, and appends a byte that no number
contains, such as a newline.

The parser of CSV accepts the syntax of Python's csv module, and numbers as in `checks.parse_number`. A block with
anything else is called irregular. It may be malformed, and Python parses it again.

    cell   =  blanks number blanks  |  blanks (true | false) blanks  |  text that does not begin with a quote
           |  " any of these, with two quotes for each quote in the text "

An unquoted cell ends at the newline after the text at the latest, so only the parser of quoted cells checks for the end
of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from streamsvm.data.tables.checks import FLOAT32_OVERFLOW
from streamsvm.numeric.compilation import load_or_compile
from streamsvm.numeric.rows import F64, I32, I64

Text = npt.NDArray[np.uint8]
Address = int

NEWLINE, RETURN, TAB, SPACE = ord("\n"), ord("\r"), ord("\t"), ord(" ")
PLUS, MINUS, POINT, ZERO = ord("+"), ord("-"), ord("."), ord("0")

MAX_DIGITS = 18  # any number of this many digits fits an int64
MAX_EXPONENT = 10**15  # larger exponents are cut to this limit; no run of zeros is long enough to offset them
HALF_SPLIT = float(2**27 + 1)  # a factor that splits a float64 into two numbers of 26 bits
POWERS_OF_TEN = np.array([float(f"1e{k}") for k in range(309)])  # exact up to 10^22


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(_: Any, text: Any, at: Any) -> Any:  # noqa: ARG001
    """Return the byte text[at], where `text` is an address."""

    def write_code(_: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(builder.add(*arguments), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(place), ir.IntType(64))

    return types.int64(types.int64, types.int64), write_code


@njit(cache=True, nogil=True)
def is_digit(byte: int) -> bool:
    """Return whether a byte is a digit. One comparison suffices, since a negative difference is large if unsigned."""
    return bool(np.uint64(byte - ZERO) <= np.uint64(9))


@njit(cache=True, nogil=True)
def parse_digits(text: Address, at: int, limit: int) -> tuple[int, int]:
    """Parse digits. Return their value (negative if it exceeds `limit`) and their end, or (0, at) without digits."""
    value = 0
    while is_digit(byte_at(text, at)):
        if value > limit // 10 or value < 0:  # a further digit could make an overflowed value positive again
            return -1, at
        value = value * 10 + (byte_at(text, at) - ZERO)
        at += 1
    return value if value <= limit else -1, at  # a value just above 2^63 - 1 has overflowed to a negative number


@njit(cache=True, nogil=True)
def parse_decimal(text: Address, start: int) -> tuple[float, int]:
    """Parse a number of at most 18 digits without an exponent. Return it and its end, or (0, start) for other text.

    This is the common case. If the mantissa and the power of ten are exact, their quotient is correctly rounded.
    """
    at = start + (byte_at(text, start) == MINUS or byte_at(text, start) == PLUS)
    first = at
    mantissa, n_decimals = 0, 0
    while is_digit(byte_at(text, at)):
        mantissa = mantissa * 10 + (byte_at(text, at) - ZERO)
        at += 1
    n_digits = at - first
    if byte_at(text, at) == POINT:
        at += 1
        point = at
        while is_digit(byte_at(text, at)):
            mantissa = mantissa * 10 + (byte_at(text, at) - ZERO)
            at += 1
        n_decimals = at - point
        n_digits += n_decimals
    if n_digits == 0 or n_digits > MAX_DIGITS:  # not a number, or the mantissa may have overflowed
        return 0.0, start
    value = mantissa / POWERS_OF_TEN[n_decimals]
    return -value if byte_at(text, start) == MINUS else value, at


@njit(cache=True, nogil=True)
def parse_number(text: Address, start: int) -> tuple[float, int]:
    """Parse a number of any length. Return it and its end, or (0, start) if the text is not a number.

    Digits after the 18th significant one are cut off; together they are less than 2^-56 of the value.
    """
    at = start + (byte_at(text, start) == MINUS or byte_at(text, start) == PLUS)
    mantissa, exponent, n_digits, past_point = 0, 0, 0, False
    while is_digit(byte_at(text, at)) or (byte_at(text, at) == POINT and not past_point):
        if byte_at(text, at) == POINT:
            past_point = True
        elif mantissa < 10 ** (MAX_DIGITS - 1):
            mantissa = mantissa * 10 + (byte_at(text, at) - ZERO)
            exponent -= past_point
            n_digits += 1
        else:
            exponent += not past_point
        at += 1
    if n_digits == 0:
        return 0.0, start
    if byte_at(text, at) == ord("e") or byte_at(text, at) == ord("E"):
        written, end = parse_exponent(text, at + 1)
        if end == at + 1:
            return 0.0, start
        at, exponent = end, exponent + written
    value = scale(mantissa, exponent)
    return -value if byte_at(text, start) == MINUS else value, at


@njit(cache=True, nogil=True)
def parse_exponent(text: Address, start: int) -> tuple[int, int]:
    """Parse the signed digits after `e`. Return the exponent and its end, or (0, start) if there are no digits."""
    at = start + (byte_at(text, start) == MINUS or byte_at(text, start) == PLUS)
    first = at
    exponent = 0
    while is_digit(byte_at(text, at)):
        exponent = min(exponent * 10 + (byte_at(text, at) - ZERO), MAX_EXPONENT)
        at += 1
    if at == first:
        return 0, start
    return -exponent if byte_at(text, start) == MINUS else exponent, at


@njit(cache=True, nogil=True)
def scale(mantissa: int, exponent: int) -> float:
    """Return mantissa * 10^exponent; for |exponent| <= 264 it is rounded as in Python.

    In that range, a second number holds the error of each rounding, since powers up to 10^22 are exact (W. D. Clinger,
    How to read floating point numbers accurately, PLDI 1990). Outside that range, at most four roundings each add an
    error of half a unit in the last place of float64; such a unit is 2^-29 units in the last place of float32.
    """
    high = float(mantissa)
    if abs(exponent) > 264:
        if mantissa == 0 or exponent < -616:
            return 0.0
        if exponent > 0:
            high *= POWERS_OF_TEN[exponent] if exponent <= 308 else np.inf
        else:
            high = high / POWERS_OF_TEN[min(-exponent, 308)] / POWERS_OF_TEN[max(-exponent - 308, 0)]
        return high
    low = float(mantissa - int(high))
    while exponent != 0:
        step = min(abs(exponent), 22)
        power = POWERS_OF_TEN[step]
        if exponent > 0:
            scaled = high * power
            low = find_rounding(high, power, scaled) + low * power
            exponent -= step
        else:
            scaled = high / power
            low = ((high - scaled * power) - find_rounding(scaled, power, scaled * power) + low) / power
            exponent += step
        high = scaled + low
        low -= high - scaled
    return high


@njit(cache=True, nogil=True)
def find_rounding(a: float, b: float, product: float) -> float:
    """Return a b - product exactly; `product` is a b rounded to float64 (T. J. Dekker, Numer. Math. 18, 1971)."""
    a_high, b_high = a * HALF_SPLIT - (a * HALF_SPLIT - a), b * HALF_SPLIT - (b * HALF_SPLIT - b)
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


QUOTE = ord('"')
NO_QUOTE = -1  # in place of QUOTE if no cell is quoted; no byte equals it
TRUE, FALSE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"false", np.uint8)
LOWER = 32  # the bit that makes an ASCII letter lower case
SKIPPED = -1  # marks a column that is not read; lower numbers mark columns of words
MOST_CELL_BYTES = 1 << 17  # Python's csv module has the same limit, in characters; longer cells are left to Python
MOST_DOUBTS = 4096  # the maximum number of values in a block that Python rounds
EXACT_CHARACTERS = 15  # numbers of at most this length, without exponents, are correctly rounded
ROUNDING = 2.0**-50  # bound of the relative error of all other numbers: four roundings, and the digits that are cut off


# The features of a block, (rows, d), and for each column of words a pair: the concatenated bytes of its cells, and the
# boundaries of the cells in these bytes, (rows + 1,).
ParsedTable = tuple[F64, list[tuple[Text, I32]]]


def parse_table(
    text: bytearray,
    n_lines: int,
    delimiter: str,
    features: Sequence[int],
    words: Sequence[int],
    n_columns: int,
    quotes: bool = True,
) -> ParsedTable | None:
    """Parse `n_lines` whole lines followed by an empty line. Return None if there are no rows, or irregular rows.

    features, words: the columns that are read as numbers and as text. A feature with up to 15 digits equals
    float(token); the float32 of any other feature equals float32(float(token)) bit by bit. quotes: see Dialect.
    """
    buffer = np.frombuffer(text, np.uint8)
    places = np.full(n_columns, SKIPPED)
    places[list(features)] = np.arange(len(features))
    places[list(words)] = SKIPPED - 1 - np.arange(len(words))
    n_lines = min(n_lines, len(text) // n_columns)  # a whole row has at least one byte for each column
    X = np.empty((n_lines + 1, len(features)))
    starts = np.empty((len(words), n_lines + 2), np.int32)
    sizes = np.zeros(len(words), np.int64)
    doubts = np.empty((MOST_DOUBTS, 4), np.int32)
    marks = ord(delimiter), QUOTE if quotes else NO_QUOTE
    n_rows, n_doubts = parse_cells(buffer.ctypes.data, buffer.size, *marks, places, X, starts, sizes, doubts)
    if n_rows <= 0:
        return None
    for row, j, start, stop in doubts[:n_doubts].tolist():
        X[row, j] = float(text[start:stop])
    if (np.abs(X[doubts[:n_doubts, 0], doubts[:n_doubts, 1]]) >= FLOAT32_OVERFLOW).any():
        return None
    columns = []
    for limits, size in zip(starts[:, : n_rows + 1], sizes, strict=True):
        cells = np.empty(size, np.uint8)
        copy_cells(buffer, *marks, limits, cells)
        columns.append((cells[: limits[-1]], limits))
    return X[:n_rows], columns


def count_line_ends(text: bytearray) -> int:
    """Return the number of line ends. The final newline does not count, unless it turns a CR into CR LF."""
    return int(count_ends(np.frombuffer(text, np.uint8))) - (text[-2:] != b"\r\n")


@njit(cache=True, nogil=True)
def count_ends(text: Text) -> int:
    """Count the line ends (LF, CR LF and CR). The loop has no branches, and is therefore vectorised."""
    before, after = text[:-1], text[1:]
    count = int(text[-1] == NEWLINE)
    for k in range(before.size):
        count += int((before[k] == NEWLINE) | ((before[k] == RETURN) & (after[k] != NEWLINE)))
    return count


@njit(cache=True, nogil=True)
def find_row_end(text: Address, size: int, delimiter: int, quote: int, ended: bool, is_first: bool) -> tuple[int, int]:
    """Return the end of the last whole row (of the first one if `is_first`), and the start of an open quoted value.

    The end is 0 without a whole row, and the start is -1 if every quoted value ends. ended: whether the file ends with
    this text. If not, a CR at the end may be the first half of CR LF.
    """
    at, end, begins = 0, 0, True
    while at < size:
        byte = byte_at(text, at)
        if byte == quote and begins:
            opened = at
            at += 1
            while at < size and (byte_at(text, at) != quote or (at + 1 < size and byte_at(text, at + 1) == quote)):
                at += 1 + (byte_at(text, at) == quote)
            if at == size:
                return end, opened
        elif byte == NEWLINE or (byte == RETURN and (byte_at(text, at + 1) != NEWLINE if at + 1 < size else ended)):
            end = at + 1
            if is_first:
                return end, -1
        begins = ends_cell(byte, delimiter)
        at += 1
    return end, -1


def mark_columns(text: bytearray, quotes: bool) -> bytearray:
    """Put a tab before each cell of a row but the first, and spaces in place of all other blanks; return the text.

    The length of the text stays. Quotes that enclose a cell keep its blanks; they end with their line at the latest,
    and move to the tabs beside them, since no blank may stand between.
    """
    mark_cells(np.frombuffer(text, np.uint8), QUOTE if quotes else NO_QUOTE)
    return text


@njit(cache=True, nogil=True)
def mark_cells(text: Text, quote: int) -> None:
    """See `mark_columns`. quote: QUOTE or NO_QUOTE."""
    begin, closed, in_row, in_quotes = 0, -1, False, False  # closed: the closing quote before the blanks here, or -1
    for at in range(text.size):
        byte = text[at]
        ends_row = byte in (NEWLINE, RETURN)
        if in_quotes and not ends_row:
            if byte == quote:
                in_quotes, closed = False, at
            continue
        if byte in (SPACE, TAB):
            text[at] = SPACE
            continue
        is_doubled = byte == quote and closed == at - 1 >= 0  # two quotes represent one
        last = at - 1 if ends_row else at - 2
        if 0 <= closed < last:
            text[closed], text[last] = SPACE, quote
        if in_row and not ends_row and text[at - 1] == SPACE:
            text[at - 1] = TAB
        in_quotes = byte == quote and (not in_row or text[at - 1] == TAB or is_doubled)
        if in_quotes and not in_row:
            text[at], text[begin] = SPACE, quote
        begin, closed, in_row = at + 1 if ends_row else begin, -1, not ends_row


@njit(cache=True, nogil=True, error_model="numpy")
def parse_cells(
    text: Address, size: int, delimiter: int, quote: int, places: I64, X: F64, starts: I32, sizes: I64, doubts: I32
) -> tuple[int, int]:
    """Fill X; for columns of words, fill `starts` with the starts of the cells, and `sizes` with their total lengths.

    Return the number of rows (-1 if the text is irregular) and the number of values in doubt. A value is in doubt if it
    may lie halfway between two float32 numbers; its row, feature, start and end are then recorded in `doubts`.
    """
    at, row, n_doubts = np.int64(0), 0, 0  # with the literal 0, the parsers would be compiled for a second type
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
                    value, start, end, stop = parse_feature(text, at, delimiter, quote)
                    X[row, place] = value
                    if is_in_doubt(value):
                        if n_doubts == MOST_DOUBTS:
                            return -1, 0
                        doubts[n_doubts, 0], doubts[n_doubts, 1] = row, place
                        doubts[n_doubts, 2], doubts[n_doubts, 3] = start, end
                        n_doubts += 1
            else:
                start, end, stop = find_cell(text, size, at, delimiter, quote)
                if place < SKIPPED:
                    k = SKIPPED - 1 - place
                    starts[k, row] = start
                    sizes[k] += end - start
            if stop < 0 or stop - at > MOST_CELL_BYTES or (byte_at(text, stop) == delimiter) != (j < places.size - 1):
                return -1, 0
            at = stop + 1
        row += 1
    return row, n_doubts


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def parse_short_number(text: Address, at: int) -> tuple[float, int]:
    """Parse a number of at most EXACT_CHARACTERS without an exponent. Return it and its end, or (0, at) for other text.

    Nearly all numbers have this form. Mantissa and power of ten are then exact, and the division rounds correctly.
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
def parse_feature(text: Address, at: int, delimiter: int, quote: int) -> tuple[float, int, int, int]:
    """Return the value of the cell at `at`, the start and end of its number, and the cell's end (-1: irregular)."""
    quoted = byte_at(text, at) == quote
    start = skip_blanks(text, at + quoted, delimiter)
    value, end = parse_number(text, start)
    if end == start:
        value, end = parse_boolean(text, start)
    stop = find_stop(text, end, delimiter, quoted)
    if end == start or not abs(value) < FLOAT32_OVERFLOW:
        stop = -1
    return value, start, end, stop


@njit(cache=True, nogil=True)
def find_stop(text: Address, end: int, delimiter: int, quoted: bool) -> int:
    """Return the place of the delimiter or line end after a number that ends at `end`; -1 if other text follows."""
    stop = skip_blanks(text, end, delimiter)
    if quoted:
        if byte_at(text, stop) != QUOTE:
            return -1
        stop += 1
    return stop if ends_cell(byte_at(text, stop), delimiter) else -1


@njit(cache=True, nogil=True)
def find_cell(text: Address, size: int, at: int, delimiter: int, quote: int) -> tuple[int, int, int]:
    """Return the start and end of the text in the cell at `at`, and the end of the cell (-1: irregular)."""
    start = end = at
    if byte_at(text, at) != quote:
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
def copy_cells(text: Text, delimiter: int, quote: int, limits: I32, cells: Text) -> None:
    """Copy the cells of a column, concatenated, to `cells`. Two quotes within a quoted cell become one quote.

    limits: an array that holds, on entry, the starts of the cells in the text and, on return, the boundaries of the
    cells in `cells`.
    """
    to = 0
    for row in range(limits.size - 1):
        at = limits[row]
        limits[row] = to
        quoted = at > 0 and text[at - 1] == quote
        while (text[at] != QUOTE or text[at + 1] == QUOTE) if quoted else not ends_cell(text[at], delimiter):
            cells[to] = text[at]
            to += 1
            at += 1 + (quoted and text[at] == QUOTE)
    limits[-1] = to


@njit(cache=True, nogil=True)
def parse_boolean(text: Address, at: int) -> tuple[float, int]:
    """Parse `true` or `false`, in upper or lower case. Return 1 or 0 and its end, or (0, at) for other text."""
    is_true = byte_at(text, at) | LOWER == TRUE[0]
    word = TRUE if is_true else FALSE
    for k in range(word.size):
        if byte_at(text, at + k) | LOWER != word[k]:
            return 0.0, at
    return (1.0 if is_true else 0.0), at + word.size


@njit(cache=True, nogil=True)
def is_in_doubt(value: float) -> bool:
    """Return whether a value may lie on either side of the middle between two float32 numbers, given its error."""
    return bool(np.float32(value * (1 - ROUNDING)) != np.float32(value * (1 + ROUNDING)))


@njit(cache=True, nogil=True)
def skip_blanks(text: Address, at: int, delimiter: int) -> int:
    """Return the place of the next byte that is not blank. A tab is blank unless it is the delimiter."""
    while byte_at(text, at) == SPACE or (byte_at(text, at) == TAB and delimiter != TAB):
        at += 1
    return at


@njit(cache=True, nogil=True)
def ends_cell(byte: int, delimiter: int) -> bool:
    """Return whether an unquoted cell ends before this byte."""
    return byte == delimiter or byte == NEWLINE or byte == RETURN  # noqa: PLR1714


PARSERS = ("svmlight", "csv", "hash")
ROWS = "rows"  # the functions that count and permute rows in an ingest


def compile_parser(*names: str) -> None:
    """Load the compiled functions of the formats, and compile the functions that the cache lacks."""
    load_or_compile(tuple(name for name in names if name in (*PARSERS, ROWS)), run_parser, in_child=False)


def run_parser(name: str) -> None:
    """Call the functions of a format (or ROWS) on one row, which compiles them."""
    if name == "svmlight":
        from streamsvm.data.sources.svmlight import parse_lines

        for lists in (False, True):
            parse_lines(np.frombuffer(bytearray(b"1 1:1\n"), np.uint8), lists=lists)
    elif name == "csv":
        text = bytearray(b"1,a\n\n")
        parse_table(text, count_line_ends(text), ",", [0], [1], 2)
        find_row_end(np.frombuffer(text, np.uint8).ctypes.data, len(text), ord(","), QUOTE, True, True)
        mark_columns(text, True)
    elif name == ROWS:
        from streamsvm.numeric.rows import CsrRows, count_nonzeros, permute_rows, permute_to_dense

        order, dense = np.zeros(1, np.int64), np.ones((1, 1), np.float32)
        sparse = CsrRows(np.ones(1, np.float32), np.zeros(1, np.int32), np.array([0, 1]), 1)
        permute_rows(sparse, order)
        permute_rows(dense, order)
        permute_to_dense(sparse, order, 1)
        count_nonzeros(dense)
    else:
        from streamsvm.numeric.encoding import hash_texts

        hash_texts(np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.zeros(2, np.int32), 0)
