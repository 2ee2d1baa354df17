"""RowSource, the interface through which engines and methods see rows, on disk or in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy.typing as npt

from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.rows import F64, I64, Rows
from streamsvm.numeric.scaling import Scaling


class RowSource(Protocol):
    """Rows, in chunks, with their labels. Dataset holds them on disk, ArrayDataset in memory."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of features."""

    @property
    def chunk_starts(self) -> I64:
        """Limits of the chunks, (n_chunks + 1,): chunk k is the rows chunk_starts[k]:chunk_starts[k + 1]."""

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """The labels that occur, sorted; None without labels."""

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of each class; None without labels."""

    @property
    def has_targets(self) -> bool:
        """Whether each row has a target, the number that a regression predicts, in place of a class."""

    @property
    def has_label_sets(self) -> bool:
        """Whether each row has any number of labels, and `classes` are these labels."""

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class or label, or of all rows with targets.

        None without labels.

        Without weights, rows are counted.
        """

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return a vector of all rows by its name (data.checks.VECTORS), or None if there is none."""

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """Return the part of `column(name)` that belongs to the rows of chunk `index`."""

    @property
    def fingerprint(self) -> str:
        """A text that differs between different sources."""

    @property
    def scaling(self) -> Scaling | None:
        """How the features were scaled, or None for unscaled features."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, or None."""

    @property
    def label_column(self) -> str | None:
        """The column of the table that held the labels, if the user has named it."""

    @property
    def qid_column(self) -> str | None:
        """The column of the table that held the query ids, if there are any."""

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of a table became the features, before any map, or None if they were numbers."""

    @property
    def features(self) -> Features | None:
        """The feature map that produced these rows, or None for raw rows."""

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded rows."""

    @property
    def on_disk(self) -> bool:
        """Whether chunks are worth keeping in memory, because they are read from storage, or mapped, in every pass."""

    @property
    def stored_bytes(self) -> int:
        """Bytes that a pass reads from storage; 0 for rows in memory."""

    @property
    def is_shuffled(self) -> bool:
        """Whether the rows are known to be in random order, so that the first ones are a random sample."""

    @property
    def name(self) -> str:
        """The name of the source in messages."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are sparse."""

    @property
    def streams(self) -> bool:
        """Whether `tiles` holds one tile in memory at a time, and not a whole chunk."""

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield chunk `index`, verified, in tiles that fit into the second-level cache."""

    def read(self, index: int) -> Rows:
        """Return chunk `index`, verified, in memory of its own."""

    def take(self, rows: I64) -> Rows:
        """Return the rows with the given numbers, in that order."""

    def take_bytes(self, rows: I64) -> int:
        """Return the bytes that `take` reads from storage for these rows: the parts of chunks in which they lie."""

    def advise(self, index: int) -> None:
        """Announce that chunk `index` is needed soon."""

    def chunk_bytes(self, index: int) -> int:
        """Return the most bytes that chunk `index` takes in memory."""

    def stream_bytes(self) -> int:
        """Return the bytes that one reader needs to stream the largest chunk."""
