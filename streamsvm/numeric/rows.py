"""Rows in memory, dense or sparse: select, slice, stack, permute, sample, convert and multiply them.

    scores = X W'                      (n, k)   scores of the rows for k weight vectors
    total[bucket_e] += coef_e x_{row_e}         linear combinations of rows, several at once

Data are float32 and sums float64. Only these two products treat dense and sparse rows differently: compiled code calls
`scores_of` and `add_rows_of` with the arrays of `split`, for rows of either layout.

In the canonical form of sparse rows, the columns of a row ascend and none occurs twice. Products of two sparse rows
need this form, and so do sums with reproducible bits. Rows from other sources may repeat a column; its value is then
the sum of its items, as in SciPy and AnnData.

Compiled code that visits rows in random order calls `prefetch` to announce an array entry that it will read soon.
Without it, every visit waits for main memory: an epoch of coordinate ascent takes two to three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
Flags = npt.NDArray[np.bool_]
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

    def keep_features(self, n_features: int) -> CsrRows:
        """Return the rows with `n_features` features: later features are dropped, missing features are zero."""
        if self.n_features <= n_features:
            return CsrRows(self.data, self.indices, self.indptr, n_features)
        return self.keep_items(self.indices < n_features, self.indices, n_features)

    def keep_items(self, kept: Flags, columns: I32, n_features: int) -> CsrRows:
        """Return the rows with some of their items, whose flags in `kept` are set, in the given columns."""
        indptr = np.concatenate(([0], np.cumsum(kept)))[self.indptr]
        return CsrRows(self.data[kept], columns[kept], indptr, n_features)


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

    def weigh(self, weight: F64 | float) -> Rows:
        """Return a sample with the weight of each row multiplied by `weight`, the number of rows that it represents."""
        return replace(self, start=0, sample_weight=weight * self.weights)

    def slice(self, part: slice) -> Rows:
        """Return the rows part.start:part.stop as views, without scores."""
        vectors = {name: values[part] for name, values in self.vectors.items()}
        return Rows(self.start + part.start, slice_rows(self.X, part), **vectors)

    def cut(self, size: int) -> Iterator[Rows]:
        """Cut the rows into parts of at most `size` rows."""
        return (self.slice(slice(at, at + size)) for at in range(0, self.n_rows, size))


def join_rows(parts: Sequence[Rows], start: int = -1) -> Rows:
    """Return the concatenated rows of several parts; a single part is returned unchanged. start: see Rows."""
    if len(parts) == 1:
        return parts[0]
    vectors: dict[str, Any] = {
        name: np.concatenate([part.vectors[name] for part in parts]) for name in parts[0].vectors
    }
    return Rows(start, stack_rows([part.X for part in parts]), **vectors)


def split(X: Matrix) -> Split:
    """Return X as compiled code takes it; read-only arrays are copied, since code would be compiled again for them."""
    if isinstance(X, CsrRows):
        return Split(make_writable(X.data), make_writable(X.indices), make_writable(X.indptr))
    return Split(make_writable(X), NO_INDICES, NO_INDPTR)


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
    """Copy rows. Indices are unsigned, since compiled code checks whether a signed index is negative."""
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


def choose_features(X: Matrix, places: I32) -> Matrix:
    """Return X with some of its features, in order. places (d,): the new place of each feature, or -1 to drop it."""
    if not isinstance(X, CsrRows):
        return X if np.all(places >= 0) else X[:, places >= 0]
    at = places[X.indices]
    return X.keep_items(at >= 0, at, int(np.count_nonzero(places >= 0)))


def to_dense(X: Matrix) -> F32:
    """Return sparse rows as dense rows (n, d) with the same dtype; dense rows are returned as they are."""
    if not isinstance(X, CsrRows):
        return X
    dense = np.zeros(X.shape, X.data.dtype)
    dense[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices] = X.data
    return dense


def pack_rows(X: Matrix, name: str) -> dict[str, Any]:
    """Return rows as a mapping of arrays to save: dense rows under `name`, sparse rows as data, indices and indptr."""
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr} if isinstance(X, CsrRows) else {name: X}


@njit(cache=True, nogil=True)
def _ascend(indices: I32, indptr: I64) -> bool:
    """Return whether the columns of every row ascend.

    A descent is allowed only from the end of a row to the start of the next one. The loop over all items has no branch,
    so it runs in vector registers, in a third of the time of a product.
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
        raise InputError("a sparse row has several items in one column, and their sum exceeds the range of float32")
    return CsrRows(data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64), X.n_features)


def to_factor(X: Matrix | F64, dtype: Any = np.float64) -> Any:
    """Return X as a factor of matrix products with @: an array, or a sparse array of SciPy."""
    if isinstance(X, CsrRows):
        return csr_array((X.data.astype(dtype, copy=False), X.indices, X.indptr), shape=X.shape)
    return X.astype(dtype, copy=False)


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


def make_all_writable(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values, with a writable copy of each that `make_writable` copies."""
    return tuple(map(make_writable, values))


def permute_rows(X: Matrix, order: I64) -> Matrix:
    """Return the same rows as `take_rows`, but prefetch dense rows, which is faster in random order."""
    if isinstance(X, CsrRows):
        return take_rows(X, order)
    taken = np.empty((len(order), X.shape[1]), np.float32)
    _copy_dense(np.require(X, requirements=("C", "W")), order, taken)
    return taken


def permute_to_dense(X: CsrRows, order: I64, n_features: int, omitted: float | F64 = 0.0) -> F32:
    """Return the rows order[0], order[1], ... of X as dense rows; X has at most `n_features` features.

    omitted: the value, or the value of each feature, for which sparse rows store nothing.
    """
    taken = np.full((len(order), n_features), omitted, np.float32)
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
    """Return `rows` if they are the first rows of the dataset, so that a pass need not read them again; else None.

    numbers: the row numbers, ascending.
    """
    return rows if len(numbers) and numbers[-1] == len(numbers) - 1 else None


SCORED_ROWS = 256  # number of rows whose scores are computed at a time; a multiple of four, see _dense_scores


REORDERED_SUMS = {"reassoc", "contract", "nsz"}  # LLVM may use vector registers; the order is still fixed


@register_jitable(fastmath=REORDERED_SUMS)
def _dense_scores(X: F32, W: F64, scores: F64) -> None:
    """Compute X W' for four rows and two weight vectors at a time, so that every loaded number is used more than once.

    If the last group is incomplete, the last row or weight vector is computed again in place of the missing ones.
    """
    last, d = X.shape[0] - 1, X.shape[1]
    for i in range(0, last + 1, 4):
        i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        x0, x1, x2, x3 = X[i], X[i1], X[i2], X[i3]
        for c in range(0, W.shape[0], 2):
            c1 = min(c + 1, W.shape[0] - 1)
            u, v = W[c], W[c1]
            u0, u1, u2, u3, v0, v1, v2, v3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for j in range(d):
                u0 += x0[j] * u[j]
                u1 += x1[j] * u[j]
                u2 += x2[j] * u[j]
                u3 += x3[j] * u[j]
                v0 += x0[j] * v[j]
                v1 += x1[j] * v[j]
                v2 += x2[j] * v[j]
                v3 += x3[j] * v[j]
            scores[i, c], scores[i1, c], scores[i2, c], scores[i3, c] = u0, u1, u2, u3
            scores[i, c1], scores[i1, c1], scores[i2, c1], scores[i3, c1] = v0, v1, v2, v3


@register_jitable
def _csr_scores(data: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    for i in range(indptr.size - 1):
        for c in range(W.shape[0]):
            total = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                total += data[e] * W[c, indices[e]]
            scores[i, c] = total


@njit(cache=True, nogil=True)
def scores_of(values: F32, indices: I32, indptr: I64, W: F64, scores: F64) -> None:
    """Write X W' into scores (n, k). The first three arguments come from `split`."""
    if values.ndim == 2:
        _dense_scores(values, W, scores)
    else:
        _csr_scores(values, indices, indptr, W, scores)


def compute_scores(X: Matrix, W: F64) -> F64:
    """Return X W', (n, k) float64, for W of shape (k, d) with a small k."""
    scores = np.empty((X.shape[0], len(W)))
    scores_of(*split(X), W, scores)
    return scores


@njit(cache=True, nogil=True)
def _scores_of_parts(
    values: F32, indices: I32, indptr: I64, W: F64, columns: I64, limits: I64, n_rows: int, scores: F64
) -> None:
    """Compute the scores of SCORED_ROWS rows at a time, and copy them to their parts while they are in the cache."""
    some = np.empty((SCORED_ROWS, W.shape[0]))
    for at in range(0, n_rows, SCORED_ROWS):
        n = min(SCORED_ROWS, n_rows - at)
        if values.ndim == 2:
            scores_of(values[at : at + n], indices, indptr, W, some[:n])
        else:
            scores_of(values, indices, indptr[at : at + n + 1], W, some[:n])
        for part in range(limits.size - 1):
            first, width = limits[part], limits[part + 1] - limits[part]
            for i in range(n):
                for c in range(width):
                    scores[first * n_rows + (at + i) * width + c] = some[i, columns[first + c]]


def compute_scores_of_parts(X: Matrix, W: F64, columns: I64, limits: I64) -> list[F64]:
    """Return the scores X W' by parts: part p has the scores, (n, k_p), of the vectors columns[limits[p]:limits[p+1]].

    W (m, d): weight vectors; several parts may use the same vector, whose scores are computed once.
    """
    n = X.shape[0]
    scores = np.empty(n * len(columns))
    _scores_of_parts(*split(X), W, columns, limits, n, scores)
    return [scores[n * first : n * end].reshape(n, end - first) for first, end in pairwise(limits.tolist())]


@register_jitable
def _add_dense(X: F32, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    """Add four rows at a time if they belong to one bucket, so that its sums are loaded and stored once."""
    e, n = 0, row.size
    while e < n:
        sums = total[bucket[e]]
        if e + 3 < n and bucket[e] == bucket[e + 1] == bucket[e + 2] == bucket[e + 3]:
            x0, x1, x2, x3 = X[row[e]], X[row[e + 1]], X[row[e + 2]], X[row[e + 3]]
            c0, c1, c2, c3 = coef[e], coef[e + 1], coef[e + 2], coef[e + 3]
            for j in range(x0.size):
                sums[j] += (c0 * x0[j] + c1 * x1[j]) + (c2 * x2[j] + c3 * x3[j])
            e += 4
        else:
            x, c = X[row[e]], coef[e]
            for j in range(x.size):
                sums[j] += c * x[j]
            e += 1


@register_jitable
def _add_csr(data: F32, indices: I32, indptr: I64, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    for e in range(row.size):
        sums, c = total[bucket[e]], coef[e]
        for k in range(indptr[row[e]], indptr[row[e] + 1]):
            sums[indices[k]] += c * data[k]


@njit(cache=True, nogil=True)
def add_rows_of(values: F32, indices: I32, indptr: I64, row: I64, bucket: I64, coef: F64, total: F64) -> None:
    """Add coef_e x_{row_e} to total[bucket_e] for each e, in order. The first three arguments come from `split`."""
    if values.ndim == 2:
        _add_dense(values, row, bucket, coef, total)
    else:
        _add_csr(values, indices, indptr, row, bucket, coef, total)


def add_rows(total: F64, X: Matrix, row: I64, bucket: I64, coef: F64) -> None:
    """Add coef_e x_{row_e} to total[bucket_e] for each e, in order. total is (k, at least d) float64."""
    add_rows_of(*split(X), row, bucket, make_writable(coef), total)


@register_jitable
def add_row_to_all(values: F32, indices: I32, indptr: I64, i: int, coefs: Values, W: Values) -> None:
    """Add row i times the coefficients (k,) to weights that are stored by feature, (at least d, k)."""
    first, end = find_items(values, indptr, i)
    for e in range(first, end):
        feature, x = read_item(values, indices, i, e)
        weights = W[feature]
        if x != 0.0:
            for k in range(coefs.size):
                weights[k] += x * coefs[k]


def score_rows(X: Matrix, w: F64, bias_feature: float) -> F64:
    """Return w.x of rows x, (n,), where x includes the constant feature.

    w (d+1,): the constant feature's weight is last.
    """
    scores: F64 = compute_scores(X, w[None, :-1])[:, 0] + bias_feature * w[-1]
    return scores


def add_combination(total: F64, X: Matrix, row: I64, coef: F64, bias_feature: float) -> None:
    """Add the sum of coef_e x_{row_e} to total (d+1,), where x has the constant feature as its last entry."""
    add_rows(total[None, :], X, row, np.zeros_like(row), coef)
    total[-1] += bias_feature * float(np.sum(coef))
