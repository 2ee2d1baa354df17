"""The manifest of a dataset: the shapes and types of its arrays, and the checksums of their chunks (docs/storage.md).

The SHA-256 of a manifest reveals damage. A manifest that another program wrote may be wrong in other ways. This module
checks its content, because solvers rely on it.
"""

from __future__ import annotations

import hashlib
import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import zarr

from streamsvm.data.store.array import StoredArray
from streamsvm.data.store.chunks import are_raw
from streamsvm.data.store.layouts import VECTORS
from streamsvm.data.store.places import DiskCache
from streamsvm.data.store.zarr_arrays import describe_array, open_array
from streamsvm.numeric.encoding import is_syntax, read_encoding
from streamsvm.numeric.labels import count_bytes
from streamsvm.numeric.stored_types import KINDS, STORED_AS
from streamsvm.system.errors import InputError, IntegrityError

FORMAT = 2
SETS_FORMAT = 4  # rows have sets of labels
ENCODED_FORMAT = 5  # rows were encoded from a table, and models have to encode new tables in the same way
NARROW_FORMAT = 7  # dense rows are float16, bfloat16 or int8; may be combined with lower formats
SHARDED_FORMAT = 8  # chunks lie in shards; may be combined with lower formats
FORMATS = (1, 2, SETS_FORMAT, ENCODED_FORMAT, NARROW_FORMAT, SHARDED_FORMAT)  # chunks of format 1 have no parts
JOINED_FORMAT = 3  # rows were appended to the dataset (data.store.edits)
EDITED_FORMAT = 6  # rows were deleted from the dataset, and possibly others appended
ATTRIBUTE = "streamsvm"
ENCODING = "encoding"  # in the manifest: the encoding of table columns as features (numeric.encoding)
LABEL_COLUMN = "label_column"  # in the manifest: the column that held the labels, if the user named it
READ_AS = "read_as"  # in the manifest: the syntax of the files, where it is not the usual one
QID_COLUMN = "qid_column"  # in the manifest: the column that held the query ids
APPENDED = "appended"  # names the folder of appended rows, and the list of their fingerprints
APPENDS_TO = "appends_to"  # in the manifest of appended rows: the fingerprint of the dataset before the edit
DELETED = "deleted"  # the folder of copies of deleted rows
DELETES_FROM = "deletes_from"  # in the manifest of these copies: the fingerprint of the dataset before the edit
NUMBERS = "numbers"  # the array with the row numbers of the deleted rows
FEATURES = "features/"  # the folder of the arrays of a feature map
PARTS = "parts/"  # the folder of the checksums of parts
FEATURE_ARRAYS = {"offset", "factor", "matrix", "rows", "data", "indices", "indptr"}
LAYOUT = ("shape", "chunks", "dtype", "codecs", "shards")  # keys in the entry of an array; "shards" is optional
MOST_ROWS, MOST_FEATURES = 1 << 53, (1 << 31) - 1

Meta = dict[str, Any]


def make_fingerprint(meta: Meta) -> str:
    """Return the SHA-256 of the manifest, which includes the checksum of every chunk."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def choose_format(meta: Meta, arrays: Meta) -> int:
    """Return the lowest format that supports a manifest with these entries and these arrays."""
    if any("shards" in entry for entry in arrays.values()):
        return SHARDED_FORMAT
    if arrays.get("X", {}).get("dtype", "float32") != "float32":
        return NARROW_FORMAT
    return SETS_FORMAT if "label_sets" in arrays else ENCODED_FORMAT if ENCODING in meta else FORMAT


def check_manifest(path: str, meta: Meta) -> str:
    """Check a manifest, remove its fingerprint, and return the fingerprint.

    Raises InputError for an unknown format, and IntegrityError if the manifest is damaged or contradicts itself.
    """
    file, version = f"{path}/zarr.json", meta.get("format")
    if version not in FORMATS or isinstance(version, bool):
        raise InputError(
            f"{path}: has format {version!r}, and this version of streamsvm reads formats 1 to 8; "
            "read it with the version that wrote it, or write it again with `streamsvm ingest`"
        )
    fingerprint = meta.pop("sha256", None)
    if not isinstance(fingerprint, str) or fingerprint != make_fingerprint(meta):
        raise IntegrityError(f"{file}: the manifest is damaged; restore the file, or ingest the rows again")
    try:
        _check_facts(meta)
        _check_labels(meta)
        _check_arrays(meta)
        _check_chunk_starts(meta)
    except KeyError as error:
        raise IntegrityError(
            f"{file}: the manifest lacks {error}; restore the file, or ingest the rows again"
        ) from error
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise IntegrityError(
            f"{file}: the manifest contradicts itself: {error}; restore the file, or ingest the rows again"
        ) from error
    return fingerprint


def open_stored(path: str, group: zarr.Group, manifest: Meta, cache: DiskCache | None, name: str) -> StoredArray:
    """Open an array and the checksums of its parts. Raises IntegrityError if its metadata differ from the manifest."""
    entry = manifest[name]
    try:
        array = open_array(group, name, path)
    except InputError as error:
        raise IntegrityError(str(error)) from error
    if describe_array(array) != {key: value for key, value in entry.items() if key in LAYOUT}:
        raise IntegrityError(
            f"{path}/{name}/zarr.json: is damaged (it disagrees with the manifest); restore the file, or ingest the "
            "rows again"
        )
    part_rows = entry.get("part_rows", 0)
    parts = open_stored(path, group, manifest, cache, PARTS + name) if part_rows else None
    return StoredArray(array, name, np.frombuffer(bytes.fromhex(entry["checksums"]), "<u4"), parts, part_rows, cache)


def _check_facts(meta: Meta) -> None:
    _need_count(meta, "n_rows", MOST_ROWS)
    _need_count(meta, "n_features", MOST_FEATURES)
    _need_count(meta, "n_items", meta["n_rows"] * meta["n_features"])
    _need_count(meta, "longest_row", meta["n_features"])
    _need(isinstance(meta["sparse"], bool), "'sparse' is neither true nor false")
    _need(meta["scaling"] in (None, *KINDS), f"'scaling' is {meta['scaling']!r}, not one of {', '.join(KINDS)}")
    names = meta["feature_names"]
    if names is not None:
        right = isinstance(names, list) and all(isinstance(name, str) for name in names)
        _need(right and len(names) == meta["n_features"], "'feature_names' does not list a name for each feature")
    _need(isinstance(meta.get(LABEL_COLUMN, ""), str), "the name of the label column is not text")
    _need(READ_AS not in meta or is_syntax(meta[READ_AS]), "the syntax of the files is invalid")
    if ENCODING in meta and not meta.get("features"):
        n_encoded = read_encoding(meta[ENCODING]).n_features
        _need(n_encoded == meta["n_features"], f"its encoding produces {n_encoded} features")


def _check_labels(meta: Meta) -> None:
    classes = meta["classes"]
    names = [name for name in ("y", "label_sets") if name in meta["arrays"]]
    _need(len(names) == int(classes is not None), "'classes' must come with exactly one array of labels")
    if classes is None:
        return
    _need(isinstance(classes, list) and len(classes) > 0, "'classes' is not a list of labels")
    texts = all(isinstance(label, str) for label in classes)
    numbers = all(isinstance(label, int | float) and math.isfinite(label) for label in classes)
    _need(texts or numbers, "'classes' are neither all text nor all finite numbers")
    _need(all(one < other for one, other in pairwise(classes)), "'classes' do not ascend")
    counts = meta["class_counts"]
    are_sets = names == ["label_sets"]
    least = 1 - (are_sets or APPENDS_TO in meta or DELETES_FROM in meta)  # edits need not have rows of every class
    right = isinstance(counts, list) and len(counts) == len(classes) and all(_is_count(n, least) for n in counts)
    if are_sets:
        _need(right and max(counts) <= meta["n_rows"], "'class_counts' does not count the rows with each label")
        return
    _need(right and sum(counts) == meta["n_rows"], "'class_counts' does not add up to the rows")


def _check_arrays(meta: Meta) -> None:
    """Raise ValueError unless the manifest lists exactly the required arrays, with correct shapes and types."""
    n, d, arrays = meta["n_rows"], meta["n_features"], meta["arrays"]
    expected = choose_format(meta, arrays)
    right = meta["format"] == expected or (meta["format"] == 1 and expected == FORMAT)
    _need(right, f"format {meta['format']} does not fit its contents, which need {expected}")
    dtype = "float32" if meta["sparse"] else str(arrays["X"]["dtype"])
    _need(dtype in STORED_AS.values(), f"X has the type {dtype}")
    wanted: dict[str, tuple[list[int], str]] = {"X": ([n, d], dtype)}
    if meta["sparse"]:
        items = [meta["n_items"]]
        wanted = {"X/data": (items, "float32"), "X/indices": (items, "int32"), "X/indptr": ([n + 1], "int64")}
    wanted |= {name: ([n], dtype) for name, dtype in VECTORS.items() if name in arrays}
    if "label_sets" in arrays:
        wanted["label_sets"] = [n, count_bytes(len(meta["classes"]))], VECTORS["label_sets"]
    if meta["scaling"]:
        wanted |= {f"scaling/{name}": ([d], "float64") for name in ("offset", "factor")}
    if DELETES_FROM in meta:
        wanted[NUMBERS] = [n], "int64"
    for name, entry in arrays.items():
        _check_chunks(name, entry)
        if entry.get("part_rows", 0):
            wanted |= {PARTS + name: _shape_of_parts(entry)}
    for name, (shape, dtype) in wanted.items():
        found = arrays[name]
        _need(found["shape"] == shape and found["dtype"] == dtype, f"{name} is not {dtype} of shape {shape}")
    others = {name for name in arrays if name not in wanted}
    known = {FEATURES + name for name in FEATURE_ARRAYS} if meta.get("features") else set()
    _need(others <= known, f"it lists unknown arrays: {', '.join(sorted(others - known))}")


def _check_chunks(name: str, entry: Meta) -> None:
    """Raise ValueError unless chunks consist of whole rows and have checksums, and the last codec is a checksum."""
    shape, chunks = entry["shape"], entry["chunks"]
    right = all(_is_count(size, 1) for size in (*shape, *chunks)) and 1 <= len(shape) == len(chunks) <= 2
    _need(right and chunks[1:] == shape[1:] and chunks[0] <= shape[0], f"the chunks of {name} are not whole rows")
    n_chunks = -(-shape[0] // chunks[0])
    _need(len(bytes.fromhex(entry["checksums"])) == 4 * n_chunks, f"{name} does not have one checksum for each chunk")
    if "shards" in entry:
        rows, *others = entry["shards"]
        right = others == chunks[1:] and _is_count(rows, 1) and rows % chunks[0] == 0 and are_raw(entry["codecs"])
        _need(right, f"the shards of {name} do not consist of raw chunks")
    else:
        _need(entry["codecs"][-1]["name"] == "crc32c", f"the chunks of {name} do not end with a checksum")
    _need(_is_count(entry.get("part_rows", 0), 0), f"the size of the parts of {name} is invalid")


def _shape_of_parts(entry: Meta) -> tuple[list[int], str]:
    """Return the shape (chunks, parts per chunk) and the dtype of the checksums of an array's parts."""
    chunk_rows = entry["chunks"][0]
    return [-(-entry["shape"][0] // chunk_rows), -(-chunk_rows // entry["part_rows"])], "uint32"


def _check_chunk_starts(meta: Meta) -> None:
    """Raise ValueError unless chunk_starts fits the chunks of X. Sparse row limits are checked when they are read."""
    starts, n = meta["chunk_starts"], meta["n_rows"]
    first = meta["arrays"]["X/data" if meta["sparse"] else "X"]
    step = first["chunks"][0]
    right = isinstance(starts, list) and all(_is_count(start, 0) for start in starts)
    _need(right and len(starts) == -(-first["shape"][0] // step) + 1, "'chunk_starts' does not list a row per chunk")
    right = starts[0] == 0 and starts[-1] == n and starts == sorted(starts)
    _need(right, "'chunk_starts' do not ascend from 0 to the number of rows")
    if meta["sparse"]:
        _need(meta["arrays"]["X/indices"]["chunks"] == [step], "X/data and X/indices have different chunks")
    else:
        _need(starts[:-1] == list(range(0, n, step)), "'chunk_starts' do not fit the chunks of X")


def _need_count(meta: Meta, name: str, most: int) -> None:
    value = meta[name]
    _need(_is_count(value, 1) and value <= most, f"{name!r} is {value!r}, not a whole number from 1 to {most}")


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _need(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
