"""Copies of a store's chunks on a local disk: made once, within a limit, verified, shared, and removed for others."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import pickle
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from streamsvm.cli.main import main
from streamsvm.data.open import open_dataset
from streamsvm.data.store import places
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.places import CopiedFile, DiskCache, open_cache
from streamsvm.engines.local import ThreadedEngine
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, IntegrityError, WriteError
from tests.conftest import make_problem
from tests.engines.scans import trace_scan
from tests.object_server import ObjectServer
from tests.remote import server, upload  # noqa: F401

OPTIONS = TrainOptions(C=1.0, tol=1e-3)


def write(folder: Path, layout: str = "sparse", seed: int = 3) -> Dataset:
    problem = make_problem(seed, n=1000, d=7, density=0.4, weighted=True)
    return problem.store(folder / f"rows{seed}.zarr", layout=layout, chunk_bytes=3000)


def read_all(dataset: Dataset) -> object:
    engine = ThreadedEngine(dataset, 2)
    try:
        return engine.scan(trace_scan()).tree
    finally:
        engine.close()


def count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.parent != folder)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_chunks_are_read_from_the_store_once(layout: str, server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    local = write(tmp_path, layout)
    cached = open_dataset(upload(server, local.path), cache=f"{tmp_path}/cache:1GB")
    assert read_all(cached) == read_all(local)
    assert len(server.reads("/c/")) > 0
    server.requests.clear()
    again = pickle.loads(pickle.dumps(cached))  # as a worker gets it
    assert read_all(again) == read_all(cached) == read_all(local)
    assert server.reads("/c/") == []
    rows = np.array([3, 500, 990])
    np.testing.assert_array_equal(cached.take(rows).vectors["y"], local.take(rows).vectors["y"])
    assert not any("rows.zarr/X/" in request.key and "/c/" in request.key for request in server.reads("/c/"))


def test_a_training_reads_the_store_once(server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    local = write(tmp_path)
    url = upload(server, local.path)
    options = TrainOptions(C=1.0, tol=1e-3, options={"acceleration": "line-search"}, max_passes=3)
    expected = train(local, options)
    found = train(open_dataset(url, cache=f"{tmp_path}/cache:1GB"), options)
    assert expected.passes == found.passes == 3
    assert found.model.to_bytes() == expected.model.to_bytes()
    keys = [request.key for request in server.reads("X/data/c/")]
    assert len(keys) == len(set(keys)) == local.n_chunks


def test_the_limit_holds_and_the_rest_comes_from_the_store(server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    local, folder = write(tmp_path, "dense"), tmp_path / "cache"
    cached = open_dataset(upload(server, local.path), cache=f"{folder}:10000")
    for _ in range(2):
        assert read_all(cached) == read_all(local)
        assert 5000 < count_bytes(folder) <= 10000
    server.requests.clear()
    read_all(cached)
    assert 0 < len(server.reads("rows.zarr/X/c/")) < local.n_chunks


def test_a_damaged_copy_is_an_error_that_names_it(server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    local = write(tmp_path, "dense")
    cached = open_dataset(upload(server, local.path), cache=f"{tmp_path}/cache:1GB")
    read_all(cached)
    (copy,) = (tmp_path / "cache").glob("*/X/c/2/0")
    copy.write_bytes(bytes([copy.read_bytes()[0] ^ 1]) + copy.read_bytes()[1:])
    with pytest.raises(IntegrityError, match=f"{copy}: chunk is damaged"):
        read_all(cached)
    copy.write_bytes(copy.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match=f"{copy}: chunk has"):
        read_all(cached)


def test_a_damaged_object_is_not_kept(server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    local = write(tmp_path, "dense")
    url, key = upload(server, local.path), "bucket/rows.zarr/X/c/2/0"
    whole = server.objects[key]
    server.objects[key] = bytes([whole[0] ^ 1]) + whole[1:]
    cached = open_dataset(url, cache=f"{tmp_path}/cache:1GB")
    with pytest.raises(IntegrityError, match=r"rows\.zarr/X/c/2/0: chunk is damaged"):
        read_all(cached)
    server.objects[key] = whole
    assert read_all(cached) == read_all(local)
    assert not list((tmp_path / "cache").rglob(f"{places.PARTIAL}*"))


def test_other_datasets_make_room_unless_they_are_open(server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    folder, datasets = tmp_path / "cache", [write(tmp_path, "dense", seed) for seed in (3, 4, 5)]
    urls = [upload(server, dataset.path, f"bucket/{k}.zarr") for k, dataset in enumerate(datasets)]
    most = 2 * datasets[0].nbytes + 2000
    caches = [f"{folder}:{most}"] * 3
    kept = []
    for url, cache, is_left_open in zip(urls, caches, (False, True, True), strict=True):
        cached = open_dataset(url, cache=cache)
        read_all(cached)
        kept.append(open_cache(cache, cached.fingerprint))
        if not is_left_open:
            kept[-1].close()
    assert [cache.folder.exists() for cache in kept] == [False, True, True]
    assert count_bytes(folder) <= most
    assert {path.name for path in folder.glob("*/X/c/*")} >= {"0", "1", "2"}


def test_copies_are_free_once_no_dataset_of_the_process_uses_them(server: ObjectServer, tmp_path: Path) -> None:  # noqa: F811
    """A process that lives on, such as a worker, holds neither the lock nor descriptors of what it has read once."""
    local = write(tmp_path)
    given = open_dataset(upload(server, local.path), cache=f"{tmp_path}/cache:1GB")
    sent = pickle.dumps(given)
    before = open_cache(given.cache, given.fingerprint)
    again = pickle.loads(sent)  # as a worker gets it
    assert pickle.loads(sent) is again
    assert read_all(again) == read_all(given) == read_all(local)
    with (before.folder / places.IN_USE).open("rb") as file:
        assert not places._try_lock(file.fileno(), fcntl.LOCK_EX)
        del before, given
        gc.collect()
        assert not places._try_lock(file.fileno(), fcntl.LOCK_EX)
        del again
        gc.collect()
        assert places._try_lock(file.fileno(), fcntl.LOCK_EX)
    assert not list_open(tmp_path / "cache")


class Source:
    """A file in a store, whose bytes the caller has filled in."""

    name = "c/0"

    def fill(self, buffer: np.ndarray, begin: int) -> None:
        pass

    def keep(self) -> None:
        pass

    def close(self) -> None:
        pass


def begin_copy(cache: DiskCache, target: Path, n_bytes: int) -> CopiedFile | None:
    return cache.begin_copy(Source(), target, n_bytes)


@pytest.mark.parametrize("failing", ["truncate", "write"])
def test_a_copy_that_cannot_begin_leaves_nothing(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file with its lock nor bytes that count: another copy has the room."""
    cache = DiskCache(tmp_path, 1000, "f")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "ftruncate") if failing == "truncate" else (DiskCache, "_write_count")), fail)
        with pytest.raises(WriteError, match="No space left on device"):
            begin_copy(cache, tmp_path / "f/c/0", 1000)
    assert not list(cache.folder.glob(f"{places.PARTIAL}*"))
    assert not list_open(cache.folder / places.PARTIAL)
    assert begin_copy(cache, tmp_path / "f/c/0", 1000) is not None


def list_open(start: Path) -> list[str]:
    """The files that this process has open whose paths begin so."""
    open_files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
    return [path for path in open_files if path.startswith(str(start))]


def test_a_copy_is_given_up_whatever_its_source_does(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000, "f")

    class Failing(Source):
        def close(self) -> None:
            raise KeyboardInterrupt

    copy = cache.begin_copy(Failing(), tmp_path / "f/c/0", 1000)
    assert copy is not None
    with pytest.raises(KeyboardInterrupt):
        copy.close()
    assert begin_copy(cache, tmp_path / "f/c/0", 1000) is not None


def test_a_killed_process_leaves_nothing_that_counts(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / places.IN_USE).touch()
    (tmp_path / "f" / f"{places.PARTIAL}x").write_bytes(bytes(900))
    cache = DiskCache(tmp_path, 1000, "f")
    cache.make_room(1000)
    copy = begin_copy(cache, tmp_path / "f/c/0", 1000)
    assert copy is not None
    assert begin_copy(cache, tmp_path / "f/c/1", 1) is None
    copy.fill(np.ones(1000, np.uint8), 0)
    copy.keep()
    (tmp_path / places.COUNT).write_text("")  # as a process leaves it that is killed while it writes
    assert begin_copy(cache, tmp_path / "f/c/1", 1) is None
    assert (tmp_path / "f/c/0").read_bytes() == bytes([1]) * 1000


def test_no_file_comes_or_goes_while_another_process_counts(tmp_path: Path) -> None:
    """Such a file would be missing when its size is asked for; a folder would be removed before it is in use."""
    cache = DiskCache(tmp_path, 1000, "f")
    kept, given_up = (begin_copy(cache, tmp_path / f"f/c/{k}", 1) for k in (0, 1))
    assert kept is not None
    assert given_up is not None
    kept.fill(np.ones(1, np.uint8), 0)
    others = [Thread(target=act) for act in (kept.keep, given_up.close, lambda: DiskCache(tmp_path, 1000, "g"))]
    with cache.counting():
        before = sorted(tmp_path.rglob("*"))
        for other in others:
            other.start()
            other.join(0.05)
        assert sorted(tmp_path.rglob("*")) == before
    for other in others:
        other.join()
    assert {path.name for path in tmp_path.rglob("[!.]*")} == {"f", "c", "0", "g"}


def test_a_cache_that_is_gone_is_told(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 1000, "f")
    copy = begin_copy(cache, tmp_path / "cache/f/c/0", 1)
    assert copy is not None
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(WriteError, match="cache: the cache cannot be written"):
        copy.close()


def test_a_full_disk_is_told(
    server: ObjectServer,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = open_dataset(upload(server, write(tmp_path, "dense").path), cache=f"{tmp_path}/cache:1GB")
    written = count()

    def refuse_the_third(descriptor: int, content: memoryview, write: Callable[..., int] = places.os.write) -> int:
        if next(written) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr(places.os, "write", refuse_the_third)
    with pytest.raises(WriteError, match="cache: the cache cannot be written: No space left on device"):
        read_all(cached)


def test_what_is_no_cache_is_refused(
    server: ObjectServer,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    local = write(tmp_path)
    with pytest.raises(InputError, match="is on a local disk"):
        open_dataset(local.path, cache=f"{tmp_path}/cache:1GB")
    url = upload(server, local.path)
    packed = make_problem(3, n=100, d=7).store(tmp_path / "packed.zarr", layout="dense", codec="lz4")
    for data, cache, told in (
        (url, "100GB", "'100GB' is not a cache"),
        (url, "folder:much", "'much' is not a size in bytes"),
        (url, "folder:" + "9" * 400, "9999' is not a size in bytes"),
        (url, "s3://bucket/cache:1GB", "is not a cache"),
        (upload(server, packed.path, "bucket/packed.zarr"), f"{tmp_path}/cache:1GB", "compressed chunks"),
    ):
        assert main(["train", data, "--C", "1", "--out", str(tmp_path / "run"), "--cache", cache]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
