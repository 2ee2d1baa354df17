"""Datasets changed as somebody would change them who knows the format: every checksum is right again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamsvm.data.chunk_file import checksum_parts, read_checksum
from streamsvm.data.manifest import ATTRIBUTE, PARTS, fingerprint_of
from streamsvm.data.store import StoredArray

Meta = dict[str, Any]


def edit_manifest(path: Path, change: Callable[[Meta], Any]) -> None:
    """Change the manifest and sign it again."""
    file = path / "zarr.json"
    whole = json.loads(file.read_text())
    meta = whole["attributes"][ATTRIBUTE]
    change(meta)
    meta.pop("sha256", None)
    meta["sha256"] = fingerprint_of(meta)
    file.write_text(json.dumps(whole))


def forge(path: Path, name: str, at: Any, value: Any) -> Path:
    """Change values of an array, the checksums of chunks and parts, and the manifest; return the first chunk's file."""
    array = zarr.open_group(str(path), mode="a", zarr_format=3)[name]
    assert isinstance(array, zarr.Array)
    array[at] = value
    edit_manifest(path, lambda meta: sign_array(path, meta, name))
    first = at.start or 0 if isinstance(at, slice) else at[0] if isinstance(at, tuple) else at
    return StoredArray(array, name, np.empty(0, np.uint32)).path_of(first // array.chunks[0])


def sign_array(path: Path, meta: Meta, name: str) -> None:
    """List the checksums that the chunks of an array now have."""
    array: Any = zarr.open_group(str(path), mode="a", zarr_format=3)[name]
    stored = StoredArray(array, name, np.empty(0, np.uint32))
    files = [stored.path_of(index) for index in range(stored.n_chunks)]
    entry = meta["arrays"][name]
    entry["checksums"] = np.array([read_checksum(file) for file in files], "<u4").tobytes().hex()
    if part_rows := entry.get("part_rows", 0):
        parts: Any = zarr.open_group(str(path), mode="a", zarr_format=3)[PARTS + name]
        for index, file in enumerate(files):
            payload = np.frombuffer(file.read_bytes()[:-4], np.uint8)
            parts[index] = checksum_parts(payload, part_rows * stored.row_bytes)
        sign_array(path, meta, PARTS + name)


def make_format_1(path: Path) -> None:
    """Make a dataset what the first version of streamsvm wrote: chunks without parts."""

    def forget_parts(meta: Meta) -> None:
        meta["format"] = 1
        meta["arrays"] = {name: entry for name, entry in meta["arrays"].items() if not name.startswith(PARTS)}
        for entry in meta["arrays"].values():
            entry.pop("part_rows", None)

    edit_manifest(path, forget_parts)
    shutil.rmtree(path / PARTS, ignore_errors=True)
