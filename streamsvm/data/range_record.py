"""What is recorded of a range of rows that a worker has written, so that a killed ingest goes on from there."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

import google_crc32c
import numpy as np

from streamsvm.data.placed_array import PlacedArray
from streamsvm.data.placed_rows import Piece, RangeWritten, StoredChunk, name_piece
from streamsvm.data.shared_scratch import SharedScratch, read_ranges
from streamsvm.errors import InputError, IntegrityError
from streamsvm.files import pack_arrays, unpack_arrays


def record_range(scratch: SharedScratch, name: str, written: RangeWritten) -> None:
    """Record what a worker has written of a range of rows."""
    stored = [[array, at, chunk.checksum] for array, found in written.stored.items() for at, chunk in found.items()]
    chunks = [chunk for found in written.stored.values() for chunk in found.values()]
    about = {
        "row": written.row,
        "last_first": written.last_first,
        "marks": list(written.marks.items()),
        "names": list(written.stored),
        "stored": stored,
        "shared": [
            [array, at, asdict(piece)] for array, found in written.shared.items() for at, piece in found.items()
        ],
    }
    arrays: dict[str, Any] = {f"parts-{k}": each.parts for k, each in enumerate(chunks) if each.parts is not None}
    arrays |= {"class_counts": written.class_counts, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    scratch.keep(name, pack_arrays(arrays))


def find_range(scratch: SharedScratch, name: str, arrays: Mapping[str, PlacedArray]) -> RangeWritten | None:
    """Return what is recorded of a range, if all that was written is there and undamaged; otherwise None."""
    content = scratch.find(name)
    if content is None:
        return None
    try:
        written = _unpack(unpack_arrays(io.BytesIO(content), name))
    except InputError:  # a record that is damaged is as good as none
        return None
    stored = [(arrays[each], at, chunk) for each, found in written.stored.items() for at, chunk in found.items()]
    if not all(array.holds(at, chunk.checksum) for array, at, chunk in stored):
        return None
    pieces = [(arrays[each], piece) for each, found in written.shared.items() for piece in found.values()]
    return written if all(_is_whole(scratch, array, piece) for array, piece in pieces) else None


def _unpack(arrays: Mapping[str, Any]) -> RangeWritten:
    about = json.loads(arrays["about"].tobytes())
    written = RangeWritten(about["row"], {}, {}, dict(about["marks"]), about["last_first"], arrays["class_counts"])
    for name in about["names"]:
        written.stored[name], written.shared[name] = {}, {}
    for k, (name, at, checksum) in enumerate(about["stored"]):
        written.stored[name][at] = StoredChunk(checksum, arrays.get(f"parts-{k}"))
    for name, at, piece in about["shared"]:
        written.shared[name][at] = Piece(**piece)
    return written


def _is_whole(scratch: SharedScratch, array: PlacedArray, piece: Piece) -> bool:
    """Tell whether the values of a chunk that other ranges share are there."""
    n_bytes = piece.n_values * int(np.prod(array.chunks[1:])) * np.dtype(array.dtype).itemsize
    try:
        with closing(read_ranges(scratch, [(name_piece(array, piece.begin), n_bytes, (0, n_bytes))])) as contents:
            return bool(google_crc32c.value(next(contents)[1]) == piece.checksum)
    except IntegrityError:
        return False
