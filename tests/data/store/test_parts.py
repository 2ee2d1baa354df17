"""Parts of chunks: a few rows are compared with the manifest each time that they are read, and little more is read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.chunks import CRC_BYTES, ChunkFile
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion import write as writer
from streamsvm.system.errors import InputError, IntegrityError
from tests.conftest import make_problem
from tests.data.conftest import Collect, Write, chunk_files, flip, make_rows, replaced
from tests.data.forging import edit_manifest, make_format_1

VECTORS = ("y", "sample_weight", "qid")
ARRAYS = {"dense": ("X", *VECTORS), "sparse": ("X/data", "X/indices", "X/indptr", *VECTORS)}
CASES = [(layout, name) for layout, names in ARRAYS.items() for name in names]
FORMATS = (1, 2)
PART_BYTES = 96  # four dense rows, and chunks of 960 bytes: ten parts


@pytest.fixture(scope="module")
def kinds(write: Write, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """A dataset of each layout and format, with small parts and all vectors."""
    folder, made = tmp_path_factory.mktemp("parts"), {}
    number = np.arange(200.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "PART_BYTES", PART_BYTES)
        patch.setattr(writer, "VECTOR_PART_BYTES", PART_BYTES)
        patch.setattr(writer, "TABLE_BYTES", PART_BYTES)
        for layout in ARRAYS:
            for version in FORMATS:
                path = made[layout, version] = folder / f"{layout}-{version}"
                options: dict[str, Any] = {"layout": layout, "chunk_bytes": 960}
                write(make_rows(0), number % 3, number / 7, np.arange(200) // 9, to=path, **options)
                if version == 1:
                    make_format_1(path)
    return made


def take_most(dataset: Dataset) -> None:
    """No chunk whole: a chunk that is taken whole is compared as a whole."""
    dataset.take(np.delete(np.arange(200), slice(5, None, 11)))


def read_all(dataset: Dataset, collect: Collect) -> dict[str, Any]:
    return collect(rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k))


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("layout", ARRAYS)
def test_rows_of_both_formats_are_read(layout: str, version: int, kinds: Any, collect: Collect) -> None:
    dataset = open_dataset(kinds[layout, version])
    assert dataset.meta["format"] == version
    assert any(name.startswith("parts/") for name in dataset.meta["arrays"]) == (version == 2)
    X = make_rows(0).toarray()
    np.testing.assert_array_equal(read_all(dataset, collect)["X"], X)
    random = np.random.default_rng(0)
    for size in (1, 2, 7, 60, 200, 500):
        wanted = random.integers(200, size=size)
        found = collect([dataset.take(wanted)])
        np.testing.assert_array_equal(found["X"], X[wanted])
        np.testing.assert_array_equal(found["y"], wanted % 3)
        np.testing.assert_array_equal(found["sample_weight"], wanted / 7)
        np.testing.assert_array_equal(found["qid"], wanted // 9)
    assert verify(dataset)["verified"]


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize(("layout", "name"), CASES)
def test_rows_damaged_after_they_were_taken_are_found(layout: str, name: str, version: int, kinds: Any) -> None:
    """The same object reads the same rows again, from the same files: it has to look at them again."""
    dataset = open_dataset(kinds[layout, version])
    take_most(dataset)
    for file in chunk_files(kinds[layout, version], name):
        content = file.read_bytes()
        n_used = len(content) - CRC_BYTES if file != chunk_files(kinds[layout, version], name)[-1] else PART_BYTES
        for at in range(0, n_used, PART_BYTES):
            with replaced(file, flip(content, at, 3)), pytest.raises(IntegrityError) as caught:
                take_most(dataset)
            assert str(file) in str(caught.value)
    take_most(dataset)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize(("layout", "name"), CASES)
def test_another_file_in_place_of_a_chunk_is_found(layout: str, name: str, version: int, kinds: Any) -> None:
    dataset = open_dataset(kinds[layout, version])
    dataset.take(np.arange(0, 200, 3))
    one, two = chunk_files(kinds[layout, version], name)[:2]
    content = one.read_bytes()
    assert content != two.read_bytes()
    for other in (two.read_bytes(), content[:-1], b"", bytes(len(content))):
        stranger = one.with_name("stranger")
        stranger.write_bytes(other)
        os.replace(stranger, one)  # another inode under the same name
        with pytest.raises(IntegrityError) as caught:
            dataset.take(np.arange(0, 200, 3))
        assert str(one) in str(caught.value)
    one.write_bytes(content)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("name", ["X/data", "X/indices"])
def test_the_end_of_a_row_in_the_next_chunk_is_verified_by_who_reads_it(name: str, version: int, kinds: Any) -> None:
    path = kinds["sparse", version]
    dataset, indptr = open_dataset(path), make_rows(0).indptr
    items = dataset.layout.data.chunk_rows  # type: ignore[attr-defined]
    chunk = next(k for k in range(1, dataset.n_chunks) if k * items not in indptr)
    file = chunk_files(path, name)[chunk]
    for _ in dataset.tiles(chunk - 1):
        pass
    with replaced(file, flip(file.read_bytes(), 0)), pytest.raises(IntegrityError) as caught:
        for _ in dataset.tiles(chunk - 1):
            pass
    assert str(file) in str(caught.value)


def test_checksums_of_parts_are_verified_too(kinds: Any) -> None:
    for layout, name in CASES:
        path = kinds[layout, 2]
        dataset = open_dataset(path)
        for file in chunk_files(path, f"parts/{name}"):
            for content in (flip(file.read_bytes(), 0), None):
                with replaced(file, content):
                    for run in (verify, lambda of: of.take(np.arange(0, 200, 3))):  # every third row limit is left out
                        with pytest.raises(IntegrityError) as caught:
                            run(dataset)
                        assert str(file) in str(caught.value)


def test_parts_that_agree_with_the_manifest_only_are_found(kinds: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    shutil.copytree(kinds["dense", 2], path)
    file = chunk_files(path, "parts/X")[0]
    content = flip(file.read_bytes()[:-CRC_BYTES], 0)

    checksum = google_crc32c.value(content).to_bytes(4, "little")
    file.write_bytes(content + checksum)

    def sign(meta: dict[str, Any]) -> None:
        entry = meta["arrays"]["parts/X"]
        entry["checksums"] = checksum.hex() + entry["checksums"][8:]

    edit_manifest(path, sign)
    for run in (verify, lambda dataset: dataset.take([0])):
        with pytest.raises(IntegrityError, match="X/c/0/0: chunk is damaged"):
            run(open_dataset(path))


def test_a_row_costs_a_part(kinds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each array: the part, the checksums of the chunk's parts, and two checksums of four bytes."""
    dataset, n_read, preadv = open_dataset(kinds["dense", 2]), 0, os.preadv

    def count(file: int, buffers: Any, at: int) -> int:
        nonlocal n_read
        n_read += len(buffers[0])
        return preadv(file, buffers, at)

    monkeypatch.setattr(os, "preadv", count)
    dataset.take([57])
    table_bytes = sum(
        4 * entry["chunks"][0] * entry["chunks"][1] for name, entry in dataset.meta["arrays"].items() if "parts" in name
    )
    assert 0 < n_read <= 4 * (PART_BYTES + 2 * CRC_BYTES) + table_bytes


def test_a_newer_format_is_refused_by_its_number(write: Write, tmp_path: Path) -> None:
    write(np.ones((4, 2), np.float32), to=tmp_path / "d.zarr")
    for version in (9, 0, 2.5, "2", None, True, [2]):
        edit_manifest(tmp_path / "d.zarr", lambda meta, version=version: meta.update(format=version))
        with pytest.raises(InputError) as caught:
            open_dataset(tmp_path / "d.zarr")
        message = str(caught.value)
        assert str(tmp_path / "d.zarr") in message
        assert f"format {version!r}" in message
        assert "formats 1 to 8" in message


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_chunk_that_is_decoded_is_compared_in_the_moment_it_is_read(
    codec: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: a chunk that is exchanged between the check and the read would go unnoticed."""
    from zarr.storage import LocalStore

    dataset = write(make_rows(3), codec=codec, layout="dense", chunk_bytes=960)
    one, two = chunk_files(Path(dataset.path), "X")[:2]
    content, get, reads = one.read_bytes(), LocalStore.get, 0

    async def exchange_then_get(store: Any, key: str, *arguments: Any, **named: Any) -> Any:
        nonlocal reads
        reads += key.endswith("X/c/0/0")
        found = await get(store, key, *arguments, **named)
        one.write_bytes(two.read_bytes())
        return found

    monkeypatch.setattr(LocalStore, "get", exchange_then_get)
    np.testing.assert_array_equal(dataset.read(0).X, make_rows(3).toarray()[:40])
    assert reads == 1
    with pytest.raises(IntegrityError, match="X/c/0/0: is not the chunk"):
        dataset.read(0)
    one.write_bytes(content)


def test_large_rows_are_parts_of_their_own(write: Write, collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 8)
    dataset = write(csr_array(make_rows(1)), layout="dense", chunk_bytes=960)
    assert dataset.meta["arrays"]["X"]["part_rows"] == 1
    np.testing.assert_array_equal(collect([dataset.take([5, 199, 5])])["X"], make_rows(1).toarray()[[5, 199, 5]])


@pytest.mark.parametrize(("layout", "name"), CASES)
def test_the_checksum_at_the_end_of_a_chunk_is_compared_too(layout: str, name: str, kinds: Any) -> None:
    """Also by who reads a few parts: a chunk of another dataset may share some of them."""
    file = chunk_files(kinds[layout, 2], name)[0]
    with replaced(file, flip(file.read_bytes(), -1)), pytest.raises(IntegrityError) as caught:
        take_most(open_dataset(kinds[layout, 2]))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("density", [1.0, 0.4])
@pytest.mark.parametrize("number", [1, 10, 300, 2000])
def test_the_bytes_of_single_rows_are_those_of_their_parts(
    density: float, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the checksums of the parts, the unused end of the last chunk, and the lengths of sparse rows."""
    problem = make_problem(1, n=2000, d=50, density=density, weighted=True)
    dataset = problem.store(tmp_path / "rows", chunk_bytes=150_000)
    read: list[int] = []
    for name in ("read_part", "read"):
        usual = getattr(ChunkFile, name)

        def note(own: ChunkFile, *given: Any, usual: Any = usual) -> None:
            read.append(sum(len(value) for value in given if isinstance(value, np.ndarray)))
            usual(own, *given)

        monkeypatch.setattr(ChunkFile, name, note)
    rows = np.sort(np.random.default_rng(0).choice(2000, number, replace=False))
    dataset.take(rows)
    assert dataset.take_bytes(rows) == pytest.approx(sum(read), rel=0.13)
