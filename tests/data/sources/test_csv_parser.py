"""The compiled parser of CSV: what Python's csv module and float read, bit by bit, and nothing else."""

from __future__ import annotations

import csv
import io
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamsvm.data.sources.csv_rows import count_lines
from streamsvm.data.sources.parsing import MOST_DOUBTS, ParsedTable, count_line_ends, parse_table
from streamsvm.data.tables.checks import parse_number
from streamsvm.numeric.stored_types import round_to_float32


def parse(text: str, delimiter: str = ",", kinds: str = "xw") -> ParsedTable | None:
    """Parse a text whose columns are features (x), words (w) or not read (-)."""
    features, words = ([j for j, kind in enumerate(kinds) if kind == wanted] for wanted in "xw")
    block = bytearray(text.encode(errors="surrogateescape") + b"\n")
    return parse_table(block, count_line_ends(block), delimiter, features, words, len(kinds))


def words_of(parsed: ParsedTable) -> list[list[str]]:
    columns = [(cells.tobytes(), limits.tolist()) for cells, limits in parsed[1]]
    return [[text[a:b].decode() for a, b in pairwise(limits)] for text, limits in columns]


DIGITS = st.text("0123456789", min_size=1, max_size=22)
PLAIN = st.builds("{}{}.{}".format, st.sampled_from(["", "-", "+"]), DIGITS, DIGITS)
NUMBERS = (
    st.builds("{}{}".format, PLAIN, st.sampled_from(["", "", "e5", "E-30", "e+05", "e-44", "e-400"]))
    | st.floats(-3.4e38, 3.4e38).map(repr)
    | st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda value: f"{value:.18e}")
    | st.integers(-(2**63), 2**63).map(str)
    | st.sampled_from(["1.", ".5", "-.5", "-0", "00", "True", "false", "FALSE", " 7\t", '"8"', '" 9 "'])
)
ENDS = ["\n", "\r\n", "\r"]
WORDS = st.text('aé ",;\n\r\t0', max_size=6)


@settings(deadline=None, max_examples=300)
@given(
    rows=st.lists(st.tuples(NUMBERS, WORDS, WORDS), min_size=1, max_size=6), end=st.sampled_from(["\n", "\r\n", "\r"])
)
@example(rows=[("16777217", "a", "")], end="\n")
@example(rows=[("16777217.0000000000000001", "a", ""), ("16777216.999999999999", "b", "")], end="\r")
@example(rows=[("340282356779733661637539395458142568447", "a", ""), ("1e-46", "b", "")], end="\r\n")
def test_it_reads_what_python_reads(rows: list[tuple[str, str, str]], end: str) -> None:
    """Numbers of all lengths, quoted words, any line end: the words, and the float32 of Python's float, bit by bit."""
    text = io.StringIO()
    for number, *words in rows:
        text.write(number + ",")
        csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerow(words)
    numbers = round_to_float32([parse_number(row[0].strip('" \t')) for row in rows])
    parsed = parse(text.getvalue(), kinds="xww")
    if not np.isfinite(numbers).all():
        assert parsed is None
        return
    assert parsed is not None
    np.testing.assert_array_equal(parsed[0][:, 0].astype(np.float32).view(np.uint32), numbers.view(np.uint32))
    assert words_of(parsed) == [[row[1] for row in rows], [row[2] for row in rows]]


@pytest.mark.parametrize("exponent", [0, 24, 60, -40, -140])
def test_numbers_beside_the_middle_of_two_float32(exponent: int) -> None:
    """There the last bit of a float64 decides: Python rounds these numbers, and the others are not asked about."""
    rng = np.random.default_rng(exponent + 200)
    below = (rng.integers(2**23, 2**24, 400) * 2.0**exponent).astype(np.float32)
    middle = (below.astype(float) + np.nextafter(below, np.float32(np.inf)).astype(float)) / 2
    numbers = np.concatenate([middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    for show in (repr, "{:.17e}".format, "{:.25e}".format):
        parsed = parse("".join(f"{show(number)},\n" for number in numbers.tolist()))
        assert parsed is not None
        np.testing.assert_array_equal(parsed[0][:, 0].astype(np.float32), round_to_float32(numbers.tolist()))


def test_a_block_full_of_such_numbers_is_left_to_python() -> None:
    assert parse("16777217.00000000000001,\n" * MOST_DOUBTS) is not None
    assert parse("16777217.00000000000001,\n" * (MOST_DOUBTS + 1)) is None


@pytest.mark.parametrize(
    "cell",
    [
        "",
        " ",
        "x",
        "1x",
        "1 2",
        "nan",
        "inf",
        "1_0",
        "0x1",
        "1e",
        "e5",
        ".",
        "-",
        "--1",
        "1..2",
        "3.5e38",
        "1e999",
        "tru",
        "truex",
        '"1',
        '"1"2',
        '"1""2"',
        '1"',
        "\0",
        "1\0",
        "\ufeff1",
        "\u00a01",
        "\udcff",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_what_is_no_number_is_irregular(cell: str, end: str) -> None:
    assert parse(f"1,a\n{cell},b{end}") is None


@pytest.mark.parametrize("row", ["1", "1,a,2", "1,a,", '1,"a"b', '1,"a', "", "  "])
def test_rows_of_another_length_and_open_quotes_are_irregular(row: str) -> None:
    parsed = parse(f"1,a\n{row}\n2,b")
    if row.strip():
        assert parsed is None
    else:
        assert parsed is not None
        assert parsed[0][:, 0].tolist() == [1, 2]


def test_memory_is_for_as_many_rows_as_the_bytes_can_hold() -> None:
    """Not for as many as there are lines: lines may be short, and columns many."""
    block = bytearray(b"1\n" * 1000)
    assert parse_table(block, 10**13, ",", range(2000), [], 2000) is None


def test_columns_that_are_not_read_may_hold_anything() -> None:
    parsed = parse('\udcff,1,"a;\n""b"\n"x\ny",2,c"d\n,3,\n', kinds="-xw")
    assert parsed is not None
    assert (parsed[0][:, 0].tolist(), words_of(parsed)) == ([1, 2, 3], [['a;\n"b', 'c"d', ""]])


def test_tabs_are_blanks_unless_they_separate() -> None:
    comma, tab = parse("\t1\t,a\n"), parse(" 1 \ta\n", "\t")
    assert comma is not None
    assert tab is not None
    assert comma[0].tolist() == tab[0].tolist() == [[1]]
    assert parse("\t\n", "\t") is None, "two empty cells are no blank line"


def test_line_ends_are_counted() -> None:
    for n in range(7):
        for characters in product(b"a\r\n", repeat=n):
            text = bytes(characters)
            assert count_line_ends(bytearray(text + b"\n")) == count_lines(text)
