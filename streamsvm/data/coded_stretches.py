"""Stretches of a table whose encoding is known when all of them are read: until then workers set their codes aside.

The categories of a stretch have numbers of its own. What its pieces add to the statistics of the table is joined in the
order of the files, so that sums are rounded as one process rounds them, and the first fault of all is the one that is
told. A record among the scratch files tells of each stretch that is finished.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from streamsvm.data.encoded_rows import encode_features, rank_categories, sort_categories
from streamsvm.data.scratch_rows import read_piece, write_piece
from streamsvm.data.shared_scratch import ScratchFile, SharedScratch, put_whole, read_whole
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.stretches import Stretch, read_codes
from streamsvm.data.table_encoder import PieceStatistics, TableEncoder
from streamsvm.errors import InputError, IntegrityError
from streamsvm.files import pack_arrays, unpack_arrays
from streamsvm.numeric.encoding import Encoding, read_encoding

FILE_BYTES = 32 << 20  # of the codes that are put together
ENCODING = "encoding"  # the scratch file with the encoding of the table


@dataclass(frozen=True)
class CodedStretch:
    """A stretch whose codes were set aside.

    pieces: what each of its pieces adds to the statistics of the table. files: where the codes lie, and the fields of
    the rows of each piece there. failure: the fault that ends the stretch, as a whole message.
    """

    pieces: tuple[PieceStatistics, ...]
    files: tuple[tuple[ScratchFile, list[list[str]]], ...]
    failure: str = ""


def code_stretch(
    scratch: SharedScratch, stretch: Stretch, kind: str, encoder: TableEncoder, numbers: bool | None, number: int
) -> CodedStretch:
    """Set the codes of a stretch aside, which has this number. encoder: of a table of which no rows are read.

    numbers: whether labels are numbers. Nothing is done if a worker has set them aside already, and they are undamaged.
    """
    scratch.check()
    name = f"codes-{number}"
    found = _find(scratch, name)
    if found is None:
        encoder = encoder.start_anew()
        found = _code(scratch, name, encoder, read_codes(stretch, kind, encoder, numbers))
        if not found.failure:
            _record(scratch, name, found)
    return found


def _code(scratch: SharedScratch, name: str, encoder: TableEncoder, pieces: Iterator[SourceRows]) -> CodedStretch:
    """Write codes to files whose names begin with `name`."""
    files, waiting, given, failure = list[tuple[ScratchFile, list[list[str]]]](), io.BytesIO(), list[list[str]](), ""

    def flush() -> None:
        nonlocal waiting, given
        files.append((put_whole(scratch, f"{name}-{len(files)}", waiting.getbuffer()), given))
        waiting, given = io.BytesIO(), []

    try:
        for rows in pieces:
            given.append(write_piece(waiting, rows))
            if waiting.tell() >= FILE_BYTES:
                flush()
    except InputError as error:  # faults of the rows before, which others find, are told first
        failure = str(error)
    if given and not failure:
        flush()
    assert encoder.pieces is not None
    return CodedStretch(tuple(encoder.pieces), tuple(files), failure)


def read_coded(scratch: SharedScratch, number: int, encoding: Encoding) -> Iterator[SourceRows]:
    """Yield the rows of a stretch that was set aside, with their features. IntegrityError if they are damaged."""
    name = f"codes-{number}"
    coded = _read_record(scratch, name)
    if coded is None:
        raise IntegrityError(f"{name}: the record of the stretch is missing or damaged")
    known: dict[int, list[str]] = {k: [] for k, column in enumerate(encoding.columns) if column.kind == "one_hot"}
    for piece in coded.pieces:
        for k, texts in piece.texts.items():
            known[k] += texts
    ranks = rank_categories(known, encoding)
    for file, pieces in coded.files:
        content = io.BytesIO(read_whole(scratch, file).data)
        for given in pieces:
            rows = read_piece(content, given)
            assert isinstance(rows.X, np.ndarray)
            yield replace(rows, X=encode_features(sort_categories(rows.X, ranks), encoding))


def put_encoding(scratch: SharedScratch, encoding: Encoding) -> ScratchFile:
    """Write the encoding to a scratch file, so that what tasks are sent does not grow with the categories."""
    return put_whole(scratch, ENCODING, json.dumps(encoding.as_json()).encode())


def get_encoding(scratch: SharedScratch, file: ScratchFile) -> Encoding:
    """Return the encoding that was put there."""
    return read_encoding(json.loads(read_whole(scratch, file).tobytes()))


def _record(scratch: SharedScratch, name: str, coded: CodedStretch) -> None:
    """Record that the codes of a stretch were set aside."""
    about = {
        "rows": [piece.n_rows for piece in coded.pieces],
        "texts": [list(piece.texts.items()) for piece in coded.pieces],
        "files": [[*astuple(file), pieces] for file, pieces in coded.files],
    }
    arrays: dict[str, Any] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    if coded.pieces:
        arrays |= {each: np.stack([getattr(piece, each) for piece in coded.pieces]) for each in ("missing", "sums")}
    scratch.keep(name, pack_arrays(arrays))


def _read_record(scratch: SharedScratch, name: str) -> CodedStretch | None:
    """Return what is recorded of a stretch; None if nothing is, or the record is damaged."""
    content = scratch.find(name)
    if content is None:
        return None
    try:
        arrays = unpack_arrays(io.BytesIO(content), name)
    except InputError:
        return None
    about = json.loads(arrays["about"].tobytes())
    pieces = tuple(
        PieceStatistics(n_rows, arrays["missing"][i], arrays["sums"][i], dict(about["texts"][i]))
        for i, n_rows in enumerate(about["rows"])
    )
    return CodedStretch(pieces, tuple((ScratchFile(*file), given) for *file, given in about["files"]))


def _find(scratch: SharedScratch, name: str) -> CodedStretch | None:
    """Return what is recorded of a stretch, if its codes are all there and undamaged; otherwise None."""
    found = _read_record(scratch, name)
    try:
        for file, _ in () if found is None else found.files:
            read_whole(scratch, file)
    except IntegrityError:
        return None
    return found
