"""CSV: where rows end, and whether the first one is a header; told from the text, or asked."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamsvm
from streamsvm import LinearSVC
from streamsvm.data.sources import csv as csv_text
from streamsvm.data.sources.csv_rows import LONG_CELL, MORE_TEXT, OPEN_CELL, count_lines, find_first_end, find_last_end
from streamsvm.data.tables.checks import NOT_UTF8
from streamsvm.data.tables.columns import Columns, Dialect
from streamsvm.models.evaluate import evaluate
from streamsvm.models.predict import predict
from streamsvm.models.score import score
from streamsvm.system.errors import InputError
from tests.commands import Run, run  # noqa: F401
from tests.data.conftest import WriteFile
from tests.data.pieces import fault, fault_in, listed, read_csv

LAST = Columns(label="3")
ENDS = ["\n", "\r\n", "\r"]


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1 << 20])
def test_no_row_is_lost_where_line_ends_are_mixed(
    write_file: WriteFile, first: str, second: str, block_bytes: int
) -> None:
    lines = ["y,a", "1,2", "", "3,4", "5,6", "1,7"]
    text = "".join(line + (first, second)[i % 2] for i, line in enumerate(lines))
    for content in (text, text.rstrip("\r\n")):
        read = listed(read_csv([write_file(content)], Columns(), block_bytes))
        assert (read["labels"], read["X"]) == ([1, 3, 5, 1], [[2], [4], [6], [7]])
    bad, line = write_file(text + "8,x" + first), len(text.splitlines()) + 1
    assert fault_in(read_csv([bad], Columns(), block_bytes), bad) == f"{line}:2: column a: not a number: 'x'"


@given(st.text(st.sampled_from('",\n\r a1'), max_size=30), st.booleans())
def test_rows_end_where_the_csv_module_ends_them(text: str, ended: bool) -> None:
    """Every end that is found is one; none that is whole is missed."""
    content = text.encode()
    ends = [0]
    reader = csv.reader(iter(text.splitlines(keepends=True)))
    lines = text.splitlines(keepends=True)
    ends += [len("".join(lines[: reader.line_num])) for _ in reader]
    whole = [end for end in ends if end == 0 or text[end - 1] in "\r\n"]
    if is_open(text):
        whole = [end for end in whole if end < len(text)] or [0]
    if not ended and whole[-1] == len(text) and text.endswith("\r"):
        whole = whole[:-1]
    end, opened = find_last_end(content, Dialect(","), ended)
    assert (end, opened is not None) == (whole[-1], is_open(text))
    if opened is not None:
        assert text[opened] == '"'
        assert text[:opened][-1:] in ("", ",", "\n", "\r")
        assert (is_open(text[:opened]), is_open(text[: opened + 1])) == (False, True)
    assert find_first_end(content, 0, Dialect(",")) == (ends[1] if len(ends) > 1 else 0)
    assert count_lines(content) == sum(line[-1] in "\r\n" for line in lines)


def is_open(text: str) -> bool:
    """Whether a quoted value does not end: what is added then becomes a part of it."""
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            return True
    return sum(len(row) for row in csv.reader(io.StringIO(text + "\n,", newline=""))) == sum(
        len(row) for row in csv.reader(io.StringIO(text, newline=""))
    ) and bool(text)


HEADERS = [
    ("0,1,label\n2,3,1\n4,5,0\n", Columns(), True),
    ("0,1,label\n2,3,x\n4,5,z\n", Columns(), True),
    ("0,1,kind\n2,3,x\n4,5,z\n", Columns(label="kind"), True),
    ("0,1,kind\n2,3,x\n4,5,z\n", LAST, None),
    ("0,1,x\n2,3,x\n4,5,z\n", LAST, False),
    ("0,1,2\n2,3,0\n4,5,1\n", LAST, None),
    ("1,2,3\n2,3,0\n4,5,1\n", LAST, None),
    ("0,1,2\n2,3,2\n4,5,1\n", LAST, False),
    ("0,1\n5,7\n", Columns(require_label=False), None),
    ("0,1,3\n2,3,0\n4,5,1\n", LAST, False),
    ("0,1,2\n", LAST, False),
    ("0.5,1,x\n", LAST, None),
    ("b,1,a\n1,2,3\n", Columns(features=("a", "b"), require_label=False), True),
    ("a,b,c\n1,2,3\n", LAST, True),
    ("a,b,c\nd,e,f\n", LAST, None),
    ("a,b,c\n" + "d,e,f\n" * 3, LAST, True),
    ("a,b,yes\nb,c,yes\na,c,no\n", LAST, False),
    ("a,b,label\na,c,p\n", LAST, False),
    ("a,b,kind\na,c,p\n", Columns(label="kind"), None),
    ("x,1,y\nx,b,p\n", LAST, False),
    ("x,b,y\nx,1,p\nz,2,q\n", LAST, None),
    ("NA,1.0,yes\n2.0,3.0,yes\n2.5,3,no\n", LAST, False),
    ("a,kind,c\nd,e,f\n", Columns(label="3", drop=("kind",)), True),
    ("0,1,2,3,4,5\n0,2,3,1,1,7\n1,2,3,4,5,6\n", Columns(label="1"), True),
    ("0,1,2,3,4,5\n6,7,8,9,10,11\n", Columns(label="1"), None),
    ("9,b,7\n1,2,3\n4,x,3\n", LAST, None),
    ("9,x,7\n1,2,3\n4,x,3\n", LAST, False),
]


@pytest.mark.parametrize(("text", "columns", "expected"), HEADERS)
def test_headers_are_told_or_asked_for(
    write_file: WriteFile, text: str, columns: Columns, expected: bool | None
) -> None:
    """A first row that may be either is refused, and the option is named; the option decides."""
    path, decided = write_file(text), {True: "yes", False: "no"}
    if expected is None:
        assert "Set --header to yes or no" in fault(read_csv([path], columns))
        return
    assert shown(path, columns) == shown(path, with_header(columns, decided[expected]))
    assert shown(path, columns) != shown(path, with_header(columns, decided[not expected]))


@pytest.mark.parametrize(("mark", "told"), [(",", ","), (" ", "whitespace"), ("\t", "tab")])
def test_a_separator_that_finds_one_column_is_reported(write_file: WriteFile, mark: str, told: str) -> None:
    """A model may remember the separator of other files; the question is then not whether there is a header."""
    path = write_file("a,b,c\n1,2,3\n4,5,6\n".replace(",", mark))
    message = fault(read_csv([path], Columns(sep=";")))
    assert f"{path}:1: --sep ; makes one column of the first row" in message
    assert f"--sep {told} makes several" in message


def test_the_header_of_a_later_file_is_that_of_the_first(tmp_path: Path) -> None:
    """Even where its rows alone would not tell."""
    paths = [tmp_path / "first.csv", tmp_path / "second.csv"]
    paths[0].write_text("a,b,c\n" + "d,e,f\n" * 3)
    paths[1].write_text("a,b,c\ng,h,i\n")
    assert "Set --header to yes or no" in fault(read_csv(paths[1:], LAST))
    dataset = streamsvm.ingest(paths, tmp_path / "rows.zarr", label="3", one_hot="auto")
    assert dataset.n_rows == 4


def with_header(columns: Columns, header: str) -> Columns:
    return replace(columns, header=header)


def shown(path: Path, columns: Columns) -> str:
    """Rows, or what is wrong with them."""
    try:
        return str(listed(read_csv([path], columns)))
    except InputError as error:
        return str(error)


def test_the_option_in_python_and_on_the_command_line(tmp_path: Path, run: Run) -> None:  # noqa: F811
    """For ingest, predict and evaluate: the same rows whichever way it is said; without it, the file is refused."""
    rows = np.array([[0, 1, 2], [5, 6, 0], [7, 8, 1], [9, 7, 0], [5, 5, 1]])
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in rows.tolist()) + "\n")
    with pytest.raises(InputError, match=r"rows\.csv: is the first row, '0,1,2', a header"):
        streamsvm.ingest(path, tmp_path / "d.zarr", label="3")
    with pytest.raises(InputError, match="header 'maybe': choose from auto, yes, no"):
        streamsvm.ingest(path, tmp_path / "d.zarr", label="3", header="maybe")
    named = streamsvm.ingest(path, tmp_path / "yes.zarr", label="2", header="yes")
    assert (named.n_rows, named.feature_names) == (4, ("0", "1"))
    assert streamsvm.ingest(path, tmp_path / "no.zarr", label="3", header="no").n_rows == 5
    ended = run("ingest", path, tmp_path / "cli.zarr", "--label", "2", "--header", "yes")
    assert (ended.code, streamsvm.open(tmp_path / "cli.zarr").n_rows) == (0, 4)
    assert run("ingest", path, tmp_path / "auto.zarr", "--label", "2").code == 2
    LinearSVC().fit(rows[1:, :2], rows[1:, 2]).save(tmp_path / "m.npz")
    model = streamsvm.models.model.load(tmp_path / "m.npz")
    assert predict(model, path, tmp_path / "p.csv", read_as=Columns(label="2", header="yes")) == 4
    assert evaluate(model, path, Columns(label="2", header="yes"))["n_rows"] == 4
    parts = score(model, path, columns=Columns(label="3", header="no"))
    assert len(np.concatenate([part.scores for part in parts])) == 5
    ended = run("evaluate", tmp_path / "m.npz", path, "--label", "2", "--header", "yes", "--json")
    assert ended.code == 0
    assert run("predict", tmp_path / "m.npz", path, "--out", tmp_path / "q.csv", "--label", "2").code == 2
    ended = run("predict", tmp_path / "m.npz", path, "--out", tmp_path / "q.csv", "--label", "2", "--header", "yes")
    assert (ended.code, (tmp_path / "q.csv").read_text()) == (0, (tmp_path / "p.csv").read_text())


@pytest.mark.parametrize("text", ['y,a\n1,2\n"3,4\n5,6\n', 'y,a\n1,2\n3,"4\n5,6', 'y,a\n1,2\n3,"4""\n5,6\n'])
@pytest.mark.parametrize("block_bytes", [5, 1 << 20])
def test_a_quoted_value_without_an_end(write_file: WriteFile, text: str, block_bytes: int) -> None:
    """It would swallow all rows that follow."""
    path = write_file(text)
    found = fault_in(read_csv([path], Columns(), block_bytes), path)
    assert found == f"3:1: {OPEN_CELL}"


def test_a_quoted_value_that_is_too_long(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_text, "MOST_QUOTED_BYTES", 100)
    path = write_file('y,a\n1,2\n"3,4\n' + "5,6\n" * 100 + '"')
    assert fault_in(read_csv([path], Columns(), 10), path) == f"3:1: {LONG_CELL}"


@pytest.mark.parametrize("header", ["auto", "yes", "no"])
@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ('y,"a"b', f"2: {MORE_TEXT}"),
        ('"y" ,a', f"1: {MORE_TEXT}"),
        ('y,"a', f"1: {OPEN_CELL}"),
        ('"y,a', f"1: {OPEN_CELL}"),
        ("y," + "a" * 131073, f"1: {LONG_CELL}"),
    ],
)
def test_a_bad_first_row(write_file: WriteFile, first: str, reason: str, header: str) -> None:
    """It is refused like any other row, whether it is a header or not, and whatever the delimiter is."""
    for name in ("t.csv", "t.txt"):
        path = write_file(f"\n\n{first}\n1,2\n3,4\n", name)
        assert fault_in(read_csv([path], Columns(label="1", header=header)), path) == f"3:{reason}"


def test_a_name_that_is_no_text(write_file: WriteFile) -> None:
    path = write_file(b"\ny,\xff\n1,2\n3,4\n")
    assert fault_in(read_csv([path], Columns()), path) == f"2:2: the name of the column is {NOT_UTF8}"


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("block_bytes", [1000, 200_000, 8 << 20])
def test_cells_as_long_as_the_csv_module_reads_them(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch, block_bytes: int, fast: bool
) -> None:
    """131,072 characters, of up to four bytes each, and no more: in compiled code too, and wherever blocks are cut."""
    if not fast:
        monkeypatch.setattr(csv_text.Block, "_parse", lambda *_: None)
    columns = Columns(features=("a",))
    for most in ("x" * 131072, "\U0001d11e" * 131072, '"' + "\U0001d11e" * 131072 + '"', '"' + '""' * 131072 + '"'):
        path = write_file(f"y,a,b\n1,2,x\n3,4,{most}\n5,6,x\n")
        assert listed(read_csv([path], columns, block_bytes))["X"] == [[2], [4], [6]]
    for more in ("x" * 131073, '"' + "x" * 131073 + '"', '"' + "\U0001d11e" * 140000 + '"'):
        path = write_file(f"y,a,b\n1,2,x\n3,4,{more}\n5,6,x\n")
        assert fault_in(read_csv([path], columns, block_bytes), path) == f"3:1: {LONG_CELL}"
    path = write_file(f"y,a\n1,2\n3,1.{'0' * 131072}\n")
    assert fault_in(read_csv([path], Columns(), block_bytes), path) == f"3:1: {LONG_CELL}"


def test_a_long_row_is_cut_within_a_quoted_value(write_file: WriteFile) -> None:
    """What counts is the length of that value, not the length of the row."""
    row = "1," + ("x" * 100_000 + ",") * 6 + '"' + "x" * 100_000 + '"'
    path = write_file(f"a,{','.join('bcdefg')},h\n" + f"{row}\n" * 3)
    columns = Columns(features=("a",), require_label=False)
    for block_bytes in range(100_000, 800_000, 50_000):
        assert listed(read_csv([path], columns, block_bytes))["X"] == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ('"1"2,3', 1),
        ('1,"2" ', 2),
        ('"1""2"3,4', 1),
        ('"5, ""6""","see you" later', 2),
        ('"5\n6","7"8', 2),
        (',"a"b', 2),
    ],
)
@pytest.mark.parametrize("ends", [True, False])
def test_text_behind_a_quoted_value(write_file: WriteFile, row: str, column: int, ends: bool) -> None:
    """Readers differ in what they make of it. The message names its line and column, and what to write instead."""
    path = write_file(f"y,a\n1,2\n\n{row}" + '\n1,2\n"1"x,2\n' * ends)
    found = fault_in(read_csv([path], Columns()), path)
    assert found == f"4:{column}: {MORE_TEXT}"
    assert "quote the whole value" in found


def test_labels_that_no_array_holds(write_file: WriteFile) -> None:
    path = write_file("y,a\nu,1\nv\0,2\n")
    assert fault_in(read_csv([path], Columns()), path) == "3:1: column y: label holds a character of code 0"
    path = write_file("y,a\nu,1\n" + "v" * 1001 + ",2\n")
    assert fault_in(read_csv([path], Columns()), path) == "3:1: column y: label has 1,001 characters, more than 1,000"


@pytest.mark.parametrize("fast", [True, False])
def test_a_long_label_does_not_make_all_others_long(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    """The block is taken in parts, none of which takes more than it may."""
    monkeypatch.setattr(csv_text, "MOST_LABEL_BYTES", 4000)
    if not fast:
        monkeypatch.setattr(csv_text.Block, "_parse", lambda *_: None)
    labels = ["u"] * 300 + ["long" * 20] + ["7"] * 300
    path = write_file("y,a\n" + "".join(f"{label},{i}\n" for i, label in enumerate(labels)))
    pieces = list(read_csv([path], Columns()))
    assert [label for rows in pieces for label in rows.labels.tolist()] == labels  # type: ignore[union-attr]
    assert np.concatenate([rows.X for rows in pieces])[:, 0].tolist() == list(range(601))
    assert all(rows.labels.nbytes <= 4000 or rows.n_rows == 1 for rows in pieces)  # type: ignore[union-attr]


@pytest.mark.parametrize("block_bytes", [*range(1, 12), 1 << 20])
def test_a_mark_of_utf8_within_the_text_is_no_blank(write_file: WriteFile, block_bytes: int) -> None:
    """pyarrow skips it where a block begins, and nowhere else."""
    path = write_file("\ufeffy,a\nu,2\n\ufeffv,4\n")
    assert listed(read_csv([path], Columns(), block_bytes))["labels"] == ["u", "\ufeffv"]


def test_messages_are_of_one_line(write_file: WriteFile) -> None:
    path = write_file('"y","a\nb"\n1,2\n"x\ny",x\n')
    assert fault_in(read_csv([path], Columns()), path) == "4:2: column a\\nb: not a number: 'x'"
    path = write_file('y,a\n1,2\n"x\ny",3\n')
    found = fault_in(read_csv([path], Columns(), 8), path)
    assert found == "3:1: column y: labels were numbers so far, but this is text: x\\ny"


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("# wine\n# of 2009, red\na,b,y\n1,2,3\n4,5,6\n", ["a", "b"], [[1, 2], [4, 5]]),
        ("# wine\r\n\r\n#a;b;y\r\n1;2;3\r\n", ["#a", "b"], [[1, 2]]),
        ('# "quoted, and open\n\n# more\na,b,y\n1,2,3\n', ["a", "b"], [[1, 2]]),
        ("# of tabs, here\na\tb\ty\n1\t2\t3\n", ["a", "b"], [[1, 2]]),
    ],
)
def test_comments_above_the_header_are_no_rows(
    write_file: WriteFile, text: str, names: list[str], rows: list[list[float]]
) -> None:
    """A header may begin with # itself."""
    read = listed(read_csv([write_file(text)], Columns(label="y")))
    assert (list(read["names"]), read["X"]) == (names, rows)


def test_a_row_that_begins_like_a_comment_is_not_lost(write_file: WriteFile) -> None:
    """Rows have as many cells as the rows below; a fault below comments has its line."""
    path = write_file("#1,1,2\n#2,3,4\n3,5,6\n")
    read = listed(read_csv([path], Columns(label="1", header="no")))
    assert (read["labels"], read["X"]) == (["#1", "#2", "3"], [[1, 2], [3, 4], [5, 6]])
    path = write_file("# made by hand\n# today\ny,a\n1,2\n3,x\n")
    assert fault_in(read_csv([path], Columns()), path) == "5:2: column a: not a number: 'x'"
