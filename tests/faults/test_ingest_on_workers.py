"""Processes that die during an ingest on workers: the same bytes, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.placed_rows import RangeWritten
from streamsvm.data.readers import ingest
from streamsvm.data.shared_ingest import SetAside, set_stretch_aside, write_range
from streamsvm.data.tables import Columns
from streamsvm.engines.workers import start_workers
from streamsvm.training import ingest_on_workers as module
from streamsvm.training import write_on_workers
from streamsvm.training.ingest_on_workers import ingest_on_workers
from tests.conftest import WORKER_BYTES
from tests.training.ingested_files import make_svmlight, read_bytes

pytestmark = pytest.mark.once
SECONDS = 120.0


def die_once(folder: Path) -> None:
    """End this process if it is the first that comes here."""
    try:
        (folder / "dead").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def set_aside_or_die(folder: Path, *arguments: Any) -> SetAside:
    found = set_stretch_aside(*arguments)
    die_once(folder)
    return found


def write_or_die(folder: Path, *arguments: Any) -> RangeWritten:
    found = write_range(*arguments)
    die_once(folder)
    return found


@pytest.mark.parametrize(
    ("of", "name", "dying"),
    [(module, "set_stretch_aside", set_aside_or_die), (write_on_workers, "write_range", write_or_die)],
)
def test_a_worker_is_killed(
    of: Any, name: str, dying: Any, workers_import_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it has written what it was asked for, and before anybody hears of it: the other one writes it once more."""

    @contextmanager
    def open_two(**_: Any) -> Iterator[Client]:
        with start_workers(2, 1, WORKER_BYTES) as client:
            yield client

    (tmp_path / "marks").mkdir()
    paths = [tmp_path / f"{k}.svm" for k in range(3)]
    for k, path in enumerate(paths):
        path.write_text(make_svmlight(k, 100))
    ingest(paths, tmp_path / "alone.zarr", options=IngestOptions(chunk_bytes=2000))
    monkeypatch.setattr(module, "open_workers", open_two)
    monkeypatch.setattr(of, name, partial(dying, tmp_path / "marks"))
    ingest_on_workers(paths, tmp_path / "shared.zarr", Columns(), IngestOptions(chunk_bytes=2000))
    assert (tmp_path / "marks" / "dead").exists()
    assert read_bytes(tmp_path / "shared.zarr") == read_bytes(tmp_path / "alone.zarr")


@pytest.mark.slow
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
