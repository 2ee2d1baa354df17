"""Processes that die during an ingest on workers: the same bytes, at once or by `--resume`, or nothing."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from streamsvm.data.tables.columns import Columns
from streamsvm.engines.cluster import watch
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.ingestion import on_workers, segments
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.on_workers import ingest_on_workers
from streamsvm.ingestion.readers import ingest
from streamsvm.ingestion.tasks import Source, SpooledStretch, Stretch, spool_stretch, write_range
from streamsvm.ingestion.write import PlacedArray, RangeWritten
from tests.conftest import WORKER_BYTES
from tests.object_server import ObjectServer
from tests.runs.ingested_files import make_svmlight, read_bytes

pytestmark = pytest.mark.slow("kills workers and drivers")

SECONDS = 120.0


def is_first(folder: Path) -> bool:
    """Tell whether this process is the first that asks."""
    try:
        (folder / "dead").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die_once(folder: Path) -> None:
    """End this process if it is the first that comes here."""
    if is_first(folder):
        os.kill(os.getpid(), signal.SIGKILL)


def spool_or_die(folder: Path, *arguments: Any) -> SpooledStretch:
    found = spool_stretch(*arguments)
    die_once(folder)
    return found


def write_or_die(folder: Path, *arguments: Any) -> RangeWritten:
    found = write_range(*arguments)
    die_once(folder)
    return found


def ingest_beside_a_death(
    of: Any, name: str, dying: Any, options: IngestOptions, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingest on two workers, of which one dies in a function: the files are those of one process."""

    @contextmanager
    def open_two(**_: Any) -> Iterator[Client]:
        with start_workers(2, 1, WORKER_BYTES) as client:
            yield client

    (folder / "marks").mkdir()
    paths = [folder / f"{k}.svm" for k in range(3)]
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 100))
    ingest(paths, folder / "alone.zarr", options=options)
    monkeypatch.setattr(on_workers, "open_workers", open_two)
    monkeypatch.setattr(of, name, partial(dying, folder / "marks"))
    ingest_on_workers(paths, folder / "shared.zarr", Columns(), options)
    assert (folder / "marks" / "dead").exists()
    assert read_bytes(folder / "shared.zarr") == read_bytes(folder / "alone.zarr")


@pytest.mark.parametrize(
    ("of", "name", "dying"),
    [(on_workers, "spool_stretch", spool_or_die), (on_workers, "write_range", write_or_die)],
)
def test_a_worker_is_killed(
    of: Any, name: str, dying: Any, workers_import_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it has written what it was asked for, and before anybody hears of it: the other one writes it once more."""
    ingest_beside_a_death(of, name, dying, IngestOptions(chunk_bytes=2000), tmp_path, monkeypatch)


STORE, SOME_BYTES = PlacedArray.store, 50


def store_or_die(array: PlacedArray, folder: Path, *arguments: Any) -> Any:
    """Store a chunk; but the kernel ends the first process that comes here at some bytes of a file that it writes."""
    if is_first(folder):
        ctypes.CDLL(None).signal(signal.SIGXFSZ, 0)  # not Python's, which needs the main thread: the default, to end
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (SOME_BYTES, SOME_BYTES))
    return STORE(array, *arguments)


def write_or_die_within(folder: Path, *arguments: Any) -> RangeWritten:
    PlacedArray.store = partialmethod(store_or_die, folder)  # type: ignore[method-assign, assignment]
    return write_range(*arguments)


@pytest.mark.parametrize("codec", ["crc32c", "lz4", "zstd"])
def test_a_worker_is_killed_within_a_chunk(
    codec: str, workers_import_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk is written once more, and nothing is left of what was written of it."""
    options = IngestOptions(chunk_bytes=2000, codec=codec)
    ingest_beside_a_death(on_workers, "write_range", write_or_die_within, options, tmp_path, monkeypatch)


def test_the_driver_is_killed(tmp_path: Path) -> None:
    """Nothing is at the destination, and the next ingest finds nothing in its way and leaves nothing beside it."""
    path = tmp_path / "a.svm"
    path.write_text(make_svmlight(0, 100_000))
    command = [sys.executable, "-m", "streamsvm", "ingest", str(path), str(tmp_path / "d.zarr")]
    with subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.DEVNULL) as process:
        ends = time.monotonic() + SECONDS
        while not list(tmp_path.glob(".d.zarr.*.partial/spill*/0-*")):
            assert time.monotonic() < ends
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert not (tmp_path / "d.zarr").exists()
    ingest(path, tmp_path / "alone.zarr")
    subprocess.run([*command, "--workers", "1"], check=True)
    assert read_bytes(tmp_path / "d.zarr") == read_bytes(tmp_path / "alone.zarr")
    assert sorted(os.listdir(tmp_path)) == ["a.svm", "alone.zarr", "d.zarr"]


# --- killed and resumed

DRIVER = """
import os, signal, sys
from streamsvm.cli.main import main
from streamsvm.ingestion import on_workers

name, at, *words = sys.argv[1:]
map_on_workers = on_workers.map_on_workers

def carry_out_or_die(client, what, function, arguments):
    for k, found in enumerate(map_on_workers(client, what, function, arguments)):
        if (function.__name__, str(k)) == (name, at):
            os.kill(os.getpid(), signal.SIGKILL)
        yield found

on_workers.map_on_workers = carry_out_or_die
on_workers.RUN_BYTES, on_workers.CHUNKS_TOGETHER = 12000, 1
sys.exit(main(["ingest", *words, "--chunk-bytes", "2000", "--memory", "2GB"]))
"""


def ingest_or_die(place: tuple[str, int], words: list[str], workers: int, environment: dict[str, str]) -> int:
    """Let a process ingest, which is killed at a call that workers have carried out, and return its exit status."""
    command = [sys.executable, "-c", DRIVER, place[0], str(place[1]), *words, "--workers", str(workers)]
    return subprocess.run(command, env=os.environ | environment, timeout=SECONDS, check=False).returncode


@pytest.fixture
def five_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, bytes]]:
    """Files, and those of the dataset that one process makes of them, in several runs."""
    monkeypatch.setattr(segments, "RUN_BYTES", 12000)
    paths = [tmp_path / f"{k}.svm" for k in range(5)]
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 200))
    ingest(paths, tmp_path / "alone.zarr", options=IngestOptions(chunk_bytes=2000))
    return [str(path) for path in paths], read_bytes(tmp_path / "alone.zarr")


@pytest.mark.parametrize(
    ("into", "place", "workers"),
    [
        ("folder", ("spool_stretch", 2), (2, 1)),
        ("folder", ("write_range", 1), (1, 2)),
        ("folder", ("seal", 2), (2, 2)),
        ("store", ("spool_stretch", 2), (1, 1)),
        ("store", ("write_range", 1), (2, 2)),
        ("store", ("seal", 2), (1, 2)),
    ],
)
def test_a_killed_driver_is_resumed(
    into: str, place: tuple[str, int], workers: tuple[int, int], five_files: Any, server: ObjectServer, tmp_path: Path
) -> None:
    """By another number of workers, to the bytes of one process; and nothing else is left."""
    paths, alone = five_files
    destination = "s3://bucket/d.zarr" if into == "store" else str(tmp_path / "d.zarr")
    words = [*paths, destination]
    assert ingest_or_die(place, words, workers[0], server.environment) == -signal.SIGKILL
    assert ingest_or_die(("", 0), [*words, "--resume"], workers[1], server.environment) == 0
    if into == "store":
        assert {key.removeprefix("bucket/d.zarr/"): value for key, value in server.objects.items()} == alone
    else:
        assert read_bytes(tmp_path / "d.zarr") == alone
    assert sorted(os.listdir(tmp_path)) == sorted(
        [*map(os.path.basename, paths), "alone.zarr", *["d.zarr"] * (into == "folder")]
    )


def die_at_the_third(source: Source, stretch: Stretch, number: int, n_before: int) -> SpooledStretch:
    """Set a stretch aside, but for the third one, which kills each process that tries."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return spool_stretch(source, stretch, number, n_before)


def test_all_workers_are_killed(
    five_files: Any, workers_import_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they have finished is kept, and other workers go on with it."""
    paths, alone = five_files
    options = IngestOptions(chunk_bytes=2000)
    monkeypatch.setattr(on_workers, "RUN_BYTES", 12000)
    monkeypatch.setattr(watch, "MOST_TRIES", 1)
    monkeypatch.setattr(on_workers, "spool_stretch", die_at_the_third)
    with pytest.raises(ConnectionError, match="was lost with 4 workers"):
        ingest_on_workers(paths, tmp_path / "d.zarr", Columns(), options, workers=2, memory_bytes=WORKER_BYTES)
    monkeypatch.setattr(on_workers, "spool_stretch", spool_stretch)
    (left,) = tmp_path.glob(".d.zarr.*.partial")
    assert {"set-aside-0-0", "set-aside-1-1"} <= set(os.listdir(left / "spill"))
    ingest_on_workers(paths, tmp_path / "d.zarr", Columns(), options, workers=1, memory_bytes=WORKER_BYTES, resume=True)
    assert read_bytes(tmp_path / "d.zarr") == alone
