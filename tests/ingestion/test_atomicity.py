"""A dataset appears whole or not at all: failures in the middle, full disks, kills."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from zarr.core.sync import _get_loop

from streamsvm.data.rows.source import SourceRows
from streamsvm.ingestion import write as writer
from streamsvm.ingestion.ingest import IngestOptions, write_dataset
from streamsvm.system.errors import InputError
from streamsvm.system.files import name_partial, remove_partials
from tests.data.conftest import RunPython, Write, file_hashes, numbered_rows, small_files


def failing_source(error: BaseException) -> Iterator[SourceRows]:
    X, y, number = numbered_rows(100)
    yield SourceRows(X, y, None, number)
    raise error


@pytest.mark.parametrize("error", [InputError("rows.svm:7: bad"), RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught:
        write_dataset(failing_source(error), tmp_path / "d.zarr", "rows.svm", 0, IngestOptions())
    assert caught.value is error
    assert os.listdir(tmp_path) == []


def test_what_zarr_still_writes_is_waited_for(tmp_path: Path) -> None:
    async def write_late(folder: Path) -> None:
        for _ in range(20_000):
            await asyncio.sleep(0)
        (folder / "c").mkdir(parents=True, exist_ok=True)

    late: list[Future[None]] = []

    def interrupt() -> Iterator[SourceRows]:
        (path,) = tmp_path.glob(".d.zarr.*.partial")
        late.append(asyncio.run_coroutine_threadsafe(write_late(path), _get_loop()))
        yield from failing_source(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        write_dataset(interrupt(), tmp_path / "d.zarr", "rows.svm", 0, IngestOptions())
    assert late[0].done()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("of", "name"), [(writer.ChunkWriter, "_flush"), (writer.PlacedArray, "finish")])
def test_a_failure_while_writing_leaves_nothing_behind(
    of: type, name: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(of, name, fail)
    with pytest.raises(InputError, match=r"d\.zarr: cannot be written: No space left on device"):
        write(*numbered_rows(100), to=tmp_path / "d.zarr")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("limit_bytes", "n"), [(100, 300), (3000, 300), (3000, 600)])
def test_a_disk_that_fills_up_is_an_error(limit_bytes: int, n: int, write: Write, tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=r"d\.zarr: cannot be written: ")
    with refused as caught, small_files(limit_bytes):  # in the spilled rows, in the chunks, in the metadata
        write(*numbered_rows(n), to=tmp_path / "d.zarr", chunk_bytes=8 * n if n == 600 else 80)
    assert "File too large" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_destination_that_exists_is_left_alone(write: Write, tmp_path: Path) -> None:
    X, y, number = numbered_rows(20)
    write(X, y, number, to=tmp_path / "d.zarr")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    before = file_hashes(tmp_path)
    for name in ("d.zarr", "file", "folder"):
        with pytest.raises(InputError, match=f"{name}: already exists"):
            write(X + 1, y, number, to=tmp_path / name)
    assert file_hashes(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["d.zarr", "file", "folder"]


def test_a_destination_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    def source() -> Iterator[SourceRows]:
        yield SourceRows(*numbered_rows(10)[:2])
        (tmp_path / "d.zarr").mkdir()
        (tmp_path / "d.zarr" / "mine").write_text("mine")

    with pytest.raises(InputError, match=r"d\.zarr: cannot be written"):
        write_dataset(source(), tmp_path / "d.zarr", "rows", 0, IngestOptions())
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["d.zarr", "d.zarr/mine"]


def test_a_folder_that_cannot_be_written_to_is_named(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbered_rows(10)
    (tmp_path / "file").write_text("")
    for to in ("file/d.zarr", "file/deeper/d.zarr"):
        with pytest.raises(InputError, match="file: is a file, so it cannot contain"):
            write(*rows, to=tmp_path / to)

    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)  # tests may run as root, who may write anywhere
    with pytest.raises(InputError, match=r"d\.zarr: cannot be written: Permission denied"):
        write(*rows, to=tmp_path / "d.zarr")
    with pytest.raises(InputError, match=r"new: cannot be written: Permission denied"):
        write(*rows, to=tmp_path / "new" / "d.zarr")


def test_folders_above_a_dataset_are_made(write: Write, tmp_path: Path) -> None:
    assert write(*numbered_rows(10), to=tmp_path / "new" / "deeper" / "d.zarr").n_rows == 10


KILLED = """
    import signal, sys
    import numpy as np
    from streamsvm.ingestion import write as writer
    from streamsvm.ingestion.ingest import write_dataset
    from streamsvm.ingestion.ingest import IngestOptions
    from streamsvm.data.rows.source import SourceRows

    X = np.arange(400, dtype=np.float32).reshape(200, 2)

    def wait():
        print("now", flush=True)
        signal.pause()

    def pieces():
        yield SourceRows(X, X[:, 0].astype(float) % 3)
        if sys.argv[2] == "reading":
            wait()

    def pause_in_finish(*args):
        wait()

    if sys.argv[2] == "writing":
        writer.DatasetWriter.finish = pause_in_finish
    write_dataset(pieces(), sys.argv[1], "rows", 0, IngestOptions(chunk_bytes=80))
"""


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_killed_in_the_middle_it_leaves_no_dataset(
    moment: str, write: Write, run_python: RunPython, tmp_path: Path
) -> None:
    destination = tmp_path / "d.zarr"
    child = run_python(KILLED, destination, moment)
    assert child.stdout is not None
    assert child.stdout.readline() == "now\n"
    left = sorted(re.sub(r"[0-9a-f]{8}", "*", name) for name in os.listdir(tmp_path))
    child.kill()
    child.wait()
    assert left == [".d.zarr.*.partial", ".d.zarr.lock"]
    assert not destination.exists()
    X, y, number = numbered_rows(30)
    dataset = write(X, y, number, to=destination)
    assert dataset.n_rows == 30
    assert os.listdir(tmp_path) == ["d.zarr"]


@pytest.mark.parametrize("name", ["rows", "rows\nof a\r\nday", " \n"])
def test_what_killed_writers_left_is_found_by_any_name(tmp_path: Path, name: str) -> None:
    for of in (None, name):
        name_partial(tmp_path / name).touch()
        remove_partials(tmp_path, of)
        assert list(tmp_path.iterdir()) == []
