"""Files that several threads read and write: the order, the bytes and the messages are those of one thread."""

from __future__ import annotations

import gzip
import io
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from streamsvm import ingest
from streamsvm.data.remote import files
from streamsvm.data.sources import arrow, csv, csv_rows, formats
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion import ingest as ingest_module
from streamsvm.ingestion.write import DatasetWriter, Shape
from streamsvm.numeric.rows import Rows
from streamsvm.system.errors import InputError
from tests.data.conftest import WriteFile, file_hashes
from tests.data.pieces import fault_in, read_csv, read_parquet

ANY = Columns()
N = 3000


def rows_of_text(n: int = N) -> str:
    return "y,a,b\n" + "".join(f"{k % 3},{k},{k / 7!r}\n" for k in range(n))


def csv_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("table")]


def test_threads_never_change_the_pieces(write_file: WriteFile) -> None:
    path = write_file(rows_of_text())
    one, two, five = (list(read_csv([path, path], ANY, 5000, threads)) for threads in (1, 2, 5))
    assert len(one) > 20
    for pieces in (two, five):
        assert [rows.n_rows for rows in pieces] == [rows.n_rows for rows in one]
    for pieces in (one, two, five):
        assert np.concatenate([rows.X for rows in pieces])[:, 0].tolist() == [*range(N)] * 2


def test_a_block_that_takes_longest_is_still_the_first(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread waits until another block is parsed."""
    read, later = csv.Block.read_numbers, threading.Event()

    def read_late(block: csv.Block) -> Any:
        if block.line == 2:
            assert later.wait(30)
        else:
            later.set()
        return read(block)

    monkeypatch.setattr(csv.Block, "read_numbers", read_late)
    pieces = list(read_csv([write_file(rows_of_text())], ANY, 5000))
    assert np.concatenate([rows.X for rows in pieces])[:, 0].tolist() == [*range(N)]


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_fault_of_the_file_is_told(write_file: WriteFile, threads: int) -> None:
    """Whatever is wrong behind it: other values, the quotes, the compressed data."""
    head, tail = rows_of_text(700), "".join(f"1,{k},2\n" for k in range(700))
    reason = "702:3: column b: not a number: 'x'"
    for behind in ("1,z,2\n", "1,2\n", '1,"2,3\n' + tail):
        path = write_file(head + "1,2,x\n" + tail + behind)
        assert fault_in(read_csv([path], ANY, 1000, threads), path) == reason
    noise = np.random.default_rng(0).integers(0, 9, 20000)  # so that the end of the data is far behind the fault
    packed = gzip.compress((head + "1,2,x\n" + tail + "".join(f"1,{k},2\n" for k in noise)).encode())
    path = write_file(packed[:-3000], "t.csv.gz")
    assert fault_in(read_csv([path], ANY, 1000, threads), path) == reason


def test_a_reader_that_stops_leaves_nothing_open(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = write_file(rows_of_text()), io.BytesIO(rows_of_text().encode())
    monkeypatch.setattr(files, "open", Mock(return_value=file), raising=False)
    pieces = read_csv([path], ANY, 1000)
    next(pieces)
    assert csv_threads()
    pieces.close()
    for thread in csv_threads():
        thread.join(30)
    assert not csv_threads()
    assert file.closed


def test_few_blocks_are_in_memory(write_file: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = write_file(rows_of_text()), io.BytesIO(rows_of_text().encode())
    monkeypatch.setattr(files, "open", Mock(return_value=file), raising=False)
    monkeypatch.setattr(csv_rows, "HEAD_BYTES", 1000)
    pieces = read_csv([path], ANY, 1000, 2)
    for n_taken in range(1, 30):
        next(pieces)
        assert file.tell() <= (n_taken + 2 + 1) * 1000


def test_labels_that_all_differ(write_file: WriteFile) -> None:
    """Numbers as labels: the float64 that Python reads, to the last bit, in every block."""
    numbers = np.random.default_rng(0).standard_normal(2000) * 10.0 ** np.arange(-300, 300, 0.3)
    cells = [f" {number!r}" if k % 9 else repr(number) for k, number in enumerate(numbers.tolist())]
    path = write_file("y,a\n" + "".join(f"{cell},1\n" for cell in cells))
    for block_bytes in (3000, 1 << 20):
        found = [rows.labels for rows in read_csv([path], ANY, block_bytes)]
        np.testing.assert_array_equal(np.concatenate(found), numbers)  # type: ignore[arg-type]


def test_parquet_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in order, and the first bad value is told, though the piece behind it cannot be read at all."""
    table = {"a": np.arange(500.0), "y": np.arange(500) % 2}
    pq.write_table(pa.table(table), tmp_path / "t.parquet", row_group_size=50)
    pieces = list(read_parquet([tmp_path / "t.parquet"], ANY, 20))
    assert np.concatenate([rows.X for rows in pieces])[:, 0].tolist() == list(range(500))
    table["a"][70] = np.nan
    pq.write_table(pa.table(table), tmp_path / "t.parquet", row_group_size=50)
    read = arrow.ArrowPiece.read_numbers

    def fail_later(piece: arrow.ArrowPiece) -> Any:
        if piece.batch.column("a")[0].as_py() >= 100:
            raise OSError("damaged")
        return read(piece)

    monkeypatch.setattr(arrow.ArrowPiece, "read_numbers", fail_later)
    path = tmp_path / "t.parquet"
    assert fault_in(read_parquet([path], ANY, 50), path) == "row 71, column a: nan"


@pytest.mark.parametrize("kind", ["float32", "float64", "int8", "uint32", "int64", "uint64", "bool"])
@pytest.mark.parametrize("missing", [False, True])
def test_parquet_rounds_as_float64_does(kind: str, missing: bool, tmp_path: Path) -> None:
    """Whole numbers become the float32 of their float64, whichever way they take."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**63 - 1, 999).astype(kind) if kind != "float64" else rng.standard_normal(999)
    if kind in ("int64", "uint64"):
        values[:9] = 2**60 + 2**36 + 1  # the 1 is lost in float64, and what is left is halfway between two float32
    column = pa.array(values, mask=np.arange(999) == (998 if missing else -1))
    pq.write_table(pa.table({"a": column, "y": np.arange(999) % 2}), tmp_path / "t.parquet")
    reading = read_parquet([tmp_path / "t.parquet"], ANY)
    if missing:
        with pytest.raises(InputError, match="row 999, column a: missing value"):
            list(reading)
        return
    (rows,) = reading
    np.testing.assert_array_equal(rows.X[:, 0].astype(np.float32), values.astype(np.float64).astype(np.float32))


@pytest.mark.parametrize("suffix", ["csv", "svm", "parquet"])
@pytest.mark.parametrize("options", [{}, {"scale": "maxabs", "layout": "sparse"}, {"shuffle": None, "codec": "lz4"}])
def test_threads_never_change_a_byte_of_the_dataset(
    suffix: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading, permuting and writing by one thread or by five; a run holds many parts."""
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        path.write_text(rows_of_text())
    elif suffix == "svm":
        path.write_text("".join(f"{k % 3} {k % 5 + 1}:{k + 1} 9:{k / 7!r}\n" for k in range(N)))
    else:
        table = {"y": np.arange(N) % 3, "a": np.arange(N), "b": np.arange(N) / 7}
        pq.write_table(pa.table(table), path, row_group_size=700)
    monkeypatch.setattr(ingest_module, "PART_ITEMS", 100)
    found = []
    for threads in (1, 5):
        for module in (formats, csv, ingest_module):
            monkeypatch.setattr(module, "default_threads", lambda threads=threads: threads)
        ingest(path, tmp_path / "d.zarr", chunk_bytes=2000, overwrite=True, **options)
        found.append(file_hashes(tmp_path / "d.zarr"))
    assert found[0] == found[1]
    assert len(found[0]) > 10


@pytest.mark.parametrize("n", [1, 399, 400, 401, 999])
def test_raw_chunks_are_those_of_zarr(n: int, tmp_path: Path) -> None:
    """We write their files: Zarr reads them, and would have written the same bytes."""
    rng = np.random.default_rng(n)
    X, y = rng.random((n, 3), np.float32), rng.integers(0, 2, n).astype(np.int32)
    (tmp_path / "ours").mkdir()
    writer = DatasetWriter(tmp_path / "ours", Shape(n, 3, 3 * n, 3, False), ("y",), 4 * 3 * 400, "crc32c")
    writer.append(Rows(0, X, y))
    writer.finish({"classes": [0, 1], "class_counts": [0, n], "feature_names": None, "shuffle": None}, None)
    for name, values in (("X", X), ("y", y)):
        ours = zarr.open_array(str(tmp_path / "ours" / name))
        np.testing.assert_array_equal(ours[...], values)
        theirs = zarr.create_array(
            str(tmp_path / "theirs" / name),
            shape=values.shape,
            chunks=ours.chunks,
            dtype=values.dtype,
            compressors=zarr.codecs.Crc32cCodec(),
            fill_value=0,
            config={"write_empty_chunks": True},
        )
        theirs[...] = values
        written, wanted = (file_hashes(tmp_path / whose / name / "c") for whose in ("ours", "theirs"))
        assert written == wanted
