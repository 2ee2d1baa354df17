"""The rows of a table with their features: encoded as they come, or when all are read and the encoding is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from streamsvm import interrupts
from streamsvm.data.scratch_rows import ScratchRows
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.table_encoder import TableEncoder
from streamsvm.data.tables import show_name
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.rows import F32, F64, CsrRows


def encode_rows(
    pieces: Iterator[SourceRows], encoder: TableEncoder, scratch: Path | None, paths: Sequence[str | Path]
) -> Iterator[SourceRows]:
    """Yield the rows of a table with their features, given their codes.

    scratch: the folder of the scratch file, into which the codes go if not all is known before (None: the system's).
    """
    first = next(pieces, None)
    if first is None:
        return
    if encoder.is_known:
        encoding = encoder.finish()
        yield _encode(first, encoding)
        for rows in pieces:
            yield _encode(rows, encoding)
        encoder.tell_unknown(", ".join(show_name(str(path)) for path in paths))
        return
    with ScratchRows(scratch) as aside:
        aside.add(first)
        del first
        for rows in pieces:
            aside.add(rows)
            interrupts.check()
        encoding = encoder.finish()
        encoder.tell_many(", ".join(show_name(str(path)) for path in paths))
        ranks = rank_categories(encoder.known, encoding)
        for rows in aside.read():
            assert isinstance(rows.X, np.ndarray)
            yield _encode(replace(rows, X=sort_categories(rows.X, ranks)), encoding)


def rank_categories(known: Mapping[int, Iterable[str]], encoding: Encoding) -> dict[int, F32]:
    """Return, for each column, the place of each category among the sorted categories of the encoding.

    The last entry, NaN, stands for missing values. known: the categories of each column in the order of their numbers.
    """
    ranks = {}
    for k, texts in known.items():
        places = {text: at for at, text in enumerate(encoding.columns[k].categories)}
        ranks[k] = np.array([*(places[text] for text in texts), np.nan], np.float32)
    return ranks


def sort_categories(X: F64, ranks: Mapping[int, F32]) -> F64:
    """Return codes in which categories have the numbers of their sorted order, and not of their first rows."""
    for k, own in ranks.items():
        X[:, k] = own[np.where(np.isnan(X[:, k]), len(own) - 1, X[:, k]).astype(np.int64)]
    return X


def _encode(rows: SourceRows, encoding: Encoding) -> SourceRows:
    assert isinstance(rows.X, np.ndarray)
    recorded = None if encoding.is_plain else encoding
    features = encode_features(rows.X, encoding)
    return replace(rows, X=features, feature_names=encoding.feature_names, encoding=recorded)


def encode_features(codes: F64, encoding: Encoding) -> F64 | csr_array:
    """Return the features of rows, given their codes."""
    X = encoding.encode(codes)
    return csr_array((X.data, X.indices, X.indptr), shape=X.shape) if isinstance(X, CsrRows) else X
