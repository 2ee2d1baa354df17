"""Datasets in an object store: what is requested when, what is asked for again, and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.info import verify
from streamsvm.data import array_writer, object_file, object_store, writer
from streamsvm.data.dataset import Dataset
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.readers import ingest
from streamsvm.engines.group import Pins, _read_tiles
from streamsvm.engines.serial import SerialEngine
from streamsvm.errors import IntegrityError, ReadError
from streamsvm.training.train import TrainOptions, train
from tests.commands import Run, run
from tests.data.conftest import Collect, Write
from tests.engines.scans import trace_scan
from tests.object_server import ObjectServer, Request
from tests.remote import upload

__all__ = ["run"]
FAULTS = ("500", "503", "reset", "truncated")


@pytest.fixture
def put(write: Write, server: ObjectServer) -> Callable[..., tuple[Dataset, Dataset]]:
    """Write rows, and put them into the store: the dataset on the disk, and the one in the store."""

    def put_rows(X: Any = None, **options: Any) -> tuple[Dataset, Dataset]:
        rows = np.random.default_rng(0).normal(size=(600, 5)).astype(np.float32) if X is None else X
        number = np.arange(float(len(rows)))
        local = write(rows, number % 3, number / 7, **{"layout": "dense", "chunk_bytes": 2000, **options})
        return local, open_dataset(upload(server, local.path))

    return put_rows


def read_all(dataset: Dataset, collect: Collect) -> dict[str, Any]:
    return collect(rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k))


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


class TwiceFor:
    """The first two requests for a chunk fail."""

    def __init__(self, fault: str) -> None:
        self.fault, self.met = fault, Counter[str]()

    def __call__(self, request: Request) -> str | None:
        if "/c/" not in request.key:
            return None
        self.met[request.key] += 1
        return self.fault if self.met[request.key] <= 2 else None


# --- what fails is asked for again


@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_read_that_fails_is_repeated(
    fault: str, codec: str, put: Any, server: ObjectServer, collect: Collect
) -> None:
    local, remote = put(codec=codec)
    server.fault = failing = TwiceFor(fault)
    assert_same(read_all(remote, collect), read_all(local, collect))
    some = np.arange(5, 600, 40)
    assert_same(collect([remote.take(some)]), collect([local.take(some)]))
    assert len(failing.met) >= 2 * local.n_chunks
    assert min(failing.met.values()) >= 3


def test_a_slow_answer_is_asked_for_again(
    put: Any, server: ObjectServer, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "200 ms")
    object_store.connect.cache_clear()
    local, remote = put(chunk_bytes=1 << 20)
    server.fault = TwiceFor("held")
    assert_same(read_all(remote, collect), read_all(local, collect))
    assert server.held.is_set()


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_always_is_an_error_that_names_the_object(fault: str, put: Any, server: ObjectServer) -> None:
    _, remote = put()
    server.fault = lambda request: fault if request.key.endswith("X/c/2/0") else None
    for run_it in (lambda: verify(remote), lambda: remote.take([200])):
        with pytest.raises(ReadError, match=r"^s3://bucket/rows\.zarr/X/c/2/0: cannot be read: ") as caught:
            run_it()
        assert "\n" not in str(caught.value)
        for secret in ("the-key-of-the-test", "the-secret-of-the-test", "Signature"):
            assert secret not in str(caught.value)


def test_an_answer_that_quotes_credentials_is_not_shown() -> None:
    quoted = (
        "Error performing GET http://host/key?X-Amz-Signature=abc in 1ms - Server returned non-2xx status code: 403 "
        "Forbidden: <Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>KEY</AWSAccessKeyId></Error>\n\nDebug KEY"
    )
    told = object_store.explain(ValueError(quoted))
    assert told.endswith("403 Forbidden (SignatureDoesNotMatch)")
    assert "KEY" not in told
    assert "abc" not in told


# --- what is not the object that the manifest lists


@pytest.mark.parametrize("codec", ["crc32c", "zstd"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_an_object_that_is_not_the_one_listed_is_refused(
    layout: str, codec: str, put: Any, server: ObjectServer
) -> None:
    _, remote = put(layout=layout, codec=codec)
    two = [160, 170] if layout == "dense" else [60, 70]  # of chunk 1
    for key in ("y/c/1", "X/c/1/0") if layout == "dense" else ("X/data/c/1", "X/indices/c/1", "X/indptr/c/1"):
        name = f"bucket/rows.zarr/{key}"
        content = server.objects[name]
        other = server.objects[name.replace("c/1", "c/0")]
        flipped = bytes([content[0] ^ 1]) + content[1:]
        for changed in (None, other, content[:-1], content + b"x", content[:9], flipped, b""):
            if changed == content:  # the columns of all chunks are equal
                continue
            server.objects.pop(name, None)
            if changed is not None:
                server.objects[name] = changed
            for run_it in (lambda: verify(remote), lambda: remote.take(range(600)), lambda: remote.take(two)):
                with pytest.raises(IntegrityError, match=f"^s3://{name}: "):
                    run_it()
            server.objects[name] = content
    assert verify(remote)["verified"]


def test_metadata_that_are_missing_or_damaged_are_refused(put: Any, server: ObjectServer, run: Run) -> None:
    put()
    for key in ("y/zarr.json", "zarr.json"):
        content = server.objects.pop(f"bucket/rows.zarr/{key}")
        ran = run("info", "s3://bucket/rows.zarr")
        assert (ran.code, ran.out) == (2, "")
        assert "s3://bucket/rows.zarr" in ran.err
        server.objects[f"bucket/rows.zarr/{key}"] = content[:-10] + b"?" * 10
        ran = run("info", "s3://bucket/rows.zarr")
        assert (ran.code, ran.out) == (2, "")
        server.objects[f"bucket/rows.zarr/{key}"] = content


# --- what is requested, and when


def test_the_next_chunk_is_requested_while_one_is_computed_on(put: Any, server: ObjectServer) -> None:
    _, remote = put()
    tiles = _read_tiles(remote, range(4), Pins(0), {})
    for index in range(3):
        next(tiles)
        server.wait_for_read(f"X/c/{index + 1}/0")
        server.wait_for_read(f"/y/c/{index + 1}")
        assert not server.reads(f"X/c/{index + 2}/0")
    assert len(list(tiles)) == 1
    assert all(n == 1 for n in Counter((request.key, request.range) for request in server.reads("/c/")).values())


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_nothing_is_read_twice(layout: str, put: Any, server: ObjectServer) -> None:
    """But for the ends of sparse rows and of vectors, whose chunks have other limits, and the checksums of parts."""
    _, remote = put(layout=layout)
    for pin_bytes in (0, 1 << 20):
        server.requests.clear()
        SerialEngine(remote, pin_bytes).scan(trace_scan())
        counts = Counter((request.key, request.range) for request in server.reads("X/data/c") + server.reads("X/c"))
        assert set(counts.values()) == {1}


def test_several_ranges_of_an_object_are_in_flight(
    put: Any, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, collect: Collect
) -> None:
    local, remote = put(chunk_bytes=1 << 20)
    monkeypatch.setattr(object_file, "RANGE_BYTES", 1000)
    server.awaited = "rows.zarr/X/c/0/0$", object_file.RANGES_AHEAD
    assert_same(read_all(remote, collect), read_all(local, collect))
    assert len(server.reads("X/c/0/0")) == 13
    assert server.awaited is None
    file = object_file.ObjectFile(object_store.open_store("s3://bucket"), "rows.zarr/X/c/0/0", 12004, [(0, 12004)])
    for begin in range(0, 12004, 500):
        file.fill(np.empty(4, np.uint8), begin)
        assert len(file._requested) <= object_file.RANGES_AHEAD


def test_single_rows_of_several_chunks_are_requested_together(
    put: Any, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, collect: Collect
) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 100)
    monkeypatch.setattr(writer, "VECTOR_PART_BYTES", 100)
    monkeypatch.setattr(array_writer, "TABLE_BYTES", 100)
    local, remote = put()
    some = np.arange(7, 600, 100)
    server.awaited = "rows.zarr/X/c/", len(some)
    assert_same(collect([remote.take(some)]), collect([local.take(some)]))
    assert server.awaited is None
    for start, stop in (request.range or (0, 0) for request in server.reads("rows.zarr/X/c/")):
        assert 0 < stop - start <= 104


def test_metadata_are_requested_once(put: Any, server: ObjectServer) -> None:
    put(layout="sparse")
    assert set(Counter(request.key for request in server.reads("zarr.json")).values()) == {1}
    assert all(request.method == "GET" for request in server.requests)


# --- what can be opened


def test_http_urls_are_read(put: Any, server: ObjectServer, collect: Collect) -> None:
    local, _ = put()
    remote = open_dataset(f"{server.url}/bucket/rows.zarr/")
    assert_same(read_all(remote, collect), read_all(local, collect))
    server.objects.pop("bucket/rows.zarr/X/c/1/0")
    with pytest.raises(IntegrityError, match=f"^{server.url}/bucket/rows.zarr/X/c/1/0: chunk is missing"):
        verify(remote)


def test_rows_that_were_appended_are_read(server: ObjectServer, tmp_path: Path, collect: Collect) -> None:
    rows, labels = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    for part in (slice(0, 40), slice(40, 60)):
        local = ingest(rows[part], tmp_path / "rows.zarr", labels[part], append=part.start > 0)
    remote = open_dataset(upload(server, local.path))
    assert remote.fingerprint == local.fingerprint
    assert_same(read_all(remote, collect), read_all(local, collect))
    server.objects.pop("bucket/rows.zarr/appended/1/zarr.json")
    with pytest.raises(IntegrityError, match="rows that were appended are missing"):
        open_dataset("s3://bucket/rows.zarr")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/none.zarr", "s3://bucket/none.zarr: no such dataset"),
        ("s3:///none.zarr", "a URL has a host or a bucket"),
        ("https://name:secret@host/rows.zarr", "credentials are taken from the environment"),
        ("https://host/rows.zarr?sig=secret", "credentials are taken from the environment"),
        ("az://container/rows.zarr", "Account must be specified"),
    ],
)
def test_a_url_that_cannot_be_opened_is_told(url: str, message: str, server: ObjectServer, run: Run) -> None:
    ran = run("info", url)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "secret" not in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["ingest", "https://host/rows.svm?sig=secret", "rows.zarr"],
        ["ingest", "https://host/rows.csv#secret", "rows.zarr"],
        ["ingest", "https://name:secret@host/rows.npz", "rows.zarr"],
        ["ingest", "rows.svm", "https://name:secret@host/rows.zarr?sig=secret"],
        ["train", "rows.zarr", "--out", "https://name:secret@host/run?sig=secret", "--resume"],
        ["train", "rows.zarr", "--out", "https://name:secret@host/run?sig=secret", "--probabilities", "sigmoid"],
        ["tune", "rows.zarr", "--out", "https://name:secret@host/run?sig=secret"],
        ["verify", "https://name:secret@host/model.npz?sig=secret", "rows.zarr", "--dual"],
        ["evaluate", "https://host/model.npz?sig=secret", "rows.zarr"],
    ],
)
def test_no_message_tells_credentials_in_a_url(
    words: list[str], server: ObjectServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ingest(np.eye(20, 2), "rows.zarr", np.arange(20) % 2)
    ran = run(*words)
    assert ran.code == 2
    assert "host/" in ran.err
    assert "secret" not in ran.err + ran.out


def test_a_plain_endpoint_has_to_be_allowed(put: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put()
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    object_store.connect.cache_clear()
    ran = run("info", "s3://bucket/rows.zarr")
    assert ran.code == 2
    assert "AWS_ALLOW_HTTP=true" in ran.err


def test_the_extra_is_named_where_it_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    object_store.connect.cache_clear()
    ran = run("info", "s3://bucket/rows.zarr")
    assert ran.code == 2
    assert "pip install 'streamsvm[remote]'" in ran.err


# --- what a process does with it


@pytest.mark.parametrize("command", ["info", "train", "predict"])
def test_ctrl_c_ends_a_slow_read(command: str, put: Any, server: ObjectServer, tmp_path: Path) -> None:
    local, _ = put()
    train(local, TrainOptions(max_passes=3)).model.save(tmp_path / "model.npz")
    server.fault = lambda request: "held" if "X/c/3/0" in request.key else None
    more = {
        "info": ("s3://bucket/rows.zarr", "--verify"),
        "train": ("s3://bucket/rows.zarr", "--out", tmp_path / "new"),
        "predict": (tmp_path / "model.npz", "s3://bucket/rows.zarr", "--out", tmp_path / "new.csv"),
    }[command]
    arguments = [sys.executable, "-m", "streamsvm", command, *map(str, more)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert server.held.wait(60)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=20)[1]  # a request alone would go on for 30 seconds
    assert process.returncode == 1
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (tmp_path / "new.csv").exists()
