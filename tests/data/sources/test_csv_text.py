"""CSV and TSV text as a source."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources import csv as csv_text
from streamsvm.data.tables.checks import NOT_UTF8
from streamsvm.data.tables.columns import Columns
from tests.data.conftest import WriteFile
from tests.data.pieces import fault_in, listed, read_csv

ANY = Columns()


def give_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,other\n4.8,3,setosa\n", ["setosa", "other", "setosa"]),
        ("0,1,label\n2,3,1\n4,5,0\n", [1.0, 0.0]),
        ("a,b,label\n2,3,x\n4,5,z\n", ["x", "z"]),
        ("4,5,6\n1,2,3\n", [6.0, 3.0]),
        ("0,1,2\n4,5,3\n7,8,2\n", [2.0, 3.0, 2.0]),
    ],
)
def test_no_row_is_taken_for_a_header(write_file: WriteFile, text: str, labels: list[object]) -> None:
    """A first line that holds numbers is a row, unless the second shows that it names columns."""
    path = write_file(text)
    assert listed(read_csv([path], Columns(label="3")))["labels"] == labels


@pytest.mark.parametrize("mark", [",", "\t", ";"])
@pytest.mark.parametrize("name", ["t.txt", "-", "t.csv", "t.tsv.gz", "t.data.xz", "t.bz2"])
def test_delimiter(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch, mark: str, name: str) -> None:
    """The name tells the delimiter; if not, the first line."""
    mark = {"t.csv": ",", "t.tsv.gz": "\t"}.get(name, mark)
    text = mark.join(('"a,;\tb"', "c", "y")) + "\n" + mark.join("123") + "\n"
    packers: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    packed = packers.get(Path(name).suffix, bytes)
    give_stdin(monkeypatch, text.encode())
    read = listed(read_csv(["-" if name == "-" else write_file(packed(text.encode()), name)], ANY))
    assert (read["X"], read["names"]) == ([[1, 2]], ("a,;\tb", "c"))


def test_blocks_do_not_show(write_file: WriteFile) -> None:
    """Quoted newlines and quotes, CRLF, blank lines, no last newline: the same at any place of a cut."""
    text = '\ufeff\r\n "a",y\r\n\r\n"1","u\nv, ""w"""\r\n   \n2,"x"" y"\n\n3,"z\n\n"\n-4.5e0, end '
    for block_bytes in range(1, len(text) + 9):
        read = listed(read_csv([write_file(text)], ANY, block_bytes))
        assert read["X"] == [[1], [2], [3], [-4.5]]
        assert read["labels"] == ['u\nv, "w"', 'x" y', "z", "end"]


def test_quote_in_a_word(write_file: WriteFile) -> None:
    """A quote that encloses nothing does not hold up the rows that follow it."""
    pieces = list(read_csv([write_file("a,y\n" + '1,5" disk\n' + "2,tape\n" * 50)], ANY, 16))
    assert len(pieces) > 7
    assert np.concatenate([rows.X for rows in pieces]).tolist() == [[1]] + [[2]] * 50


BAD = [
    ("a,y\n1,1\n\n2x,1\n", "4:1: column a: not a number: '2x'"),
    ("a,b,y\n1,,1\n", "2:2: column b: empty (missing value)"),
    ('a,b,y\n1,"",1\n', "2:2: column b: empty (missing value)"),
    ("a,y\n0,1\nnan,1\n", "3:1: column a: nan"),
    ("a,y\nNA,1\n", "2:1: column a: not a number: 'NA'"),
    ("a,y\n1_0,1\n", "2:1: column a: not a number: '1_0'"),
    ("a,y\n0x1A,1\n", "2:1: column a: not a number: '0x1A'"),
    ("y,a\n1,-Infinity\n", "2:2: column a: infinite"),
    ("y,a\n1,3.5e38\n", "2:2: column a: overflows float32: 3.5e+38"),
    ("y,a\n1,1e999\n", "2:2: column a: overflows float32: 1e999"),
    ("y,a\n1,2,3\n", "2:3: 3 columns, but the first line has 2"),
    ("y,a,b\n1,2,3\n1,2\n", "3:3: 2 columns, but the first line has 3"),
    ('y,a\n"u\nv",1\nw,oops\n', "4:2: column a: not a number: 'oops'"),
    ("y,a\n0,1\n,2\n", "3:1: column y: label missing"),
    ("y,a\nu,1\n ,2\n", "3:1: column y: label missing"),
    ("y,a\n0,1\nnan,2\n", "3:1: column y: label missing: nan"),
    ("y,a\n1,True\n1,\n", "3:2: column a: empty (missing value)"),
    ("7\nx\n", "2:1: column 1: not a number: 'x'"),
]


@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
@pytest.mark.parametrize(("text", "reason"), BAD)
def test_bad_token(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch, text: str, reason: str, block_bytes: int
) -> None:
    """File, line, column and reason are exact, in a file and in standard input, which is read only once."""
    columns = Columns(require_label=False)
    path = write_file(text)
    assert fault_in(read_csv([path], columns, block_bytes), path) == reason
    give_stdin(monkeypatch, text.encode())
    assert fault_in(read_csv(["-"], columns, block_bytes), "<stdin>") == reason


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2.5,1", "3:1: column q: query id is not a whole number: 2.5"),
        (",1", "3:1: column q: query id is not a whole number"),
        (f"{2**63},1", f"3:1: column q: query id is not a whole number: {2**63}"),
        ("2,-1", "3:2: column w: sample weight is negative: -1.0"),
        ("2,x", "3:2: column w: sample weight is not a number: x"),
        ("2,nan", "3:2: column w: sample weight is not finite: nan"),
    ],
)
def test_bad_qid_or_weight(write_file: WriteFile, row: str, reason: str) -> None:
    """Query ids are whole numbers, weights finite and not negative."""
    path = write_file(f"q,w,y,a\n1,1,1,1\n{row},1,1\n")
    assert fault_in(read_csv([path], Columns(qid="q", sample_weight="w")), path) == reason


def test_labels_keep_their_kind(write_file: WriteFile) -> None:
    """The first block decides: text takes all, numbers do not take text; also in the next file."""
    texts, numbers = write_file("y,a\nu,1\n2,2\n", "u.csv"), write_file("y,a\n1,1\n2,2\n", "1.csv")
    assert listed(read_csv([texts], ANY, 8))["labels"] == ["u", "2"]
    assert listed(read_csv([texts, numbers], ANY))["labels"] == ["u", "2", "1", "2"]
    reason = "2:1: column y: labels were numbers so far, but this is text: u"
    assert fault_in(read_csv([numbers, texts], ANY), texts) == reason
    late = write_file("y,a\n1,1\n1,1\n1,1\nu,2\n")
    assert fault_in(read_csv([late], ANY, 8), late) == reason.replace("2:1", "5:1")
    assert listed(read_csv([late], ANY))["labels"] == ["1", "1", "1", "u"]


def test_fast_and_slow_parser_agree(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits from both; and pyarrow's is the one in use, for quoted newlines and booleans, too."""
    numbers = np.random.default_rng(0).standard_normal((50, 2)) * 10.0 ** np.arange(-50, 50).reshape(50, 2) / 1e12
    text = io.StringIO()
    rows = [[i % 3 == 0, *row, i, i / 7, f"{i % 2}\n"] for i, row in enumerate(numbers.tolist())]
    csv.writer(text).writerows([["b", "c", "d", "q", "w", "y"], *rows])
    path, columns = write_file(text.getvalue()), Columns(qid="q", sample_weight="w")
    with monkeypatch.context() as patch:
        patch.setattr(csv_text.Block, "_parse_slowly", None)
        fast = listed(read_csv([path], columns, 500))
    monkeypatch.setattr(csv_text.Block, "_parse", lambda *_: None)
    assert listed(read_csv([path], columns, 500)) == fast
    assert np.array_equal(np.array(fast["X"])[:, 1:], numbers.astype(np.float32))


def test_several_files(write_file: WriteFile) -> None:
    """Files are read one after another; all must have the columns of the first."""
    first, same = write_file("y,a,b\n1,2,3\n"), write_file("y\ta\tb\n4\t5\t6", "same.tsv")
    assert listed(read_csv([first, same], ANY))["X"] == [[2, 3], [5, 6]]
    for text in ("y,b,a\n1,2,3\n", "y,a\n1,2\n", "1,2,3\n"):
        other = write_file(text, "other.csv")
        assert fault_in(read_csv([first, other], ANY), other).startswith(
            "its columns differ from those of the first file"
        )


def truncate(packed: bytes) -> bytes:
    return packed[:-12]


def damage(packed: bytes) -> bytes:
    return packed[:20] + bytes(255 - byte for byte in packed[20:])


@pytest.mark.parametrize("spoil", [truncate, damage])
@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")])
def test_corrupt_compression(write_file: WriteFile, pack: Any, suffix: str, spoil: Any) -> None:
    """Compressed data that are cut off or wrong are no end of file."""
    rows = np.random.default_rng(0).integers(0, 9, 20000)
    text = "y,a\n" + "".join(f"{row},1\n" for row in rows)
    path = write_file(spoil(pack(text.encode())), "t.csv" + suffix)
    assert fault_in(read_csv([path], ANY, 1000), path)


@pytest.mark.parametrize("fast", [True, False])
def test_bytes_that_are_no_text(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
    """They are refused in columns that are read, and nobody looks at them in the others."""
    if not fast:
        monkeypatch.setattr(csv_text.Block, "_parse", lambda *_: None)
    path = write_file(b'y,a,c\n1,2,d\n1,3,"\xff\n"\n1,4,\xff\n')
    assert listed(read_csv([path], Columns(features=("a",))))["X"] == [[2], [3], [4]]
    assert fault_in(read_csv([path], Columns(label="c", features=("a",))), path) == f"3:3: column c: {NOT_UTF8}"
    assert fault_in(read_csv([path], Columns()), path) == "2:3: column c: not a number: 'd'"
    path = write_file(b"y,a,c\n1,2,3\n1,\xff,4\n")
    assert fault_in(read_csv([path], Columns()), path) == f"3:2: column a: {NOT_UTF8}"


def test_text_faults(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header without rows, and a line without end."""
    path = write_file("y,a\n\n")
    assert fault_in(read_csv([path], ANY), path) == "no rows"
    monkeypatch.setattr(csv_text, "MAX_LINE_BYTES", 100)
    path = write_file("y,a\n1," + "2" * 200)
    assert fault_in(read_csv([path], ANY, 10), path) == "2:1: line of more than 100 bytes"
