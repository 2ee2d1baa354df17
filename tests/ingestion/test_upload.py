"""Datasets that are written to an object store: they appear whole or not at all, with the bits of a local dataset."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.remote import files
from streamsvm.data.store import destination
from streamsvm.ingestion import write as writer
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError, WriteError
from tests.commands import Run, run
from tests.data.conftest import WriteFile
from tests.object_server import ObjectServer, Request

__all__ = ["run"]
URL = "s3://bucket/rows.zarr"
random = np.random.default_rng(0)
X = (random.normal(size=(600, 5)) * (random.random((600, 5)) < 0.5)).astype(np.float32)
Y = np.arange(600) % 3


def write(destination: Any = URL, rows: Any = X, **options: Any) -> Any:
    return ingest(rows, destination, Y[: len(rows)], **{"chunk_bytes": 2000, **options})


def names(server: ObjectServer) -> list[str]:
    return [key.removeprefix("bucket/rows.zarr/") for key in server.objects]


@pytest.mark.parametrize("codec", writer.CODECS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_it_has_the_bytes_of_a_dataset_on_a_disk(layout: str, codec: str, server: ObjectServer, tmp_path: Path) -> None:
    here = write(tmp_path / "rows.zarr", layout=layout, codec=codec, scale="maxabs")
    there = write(layout=layout, codec=codec, scale="maxabs")
    assert there.fingerprint == here.fingerprint
    files = [file for file in Path(here.path).rglob("*") if file.is_file()]
    wanted = {str(file.relative_to(here.path)): file.read_bytes() for file in files}
    assert {name: server.objects[f"bucket/rows.zarr/{name}"] for name in names(server)} == wanted
    assert verify(open_dataset(URL))["verified"]


def test_the_manifest_comes_last_and_only_where_none_is(server: ObjectServer) -> None:
    write()
    puts = [request for request in server.requests if request.method == "PUT"]
    assert puts[-1].key == "bucket/rows.zarr/zarr.json"
    assert puts[-1].headers["if-none-match"] == "*"
    assert sum(request.key.endswith("rows.zarr/zarr.json") for request in puts) == 1


def test_large_chunks_are_sent_in_parts(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 5 << 20)
    rows = random.normal(size=(600, 5000)).astype(np.float32)
    dataset = write(rows=rows, chunk_bytes=1 << 30, shuffle=None)
    assert sum("partNumber" in request.query for request in server.requests) == 3
    np.testing.assert_array_equal(dataset.read(0).X, rows)


@pytest.mark.parametrize("fault", ["500", "503", "reset"])
def test_a_write_that_fails_is_repeated(fault: str, server: ObjectServer) -> None:
    met = Counter[str]()

    def fail_twice(request: Request) -> str | None:
        if request.method != "PUT" or "/c/" not in request.key:
            return None
        met[request.key] += 1
        return fault if met[request.key] <= 2 else None

    server.fault = fail_twice
    assert verify(write())["verified"]
    assert set(met.values()) == {3}


def test_a_write_that_fails_always_leaves_nothing(server: ObjectServer) -> None:
    server.fault = lambda request: "500" if request.key.endswith("X/c/3/0") else None
    with pytest.raises(WriteError, match=r"^s3://bucket/rows\.zarr/X/c/3/0: cannot be written: "):
        write()
    assert not server.objects


def test_a_dataset_is_replaced_only_if_it_is_asked_for(server: ObjectServer) -> None:
    first = write()
    with pytest.raises(InputError, match=f"^{URL}: already exists; .*--overwrite"):
        write(rows=X[:300])
    assert open_dataset(URL).fingerprint == first.fingerprint
    second = write(rows=X[:300], overwrite=True)
    assert second.n_rows == 300
    assert verify(second)["verified"]
    assert len([name for name in names(server) if name.startswith("X/c/")]) == second.n_chunks


def test_bad_input_leaves_what_was_there(server: ObjectServer) -> None:
    bad = X.copy()
    bad[500, 2] = np.nan
    with pytest.raises(InputError, match="row 501, column 3"):
        write(rows=bad)
    assert not server.objects
    write()
    before = dict(server.objects)
    with pytest.raises(InputError, match="row 501, column 3"):
        write(rows=bad, overwrite=True)
    assert server.objects == before


def test_other_objects_are_not_touched(server: ObjectServer) -> None:
    server.objects["bucket/rows.zarr/letters.txt"] = b"dear reader"
    with pytest.raises(InputError, match="already has objects that are not a dataset"):
        write(overwrite=True)
    server.objects["bucket/rows.zarr/zarr.json"] = b'{"attributes": {}}'
    with pytest.raises(InputError, match="already exists and is not a dataset"):
        write(overwrite=True)
    assert len(server.objects) == 2


def test_one_process_at_a_time_writes(server: ObjectServer) -> None:
    with destination.new_upload(URL) as first:
        with pytest.raises(InputError, match=r"another process is writing to it, or was killed; .* --overwrite"):
            write()
        second = write(overwrite=True)
        with pytest.raises(InputError, match="another process has begun to write to it"):
            first.commit()
        first.commit = lambda: None  # type: ignore[method-assign]
    assert verify(second)["verified"]


@pytest.mark.parametrize("sizes", [("2000", "0"), ("500", "2000")], ids=["chunks", "shards"])
def test_a_killed_ingest_leaves_no_dataset(
    sizes: tuple[str, str], server: ObjectServer, tmp_path: Path, run: Run, write_file: WriteFile
) -> None:
    file = write_file("".join(f"{k % 2},{k}.5,{k * k % 17}\n" for k in range(3000)))
    server.fault = lambda request: "held" if "X/c/7/0" in request.key and request.method == "PUT" else None
    arguments = ("ingest", str(file), URL, "--label", "1", "--chunk-bytes", sizes[0], "--shard-bytes", sizes[1])
    with subprocess.Popen([sys.executable, "-m", "streamsvm", *arguments]) as process:
        assert server.held.wait(60)
        process.send_signal(signal.SIGKILL)
    assert {"X/c/6/0", ".writing"} <= set(names(server))
    assert "zarr.json" not in names(server)
    server.fault = lambda _: None
    ran = run("info", URL)
    assert (ran.code, ran.out) == (2, "")
    ran = run(*arguments)
    assert ran.code == 2
    assert "was killed" in ran.err
    assert run(*arguments, "--overwrite").code == 0
    assert run("info", URL, "--verify", "--json").result["verified_rows"] == 3000
    assert ".writing" not in names(server)


@pytest.mark.parametrize("sizes", [("2000", "0"), ("500", "2000")], ids=["chunks", "shards"])
def test_ctrl_c_ends_a_slow_write_and_leaves_nothing(
    sizes: tuple[str, str], server: ObjectServer, write_file: WriteFile
) -> None:
    file = write_file("".join(f"{k % 2},{k}.5,{k * k % 17}\n" for k in range(3000)))
    server.fault = lambda request: "held" if "X/c/7/0" in request.key and request.method == "PUT" else None
    words = ("ingest", str(file), URL, "--label", "1", "--chunk-bytes", sizes[0], "--shard-bytes", sizes[1])
    arguments = [sys.executable, "-m", "streamsvm", *words]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert server.held.wait(60)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert "interrupted; nothing was left behind" in err
    assert not server.objects


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ingest", "FILE", "http://host/rows.zarr"), "an http URL can be read only"),
        (("ingest", "FILE", "s3://bucket/rows.zarr", "--append"), "a path on a local disk is required"),
        (("features", "FILE", "s3://bucket/rows.zarr"), "a path on a local disk is required"),
        (("tune", "FILE", "--out", "s3://bucket/a"), "a path on a local disk is required"),
    ],
)
def test_what_is_not_written_to_a_store_is_refused(
    arguments: tuple[str, ...], message: str, server: ObjectServer, run: Run, write_file: WriteFile
) -> None:
    file = write_file("a,b\n1,2\n0,3\n")
    ran = run(*(file if part == "FILE" else part for part in arguments))
    assert ran.code == 2
    assert message in ran.err
    assert not server.objects
