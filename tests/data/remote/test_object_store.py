"""Datasets in an object store: what is requested when, what is asked for again, and what is refused."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.remote import files, store
from streamsvm.data.remote.objects import RemoteFolder
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import SerialEngine
from streamsvm.engines.tasks import ChunkCache, _read_tiles
from streamsvm.ingestion import write as writer
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system import deadline
from streamsvm.system.errors import IntegrityError, ReadError, TimeLimitError
from tests.commands import Run, run
from tests.data.conftest import Collect, Write
from tests.engines.scans import trace_scan
from tests.object_server import ObjectServer, Request
from tests.remote import upload

__all__ = ["run"]
OWN_RETRIES: Any = store.RETRIES  # those of the fixture end sooner
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
    store.connect.cache_clear()
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


def test_the_time_and_not_the_number_of_requests_ends_them(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection is an answer within a millisecond."""
    least = OWN_RETRIES["backoff"]["init_backoff"] * OWN_RETRIES["max_retries"]
    assert least > OWN_RETRIES["retry_timeout"] == timedelta(minutes=3)
    few = {"retry_timeout": timedelta(milliseconds=300), "backoff": store.RETRIES["backoff"]}
    monkeypatch.setattr(store, "RETRIES", {**OWN_RETRIES, **few})
    monkeypatch.setenv("AWS_ENDPOINT_URL", find_refusing())
    with pytest.raises(ReadError, match=r"after \d+ retries.*\(Connection refused\)$") as caught:
        open_dataset("s3://bucket/rows.zarr")
    assert int(str(caught.value).partition(" after ")[2].split()[0]) > 20


def find_refusing() -> str:
    """Return the URL of a port of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return f"http://127.0.0.1:{opened.getsockname()[1]}"


class Recovery(logging.Handler):
    """Lets the store recover as soon as it is reported that it does not answer."""

    def __init__(self, server: ObjectServer) -> None:
        super().__init__()
        self.server, self.told = server, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        self.server.fault = lambda _: None


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("503", "Server returned non-2xx status code: 503 Service Unavailable"),
        ("reset", "HTTP error: error sending request (Connection reset by peer)"),
        ("held", "the store does not answer"),
        ("held chunk", "the store answers other requests"),
    ],
)
def test_a_store_that_does_not_answer_is_reported(
    fault: str, cause: str, put: Any, server: ObjectServer, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, remote = put(codec="crc32c")
    monkeypatch.setattr(store, "RETRIES", {**store.RETRIES, "max_retries": 10_000})
    monkeypatch.setattr(store, "TOLD_SECONDS", 0.1)
    monkeypatch.setattr(store, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(store, "_REPORTED", {})
    monkeypatch.setenv("AWS_TIMEOUT", "300 ms")
    store.connect.cache_clear()
    kind, _, part = fault.partition(" ")
    server.fault = lambda request: kind if not part or re.search("/c/[0-9/]*$", request.key) else None
    handler = Recovery(server)
    store.LOGGER.addHandler(handler)
    try:
        remote = open_dataset(remote.path)
        assert_same(read_all(remote, collect), read_all(local, collect))
    finally:
        store.LOGGER.removeHandler(handler)
    (told,) = handler.told
    place, _, why = re.split(r": not done after (\d+) s ", told)
    assert place == f"s3://bucket/rows.zarr/{'y/c/0' if part else 'zarr.json'}"
    assert why == f"({cause}); a request that fails is repeated for up to 3 minutes, and Ctrl-C ends the wait"


@pytest.mark.slow("runs a command against a store that fails")
@pytest.mark.parametrize("fault", ["503", "reset", "held"])
def test_a_command_reports_the_wait_and_goes_on(fault: str, put: Any, server: ObjectServer) -> None:
    put()
    script = (
        "import sys; from streamsvm.data.remote import store as object_store; object_store.TOLD_SECONDS = 0.1; "
        "from streamsvm.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    server.fault = lambda _: fault
    command = [sys.executable, "-c", script, "info", "s3://bucket/rows.zarr", "--json"]
    environment = {**os.environ, "AWS_TIMEOUT": "300 ms"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        server.fault = lambda _: None
        out, err = process.communicate(timeout=60)
    assert told.startswith("s3://bucket/rows.zarr/zarr.json: not done after ")
    assert (process.returncode, json.loads(out)["n_rows"], err) == (0, 600, "")


def test_an_answer_that_quotes_credentials_is_not_shown() -> None:
    quoted = (
        "Error performing GET http://host/key?X-Amz-Signature=abc in 1ms - Server returned non-2xx status code: 403 "
        "Forbidden: <Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>KEY</AWSAccessKeyId></Error>\n\nDebug KEY"
    )
    told = store.explain(ValueError(quoted))
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
    tiles = _read_tiles(remote, range(4), ChunkCache(0), {})
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
    monkeypatch.setattr(files, "RANGE_BYTES", 1000)
    server.awaited = "rows.zarr/X/c/0/0$", files.RANGES_AHEAD
    assert_same(read_all(remote, collect), read_all(local, collect))
    assert len(server.reads("X/c/0/0")) == 13
    assert server.awaited is None
    file = files.ObjectFile(store.open_store("s3://bucket"), "rows.zarr/X/c/0/0", 12004, [(0, 12004)])
    for begin in range(0, 12004, 500):
        file.fill(np.empty(4, np.uint8), begin)
        assert len(file._requested) <= files.RANGES_AHEAD


def test_single_rows_of_several_chunks_are_requested_together(
    put: Any, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, collect: Collect
) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 100)
    monkeypatch.setattr(writer, "VECTOR_PART_BYTES", 100)
    monkeypatch.setattr(writer, "TABLE_BYTES", 100)
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
    with pytest.raises(IntegrityError, match="the appended rows are missing"):
        open_dataset("s3://bucket/rows.zarr")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/none.zarr", "s3://bucket/none.zarr: no such dataset"),
        ("s3:///none.zarr", "expected SCHEME://BUCKET/PATH"),
        ("https://name:secret@host/rows.zarr", "credentials come from the environment"),
        ("https://host/rows.zarr?sig=secret", "credentials come from the environment"),
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
    ("fault", "message"),
    [
        ("404 NoSuchBucket", "cannot be read: the bucket does not exist (NoSuchBucket)"),
        ("403 AccessDenied", "cannot be read: access is denied ("),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ["info", "s3://none/rows.zarr"],
        ["ingest", "s3://none/rows.csv", "rows.zarr"],
        ["ingest", "s3://none/*.csv", "rows.zarr"],
        ["ingest", "rows.csv", "s3://none/rows.zarr", "--label", "1"],
        ["evaluate", "s3://none/run", "rows.csv"],
        ["train", "rows.csv", "--label", "1", "--out", "s3://none/run"],
    ],
)
def test_a_bucket_that_cannot_be_used_is_told(
    words: list[str], fault: str, message: str, server: ObjectServer, run: Run, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("1,2,3\n0,2,4\n1,1,1\n0,0,0\n")
    server.fault = lambda _: fault
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    (line,) = [line for line in ran.err.splitlines() if "s3://none" in line]
    assert message in line
    assert line.count("s3://none") == 1


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
    store.connect.cache_clear()
    ran = run("info", "s3://bucket/rows.zarr")
    assert ran.code == 2
    assert "AWS_ALLOW_HTTP=true" in ran.err


def test_the_extra_is_named_where_it_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    store.connect.cache_clear()
    ran = run("info", "s3://bucket/rows.zarr")
    assert ran.code == 2
    assert "pip install 'streamsvm[remote]'" in ran.err


# --- what a process does with it


@pytest.mark.slow("runs a command against a store that fails")
@pytest.mark.parametrize(
    "words",
    [
        ["info", "s3://bucket/rows.zarr"],
        ["evaluate", "s3://bucket/model.npz", "rows.csv"],
        ["ingest", "rows.csv", "s3://bucket/new.zarr", "--label", "1"],
    ],
)
def test_ctrl_c_ends_the_wait_for_a_store_that_is_silent(
    words: list[str], server: ObjectServer, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("1,2,3\n0,2,4\n")
    server.fault = lambda _: "held"
    arguments = [sys.executable, "-m", "streamsvm", *words]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert server.held.wait(60)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert "interrupted" in err
    assert "Traceback" not in err


@pytest.mark.slow("runs a command against a store that fails")
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


def test_an_upload_may_take_longer_than_the_limit(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given up half-way may arrive, and the next upload would take it for that of another process."""
    monkeypatch.setattr(store, "TOLD_SECONDS", 0)
    monkeypatch.setattr(store, "POLL_SECONDS", 0.01)
    server.latency = 0.1
    (tmp_path / "file").write_bytes(b"content")
    folder = RemoteFolder("s3://bucket/run")
    with deadline.limit(0):
        for _ in range(2):
            folder.put("file", tmp_path / "file", only_if_known=True)
        with pytest.raises(TimeLimitError):
            folder.list_names()
        folder.remove(["file"])
    assert folder.list_names() == []
