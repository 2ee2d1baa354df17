"""Text with a byte order mark, in UTF-16, or of another format than its name tells: read, or refused with a remedy."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources.formats import guess_format
from streamsvm.data.sources.svmlight import read_svmlight
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion import tasks
from streamsvm.ingestion.readers import ingest
from streamsvm.ingestion.tasks import cut_file, read_stretch
from streamsvm.system.errors import InputError, NeedsOptionError

ROWS = "1 1:2\n0 2:3\n1 1:5\n"
TEXTS = {"a.csv": "x,y\n1,0\n2,1\n", "a.jsonl": '{"x": 1, "y": 0}\n{"x": 2, "y": 1}\n', "a.svm": ROWS}


def read_all(path: Path, out: Path, **how: Any) -> list[Any]:
    dataset = ingest(path, out, shuffle=None, **how)
    return [np.asarray(dataset.read(0).X).tolist(), np.asarray(dataset.classes).tolist()]


@pytest.mark.parametrize("name", TEXTS)
def test_a_mark_of_utf8_is_no_part_of_the_text(tmp_path: Path, name: str) -> None:
    how = {} if name == "a.svm" else {"label": "y"}
    plain, marked = tmp_path / name, tmp_path / f"marked-{name}"
    plain.write_text(TEXTS[name])
    marked.write_text(TEXTS[name], "utf-8-sig")
    assert read_all(marked, tmp_path / "marked.zarr", **how) == read_all(plain, tmp_path / "plain.zarr", **how)


@pytest.mark.parametrize("block_bytes", [4, 8, 1 << 20])
def test_a_marked_text_is_cut_into_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """In one process, and on workers, which read from the byte on at which a block begins."""
    path = tmp_path / "marked.svm"
    path.write_text(ROWS, "utf-8-sig")
    pieces = list(read_svmlight([path], 2, block_bytes))
    monkeypatch.setattr(tasks, "BLOCK_BYTES", block_bytes)
    cut = [
        rows
        for stretch in cut_file(str(path), "svmlight", Columns(), False)
        for rows in read_stretch(stretch, "svmlight", pieces[0])
    ]
    assert [rows.n_rows for rows in cut] == [rows.n_rows for rows in pieces]
    for found in (pieces, cut):
        assert np.concatenate([rows.labels for rows in found]).tolist() == [1, 0, 1]  # type: ignore[arg-type]
        assert np.concatenate([rows.X.data for rows in found]).tolist() == [2, 3, 5]


def test_columns_are_counted_behind_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "marked.svm"
    path.write_text("1 1:x\n", "utf-8-sig")
    with pytest.raises(InputError, match=f"^{path}:1:3: "):
        list(read_svmlight([path], 1))


@pytest.mark.parametrize("code", [f"UTF-{bits}{end}" for bits in (16, 32) for end in ("", "LE", "BE")])
@pytest.mark.parametrize("name", [*TEXTS, "a.svm.gz", "a.dat"])
def test_utf16_is_named_with_the_command_that_converts_it(tmp_path: Path, name: str, code: str) -> None:
    path = tmp_path / name
    content = TEXTS.get(name, ROWS).encode(code)
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(InputError, match=rf"^{path}: text in {code[:6]}: .*`iconv -f {code} -t UTF-8`"):
        ingest(path, tmp_path / "rows.zarr")


def test_binary_data_are_not_taken_for_utf16(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(np.array([1, 2, 300, 4], "<i2").tobytes())
    with pytest.raises(InputError, match="is not text"):
        ingest(path, tmp_path / "rows.zarr")


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b'[{"a": 1}]\n', "seems to be a .json file, .*JSON lines"),
        (b"@RELATION r\n@data\n1\n", "seems to be a .arff file, .*loadarff"),
        (b"% a comment\n@relation r\n", "seems to be a .arff file, .*loadarff"),
        (b"%%MatrixMarket matrix\n2 2 1\n1 1 3\n", "seems to be a .mtx file, .*mmread"),
        (b"MATLAB 5.0 MAT-file", "seems to be a .mat file, .*loadmat"),
        (b"PK\x03\x04", "seems to be a .zip file, .*unpack"),
        (b"FCS3.1    ", "seems to be a .fcs file, .*save the events as CSV"),
        (b"$FL2@(#) SPSS", "seems to be a .sav file, .*save the table as CSV"),
        (b"\x89HDF\r\n\x1a\n", "seems to be a .h5 file, .*streamsvm.ingest in Python"),
        (b"\x80\x04\x95\x00", "seems to be a .pkl file, .*would run code"),
        (b"\x1f\x8b\x08", "rename it to end in .gz"),
    ],
)
def test_what_a_file_of_an_unknown_ending_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, advice: str
) -> None:
    """The remedy is named whatever else is asked for, and for standard input where the content tells it."""
    for name in ("rows.data", "rows"):
        path = tmp_path / name
        path.write_bytes(content)
        for how in ({}, {"label": "y"}):
            with pytest.raises(InputError, match=f"^{path}:.*{advice}"):
                ingest(path, tmp_path / "rows.zarr", **how)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with pytest.raises(InputError, match=f"^<stdin>:.*{advice}"):
        ingest("-", tmp_path / "rows.zarr")


TABLES = [
    "a\tb\ty\n1\t2\t0\n3\t4\t1\n",
    "# made by X\n\na,b,y\n1,2,0\n3,4,1\n",
    "a b y\n1 2 0\n3  4 1\n",
    "a;b;y\n1;2;0\n3;4;1\n",
    '{"a": 1, "b": 2, "y": 0}\n{"a": 3, "b": 4, "y": 1}\n',
]


@pytest.mark.parametrize("name", ["rows.data", "rows.pin", "rows.tab", "rows.txt", "rows.dat", "rows", "rows.data.gz"])
@pytest.mark.parametrize("content", TABLES)
def test_files_of_unknown_endings_are_what_they_hold(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    assert read_all(path, tmp_path / "rows.zarr", label="y") == [[[1, 2], [3, 4]], [0, 1]]


@pytest.mark.parametrize("content", TABLES)
def test_standard_input_names_the_format_of_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """It can be read only once, so that nobody looks at its first rows; --format svmlight is as strict."""
    kind = "jsonl" if "{" in content else "csv"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    with pytest.raises(NeedsOptionError, match=f"^<stdin>:.*--format {kind} reads it"):
        ingest("-", tmp_path / "rows.zarr")
    (tmp_path / "rows").write_text(content)
    with pytest.raises(NeedsOptionError, match=f"rows:.*--format {kind} reads it"):
        ingest(tmp_path / "rows", tmp_path / "rows.zarr", file_format="svmlight")


def test_an_array_of_an_unknown_ending(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=np.eye(2), y=[0, 1])
    np.save(tmp_path / "X.npy", np.eye(2))
    (tmp_path / "X.npy").rename(tmp_path / "X")
    assert guess_format(tmp_path / "X") == "npy"


@pytest.mark.parametrize(
    "content",
    [ROWS, "#c\n\n1,3 1:2\n", "1,2 1:3\n1:2\n", " +1\t1:2\n", "", "spam 1:2\n", "-1e3 2:5 # a,b\n", "1\n-1\n",
     "2 qid:1 1:0.5 # a, b\n", "1 1:x\n", "a,b,c\n1 1:2\n"],
)  # fmt: skip
def test_what_may_be_svmlight_is_left_to_its_reader(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.dat"
    path.write_text(content, "latin1")
    assert guess_format(path) == "svmlight"


@pytest.mark.parametrize(
    "content", ["1,2,0\n3,4,1\n", "1\t2\t0\n3\t4\t1\n", "1 2 0\n3 4 1\n", "0 2024-01-01 12:30,5\n", "1,12:30\n"]
)
def test_what_is_a_table_without_a_header(tmp_path: Path, content: str) -> None:
    (tmp_path / "rows.dat").write_text(content)
    assert guess_format(tmp_path / "rows.dat") == "csv"


def test_wide_rows_of_which_the_first_does_not_end_in_the_head(tmp_path: Path) -> None:
    pairs = " ".join(f"{k}:0.25" for k in range(1, 20_000))
    (tmp_path / "pairs").write_text(f"1 {pairs}\n0 {pairs}\n")
    (tmp_path / "cells").write_text(f"1 {' '.join(['0.25'] * 20_000)}\n")
    assert [guess_format(tmp_path / name) for name in ("pairs", "cells")] == ["svmlight", "csv"]


@pytest.mark.parametrize(
    ("pack", "told"),
    [
        (gzip.compress, "holds compressed data: rename it to end in .gz"),
        (bz2.compress, "holds compressed data: rename it to end in .bz2"),
        (lzma.compress, "holds compressed data: rename it to end in .xz"),
        (lambda _: b"\x89HDF\r\n\x1a\n\xff", "seems to be a .h5 file|seems to be of the format"),
        (lambda text: text.replace(b"a", b"\xe4"), "the name of the column is not UTF-8 text; `iconv"),
    ],
)
def test_csv_names_the_format_of_other_data(tmp_path: Path, pack: Callable[[bytes], bytes], told: str) -> None:
    """As of a compressed file that lost its ending; another encoding is advised only where no format is seen."""
    (tmp_path / "rows.csv").write_bytes(pack(b"a,y\n1,0\n2,1\n"))
    with pytest.raises(InputError, match=told):
        ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", label="y")
