"""Stored arrays: ranges and short reads against NumPy; chunk files checked to the last byte; stores that are remote."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import google_crc32c
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, Crc32cCodec

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.array import StoredArray
from streamsvm.data.store.chunks import CRC_BYTES, ChunkFile, Span
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.layouts import CsrLayout, DenseLayout
from streamsvm.data.store.places import LocalFile
from streamsvm.ingestion.write import CODECS
from streamsvm.system.errors import IntegrityError
from tests.data.conftest import Collect, Write, chunk_files
from tests.data.forging import find_file, read_checksum

CASES = [(shape, codec) for shape in ((23,), (23, 3)) for codec in CODECS]


def store_values(folder: Path, values: np.ndarray, chunk_rows: int, codec: str) -> StoredArray:
    """An array beside its checksums, as a dataset has it."""
    group = zarr.open_group(str(folder), mode="a", zarr_format=3)
    array = group.create_array(
        "values",
        shape=values.shape,
        chunks=(chunk_rows, *values.shape[1:]),
        dtype=values.dtype,
        compressors=CODECS[codec],
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    array[:] = values
    blank = StoredArray(array, "values", np.empty(0, np.uint32))
    checksums = np.array([read_checksum(find_file(blank, k)) for k in range(blank.n_chunks)], np.uint32)
    return StoredArray(array, "values", checksums)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, tuple[StoredArray, np.ndarray]]:
    """23 rows in chunks of 5, of each shape and codec."""
    made = {}
    for shape, codec in CASES:
        values = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
        made[shape, codec] = store_values(tmp_path_factory.mktemp("stored"), values, 5, codec), values
    return made


@given(case=st.sampled_from(CASES), limits=st.tuples(st.integers(0, 23), st.integers(0, 23)))
def test_any_range_is_read(case: Any, limits: tuple[int, int], stored: Any) -> None:
    array, values = stored[case]
    start, stop = sorted(limits)
    read = array.read(start, stop)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, values[start:stop])


@given(case=st.sampled_from(CASES), cuts=st.sets(st.integers(0, 23), min_size=2))
def test_short_ranges_are_read_one_after_another(case: Any, cuts: set[int], stored: Any) -> None:
    array, values = stored[case]
    limits = np.array(sorted(cuts))
    starts, stops = limits[:-1:2], limits[1::2]  # through chunks of 5 rows, with gaps
    wanted = [values[start:stop] for start, stop in zip(starts, stops, strict=True)]
    np.testing.assert_array_equal(array.take(starts, stops), np.concatenate(wanted))


def test_only_chunks_without_compression_are_streamed(stored: Any) -> None:
    for shape, codec in CASES:
        array, _ = stored[shape, codec]
        assert array.is_raw == (codec == "crc32c")
        assert array.n_chunks == 5


def test_chunks_that_split_rows_or_have_no_checksums_are_not_raw(tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path), mode="w", zarr_format=3)
    values = np.arange(24.0).reshape(6, 4)
    made: dict[str, dict[str, Any]] = {
        "wide": {"chunks": (3, 2), "compressors": (Crc32cCodec(),)},
        "plain": {"chunks": (3, 4), "compressors": None},
        "shards": {"chunks": (1, 4), "shards": (3, 4), "compressors": None},
        "big-endian": {"chunks": (3, 4), "compressors": (Crc32cCodec(),), "serializer": BytesCodec(endian="big")},
    }
    for name, how in made.items():
        array = group.create_array(name, shape=(6, 4), dtype="<f8", **how)
        array[:] = values
        opened = StoredArray(array, name, np.empty(0, np.uint32))
        assert not opened.is_raw, name
        np.testing.assert_array_equal(StoredArray(array, name, None).read(1, 5), values[1:5])


# --- one chunk's file


@pytest.fixture
def chunk(tmp_path: Path) -> tuple[Path, bytes]:
    """A chunk of 3,000,000 bytes and its checksum."""
    payload = np.random.default_rng(0).bytes(3_000_000)
    path = tmp_path / "chunk"
    path.write_bytes(payload + google_crc32c.value(payload).to_bytes(4, "little"))
    return path, payload


def open_chunk(chunk: tuple[Path, bytes]) -> ChunkFile:
    n_bytes = len(chunk[1]) + CRC_BYTES
    span = Span(chunk[0].name, n_bytes, 0, n_bytes, chunk[0].name, chunk[0].name)
    return ChunkFile(LocalFile(chunk[0].parent, span), len(chunk[1]), google_crc32c.value(chunk[1]))


@pytest.mark.parametrize("read_bytes", [0, 1, 2_000_000, 3_000_000])
@pytest.mark.parametrize("skipped", [0, 7, 999_999])
def test_a_chunk_is_verified_whatever_is_read_of_it(chunk: tuple[Path, bytes], skipped: int, read_bytes: int) -> None:
    path, payload = chunk
    read_bytes = min(read_bytes, len(payload) - skipped)

    def read() -> np.ndarray:
        buffer = np.empty(read_bytes, np.uint8)
        with open_chunk(chunk) as file:
            file.skip(skipped)
            file.read(buffer)
            file.finish()
        return buffer

    assert read().tobytes() == payload[skipped : skipped + read_bytes]
    whole = path.read_bytes()
    for at in (0, 6, 1_234_567, 2_999_999, 3_000_000, 3_000_003):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(IntegrityError, match="chunk: chunk is damaged"):
            read()


def test_a_chunk_of_another_size_is_refused_before_it_is_read(chunk: tuple[Path, bytes]) -> None:
    path, payload = chunk
    for content in (payload, payload + b"12345", b""):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match=f"{len(content)} bytes instead of 3000004") as caught:
            open_chunk(chunk)
        assert str(path) in str(caught.value)


def test_a_chunk_that_is_missing_or_no_file_is_named(chunk: tuple[Path, bytes]) -> None:
    path, _ = chunk
    path.unlink()
    with pytest.raises(IntegrityError, match="chunk is missing"):
        open_chunk(chunk)
    path.mkdir()
    with pytest.raises(IntegrityError, match="chunk") as caught:
        open_chunk(chunk)
    assert str(path) in str(caught.value)


def test_a_chunk_cut_short_while_it_is_read_is_found(chunk: tuple[Path, bytes]) -> None:
    with open_chunk(chunk) as file:
        file.read(np.empty(1000, np.uint8))
        os.truncate(chunk[0], 2_000_000)
        with pytest.raises(IntegrityError, match="cut short"):
            file.finish()


def test_short_reads_of_the_kernel_are_continued(chunk: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: whole(fd, [views[0][:1000]], at))
    buffer = np.empty(5500, np.uint8)
    with open_chunk(chunk) as file:
        file.skip(11)
        file.read(buffer)
        file.finish()
    assert buffer.tobytes() == chunk[1][11:5511]


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
def test_no_file_is_left_open(write: Write) -> None:
    def open_files() -> int:
        """Return the number of open files of the dataset; other tests may open and close others meanwhile."""
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return sum(os.readlink(link).startswith(dataset.path) for link in links if os.path.islink(link))

    X = np.ones((200_000, 5), np.float32)
    for layout in ("dense", "sparse"):
        dataset = write(X, np.zeros(len(X)), layout=layout, chunk_bytes=4 << 20)
        file = Path(dataset.path, "X/c/0/0" if layout == "dense" else "X/data/c/0")
        before = open_files()
        unfinished: Any = dataset.tiles(0)
        next(unfinished)
        assert open_files() > before
        unfinished.close()
        content = file.read_bytes()
        for damaged in (content[:-8] + bytes(8), content[:-8], content + bytes(1)):
            file.write_bytes(damaged)
            with pytest.raises(IntegrityError):
                list(dataset.tiles(0))
            with pytest.raises(IntegrityError):
                dataset.read(0)
            with pytest.raises(IntegrityError):
                dataset.take([0])
        dataset.advise(0)
        assert open_files() == before


def test_reading_ahead_never_fails(write: Write) -> None:
    for layout in ("dense", "sparse"):
        dataset = write(np.ones((50, 2), np.float32), layout=layout, chunk_bytes=100)
        for index in (0, dataset.n_chunks - 1, dataset.n_chunks, dataset.n_chunks + 7):
            dataset.advise(index)
        for file in Path(dataset.path, "X").rglob("c/0"):
            file.rename(file.with_name("gone"))
        dataset.advise(0)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_take_verifies_a_chunk_once_each_time(layout: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write(np.ones((50, 2), np.float32), layout=layout, chunk_bytes=100)
    finish, finished = ChunkFile.finish, []

    def finish_and_note(file: ChunkFile) -> None:
        finished.append(Path(file.name))
        finish(file)

    monkeypatch.setattr(ChunkFile, "finish", finish_and_note)
    names = ["X"] if layout == "dense" else ["X/data", "X/indices"]
    for rows in (np.arange(50), [3, 3, 4]):
        finished.clear()
        dataset.take(rows)
        finished = [path for path in finished if "indptr" not in path.parts]  # chunks that more rows share
        n_files = sum(len(chunk_files(Path(dataset.path), name)) for name in names) if len(rows) == 50 else len(names)
        assert len(finished) == len(set(finished)) == n_files


# --- stores that are no folder


@pytest.fixture
def remote(write: Write, sparse_rows: Any) -> Iterator[Any]:
    """Put a dataset into fsspec's memory, the way it would lie in an object store; return how to open it."""
    memory = fsspec.filesystem("memory")

    def put(**options: Any) -> Dataset:
        local = write(sparse_rows, np.arange(60.0) % 3, np.arange(60.0), chunk_bytes=160, **options)
        memory.put(local.path, "/remote.zarr", recursive=True)
        return open_dataset("memory://remote.zarr")

    yield put
    memory.rm("/remote.zarr", recursive=True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_remote_dataset_is_read_and_verified(
    layout: str, codec: str, remote: Any, sparse_rows: Any, collect: Collect
) -> None:
    dataset, memory = remote(layout=layout, codec=codec), fsspec.filesystem("memory")
    assert isinstance(dataset.layout, DenseLayout | CsrLayout)
    found = collect(rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k))
    np.testing.assert_array_equal(found["X"], sparse_rows.toarray())
    np.testing.assert_array_equal(found["sample_weight"], np.arange(60))
    np.testing.assert_array_equal(collect([dataset.take([7, 3])])["X"], sparse_rows.toarray()[[7, 3]])
    for key in ("X/c/1/0",) if layout == "dense" else ("X/data/c/1", "X/indices/c/1", "X/indptr/c/1"):
        path = f"/remote.zarr/{key}"
        content = memory.cat_file(path)
        other = memory.cat_file(path.replace("c/1", "c/0"))
        for changed in (None, other, content[:-1], bytes([content[0] ^ 1]) + content[1:], b""):
            memory.rm_file(path)
            if changed is not None:
                memory.pipe_file(path, changed)
            with pytest.raises(IntegrityError, match=key):
                verify(dataset)
            with pytest.raises(IntegrityError, match=key):
                dataset.take(range(60))
            memory.pipe_file(path, content)


def test_checksums_take_four_bytes(stored: Any) -> None:
    array, values = stored[(23, 3), "crc32c"]
    assert find_file(array, 0).stat().st_size == values[:5].nbytes + CRC_BYTES
