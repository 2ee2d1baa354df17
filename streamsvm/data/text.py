"""The reader of svmlight/libsvm text, which parses blocks of lines on all cores and yields them in order."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data import svmlight
from streamsvm.data.foreign_text import HEAD_BYTES, explain_foreign
from streamsvm.data.label_lists import LabelLists
from streamsvm.data.labels import MERGED
from streamsvm.data.remote_files import find_size
from streamsvm.data.source_rows import Labels, SourceRows
from streamsvm.data.svmlight import ParsedLines, parse_lines
from streamsvm.data.text_files import MARK_BYTES, READING_ERRORS, explain_reading, fill, find_mark, open_text
from streamsvm.data.text_numbers import MIN_FLOAT32_OVERFLOW, NEWLINE
from streamsvm.data.values import FIRST_MERGED, show_text
from streamsvm.data.work_ahead import unjoined_pool, work_ahead
from streamsvm.errors import InputError, NeedsOptionError

MAX_LINE_BYTES = 1 << 30
SHOWN_CHARACTERS = 40  # of a token in a message
LABEL_LIST = re.compile(r"[+-]?[0-9.]+(,[+-]?[0-9.]+)+")
QID_FAULTS = {
    svmlight.BAD_QID: "a query id is a whole number of 64 bits",
    svmlight.MISSING_QID: "qid is missing here, rows above have one (all rows have one, or none)",
    svmlight.UNEXPECTED_QID: "unexpected, rows above have no qid (all rows have one, or none)",
}


@dataclass(frozen=True)
class Block:
    """Whole lines of one file, or the reason why there are no more."""

    file: str
    text: npt.NDArray[np.uint8]  # it is empty or ends in a newline
    last: bool = False  # the file ends here
    overlong: bool = False  # the next line has at least MAX_LINE_BYTES
    failure: str = ""  # why the rest of the file cannot be read
    start: int = 0  # the byte at which the text of a file begins, behind a byte order mark


def read_svmlight(
    sources: Sequence[str | Path], threads: int, block_bytes: int = 8 << 20, lists: bool = False
) -> Generator[SourceRows, None, None]:
    """Yield the rows of svmlight/libsvm text, one source after another; `streamsvm.data.svmlight` has the grammar.

    A source is a file, plain or compressed (.gz, .bz2, .xz), or "-" for standard input. The text is cut into blocks of
    about `block_bytes`. One of `threads` parses a block into one SourceRows while the next blocks are read, and at most
    `threads + 2` of them are in memory. The cuts depend on the bytes alone, so the rows do not depend on `threads`.

    Raises InputError with FILE:LINE:COLUMN (from 1) and reason of the first bad token, or with the file and the reason
    why it cannot be read. By then the blocks before have been yielded.
    """
    require_existing(sources)
    with closing(read_blocks(sources, block_bytes)) as blocks:
        yield from parse_blocks(blocks, threads, lists)


def parse_blocks(
    blocks: Iterator[Block],
    threads: int,
    lists: bool = False,
    qid_rule: int = svmlight.QID_UNDECIDED,
    n_lines: int = 0,
    n_rows: int = 0,
) -> Generator[SourceRows, None, None]:
    """Yield the rows of blocks; see read_svmlight.

    qid_rule: what the blocks before decided; n_lines, n_rows: of the file of the first block, before that block.
    """
    with unjoined_pool(threads, "svmlight") as pool:
        for block, parsed in work_ahead(blocks, partial(_parse, lists=lists), pool, threads + 2):
            _require_sound(block, parsed, qid_rule, n_lines, lists)
            qid_rule = max(qid_rule, parsed.qid_rule)
            n_lines += parsed.n_lines
            n_rows += len(parsed.indptr) - 1
            if len(parsed.indptr) > 1:
                yield _rows_of(block, parsed, lists, n_lines - parsed.n_lines)
            if block.overlong:
                raise InputError(f"{block.file}:{n_lines + 1}:1: line of {MAX_LINE_BYTES:,} bytes or more")
            if block.failure:
                raise InputError(f"{block.file}: {block.failure}")
            if block.last and n_rows == 0:
                raise InputError(f"{block.file}: no rows in this file")
            if block.last:
                n_lines, n_rows = 0, 0
            del block, parsed  # before the next block is read


def _parse(block: Block, lists: bool) -> ParsedLines:
    return parse_lines(block.text, lists=lists)


def _require_sound(block: Block, parsed: ParsedLines, qid_rule: int, lines_before: int, lists: bool) -> None:
    """Raise InputError for the first bad token, which may be a qid if the blocks before have none, or a missing one."""
    if svmlight.QID_UNDECIDED not in (qid_rule, parsed.qid_rule) and parsed.qid_rule != qid_rule:
        parsed = parse_lines(block.text, qid_rule, lists)
    if parsed.error != svmlight.OK:
        raise _refuse(block, parsed, lines_before)


def _rows_of(block: Block, parsed: ParsedLines, lists: bool, lines_before: int) -> SourceRows:
    indptr = parsed.indptr.astype(np.int32)  # int64 would make SciPy widen the indices, too
    X = csr_array((parsed.values, parsed.indices, indptr), shape=(len(indptr) - 1, parsed.n_columns))
    X.has_canonical_format = True  # the parser has checked the order, and SciPy need not check again
    labels: Labels = LabelLists(parsed.labels, parsed.label_limits) if lists else parsed.labels
    qid = parsed.qid if parsed.qid_rule == svmlight.QID_PRESENT else None
    return SourceRows(X, labels, qid, merged=_find_merged(block, parsed, lines_before))


def _find_merged(block: Block, parsed: ParsedLines, lines_before: int) -> npt.NDArray[np.str_] | None:
    """Return why the labels are no classes; see SourceRows."""
    bad = np.flatnonzero(np.abs(parsed.labels) >= FIRST_MERGED)
    if not len(bad):
        return None
    row = int(np.searchsorted(parsed.label_limits, bad[0], "right")) - 1
    lines = enumerate(block.text.tobytes().decode(errors="replace").split("\n"), lines_before + 1)
    at, line = next(islice(((at, line) for at, line in lines if line.split("#")[0].strip()), row, None))
    return np.array([f"{block.file}:{at}:1: the label {show_text(line.split()[0])} {MERGED}"])


def require_existing(sources: Sequence[str | Path]) -> None:
    """Raise InputError for a missing file, before hours are spent on the files before it."""
    for source in sources:
        if str(source) != "-":
            try:
                find_size(source)
            except OSError as error:
                raise InputError(f"{source}: {explain_reading(error)}") from error


def read_blocks(sources: Sequence[str | Path], block_bytes: int) -> Generator[Block, None, None]:
    """Yield the blocks of every source. The last block of a source is marked, or says why reading failed."""
    nothing = np.empty(0, np.uint8)
    for source in sources:
        name = "<stdin>" if str(source) == "-" else str(source)
        try:
            with open_text(source) as file:
                yield from _cut_blocks(name, file, block_bytes)
        except READING_ERRORS as error:
            yield Block(name, nothing, failure=explain_reading(error))


def _cut_blocks(name: str, file: io.BufferedIOBase, block_bytes: int) -> Iterator[Block]:
    """Read `block_bytes` at a time, and cut after the last newline. Reads double while a line is longer."""
    rest, mark = b"", -1  # the mark is known after the first read, and precedes the first block alone
    while True:
        read_bytes = max(block_bytes, min(len(rest), MAX_LINE_BYTES - len(rest)))
        buffer = bytearray(len(rest) + read_bytes + 1)  # one more byte, since a file may end without a newline
        buffer[: len(rest)] = rest
        filled = len(rest) + fill(file, memoryview(buffer)[len(rest) : -1])
        text = np.frombuffer(buffer, np.uint8)
        mark = find_mark(buffer[: min(filled, MARK_BYTES)]) if mark < 0 else mark
        if filled < len(rest) + read_bytes:
            buffer[filled] = NEWLINE
            yield Block(name, text[mark : filled + 1], last=True, start=mark)
            return
        cut = buffer.rfind(b"\n", len(rest), filled) + 1
        rest = bytes(memoryview(buffer)[cut:filled])
        if cut:
            yield Block(name, text[mark:cut], start=mark)
            mark = 0
        if len(rest) >= MAX_LINE_BYTES:
            yield Block(name, text[:0], overlong=True)
            return


def _refuse(block: Block, parsed: ParsedLines, lines_before: int) -> InputError:
    """Return the error of the bad token, with FILE:LINE:COLUMN and what is wrong with it."""
    text, at = block.text.tobytes(), parsed.error_at
    line = lines_before + text.count(b"\n", 0, at) + 1
    before = text[text.rfind(b"\n", 0, at) + 1 : at].decode(errors="replace")
    token = re.split(rb"[ \t\r\n#]", text[at : text.find(b"\n", at)], maxsplit=1)[0].decode(errors="replace")
    is_list = parsed.error == svmlight.BAD_LABEL and LABEL_LIST.fullmatch(token)
    first = parsed.error == svmlight.BAD_LABEL and lines_before == 0 and len(parsed.indptr) == 1
    advice = explain_foreign(text[:HEAD_BYTES]) if first else ""
    kind = NeedsOptionError if is_list or advice else InputError
    why = _explain_token(parsed.error, token, before)
    return kind(f"{block.file}:{line}:{len(before) + 1}: {why}{advice and '; the text '}{advice}")


def _explain_token(error: int, token: str, before: str) -> str:
    """Say what is wrong with a token; `before` is the part of the line before it."""
    index, _, value = token.partition(":")
    if not token.isprintable() or "\N{REPLACEMENT CHARACTER}" in token:
        return f"{_show_token(token)} is not text (binary data?)"
    match error:
        case svmlight.LONE_RETURN:
            return "a carriage return within a comment: lines have to end with a newline"
        case svmlight.BAD_LABEL:
            return f"label {_show_token(token)} {_explain_label(token)}"
        case svmlight.BAD_VALUE:
            return f"value {_show_token(value)} of index {index} {_explain_number(value, 'float32')}"
        case svmlight.BAD_INDEX:
            return _explain_index(token, index, before)
        case _:
            return f"{_show_token(token)}: {QID_FAULTS[error]}"


def _explain_index(token: str, index: str, before: str) -> str:
    """Say what is wrong with the index of a token."""
    if ":" not in token:
        return f"{_show_token(token)} has no colon, index:value expected; --format csv reads tables of numbers"
    if not (index.isascii() and index.isdigit()):
        return f"index {_show_token(index)} of {_show_token(token)} is not a whole number"
    digits = index.lstrip("0")
    if not digits:
        return (
            f"index 0 in {_show_token(token)}: indices start at 1; write them so, as scikit-learn's "
            "dump_svmlight_file(..., zero_based=False) does"
        )
    if len(digits) > len(str(svmlight.MAX_INDEX)) or int(digits) > svmlight.MAX_INDEX:
        return f"index {_show_token(index)} is too large, the largest is {svmlight.MAX_INDEX}"
    previous = int(before.rsplit(maxsplit=1)[-1].partition(":")[0])
    kind = "duplicate" if int(digits) == previous else "descending"
    return f"{kind} index {index} in {_show_token(token)}: the one before it is {previous}"


def _explain_label(token: str) -> str:
    """Say why a token is no label, or no list of labels."""
    if LABEL_LIST.fullmatch(token):
        return "is a list of labels: for lists use --multi-label (multi_label=True), for tables --format csv"
    return _explain_number(token, "float64")


def _explain_number(token: str, dtype: str) -> str:
    """Say why a token is no finite number of this dtype."""
    try:
        number = float(token)
    except ValueError:
        return "is not a number"
    if math.isnan(number):
        return "is nan"
    if "inf" in token.lower():
        return "is infinite"
    if math.isinf(number) or (dtype == "float32" and abs(number) >= MIN_FLOAT32_OVERFLOW):
        return f"overflows {dtype}"
    return "is not a number"  # Python's own spellings, such as 1_000


def _show_token(token: str) -> str:
    return repr(token if len(token) <= SHOWN_CHARACTERS else token[: SHOWN_CHARACTERS - 3] + "...")
