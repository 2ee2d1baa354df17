"""The reader of svmlight/libsvm text. Compiled code parses it on all cores, one block of lines at a time.

    row    =  label [qid:N] index:value index:value ... [# comment]
    row    =  [label,label,...] index:value index:value ...                    (lists of labels, if requested)
    label  =  number              (float64)
    N      =  [+|-] digits        (int64)
    index  =  digits              (base to base + 2^31 - 2, strictly ascending within the row; 0-based in the arrays)
    value  =  number              (float64, within the range of float32)
    number                        (see data.sources.parsing)

Tokens are separated by spaces and tabs. A carriage return counts as a space. Within a comment, it is refused: it may be
meant to end a line, and the comment would hide the rows after it. Lines that are blank or hold only a comment are not
rows. Either all rows have `qid:`, or none.

Features are numbered from the base, 1 or 0.

Bounds are not checked, because the text ends in a newline and no token extends past a newline.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.sparse import csr_array

from streamsvm.data.remote.files import find_size
from streamsvm.data.rows.source import LabelLists, Labels, SourceRows
from streamsvm.data.sources import parsing
from streamsvm.data.sources import text as texts
from streamsvm.data.sources.formats import HEAD_BYTES, explain_foreign
from streamsvm.data.sources.parsing import NEWLINE, RETURN, SPACE, TAB, Address, Text, byte_at, is_digit, parse_number
from streamsvm.data.tables.checks import FIRST_MERGED, FLOAT32_OVERFLOW, MERGED, show_text
from streamsvm.numeric.rows import F64, I32, I64
from streamsvm.system.errors import InputError, NeedsOptionError
from streamsvm.system.files import is_remote
from streamsvm.system.threads import unjoined_pool, work_ahead

HASH, COLON, COMMA = ord("#"), ord(":"), ord(",")

# Error codes of the token at `error_at`.
OK, BAD_LABEL, BAD_QID, MISSING_QID, UNEXPECTED_QID, BAD_INDEX, BAD_VALUE, NUL_BYTE, LONE_RETURN = range(9)

# Whether the rows have `qid:`; undecided until the first row.
QID_UNDECIDED, QID_ABSENT, QID_PRESENT = range(3)

MAX_INDEX = 2**31 - 1
LEAST_QID, MAX_QID = -(2**63), 2**63 - 1
SHORT_INDEX = 9  # an index with this number of digits cannot be too large


MAX_LINE_BYTES = 1 << 30
LOOKED_AT_BYTES = 1 << 20  # the first bytes of a file that show whether its features are numbered from 0
FROM_0 = "--base 0 reads files whose features are numbered from 0 (base=0 in Python)"
SHOWN_CHARACTERS = 40  # the maximum number of characters of a token in a message
LABEL_LIST = re.compile(r"[+-]?[0-9.]+(,[+-]?[0-9.]+)+")
QID_FAULTS = {
    BAD_QID: "a query id is a whole number of 64 bits",
    MISSING_QID: "qid is missing here, but rows above have one (all rows need one, or none)",
    UNEXPECTED_QID: "unexpected, since rows above have no qid (all rows need one, or none)",
}


@dataclass(frozen=True)
class Block:
    """Whole lines of one file."""

    file: str
    text: npt.NDArray[np.uint8]  # empty, or ending in a newline
    line: int  # the number of lines before it in the file
    last: bool = False  # the file ends here
    start: int = 0  # the byte of the file at which its text begins; a byte order mark is not part of the text

    @property
    def n_lines(self) -> int:
        """The number of lines."""
        return int(np.count_nonzero(self.text == NEWLINE))


def read_svmlight(
    sources: Sequence[str | Path], threads: int, block_bytes: int = 8 << 20, lists: bool = False, base: int = 1
) -> Generator[SourceRows, None, None]:
    """Yield the rows of svmlight/libsvm text, one source after another (see the grammar above).

    A source is a file, plain or compressed (.gz, .bz2, .xz), or "-" for standard input. The text is cut into blocks of
    about `block_bytes`. One of `threads` threads parses a block into a SourceRows while the next blocks are read, and
    at most `threads + 2` blocks are in memory. The cuts depend on the bytes alone, and so the rows do not depend on
    `threads`.

    Raises InputError with FILE:LINE:COLUMN (from 1) and reason for the first bad token, or with the name of an
    unreadable file and the reason. All earlier blocks have been yielded by then.
    """
    require_existing(sources)
    with closing(read_blocks(sources, block_bytes, MAX_LINE_BYTES)) as blocks:
        yield from parse_blocks(blocks, threads, lists, base=base)


def find_base(source: str | Path, lists: bool) -> int:
    """Return 0 if a feature 0 occurs in the first rows of a file, and otherwise 1, also for a stream."""
    if is_remote(source) or Path(source).is_file():
        with suppress(InputError), closing(read_blocks([source], LOOKED_AT_BYTES, MAX_LINE_BYTES)) as blocks:
            return int(0 not in parse_lines(next(blocks).text, lists=lists, base=0).indices)
    return 1


def parse_blocks(
    blocks: Iterator[Block], threads: int, lists: bool = False, qid_rule: int = QID_UNDECIDED, base: int = 1
) -> Generator[SourceRows, None, None]:
    """Yield the rows of blocks; see read_svmlight. qid_rule: whether the rows of earlier blocks have `qid:`."""
    n_rows = 0
    with unjoined_pool(threads, "svmlight") as pool:
        each = work_ahead(blocks, lambda block: parse_lines(block.text, lists=lists, base=base), pool, threads + 2)
        for block, parsed in each:
            if QID_UNDECIDED not in (qid_rule, parsed.qid_rule) and parsed.qid_rule != qid_rule:
                again = parse_lines(block.text, qid_rule, lists, base)  # finds the missing or unexpected qid
                raise _refuse(block, again, base)
            if parsed.error != OK:
                raise _refuse(block, parsed, base)
            qid_rule = max(qid_rule, parsed.qid_rule)
            n_rows += len(parsed.indptr) - 1
            if len(parsed.indptr) > 1:
                yield _rows_of(block, parsed, lists)
            if block.last and n_rows == 0:
                raise InputError(f"{block.file}: no rows in this file")
            n_rows = 0 if block.last else n_rows
            del block, parsed  # frees the memory before the next block is read


def _rows_of(block: Block, parsed: ParsedLines, lists: bool) -> SourceRows:
    indptr = parsed.indptr.astype(np.int32)  # with int64, SciPy would widen the indices, too
    X = csr_array((parsed.values, parsed.indices, indptr), shape=(len(indptr) - 1, parsed.n_columns))
    X.has_canonical_format = True  # the parser has checked the order, so SciPy does not check it again
    labels: Labels = LabelLists(parsed.labels, parsed.label_limits) if lists else parsed.labels
    qid = parsed.qid if parsed.qid_rule == QID_PRESENT else None
    return SourceRows(X, labels, qid, merged=_find_merged(block, parsed))


def _find_merged(block: Block, parsed: ParsedLines) -> npt.NDArray[np.str_] | None:
    """Return an error message, (1,), if float64 merges a label with a neighbour, otherwise None; see SourceRows."""
    bad = np.flatnonzero(np.abs(parsed.labels) >= FIRST_MERGED)
    if not len(bad):
        return None
    row = int(np.searchsorted(parsed.label_limits, bad[0], "right")) - 1
    lines = enumerate(block.text.tobytes().decode(errors="replace").split("\n"), block.line + 1)
    at, line = next(islice(((at, line) for at, line in lines if line.split("#")[0].strip()), row, None))
    return np.array([f"{block.file}:{at}:1: the label {show_text(line.split()[0])} {MERGED}"])


def require_existing(sources: Sequence[str | Path]) -> None:
    """Raise InputError for a missing file, before hours are spent on reading other files."""
    for source in sources:
        if str(source) != "-":
            try:
                find_size(source)
            except OSError as error:
                raise InputError(f"{source}: {texts.explain_reading(error)}") from error


def read_blocks(sources: Sequence[str | Path], block_bytes: int, most_bytes: int) -> Generator[Block, None, None]:
    """Yield the blocks of every source. Raises InputError for unreadable sources and lines of `most_bytes` or more."""
    for source in sources:
        name = "<stdin>" if str(source) == "-" else str(source)
        try:
            with texts.open_text(source) as file:
                yield from _cut_blocks(name, file, block_bytes, most_bytes)
        except texts.READING_ERRORS as error:
            raise InputError(f"{name}: {texts.explain_reading(error)}") from error


def _cut_blocks(name: str, file: io.BufferedIOBase, block_bytes: int, most_bytes: int) -> Iterator[Block]:
    """Read `block_bytes` at a time, and cut after the last newline. If a line is longer, the size of reads doubles."""
    rest, line = np.empty(0, np.uint8), 0
    mark = -1  # the byte order mark is found by the first read, and precedes only the first block
    while True:
        read_bytes = max(block_bytes, min(len(rest), most_bytes - len(rest)))
        more = texts.read_bytes(file, read_bytes)
        text = np.append(rest, np.frombuffer(more, np.uint8))  # NumPy allocates huge pages, and a bytearray does not
        mark = texts.find_mark(text[: texts.MARK_BYTES].tobytes()) if mark < 0 else mark
        if len(more) < read_bytes:  # a file may end without a newline
            yield Block(name, np.append(text[mark:], np.uint8(NEWLINE)), line, last=True, start=mark)
            return
        end = more.rfind(b"\n") + 1
        cut = len(rest) + end if end else 0
        rest = text[cut:].copy()
        del more
        if cut:
            block = Block(name, text[mark:cut], line, start=mark)
            line, mark = line + block.n_lines, 0
            yield block
        if len(rest) >= most_bytes:
            raise InputError(f"{name}:{line + 1}:1: line of {most_bytes:,} bytes or more")


def _refuse(block: Block, parsed: ParsedLines, base: int) -> InputError:
    """Return the error for the bad token of a block, with FILE:LINE:COLUMN and the fault."""
    text, at = block.text.tobytes(), parsed.error_at
    line = block.line + text.count(b"\n", 0, at) + 1
    before = text[text.rfind(b"\n", 0, at) + 1 : at].decode(errors="replace")
    token = re.split(rb"[ \t\r\n#]", text[at : text.find(b"\n", at)], maxsplit=1)[0].decode(errors="replace")
    is_list = parsed.error == BAD_LABEL and LABEL_LIST.fullmatch(token)
    first = parsed.error == BAD_LABEL and block.line == 0 and len(parsed.indptr) == 1
    advice = explain_foreign(text[:HEAD_BYTES]) if first and not is_list else ""
    kind = NeedsOptionError if is_list or advice else InputError
    why = _explain_token(parsed.error, token, before, base)
    return kind(f"{block.file}:{line}:{len(before) + 1}: {why}{advice and '; the text '}{advice}")


def _explain_token(error: int, token: str, before: str, base: int) -> str:
    """Describe the fault of a token. before: the part of the line before the token."""
    index, _, value = token.partition(":")
    if not token.isprintable() or "\N{REPLACEMENT CHARACTER}" in token:
        return f"{_show_token(token)} is not text (binary data?)"
    if error == LONE_RETURN:
        return "a carriage return within a comment: lines have to end with a newline"
    if error == BAD_LABEL:
        if LABEL_LIST.fullmatch(token):
            why = "is a list of labels: use --multi-label (multi_label=True) for lists, --format csv for tables"
        else:
            why = _explain_number(token, "float64")
        return f"label {_show_token(token)} {why}"
    if error == BAD_VALUE:
        return f"value {_show_token(value)} of index {index} {_explain_number(value, 'float32')}"
    if error == BAD_INDEX:
        return _explain_index(token, index, before, base)
    return f"{_show_token(token)}: {QID_FAULTS[error]}"


def _explain_index(token: str, index: str, before: str, base: int) -> str:
    """Describe the fault of the index in the token of a pair. before: the part of the line before the token."""
    if ":" not in token:
        return f"{_show_token(token)} has no colon, index:value expected; --format csv reads tables of numbers"
    if not (index.isascii() and index.isdigit()):
        return f"index {_show_token(index)} of {_show_token(token)} is not a whole number"
    digits = index.lstrip("0")
    if not digits and base == 1:
        return f"index 0 in {_show_token(token)}: features are numbered from 1 here; {FROM_0}"
    if len(digits) > len(str(MAX_INDEX)) or int(digits or 0) - base >= MAX_INDEX:
        return f"index {_show_token(index)} is too large; the largest is {MAX_INDEX + base - 1}"
    previous = int(before.rsplit(maxsplit=1)[-1].partition(":")[0])
    kind = "duplicate" if int(digits or 0) == previous else "descending"
    return f"{kind} index {index} in {_show_token(token)}: the one before it is {previous}"


def _explain_number(token: str, dtype: str) -> str:
    """Explain why a token is not a finite number of this dtype."""
    try:
        number = float(token)
    except ValueError:
        return "is not a number"
    if math.isnan(number):
        return "is nan"
    if "inf" in token.lower():
        return "is infinite"
    if math.isinf(number) or (dtype == "float32" and abs(number) >= FLOAT32_OVERFLOW):
        return f"overflows {dtype}"
    return "is not a number"  # spellings that only Python accepts, such as 1_000


def _show_token(token: str) -> str:
    return repr(token if len(token) <= SHOWN_CHARACTERS else token[: SHOWN_CHARACTERS - 3] + "...")


class ParsedLines(NamedTuple):
    """Rows in CSR form; after an error, the rows before the bad token, and the position of the token."""

    labels: F64  # (rows,), or the labels in all lists, concatenated
    label_limits: I64  # (rows + 1,), the boundaries of the lists in `labels`
    qid: I64  # (rows,), valid if qid_rule is QID_PRESENT
    indptr: I64  # (rows + 1,)
    indices: I32  # (pairs,), 0-based
    values: F64  # (pairs,)
    n_columns: int  # largest index, counted from 1
    qid_rule: int  # QID_UNDECIDED, QID_ABSENT or QID_PRESENT
    error: int  # OK, or one of the codes above
    error_at: int  # byte where the bad token starts, or the end of the text


def parse_lines(text: Text, qid_rule: int = QID_UNDECIDED, lists: bool = False, base: int = 1) -> ParsedLines:
    """Parse whole lines; `text` (C-contiguous, writable) is empty or ends in a newline.

    qid_rule: whether the rows above have `qid:`. lists: whether rows have lists of labels. base: the number of the
    first feature, 0 or 1. Bad text does not raise an error: `error` and `error_at` describe the first bad token. The
    float32 of a value differs from float32(float(token)) by at most one unit in the last place. The two are equal for
    numbers with up to 15 digits and a power of ten up to 22.
    """
    parsed: ParsedLines = parse_rows(text, qid_rule, lists, base)
    return parsed


@njit(cache=True, nogil=True)
def parse_rows(lines: Text, qid_rule: int, lists: bool, base: int) -> ParsedLines:
    """Count lines and pairs, allocate the arrays, and fill them row by row up to the first error."""
    n_lines, n_pairs = count_byte(lines, NEWLINE), count_byte(lines, COLON)
    labels = np.empty(n_lines + (count_byte(lines, COMMA) if lists else 0), np.float64)
    label_limits, indptr = np.zeros(n_lines + 1, np.int64), np.zeros(n_lines + 1, np.int64)
    qid, indices, values = np.empty(n_lines, np.int64), np.empty(n_pairs, np.int32), np.empty(n_pairs, np.float64)
    text, size = np.int64(lines.ctypes.data), lines.size
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
                error, at, indptr[rows + 1], last = parse_pairs(text, at, indptr[rows], indices, values, base)
            if error != OK:
                break
            n_columns = max(n_columns, last - base + 1)
            rows += 1
        while byte_at(text, at) != NEWLINE and byte_at(text, at) != 0 and byte_at(text, at) != RETURN:  # skip a comment
            at += 1
        end = skip_blanks(text, at)
        if byte_at(text, end) != NEWLINE:
            error = NUL_BYTE if byte_at(text, at) == 0 else LONE_RETURN
            break
        at = end + 1
    labels, indices, values = labels[: label_limits[rows]], indices[: indptr[rows]], values[: indptr[rows]]
    limits, starts = label_limits[: rows + 1], indptr[: rows + 1]
    return ParsedLines(labels, limits, qid[:rows], starts, indices, values, n_columns, qid_rule, error, at)


@njit(cache=True, nogil=True)
def count_byte(text: Text, wanted: int) -> int:
    """Count the occurrences of a byte, to size the arrays. This takes a thirtieth of the parsing time."""
    count = 0
    for byte in text:
        count += byte == wanted
    return count


@njit(cache=True, nogil=True)
def parse_label(text: Address, at: int) -> tuple[int, int, float]:
    """Parse the label at `at`. Return (error, end of the label or start of the bad token, label)."""
    label, end = parse_number(text, at)
    if end == at or not ends_token(byte_at(text, end)) or not abs(label) < np.inf:
        return BAD_LABEL, at, label
    return OK, end, label


@njit(cache=True, nogil=True)
def parse_label_list(text: Address, at: int, n_labels: int, labels: F64) -> tuple[int, int, int]:
    """Append the labels of a list. Return (error, end of the list or start of the bad token, number of labels so far).

    The list is empty if the first token of the row is a pair, or if the row has no tokens.
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
    """Parse `qid:N` if it comes next. Return (error, end of `qid:N` or start of the bad token, qid_rule, N)."""
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
    negative = byte_at(text, start) == parsing.MINUS
    start += negative or byte_at(text, start) == parsing.PLUS
    qid, end = parsing.parse_digits(text, start, MAX_QID)
    is_least = negative and qid == LEAST_QID  # 2^63 overflows to LEAST_QID, and negation leaves that unchanged
    if end == start or (qid < 0 and not is_least) or not ends_token(byte_at(text, end)):
        return BAD_QID, at, qid_rule, 0
    return OK, end, QID_PRESENT, -qid if negative else qid


@njit(cache=True, nogil=True)
def parse_pairs(text: Address, at: int, pairs: int, indices: I32, values: F64, base: int) -> tuple[int, int, int, int]:
    """Append the pairs of a row. Return (error, end of the row or start of the bad token, number of pairs, last index).

    The number of pairs includes the pairs of earlier rows.
    """
    previous = base - 1
    while True:
        at = skip_blanks(text, at)
        if byte_at(text, at) == NEWLINE or byte_at(text, at) == HASH:
            return OK, at, pairs, previous
        index, colon = parse_index(text, at)
        if byte_at(text, colon) != COLON or colon == at or index <= previous or index - base >= MAX_INDEX:
            return BAD_INDEX, at, pairs, previous
        value, end = parse_value(text, colon + 1)
        if not ends_token(byte_at(text, end)):  # a long number, a number with an exponent, or no number
            value, end = parse_number(text, colon + 1)
        if end == colon + 1 or not ends_token(byte_at(text, end)) or not abs(value) < FLOAT32_OVERFLOW:
            return BAD_VALUE, at, pairs, previous
        indices[pairs] = index - base
        values[pairs] = value
        pairs += 1
        previous = index
        at = end


@njit(cache=True, nogil=True)
def parse_index(text: Address, at: int) -> tuple[int, int]:
    """Parse an index as parse_digits(text, at, MAX_INDEX) does, without comparing every digit with the limit."""
    index, end = 0, at
    while is_digit(byte_at(text, end)):
        index = index * 10 + (byte_at(text, end) - parsing.ZERO)
        end += 1
    if end - at > SHORT_INDEX:
        index, end = parsing.parse_digits(text, at, MAX_INDEX)
    return index, end


@njit(cache=True, nogil=True)
def parse_value(text: Address, at: int) -> tuple[float, int]:
    """Parse a value as `parse_decimal` does, with a fast path for single digits; one-hot and text data have many."""
    if byte_at(text, at) != NEWLINE and byte_at(text, at + 1) == SPACE and is_digit(byte_at(text, at)):
        value, end = float(byte_at(text, at) - parsing.ZERO), at + 1
    else:
        value, end = parsing.parse_decimal(text, at)
    return value, end


@njit(cache=True, nogil=True)
def skip_blanks(text: Address, at: int) -> int:
    """Return the place of the next byte that is not a space, tab or carriage return."""
    while byte_at(text, at) == SPACE or byte_at(text, at) == TAB or byte_at(text, at) == RETURN:
        at += 1
    return at


@njit(cache=True, nogil=True)
def ends_token(byte: int) -> bool:
    """Return whether a token ends before this byte."""
    return byte == SPACE or byte == NEWLINE or byte == TAB or byte == RETURN or byte == HASH  # noqa: PLR1714
