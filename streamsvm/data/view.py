"""Views: sources that show the rows of another source with other labels or weights, or only some of its chunks.

The features stay as they are. If several problems share one read of the data, the engine reads the source below their
views, and each problem alters the rows for itself. So a view also says how it alters rows (`Alteration`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.source import RowSource
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.label_sets import sum_labels
from streamsvm.numeric.rows import F64, I32, I64, Rows
from streamsvm.numeric.scaling import Scaling

Flags = npt.NDArray[np.bool_]
REST, ONE = 0, 1  # the labels of a problem of one class against the rest


@dataclass(frozen=True)
class Alteration:
    """How rows are altered: by alter(rows, *parts), where each part has the rows' entries of an array of `by_row`.

    The function must be importable by name, since workers import it.
    """

    alter: Callable[..., Rows]
    by_row: tuple[npt.NDArray[Any], ...] = ()

    def apply(self, rows: Rows, numbers: slice | I64) -> Rows:
        """Return the rows altered, given their numbers in the source."""
        return self.alter(rows, *(column[numbers] for column in self.by_row))

    def number(self, rows: I64) -> I64:
        """Return the numbers in the source of rows as the view numbers them."""
        return rows


class View:
    """A source that shows the rows of another source altered. Subclasses override whatever else differs from it."""

    def __init__(self, source: RowSource, alteration: Alteration) -> None:
        self.source, self.alteration = source, alteration

    @property
    def name(self) -> str:
        """See RowSource."""
        return self.source.name

    @property
    def fingerprint(self) -> str:
        """See RowSource. It is that of the source, so that chunks of the source in memory serve its views, too."""
        return self.source.fingerprint

    @property
    def n_rows(self) -> int:
        """See RowSource."""
        return self.source.n_rows

    @property
    def n_features(self) -> int:
        """See RowSource."""
        return self.source.n_features

    @property
    def n_chunks(self) -> int:
        """See RowSource."""
        return self.source.n_chunks

    @property
    def chunk_starts(self) -> I64:
        """See RowSource."""
        return self.source.chunk_starts

    @property
    def nbytes(self) -> int:
        """See RowSource."""
        return self.source.nbytes

    @property
    def on_disk(self) -> bool:
        """See RowSource."""
        return self.source.on_disk

    @property
    def stored_bytes(self) -> int:
        """See RowSource."""
        return self.source.stored_bytes

    @property
    def is_shuffled(self) -> bool:
        """See RowSource."""
        return self.source.is_shuffled

    @property
    def is_sparse(self) -> bool:
        """See RowSource."""
        return self.source.is_sparse

    @property
    def has_targets(self) -> bool:
        """See RowSource."""
        return self.source.has_targets

    @property
    def has_label_sets(self) -> bool:
        """See RowSource."""
        return self.source.has_label_sets

    @property
    def streams(self) -> bool:
        """See RowSource."""
        return self.source.streams

    @property
    def scaling(self) -> Scaling | None:
        """See RowSource."""
        return self.source.scaling

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """See RowSource."""
        return self.source.feature_names

    @property
    def label_column(self) -> str | None:
        """See RowSource."""
        return self.source.label_column

    @property
    def qid_column(self) -> str | None:
        """See RowSource."""
        return self.source.qid_column

    @property
    def encoding(self) -> Encoding | None:
        """See RowSource."""
        return self.source.encoding

    @property
    def features(self) -> Features | None:
        """See RowSource."""
        return self.source.features

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self.source.classes

    @property
    def class_counts(self) -> I64 | None:
        """See RowSource."""
        return self.source.class_counts

    def sum_weights(self) -> F64 | None:
        """See RowSource."""
        return self.source.sum_weights()

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self.source.column(name)

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self.source.column_of(name, index)

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        for rows in self.source.tiles(index):
            yield self.alteration.apply(rows, slice(rows.start, rows.start + rows.n_rows))

    def read(self, index: int) -> Rows:
        """See RowSource."""
        rows = self.source.read(index)
        return self.alteration.apply(rows, slice(rows.start, rows.start + rows.n_rows))

    def take(self, rows: I64) -> Rows:
        """See RowSource."""
        return self.alteration.apply(self.source.take(rows), rows)

    def take_bytes(self, rows: I64) -> int:
        """See RowSource."""
        return self.source.take_bytes(rows)

    def advise(self, index: int) -> None:
        """See RowSource."""
        self.source.advise(index)

    def chunk_bytes(self, index: int) -> int:
        """See RowSource."""
        return self.source.chunk_bytes(index)

    def stream_bytes(self) -> int:
        """See RowSource."""
        return self.source.stream_bytes()


def single_out(rows: Rows, *, code: int) -> Rows:
    """Return the rows with label 1 for the class of this code, and 0 for the rest."""
    return rows if rows.y is None else replace(rows, y=(rows.y == code).astype(np.int32))


def weigh(rows: Rows, kept: Flags) -> Rows:
    """Return the rows, with weight 0 for those that are not kept. Weight 0 makes every solver leave a row out."""
    weight = kept.astype(np.float64) if rows.sample_weight is None else rows.sample_weight * kept
    return replace(rows, sample_weight=weight)


def leave(rows: Rows) -> Rows:
    """Return the rows as they are."""
    return rows


def sum_by_class(y: I32 | None, weight: F64 | None, classes: npt.NDArray[Any] | None) -> F64 | None:
    """Return the sum of the weights (None: the number) of the rows of each class, or None for rows without labels."""
    if y is None or classes is None:
        return None
    return np.bincount(y, weight, len(classes)).astype(np.float64)


class OneClass(View):
    """The rows of a problem of one class against the rest: label 1 for the class of this code, 0 for the rest."""

    def __init__(self, source: RowSource, code: int) -> None:
        super().__init__(source, Alteration(partial(single_out, code=code)))
        self.code = code

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The labels of the rest and of the class."""
        return np.array([REST, ONE])

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of the rest and of the class, (2,)."""
        counts = self.source.class_counts
        return None if counts is None else np.array([counts.sum() - counts[self.code], counts[self.code]])

    def sum_weights(self) -> F64 | None:
        """Return the sums of the sample weights of the rest and of the class, (2,)."""
        sums = self.source.sum_weights()
        return None if sums is None else np.array([sums.sum() - sums[self.code], sums[self.code]])

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.source.column(name)
        return self._code(name, values)

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self._code(name, self.source.column_of(name, index))

    def _code(self, name: str, values: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return (values == self.code).astype(np.int32) if name == "y" and values is not None else values


class Kept(View):
    """All rows, with weight 0 for those that are held out. Held-out rows are read all the same."""

    def __init__(self, source: RowSource, kept: Flags) -> None:
        super().__init__(source, Alteration(weigh, (kept,)))
        self.kept = kept
        weight = source.column("sample_weight")
        self._weight: F64 = kept.astype(np.float64) if weight is None else weight * kept

    @property
    def class_counts(self) -> I64 | None:
        """Number of rows of each class that are kept."""
        sums = self._sum(self.kept.astype(np.float64))
        return None if sums is None else sums.astype(np.int64)

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class, over the rows that are kept."""
        return np.array([self._weight.sum()]) if self.has_targets else self._sum(self._weight)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self._weight if name == "sample_weight" else self.source.column(name)

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """See RowSource."""
        own = slice(*self.chunk_starts[index : index + 2].tolist())
        return self._weight[own] if name == "sample_weight" else self.source.column_of(name, index)

    def _sum(self, weight: F64) -> F64 | None:
        sets, classes = self.source.column("label_sets"), self.source.classes
        if sets is not None and classes is not None:
            return sum_labels(sets, len(classes), weight)
        return sum_by_class(self.source.column("y"), weight, classes)
