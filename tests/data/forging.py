"""Datasets changed as somebody would change them who knows the format: every checksum is right again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamsvm.data.store.array import StoredArray
from streamsvm.data.store.chunks import CRC_BYTES, checksum_parts
from streamsvm.data.store.manifest import ATTRIBUTE, PARTS, make_fingerprint
from streamsvm.data.store.zarr_arrays import describe_array

Meta = dict[str, Any]


def edit_manifest(path: Path, change: Callable[[Meta], Any]) -> None:
    """Change the manifest and sign it again."""
    file = path / "zarr.json"
    whole = json.loads(file.read_text())
    meta = whole["attributes"][ATTRIBUTE]
    change(meta)
    meta.pop("sha256", None)
    meta["sha256"] = make_fingerprint(meta)
    file.write_text(json.dumps(whole))


def forge(path: Path, name: str, at: Any, value: Any) -> Path:
    """Change values of an array, the checksums of chunks and parts, and the manifest; return the first chunk's file."""
    array = zarr.open_group(str(path), mode="a", zarr_format=3)[name]
    assert isinstance(array, zarr.Array)
    array[at] = value
    edit_manifest(path, lambda meta: sign_array(path, meta, name))
    first = at.start or 0 if isinstance(at, slice) else at[0] if isinstance(at, tuple) else at
    return find_file(StoredArray(array, name, np.empty(0, np.uint32)), first // array.chunks[0])


def find_file(array: StoredArray, index: int) -> Path:
    """The local file that holds a chunk."""
    return Path(array.place, array.shards.find(index).key)


def read_checksum(chunk: Path) -> int:
    """The CRC-32C at the end of a chunk's file."""
    return int.from_bytes(chunk.read_bytes()[-CRC_BYTES:], "little")


def sign_array(path: Path, meta: Meta, name: str) -> None:
    """List the checksums that the chunks of an array now have."""
    array: Any = zarr.open_group(str(path), mode="a", zarr_format=3)[name]
    stored = StoredArray(array, name, np.empty(0, np.uint32))
    files = [find_file(stored, index) for index in range(stored.n_chunks)]
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


def set_fact(name: str, value: Any) -> Callable[[Path], Any]:
    """A forgery: another value in the manifest."""
    return lambda path: edit_manifest(path, lambda meta: meta.update({name: value}))


def set_entry(array: str, name: str, value: Any) -> Callable[[Path], Any]:
    """A forgery: another value in the manifest's entry of an array."""
    return lambda path: edit_manifest(path, lambda meta: meta["arrays"][array].update({name: value}))


def drop_fact(name: str) -> Callable[[Path], Any]:
    """A forgery: a manifest without that key."""
    return lambda path: edit_manifest(path, lambda meta: meta.pop(name))


def drop_array(name: str) -> Callable[[Path], Any]:
    """A forgery: a manifest that does not list an array."""
    return lambda path: edit_manifest(path, lambda meta: meta["arrays"].pop(name))


def rewrite(name: str, values: np.ndarray) -> Callable[[Path], Any]:
    """A forgery: an array of another shape or type under that name, with right checksums."""

    def write(path: Path) -> None:
        group = zarr.open_group(str(path), mode="a", zarr_format=3)
        codecs = (zarr.codecs.Crc32cCodec(),)
        shape: Any = {"shape": values.shape, "chunks": values.shape, "dtype": values.dtype}
        how: Any = {"compressors": codecs, "overwrite": True, "config": {"write_empty_chunks": True}}
        array = group.create_array(name, **shape, **how)
        array[...] = values

        def sign(meta: Meta) -> None:
            meta["arrays"][name] = {**describe_array(array), "checksums": ""}
            sign_array(path, meta, name)

        edit_manifest(path, sign)

    return write


def set_values(name: str, at: Any, value: Any) -> Callable[[Path], Any]:
    """A forgery: other values in an array."""
    return lambda path: forge(path, name, at, value)


def shorten_last_row(path: Path) -> None:
    """A forgery: the last row of sparse rows has an item less, which then belongs to no row."""
    array: Any = zarr.open_group(str(path), mode="r", zarr_format=3)["X/indptr"]
    forge(path, "X/indptr", 200, int(array[200]) - 1)


# What can be wrong although every checksum is right; of the datasets that tests.data.conftest.paths makes (200 rows,
# 6 features, 3 classes, all vectors, scaled) and of a dataset of features ("features").
FORGED_FACTS = {
    f"{name} is {value!r}": set_fact(name, value)
    for name, values in {
        "n_rows": (0, -1, 199, 201, 10**9, 2**70, 200.0, "200", None, True),
        "n_features": (0, 5, 7, 2**31 - 1, 2**31, -6, "6", None),
        "n_items": (0, -1, 10**12, "many"),
        "longest_row": (0, -1, 7, 10**9, 1.5, None),
        "sparse": (None, 0, "yes"),
        "scaling": ("other", 7, ["maxabs"]),
        "classes": ([0, 1], [0, 1, 1], [2, 1, 0], [], "abc", [0, 1, float("nan")], [0, "1", 2], [[0], [1], [2]], 3),
        "class_counts": ([67, 67], [200, 0, 0], [67, 67, 67], [-1, 134, 67], "no", [67.0, 67.0, 66.0], None),
        "feature_names": (["a"], "abcdef", [1, 2, 3, 4, 5, 6], 6),
        "chunk_starts": ([0, 200], [], None, "0", [0, 300], [0, 150, 100, 200], [-1, 200], [0.0, 200.0]),
        "arrays": ({}, None, [], "X", {"X": 1}),
        "features": ([], 7, {}, "map", {"map": "kernel"}),
    }.items()
    for value in values
}
FORGED_VALUES: dict[str, Callable[[Path], Any]] = {
    **{f"y is {code}": set_values("y", 7, code) for code in (2**30, 1000, 3, -1, -(2**31))},
    **{f"a weight is {w}": set_values("sample_weight", 7, w) for w in (np.nan, np.inf, -np.inf, -1.0)},
    **{f"a factor is {f}": set_values("scaling/factor", 2, f) for f in (np.nan, np.inf, 0.0, -1.0)},
    **{f"an offset is {f}": set_values("scaling/offset", 2, f) for f in (np.nan, np.inf)},
    "y is of 8 bytes": rewrite("y", np.zeros(200, np.int64)),
    "y is short": rewrite("y", np.zeros(199, np.int32)),
    "weights are of 4 bytes": rewrite("sample_weight", np.ones(200, np.float32)),
    "queries are numbers with a point": rewrite("qid", np.ones(200)),
    "y has two dimensions": rewrite("y", np.zeros((200, 2), np.int32)),
    "the scaling is short": rewrite("scaling/factor", np.ones(5)),
    **{f"the manifest lacks {name}": drop_fact(name) for name in ("n_rows", "n_features", "sparse", "longest_row")},
    **{f"the manifest lacks {name}": drop_fact(name) for name in ("classes", "class_counts", "chunk_starts", "arrays")},
    **{f"the manifest lacks {name}": drop_fact(name) for name in ("scaling", "feature_names", "n_items", "format")},
    **{f"there is no array {name}": drop_array(name) for name in ("y", "scaling/factor")},
    **{
        f"{key} of y is {value!r}": set_entry("y", key, value)
        for keys, values in (
            (("shape", "chunks"), (None, [], [0], [-1], ["a"])),
            (("codecs", "checksums"), (None, [], "zz", 7, "")),
        )
        for key in keys
        for value in values
    },
    "parts of y have no size": set_entry("y", "part_rows", -1),
    "parts of y are missing": set_entry("y", "part_rows", 3),
}
FORGED_DENSE: dict[str, Callable[[Path], Any]] = {
    **{f"X is {value}": set_values("X", (7, 2), value) for value in (np.nan, np.inf, -np.inf)},
    "X has other columns": rewrite("X", np.ones((200, 5), np.float32)),
    "X is of 8 bytes": rewrite("X", np.ones((200, 6))),
    "X has one dimension": rewrite("X", np.ones(1200, np.float32)),
    "there is no array X": drop_array("X"),
}
FORGED_SPARSE: dict[str, Callable[[Path], Any]] = {
    **{f"an item is {value}": set_values("X/data", 7, value) for value in (np.nan, np.inf)},
    **{f"a column is {value}": set_values("X/indices", 7, value) for value in (6, -1, 2**31 - 1, -(2**31))},
    **{f"a row limit is {value}": set_values("X/indptr", 100, value) for value in (-1, 2, 10**6, 2**62, -(2**63))},
    "the first row limit is not 0": set_values("X/indptr", 0, 1),
    "the last row limit is below others": set_values("X/indptr", 200, 400),
    "the last row limit leaves an item out": shorten_last_row,
    "the longest row is said to be short": set_fact("longest_row", 1),
    "row limits are not signed": rewrite("X/indptr", np.arange(201, dtype=np.uint64)),
    "columns are of 8 bytes": rewrite("X/indices", np.zeros(600, np.int64)),
    "there are fewer columns than items": rewrite("X/indices", np.zeros(3, np.int32)),
    "chunks begin elsewhere": lambda path: edit_manifest(path, move_chunk_start),
    "there is no array X/indptr": drop_array("X/indptr"),
}
FORGED_FEATURES: dict[str, Callable[[Path], Any]] = {
    **{f"the matrix holds {v}": set_values("features/matrix", (0, 0), v) for v in (np.nan, np.inf)},
    **{f"the map's rows hold {v}": set_values("features/rows", (0, 0), v) for v in (np.nan, np.inf)},
    "the matrix is of 4 bytes": rewrite("features/matrix", np.ones((5, 5), np.float32)),
    "the matrix is empty of rows": rewrite("features/matrix", np.ones((1, 5))),
    "the matrix has one dimension": rewrite("features/matrix", np.ones(5)),
    "the map's rows are of 8 bytes": rewrite("features/rows", np.ones((5, 6))),
    "the map's rows have other columns": rewrite("features/rows", np.ones((5, 4), np.float32)),
    "there is no matrix": drop_array("features/matrix"),
    "an array of another name": lambda path: edit_manifest(path, list_foreign_array),
    **{
        f"the map's {k} is {v!r}": (lambda path, k=k, v=v: edit_manifest(path, lambda m: m["features"].update({k: v})))
        for k, v in (
            ("d", 7),
            ("d", "6"),
            ("map", "other"),
            ("map", None),
            ("kernel", None),
            ("kernel", {"name": "other"}),
            ("kernel", {"name": "rbf", "gamma": "x"}),
            ("kernel", {"name": "rbf", "gamma": float("nan")}),
            ("kernel", {"name": "poly", "degree": 2.5}),
            ("kernel", {"name": "rbf", "gamma": 1.0, "evil": 1}),
            ("scaling", "maxabs"),
            ("feature_names", ["a"]),
        )
    },
}
FORGERIES = {
    "dense": {**FORGED_FACTS, **FORGED_VALUES, **FORGED_DENSE},
    "sparse": {**FORGED_FACTS, **FORGED_VALUES, **FORGED_SPARSE},
    "features": FORGED_FEATURES,
}


def move_chunk_start(meta: Meta) -> None:
    """Let a row of the second chunk belong to the first."""
    meta["chunk_starts"][1] += 1


def list_foreign_array(meta: Meta) -> None:
    """List an array outside of the dataset."""
    meta["arrays"]["features/../../other"] = meta["arrays"]["features/matrix"]
