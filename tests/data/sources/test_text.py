"""Files of svmlight text: cut into blocks, parsed by threads, and every fault named with its place."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from streamsvm.data.remote import files
from streamsvm.data.sources import svmlight
from streamsvm.data.sources.svmlight import FROM_0, read_svmlight
from streamsvm.system.errors import InputError

SMALL = b"+1 1:0.5 3:2\n-1 2:1e-3\n# note\n+1\n"
PACKERS: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
Row = tuple[float, int | None, list[int], list[float]]  # label, qid, indices, values


def good_lines(n: int) -> bytes:
    return b"".join(b"%d %d:%d.25 %d:-1e-2\n" % (k % 2, k % 7 + 1, k, k % 7 + 9) for k in range(n))


def read_all(sources: Sequence[str | Path], threads: int = 2, block_bytes: int = 8 << 20) -> list[Row]:
    """Every row, whatever the blocks were."""
    rows: list[Row] = []
    for part in read_svmlight(sources, threads, block_bytes):
        values = part.X.data.astype(np.float32)  # only the first block has more digits
        for k, label in enumerate(part.labels):
            inside = slice(part.X.indptr[k], part.X.indptr[k + 1])
            qid = None if part.qid is None else int(part.qid[k])
            rows.append((float(label), qid, part.X.indices[inside].tolist(), values[inside].tolist()))
    return rows


def message_of(sources: Sequence[str | Path], threads: int = 2, block_bytes: int = 8 << 20) -> str:
    with pytest.raises(InputError) as caught:
        read_all(sources, threads, block_bytes)
    return str(caught.value)


def parser_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("svmlight")]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.svm"
    path.write_bytes(SMALL)
    return path


def test_rows_of_a_small_file(small: Path) -> None:
    (rows,) = read_svmlight([small], threads=1)
    assert rows.labels.tolist() == [1.0, -1.0, 1.0]
    assert rows.qid is None
    np.testing.assert_array_equal(rows.X.toarray(), np.array([[0.5, 0, 2], [0, 1e-3, 0], [0, 0, 0]]))
    dtypes = [str(array.dtype) for array in (rows.labels, rows.X.data, rows.X.indices)]
    assert dtypes == ["float64", "float64", "int32"]
    rows.X.check_format(full_check=True)


def test_query_ids_explicit_zeros_and_rows_without_a_feature(tmp_path: Path) -> None:
    path = tmp_path / "rank.svm"
    path.write_bytes(b"2 qid:10 1:0 4:0.0\n1 qid:11")
    (rows,) = read_svmlight([str(path)], threads=1)
    assert rows.qid is not None
    assert rows.qid.tolist() == [10, 11]
    assert (rows.X.nnz, rows.X.shape) == (2, (2, 4))
    path.write_bytes(b"1\n2\n")
    (rows,) = read_svmlight([path], threads=1)
    assert rows.X.shape == (2, 0)


LINES = [b"1 1:1\n", b"-1 2:.5 70000:3 # x\r\n", b"\n", b"# only this\n", b"3\n", b" 2\t3:1e9 \n"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(LINES)), st.booleans(), st.integers(1, 60), st.integers(1, 3))
def test_block_size_and_threads_never_change_the_rows(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], whole: bool, block_bytes: int, threads: int
) -> None:
    text = b"".join([*lines, b"1 9:9\n"])
    path = tmp_path_factory.getbasetemp() / "blocks.svm"
    path.write_bytes(text if whole else text[:-1])
    assert read_all([path], threads, block_bytes) == read_all([path], 1)


def test_number_of_threads_never_changes_the_blocks(tmp_path: Path) -> None:
    path = tmp_path / "many.svm"
    path.write_bytes(good_lines(3000))
    one, two, five = ([len(part.labels) for part in read_svmlight([path], n, 5000)] for n in (1, 2, 5))
    assert len(one) > 10
    assert one == two == five


def test_line_longer_than_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.svm"
    pairs = b" ".join(b"%d:%d" % (k, k) for k in range(1, 5001))
    path.write_bytes(b"1 1:1\n2 " + pairs + b"\n3 1:3\n")
    rows = read_all([path], block_bytes=64)
    assert [label for label, *_ in rows] == [1.0, 2.0, 3.0]
    assert rows[1][3] == list(range(1, 5001))
    monkeypatch.setattr(svmlight, "MAX_LINE_BYTES", 1000)
    path.write_bytes(b"1 1:1\n2 1:" + b"0" * 1200 + b"\n")
    assert message_of([path], block_bytes=64) == f"{path}:2:1: line of 1,000 bytes or more"


class ShortReads(io.BytesIO):
    """A pipe: gives a few bytes at a time, and counts them."""

    given = 0

    def readinto(self, buffer: Any, /) -> int:
        n_bytes = super().readinto(memoryview(buffer)[:13])
        self.given += n_bytes
        return n_bytes


def put_on_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> ShortReads:
    pipe = ShortReads(text)
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": pipe}))
    return pipe


def test_blocks_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = put_on_stdin(monkeypatch, good_lines(5000))
    rows = read_svmlight(["-"], threads=2, block_bytes=1000)
    for n_taken in range(1, 20):
        next(rows)
        assert pipe.given <= (n_taken + 2 + 2) * 1000
    rows.close()


def test_several_files_in_order_each_with_its_own_lines(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "no_newline.svm"
    other.write_bytes(b"7 1:7")
    assert [label for label, *_ in read_all([other, small, other])] == [7.0, 1.0, -1.0, 1.0, 7.0]
    other.write_bytes(b"\n\n1 1:1 x\n")
    assert message_of([small, other], block_bytes=8).startswith(f"{other}:3:7: ")


ALL_OR_NONE = "(all rows need one, or none)"
BAD_LINES = [
    ("yes 1:1", 1, "label 'yes' is not a number"),
    (" nan 1:1", 2, "label 'nan' is nan"),
    ("-inf 1:1", 1, "label '-inf' is infinite"),
    ("1e400 1:1", 1, "label '1e400' overflows float64"),
    ("+1 0:1", 4, "index 0 in '0:1': features are numbered from 1 here; " + FROM_0),
    ("+1 3:1 2:1", 8, "descending index 2 in '2:1': the one before it is 3"),
    ("+1 3:1\t03:1", 8, "duplicate index 03 in '03:1': the one before it is 3"),
    ("+1 99999999999999999999:1", 4, "index '99999999999999999999' is too large; the largest is 2147483647"),
    ("+1 -1:1", 4, "index '-1' of '-1:1' is not a whole number"),
    ("+1 1 # c", 4, "'1' has no colon, index:value expected; --format csv reads tables of numbers"),
    ("+1 1:nan", 4, "value 'nan' of index 1 is nan"),
    ("-1 1:1 \t 2:-Infinity", 10, "value '-Infinity' of index 2 is infinite"),
    ("-1 2:", 4, "value '' of index 2 is not a number"),
    ("-1 2:1_0", 4, "value '1_0' of index 2 is not a number"),
    ("-1 2:-3.4028236e38", 4, "value '-3.4028236e38' of index 2 overflows float32"),
    ("-1 2:1e400", 4, "value '1e400' of index 2 overflows float32"),
    ("-1 2:" + "7" * 50 + "x", 4, f"value '{'7' * 37}...' of index 2 is not a number"),
    ("-1 qid:5 1:1", 4, f"'qid:5': unexpected, since rows above have no qid {ALL_OR_NONE}"),
    ("\x00\x01\x02", 1, r"'\x00\x01\x02' is not text (binary data?)"),
    ("+1 1:1\x00", 4, r"'1:1\x00' is not text (binary data?)"),
    ("+1 1:1 # été \x00", 14, r"'\x00' is not text (binary data?)"),
    ("+1 1:\udcff", 4, "'1:\ufffd' is not text (binary data?)"),  # the byte 0xff
]


@pytest.mark.parametrize(("line", "column", "reason"), BAD_LINES)
def test_first_bad_line_is_named_with_its_place(line: str, column: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.svm"
    bad = line.encode(errors="surrogateescape")
    for end in (b"\n", b"\r\n", b""):
        path.write_bytes(b"+1 1:1\n-1 2:1\n" + bad + end)
        assert message_of([path]) == f"{path}:3:{column}: {reason}"
    path.write_bytes(b"#\n\n" + good_lines(700) + bad + b"\nlate 1:1\n" + good_lines(700) + b"later 1:1\n")
    for threads in (1, 3):
        assert message_of([path], threads, 1000) == f"{path}:703:{column}: {reason}"


@pytest.mark.parametrize(
    ("head", "line", "fault"),
    [
        ("1 qid:1 1:1", "1 1:1", f"3: '1:1': qid is missing here, but rows above have one {ALL_OR_NONE}"),
        ("1 qid:1 1:1", "1 qid:x", "3: 'qid:x': a query id is a whole number of 64 bits"),
        ("1 1:1", "1 qid:1", f"3: 'qid:1': unexpected, since rows above have no qid {ALL_OR_NONE}"),
    ],
)
@pytest.mark.parametrize("block_bytes", [10, 8 << 20])
def test_query_ids_across_blocks(head: str, line: str, fault: str, block_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "mixed.svm"
    path.write_text(f"{head}\n" * 50 + "# no rows\n" * 9 + f"{line}\n" * 50)
    assert message_of([path], block_bytes=block_bytes) == f"{path}:60:{fault}"


def test_query_ids_across_files(small: Path, tmp_path: Path) -> None:
    ranked = tmp_path / "ranked.svm"
    ranked.write_bytes(b"\n1 qid:1 1:1\n")
    assert message_of([small, ranked]).startswith(f"{ranked}:2:3: 'qid:1': unexpected")
    assert message_of([ranked, small]).startswith(f"{small}:1:4: '1:0.5': qid is missing")


def test_file_without_rows(small: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.svm"
    for nothing in (b"", b"\n\n", b"# 1 1:1\n"):
        empty.write_bytes(nothing)
        assert message_of([small, empty, small]) == f"{empty}: no rows in this file"


def test_files_that_cannot_be_opened(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing.svm"
    with pytest.raises(InputError, match=f"^{missing}: No such file or directory$"):
        next(read_svmlight([small, missing], 1))  # before a row of the first file
    for suffix in ("", *PACKERS):
        folder = tmp_path / f"folder{suffix}"
        folder.mkdir()
        assert message_of([folder]) == f"{folder}: Is a directory"
    refusal = Mock(side_effect=PermissionError(13, "Permission denied"))  # mode bits do not stop root
    monkeypatch.setattr(files, "open", refusal, raising=False)
    assert message_of([small]) == f"{small}: Permission denied"


@pytest.mark.parametrize("stops_early", [True, False])
def test_reader_that_stops_or_fails_leaves_nothing_open(
    stops_early: bool, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO(good_lines(1000) + b"bad\n" + good_lines(5000))
    monkeypatch.setattr(files, "open", Mock(return_value=file), raising=False)
    rows = read_svmlight([small], 3, 1000)
    taken = [next(rows)]
    assert parser_threads()
    if stops_early:
        rows.close()
    else:
        with pytest.raises(InputError) as caught:  # kept: its traceback holds the frames
            taken.extend(rows)
        assert str(caught.value) == f"{small}:1001:1: label 'bad' is not a number"
        assert 900 < sum(len(part.labels) for part in taken) < 1000  # the blocks in front of the bad one
    for thread in parser_threads():
        thread.join(30)
    assert not parser_threads()
    assert file.closed


@pytest.mark.slow("reads whole data sets")
@pytest.mark.data
@pytest.mark.skipif("STREAMSVM_DATA" not in os.environ, reason="STREAMSVM_DATA, folder of data sets, not set")
@pytest.mark.parametrize("name", ["adult/a9a", "adult/a9a.t", "ijcnn1/ijcnn1.trn", "news20/news20"])
def test_agrees_with_scikit_learn(name: str) -> None:
    path = Path(os.environ["STREAMSVM_DATA"]) / f"{name}.xz"
    with lzma.open(path) as file:
        expected_X, expected_labels = load_svmlight_file(file, dtype=np.float32, zero_based=False)
    parts = list(read_svmlight([path], 2, 1 << 20))
    assert len(parts) > 1
    assert max(part.X.shape[1] for part in parts) == expected_X.shape[1]
    np.testing.assert_array_equal(np.concatenate([part.labels for part in parts]), expected_labels)
    row_sizes = np.concatenate([np.diff(part.X.indptr) for part in parts])
    np.testing.assert_array_equal(row_sizes, np.diff(expected_X.indptr))
    np.testing.assert_array_equal(np.concatenate([part.X.indices for part in parts]), expected_X.indices)
    data = np.concatenate([part.X.data for part in parts]).astype(np.float32)
    np.testing.assert_array_equal(data, expected_X.data)
