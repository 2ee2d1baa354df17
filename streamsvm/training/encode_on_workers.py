"""The encoding of a table that workers ingest: the first rows decide its kinds, and all rows its categories and means.

Where only the last row decides, workers set the codes of all rows aside first (data.coded_stretches). What each piece
adds to the statistics is joined here, in the order of the files, as one process does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamsvm.data.coded_stretches import code_stretch, put_encoding
from streamsvm.data.labels import has_number_labels
from streamsvm.data.shared_ingest import Source
from streamsvm.data.stretches import Stretch
from streamsvm.data.survey import Survey
from streamsvm.data.tables import show_name
from streamsvm.engines.errands import carry_out
from streamsvm.errors import InputError
from streamsvm.numeric.encoding import Encoding

if TYPE_CHECKING:
    from distributed import Client


def find_encoding(
    client: Client, source: Source, stretches: Sequence[Stretch], paths: Sequence[str]
) -> tuple[Source, Encoding | None]:
    """Return the encoding of a table, and what workers then know of the source; None if no column is encoded."""
    if source.encoder is None:
        return source, None
    if source.encoder.is_known:
        return source, source.encoder.finish()
    encoder = source.encoder.start_anew()
    numbers = has_number_labels(source.first)
    tasks = [(source.scratch, stretch, source.kind, encoder, numbers, k) for k, stretch in enumerate(stretches)]
    n_in_file = 0
    for stretch, one in zip(stretches, carry_out(client, "reading the files", code_stretch, tasks), strict=True):
        for piece in one.pieces:
            source.encoder.join(piece)
            n_in_file += piece.n_rows
        if one.failure:
            raise InputError(one.failure)
        n_in_file = require_rows(source, stretch, n_in_file)
    encoding = source.encoder.finish()
    source.encoder.tell_many(", ".join(map(show_name, paths)))
    return replace(source, encoder=encoder, encoding=put_encoding(source.scratch, encoding)), encoding


def require_rows(source: Source, stretch: Stretch, n_in_file: int) -> int:
    """Return how many rows of the stretch's file are before the next stretch. InputError for a file without any."""
    if stretch.ends and not n_in_file:
        raise InputError(f"{stretch.path}: no rows" + " in this file" * (source.kind == "svmlight"))
    return 0 if stretch.ends else n_in_file


def note_encoding(survey: Survey, encoding: Encoding | None) -> None:
    """Take note of how the columns of a table became the features of the rows."""
    if encoding is not None:
        survey.feature_names = encoding.feature_names
        survey.encoding = None if encoding.is_plain else encoding
