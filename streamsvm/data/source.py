"""What engines and solvers need of rows, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy.typing as npt

from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.scaling import Scaling


class RowSource(Protocol):
    """Rows that a solver can be given: on disk (Dataset) or in memory (ArrayDataset)."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of features."""

    @property
    def chunk_starts(self) -> I64:
        """(n_chunks + 1,): chunk k is rows chunk_starts[k]:chunk_starts[k+1]."""

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """Labels that occur, sorted; None without labels."""

    @property
    def class_counts(self) -> I64 | None:
        """Rows of each class."""

    def sum_weights(self) -> F64 | None:
        """Sum of the sample weights of each class, or its rows without weights; None without labels."""

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return "y" (codes), "sample_weight" or "qid" of all rows, None if there is none; reads no features."""

    @property
    def fingerprint(self) -> str:
        """What tells this source from others."""

    @property
    def scaling(self) -> Scaling | None:
        """How the features were scaled; None: not."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, where they have any."""

    @property
    def features(self) -> Features | None:
        """What made the rows of others, if they are features."""

    @property
    def nbytes(self) -> int:
        """Bytes of all rows once decoded."""

    @property
    def on_disk(self) -> bool:
        """Whether rows come from storage."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""

    @property
    def streams(self) -> bool:
        """Whether `tiles` needs a tile in memory at a time, not a chunk."""

    def tiles(self, index: int) -> Iterator[Rows]:
        """Stream chunk `index` in cache-sized pieces, verified."""

    def read(self, index: int) -> Rows:
        """Return chunk `index` whole, in memory of its own, verified."""

    def take(self, rows: I64) -> Rows:
        """Return those rows, in the order given."""

    def advise(self, index: int) -> None:
        """Say that chunk `index` is needed soon."""

    def chunk_bytes(self, index: int) -> int:
        """Most bytes that chunk `index` takes in memory."""

    def stream_bytes(self) -> int:
        """Memory that one reader needs to stream any chunk."""
