"""Ingest on workers into an object store: nothing but the store is shared, and nothing is left there but the dataset.

What workers do is done in this process, with what they would be sent; the last tests start processes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from streamsvm.data.store import destination
from streamsvm.data.store.shared_files import FILES_AHEAD, SharedObjects
from streamsvm.data.tables.columns import Columns
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.ingestion import on_workers, segments
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.ingestion.tasks import WRITERS
from streamsvm.system.errors import InputError, IntegrityError
from tests.commands import Run, run
from tests.conftest import WORKER_BYTES
from tests.ingestion.test_ingest_on_workers import OPTIONS, here, write_alone
from tests.object_server import ObjectServer, Request
from tests.runs.ingested_files import FILES, make_csv, make_svmlight, read_bytes

__all__ = ["here", "run"]
ANOTHER = pytest.mark.slow("another number of workers")
URL, BELOW = "s3://bucket/d.zarr", "bucket/d.zarr/"
OF_FIVE = IngestOptions(chunk_bytes=2000, shard_bytes=8000)
SHARDS = IngestOptions(chunk_bytes=400, shard_bytes=900, layout="sparse")


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no folder for temporary files, and no other folder is written to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    def refuse(*_: Any) -> None:
        raise AssertionError("a file is written")

    monkeypatch.setattr("streamsvm.data.store.shared_files.open_to_rewrite", refuse)
    monkeypatch.setattr("streamsvm.data.store.chunks.open_to_rewrite", refuse)


def write_files(name: str, folder: Path) -> list[Path]:
    paths = [folder / file for file in FILES[name]]
    for path, text in zip(paths, FILES[name].values(), strict=True):
        path.write_text(text, newline="")
    return paths


def list_objects(server: ObjectServer) -> dict[str, bytes]:
    return {key.removeprefix(BELOW): content for key, content in server.objects.items()}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", FILES)
def test_the_objects_are_the_files_of_one_process(
    name: str, options: str, here: None, server: ObjectServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """And nothing else is in the store, or was written to a disk."""
    paths = write_files(name, tmp_path)
    write_alone(paths, tmp_path / "alone.zarr", OPTIONS[options])
    request.getfixturevalue("no_disk")
    ingest_on_workers(paths, URL, Columns(), OPTIONS[options])
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")
    assert any(f"{BELOW}.spill/" in each.key for each in server.requests)


def test_several_segments_are_read_at_once_and_no_range_twice(
    here: None, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = write_files("queries", tmp_path)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    path.write_text(make_svmlight(0, 300))
    server.awaited = r".spill/\w+/\d+-\d+-\d+$", FILES_AHEAD
    ingest_on_workers([path], URL, Columns(), IngestOptions(chunk_bytes=700))
    assert server.awaited is None
    assert server.most_at_once <= FILES_AHEAD + WRITERS
    ranges = Counter((each.key, each.range) for each in server.reads(".spill/") if "/segments" not in each.key)
    assert set(ranges.values()) == {1}
    assert len({key for key, _ in ranges}) > FILES_AHEAD


@pytest.mark.slow("counts the requests of large ingests")
def test_of_four_times_the_data_the_shuffle_takes_eight_times_the_requests_and_not_sixteen(
    here: None, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S segments and R runs take S sqrt(R) + R^1.5 ranges in groups, and R S otherwise.

    Groups and segments that are not full blur this: what is counted is nearer to the one than to the other.
    """
    between = (8 * 16) ** 0.5
    path, counted = tmp_path / "a.svm", dict[tuple[int, int], int]()
    for most in (1, 1000):
        monkeypatch.setattr(segments, "MOST_SLICES", most)
        for n_rows in (600, 2400):
            path.write_text(make_svmlight(0, n_rows))
            ingest_on_workers([path], URL, Columns(), IngestOptions(chunk_bytes=2000))
            counted[most, n_rows] = len([each for each in server.reads(".spill/") if each.range is not None])
            for each in (server.requests, server.objects):
                each.clear()
    assert counted[1, 2400] < between * counted[1, 600]
    assert counted[1000, 2400] > between * counted[1000, 600]
    assert counted[1, 2400] < counted[1000, 2400]


# --- what is damaged


def flip(at: int) -> Callable[[dict[str, bytes], str], None]:
    def change(objects: dict[str, bytes], key: str) -> None:
        content = bytearray(objects[key])
        content[at if at >= 0 else len(content) + at] ^= 1
        objects[key] = bytes(content)

    return change


def exchange(objects: dict[str, bytes], key: str) -> None:
    """Exchange an object with another of the same size."""
    other = next(each for each in sorted(objects) if each != key and len(objects[each]) == len(objects[key]))
    objects[key], objects[other] = objects[other], objects[key]


DAMAGES: dict[str, Callable[[dict[str, bytes], str], Any]] = {
    "first limit": flip(0),
    "limit of items": flip(24),
    "high bits of a limit": flip(23),
    "in the middle": flip(2000),
    "checksum": flip(-1),
    "missing": lambda objects, key: objects.pop(key),
    "cut short": lambda objects, key: objects.update({key: objects[key][:-1]}),
    "exchanged": exchange,
}


@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_segment_is_named(
    damage: str, most: int, here: None, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left in the store."""
    path = tmp_path / "a.svm"
    path.write_text("\n".join(f"{k % 2} 1:{k % 9 + 1} 3:1" for k in range(600)))
    list_runs = on_workers.list_runs
    monkeypatch.setattr(segments, "MOST_SLICES", most)

    def damage_segments(*given: Any) -> Any:
        keys = [key for key in sorted(server.objects) if re.search(r"\.spill/\w+/\d+-\d+-\d+$", key)]
        DAMAGES[damage](server.objects, keys[len(keys) // 2])
        return list_runs(*given)

    monkeypatch.setattr(on_workers, "list_runs", damage_segments)
    with pytest.raises(IntegrityError, match=r"^s3://bucket/d\.zarr/\.spill/[0-9a-f]{16}/\d+-\d+-\d+: "):
        ingest_on_workers([path], URL, Columns(), IngestOptions(chunk_bytes=700))
    assert not server.objects


@pytest.mark.parametrize("damage", ["in the middle", "missing", "cut short"])
def test_a_damaged_segment_in_a_folder_is_named(
    damage: str, here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left beside the destination."""
    path = tmp_path / "a.svm"
    path.write_text("\n".join(f"{k % 2} 1:{k % 9 + 1} 3:1" for k in range(600)))
    list_runs = on_workers.list_runs

    def damage_segments(*given: Any) -> Any:
        (file,) = tmp_path.glob(".d.zarr.*.partial/spill*/0-0-0")
        content = {file.name: file.read_bytes()}
        DAMAGES[damage](content, file.name)
        file.write_bytes(content[file.name]) if content else file.unlink()
        return list_runs(*given)

    monkeypatch.setattr(on_workers, "list_runs", damage_segments)
    with pytest.raises(IntegrityError, match=r"/\.d\.zarr\..*\.partial/spill.*/0-0-0: "):
        ingest_on_workers([path], tmp_path / "d.zarr", Columns(), IngestOptions(chunk_bytes=700))
    assert [each.name for each in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.parametrize("part", ["segments", "y-", "X-data-", "X-indptr-", "X/data/c/1"])
def test_a_damaged_part_of_the_dataset_is_named(
    part: str, here: None, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of segments, or values of a chunk that several ranges share, or the second chunk of a shard.

    The first chunk of the shard is being sent then.
    """
    monkeypatch.setattr(destination, "PART_BYTES", 100)
    (path,) = write_files("queries", tmp_path)
    damaged = set[str]()

    def damage(request: Request) -> None:
        if request.method == "GET" and re.search(rf"/\.spill/\w+/{part}", request.key) and not damaged:
            damaged.add(request.key)
            flip(0)(server.objects, request.key)

    server.fault = damage
    with pytest.raises(IntegrityError, match=rf"^s3://bucket/d\.zarr/\.spill/[0-9a-f]{{16}}/{part}.*: is damaged"):
        ingest_on_workers([path], URL, Columns(), SHARDS)
    assert damaged
    assert not server.objects
    assert not server.uploads
    assert any("uploads" in each.query for each in server.requests) == (part == "X/data/c/1")


def test_labels_with_the_same_hash_are_refused(
    here: None, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text(make_csv(0, 90))
    monkeypatch.setattr(segments, "hash_text", lambda _: 7)
    with pytest.raises(InputError, match=r"the labels '(yes|no)' and '(yes|no)' have the same hash"):
        ingest_on_workers([tmp_path / "a.csv"], URL, Columns(), IngestOptions())
    assert not server.objects


# --- an ingest that fails, or is killed


def test_a_dataset_is_kept_until_the_rows_are_checked(here: None, server: ObjectServer, tmp_path: Path) -> None:
    """Or replaced by another one."""
    path = tmp_path / "a.svm"
    path.write_text(make_svmlight(0, 90))
    ingest_on_workers([path], URL, Columns(), SHARDS)
    before = dict(server.objects)
    path.write_text(make_svmlight(1, 90) + "\n1 3:oops")
    with pytest.raises(InputError, match="value 'oops'"):
        ingest_on_workers([path], URL, Columns(), replace(SHARDS, overwrite=True))
    assert server.objects == before
    path.write_text(make_svmlight(1, 90))
    ingest_on_workers([path], URL, Columns(), replace(SHARDS, overwrite=True))
    write_alone([path], tmp_path / "alone.zarr", SHARDS)
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_put_after_the_end_is_removed(fails: bool, server: ObjectServer) -> None:
    """By the worker, which nobody waits for."""
    scratch: SharedObjects | None = None
    try:
        with destination.new_upload(URL) as opened:
            opened.open_group()
            scratch = opened.scratch
            scratch.put("0-0-0", [b"rows"], 4)
            if fails:
                raise InputError("bad rows")
    except InputError:
        assert fails
    left = dict(server.objects)
    assert not any(".spill" in key for key in left)
    assert scratch is not None
    with pytest.raises(InputError, match="this ingest has ended"):
        scratch.put("1-0-0", [b"rows"], 4)
    assert server.objects == left


def test_an_ingest_that_ends_meanwhile_leaves_no_scratch_object(server: ObjectServer) -> None:
    with destination.new_upload(URL) as opened:
        opened.open_group()

        def end(request: Request) -> None:
            if request.method == "PUT" and ".spill" in request.key:
                server.fault = lambda _: None
                server.objects[f"{BELOW}.writing"] = destination.GIVEN_UP

        server.fault = end
        before = set(server.objects)
        with pytest.raises(InputError, match="this ingest has ended"):
            opened.scratch.put("0-0-0", [b"rows"], 4)
        assert set(server.objects) == before
        server.objects[f"{BELOW}.writing"] = opened.scratch.token.encode()


def test_what_a_killed_ingest_left_is_removed(here: None, server: ObjectServer, tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text(make_svmlight(0, 90))
    server.objects |= {f"{BELOW}.writing": b"", f"{BELOW}.spill/0123456789abcdef/0-0-0": b"rows"}
    with pytest.raises(InputError, match="--overwrite"):
        ingest_on_workers([path], URL, Columns(), SHARDS)
    ingest_on_workers([path], URL, Columns(), replace(SHARDS, overwrite=True))
    write_alone([path], tmp_path / "alone.zarr", SHARDS)
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")


# --- on real workers


def leave_no_folder(folder: str) -> None:
    """Give this process a folder for temporary files of its own, which is missing."""
    tempfile.tempdir = f"{folder}/of-process-{os.getpid()}"


def die_after_putting(marker: str, function: Callable[..., Any], *given: Any) -> Any:
    """Call a function; but the first process that comes here is killed when it has put a scratch object."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return function(*given)
    put = SharedObjects.put

    def put_and_die(scratch: SharedObjects, *content: Any) -> None:
        put(scratch, *content)
        os.kill(os.getpid(), signal.SIGKILL)

    SharedObjects.put = put_and_die  # type: ignore[method-assign]
    return function(*given)


@pytest.fixture
def five_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Path], dict[str, bytes]]:
    """Files, and those of the dataset that one process makes of them; of several runs and shards."""
    for each in (segments, on_workers):
        monkeypatch.setattr(each, "RUN_BYTES", 12000)
    monkeypatch.setattr(on_workers, "CHUNKS_TOGETHER", 1)
    paths = [tmp_path / f"{k}.svm" for k in range(5)]
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 200))
    write_alone(paths, tmp_path / "alone.zarr", OF_FIVE, 8 << 20)
    return paths, read_bytes(tmp_path / "alone.zarr")


@contextmanager
def workers_without_disks(n: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start workers that have no folder for temporary files, and let them carry out what is asked of workers."""
    with start_workers(n, 1, WORKER_BYTES) as client:
        client.run(leave_no_folder, str(folder))

        @contextmanager
        def open_client(**_: Any) -> Iterator[Client]:
            yield client

        monkeypatch.setattr(on_workers, "open_workers", open_client)
        yield


@pytest.mark.slow("starts several workers")
@pytest.mark.usefixtures("spawned_workers", "workers_import_tests")
@pytest.mark.parametrize(
    "n",
    [pytest.param(1, marks=ANOTHER), pytest.param(2, marks=ANOTHER), 3],
)
def test_workers_share_nothing_but_the_store(
    n: int, server: ObjectServer, five_files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are those of one process, for any number of workers."""
    paths, alone = five_files
    with workers_without_disks(n, tmp_path / "missing", monkeypatch):
        ingest_on_workers(paths, URL, Columns(), OF_FIVE)
    assert list_objects(server) == alone
    assert not (tmp_path / "missing").exists()


@pytest.mark.slow("kills workers")
@pytest.mark.usefixtures("spawned_workers", "workers_import_tests")
@pytest.mark.parametrize(("of", "work"), [(on_workers, "spool_stretch"), (on_workers, "write_range")])
def test_what_a_killed_worker_did_is_done_again(
    of: Any, work: str, server: ObjectServer, five_files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, alone = five_files
    killing = partial(die_after_putting, str(tmp_path / "death"), getattr(of, work))
    monkeypatch.setattr(of, work, killing)
    with workers_without_disks(2, tmp_path / "missing", monkeypatch):
        ingest_on_workers(paths, URL, Columns(), OF_FIVE)
    assert (tmp_path / "death").exists()
    assert list_objects(server) == alone
    puts = Counter(each.key for each in server.requests if each.method == "PUT" and ".spill" in each.key)
    assert max(puts.values()) == 2


@pytest.mark.slow("kills the driver")
@pytest.mark.usefixtures("spawned_workers")  # a fork server that is older than the store does not know where it is
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_is_ended(by: signal.Signals, server: ObjectServer, tmp_path: Path, run: Run) -> None:
    """By Ctrl-C it leaves nothing; if it is killed, what is left is no dataset, and the next ingest replaces it."""
    path = tmp_path / "a.svm"
    path.write_text(make_svmlight(0, 300))
    server.fault = lambda request: "held" if request.method == "PUT" and "/y/c/0" in request.key else None
    words = ("ingest", str(path), URL, "--workers", "1", "--memory", "2GB")
    with subprocess.Popen([sys.executable, "-m", "streamsvm", *words], stderr=subprocess.PIPE, text=True) as process:
        assert server.held.wait(120)
        process.send_signal(by)
        err = process.communicate(timeout=60)[1]
    server.fault = lambda _: None
    if by == signal.SIGINT:
        assert "interrupted; nothing was left behind" in err
        assert not server.objects
        return
    assert any(".spill" in key for key in server.objects)
    assert "was killed" in run(*words).err
    assert run(*words, "--overwrite").code == 0
    ingest(path, tmp_path / "alone.zarr")
    assert list_objects(server) == read_bytes(tmp_path / "alone.zarr")
