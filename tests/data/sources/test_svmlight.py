"""The text kernel: numbers as Python reads them, the grammar, and where each error is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from streamsvm.data.sources import svmlight
from streamsvm.data.sources.parsing import MAX_DIGITS
from streamsvm.data.sources.svmlight import BAD_INDEX, MAX_INDEX, OK, ParsedLines, parse_lines
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError


def parse(text: str, qid_rule: int = svmlight.QID_UNDECIDED) -> ParsedLines:
    return parse_lines(np.frombuffer(bytearray(text.encode()), np.uint8), qid_rule)


def parse_value(token: str) -> np.float32:
    parsed = parse(f"1 1:{token}\n")
    assert parsed.error == svmlight.OK
    return np.float32(parsed.values[0])


digits = st.text("0123456789", max_size=24)


@st.composite
def number_tokens(draw: st.DrawFn) -> str:
    """Any spelling of a number: signs, leading zeros, `.5`, `5.`, long mantissas, exponents."""
    before, after = draw(digits), draw(digits)
    assume(before + after)
    mantissa = before + (draw(st.sampled_from(["", "."])) if not after else "." + after)
    exponent = draw(st.sampled_from(["", "e", "E"]))
    if exponent:
        exponent += draw(st.sampled_from(["", "+", "-"])) + str(draw(st.integers(0, 60)))
    return draw(st.sampled_from(["", "+", "-"])) + mantissa + exponent


def is_short(token: str) -> bool:
    """Whether one float64 operation on exact operands gives the number."""
    mantissa, _, exponent = token.lower().lstrip("+-").partition("e")
    before, _, after = mantissa.partition(".")
    return len((before + after).lstrip("0")) <= 15 and abs(int(exponent or 0) - len(after)) <= 22


def assert_reads_like_python(token: str, value: np.float32) -> None:
    expected = np.float32(float(token))
    if is_short(token):
        assert value == expected, token
        assert np.signbit(value) == np.signbit(expected), token
    else:
        assert abs(float(value) - float(expected)) <= float(np.spacing(abs(expected))), token


@settings(deadline=None)
@given(number_tokens())
def test_value_is_what_python_reads(token: str) -> None:
    assume(abs(float(token)) < svmlight.FLOAT32_OVERFLOW)
    assert_reads_like_python(token, parse_value(token))


@settings(deadline=None)
@given(number_tokens())
def test_label_is_what_python_reads(token: str) -> None:
    label, expected = parse(token + "\n").labels[0], float(token)
    digits = token.lower().lstrip("+-").partition("e")[0].replace(".", "").lstrip("0")
    cut_off = 0.0 if len(digits) <= MAX_DIGITS else np.spacing(abs(expected))
    assert abs(label - expected) <= cut_off


@settings(deadline=None)
@given(st.floats(1e-240, 1e240))
def test_shortest_spelling_of_a_target_gives_it_back(target: float) -> None:
    assert parse(f"{-target!r}\n").labels[0] == -target


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_shortest_spelling_of_a_float32_gives_it_back(number: float) -> None:
    assert parse_value(str(np.float32(number))) == number


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e38, max_value=1e38))
def test_shortest_spelling_of_a_float64_gives_the_nearest_float32(number: float) -> None:
    assert_reads_like_python(repr(number), parse_value(repr(number)))


blanks = st.sampled_from([" ", "\t", "  ", " \t "])
line_ends = st.sampled_from(["\n", "\r\n", " \n", "# 1:2 qid:3\n", " # été\r\n", "\n\n", "\n \t\r\n#\n"])


@st.composite
def written_rows(draw: st.DrawFn) -> tuple[str, list[str], list[dict[int, str]]]:
    """Rows and a spelling of them -> (text, labels, index -> value)."""
    text, labels, rows = draw(st.sampled_from(["", "\n", "# head: 1\n"])), [], []
    indices = st.lists(st.integers(1, svmlight.MAX_INDEX), max_size=5, unique=True).map(sorted)
    for _ in range(draw(st.integers(0, 4))):
        labels.append(draw(number_tokens()))
        rows.append({index: draw(number_tokens()) for index in draw(indices)})
        text += draw(st.sampled_from(["", " ", "\t"])) + labels[-1]
        for index, token in rows[-1].items():
            text += draw(blanks) + draw(st.sampled_from(["", "0", "000000000000"])) + f"{index}:{token}"
        text += draw(line_ends)
    return text, labels, rows


@settings(deadline=None)
@given(written_rows())
def test_rows_are_found_in_any_layout(written: tuple[str, list[str], list[dict[int, str]]]) -> None:
    text, labels, rows = written
    tokens = [token for row in rows for token in row.values()]
    assume(all(abs(float(token)) < svmlight.FLOAT32_OVERFLOW for token in tokens))
    parsed = parse(text)
    assert parsed.error == svmlight.OK
    np.testing.assert_allclose(parsed.labels, [float(label) for label in labels], rtol=1e-15)
    assert parsed.indptr.tolist() == [0, *np.cumsum([len(row) for row in rows], dtype=int)]
    assert parsed.indices.tolist() == [index - 1 for row in rows for index in row]
    assert parsed.n_columns == max((index for row in rows for index in row), default=0)
    for token, value in zip(tokens, parsed.values, strict=True):
        assert_reads_like_python(token, np.float32(value))


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("0e99999999999999999999", 0.0),
        ("1e-99999999999999999999", 0.0),
        ("1e-46", 0.0),  # below half the least float32
        ("1e-45", 1.401298464324817e-45),  # the least float32
        ("-1e-300", -0.0),
        ("340282346638528859811704183484516925440", 3.4028234663852886e38),  # the largest float32
        ("3.40282356e38", 3.4028234663852886e38),  # above it, yet nearest to it
        ("1" + "0" * 400 + "e-400", 1.0),
        ("0." + "0" * 400 + "1e401", 1.0),
        ("0" * 400 + "7." + "0" * 400, 7.0),
        ("9" * 38, 1e38),
        ("16777217", 16777216.0),  # 2^24 + 1: halfway, to even
        ("16777217.0000000000000000001", 16777216.0),  # the tail is beyond float64 already
        ("9223372036854775808", 9223372036854775808.0),  # 2^63, would wrap an int64
        ("18446744073709551617", 18446744073709551616.0),  # 2^64 + 1, would wrap to 1
    ],
)
def test_extreme_numbers(token: str, expected: float) -> None:
    value = parse_value(token)
    assert value == np.float32(expected)
    assert np.signbit(value) == np.signbit(expected)


NOT_NUMBERS = ["x", ".", "+", "-", "--1", "+-1", "1.2.3", "1..2", "1,5", "1_0", "1f", "1:2:3", "1\x00", "1\v"]
NOT_NUMBERS += ["e5", ".e5", "1e", "1e+", "1e+x", "1e5.0", "1e5e5", "0x10", "nan", "-inf", "infinity"]
NOT_NUMBERS += ["\u0661"]  # a digit to Python


@pytest.mark.parametrize("token", [*NOT_NUMBERS, ""])
def test_bad_value_is_seen_where_its_pair_starts(token: str) -> None:
    parsed = parse(f"1 1:1\n-1 1:1 2:{token} 3:1\n")
    assert (parsed.error, parsed.error_at) == (svmlight.BAD_VALUE, len("1 1:1\n-1 1:1 "))
    assert parsed.labels.tolist() == [1.0]
    assert parsed.values.tolist() == [1.0]


@pytest.mark.parametrize("token", [*NOT_NUMBERS, "1e309", "-1e999999999999999999999", "1" + "0" * 309])
def test_bad_label_is_seen_where_it_starts(token: str) -> None:
    parsed = parse(f"1 1:1\n  {token} 1:1\n")
    assert (parsed.error, parsed.error_at) == (svmlight.BAD_LABEL, len("1 1:1\n  "))


@pytest.mark.parametrize("token", ["3.4028235677973366e38", "-1e39", "1e400", "1" + "0" * 39])
def test_value_beyond_float32_is_refused(token: str) -> None:
    assert parse(f"1 1:{token}\n").error == svmlight.BAD_VALUE


@pytest.mark.parametrize(
    "pair",
    [
        *("0:1", "000:1", "2:1", "1:1", "2147483648:1", "18446744073709551619:1", "9" * 5000 + ":1"),
        *("-3:1", "+3:1", "3.0:1", ":1", "x:1", "qid:3", "3", "3#:1", "\x00"),
    ],
)
def test_bad_index_is_seen_where_its_pair_starts(pair: str) -> None:
    parsed = parse(f"1 2:1 {pair} 9:1\n")
    assert (parsed.error, parsed.error_at) == (svmlight.BAD_INDEX, len("1 2:1 "))


def test_largest_index() -> None:
    parsed = parse("1 2147483647:1\n")
    assert (parsed.error, parsed.indices.tolist(), parsed.n_columns) == (svmlight.OK, [2**31 - 2], 2**31 - 1)


def test_explicit_zeros_are_kept_and_take_part_in_the_order() -> None:
    assert parse("1 1:0 2:0.0 3:-0\n").values.tolist() == [0.0, 0.0, 0.0]
    assert parse("1 2:0 1:0\n").error == svmlight.BAD_INDEX


def test_query_ids() -> None:
    parsed = parse("1 qid:7 1:1\n2\tqid:-3\n3 qid:+9223372036854775807#\n")
    assert (parsed.error, parsed.qid_rule) == (svmlight.OK, svmlight.QID_PRESENT)
    assert parsed.qid.tolist() == [7, -3, 2**63 - 1]
    parsed = parse(f"1 qid:{-(2**63)} 1:1\n2 qid:-00{2**63}\n3 qid:{1 - 2**63}\n")
    assert parsed.qid.tolist() == [-(2**63), -(2**63), 1 - 2**63]


NUMBERS_BEYOND = (f"+{2**63}", 2**63 + 1, -(2**63) - 1, -(2**63) - 9, -(2**64), f"-{2**63}1", f"{2**63}1")
BEYOND = [f"qid:{number}" for number in NUMBERS_BEYOND]


@pytest.mark.parametrize("token", ["qid:", "qid:x", "qid:1.0", "qid:--1", "qid:1:2", f"qid:{2**63}", *BEYOND])
def test_bad_query_id(token: str) -> None:
    parsed = parse(f"1 {token} 1:1\n")
    assert (parsed.error, parsed.error_at) == (svmlight.BAD_QID, 2)


@pytest.mark.parametrize(
    ("text", "qid_rule", "error", "error_at"),
    [
        ("1 qid:1 1:1\n2 1:1\n", svmlight.QID_UNDECIDED, svmlight.MISSING_QID, 14),
        ("1 qid:1\n2\n", svmlight.QID_UNDECIDED, svmlight.MISSING_QID, 9),
        ("1 1:1\n2 qid:1 1:1\n", svmlight.QID_UNDECIDED, svmlight.UNEXPECTED_QID, 8),
        ("1 1:1\n", svmlight.QID_PRESENT, svmlight.MISSING_QID, 2),
        ("1 qid:1\n", svmlight.QID_ABSENT, svmlight.UNEXPECTED_QID, 2),
    ],
)
def test_query_ids_on_all_rows_or_none(text: str, qid_rule: int, error: int, error_at: int) -> None:
    parsed = parse(text, qid_rule)
    assert (parsed.error, parsed.error_at) == (error, error_at)


def test_text_without_rows_leaves_the_rule_on_query_ids_open() -> None:
    for text in ("", "\n", "# qid:1\n\n"):
        parsed = parse(text)
        assert (parsed.error, parsed.qid_rule, len(parsed.labels)) == (
            svmlight.OK,
            svmlight.QID_UNDECIDED,
            0,
        )


def test_nul_byte_in_a_comment() -> None:
    parsed = parse("1 1:1 # a\x00b\n")
    assert (parsed.error, parsed.error_at) == (svmlight.NUL_BYTE, len("1 1:1 # a"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1 1:1 # a\r-1 1:2\n", svmlight.LONE_RETURN),
        ("# a\r1 1:2\n", svmlight.LONE_RETURN),
        ("1 1:1 # a\r\n2 1:1#\r \r\n", svmlight.OK),
    ],
)
def test_a_carriage_return_in_a_comment_hides_no_row(text: str, error: int) -> None:
    """As the end of a line, as old Macs wrote it, it would make the row behind it a part of the comment."""
    parsed = parse(text)
    assert (parsed.error, parsed.error_at) == (error, text.index("\r") if error else len(text))
    assert parsed.labels.tolist() == ([1, 2] if not error else [1][: text.startswith("1")])


def test_every_call_shares_one_compiled_kernel() -> None:
    parse("")
    parse("1 qid:1 1:1\n", svmlight.QID_PRESENT)
    parse_lines(np.frombuffer(bytearray(b"1 1:1\n2 1:1\n"), np.uint8)[:6])
    assert len(svmlight.parse_rows.signatures) == 1


def parse_from(base: int, text: str) -> tuple[list[int], int, int]:
    """Return the indices, the number of features, and the error, if features are numbered from `base`."""
    found = parse_lines(np.frombuffer(bytearray(text.encode()), np.uint8), base=base)
    return found.indices.tolist(), found.n_columns, found.error


def test_features_numbered_from_0() -> None:
    assert parse_from(0, "1 0:1 2:1\n0\n1 5:1\n") == ([0, 2, 5], 6, OK)
    assert parse_from(1, "1 1:1 3:1\n0\n1 6:1\n") == ([0, 2, 5], 6, OK)
    assert parse_from(0, "1\n") == ([], 0, OK)
    for text in ("1 0:1 0:1\n", "1 :1\n", "1 x:1\n", "1 1:1 0:1\n", f"1 {MAX_INDEX}:1\n", f"1 {2**64}:1\n"):
        assert parse_from(0, text)[2] == BAD_INDEX
    assert parse_from(1, "1 0:1\n")[2] == parse_from(1, "1 :1\n")[2] == BAD_INDEX
    assert parse_from(0, f"1 {MAX_INDEX - 1}:1\n")[1:] == parse_from(1, f"1 {MAX_INDEX}:1\n")[1:] == (MAX_INDEX, OK)


@pytest.mark.parametrize(
    ("text", "how", "fault"),
    [
        ("1 1:1\n0 0:1\n", {"base": 1}, "2:3: index 0 in '0:1': features are numbered from 1 here; --base 0 reads"),
        ("0 0:1\n1 0:1 0:1\n", {"base": "auto"}, "2:7: duplicate index 0 in '0:1': the one before it is 0"),
        (f"1 {MAX_INDEX}:1\n0 1:1\n", {"base": 0}, f"1:3: .* is too large; the largest is {MAX_INDEX - 1}"),
    ],
)  # fmt: skip
def test_faults_of_features_numbered_from_0(tmp_path: Path, text: str, how: dict[str, Any], fault: str) -> None:
    (tmp_path / "rows.svm").write_text(text)
    with pytest.raises(InputError, match=f"rows.svm:{fault}"):
        ingest(tmp_path / "rows.svm", tmp_path / "rows.zarr", **how)


def test_the_first_rows_decide_where_numbers_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the user says so, as with a file of scikit-learn; a feature 0 below them is refused."""
    caplog.handler.setLevel(0)  # Dask silences the handlers of the root logger while a cluster is open
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    X[:10, 0] = 0
    path = tmp_path / "rows.libsvm"
    dump_svmlight_file(X, np.arange(20) % 2, str(path))
    for base in ("auto", 0, "0"):
        caplog.clear()
        made = ingest(path, tmp_path / "rows.zarr", base=base, shuffle=None, overwrite=True)
        assert np.allclose(np.asarray(made.read(0).X), X)
        told = [f"{path}: a feature 0 occurs, so features are numbered from 0 (--base 0)"]
        assert caplog.messages == (told if base == "auto" else [])
    monkeypatch.setattr(svmlight, "LOOKED_AT_BYTES", 100)
    for base in (None, "auto"):
        with pytest.raises(InputError, match=r":11:3: index 0 in .*; --base 0 reads"):
            ingest(path, tmp_path / "rows.zarr", base=base, overwrite=True)
    with pytest.raises(InputError, match=r"^base 2: choose 0, 1 or auto$"):
        ingest(path, tmp_path / "rows.zarr", base=2, overwrite=True)
