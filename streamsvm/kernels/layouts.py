"""Rows and columns in one layout, for the kernel values of all pairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.numeric.rows import CsrRows, Matrix, drop_zeros, slice_rows, to_dense

# A kernel of sparse rows takes 4 bytes per feature. If there are more than WIDE features, and more than ITEM_FEATURES
# per stored item, it pays to sort the items and to renumber the features that occur.
WIDE, ITEM_FEATURES = 1 << 22, 8
DENSE_VALUES = 1 << 17  # number of values of sparse rows that are made dense at once: 1 MiB in float64
LEAST_ROWS = 64  # minimum number of rows in a part: laying out the columns costs each part as much as 20 rows
MOST_VALUES = 1 << 22  # maximum values in a part of several rows: 32 MiB in float64, which no memory plan counts


def match_parts(X: Matrix, Z: Matrix) -> Iterator[tuple[slice, Matrix, Matrix]]:
    """Yield slices of the rows X, each with these rows and the columns Z in one layout.

    Sparse rows that become dense take 1 MiB per part. If 1 MiB holds too few rows, a part has as many rows as there are
    columns, at most LEAST_ROWS, and takes at most 32 MiB unless it is a single row.
    """
    (n, d), is_written = X.shape, isinstance(X, CsrRows) and not isinstance(Z, CsrRows)
    least = min(LEAST_ROWS, Z.shape[0], MOST_VALUES // d)
    size = max(1, DENSE_VALUES // d, least) if is_written else max(1, n)
    for at in range(0, max(1, n), size):
        part = slice(at, at + size)
        yield part, *match_layouts(slice_rows(X, part) if size < n else X, Z)


def match_layouts(X: Matrix, Z: Matrix) -> tuple[Matrix, Matrix]:
    """Return the rows X and the columns Z in the layout of Z; very wide sparse rows are renumbered to save memory."""
    if isinstance(Z, CsrRows):
        known = X if isinstance(X, CsrRows) else drop_zeros(X)
        least = max(WIDE, ITEM_FEATURES * (len(known.data) + len(Z.data)))
        return compact_features(known, Z) if Z.n_features > least else (known, Z)
    return to_dense(X), Z


def compact_features(X: CsrRows, Z: CsrRows) -> tuple[CsrRows, CsrRows]:
    """Return X and Z with only the features that occur, renumbered in order; products and sums keep their bits."""
    used = np.unique(np.concatenate((X.indices, Z.indices)))
    indices = (np.searchsorted(used, rows.indices).astype(np.int32) for rows in (X, Z))
    x, z = (CsrRows(rows.data, own, rows.indptr, max(1, len(used))) for rows, own in zip((X, Z), indices, strict=True))
    return x, z
