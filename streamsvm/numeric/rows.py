"""Rows in memory, dense or sparse: select, slice, stack, permute, sample, pack and convert them.

In the canonical form of sparse rows, the columns of a row ascend and none occurs twice. Products of two sparse rows
need this form, and so do sums with reproducible bits. Rows from other sources may repeat a column; its value is then
the sum of its items, as in SciPy and AnnData.

Compiled code that visits rows in random order calls `prefetch` to announce an array entry that it will read soon.
Without it, every visit waits for main memory: an epoch of coordinate ascent takes two to three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from scipy.sparse import csr_array

from streamsvm.system.errors import InputError

READ, KEEP, DATA = 0, 3, 1  # arguments of LLVM's prefetch: for reading, kept in all caches, data rather than code


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Prefetch an entry of a contiguous array. index: counted over all dimensions, as in the flattened array."""

    def write_code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(context.make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])
        integer, address = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [address, integer, integer, integer])
        fetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(fetch, [builder.bitcast(place, address), integer(READ), integer(KEEP), integer(DATA)])
        return context.get_dummy_value()

    return types.void(array, index), write_code


F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Values = F32 | F64

ROWS_AHEAD = 8  # the number of rows ahead at which rows in random order are prefetched
LINE_ITEMS = 16  # float32 or int32 values in a cache line


@dataclass(frozen=True, slots=True)
class CsrRows:
    """Sparse rows: row i holds data[indptr[i]:indptr[i+1]] at the columns indices[indptr[i]:indptr[i+1]]."""

    data: F32
    indices: I32
    indptr: I64
    n_features: int

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return len(self.indptr) - 1, self.n_features

    @property
    def nbytes(self) -> int:
        """The bytes of the three arrays."""
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes


Matrix = F32 | CsrRows


class Split(NamedTuple):
    """Rows as compiled code takes them: dense values (n, d), or the data, indices and indptr of sparse rows.

    A function is compiled separately for each layout: if it branches on `values.ndim`, the compiler omits the branch of
    the other layout. The arrays that dense rows do not need are empty.
    """

    values: Values
    indices: I32
    indptr: I64


NO_INDICES, NO_INDPTR = np.empty(0, np.int32), np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows, the first of which is row `start` of the dataset, or arbitrary rows (start = -1).

    y holds codes into the dataset's classes, or is None if the rows have no classes. target holds the numbers that a
    regression predicts, if the dataset has targets in place of classes. groups identifies the rows that
    cross-validation holds out together. label_sets holds the labels of each row as bits (numeric.labels), in place of
    y, if rows have any number of labels. scores (n, k) holds the scores that a pass needs, if they are already
    computed. numbers (n,) holds the row numbers, if these are known and not consecutive. chosen holds the places of the
    rows that are written to a subset (passes.Subset). Rows that a dataset streams are valid only until the next rows
    are read, because their memory is reused.
    """

    start: int
    X: Matrix
    y: I32 | None = None
    sample_weight: F64 | None = None
    qid: I64 | None = None
    target: F64 | None = None
    scores: F64 | None = None
    groups: I64 | None = None
    label_sets: U8 | None = None
    numbers: I64 | None = None
    chosen: I64 | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def weights(self) -> F64:
        """The sample weights, 1 for rows without weights."""
        return np.ones(self.n_rows) if self.sample_weight is None else self.sample_weight

    @property
    def codes(self) -> I32:
        """The codes y of rows that have classes."""
        assert self.y is not None
        return self.y

    @property
    def vectors(self) -> dict[str, Any]:
        """The vectors that are present (labels, weights and so on), by name."""
        names = ("y", "sample_weight", "qid", "target", "groups", "label_sets")
        return {name: values for name in names if (values := getattr(self, name)) is not None}

    def list_numbers(self) -> I64:
        """Return the row numbers, (n,)."""
        return np.arange(self.start, self.start + self.n_rows) if self.numbers is None else self.numbers

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays in memory."""
        return int(self.X.nbytes + sum(values.nbytes for values in self.vectors.values()))

    def pick(self, places: I64) -> Rows:
        """Return copies of the rows at these places, with start = -1 and without scores."""
        return Rows(-1, take_rows(self.X, places), **{name: values[places] for name, values in self.vectors.items()})

    def slice(self, part: slice) -> Rows:
        """Return the rows part.start:part.stop as views, without scores."""
        vectors = {name: values[part] for name, values in self.vectors.items()}
        return Rows(self.start + part.start, slice_rows(self.X, part), **vectors)


def join_rows(parts: Sequence[Rows], start: int = -1) -> Rows:
    """Return the concatenated rows of several parts; a single part is returned unchanged. start: that of the result."""
    if len(parts) == 1:
        return parts[0]
    vectors: dict[str, Any] = {
        name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors
    }
    return Rows(start, stack_rows([part.X for part in parts]), **vectors)


def split(X: Matrix) -> Split:
    """Return X as compiled code takes it; read-only arrays are copied, since code would be compiled again for them."""
    if isinstance(X, CsrRows):
        data, indices = np.require(X.data, requirements="W"), np.require(X.indices, requirements="W")
        return Split(data, indices, np.require(X.indptr, requirements="W"))
    return Split(np.require(X, requirements="W"), NO_INDICES, NO_INDPTR)


@register_jitable
def find_items(values: Values, indptr: I64, i: int) -> tuple[int, int]:
    """Return the first item of row i and the end of its items, for `read_item`."""
    if values.ndim == 2:
        return 0, values.shape[1]
    return indptr[i], indptr[i + 1]


@register_jitable
def read_item(values: Values, indices: I32, i: int, e: int) -> tuple[int, float]:
    """Return the feature and the value of item e of row i."""
    if values.ndim == 2:
        return e, values[i, e]
    return indices[e], values[e]


@njit(cache=True, nogil=True)
def _gather(data: F32, indices: I32, indptr: I64, order: I64, to_data: F32, to_indices: I32, to_indptr: I64) -> None:
    """Copy rows. Places are unsigned, since compiled code checks whether a signed index is negative."""
    at, n = np.uint64(0), order.size
    for i in range(n):
        if i + 2 * ROWS_AHEAD < n:
            prefetch(indptr, order[i + 2 * ROWS_AHEAD])
        if i + ROWS_AHEAD < n:
            first = indptr[order[i + ROWS_AHEAD]]
            for k in (first, first + LINE_ITEMS):
                prefetch(data, k)
                prefetch(indices, k)
        row = np.uint64(order[i])
        first, n_items = np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)] - indptr[row])
        for k in range(n_items):
            to_data[at + k], to_indices[at + k] = data[first + k], indices[first + k]
        at += n_items
        to_indptr[i + 1] = at


def take_rows(X: Matrix, order: I64) -> Matrix:
    """Return a copy of the rows order[0], order[1], ... of X."""
    if not isinstance(X, CsrRows):
        return X[order]
    n_items = int((X.indptr[order + 1] - X.indptr[order]).sum())
    taken = CsrRows(
        np.empty(n_items, X.data.dtype), np.empty(n_items, np.int32), np.zeros(len(order) + 1, np.int64), X.n_features
    )
    _gather(X.data, X.indices, X.indptr, order, taken.data, taken.indices, taken.indptr)
    return taken


def slice_rows(X: Matrix, part: slice) -> Matrix:
    """Return the rows part.start:part.stop of X, as a view."""
    if not isinstance(X, CsrRows):
        return X[part]
    indptr = X.indptr[part.start : part.stop + 1]
    items = slice(indptr[0], indptr[-1])
    return CsrRows(X.data[items], X.indices[items], indptr - indptr[0], X.n_features)


def stack_rows(parts: list[Matrix]) -> Matrix:
    """Return the rows of several matrices, all dense or all sparse, stacked vertically."""
    sparse = [part for part in parts if isinstance(part, CsrRows)]
    if not sparse:
        return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
    ends = np.cumsum([0, *(len(part.data) for part in sparse)])
    indptr = [part.indptr[1:] + end for part, end in zip(sparse, ends[:-1], strict=True)]
    data, indices = (np.concatenate([getattr(part, name) for part in sparse]) for name in ("data", "indices"))
    return CsrRows(data, indices, np.concatenate([np.zeros(1, np.int64), *indptr]), sparse[0].n_features)


def keep_features(X: CsrRows, n_features: int) -> CsrRows:
    """Return X with `n_features` features: later features are dropped, missing features are zero."""
    if X.n_features <= n_features:
        return CsrRows(X.data, X.indices, X.indptr, n_features)
    kept = X.indices < n_features
    indptr = np.concatenate(([0], np.cumsum(kept)))[X.indptr]
    return CsrRows(X.data[kept], X.indices[kept], indptr, n_features)


def choose_features(X: Matrix, places: I32) -> Matrix:
    """Return X with some of its features, in order. places (d,): the new place of each feature, or -1 to drop it."""
    if not isinstance(X, CsrRows):
        return X if np.all(places >= 0) else X[:, places >= 0]
    at = places[X.indices]
    kept = at >= 0
    indptr = np.concatenate(([0], np.cumsum(kept)))[X.indptr]
    return CsrRows(X.data[kept], at[kept], indptr, int(np.count_nonzero(places >= 0)))


def to_dense(X: CsrRows) -> F32:
    """Return sparse rows as dense rows (n, d) with the same dtype."""
    dense = np.zeros(X.shape, X.data.dtype)
    dense[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices] = X.data
    return dense


def pack_rows(X: Matrix, name: str) -> dict[str, Any]:
    """Return rows as a mapping of arrays to save: dense rows under `name`, sparse rows as data, indices and indptr."""
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr} if isinstance(X, CsrRows) else {name: X}


@njit(cache=True, nogil=True)
def _ascend(indices: I32, indptr: I64) -> bool:
    """Return whether the columns of every row ascend, so that descents occur only between rows.

    The loop over all items has no branch, so it runs in vector registers, in a third of the time of a product.
    """
    first, stop, descents = indptr[0], indptr[-1], 0
    before, after = indices[first : max(stop - 1, first)], indices[first + 1 : stop]
    for k in range(after.size):
        descents += int(after[k] <= before[k])
    for i in range(1, indptr.size - 1):
        e = indptr[i]
        if indptr[i - 1] < e < stop:
            descents -= int(indices[e] <= indices[e - 1])
    return descents == 0


def make_canonical_rows(X: CsrRows) -> CsrRows:
    """Return X itself if it is canonical, else a canonical copy, in which the items of a row in one column are summed.

    The indices and row limits of X must lie within its arrays. Sums are computed in float64 and rounded to the dtype of
    X. Raises InputError if they overflow.
    """
    if _ascend(X.indices, X.indptr):
        return X
    rows = csr_array((X.data.astype(np.float64), X.indices.copy(), X.indptr.copy()), shape=X.shape)
    rows.sum_duplicates()
    with np.errstate(over="ignore"):
        data = rows.data.astype(X.data.dtype)
    if not np.isfinite(data).all():
        raise InputError("the items that a sparse row has in one column add up to more than float32 can hold")
    return CsrRows(data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), X.n_features)


# Kernels hold 4 bytes per feature. From WIDE features on, it pays to renumber the features that occur, by sorting the
# items, if there are more than ITEM_FEATURES features per item.
WIDE, ITEM_FEATURES = 1 << 22, 8
DENSE_VALUES = 1 << 17  # the values of sparse rows that are made dense at once: 1 MiB in float64
LEAST_ROWS = 64  # the least rows of a part, since the work on all columns costs each part as much as about 20 rows
MOST_VALUES = 1 << 22  # the most values of a part of several rows: 32 MiB in float64, which no memory plan counts


def match_parts(X: Matrix, Z: Matrix) -> Iterator[tuple[slice, Matrix, Matrix]]:
    """Yield slices of the rows X, each with these rows and the columns Z in one layout.

    Sparse rows that become dense take 1 MiB per part. If this is less than LEAST_ROWS rows, and less than the number of
    columns, a part has that many rows, as far as 32 MiB suffice.
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
    return (to_dense(X) if isinstance(X, CsrRows) else X), Z


def compact_features(X: CsrRows, Z: CsrRows) -> tuple[CsrRows, CsrRows]:
    """Return X and Z with only the features that occur, renumbered in order; products and sums keep their bits."""
    used = np.unique(np.concatenate((X.indices, Z.indices)))
    indices = (np.searchsorted(used, rows.indices).astype(np.int32) for rows in (X, Z))
    x, z = (CsrRows(rows.data, own, rows.indptr, max(1, len(used))) for rows, own in zip((X, Z), indices, strict=True))
    return x, z


def drop_zeros(X: F32) -> CsrRows:
    """Return dense rows as sparse rows, without the zeros."""
    rows, columns = np.nonzero(X)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(X))))).astype(np.int64)
    return CsrRows(X[rows, columns], columns.astype(np.int32), indptr, X.shape[1])


@njit(cache=True, nogil=True)
def count_nonzeros(X: F32) -> tuple[int, int]:
    """Return the number of nonzero values in all rows, and the largest number in one row."""
    total, most = 0, 0
    for i in range(X.shape[0]):
        count = 0
        for j in range(X.shape[1]):
            count += X[i, j] != 0
        total += count
        most = max(most, count)
    return total, most


def make_writable(value: Any) -> Any:
    """Return a writable copy of a read-only array from another process; compiled kernels take only writable arrays."""
    if isinstance(value, CsrRows):
        data, indices, indptr = map(make_writable, (value.data, value.indices, value.indptr))
        return CsrRows(data, indices, indptr, value.n_features)
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value.copy(order="K")  # A matrix product in another memory order may have other last bits.
    return value


def permute_rows(X: Matrix, order: I64) -> Matrix:
    """Return a copy of the rows order[0], order[1], ... of X, with prefetching for dense rows as well."""
    if isinstance(X, CsrRows):
        return take_rows(X, order)
    taken = np.empty((len(order), X.shape[1]), np.float32)
    _copy_dense(np.require(X, requirements=("C", "W")), order, taken)
    return taken


def permute_to_dense(X: CsrRows, order: I64, n_features: int) -> F32:
    """Return the rows order[0], order[1], ... of X as dense rows; X has at most `n_features` features."""
    taken = np.zeros((len(order), n_features), np.float32)
    _copy_items(X.data, X.indices, X.indptr, order, taken)
    return taken


@njit(cache=True, nogil=True)
def _copy_dense(X: F32, order: I64, taken: F32) -> None:
    n, d = taken.shape
    for i in range(n):
        if i + ROWS_AHEAD < n:
            first = order[i + ROWS_AHEAD] * d
            for k in range(first, first + d, LINE_ITEMS):
                prefetch(X, k)
            prefetch(X, first + d - 1)
        row = order[i]
        for j in range(d):
            taken[i, j] = X[row, j]


@njit(cache=True, nogil=True)
def _copy_items(data: F32, indices: I32, indptr: I64, order: I64, taken: F32) -> None:
    n = order.size
    for i in range(n):
        if i + 2 * ROWS_AHEAD < n:
            prefetch(indptr, order[i + 2 * ROWS_AHEAD])
        if i + ROWS_AHEAD < n:
            row = order[i + ROWS_AHEAD]
            for k in range(indptr[row], indptr[row + 1], LINE_ITEMS):
                prefetch(data, k)
                prefetch(indices, k)
        for k in range(indptr[order[i]], indptr[order[i] + 1]):
            taken[i, indices[k]] = data[k]


def draw_sample(number: int, n_rows: int, seed: int, is_shuffled: bool) -> I64:
    """Return the row numbers of a random sample, ascending; all rows if `number` is at least n_rows.

    If the rows are shuffled, the sample is the first rows, which can be read without the others.
    """
    if number >= n_rows or is_shuffled:
        return np.arange(min(number, n_rows))
    return np.unique(np.random.default_rng((seed, 0)).integers(0, n_rows, number))


def find_first_rows(rows: Rows, numbers: I64) -> Rows | None:
    """Return `rows` if their ascending numbers are those of the first rows, so that a pass can skip them; else None."""
    return rows if len(numbers) and numbers[-1] == len(numbers) - 1 else None


def weigh_rows(rows: Rows, weight: F64 | float) -> Rows:
    """Return a sample with the weight of each row multiplied by `weight`, the number of rows that it represents."""
    return replace(rows, start=0, sample_weight=weight * rows.weights)
