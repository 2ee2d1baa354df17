"""Rows and the columns of kernel sums in one layout, sparse rows without the features that do not occur."""

from __future__ import annotations

import numpy as np

from streamsvm.numeric.rows import F32, CsrRows, Matrix, to_dense

WIDE = 1 << 22  # the number of features (4 bytes each in kernels) from which on the memory is worth a sort


def match_layouts(X: Matrix, Z: Matrix) -> tuple[Matrix, Matrix]:
    """Return rows and columns in the layout of the columns, which takes no more memory than the items of the rows."""
    if isinstance(Z, CsrRows):
        known = X if isinstance(X, CsrRows) else drop_zeros(X)
        return compact_features(known, Z) if Z.n_features > WIDE else (known, Z)
    return (to_dense(X) if isinstance(X, CsrRows) else X), Z


def compact_features(X: CsrRows, Z: CsrRows) -> tuple[CsrRows, CsrRows]:
    """Return X and Z with the features that occur renumbered in order, so that products and sums keep their bits."""
    used = np.unique(np.concatenate((X.indices, Z.indices)))
    indices = (np.searchsorted(used, rows.indices).astype(np.int32) for rows in (X, Z))
    x, z = (CsrRows(rows.data, own, rows.indptr, max(1, len(used))) for rows, own in zip((X, Z), indices, strict=True))
    return x, z


def drop_zeros(X: F32) -> CsrRows:
    """Return dense rows as sparse rows without their zeros."""
    rows, columns = np.nonzero(X)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(X))))).astype(np.int64)
    return CsrRows(X[rows, columns], columns.astype(np.int32), indptr, X.shape[1])
