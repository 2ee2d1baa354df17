"""Some chunks of a source, one after the other: the rows that were appended to others, or what a probe reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.data.view import Alteration, View, leave, sum_by_class
from streamsvm.numeric.rows import F64, I64, Rows


class ChunkRange(View):
    """The chunks `first` to `stop` of a source, without `stop`. The rows keep their numbers in the source."""

    def __init__(self, source: RowSource, first: int, stop: int) -> None:
        super().__init__(source, Alteration(leave))
        self.first, self.stop = first, stop

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkRange, (self.source, self.first, self.stop)

    @property
    def fingerprint(self) -> str:
        """See RowSource. It differs from the source's, since chunks have other numbers here."""
        return f"{self.source.fingerprint}, chunks {self.first} to {self.stop}"

    @property
    def n_chunks(self) -> int:
        """See RowSource."""
        return self.stop - self.first

    @property
    def chunk_starts(self) -> I64:
        """Limits of the chunks, by the numbers of the rows in the source."""
        return self.source.chunk_starts[self.first : self.stop + 1]

    @property
    def n_rows(self) -> int:
        """Number of rows in these chunks."""
        return int(self.chunk_starts[-1] - self.chunk_starts[0])

    @property
    def nbytes(self) -> int:
        """See RowSource."""
        return self.source.nbytes * self.n_rows // self.source.n_rows

    @property
    def stored_bytes(self) -> int:
        """See RowSource."""
        return self.source.stored_bytes * self.n_rows // self.source.n_rows

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of each class in these chunks."""
        sums = sum_by_class(self.column("y"), None, self.source.classes)
        return None if sums is None else sums.astype(np.int64)

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class in these chunks."""
        return sum_by_class(self.column("y"), self.column("sample_weight"), self.source.classes)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.source.column(name)
        return None if values is None else values[int(self.chunk_starts[0]) : int(self.chunk_starts[-1])]

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self.source.column_of(name, self.first + index)

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        return self.source.tiles(self.first + index)

    def read(self, index: int) -> Rows:
        """See RowSource."""
        return self.source.read(self.first + index)

    def advise(self, index: int) -> None:
        """See RowSource."""
        self.source.advise(self.first + index)

    def chunk_bytes(self, index: int) -> int:
        """See RowSource."""
        return self.source.chunk_bytes(self.first + index)
