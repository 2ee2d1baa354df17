"""Workers encode the columns of tables as one process does, whatever their stretches, and tell its first fault."""

from __future__ import annotations

import gzip
import logging
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as pyarrow_parquet
import pytest

from streamsvm.data.sources import arrow
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.shared_files import SharedFolder
from streamsvm.data.tables import encoder
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion import on_workers, tasks
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError, IntegrityError
from tests.ingestion.test_ingest_on_workers import here, on_two_workers
from tests.object_server import ObjectServer
from tests.runs.ingested_files import WORKS, add_dates, make_table, read_bytes, write_csv

__all__ = ["here", "on_two_workers"]
ONE_HOT = Columns(index="id", one_hot=("auto",), missing="mean")


def write_parquet(path: Path, table: dict[str, list[str]]) -> Path:
    """Numbers as numbers, and categories with a dictionary for each row group."""
    made = pyarrow.table(table)
    hours = made["hours"].cast("float64")
    made = made.set_column(made.column_names.index("hours"), "hours", hours)
    made = made.set_column(made.column_names.index("work"), "work", made["work"].dictionary_encode())
    if "joined" in table:
        dates = pyarrow.array([each or None for each in table["joined"]]).cast(pyarrow.timestamp("us"))
        made = made.set_column(made.column_names.index("joined"), "joined", dates)
    pyarrow_parquet.write_table(made, path, 37)
    return path


def require_same(paths: list[Path], columns: Columns, options: IngestOptions) -> Dataset:
    """Ingest by one process and on workers, and compare the files of the datasets."""
    folder = paths[0].parent
    ingest(paths, folder / "alone.zarr", columns=columns, options=options)
    made = ingest_on_workers(paths, folder / "shared.zarr", columns, options)
    assert read_bytes(folder / "shared.zarr") == read_bytes(folder / "alone.zarr")
    return made


COLUMNS = {
    "categories": Columns(index="id", one_hot=("auto",), missing="zero"),
    "means": ONE_HOT,
    "indicators": Columns(drop=("id",), one_hot=("work",), hash_bits=5, missing="indicator"),
    "hashed": Columns(index="id", hash_bits=6, missing="zero"),
    "numbers": Columns(drop=("id", "work", "city"), missing="mean"),
    "of words": Columns(one_hot=("id", "age", "work", "city"), missing="indicator"),
}
OPTIONS = {
    "shuffled": IngestOptions(chunk_bytes=700),
    "in order": IngestOptions(chunk_bytes=400, shuffle=None),
    "scaled": IngestOptions(scale="maxabs", shuffle=4, chunk_bytes=1000),
    "dense": IngestOptions(scale="standard", layout="dense", shuffle=1),
    "sparse shards": IngestOptions(chunk_bytes=400, shard_bytes=900, layout="sparse"),
}


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("options", OPTIONS)
def test_csv(options: str, columns: str, dated: bool, here: None, tmp_path: Path) -> None:
    """The second file has categories that the first one has not."""
    tables = make_table(0, 150), make_table(1, 70, [*WORKS, "Astronaut"])
    paths = [write_csv(tmp_path / f"{k}.csv", add_dates(each) if dated else each) for k, each in enumerate(tables)]
    require_same(paths, COLUMNS[columns], OPTIONS[options])


def test_columns_of_dates_alone(here: None, tmp_path: Path) -> None:
    """Which are encoded without an option."""
    table = add_dates(make_table(0, 100))
    wanted = {name: [cell or "2024-01-01" for cell in table[name]] for name in ("hours", "joined", "label")}
    made = require_same([write_csv(tmp_path / "a.csv", wanted)], Columns(), OPTIONS["shuffled"])
    assert made.encoding is not None
    assert [column.kind for column in made.encoding.columns] == ["number", "date"]


@pytest.mark.parametrize("columns", [ONE_HOT, Columns(drop=("id", "age", "work", "city"))])
def test_decimal_commas(columns: Columns, here: None, tmp_path: Path) -> None:
    """Numbers alone have no encoding that is recorded."""
    path = write_csv(tmp_path / "a.csv", make_table(0, 100, mark=","), ";")
    made = require_same([path], replace(columns, decimal=","), OPTIONS["shuffled"])
    assert (made.encoding is None) == (columns != ONE_HOT)


def test_queries_weights_and_groups(here: None, tmp_path: Path) -> None:
    """Rows of queries keep their order."""
    table = {**make_table(0, 150), "query": [f"q{i // 5}" for i in range(150)]}
    columns = replace(ONE_HOT, qid="query", sample_weight="size", groups="city")
    table["city"] = [cell or "none" for cell in table["city"]]
    require_same([write_csv(tmp_path / "a.csv", table)], columns, OPTIONS["shuffled"])


def test_a_compressed_file_has_codes_in_several_files(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one stretch, which does not fit into memory."""
    monkeypatch.setattr(tasks, "FILE_BYTES", 200)
    path = write_csv(tmp_path / "a.csv", make_table(0, 150))
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    require_same([packed], ONE_HOT, OPTIONS["shuffled"])


def test_an_object_store(here: None, server: ObjectServer, tmp_path: Path) -> None:
    """Files and dataset are there, and so are the codes meanwhile."""
    path = write_csv(tmp_path / "a.csv", make_table(0, 150))
    server.objects["bucket/a.csv"] = path.read_bytes()
    ingest("s3://bucket/a.csv", tmp_path / "alone.zarr", columns=ONE_HOT, options=OPTIONS["scaled"])
    ingest_on_workers(["s3://bucket/a.csv"], "s3://bucket/d.zarr", ONE_HOT, OPTIONS["scaled"])
    found = {key: content for key, content in server.objects.items() if "d.zarr" in key}
    alone = read_bytes(tmp_path / "alone.zarr")
    assert found == {f"bucket/d.zarr/{name}": content for name, content in alone.items()}
    assert any("/codes-0-0" in request.key for request in server.requests if request.method == "PUT")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "PIECE_BYTES", 16 * 8 * 6)
    monkeypatch.setattr(arrow, "PIECE_BYTES", 16 * 8 * 6)


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("options", OPTIONS)
def test_parquet(options: str, columns: str, dated: bool, here: None, small_pieces: None, tmp_path: Path) -> None:
    tables = make_table(0, 150), make_table(1, 70, [*WORKS, "Astronaut"])
    paths = [write_parquet(tmp_path / f"{k}.parquet", add_dates(t) if dated else t) for k, t in enumerate(tables)]
    require_same(paths, COLUMNS[columns], OPTIONS[options])


def late(table: dict[str, list[str]], column: str, value: str, at: int = 120) -> dict[str, list[str]]:
    """The table with a value in one of its last rows."""
    return {**table, column: [*table[column][:at], value, *table[column][at + 1 :]]}


TABLE = make_table(0, 150)
NO_NAMES = replace(ONE_HOT, index=None, drop=("id",))
FAULTS = {
    "a word": ([late(TABLE, "hours", "many")], ONE_HOT, "0.csv:122:4: "),
    "of two words the first": ([late(late(TABLE, "hours", "many"), "age", "old", 60)], ONE_HOT, "old"),
    "missing": ([late(TABLE, "hours", "")], Columns(hash_bits=5, drop=("age",)), "missing value"),
    "no label": ([late(TABLE, "label", "")], ONE_HOT, "label missing"),
    "no weight": ([late(TABLE, "hours", "-1")], replace(ONE_HOT, sample_weight="hours"), "is negative"),
    "a date": ([late(add_dates(TABLE), "joined", "yesterday")], ONE_HOT, "not a date"),
    "infinite": ([late(TABLE, "age", "inf")], replace(ONE_HOT, missing="zero"), "infinite"),
    "a long category": ([late(TABLE, "work", 1001 * "x")], ONE_HOT, "1,001 characters"),
    "too many categories": ([TABLE, make_table(1, 90, [f"work {k}" for k in range(50)])], NO_NAMES, "more than 50"),
    "other columns": ([TABLE, add_dates(TABLE)], ONE_HOT, "differ from those of the first file"),
    "no column": ([TABLE], replace(ONE_HOT, one_hot=("wrok",)), "is 'work' meant"),
    "no choice": ([TABLE], Columns(index="id"), "--one-hot"),
    "no rows": ([TABLE, {name: [] for name in TABLE}], ONE_HOT, "1.csv: no rows"),
    "a regression": ([TABLE], NO_NAMES, "a target must be a number"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_have_the_message_of_one_process_and_leave_nothing(
    name: str, here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "MOST_CATEGORIES", 50)
    tables, columns, told = FAULTS[name]
    options = IngestOptions(regression=name == "a regression")
    paths = [write_csv(tmp_path / f"{k}.csv", table) for k, table in enumerate(tables)]
    with pytest.raises(InputError) as alone:
        ingest(paths, tmp_path / "alone.zarr", columns=columns, options=options)
    with pytest.raises(InputError) as shared:
        ingest_on_workers(paths, tmp_path / "shared.zarr", columns, options)
    assert str(shared.value) == str(alone.value)
    assert told in str(alone.value)
    assert sorted(os.listdir(tmp_path)) == [path.name for path in paths]


def test_of_too_many_categories_and_a_word_the_first_is_told(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of 50 rows are categories; the word comes before that, in the same stretch, and in another one."""
    monkeypatch.setattr(encoder, "MOST_CATEGORIES", 50)
    columns, told = Columns(one_hot=("id",), drop=("work", "city"), missing="mean"), list[bool]()
    for at in range(40, 80, 3):
        path = write_csv(tmp_path / "a.csv", late(TABLE, "hours", "many", at))
        with pytest.raises(InputError) as alone:
            ingest(path, tmp_path / "alone.zarr", columns=columns)
        with pytest.raises(InputError) as shared:
            ingest_on_workers([path], tmp_path / "shared.zarr", columns, IngestOptions())
        assert str(shared.value) == str(alone.value)
        told.append("more than 50 values" in str(alone.value))
    assert told == sorted(told)
    assert set(told) == {False, True}


def test_a_missing_value_of_parquet_is_told_with_its_row(here: None, small_pieces: None, tmp_path: Path) -> None:
    table = {name: [cell or "none" for cell in cells] for name, cells in TABLE.items()}
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, each in zip(paths, (table, late(table, "hours", "nan")), strict=True):
        write_parquet(path, each)
    columns = Columns(drop=("id", "age"), hash_bits=5)
    with pytest.raises(InputError) as alone:
        ingest(paths, tmp_path / "alone.zarr", columns=columns)
    with pytest.raises(InputError) as shared:
        ingest_on_workers(paths, tmp_path / "shared.zarr", columns, IngestOptions())
    assert str(shared.value) == str(alone.value)
    assert "1.parquet: row 121, column hours: missing value" in str(alone.value)


def test_a_column_of_names_is_told(here: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_csv(tmp_path / "a.csv", make_table(0, 150))
    with caplog.at_level(logging.INFO, "streamsvm"):
        require_same([path], Columns(one_hot=("auto",), missing="zero"), IngestOptions())
    alone, shared = (record.message for record in caplog.records if "categories in" in record.message)
    assert shared == alone


def test_damaged_codes_are_named(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a worker reads them to encode them."""
    keep = SharedFolder.keep

    def damage(scratch: SharedFolder, name: str, content: bytes) -> None:
        if name == tasks.ENCODING:
            damage_file(scratch.folder / "codes-1-0")
        keep(scratch, name, content)

    def damage_file(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[200] ^= 1
        file.write_bytes(content)

    monkeypatch.setattr(SharedFolder, "keep", damage)
    path = write_csv(tmp_path / "a.csv", TABLE)
    with pytest.raises(IntegrityError, match=r"codes-1-0: is damaged"):
        ingest_on_workers([path], tmp_path / "d.zarr", ONE_HOT, IngestOptions())
    assert os.listdir(tmp_path) == ["a.csv"]


def test_tasks_are_sent_no_categories(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 20,000, of 1,000 characters each; a scratch file has them."""
    sent = list[bytes]()
    before = on_workers.map_on_workers

    def map_on_workers(*given: Any) -> Any:
        sent.extend(pickle.dumps(each) for each in given[3])
        return before(*given)

    monkeypatch.setattr(on_workers, "map_on_workers", map_on_workers)
    ingest_on_workers([write_csv(tmp_path / "a.csv", TABLE)], tmp_path / "d.zarr", ONE_HOT, IngestOptions())
    assert len(sent) > 3
    assert not any(b"city 17" in each for each in sent)


def test_the_memory_of_hashed_features_is_planned(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five statistics of each, two sums of a piece, and the scaling: 9 float64."""
    needs, opened = list[int](), on_workers.open_workers

    def open_workers(**given: Any) -> Any:
        needs.append(given["need_bytes"])
        return opened(**given)

    monkeypatch.setattr(on_workers, "open_workers", open_workers)
    path, columns = write_csv(tmp_path / "a.csv", TABLE), Columns(index="id", hash_bits=10, missing="zero")
    for scale in ("none", "maxabs"):
        ingest_on_workers([path], tmp_path / scale, columns, IngestOptions(scale=scale))
    assert needs[1] - needs[0] == 9 * 8 * 2**10


# --- on real workers


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_two_workers(kind: str, on_two_workers: None, tmp_path: Path) -> None:
    write = write_csv if kind == "csv" else write_parquet
    paths = [write(tmp_path / f"{k}.{kind}", add_dates(make_table(k, 200))) for k in range(4)]
    require_same(paths, replace(ONE_HOT, one_hot=("work",), hash_bits=6), OPTIONS["scaled"])


def test_a_fault_on_a_worker(on_two_workers: None, tmp_path: Path) -> None:
    paths = [write_csv(tmp_path / f"{k}.csv", late(TABLE, "hours", "many") if k else TABLE) for k in range(3)]
    with pytest.raises(InputError, match=r"1\.csv:122:4: column hours: not a number: 'many'"):
        ingest_on_workers(paths, tmp_path / "d.zarr", ONE_HOT, IngestOptions())
    assert sorted(os.listdir(tmp_path)) == ["0.csv", "1.csv", "2.csv"]
