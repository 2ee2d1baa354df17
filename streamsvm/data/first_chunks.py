"""The first chunks of a source, on which the speed of passes is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.data.view import Alteration, View, leave, sum_by_class
from streamsvm.numeric.rows import F64, I64


class FirstChunks(View):
    """The first chunks of a source. They have a fingerprint of their own, which keeps their chunks in memory apart."""

    def __init__(self, source: RowSource, n_chunks: int) -> None:
        super().__init__(source, Alteration(leave))
        self._n_chunks = n_chunks

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstChunks, (self.source, self._n_chunks)

    @property
    def fingerprint(self) -> str:
        """See RowSource."""
        return f"{self.source.fingerprint}, {self._n_chunks} chunks"

    @property
    def n_chunks(self) -> int:
        """See RowSource."""
        return self._n_chunks

    @property
    def chunk_starts(self) -> I64:
        """See RowSource."""
        return self.source.chunk_starts[: self._n_chunks + 1]

    @property
    def n_rows(self) -> int:
        """See RowSource."""
        return int(self.chunk_starts[-1])

    @property
    def nbytes(self) -> int:
        """See RowSource."""
        return self.source.nbytes * self.n_rows // self.source.n_rows

    @property
    def stored_bytes(self) -> int:
        """Bytes of these chunks that a pass reads from storage."""
        return self.source.stored_bytes * self.n_rows // self.source.n_rows

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of each class in these chunks."""
        sums = self._sum(None)
        return None if sums is None else sums.astype(np.int64)

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class in these chunks."""
        return self._sum(self.column("sample_weight"))

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return the labels, weights or query ids of the rows of these chunks, (n_rows,), or None."""
        values = self.source.column(name)
        return None if values is None else values[: self.n_rows]

    def _sum(self, weight: F64 | None) -> F64 | None:
        return sum_by_class(self.column("y"), weight, self.source.classes)
