"""Ingest on workers writes the bytes of one process, or leaves nothing."""

from __future__ import annotations

import bz2
import gzip
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow
import pyarrow.parquet as pyarrow_parquet
import pytest
from distributed import Client

from streamsvm.cli.main import main
from streamsvm.data.open import open_dataset
from streamsvm.data.sources import arrow, csv
from streamsvm.data.sources.svmlight import read_svmlight
from streamsvm.data.store.chunks import open_to_rewrite, write_parts
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.shared_files import SharedFolder
from streamsvm.data.tables.columns import Columns
from streamsvm.engines.cluster.engine import map_on_workers
from streamsvm.ingestion import on_workers, segments, tasks
from streamsvm.ingestion.ingest import IngestOptions, write_dataset
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import guess_bytes, ingest
from streamsvm.system.errors import InputError, MemoryBudgetError, WriteError
from tests.data.pieces import read_csv, read_parquet
from tests.object_server import ObjectServer
from tests.runs.ingested_files import FAULTS, FILES, make_csv, make_svmlight, read_bytes

BLOCK_BYTES, RUN_BYTES = 600, 900
Ingest = Callable[..., Dataset]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks and runs; and what workers do is done in this process, the last call first."""

    @contextmanager
    def open_nobody(**_: Any) -> Iterator[None]:
        yield None

    def carry_out_backwards(_: Any, __: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Any]:
        found: list[Any] = []
        for each in reversed(arguments):
            try:
                found.append(function(*pickle.loads(pickle.dumps(each))))  # as workers are sent it
            except InputError as error:
                found.append(error)
            finally:
                with segments.MAY_PUT:  # nothing is on its way
                    pass
        for each in reversed(found):
            if isinstance(each, InputError):
                raise each
            yield each

    monkeypatch.setattr(tasks, "BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(csv, "CODED_BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(tasks, "STRETCH_BLOCKS", 2)
    for each in (segments, on_workers):
        monkeypatch.setattr(each, "RUN_BYTES", RUN_BYTES)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 700)
    monkeypatch.setattr(on_workers, "CHUNKS_TOGETHER", 2)
    monkeypatch.setattr(on_workers, "open_workers", open_nobody)
    monkeypatch.setattr(on_workers, "map_on_workers", carry_out_backwards)


def write_alone(paths: list[Path], destination: Path, options: IngestOptions, block_bytes: int = BLOCK_BYTES) -> None:
    """As one process writes, with the same blocks."""
    if ".svm" in paths[0].name:
        pieces = read_svmlight(paths, 2, block_bytes)
    else:
        pieces = read_csv(paths, Columns(), block_bytes)
    write_dataset(pieces, destination, ", ".join(map(str, paths)), guess_bytes(paths), options)


OPTIONS = {
    "shuffled": IngestOptions(chunk_bytes=700),
    "in order": IngestOptions(chunk_bytes=400, shuffle=None),
    "scaled": IngestOptions(scale="maxabs", shuffle=4, layout="dense", chunk_bytes=1000),
    "packed": IngestOptions(codec="zstd", layout="sparse", chunk_bytes=600, shuffle=1),
    "shards": IngestOptions(chunk_bytes=400, shard_bytes=1500, shuffle=2),
    "sparse shards": IngestOptions(chunk_bytes=400, shard_bytes=900, layout="sparse"),
    "halves": IngestOptions(dtype="float16", layout="dense", chunk_bytes=500),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", FILES)
def test_the_files_are_those_of_one_process(name: str, options: str, here: None, tmp_path: Path) -> None:
    """Whatever the runs, the blocks and the order of the work; runs are so small that some are split."""
    paths = [tmp_path / file for file in FILES[name]]
    for path, text in zip(paths, FILES[name].values(), strict=True):
        path.write_text(text, newline="")
    write_alone(paths, tmp_path / "alone.zarr", OPTIONS[options])
    ingest_on_workers(paths, tmp_path / "shared.zarr", Columns(), OPTIONS[options])
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")
    assert sorted(os.listdir(tmp_path)) == sorted(["alone.zarr", "shared.zarr", *FILES[name]])


def test_large_runs_are_split_as_one_process_does(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros and ones take less as text than as numbers, so that the runs are larger than expected, twice."""
    split = list[int]()
    count_parts = segments.count_parts
    monkeypatch.setattr(segments, "count_parts", lambda nbytes: split.append(count_parts(nbytes)) or split[-1])
    rng = np.random.default_rng(0)
    path = tmp_path / "a.svm"
    path.write_text("\n".join(f"{k % 2} " + " ".join(f"{j}:1" for j in np.flatnonzero(rng.random(9) < 0.8) + 1)
                              for k in range(400)))  # fmt: skip
    write_alone([path], tmp_path / "alone.zarr", IngestOptions(chunk_bytes=2000))
    ingest_on_workers([path], tmp_path / "shared.zarr", Columns(), IngestOptions(chunk_bytes=2000))
    assert max(split) > 1
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("most", [1, 3])
def test_regrouped_runs_are_those_of_one_process(
    most: int, name: str, options: str, here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / file for file in FILES[name]]
    for path, text in zip(paths, FILES[name].values(), strict=True):
        path.write_text(text, newline="")
    monkeypatch.setattr(segments, "MOST_SLICES", most)
    write_alone(paths, tmp_path / "alone.zarr", OPTIONS[options])
    ingest_on_workers(paths, tmp_path / "shared.zarr", Columns(), OPTIONS[options])
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files of Parquet, whose row groups and pieces have different ends."""
    monkeypatch.setattr(arrow, "PIECE_BYTES", 16 * 8 * 3)
    rng, paths = np.random.default_rng(0), [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, n, group_rows in zip(paths, (205, 64), (37, 64), strict=True):
        x, label = rng.normal(size=n), rng.choice(["no", "yes"] if path == paths[0] else ["yes", "perhaps"], n)
        pyarrow_parquet.write_table(pyarrow.table({"x": x, "label": label, "k": np.arange(n)}), path, group_rows)
    return paths


def write_tables_alone(paths: list[Path], destination: Path) -> None:
    rows = read_parquet(paths, Columns())
    write_dataset(rows, destination, ", ".join(map(str, paths)), guess_bytes(paths), IngestOptions(scale="standard"))


def test_parquet(here: None, tables: list[Path], tmp_path: Path) -> None:
    write_tables_alone(tables, tmp_path / "alone.zarr")
    made = ingest_on_workers(tables, tmp_path / "shared.zarr", Columns(), IngestOptions(scale="standard"))
    assert made.n_rows == 269
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


def test_labels_with_a_dictionary_for_each_row_group(here: None, tables: list[Path], tmp_path: Path) -> None:
    """pandas writes its categories so, and pyarrow cuts its batches at row groups then."""
    for path in tables:
        table = pyarrow_parquet.read_table(path)
        labels = table["label"].dictionary_encode()
        pyarrow_parquet.write_table(table.set_column(1, "label", labels), path, 37)
    write_tables_alone(tables, tmp_path / "alone.zarr")
    ingest_on_workers(tables, tmp_path / "shared.zarr", Columns(), IngestOptions(scale="standard"))
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


def test_a_missing_value_of_parquet(here: None, tables: list[Path], tmp_path: Path) -> None:
    table = pyarrow_parquet.read_table(tables[0]).to_pydict()
    table["x"][150] = None
    pyarrow_parquet.write_table(pyarrow.table(table), tables[0], 37)
    with pytest.raises(InputError, match=r"a\.parquet: row 151, column x: missing") as alone:
        write_tables_alone(tables, tmp_path / "alone.zarr")
    with pytest.raises(InputError) as shared:
        ingest_on_workers(tables, tmp_path / "shared.zarr", Columns(), IngestOptions(scale="standard"))
    assert str(shared.value) == str(alone.value)
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_files(compress: Callable[[bytes], bytes], here: None, tmp_path: Path) -> None:
    path = tmp_path / f"a.svm.{'gz' if compress is gzip.compress else 'bz2'}"
    path.write_bytes(compress(make_svmlight(0, 150).encode()))
    write_alone([path], tmp_path / "alone.zarr", IngestOptions())
    ingest_on_workers([path], tmp_path / "shared.zarr", Columns(), IngestOptions())
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("name", ["a.svm", "a.csv"])
def test_files_in_an_object_store(name: str, here: None, server: ObjectServer, tmp_path: Path) -> None:
    """A file is read from its beginning, by one worker; rows and order are those of the file on a disk."""
    text = make_svmlight(0, 150) if name == "a.svm" else "\ufeff" + make_csv(0, 150)
    server.objects[f"bucket/{name}"] = text.encode()
    (tmp_path / name).write_text(text)
    write_alone([tmp_path / name], tmp_path / "alone.zarr", IngestOptions())
    ingest_on_workers([f"s3://bucket/{name}"], tmp_path / "shared.zarr", Columns(), IngestOptions())
    alone, shared = (read_bytes(tmp_path / f"{each}.zarr") for each in ("alone", "shared"))
    assert shared.pop("zarr.json") != alone.pop("zarr.json")  # which have the name of the source
    assert shared == alone


@pytest.mark.parametrize("codec", ["crc32c", "zstd"])
def test_a_dataset_in_an_object_store(codec: str, here: None, server: ObjectServer, tmp_path: Path) -> None:
    """It has the objects that one process writes there; in shards, and in compressed chunks."""
    paths, url = [tmp_path / f"{k}.svm" for k in range(3)], "s3://bucket/d.zarr"
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 90))
    options = IngestOptions(chunk_bytes=700, codec=codec, shard_bytes=2000 if codec == "crc32c" else None)
    write_alone(paths, tmp_path / "alone.zarr", options)
    server.objects["bucket/d.zarr/X/c/99/0"] = b"of an ingest that was killed"
    server.objects["bucket/d.zarr/.writing"] = b""
    with pytest.raises(InputError, match="--overwrite"):
        ingest_on_workers(paths, url, Columns(), options)
    made = ingest_on_workers(paths, url, Columns(), replace(options, overwrite=True))
    assert made.path == url
    found = {key.removeprefix("bucket/d.zarr/"): content for key, content in server.objects.items()}
    assert found == read_bytes(tmp_path / "alone.zarr")
    puts = [request for request in server.requests if request.method == "PUT"]
    assert puts[-1].key == "bucket/d.zarr/zarr.json"


def test_a_fault_leaves_no_objects(here: None, server: ObjectServer, tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text(make_svmlight(0, 90) + "\n1 3:oops")
    with pytest.raises(InputError, match="value 'oops'"):
        ingest_on_workers([path], "s3://bucket/d.zarr", Columns(), IngestOptions())
    path.write_text(make_svmlight(0, 90))
    server.fault = lambda request: "500" if request.key.endswith("y/c/0") else None
    with pytest.raises(WriteError, match=r"^s3://bucket/d\.zarr/y/c/0: cannot be written: "):
        ingest_on_workers([path], "s3://bucket/d.zarr", Columns(), IngestOptions())
    assert not server.objects


def test_a_segment_that_cannot_be_put(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record says that the rows of its stretch are set aside."""
    path, kept = tmp_path / "a.svm", list[str]()
    path.write_text(make_svmlight(0, 90))

    def refuse(_: SharedFolder, name: str, *__: Any) -> None:
        raise InputError(f"{name}: cannot be put")

    monkeypatch.setattr(SharedFolder, "put", refuse)
    monkeypatch.setattr(SharedFolder, "keep", lambda _, name, __: kept.append(name))
    with pytest.raises(InputError, match="0-0-0: cannot be put"):
        ingest_on_workers([path], tmp_path / "d.zarr", Columns(), IngestOptions())
    assert not any("set-aside" in name for name in kept)


def test_blocks_of_several_pieces(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long labels are read in parts, so that all pieces after them have other numbers than expected."""
    from streamsvm.data.sources import csv

    monkeypatch.setattr(csv, "MOST_LABEL_BYTES", 4 * 300)
    rows = [f"{k},{'long' * (60 if 40 < k < 45 else 1)}{k % 2}" for k in range(200)]
    path = tmp_path / "a.csv"
    path.write_text("x,label\n" + "\n".join(rows))
    write_alone([path], tmp_path / "alone.zarr", IngestOptions())
    ingest_on_workers([path], tmp_path / "shared.zarr", Columns(), IngestOptions())
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


def test_a_file_that_is_written_again_is_never_empty(tmp_path: Path) -> None:
    """A worker that was given up may still write, while others read what the next one wrote."""
    file, payload = tmp_path / "0", np.arange(9, dtype=np.uint8)
    write_parts(file, [payload.data])
    whole = file.read_bytes()
    with open_to_rewrite(file) as opened:
        assert file.read_bytes() == whole
        opened.write(payload[:5].data)
        assert file.read_bytes() == whole
    write_parts(file, [payload.data])
    assert file.read_bytes() == whole


@pytest.mark.parametrize("name", FAULTS)
def test_faults_have_the_message_of_one_process_and_leave_nothing(name: str, here: None, tmp_path: Path) -> None:
    """The first fault is told, though the last blocks are read first."""
    paths = [tmp_path / file for file in FAULTS[name]]
    for path, text in zip(paths, FAULTS[name].values(), strict=True):
        path.write_text(text)
    options = IngestOptions(needs_two_classes=True)
    with pytest.raises(InputError) as alone:
        write_alone(paths, tmp_path / "alone.zarr", options)
    with pytest.raises(InputError) as shared:
        ingest_on_workers(paths, tmp_path / "shared.zarr", Columns(), options)
    assert str(shared.value) == str(alone.value)
    assert sorted(os.listdir(tmp_path)) == sorted(FAULTS[name])


@pytest.mark.parametrize(
    ("file", "columns", "options", "reason"),
    [
        ("a.npy", Columns(), IngestOptions(), "workers cannot read files other than svmlight"),
        ("-", Columns(), IngestOptions(), "standard input"),
        ("a.svm", Columns(multi_label=True), IngestOptions(), "lists of labels"),
        ("a.svm", Columns(missing="mean"), IngestOptions(), "--missing has no effect on svmlight files"),
        ("a.csv", Columns(), IngestOptions(append=True), "workers cannot append rows"),
        ("a.csv", Columns(), IngestOptions(codec="lz4", shard_bytes=1000), "needs raw chunks, but lz4 compresses"),
    ],
)
def test_what_workers_cannot_read(
    file: str, columns: Columns, options: IngestOptions, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.svm").write_text("1 1:1\n")
    with pytest.raises(InputError, match=reason):
        ingest_on_workers([file], tmp_path / "d.zarr", columns, options)
    assert os.listdir(tmp_path) == ["a.svm"]


# --- on real workers


@pytest.fixture
def on_two_workers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two workers of all tests carry out what is asked of workers."""

    @contextmanager
    def open_client(**_: Any) -> Iterator[Client]:
        yield client

    monkeypatch.setattr(on_workers, "open_workers", open_client)


def test_on_two_workers(on_two_workers: None, tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.svm" for k in range(5)]
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 200))
    told = list[int]()
    options = IngestOptions(chunk_bytes=2000, shard_bytes=8000)
    write_alone(paths, tmp_path / "alone.zarr", options, 8 << 20)
    ingest_on_workers(paths, tmp_path / "shared.zarr", Columns(), options, report=told.append)
    assert open_dataset(tmp_path / "shared.zarr").meta["format"] == 8
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")
    assert told == [200, 400, 600, 800, 1000]


def test_a_client_is_given_to_ingest(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read by its workers, Dask collections computed by them; the dataset is that of one process."""
    monkeypatch.chdir(tmp_path)  # the workers have another working directory
    X, y = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300) % 2
    table = "\n".join(["a,b,c,label", *(",".join(map(str, row)) for row in np.column_stack((X, y)).tolist())])
    (tmp_path / "rows.csv").write_text(table)
    alone = ingest(tmp_path / "rows.csv", tmp_path / "alone.zarr")
    rows = da.from_array(X, chunks=(100, 3))
    by_workers = ingest("rows.csv", "files.zarr", client=client)
    assert by_workers.fingerprint == alone.fingerprint
    assert ingest(rows, tmp_path / "dask.zarr", y, client=client).n_rows == 300
    for source in (tmp_path / "rows.csv", rows):
        with pytest.raises(InputError, match=r"scheduler tcp://127\.0\.0\.1:1: .*; check the address"):
            ingest(source, tmp_path / "no.zarr", client="tcp://127.0.0.1:1")
    with pytest.raises(InputError, match=r"client is 5: give a distributed\.Client, or the address of a scheduler"):
        ingest(tmp_path / "rows.csv", tmp_path / "no.zarr", client=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="client has no effect on rows in memory, which are read here: omit it"):
        ingest(X, tmp_path / "no.zarr", y, client=client)
    with pytest.raises(InputError, match="like has no effect on rows that a client reads"):
        ingest(tmp_path / "rows.csv", tmp_path / "no.zarr", like=alone.path, client=client)


def test_the_column_of_the_labels_is_recorded(on_two_workers: None, tmp_path: Path) -> None:
    """As `ingest` records it."""
    (tmp_path / "a.csv").write_text(make_csv(0, 60).replace("label", "answer"))
    columns = Columns(label="answer")
    ingest(tmp_path / "a.csv", tmp_path / "alone.zarr", columns=columns)
    made = ingest_on_workers([tmp_path / "a.csv"], tmp_path / "shared.zarr", columns, IngestOptions())
    assert made.label_column == "answer"
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


def test_a_fault_on_a_worker(on_two_workers: None, client: Client, tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.svm" for k in range(3)]
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 20) + ("\n1 3:oops" if k else ""))
    with pytest.raises(InputError, match=r"1\.svm:21:3: value 'oops' of index 3 is not a number"):
        ingest_on_workers(paths, tmp_path / "shared.zarr", Columns(), IngestOptions())
    assert sorted(os.listdir(tmp_path)) == ["0.svm", "1.svm", "2.svm"]
    assert list(map_on_workers(client, "adding", max, [(1, 2), (4, 3)])) == [2, 4]


def test_too_little_memory_is_refused(tmp_path: Path, workers_import_tests: None) -> None:
    path = tmp_path / "a.svm"
    path.write_text(make_svmlight(0, 20))
    with pytest.raises(MemoryBudgetError, match="raise --memory to at least"):
        ingest_on_workers([path], tmp_path / "d.zarr", Columns(), IngestOptions(), workers=1, memory_bytes=300 << 20)
    assert os.listdir(tmp_path) == ["a.svm"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--resume"], "--resume has no effect in one process"),
        (["--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "--workers has no effect with --scheduler"),
        (["--workers", "2", "--append"], "--append has no effect with --workers"),
        (["--workers", "2", "--multi-label"], "workers cannot read lists of labels"),
        (["--workers", "none"], "--workers: 'none': a whole number of at least 1 is expected"),
    ],
)
def test_options_of_the_command(
    options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(make_csv(0, 9))
    try:
        status: object = main(["ingest", str(tmp_path / "a.csv"), str(tmp_path / "d.zarr"), *options])
    except SystemExit as ended:
        status = ended.code
    assert (status, reason in capsys.readouterr().err) == (2, True)
    assert os.listdir(tmp_path) == ["a.csv"]
