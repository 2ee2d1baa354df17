"""Faults of metadata: a manifest, or an array's description, that is not what was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.manifest import ATTRIBUTE
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.conftest import Collect, flip, replaced


def edit_manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def edited(content: bytes) -> bytes:
        whole = json.loads(content)
        change(whole["attributes"][ATTRIBUTE])
        return json.dumps(whole).encode()

    return edited


def flip_checksum(meta: dict[str, Any]) -> None:
    listed = bytes.fromhex(meta["arrays"]["y"]["checksums"])
    meta["arrays"]["y"]["checksums"] = flip(listed, 5).hex()


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.update(n_rows=199),
        lambda meta: meta.update(classes=meta["classes"][::-1]),
        lambda meta: meta.update(sparse=False),
        lambda meta: meta.update(scaling=None),
        lambda meta: meta.update(longest_row=1),
        lambda meta: meta["chunk_starts"].__setitem__(1, 3),
        lambda meta: meta["arrays"].pop("sample_weight"),
        lambda meta: meta.pop("sha256"),
        lambda meta: meta.update(sha256="0" * 64),
        flip_checksum,
    ],
)
def test_an_edited_manifest_is_refused(change: Any, paths: dict[str, Path]) -> None:
    file = paths["sparse-crc32c"] / "zarr.json"
    with (
        replaced(file, edit_manifest(change)(file.read_bytes())),
        pytest.raises(IntegrityError, match="manifest is damaged") as caught,
    ):
        open_dataset(paths["sparse-crc32c"])
    assert str(file) in str(caught.value)


def test_a_manifest_written_with_other_spaces_is_the_same(paths: dict[str, Path]) -> None:
    file = paths["sparse-lz4"] / "zarr.json"
    with replaced(file, json.dumps(json.loads(file.read_bytes())).encode()):
        verify(open_dataset(paths["sparse-lz4"]))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"attributes": {}}', b"\xff\xfe", None])
@pytest.mark.parametrize("name", ["X/data", "X/indptr", "y", "scaling/factor"])
def test_damaged_metadata_of_an_array_is_named(name: str, content: bytes | None, paths: dict[str, Path]) -> None:
    file = paths["sparse-crc32c"] / name / "zarr.json"
    with replaced(file, content), pytest.raises(IntegrityError) as caught:
        open_dataset(paths["sparse-crc32c"])
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"float32"', b'"int32"'),
        (b'"little"', b'"big"'),
        (b'"name": "crc32c"', b'"name": "zstd", "configuration": {"level": 1, "checksum": false}'),
        (b"200,", b"201,"),
    ],
)
def test_an_array_that_is_not_what_the_manifest_says_is_named(old: bytes, new: bytes, paths: dict[str, Path]) -> None:
    file = paths["dense-crc32c"] / "X" / "zarr.json"
    content = file.read_bytes()
    assert old in content
    with replaced(file, content.replace(old, new)), pytest.raises(IntegrityError, match=r"X/zarr\.json"):
        open_dataset(paths["dense-crc32c"])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe"])
def test_root_metadata_that_cannot_be_read_are_damaged(content: bytes, paths: dict[str, Path]) -> None:
    file = paths["dense-crc32c"] / "zarr.json"
    with replaced(file, content), pytest.raises(IntegrityError) as caught:
        open_dataset(paths["dense-crc32c"])
    assert str(file) in str(caught.value)


def test_without_its_root_metadata_it_is_no_dataset(paths: dict[str, Path]) -> None:
    whole = b'{"attributes": {}, "zarr_format": 3, "node_type": "group"}'
    for content in (None, whole, b'{"zarr_format": 3}'):
        with (
            replaced(paths["dense-crc32c"] / "zarr.json", content),
            pytest.raises(InputError, match="dataset"),
        ):
            open_dataset(paths["dense-crc32c"])


@pytest.mark.parametrize("name", ["", "X", "y"])
def test_no_flipped_bit_of_metadata_changes_the_rows(name: str, paths: dict[str, Path], collect: Collect) -> None:
    path = paths["dense-crc32c"]

    def read_all() -> dict[str, Any]:
        dataset = open_dataset(path)
        return collect(dataset.read(k) for k in range(dataset.n_chunks))

    file, whole = path / name / "zarr.json", read_all()
    content, rng = (path / name / "zarr.json").read_bytes(), np.random.default_rng(5)
    for at in rng.choice(len(content), 120, replace=False).tolist():
        with replaced(file, flip(content, at, int(rng.integers(8)))), suppress(InputError):
            for part, values in read_all().items():
                np.testing.assert_array_equal(values, whole[part])
