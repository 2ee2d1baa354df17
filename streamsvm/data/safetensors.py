"""The reader of safetensors files: X, and y, qid, sample_weight and groups if they are there, as tensors of one file.

Several files are the rows of one after another. An index tells in which files beside it the tensors of one set lie.

A file is the length of its header (8 bytes, little-endian), the header as JSON with type, shape and place of each
tensor, and the values. They are mapped, so no package is needed, and nothing is loaded whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.arrays import Stream, count_label_axes, join_streams, open_stream
from streamsvm.data.formats import SAFETENSORS_INDEX
from streamsvm.data.pieces import ITEM_BYTES
from streamsvm.data.remote_files import copied
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.values import Vector, show_text
from streamsvm.errors import InputError
from streamsvm.numeric.narrow import widen_bits

MOST_HEADER_BYTES = 100 << 20  # the limit of the format
BFLOAT16 = "BF16"
TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", BFLOAT16: "<u2", "BOOL": "|b1"},
    **{f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)},
}
_VECTORS = {"label": "y", "sample_weight": "sample_weight", "qid": "qid", "groups": "groups"}


def read_safetensors(paths: Sequence[str | Path], piece_bytes: int = 8 << 20) -> Iterator[SourceRows]:
    """Yield the rows of files, or of files of an index: of the tensor X, or of the only tensor of rows and columns.

    Raises InputError, which names the file and the reason.
    """
    before: tuple[str, int, list[str]] | None = None
    for path in map(str, paths):
        with ExitStack() as copies:
            try:
                tensors = _map_tensors_of(path, copies)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                reason = getattr(error, "strerror", None) or error
                raise InputError(f"{path}: no safetensors file ({reason})") from error
            rows = _find_rows(path, tensors)
            named = {role: name for role, name in _VECTORS.items() if name in tensors}
            found = path, int(tensors[rows][0].shape[1]) if tensors[rows][0].ndim == 2 else 0, list(named.values())
            before = before or found
            if found[1:] != before[1:]:
                what = [f"{one[1]} features and {', '.join(one[2]) or 'no vectors'}" for one in (found, before)]
                raise InputError(f"{path}: {what[0]}, but {before[0]} has {what[1]}")
            X = _open(path, rows, tensors, 2, piece_bytes)
            axes = {role: count_label_axes(tensors[name][0]) if role == "label" else 1 for role, name in named.items()}
            vectors = {role: _open(path, name, tensors, axes[role], piece_bytes) for role, name in named.items()}
            yield from join_streams(X, vectors, None)


def _map_tensors_of(path: str, copies: ExitStack) -> dict[str, tuple[Vector, bool]]:
    """Return the tensors of a file, or of the files of an index, as _map_tensors does."""
    if not path.endswith(SAFETENSORS_INDEX):
        return _map_tensors(copies.enter_context(copied(path)))
    index = json.loads(copies.enter_context(copied(path)).read_bytes())
    places, found = index["weight_map"], dict[str, tuple[Vector, bool]]()
    folder = path.rpartition("/")[0]
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise ValueError(f"{name!r} is no name of a file beside the index")
        tensors = _map_tensors(copies.enter_context(copied(f"{folder}/{name}" if folder else name)))
        found |= {tensor: tensors[tensor] for tensor, place in places.items() if place == name and tensor in tensors}
    if lost := {"X", *_VECTORS.values()}.intersection(places).difference(found):
        raise ValueError(f"its file has no tensor {min(lost)!r} of numbers")
    return found


def _map_tensors(path: Path) -> dict[str, tuple[Vector, bool]]:
    """Return the tensors by name, mapped, and whether each is of bfloat16. Raises ValueError for a wrong header."""
    size = path.stat().st_size
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if not 2 <= n_header <= min(MOST_HEADER_BYTES, size - 8):
            raise ValueError(f"its header is said to have {n_header:,} bytes")
        header = json.loads(file.read(n_header))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    found, start = {}, 8 + n_header
    for name, about in header.items():
        if name != "__metadata__":
            kind, shape, (begin, end) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
            if kind in TYPES:
                dtype = np.dtype(TYPES[kind])
                _require_place(name, shape, dtype, begin, end, size - start)
                values = np.memmap(path, dtype, "r", start + begin, shape) if end > begin else np.empty(shape, dtype)
                found[name] = values, kind == BFLOAT16
    return found


def _require_place(name: str, shape: tuple[Any, ...], dtype: Any, begin: Any, end: Any, n_bytes: int) -> None:
    """Raise ValueError unless a tensor lies in the file, and has as many bytes as its shape says."""
    numbers = (*shape, begin, end)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"tensor {name!r}: its shape or place is no list of numbers")
    if end > n_bytes or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {name!r}: its place in the file does not fit its shape, or the file is truncated")


def _find_rows(path: str, tensors: dict[str, tuple[Vector, bool]]) -> str:
    """Return the name of the tensor of rows."""
    if "X" in tensors:
        return "X"
    names = [name for name, (values, _) in tensors.items() if values.ndim == 2 and name not in _VECTORS.values()]
    if len(names) != 1:
        there = ", ".join(map(show_text, sorted(tensors)[:12])) or "none of numbers"
        raise InputError(f"{path}: which tensor has the rows? Name it X; there are {there}")
    return names[0]


def _open(path: str, name: str, tensors: dict[str, tuple[Vector, bool]], n_dimensions: int, piece_bytes: int) -> Stream:
    values, is_bfloat16 = tensors[name]
    stream = open_stream(f"{path}: {name}", values, n_dimensions, piece_bytes)
    if is_bfloat16:
        n_piece = max(1, piece_bytes // (ITEM_BYTES * max(1, math.prod(values.shape[1:]))))
        stream.pieces = (widen_bits(values[at : at + n_piece]) for at in range(0, len(values), n_piece))
    return stream
