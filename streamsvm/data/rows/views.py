"""Views: sources that present the rows of another source with other labels or weights, or only a part of the rows.

A view consists of a source, a `RowTransform`, and the attributes in which it differs from the source. It passes all
other attributes through. Features stay as they are. If several problems share one read of the data, the engine reads
the common source, and each problem transforms the rows for itself.

`Mapped` presents the features Phi(x) of the rows, computed whenever rows are read. Nothing is stored: in a pass, the
task that reads a tile maps it. The features of a row must have the same bits in every pass and when the row is fetched
by its number, since certificates add up both. However, a matrix product may round a row differently if other rows
surround it, or if its position among them changes. Therefore all products have the same shape, a block of rows, and
each row has a fixed position in its block: its number within its chunk, modulo the block length. Missing rows are
zeros. The engine caches mapped chunks in memory, as far as they fit, rather than raw rows: a byte of features saves
more time than a byte of raw rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import RowSource, count_tile_rows
from streamsvm.kernels.feature_maps import Features, count_rows_at_a_time
from streamsvm.kernels.precomputed import MOST_ROWS, put_numbers
from streamsvm.numeric.labels import find_label, sum_labels
from streamsvm.numeric.rows import F32, F64, I32, I64, CsrRows, Matrix, Rows, join_rows, take_rows
from streamsvm.system.errors import InputError

Flags = npt.NDArray[np.bool_]
REST, ONE = 0, 1  # the labels of a one-against-rest problem


@dataclass(frozen=True)
class RowTransform:
    """Transforms rows by `function(rows, *parts)`, where the parts are the rows' entries of the arrays in `by_row`.

    The function must be importable by name, because workers import it. members: the ascending numbers of the rows that
    it keeps; None if it keeps all rows. A transformed tile has the `start` of the tile in the source, by which tiles
    can be sorted.
    """

    function: Callable[..., Rows]
    by_row: tuple[npt.NDArray[Any], ...] = ()
    members: I64 | None = None

    def apply(self, rows: Rows, numbers: slice | I64) -> Rows:
        """Transform rows, given their numbers in the source."""
        return self.function(rows, *(column[numbers] for column in self.by_row))

    def apply_in_place(self, rows: Rows) -> Rows:
        """Transform consecutive rows; `rows.start` is the number of the first one."""
        return self.apply(rows, slice(rows.start, rows.start + rows.n_rows))

    def to_source(self, rows: I64) -> I64:
        """Map row numbers of the view to row numbers of the source."""
        return rows if self.members is None else np.asarray(self.members[rows])


PUBLIC = {name for name in vars(RowSource) if not name.startswith("_")}


class View:
    """A source whose rows are the transformed rows of another source.

    facts: the attributes of RowSource that differ from those of the source. Unless its chunks differ from those of the
    source, a view has the fingerprint of the source; all views of a source therefore share its cached chunks.
    """

    first = 0  # the number in the source of the first chunk of the view

    def __init__(self, source: RowSource, transform: RowTransform, **facts: Any) -> None:
        self.source, self.transform = source, transform
        vars(self).update(facts)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the source, unless the view or its class defines it."""
        if name in PUBLIC:
            return getattr(self.source, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self.source.column(name, None if index is None else self.first + index)

    def tiles(self, index: int) -> Iterator[Rows]:
        """See RowSource."""
        return map(self._apply, self.source.tiles(self.first + index))

    def read(self, index: int) -> Rows:
        """See RowSource."""
        return self._apply(self.source.read(self.first + index))

    def take(self, rows: I64) -> Rows:
        """See RowSource."""
        numbers = self.transform.to_source(rows)
        return self.transform.apply(self.source.take(numbers), numbers)

    def take_bytes(self, rows: I64) -> int:
        """See RowSource."""
        return self.source.take_bytes(self.transform.to_source(rows))

    def advise(self, index: int) -> None:
        """See RowSource."""
        self.source.advise(self.first + index)

    def chunk_bytes(self, index: int) -> int:
        """See RowSource."""
        return self.source.chunk_bytes(self.first + index)

    def _apply(self, rows: Rows) -> Rows:
        """Transform consecutive rows of the source."""
        return self.transform.apply_in_place(rows)

    def _slice(self, values: npt.NDArray[Any], index: int | None) -> npt.NDArray[Any]:
        """Return the part of a vector of all rows that belongs to chunk `index` (None: the whole vector)."""
        return values if index is None else values[slice(*self.chunk_starts[index : index + 2].tolist())]


def unchanged(rows: Rows) -> Rows:
    """Return the rows as they are."""
    return rows


def single_out(rows: Rows, *, code: int) -> Rows:
    """Label the rows 1 if they have the class or label with this code, and 0 otherwise."""
    if rows.label_sets is not None:
        return replace(rows, y=find_label(rows.label_sets, code).astype(np.int32), label_sets=None)
    return rows if rows.y is None else replace(rows, y=(rows.y == code).astype(np.int32))


def pick_pair(rows: Rows, *, first: int, second: int) -> Rows:
    """Select the rows of two classes: label 1 for the class with code `first`, 0 for the class with code `second`."""
    y = (rows.codes == first).astype(np.int32)
    kept = np.flatnonzero((y == ONE) | (rows.codes == second))
    if len(kept) == rows.n_rows:
        return replace(rows, y=y)
    return replace(rows.pick(kept), start=rows.start, y=y[kept])


def zero_weight_outside(rows: Rows, kept: Flags) -> Rows:
    """Set the weight of all rows that are not kept to 0; every solver ignores rows of weight 0."""
    weight = kept.astype(np.float64) if rows.sample_weight is None else rows.sample_weight * kept
    return replace(rows, sample_weight=weight)


def sum_by_class(source: RowSource, weight: F64 | None) -> F64 | None:
    """Return the sum of the weights of the rows of each class or label, or of all rows if they have targets.

    weight: the weight of each row, (n,); None: 1 for each row. Return None if the rows have no labels.
    """
    if source.has_targets:
        return np.array([source.n_rows if weight is None else weight.sum()], np.float64)
    y, sets, classes = source.column("y"), source.column("label_sets"), source.classes
    if sets is not None and classes is not None:
        return sum_labels(sets, len(classes), weight)
    return None if y is None or classes is None else np.bincount(y, weight, len(classes)).astype(np.float64)


def count_classes(source: RowSource, kept: F64 | None = None) -> I64 | None:
    """Return the number of rows of each class or label; None without labels.

    kept: a flag for each row, 1 to count it.
    """
    sums = None if source.has_targets else sum_by_class(source, kept)
    return None if sums is None else sums.astype(np.int64)


def sum_label_weights(source: RowSource) -> F64:
    """Return, for each label, the sum of the sample weights of the rows without it and with it, (L, 2)."""
    sums, weight = source.sum_weights(), source.column("sample_weight")
    assert sums is not None
    total = source.n_rows if weight is None else float(np.sum(weight))
    return np.stack((total - sums, sums), axis=1)


class BinaryView(View):
    """The rows of a problem of two classes, REST and ONE."""

    classes = np.array([REST, ONE])


class OneVsRest(BinaryView):
    """The problem of one class or label: 1 for the rows that have the class or label with this code, 0 for all others.

    sums: if rows have sets of labels, the sums of the sample weights of the rows without and with this label, (2,).
    """

    def __init__(self, source: RowSource, code: int, sums: F64 | None = None) -> None:
        counts = source.class_counts
        total = source.n_rows if source.has_label_sets or counts is None else counts.sum()
        both = None if counts is None else np.array([total - counts[code], counts[code]])
        transform = RowTransform(partial(single_out, code=code))
        super().__init__(source, transform, class_counts=both, has_label_sets=False)
        self.code, self._sums = code, sums

    def sum_weights(self) -> F64 | None:
        """Return the sums of the sample weights of the rest, and of the rows with the class or label, (2,)."""
        sums = self.source.sum_weights() if self._sums is None else None
        return self._sums if sums is None else np.array([sums.sum() - sums[self.code], sums[self.code]])

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """See RowSource."""
        if not (self.source.has_label_sets and name in ("y", "label_sets")):
            values = super().column(name, index)
            return (values == self.code).astype(np.int32) if name == "y" and values is not None else values
        sets = super().column("label_sets", index) if name == "y" else None
        return None if sets is None else find_label(sets, self.code).astype(np.int32)


class HeldOut(View):
    """All rows of a source. Held-out rows have weight 0, but are still read."""

    def __init__(self, source: RowSource, kept: Flags) -> None:
        super().__init__(source, RowTransform(zero_weight_outside, (kept,)))
        self.kept = kept
        weight = source.column("sample_weight")
        self._weight: F64 = kept.astype(np.float64) if weight is None else weight * kept

    @cached_property
    def class_counts(self) -> I64 | None:
        """Number of kept rows in each class."""
        return count_classes(self.source, self.kept.astype(np.float64))

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of the kept rows in each class."""
        return sum_by_class(self.source, self._weight)

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """See RowSource."""
        return self._slice(self._weight, index) if name == "sample_weight" else super().column(name, index)


class ChunkRange(View):
    """The chunks `first` to `stop - 1` of a source. The rows keep their numbers in the source."""

    def __init__(self, source: RowSource, first: int, stop: int) -> None:
        starts = source.chunk_starts[first : stop + 1]
        n_rows = int(starts[-1] - starts[0])
        super().__init__(
            source,
            RowTransform(unchanged),
            fingerprint=f"{source.fingerprint}, chunks {first} to {stop}",
            n_rows=n_rows,
            n_chunks=stop - first,
            chunk_starts=starts,
            nbytes=source.nbytes * n_rows // source.n_rows,
            stored_bytes=source.stored_bytes * n_rows // source.n_rows,
        )
        self.first = first

    @cached_property
    def class_counts(self) -> I64 | None:
        """Number of rows of each class in these chunks."""
        return count_classes(self)

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class in these chunks."""
        return sum_by_class(self, self.column("sample_weight"))

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = super().column(name, index)
        if values is None or index is not None:
            return values
        return values[int(self.chunk_starts[0]) : int(self.chunk_starts[-1])]


class PairOfClasses(BinaryView):
    """The rows of two classes, numbered from 0: label 1 for the class with code `first`, 0 for that with code `second`.

    y: the codes of all rows of the source, which several views can share. members: the numbers of the selected rows.
    """

    def __init__(self, source: RowSource, y: I32, first: int, second: int) -> None:
        members = np.flatnonzero((y == first) | (y == second))
        self.members, self.codes = members, np.array([second, first])
        counts = source.class_counts
        super().__init__(
            source,
            RowTransform(partial(pick_pair, first=first, second=second), members=members),
            n_rows=len(members),
            chunk_starts=np.searchsorted(members, source.chunk_starts).astype(np.int64),
            nbytes=source.nbytes * len(members) // source.n_rows,
            class_counts=None if counts is None else counts[self.codes],
        )

    def sum_weights(self) -> F64 | None:
        """Return the sums of the sample weights of the two classes, (2,)."""
        sums = self.source.sum_weights()
        return None if sums is None else sums[self.codes]

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """See RowSource."""
        values = self.source.column(name)
        if values is None:
            return None
        own = self._slice(values[self.members], index)
        return (own == self.codes[ONE]).astype(np.int32) if name == "y" else own

    def _apply(self, rows: Rows) -> Rows:
        return replace(super()._apply(rows), start=int(np.searchsorted(self.members, rows.start)))


class NumberedRows(View):
    """The rows of a kernel matrix, each preceded by its row number (kernels.precomputed).

    Raises InputError unless the source is a square matrix of dense rows.
    """

    def __init__(self, source: RowSource) -> None:
        n, fault = source.n_rows, ""
        if source.is_sparse:
            fault = "rows of kernel values have to be dense"
        elif source.n_features != n:
            fault = "X.shape[0] should be equal to X.shape[1] (a square matrix); "
            fault += f"there are {n:,} rows of {source.n_features:,} values"
            if source.n_features == n + 1:
                fault += "; omit the row numbers of LIBSVM's format: sed 's/ 0:[0-9]*//'"
        elif source.is_shuffled or source.scaling is not None:
            fault = "the rows are shuffled or scaled; ingest them with --shuffle no and without --scale"
        elif n > MOST_ROWS:
            fault = f"{n:,} rows; at most {MOST_ROWS:,} can be numbered"
        if fault:
            raise InputError(f"{source.name}: kernel precomputed: {fault}")
        transform = RowTransform(put_numbers, (np.arange(n),))
        super().__init__(source, transform, n_features=n + 1, nbytes=source.nbytes + 4 * n)


BLOCK_ROWS = 512  # fewer if a row has so many features that a block would take too much memory
VECTOR_BYTES = 24  # an upper bound for the label, weight and query id of a row


class Mapped(View):
    """The features Phi(x) of the rows of a source. The map is applied to the rows with the scaling of the source."""

    on_disk = True  # so that mapped chunks are cached: mapping costs more than reading
    is_sparse = False
    streams = True
    scaling = None
    feature_names = None
    features: Features

    def __init__(self, source: RowSource, features: Features) -> None:
        super().__init__(source, RowTransform(unchanged), features=features, n_features=features.map.n_features)
        self._block_rows = min(BLOCK_ROWS, count_rows_at_a_time(features.map))
        self.nbytes = self.n_rows * self._row_bytes

    @cached_property
    def fingerprint(self) -> str:
        """See RowSource.

        The fingerprint differs from that of the source, so mapped chunks are not mistaken for raw chunks.
        """
        return f"{self.source.fingerprint}, mapped by {self.features.sha256}"

    @property
    def _row_bytes(self) -> int:
        return 4 * int(self.n_features) + VECTOR_BYTES

    def chunk_bytes(self, index: int) -> int:
        """See RowSource."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        return int(stop - start) * self._row_bytes

    def stream_bytes(self) -> int:
        """Return the bytes needed to stream the raw rows, to map a block of them, and to hold the map."""
        raw_bytes = 4 * self.source.nbytes // int(self.n_rows)
        block = self._block_rows * (8 * self.features.map.row_values + 4 * self._row_bytes + raw_bytes)
        return self.source.stream_bytes() + block + 2 * self.features.map.nbytes

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield the features of chunk `index`, cut into the tiles of `split_rows`."""
        return regroup(self._map_blocks(index), count_tile_rows(self.n_features))

    def read(self, index: int) -> Rows:
        """See RowSource."""
        start, stop = self.chunk_starts[index : index + 2].tolist()
        X: F32 = np.empty((stop - start, self.n_features), np.float32)
        vectors: list[dict[str, Any]] = []
        for rows in self._map_blocks(index):
            X[rows.start - start :][: rows.n_rows] = cast("F32", rows.X)
            vectors.append(rows.vectors)
        return Rows(start, X, **{name: np.concatenate([each[name] for each in vectors]) for name in vectors[0]})

    def take(self, rows: I64) -> Rows:
        """See RowSource. Rows of different blocks share one product if their positions in the blocks differ."""
        wanted = np.asarray(rows, np.int64)
        raw = self.source.take(wanted)
        starts = self.chunk_starts[np.searchsorted(self.chunk_starts, wanted, side="right") - 1]
        places = (wanted - starts) % self._block_rows
        X: F32 = np.empty((len(wanted), self.n_features), np.float32)
        padded = _add_zeros(raw.X)
        for chosen in _choose_blocks(places):
            X[chosen] = self._map_at(padded, chosen, places[chosen])
        return Rows(-1, X, **raw.vectors)

    def _map_blocks(self, index: int) -> Iterator[Rows]:
        for rows in regroup(self.source.tiles(index), self._block_rows):
            every = np.arange(rows.n_rows)
            yield Rows(rows.start, self._map_at(_add_zeros(rows.X), every, every), **rows.vectors)

    def _map_at(self, padded: Matrix, chosen: I64, places: I64) -> F32:
        """Return the features of the chosen rows, each at its position in a block. The last row of `padded` is zero."""
        lines = np.full(self._block_rows, padded.shape[0] - 1)
        lines[places] = chosen
        return self.features.apply(take_rows(padded, lines))[places]


def _add_zeros(X: Matrix) -> Matrix:
    """Return the rows with a row of zeros appended."""
    if isinstance(X, CsrRows):
        return CsrRows(X.data, X.indices, np.append(X.indptr, X.indptr[-1]), X.n_features)
    return np.concatenate([X, np.zeros((1, X.shape[1]), X.dtype)])


def _choose_blocks(places: I64) -> Iterator[I64]:
    """Yield the rows of each block, as indices in `places`: the k-th block has the k-th row at each position."""
    order = np.argsort(places, kind="stable")
    ascending = places[order]
    occurrence = np.arange(len(places)) - np.searchsorted(ascending, ascending)
    by_block = order[np.argsort(occurrence, kind="stable")]
    return iter(np.split(by_block, np.cumsum(np.bincount(occurrence))[:-1]) if len(places) else [])


def regroup(parts: Iterator[Rows], n_rows: int) -> Iterator[Rows]:
    """Yield the same consecutive rows in parts of n_rows; the last part may be shorter.

    A part is valid only until the next one is requested. This may also hold for the given parts.
    """
    kept: list[Rows] = []
    missing = n_rows
    for rows in parts:
        at = 0
        while rows.n_rows - at >= missing:
            parts_of = [*kept, rows.slice(slice(at, at + missing))]
            yield join_rows(parts_of, parts_of[0].start)
            at += missing
            kept, missing = [], n_rows
        if at < rows.n_rows:
            rest = rows.slice(slice(at, rows.n_rows))
            kept.append(Rows(rest.start, take_rows(rest.X, np.arange(rest.n_rows)), **rest.vectors))
            missing -= rest.n_rows
    if kept:
        yield join_rows(kept, kept[0].start)
