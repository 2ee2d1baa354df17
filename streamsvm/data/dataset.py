"""A dataset on disk, which is read chunk by chunk, and pickled as its path and its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.checks import check_vector
from streamsvm.data.csr_layout import CsrLayout
from streamsvm.data.layouts import Layout
from streamsvm.data.manifest import ENCODING, LABEL_COLUMN, QID_COLUMN
from streamsvm.data.row_tiles import join_vectors
from streamsvm.data.store import StoredArray
from streamsvm.errors import InputError, say_count
from streamsvm.machine import format_bytes
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.label_sets import sum_labels
from streamsvm.numeric.rows import F64, I32, I64, Rows, take_rows
from streamsvm.numeric.scaling import Scaling
from streamsvm.shown import Shown


@dataclass(frozen=True, repr=False)
class Dataset(Shown):
    """Rows on disk, in chunks that are verified as they are read. docs/storage.md describes the layout.

    `streamsvm.open` and `streamsvm.ingest` return it.

    Attributes
    ----------
    path : str
        Path of the Zarr group.
    n_rows, n_features : int
        Shape of X.
    chunk_starts : (n_chunks + 1,) int64
        Chunk k is the rows chunk_starts[k]:chunk_starts[k + 1].
    classes : (n_classes,) array or None
        The labels that occur, sorted; the stored y holds int32 positions in it. None for data without labels.
    class_counts : (n_classes,) int64 or None
        The rows of each class.
    fingerprint : str
        SHA-256 of the manifest, which changes when any stored value does. For files without a manifest (AnnData) it
        depends on path, label and shape alone.
    scaling : Scaling or None
        How the features were scaled at ingest.
    feature_names : tuple of str or None
        Names of the features.
    features : Features or None
        The feature map that produced these rows, or None for raw rows.
    meta : dict
        The manifest, or a stand-in for AnnData.
    """

    path: str
    layout: Layout
    vectors: dict[str, StoredArray]
    n_rows: int
    chunk_starts: I64
    classes: npt.NDArray[Any] | None
    class_counts: I64 | None
    fingerprint: str
    scaling: Scaling | None
    feature_names: tuple[str, ...] | None
    meta: dict[str, Any]
    label: str | None = None
    features: Features | None = None
    reads_groups: bool = False  # whether rows have their groups, which no solver reads
    cache: str | None = None  # where copies of chunks of a store are kept (data.disk_cache)
    places: I32 | None = None  # of the classes that the stored y counts, among `classes`; None if these are the same
    on_disk = True

    def __reduce__(self) -> tuple[Any, ...]:
        from streamsvm.data.open_dataset import reopen_dataset

        return reopen_dataset, (self.path, self.label, self.fingerprint, self.reads_groups, self.cache)

    def _list_facts(self) -> dict[str, str | None]:
        labels = None if self.classes is None else f"{len(self.classes):,}"
        return {
            "path": self.path,
            "rows": f"{self.n_rows:,}",
            "features": f"{self.n_features:,}, {'sparse' if self.is_sparse else 'dense'}",
            "labels" if self.has_label_sets else "classes": labels,
            "targets": "numbers to be predicted" if self.has_targets else None,
            "scaling": None if self.scaling is None else self.scaling.kind,
            "size": f"{format_bytes(self.nbytes)} in {say_count(self.n_chunks, 'chunk')}",
        }

    @property
    def passed(self) -> dict[str, StoredArray]:
        """The vectors that are read with the rows: labels, targets, weights, query ids, and groups on request."""
        return {name: array for name, array in self.vectors.items() if name != "groups" or self.reads_groups}

    def read_groups(self) -> Dataset:
        """Return the dataset whose rows have their groups."""
        return replace(self, reads_groups=True)

    @property
    def name(self) -> str:
        """The name of the dataset in messages."""
        return self.path

    def code_by(self, classes: npt.NDArray[Any]) -> Dataset:
        """Return the dataset with other classes, among which are all of its own, so that y counts these."""
        assert self.classes is not None
        assert self.class_counts is not None
        if self.classes.tolist() == classes.tolist():
            return self
        place = {label: code for code, label in enumerate(classes.tolist())}
        places = np.array([place[label] for label in self.classes.tolist()], np.int32)
        counts = np.zeros(len(classes), np.int64)
        counts[places] = self.class_counts
        return replace(self, classes=classes, class_counts=counts, places=places)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.layout.n_features

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.chunk_starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded rows."""
        return self.layout.nbytes + sum(v.length * v.row_bytes for v in self.passed.values())

    @property
    def stored_bytes(self) -> int:
        """Bytes that a pass reads: all that are stored, which are fewer than `nbytes` for rows of narrow types."""
        return self.nbytes - self.layout.nbytes + sum(a.length * a.row_bytes for a in self.layout.arrays)

    @property
    def dtype(self) -> str:
        """The type in which the features are stored. Whoever reads them gets float32."""
        return self.layout.dtype

    @property
    def is_shuffled(self) -> bool:
        """Whether ingest has shuffled the rows. It does not shuffle rows that belong to queries."""
        return self.meta.get("shuffle") is not None and "qid" not in self.vectors

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of a table became the features, before any map, or None if they were numbers."""
        about = self.meta.get(ENCODING)
        return None if about is None else read_encoding(about)

    @property
    def label_column(self) -> str | None:
        """The column of the table, or of `obs` in an AnnData file, that held the labels, if the user has named it."""
        return self.label or self.meta.get(LABEL_COLUMN)

    @property
    def qid_column(self) -> str | None:
        """The column of the table that held the query ids, if there are any."""
        return self.meta.get(QID_COLUMN)

    @property
    def has_targets(self) -> bool:
        """Whether each row has a target, the number that a regression predicts, in place of a class."""
        return "target" in self.vectors

    @property
    def has_label_sets(self) -> bool:
        """Whether each row has any number of labels, and `classes` are these labels."""
        return "label_sets" in self.vectors

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are stored as sparse rows."""
        return isinstance(self.layout, CsrLayout)

    @property
    def streams(self) -> bool:
        """Whether chunks are streamed tile by tile, as raw chunks on a local disk are, and not decoded whole."""
        return self.layout.streams

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class or label (without weights: its rows).

        Labels and weights are read, but no features. None without labels.
        """
        if self.has_targets:
            weight = self.column("sample_weight")
            return np.array([self.n_rows if weight is None else weight.sum()], np.float64)
        if self.class_counts is None or "sample_weight" not in self.vectors:
            return None if self.class_counts is None else self.class_counts.astype(np.float64)
        sums = np.zeros(len(self.class_counts))
        for index in range(self.n_chunks):
            weight = self.read_vector("sample_weight", index)
            if self.has_label_sets:
                sums += sum_labels(self.read_vector("label_sets", index), len(sums), weight)
            else:
                sums += np.bincount(self.read_vector("y", index), weight, len(sums))
        return sums

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return a vector of all rows by its name (data.checks.VECTORS), or None if there is none."""
        if name not in self.vectors:
            return None
        return np.concatenate([self.read_vector(name, index) for index in range(self.n_chunks)])

    def column_of(self, name: str, index: int) -> npt.NDArray[Any] | None:
        """Return the part of `column(name)` that belongs to the rows of chunk `index`."""
        return self.read_vector(name, index) if name in self.vectors else None

    def read_vector(self, name: str, index: int) -> npt.NDArray[Any]:
        """Return a vector of the rows of chunk `index` by its name (data.checks.VECTORS)."""
        return self._read_vector(name, *self._limits(index))

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield chunk `index` in tiles, each valid until the next one. Raises IntegrityError if it is damaged."""
        with self._reading(index) as (start, stop, vectors):
            yield from join_vectors(self.layout.tiles(index, start, stop), start, vectors)

    def read(self, index: int) -> Rows:
        """Return chunk `index` in memory of its own. Raises IntegrityError if it is damaged."""
        with self._reading(index) as (start, stop, vectors):
            return Rows(start, self.layout.read(start, stop), **vectors)

    @contextmanager
    def _reading(self, index: int) -> Iterator[tuple[int, int, dict[str, npt.NDArray[Any]]]]:
        """Yield the limits and the vectors of chunk `index`. What is read ahead is forgotten if the block fails."""
        self.advise(index)  # so that the arrays are read side by side
        try:
            start, stop = self._limits(index)
            yield start, stop, {name: self._read_vector(name, start, stop) for name in self.passed}
        except BaseException:
            for array in (*self.layout.arrays, *self.vectors.values()):
                array.forget_advised()
            raise

    def take(self, rows: npt.ArrayLike) -> Rows:
        """Return the rows with the given numbers, in that order, read from disk and verified each time."""
        wanted = np.asarray(rows, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= self.n_rows)]
        if outside.size:
            raise InputError(f"{self.path}: row {outside[0]} of {say_count(self.n_rows, 'row')}")
        ordered, back = np.unique(wanted, return_inverse=True)
        if not ordered.size:
            ordered = np.zeros(1, np.int64)  # one row is read to learn the types, and none is returned
        columns = {name: self._take_vector(name, ordered)[back] for name in self.passed}
        return Rows(-1, take_rows(self.layout.take(ordered), back), **columns)

    def take_bytes(self, rows: I64) -> int:
        """Return the bytes of the parts in which these rows lie, as if all sparse rows were equally long."""
        ordered, arrays = np.unique(rows), (*self.layout.arrays, *self.passed.values())
        limits = [[at * array.length // self.n_rows for at in (ordered, ordered + 1)] for array in arrays]
        return sum(array.take_bytes(*ends) for array, ends in zip(arrays, limits, strict=True))

    def check_parts(self) -> None:
        """Compare every part of every chunk with its checksum. Raises IntegrityError for the first that differs."""
        for array in (*self.layout.arrays, *self.vectors.values()):
            array.check_parts()

    def advise(self, index: int) -> None:
        """Begin to read chunk `index`, which this thread will read soon."""
        if index < self.n_chunks:
            start, stop = self._limits(index)
            for array in self.passed.values():
                array.advise(start, stop)
            self.layout.advise(index, start, stop)

    def chunk_bytes(self, index: int) -> int:
        """Return the most bytes that chunk `index` takes in memory."""
        start, stop = self._limits(index)
        per_row = sum(array.row_bytes for array in self.passed.values())
        return self.layout.chunk_bytes(index, stop - start) + (stop - start) * per_row

    def stream_bytes(self) -> int:
        """Return the bytes that one reader needs to stream the largest chunk."""
        largest = int(np.diff(self.chunk_starts).max())
        per_row = sum(array.row_bytes for array in self.passed.values())
        ahead_bytes = 4 * sum(array.ahead_bytes for array in self.passed.values())  # two chunks now, and two next
        return self.layout.stream_bytes(largest) + largest * per_row + ahead_bytes

    def _read_vector(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        return self._check_vector(name, self.vectors[name].read(start, stop), start)

    def _take_vector(self, name: str, rows: I64) -> npt.NDArray[Any]:
        return self._check_vector(name, self.vectors[name].take(rows, rows + 1), int(rows[0]))

    def _check_vector(self, name: str, values: npt.NDArray[Any], row: int) -> npt.NDArray[Any]:
        """Return a vector as it was read, but for y, which counts the classes; IntegrityError for bad values."""
        array = self.vectors[name]
        stored = self.classes if self.places is None else self.places
        check_vector(name, values, 0 if stored is None else len(stored), array.describe(row // array.chunk_rows))
        return values if self.places is None or name != "y" else self.places[values]

    def _limits(self, index: int) -> tuple[int, int]:
        return int(self.chunk_starts[index]), int(self.chunk_starts[index + 1])
