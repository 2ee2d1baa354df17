"""CSV, TSV and Parquet as sources."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.data import csv_text, parquet
from streamsvm.data.csv_text import read_csv
from streamsvm.data.parquet import read_parquet
from streamsvm.data.rows import SourceRows
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError

Write = Callable[..., Path]
ANY = Columns()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a text as a file."""

    def write_file(text: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


def together(pieces: Iterator[SourceRows]) -> dict[str, Any]:
    """All pieces of a source as lists."""
    read = list(pieces)
    whole: dict[str, Any] = {
        "X": np.concatenate([rows.X for rows in read]).tolist(),
        "names": read[0].feature_names,
    }
    for role in ("labels", "qid", "sample_weight"):
        parts = [getattr(rows, role) for rows in read]
        whole[role] = None if parts[0] is None else np.concatenate(parts).tolist()
    assert all(rows.X.dtype == np.float32 for rows in read)
    assert all(rows.feature_names == read[0].feature_names for rows in read)
    return whole


def fault(source: Iterator[SourceRows], path: Path | str) -> str:
    """What reading says, without the file's name in front."""
    with pytest.raises(InputError) as caught:
        list(source)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    return message[len(str(path)) + 1 :].strip()


def give_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("a,label,b\n1,7,2\n", ANY, (("a", "b"), [[1, 2]], [7])),
        ("a,Target,b\n1,7,2\n", ANY, (("a", "b"), [[1, 2]], [7])),
        (" a , y ,b\n1,x,2\n", ANY, (("a", "b"), [[1, 2]], ["x"])),
        ("a,label,b\n1,7,2\n", Columns(label="b"), (("a", "label"), [[1, 7]], [2])),
        ("a,label,b\n1,7,2\n", Columns(label="1"), (("label", "b"), [[7, 2]], [1])),
        ("2,1,b\n7,8,9\n", Columns(label="1"), (("2", "b"), [[7, 9]], [8])),  # a name goes before a number
        ("1,7,2\n", Columns(label="2"), (("1", "3"), [[1, 2]], [7])),
        ("a,label,b,c\n1,7,2,text\n", Columns(features=("b", "a")), (("b", "a"), [[2, 1]], [7])),
        ("a,b\n1,2\n", Columns(require_label=False), (("a", "b"), [[1, 2]], None)),
        ("a,b\n1,2\n", Columns(label="y", require_label=False), (("a", "b"), [[1, 2]], None)),
        ("y,b\n1,2\n", Columns(features=("y", "b"), require_label=False), (("y", "b"), [[1, 2]], None)),
        ("y,b\n1,2\n", Columns("1", features=("y", "b"), require_label=False), (("y", "b"), [[1, 2]], None)),
        ("y,b\n1,2\n", Columns(require_label=False), (("b",), [[2]], [1])),
        ('"a\nb",y\n1,2\n', ANY, (("a\nb",), [[1]], [2])),
        ("a;b;c;d,y\n1,2\n", ANY, (("a;b;c;d",), [[1]], [2])),  # .csv: commas, whatever there is more of
        ("True,1\nfalse,0\n", Columns(label="1"), (("2",), [[1], [0]], [1, 0])),
    ],
)
def test_columns(write: Write, text: str, columns: Columns, expected: tuple[Any, ...]) -> None:
    """A column is found by name or number; a first line of numbers is data."""
    read = together(read_csv([write(text)], columns))
    assert (read["names"], read["X"], read["labels"]) == expected


@pytest.mark.parametrize(
    ("text", "columns", "reason"),
    [
        ("a,b\n1,2\n", ANY, "which column is the label? no column is named label, target, class or y"),
        ("y,Y,b\n1,2,3\n", ANY, "which column is the label? several columns are named"),
        ("a,b\n1,2\n", Columns(label="c"), "column 'c', the label, is missing; there are a, b"),
        ("a,b\n1,2\n", Columns(label="3"), "column '3', the label, is missing"),
        ("a,b\n1,2\n", Columns(label="a", qid="a"), "column 'a', the label, is wanted twice"),
        ("a,y\n1,2\n", Columns(qid="q", require_label=False), "column 'q', the qid, is missing"),
        ("a,y\n1,2\n", Columns(features=("a", "b")), "no column 'b', which is a feature"),
        ("a,y\n1,2\n", Columns(label="y", features=("a", "y")), "column 'y', the label, is wanted twice"),
        ("y\n1\n", ANY, "no feature columns"),
        ("a,a,y\n1,2,3\n", ANY, "columns 1 and 2 are both named 'a'"),
        (",a,y\n0,1,2\n", ANY, "column 1 has no name; is it an index"),
    ],
)
def test_wrong_columns(write: Write, text: str, columns: Columns, reason: str) -> None:
    """What is asked for and is not there, or not once, is named."""
    path = write(text)
    assert fault(read_csv([path], columns), path).startswith(reason)


def test_qid_and_weight(write: Write) -> None:
    """Both leave the features, by whatever parser they are read."""
    columns = Columns(label="y", qid="q", sample_weight="w")
    for first in ("0.5", "+0.5"):
        read = together(read_csv([write(f"q,w,y,a\n{2**62 + 1},{first},u,{first}\n-2,1,v,3\n")], columns))
        assert read["qid"] == [2**62 + 1, -2]
        assert read["sample_weight"] == [0.5, 1]
        assert (read["X"], read["names"]) == ([[0.5], [3]], ("a",))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,other\n", ["setosa", "other"]),
        ("0,1,label\n2,3,1\n4,5,0\n", [1.0, 0.0]),
        ("a,b,label\n2,3,x\n4,5,z\n", ["x", "z"]),
        ("1,2,3\n4,5,6\n", [3.0, 6.0]),
    ],
)
def test_no_row_is_taken_for_a_header(write: Write, text: str, labels: list[object]) -> None:
    """A first line that holds numbers is a row, unless the second shows that it names columns."""
    path = write(text)
    assert together(read_csv([path], Columns(label="3")))["labels"] == labels


@pytest.mark.parametrize("mark", [",", "\t", ";"])
@pytest.mark.parametrize("name", ["t.txt", "-", "t.csv", "t.tsv.gz", "t.data.xz", "t.bz2"])
def test_delimiter(write: Write, monkeypatch: pytest.MonkeyPatch, mark: str, name: str) -> None:
    """The name tells the delimiter; if not, the first line."""
    mark = {"t.csv": ",", "t.tsv.gz": "\t"}.get(name, mark)
    text = mark.join(('"a,;\tb"', "c", "y")) + "\n" + mark.join("123") + "\n"
    packers: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    packed = packers.get(Path(name).suffix, bytes)
    give_stdin(monkeypatch, text.encode())
    read = together(read_csv(["-" if name == "-" else write(packed(text.encode()), name)], ANY))
    assert (read["X"], read["names"]) == ([[1, 2]], ("a,;\tb", "c"))


def test_blocks_do_not_show(write: Write) -> None:
    """Quoted newlines and quotes, CRLF, blank lines, no last newline: the same at any place of a cut."""
    text = '\ufeff\r\n "a",y\r\n\r\n"1","u\nv, ""w"""\r\n   \n2,"x"" y"\n\n3,"z\n\n"\n-4.5e0, end '
    for block_bytes in range(1, len(text) + 9):
        read = together(read_csv([write(text)], ANY, block_bytes))
        assert read["X"] == [[1], [2], [3], [-4.5]]
        assert read["labels"] == ['u\nv, "w"', 'x" y', "z", "end"]


def test_quote_in_a_word(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quote that encloses nothing does not hold up the rows that follow it."""
    monkeypatch.setattr(csv_text, "QUOTED_BYTES", 30)
    pieces = list(read_csv([write("a,y\n" + '1,5" disk\n' + "2,tape\n" * 50)], ANY, 16))
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
    ("y,a\n1,2,3\n", "2:3: 3 columns, the first line has 2"),
    ("y,a,b\n1,2,3\n1,2\n", "3:3: 2 columns, the first line has 3"),
    ('y,a\n"u\nv",1\nw,oops\n', "4:2: column a: not a number: 'oops'"),
    ("y,a\n0,1\n,2\n", "3:1: column y: label missing"),
    ("y,a\nu,1\n ,2\n", "3:1: column y: label missing"),
    ("y,a\n0,1\nnan,2\n", "3:1: column y: label missing or not finite: nan"),
    ("y,a\n1,True\n1,\n", "3:2: column a: empty (missing value)"),
    ("7\nx\n", "2:1: column 1: not a number: 'x'"),
]


@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
@pytest.mark.parametrize(("text", "reason"), BAD)
def test_bad_token(
    write: Write, monkeypatch: pytest.MonkeyPatch, text: str, reason: str, block_bytes: int
) -> None:
    """File, line, column and reason are exact, in a file and in standard input, which is read only once."""
    columns = Columns(require_label=False)
    path = write(text)
    assert fault(read_csv([path], columns, block_bytes), path) == reason
    give_stdin(monkeypatch, text.encode())
    assert fault(read_csv(["-"], columns, block_bytes), "<stdin>") == reason


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2.5,1", "3:1: column q: query id is no whole number: 2.5"),
        (",1", "3:1: column q: query id is no whole number"),
        (f"{2**63},1", f"3:1: column q: query id is no whole number: {2**63}"),
        ("2,-1", "3:2: column w: sample weight is negative: -1.0"),
        ("2,x", "3:2: column w: sample weight is no number: x"),
        ("2,nan", "3:2: column w: sample weight is not finite: nan"),
    ],
)
def test_bad_qid_or_weight(write: Write, row: str, reason: str) -> None:
    """Query ids are whole numbers, weights finite and not negative."""
    path = write(f"q,w,y,a\n1,1,1,1\n{row},1,1\n")
    assert fault(read_csv([path], Columns(qid="q", sample_weight="w")), path) == reason


def test_labels_keep_their_kind(write: Write) -> None:
    """The first block decides: text takes all, numbers do not take text; also in the next file."""
    texts, numbers = write("y,a\nu,1\n2,2\n", "u.csv"), write("y,a\n1,1\n2,2\n", "1.csv")
    assert together(read_csv([texts], ANY, 8))["labels"] == ["u", "2"]
    assert together(read_csv([texts, numbers], ANY))["labels"] == ["u", "2", "1", "2"]
    reason = "2:1: column y: labels were numbers so far, this is text: u"
    assert fault(read_csv([numbers, texts], ANY), texts) == reason
    late = write("y,a\n1,1\n1,1\n1,1\nu,2\n")
    assert fault(read_csv([late], ANY, 8), late) == reason.replace("2:1", "5:1")
    assert together(read_csv([late], ANY))["labels"] == ["1", "1", "1", "u"]


def test_fast_and_slow_parser_agree(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits from both; and pyarrow's is the one in use, for quoted newlines and booleans, too."""
    numbers = (
        np.random.default_rng(0).standard_normal((50, 2)) * 10.0 ** np.arange(-50, 50).reshape(50, 2) / 1e12
    )
    text = io.StringIO()
    rows = [[i % 3 == 0, *row, i, i / 7, f"{i % 2}\n"] for i, row in enumerate(numbers.tolist())]
    csv.writer(text).writerows([["b", "c", "d", "q", "w", "y"], *rows])
    path, columns = write(text.getvalue()), Columns(qid="q", sample_weight="w")
    with monkeypatch.context() as patch:
        patch.setattr(csv_text, "_parse_slowly", None)
        fast = together(read_csv([path], columns, 500))
    monkeypatch.setattr(csv_text, "_parse_fast", lambda *_: None)
    assert together(read_csv([path], columns, 500)) == fast
    assert np.array_equal(np.array(fast["X"])[:, 1:], numbers.astype(np.float32))


def test_several_files(write: Write) -> None:
    """Files are read one after another; all must have the columns of the first."""
    first, same = write("y,a,b\n1,2,3\n"), write("y\ta\tb\n4\t5\t6", "same.tsv")
    assert together(read_csv([first, same], ANY))["X"] == [[2, 3], [5, 6]]
    for text in ("y,b,a\n1,2,3\n", "y,a\n1,2\n", "1,2,3\n"):
        other = write(text, "other.csv")
        assert fault(read_csv([first, other], ANY), other).startswith(
            "its columns are not those of the file before"
        )


def truncate(packed: bytes) -> bytes:
    return packed[:-12]


def damage(packed: bytes) -> bytes:
    return packed[:20] + bytes(255 - byte for byte in packed[20:])


@pytest.mark.parametrize("spoil", [truncate, damage])
@pytest.mark.parametrize(
    ("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")]
)
def test_corrupt_compression(write: Write, pack: Any, suffix: str, spoil: Any) -> None:
    """Compressed data that are cut off or wrong are no end of file."""
    rows = np.random.default_rng(0).integers(0, 9, 20000)
    text = "y,a\n" + "".join(f"{row},1\n" for row in rows)
    path = write(spoil(pack(text.encode())), "t.csv" + suffix)
    assert fault(read_csv([path], ANY, 1000), path)


@pytest.mark.parametrize("read", [read_csv, read_parquet])
def test_unreadable(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    """A file that cannot be opened, or holds no table, is named with the reason."""
    assert fault(read([tmp_path / "none.csv"], ANY), tmp_path / "none.csv") == "No such file or directory"
    assert fault(read([tmp_path], ANY), tmp_path) == "Is a directory"
    for text in (b"", b"\n \n", b"\x00\xff\xfe\n\x89PNG"):
        path = write(text)
        assert fault(read([path], ANY), path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(csv_text, "_OPENERS", {".csv": refuse})
    assert fault(read([path], ANY), path) == "Permission denied"


def test_text_faults(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header without rows, bytes that are no text, and a line without end."""
    path = write("y,a\n\n")
    assert fault(read_csv([path], ANY), path) == "no rows"
    path = write(b"y,a,c\n1,2,d\n1,3,\xff\n")
    assert together(read_csv([path], Columns(features=("a",))))["X"] == [[2], [3]]  # c is not looked at
    assert fault(read_csv([path], Columns(label="c", features=("a",))), path) == "3:1: not UTF-8 text"
    monkeypatch.setattr(csv_text, "MAX_LINE_BYTES", 100)
    path = write("y,a\n1," + "2" * 200)
    assert fault(read_csv([path], ANY, 10), path) == "2:1: line of more than 100 bytes"


def test_parquet_types(tmp_path: Path) -> None:
    """Numbers of all types, categories of numbers, text and category labels; a pandas index is no feature."""
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame(
        {"i": [2**53 + 1, 2, 3], "y": pd.Categorical(["u", "v", "u"]), "b": [True, False, True]}
    )
    frame["f"] = np.array([0.5, 1e-300, -1], np.float64)
    frame["h"] = np.array([1, 2, 3], np.uint8)
    frame["c"] = pd.Categorical([10, 20, 10])
    frame["d"] = [Decimal("1.5")] * 3
    frame["q"], frame["w"] = [2**62 + 1, 1, 1], np.array([0, 0.5, 2], np.float32)
    frame.set_index(pd.Index([5, 6, 7])).to_parquet(path)
    read = together(read_parquet([path, path], Columns(qid="q", sample_weight="w"), piece_rows=2))
    assert read["names"] == ("i", "b", "f", "h", "c", "d")
    assert read["X"] == [[2**53, 1, 0.5, 1, 10, 1.5], [2, 0, 0, 2, 20, 1.5], [3, 1, -1, 3, 10, 1.5]] * 2
    assert read["labels"] == ["u", "v", "u"] * 2
    assert (read["qid"], read["sample_weight"]) == ([2**62 + 1, 1, 1] * 2, [0, 0.5, 2] * 2)
    assert together(read_parquet([path], Columns("b", features=("h",))))["labels"] == [1, 0, 1]


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("a", [1.0, None, 2.0], "row 2, column a: missing value"),
        ("a", [1.0, 2.0, np.nan], "row 3, column a: nan"),
        ("a", [1.0, -np.inf, 0.0], "row 2, column a: infinite"),
        ("a", [1.0, 2.0, 1e39], "row 3, column a: overflows float32: 1e+39"),
        ("a", ["1", "2", "3"], "column a: string is not a number"),
        ("a", [None] * 3, "row 1, column a: missing value"),
        ("y", [1.0, None, 2.0], "row 2, column y: label missing or not finite: nan"),
        ("y", ["u", None, "v"], "row 2, column y: label missing: None"),
        ("q", [1.0, 2.0, 2.5], "row 3, column q: query id is no whole number: 2.5"),
        ("q", [1, None, 2], "row 2, column q: query id is no whole number: nan"),
        ("w", [1.0, -1.0, 2.0], "row 2, column w: sample weight is negative: -1.0"),
    ],
)
@pytest.mark.parametrize("piece_rows", [1, 100])
def test_bad_parquet(tmp_path: Path, column: str, values: list[Any], reason: str, piece_rows: int) -> None:
    """The row is counted from the start of the file."""
    table = {"a": [1, 2, 3], "y": [1, 2, 3], "q": [1, 2, 3], "w": [1, 2, 3]} | {column: values}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(table), path)
    assert fault(read_parquet([path], Columns("y", "q", "w"), piece_rows), path) == reason


def test_parquet_faults(tmp_path: Path) -> None:
    """Files that are damaged or empty, other columns, labels of another kind."""
    first, other = tmp_path / "t.parquet", tmp_path / "other.parquet"
    pq.write_table(pa.table({"y": [1.0] * 999, "a": [2.0] * 999}), first)
    for table, reason in (
        ({"a": [1.0], "y": [1]}, "its columns are not those of the file before"),
        ({"y": ["u"], "a": [1]}, "row 1, column y: labels were numbers so far, this is text: u"),
        ({"y": pa.array([], "double"), "a": pa.array([], "double")}, "no rows"),
        ({"y": pa.array([1.0]), "a": pa.array([[1.0]])}, "column a: list<element: double> is not a number"),
    ):
        pq.write_table(pa.table(table), other)
        assert fault(read_parquet([first, other], ANY), other).startswith(reason)
    pq.write_table(pa.table({"y": ["u"], "a": [1]}), other)
    reason = "row 1, column y: labels were text so far, this is a number: 1.0"
    assert fault(read_parquet([other, first], ANY), first) == reason
    packed = first.read_bytes()
    for spoiled in (packed[:-20], packed[:50] + bytes(len(packed) - 50), b"\xff" * 60 + packed[60:]):
        other.write_bytes(spoiled)
        assert fault(read_parquet([other], ANY), other)


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A piece at a time, out of one row group of 32 MB, or 24 MB of text."""
    path, text = tmp_path / "t.parquet", tmp_path / "t.csv"
    table = pa.table({f"c{j}": np.random.default_rng(j).standard_normal(200_000) for j in range(20)})
    pq.write_table(table, path, row_group_size=200_000, use_dictionary=False, data_page_size=1 << 16)
    text.write_text("y,a,b\n" + "1,0.5,-3.25\n" * 2_000_000)
    del table
    columns, before = Columns(require_label=False), pa.total_allocated_bytes()
    for pieces in (read_parquet([path], columns, 2000), read_csv([text], columns, 1 << 20)):
        tracemalloc.start()
        most_arrow_bytes = max(pa.total_allocated_bytes() - before for _ in pieces)
        most_bytes = tracemalloc.get_traced_memory()[1] + most_arrow_bytes
        tracemalloc.stop()
        assert most_bytes < 12e6


def test_wide_parquet_has_fewer_rows_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a piece are bounded, not its rows alone."""
    monkeypatch.setattr(parquet, "_PARQUET_BYTES", 8 * 10 * 7)
    pq.write_table(pa.table({f"c{j}": range(30) for j in range(10)}), tmp_path / "t.parquet")
    pieces = read_parquet([tmp_path / "t.parquet"], Columns(require_label=False))
    assert [rows.n_rows for rows in pieces] == [7, 7, 7, 7, 2]


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    """What to install is said; nothing else is imported before it is used."""
    for name in ("pyarrow", "pyarrow.csv", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    for read in (read_csv, read_parquet):
        with pytest.raises(InputError, match=r"needs pyarrow: pip install 'streamsvm\[tables\]'"):
            list(read([write("y,a\n1,2\n")], ANY))
    script = (
        "import sys, streamsvm.data.sources\n"
        "import streamsvm.data.arrays as a; list(a.read_arrays([[1]], [1]))\n"
    )
    script += "print({'pandas', 'dask', 'pyarrow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
