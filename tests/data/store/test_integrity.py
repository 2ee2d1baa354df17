"""Faults: whatever is damaged on disk is found, named, and never reaches a kernel."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr

from streamsvm.cli import main
from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.manifest import ATTRIBUTE, make_fingerprint
from streamsvm.numeric.rows import CsrRows
from streamsvm.system.errors import IntegrityError
from tests.data.conftest import KINDS, Write, chunk_files, flip, make_rows, replaced
from tests.data.forging import read_checksum

VECTORS = ("y", "sample_weight", "qid")
ARRAYS = [
    (kind, name)
    for kind in KINDS
    for name in (("X",) if kind.startswith("dense") else ("X/data", "X/indices", "X/indptr")) + VECTORS
]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "first bit flipped": lambda content: flip(content, 0),
    "middle bit flipped": lambda content: flip(content, len(content) // 2, 6),
    "last bit flipped": lambda content: flip(content, -5, 7),
    "checksum flipped": lambda content: flip(content, -1),
    "last byte lost": lambda content: content[:-1],
    "half lost": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "bytes appended": lambda content: content + b"\0\0\0\0",
    "zeros instead": lambda content: bytes(len(content)),
    "deleted": lambda content: None,
}
READERS: dict[str, Callable[[Dataset], Any]] = {
    "tiles": lambda data: [sum(1 for _ in data.tiles(k)) for k in range(data.n_chunks)],
    "read": lambda data: [data.read(k) for k in range(data.n_chunks)],
    "take": lambda data: data.take(np.arange(data.n_rows)[::-1]),
    "verify": verify,
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_a_damaged_chunk_is_named_whoever_reads_it(kind: str, name: str, how: str, paths: dict[str, Path]) -> None:
    files = chunk_files(paths[kind], name)
    assert len(files) >= 4
    for file in files[1 : None if how == "deleted" else 2 : len(files) - 2]:  # the second, and perhaps the last
        with replaced(file, DAMAGES[how](file.read_bytes())):
            dataset = open_dataset(paths[kind])
            for reader, run in READERS.items():
                with pytest.raises(IntegrityError) as caught:
                    run(dataset)
                assert str(file) in str(caught.value), reader


@pytest.mark.parametrize("kind", KINDS)
def test_undamaged_all_is_read(kind: str, paths: dict[str, Path]) -> None:
    for run in READERS.values():
        run(open_dataset(paths[kind]))


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_swapped_chunks_are_found(kind: str, name: str, paths: dict[str, Path]) -> None:
    one, two = chunk_files(paths[kind], name)[1:3]
    assert one.read_bytes() != two.read_bytes()
    swapped = two.read_bytes(), one.read_bytes()
    with replaced(one, swapped[0]), replaced(two, swapped[1]):
        for run in READERS.values():
            with pytest.raises(IntegrityError) as caught:
                run(open_dataset(paths[kind]))
            assert str(one) in str(caught.value) or str(two) in str(caught.value)


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_a_chunk_of_another_dataset_is_found(
    kind: str, name: str, paths: dict[str, Path], write: Write, tmp_path: Path
) -> None:
    layout, codec = kind.split("-")
    number = np.arange(200.0)
    options = {"layout": layout, "codec": codec, "chunk_bytes": 960}
    write(make_rows(1), (number + 1) % 3, number, np.arange(200) // 8, to=tmp_path / "other", **options)
    file, foreign = (chunk_files(path, name)[1] for path in (paths[kind], tmp_path / "other"))
    with replaced(file, foreign.read_bytes()):
        for run in READERS.values():
            with pytest.raises(IntegrityError) as caught:
                run(open_dataset(paths[kind]))
            assert str(file) in str(caught.value)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", ["dense-crc32c", "dense-zstd"])
@pytest.mark.parametrize("name", ["scaling/offset", "scaling/factor"])
def test_a_damaged_scaling_is_found_on_opening(kind: str, name: str, how: str, paths: dict[str, Path]) -> None:
    (file,) = chunk_files(paths[kind], name)
    with (
        replaced(file, DAMAGES[how](file.read_bytes())),
        pytest.raises(IntegrityError) as caught,
    ):
        open_dataset(paths[kind])
    assert str(file) in str(caught.value)


def test_a_chunk_of_zeros_is_stored_and_missed(write: Write) -> None:
    for layout in ("dense", "sparse"):
        for codec in ("crc32c", "lz4"):
            X = np.zeros((40, 4), np.float32)
            X[0, 0] = X[-1, 1] = 1
            dataset = write(X, np.zeros(40), np.zeros(40), layout=layout, codec=codec, chunk_bytes=160)
            files = {name: chunk_files(Path(dataset.path), name) for name in dataset.meta["arrays"]}
            for name, found in files.items():
                assert len(found) == len(dataset.meta["arrays"][name]["checksums"]) // 8, name
            zeros = files["y"][0], files["sample_weight"][-1], *(files["X"][1:2] if layout == "dense" else ())
            for file in zeros:
                with replaced(file, None):
                    for run in READERS.values():
                        with pytest.raises(IntegrityError, match="missing") as caught:
                            run(open_dataset(dataset.path))
                        assert str(file) in str(caught.value)


# --- what takes only some rows


@pytest.mark.parametrize("kind", ["sparse-crc32c", "sparse-lz4"])
@pytest.mark.parametrize("name", ["X/data", "X/indices"])
def test_take_verifies_the_chunk_in_which_a_row_ends(kind: str, name: str, paths: dict[str, Path]) -> None:
    dataset = open_dataset(paths[kind])
    indptr = np.asarray(zarr.open_group(str(paths[kind]), mode="r")["X/indptr"][:])  # type: ignore[index]
    limits = np.arange(1, dataset.n_chunks) * dataset.layout.data.chunk_rows  # type: ignore[attr-defined]
    chunk = next(k for k, limit in enumerate(limits, 1) if limit not in indptr)
    row = int(np.searchsorted(indptr, limits[chunk - 1])) - 1  # begins in the chunk before
    file = chunk_files(paths[kind], name)[chunk]
    with replaced(file, flip(file.read_bytes(), 0)):
        with pytest.raises(IntegrityError) as caught:
            open_dataset(paths[kind]).take([row])
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("kind", ["dense-crc32c", "sparse-crc32c"])
@pytest.mark.parametrize("how", ["last byte lost", "emptied", "bytes appended", "deleted"])
def test_take_finds_a_chunk_that_shrank_after_it_was_verified(kind: str, how: str, paths: dict[str, Path]) -> None:
    dataset = open_dataset(paths[kind])
    dataset.take(np.arange(dataset.n_rows))
    name = "X/data" if dataset.is_sparse else "X"
    for file in (chunk_files(paths[kind], name)[k] for k in (1, -1)):
        with replaced(file, DAMAGES[how](file.read_bytes())), pytest.raises(IntegrityError) as caught:
            dataset.take(np.arange(dataset.n_rows))
        assert str(file) in str(caught.value)


# --- columns that do not exist


def check_columns(dataset: Dataset) -> None:
    for rows in (rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k)):
        assert isinstance(rows.X, CsrRows)
        if rows.X.indices.size:
            assert rows.X.indices.min() >= 0
            assert rows.X.indices.max() < rows.X.n_features
        assert len(rows.X.indices) == len(rows.X.data) == rows.X.indptr[-1]


@pytest.mark.parametrize("kind", ["sparse-crc32c", "sparse-lz4"])
@pytest.mark.parametrize("bit", [3, 24, 30, 31])
def test_a_damaged_column_never_reaches_a_kernel(kind: str, bit: int, paths: dict[str, Path]) -> None:
    for file in chunk_files(paths[kind], "X/indices")[::2]:
        content = file.read_bytes()
        for item in range(0, (len(content) - 4) // 4, 7):
            with replaced(file, flip(content, 4 * item + bit // 8, bit % 8)):
                dataset = open_dataset(paths[kind])
                with pytest.raises(IntegrityError) as caught:
                    check_columns(dataset)
                assert str(file) in str(caught.value)


def forge(path: Path, name: str, at: int, value: int) -> Path:
    """Change a value, its chunk's checksum and the manifest, as if it had been written so; return the chunk."""
    group = zarr.open_group(str(path), mode="a", zarr_format=3)
    array = group[name]
    assert isinstance(array, zarr.Array)
    array[at] = value
    meta: dict[str, Any] = dict(group.attrs[ATTRIBUTE])  # type: ignore[arg-type]
    files = chunk_files(path, name)
    checksums = np.array([read_checksum(file) for file in files], "<u4")
    meta["arrays"][name]["checksums"] = checksums.tobytes().hex()
    del meta["sha256"]
    group.attrs[ATTRIBUTE] = {**meta, "sha256": make_fingerprint(meta)}
    return files[at // array.chunks[0]]


@pytest.mark.parametrize("kind", ["sparse-crc32c", "sparse-lz4"])
@pytest.mark.parametrize("column", [6, 2**31 - 1, -1, -(2**31)])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_wrong_column_with_a_right_checksum_is_refused(
    kind: str, column: int, share: float, paths: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "d.zarr"
    shutil.copytree(paths[kind], path)
    item = int(share * open_dataset(path).layout.data.length)  # type: ignore[attr-defined]
    file = forge(path, "X/indices", item, column)
    for run in READERS.values():
        with pytest.raises(IntegrityError, match="column") as caught:
            run(open_dataset(path))
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("kind", ["sparse-crc32c", "sparse-lz4"])
@pytest.mark.parametrize("limit", [-1, 10**6, 2])
def test_row_limits_out_of_order_are_refused(kind: str, limit: int, paths: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    shutil.copytree(paths[kind], path)
    forge(path, "X/indptr", 100, limit)
    for run in READERS.values():
        with pytest.raises(IntegrityError, match=r"X/indptr/c/\d+: row limits are out of order"):
            run(open_dataset(path))


# --- on the command line


def run_info(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main.main(["info", str(path), "--verify"])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("kind", KINDS)
def test_info_verify_names_the_damaged_chunk(
    kind: str, paths: dict[str, Path], capsys: pytest.CaptureFixture[str], restored_signals: None
) -> None:
    status, shown, complaint = run_info(paths[kind], capsys)
    assert (status, complaint) == (0, "")
    assert "all 200 rows verified" in shown
    name = "X" if kind.startswith("dense") else "X/indices"
    file = chunk_files(paths[kind], name)[2]
    for how in ("middle bit flipped", "deleted"):
        with replaced(file, DAMAGES[how](file.read_bytes())):
            status, shown, complaint = run_info(paths[kind], capsys)
        assert (status, shown) == (2, "")
        assert str(file) in complaint
        assert "Traceback" not in complaint


def test_checksums_are_those_of_the_standard(paths: dict[str, Path]) -> None:
    listed = open_dataset(paths["dense-crc32c"]).meta["arrays"]["X"]["checksums"]
    for index, file in enumerate(chunk_files(paths["dense-crc32c"], "X")):
        expected = google_crc32c.value(file.read_bytes()[:-4])
        assert bytes.fromhex(listed)[4 * index : 4 * index + 4] == expected.to_bytes(4, "little")
    assert google_crc32c.value(b"123456789") == 0xE3069283  # CRC-32C's check value
