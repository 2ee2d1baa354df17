"""A source whose rows are rows of a kernel matrix, and know which ones (numeric.known_values)."""

from __future__ import annotations

import numpy as np

from streamsvm.data.source import RowSource
from streamsvm.data.view import Alteration, View
from streamsvm.errors import InputError
from streamsvm.numeric.known_values import MOST_ROWS, put_numbers


class NumberedRows(View):
    """The rows with their numbers as the first value. InputError unless they are a square matrix of dense rows."""

    def __init__(self, source: RowSource) -> None:
        n = source.n_rows
        if source.is_sparse:
            raise InputError(f"{source.name}: kernel precomputed: rows of kernel values have to be dense")
        if source.n_features != n:
            raise InputError(
                f"{source.name}: kernel precomputed: X.shape[0] should be equal to X.shape[1], since a row has its "
                f"kernel values with all rows; there are {n:,} rows of {source.n_features:,} values"
            )
        if source.is_shuffled or source.scaling is not None:
            raise InputError(
                f"{source.name}: kernel precomputed: the rows are in another order than their values, or are scaled; "
                "ingest them with --shuffle no, and without --scale"
            )
        if n > MOST_ROWS:
            raise InputError(f"{source.name}: kernel precomputed: {n:,} rows; at most {MOST_ROWS:,} can be numbered")
        super().__init__(source, Alteration(put_numbers, (np.arange(n),)))

    @property
    def n_features(self) -> int:
        """See RowSource."""
        return self.source.n_features + 1

    @property
    def nbytes(self) -> int:
        """See RowSource."""
        return self.source.nbytes + 4 * self.source.n_rows
