"""Tables as sources: which column is what; what holds for CSV and Parquet alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.data.tables.columns import Columns, fill_features, pyarrow
from streamsvm.system.errors import InputError
from tests.conftest import run_python
from tests.data.conftest import WriteFile
from tests.data.pieces import fault_in, listed, read_csv, read_parquet

ANY = Columns()


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
def test_columns(write_file: WriteFile, text: str, columns: Columns, expected: tuple[Any, ...]) -> None:
    """A column is found by name or number; a first line of numbers is data."""
    read = listed(read_csv([write_file(text)], columns))
    assert (read["names"], read["X"], read["labels"]) == expected


@pytest.mark.parametrize(
    ("text", "columns", "reason"),
    [
        ("a,b\n1,2\n", ANY, "which column is the label? no column is named label, target, class or y"),
        ("y,Y,b\n1,2,3\n", ANY, "which column is the label? several columns are named"),
        ("a,b\n1,2\n", Columns(label="c"), "column 'c', the label, is missing; there are a, b"),
        ("a,b\n1,2\n", Columns(label="3"), "column '3', the label, is missing"),
        ("a,b\n1,2\n", Columns(label="a", qid="a"), "column 'a', the label, has two roles"),
        ("a,y\n1,2\n", Columns(qid="q", require_label=False), "column 'q', the qid, is missing"),
        ("a,y\n1,2\n", Columns(features=("a", "b")), "no column 'b', which is a feature"),
        ("a,y\n1,2\n", Columns(label="y", features=("a", "y")), "column 'y', the label, has two roles"),
        ("a,b\n1,2\n", Columns(index="a", drop=("a",), features=("b",)), "column 'a', the index, has two roles"),
        ("y\n1\n", ANY, "no feature columns"),
        ("a,a,y\n1,2,3\n", ANY, "columns 1 and 2 are both named 'a'; if the first row is data, use --header no"),
        (",a,y\n0,1,2\n", ANY, "column 1 has no name: use --index 1"),
    ],
)
def test_wrong_columns(write_file: WriteFile, text: str, columns: Columns, reason: str) -> None:
    """What is asked for and is not there, or not once, is named."""
    path = write_file(text)
    assert fault_in(read_csv([path], columns), path).startswith(reason)


def test_qid_and_weight(write_file: WriteFile) -> None:
    """Both leave the features, by whatever parser they are read."""
    columns = Columns(label="y", qid="q", sample_weight="w")
    for first in ("0.5", "+0.5"):
        read = listed(read_csv([write_file(f"q,w,y,a\n{2**62 + 1},{first},u,{first}\n-2,1,v,3\n")], columns))
        assert read["qid"] == [2**62 + 1, -2]
        assert read["sample_weight"] == [0.5, 1]
        assert (read["X"], read["names"]) == ([[0.5], [3]], ("a",))


@pytest.mark.parametrize("read", [read_csv, read_parquet])
def test_unreadable(write_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    """A file that cannot be opened, or holds no table, is named with the reason."""
    assert fault_in(read([tmp_path / "none.csv"], ANY), tmp_path / "none.csv") == "No such file or directory"
    assert fault_in(read([tmp_path], ANY), tmp_path) == "Is a directory"
    for text in (b"", b"\n \n", b"\x00\xff\xfe\n\x89PNG"):
        path = write_file(text)
        assert fault_in(read([path], ANY), path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("builtins.open", "io.open"):  # pathlib opens by the second
        monkeypatch.setattr(name, refuse)
    assert fault_in(read([path], ANY), path) == "Permission denied"


MOST_BYTES = """
import sys, tracemalloc
from contextlib import closing
import pyarrow as pa
from streamsvm.data.tables.columns import Columns
from tests.data.pieces import read_csv, read_parquet
columns = Columns(require_label=False)
readings = (
    lambda: read_parquet([sys.argv[1]], columns, 2000),
    lambda: read_csv([sys.argv[2]], columns, 1 << 20),
)
for read in readings:
    with closing(read()) as pieces:  # all that is imported on the way
        next(pieces)
tracemalloc.start()  # if it stopped, it might crash Arrow's threads
for read in readings:
    pieces, before = read(), pa.total_allocated_bytes()
    tracemalloc.reset_peak()
    held = tracemalloc.get_traced_memory()[0]
    most_arrow_bytes = max(pa.total_allocated_bytes() - before for _ in pieces)
    print(tracemalloc.get_traced_memory()[1] - held + most_arrow_bytes)
"""


@pytest.mark.slow("measures memory in a process of its own")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A piece at a time, out of one row group of 32 MB, or 24 MB of text."""
    path, text = tmp_path / "t.parquet", tmp_path / "t.csv"
    table = pa.table({f"c{j}": np.random.default_rng(j).standard_normal(200_000) for j in range(20)})
    pq.write_table(table, path, row_group_size=200_000, use_dictionary=False, data_page_size=1 << 16)
    text.write_text("y,a,b\n" + "1,0.5,-3.25\n" * 2_000_000)
    del table
    ran = run_python(MOST_BYTES, path, text)
    assert ran.returncode == 0, ran.stderr
    assert [int(line) < 12e6 for line in ran.stdout.split()] == [True, True], ran.stdout


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, write_file: WriteFile) -> None:
    """What to install is said; nothing else is imported before it is used."""
    for name in ("pyarrow", "pyarrow.csv", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in list(vars(pyarrow)):  # what earlier tests have looked up
        monkeypatch.delitem(vars(pyarrow), name)
    for read in (read_csv, read_parquet):
        with pytest.raises(InputError, match=r"needs pyarrow: pip install 'streamsvm\[tables\]'"):
            list(read([write_file("y,a\n1,2\n")], ANY))
    script = "import sys, streamsvm.ingestion.readers\n"
    script += "import streamsvm.data.sources.arrays as a; list(a.read_arrays([[1]], [1]))\n"
    script += "print({'pandas', 'dask', 'pyarrow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(label="Grade"), "column 'Grade', the label, is missing; is 'grade' meant? there are grade, height, x"),
        (Columns(label="grade", drop=("heigth",)), "which --drop names, is missing; is 'height' meant? there are"),
        (Columns(label="grade", features=("hight",)), "no column 'hight', which is a feature; is 'height' meant?"),
        (Columns(label="mass"), "column 'mass', the label, is missing; there are grade, height, x"),
        (ANY, "name it by --label COLUMN (label=... in Python); there are grade, height, x"),
    ],
)
def test_names_that_are_nearly_right(write_file: WriteFile, columns: Columns, message: str) -> None:
    path = write_file("grade,height,x\n1,2,3\n")
    assert message in fault_in(read_csv([path], columns), path)


def test_columns_that_are_not_read_need_no_names(write_file: WriteFile) -> None:
    """A table for a model may have the index that pandas wrote, and any columns that the model does not know."""
    path = write_file(",a,b,b,grade\n0,1,2,3,7\n")
    assert listed(read_csv([path], Columns(label="grade", features=("a",))))["X"] == [[1]]
    with pytest.raises(InputError, match="column 1 has no name"):
        list(read_csv([path], Columns(label="grade")))
    with pytest.raises(InputError, match="columns 3 and 4 are both named 'b'"):
        list(read_csv([path], Columns(label="grade", features=("b",))))


def test_columns_are_filled_side_by_side_whatever_their_length() -> None:
    columns = [np.arange(5000) + 10_000 * j for j in range(40)]  # longer than the rows that are filled together
    np.testing.assert_array_equal(fill_features(columns), np.column_stack(columns).astype(np.float32))
