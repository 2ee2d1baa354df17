"""An ingest on workers that was killed goes on from what is finished, to the bytes of one process.

What workers do is done in this process, and ends as if the cluster were lost; tests/faults kills processes.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.cli.main import main
from streamsvm.data.store.shared_files import SharedObjects
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion import on_workers, tasks
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError, MemoryBudgetError
from tests.ingestion.test_ingest_on_workers import OPTIONS, here, write_alone
from tests.object_server import ObjectServer
from tests.runs.ingested_files import make_svmlight, make_table, read_bytes, write_csv

__all__ = ["here"]
URL = "s3://bucket/d.zarr"
PLACES = {
    "no file is read": ("spool_stretch", 0),
    "some files are read": ("spool_stretch", 3),
    "all files are read": ("write_range", 0),
    "some rows are written": ("write_range", 2),
    "all rows are written": ("seal", 0),
    "shared chunks are written": ("seal", 3),
}

OF_TABLES = {"no file is coded": ("code_stretch", 0), "some files are coded": ("code_stretch", 3)}
ONE_HOT = Columns(index="id", one_hot=("auto",), missing="mean")


class Lost:
    """Ends an ingest as a lost cluster does, at the call `at` of a function; and counts what is done.

    done: the calls of the functions that set codes and rows aside, and write rows.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.function, self.at, self.done = "", 0, list[str]()
        monkeypatch.setattr(on_workers, "map_on_workers", self._carry_out)
        for where, name in ((tasks, "_code"), (tasks, "_spool"), (tasks, "_write_range")):
            monkeypatch.setattr(where, name, self._counted(name, getattr(where, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            self.done.append(name)
            return function(*given)

        return count

    def _carry_out(self, _: Any, __: str, function: Callable[..., Any], given: Sequence[Any]) -> Iterator[Any]:
        for k, each in enumerate(given):
            if (function.__name__, k) == (self.function, self.at):
                raise ConnectionError("scheduler: the connection is lost")
            yield function(*pickle.loads(pickle.dumps(each)))  # as workers are sent it

    def lose(self, place: str, *given: Any, **options: Any) -> None:
        """Ingest until a place is reached."""
        self.function, self.at = PLACES[place] if place in PLACES else OF_TABLES[place]
        with pytest.raises(ConnectionError, match="the connection is lost"):
            ingest_on_workers(*given, **options)
        self.function, self.done = "", []


@pytest.fixture
def lost(here: None, monkeypatch: pytest.MonkeyPatch) -> Lost:
    return Lost(monkeypatch)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a.svm", tmp_path / "b.svm"]
    for k, path in enumerate(found):
        path.write_text(make_svmlight(k, 90))
    return found


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Tables whose codes are set aside in several files a stretch."""
    monkeypatch.setattr(tasks, "FILE_BYTES", 200)
    return [write_csv(tmp_path / f"{k}.csv", make_table(k, 90)) for k in range(2)]


def list_objects(server: ObjectServer) -> dict[str, bytes]:
    return {key.removeprefix("bucket/d.zarr/"): content for key, content in server.objects.items()}


def list_left(tmp_path: Path) -> list[str]:
    return sorted(name for name in os.listdir(tmp_path) if not name.endswith(".svm"))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("into", ["folder", "store"])
def test_it_goes_on_to_the_bytes_of_one_process(
    into: str, place: str, options: str, lost: Lost, server: ObjectServer, paths: list[Path], tmp_path: Path
) -> None:
    """And does nothing again that is finished; no scratch file is left."""
    write_alone(paths, tmp_path / "alone.zarr", OPTIONS[options])
    destination = URL if into == "store" else tmp_path / "d.zarr"
    ingest_on_workers(paths, tmp_path / "whole.zarr", Columns(), OPTIONS[options])
    whole, expected = list(lost.done), dict[str, int]()
    for name, function in (("_spool", "spool_stretch"), ("_write_range", "write_range")):
        at = PLACES[place][1] if PLACES[place][0] == function else None
        passed = list(PLACES).index(place) > max(k for k, each in enumerate(PLACES.values()) if each[0] == function)
        expected[name] = 0 if passed else whole.count(name) - (at or 0)
    lost.lose(place, paths, destination, Columns(), OPTIONS[options])
    ingest_on_workers(paths, destination, Columns(), OPTIONS[options], resume=True)
    assert {name: lost.done.count(name) for name in expected} == expected
    made = list_objects(server) if into == "store" else read_bytes(tmp_path / "d.zarr")
    assert made == read_bytes(tmp_path / "alone.zarr")
    assert list_left(tmp_path) == ["alone.zarr", *["d.zarr"] * (into == "folder"), "whole.zarr"]


@pytest.mark.parametrize("into", ["folder", "store"])
def test_it_is_lost_again_and_again(
    into: str, lost: Lost, server: ObjectServer, paths: list[Path], tmp_path: Path
) -> None:
    options = OPTIONS["shuffled"]
    write_alone(paths, tmp_path / "alone.zarr", options)
    destination = URL if into == "store" else tmp_path / "d.zarr"
    for place in PLACES:
        lost.lose(place, paths, destination, Columns(), options, resume=True)
    ingest_on_workers(paths, destination, Columns(), options, resume=True)
    assert not lost.done
    made = list_objects(server) if into == "store" else read_bytes(tmp_path / "d.zarr")
    assert made == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("place", [*OF_TABLES, *PLACES])
@pytest.mark.parametrize("into", ["folder", "store"])
def test_a_table_goes_on_to_the_bytes_of_one_process(
    into: str, place: str, lost: Lost, server: ObjectServer, tables: list[Path], tmp_path: Path
) -> None:
    """What is coded is neither parsed nor coded again."""
    ingest(tables, tmp_path / "alone.zarr", columns=ONE_HOT, options=OPTIONS["scaled"])
    ingest_on_workers(tables, tmp_path / "whole.zarr", ONE_HOT, OPTIONS["scaled"])
    coded = lost.done.count("_code") - OF_TABLES[place][1] if place in OF_TABLES else 0
    destination = URL if into == "store" else tmp_path / "d.zarr"
    lost.lose(place, tables, destination, ONE_HOT, OPTIONS["scaled"])
    ingest_on_workers(tables, destination, ONE_HOT, OPTIONS["scaled"], resume=True)
    assert lost.done.count("_code") == coded
    made = list_objects(server) if into == "store" else read_bytes(tmp_path / "d.zarr")
    assert made == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("kind", ["spill/codes-1", "spill/codes-1-1"])
def test_damaged_codes_are_made_again(kind: str, lost: Lost, tables: list[Path], tmp_path: Path) -> None:
    """Of one stretch: a file with its codes, or its record."""
    ingest(tables, tmp_path / "alone.zarr", columns=ONE_HOT, options=OPTIONS["shuffled"])
    lost.lose("no file is read", tables, tmp_path / "d.zarr", ONE_HOT, OPTIONS["shuffled"])
    (left,) = tmp_path.glob(".d.zarr.*.partial")
    content = bytearray((left / kind).read_bytes())
    content[len(content) // 2] ^= 1
    (left / kind).write_bytes(content if kind.endswith("-1-1") else content[: len(content) // 2])
    ingest_on_workers(tables, tmp_path / "d.zarr", ONE_HOT, OPTIONS["shuffled"], resume=True)
    assert lost.done.count("_code") == 1
    assert read_bytes(tmp_path / "d.zarr") == read_bytes(tmp_path / "alone.zarr")


def test_another_encoding_is_refused(lost: Lost, tables: list[Path], tmp_path: Path) -> None:
    lost.lose("no file is read", tables, tmp_path / "d.zarr", ONE_HOT, OPTIONS["shuffled"])
    other = replace(ONE_HOT, missing="zero")
    with pytest.raises(InputError, match="the ingest to resume had different columns; "):
        ingest_on_workers(tables, tmp_path / "d.zarr", other, OPTIONS["shuffled"], resume=True)


def damage(kind: str, files: dict[str, bytes]) -> None:
    """Change the beginning of a file of this kind, of those of an ingest, or cut a record short."""
    name = min(each for each in files if kind in each)
    content = bytearray(files[name])
    content[min(10, len(content) - 1)] ^= 1
    is_record = "set-aside" in kind or "written" in kind
    files[name] = bytes(content[: len(content) // 2] if is_record else content)


DAMAGED = ["spill/0-0-0", "spill/set-aside-0-0", "spill/written-0", "X/data/c/", "y/c/", "spill/y-"]


@pytest.mark.parametrize("options", ["shuffled", "sparse shards", "packed"])
@pytest.mark.parametrize("kind", DAMAGED)
def test_what_is_damaged_is_made_again(kind: str, options: str, lost: Lost, paths: list[Path], tmp_path: Path) -> None:
    write_alone(paths, tmp_path / "alone.zarr", OPTIONS[options])
    lost.lose("all rows are written", paths, tmp_path / "d.zarr", Columns(), OPTIONS[options])
    (left,) = tmp_path.glob(".d.zarr.*.partial")
    files = read_bytes(left)
    if not any(kind in name for name in files):
        pytest.skip("no chunk is shared")
    before = dict(files)
    damage(kind, files)
    for name, content in files.items():
        if content != before[name]:
            (left / name).write_bytes(content)
    ingest_on_workers(paths, tmp_path / "d.zarr", Columns(), OPTIONS[options], resume=True)
    assert len(lost.done) == 1
    assert read_bytes(tmp_path / "d.zarr") == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("kind", [each.replace("spill/", "/") for each in DAMAGED])
def test_what_is_damaged_in_a_store_is_made_again(
    kind: str, lost: Lost, server: ObjectServer, paths: list[Path], tmp_path: Path
) -> None:
    write_alone(paths, tmp_path / "alone.zarr", OPTIONS["shuffled"])
    lost.lose("all rows are written", paths, URL, Columns(), OPTIONS["shuffled"])
    damage(kind, server.objects)
    ingest_on_workers(paths, URL, Columns(), OPTIONS["shuffled"], resume=True)
    assert len(lost.done) == 1
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("into", ["folder", "store"])
def test_a_changed_file_is_named_and_what_is_finished_stays(
    into: str, lost: Lost, server: ObjectServer, paths: list[Path], tmp_path: Path
) -> None:
    destination, options = URL if into == "store" else tmp_path / "d.zarr", IngestOptions(chunk_bytes=700)
    lost.lose("some rows are written", paths, destination, Columns(), options)
    text, times = paths[1].read_text(), paths[1].stat()
    paths[1].write_text(text.replace("1 ", "2 ", 1))
    os.utime(paths[1], ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    with pytest.raises(InputError, match=r"b\.svm: has changed since the ingest to resume began"):
        ingest_on_workers(paths, destination, Columns(), options, resume=True)
    paths[1].write_text(text)
    os.utime(paths[1], ns=(times.st_atime_ns, times.st_mtime_ns))
    ingest_on_workers(paths, destination, Columns(), options, resume=True)
    assert "_spool" not in lost.done


@pytest.mark.parametrize(
    ("paths_too", "options", "reason"),
    [
        (True, IngestOptions(chunk_bytes=800), "different options; "),
        (False, IngestOptions(), "different sources and opt"),
    ],
)
def test_another_ingest_is_refused(
    paths_too: bool, options: IngestOptions, reason: str, lost: Lost, paths: list[Path], tmp_path: Path
) -> None:
    lost.lose("some rows are written", paths, tmp_path / "d.zarr", Columns(), OPTIONS["shuffled"])
    with pytest.raises(InputError, match=f"the ingest to resume had {reason}"):
        ingest_on_workers(paths if paths_too else paths[:1], tmp_path / "d.zarr", Columns(), options, resume=True)
    assert len(list_left(tmp_path)) == 1


def test_without_resume_nothing_of_it_is_left(lost: Lost, paths: list[Path], tmp_path: Path) -> None:
    lost.lose("some rows are written", paths, tmp_path / "d.zarr", Columns(), OPTIONS["shuffled"])
    assert len(list_left(tmp_path)) == 1
    ingest_on_workers(paths, tmp_path / "d.zarr", Columns(), OPTIONS["shuffled"])
    assert list_left(tmp_path) == ["d.zarr"]
    assert lost.done.count("_spool") > 3


def test_workers_that_cannot_be_had_leave_what_is_finished(
    lost: Lost, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost.lose("all rows are written", paths, tmp_path / "d.zarr", Columns(), OPTIONS["shuffled"])
    opened = on_workers.open_workers

    def refuse(**_: Any) -> None:
        raise MemoryBudgetError("raise --memory")

    monkeypatch.setattr(on_workers, "open_workers", refuse)
    with pytest.raises(MemoryBudgetError):
        ingest_on_workers(paths, tmp_path / "d.zarr", Columns(), OPTIONS["shuffled"], resume=True)
    monkeypatch.setattr(on_workers, "open_workers", opened)
    ingest_on_workers(paths, tmp_path / "d.zarr", Columns(), OPTIONS["shuffled"], resume=True)
    assert not lost.done
    assert list_left(tmp_path) == ["d.zarr"]


@pytest.mark.parametrize("place", ["some files are read", "some rows are written"])
def test_a_dataset_in_a_store_is_replaced(
    place: str, lost: Lost, server: ObjectServer, paths: list[Path], tmp_path: Path
) -> None:
    """It is removed once, and none of its objects stays."""
    options = IngestOptions(chunk_bytes=700, overwrite=True)
    ingest_on_workers(paths, URL, Columns(), IngestOptions(chunk_bytes=200))
    lost.lose(place, paths, URL, Columns(), options)
    ingest_on_workers(paths, URL, Columns(), options, resume=True)
    write_alone(paths, tmp_path / "alone.zarr", options)
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")


def test_one_process_goes_on_with_it(
    lost: Lost, server: ObjectServer, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another that goes on at the same time is refused; and so is all that comes from the process before."""
    options = OPTIONS["shuffled"]
    lost.lose("some files are read", paths, URL, Columns(), options)
    before = SharedObjects(URL, server.objects["bucket/d.zarr/.writing"].decode())
    set_aside, scratches = on_workers._spool, list[Any]()

    def put_from_before(client: Any, source: Any, *given: Any) -> Any:
        scratches.append(source.scratch)
        with pytest.raises(InputError, match="another process has begun to write a dataset there"):
            before.put("0-0-0", [server.objects[f"bucket/d.zarr/.spill/{before.token}/0-0-0"]], 1)
        return set_aside(client, source, *given)

    monkeypatch.setattr(on_workers, "_spool", put_from_before)
    ingest_on_workers(paths, URL, Columns(), options, resume=True)
    write_alone(paths, tmp_path / "alone.zarr", options)
    assert scratches[0].token != before.token
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")


def test_the_command_says_that_it_begins_anew(
    lost: Lost, paths: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ingest", *map(str, paths), str(tmp_path / "d.zarr"), "--resume"]
    assert main(words) == 2
    assert "--resume has no effect in one process" in capsys.readouterr().err
    assert main([*words, "--workers", "1"]) == 0
    assert "--resume: nothing is left of an ingest into" in capsys.readouterr().err
