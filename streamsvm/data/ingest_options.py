"""How a dataset is written, as the user asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamsvm.data.array_writer import CODECS
from streamsvm.errors import InputError
from streamsvm.numeric.narrow import STORED_AS
from streamsvm.numeric.scaling import KINDS


@dataclass(frozen=True)
class IngestOptions:
    """How a dataset is written.

    Attributes
    ----------
    layout : {"dense", "sparse"} or None
        How rows are stored; None chooses by the share of non-zeros.
    chunk_bytes : int or None
        Bytes of a chunk; None chooses by the size of the dataset.
    shard_bytes : int or None
        Bytes of a file in which several raw chunks lie; 0 makes each chunk a file, and None chooses by the size of the
        dataset. Compressed chunks are files.
    codec : {"crc32c", "lz4", "zstd"}
        The compression. Every codec adds a checksum, and "crc32c" compresses nothing.
    scale : {"none", "minmax", "maxabs", "standard"}
        How features are scaled. The scaling is recorded, so that models apply it to raw rows.
    shuffle : int or None
        The seed of the shuffle; None keeps the order. Rows with query ids keep their order, so queries stay together.
    regression : bool
        Whether the labels are numbers to be predicted (targets), and not classes or ranks. They are stored as float64.
    needs_two_classes : bool
        Whether to refuse labels of a single class.
    overwrite : bool
        Whether to replace a dataset of that name.
    dtype : {"float32", "float16", "bfloat16", "int8"}
        The type in which dense rows are stored, which takes a half or a quarter of the bytes. The values have to be
        values of this type; they are computed with as float32.
    label_column : str or None
        The column of a table that held the labels, if the user has named it: what is recorded of it.
    qid_column : str or None
        The column of a table that held the query ids.
    source_state : mapping or None
        What is recorded of the state of the source, by which the dataset is known to be made of it.
    append : bool
        Whether to append the rows to the dataset of that name, which decides all but the seed and the chunk size.
    new_classes : bool
        Whether rows that are appended may have labels that the dataset does not have.
    """

    layout: str | None = None
    chunk_bytes: int | None = None
    shard_bytes: int | None = None
    codec: str = "crc32c"
    scale: str = "none"
    shuffle: int | None = 0
    regression: bool = False
    needs_two_classes: bool = True
    overwrite: bool = False
    append: bool = False
    dtype: str = "float32"
    label_column: str | None = None
    qid_column: str | None = None
    new_classes: bool = False
    source_state: Mapping[str, Any] | None = None


def check_options(options: IngestOptions) -> None:
    """Raise InputError for a value that an option cannot have."""
    choices = (
        ("layout", (None, "dense", "sparse")),
        ("codec", tuple(CODECS)),
        ("scale", KINDS),
        ("dtype", tuple(STORED_AS)),
    )
    for name, allowed in choices:
        value = getattr(options, name)
        if value not in allowed:
            raise InputError(f"{name} {value!r}: choose from {', '.join(filter(None, allowed))}")
    if options.new_classes and not options.append:
        raise InputError("--new-classes (new_classes=True) is for rows that are appended: --append (append=True)")
    if options.dtype != "float32" and options.scale != "none":
        raise InputError(f"dtype {options.dtype}: scaled values are no values of this type: leave --scale out")
    if options.shuffle is not None and options.shuffle < 0:
        raise InputError(f"shuffle {options.shuffle}: a seed is a whole number from 0 on")
    if options.chunk_bytes is not None and options.chunk_bytes < 1:
        raise InputError(f"chunk_bytes {options.chunk_bytes}: a positive number is expected")
    if options.shard_bytes is not None and options.shard_bytes < 0:
        raise InputError(f"shard_bytes {options.shard_bytes}: a positive number is expected, or 0")
    if options.shard_bytes and options.codec != "crc32c":
        raise InputError(f"--shard-bytes (shard_bytes) is for raw chunks, and {options.codec} compresses them")
