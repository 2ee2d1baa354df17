"""The first half of a shuffle in bounded memory: rows are set aside on disk in random runs.

Each row goes to a run drawn at random. Each run is small enough to be permuted in memory afterwards, and both together
are a uniform permutation of all rows. Without a shuffle the runs are filled one after another and keep their order.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamsvm.data.label_lists import LabelLists
from streamsvm.numeric.permute import permute_rows
from streamsvm.numeric.rows import I64, CsrRows, Matrix, slice_rows

RUN_BYTES = 64 << 20
LISTS = ("label_values", "label_counts")  # the files of lists of labels
MAPPED = ("X", "data", "indices")  # the files of the features, which are read once, in random order
LEAST_MAPPED_BYTES = 1 << 20


@dataclass(frozen=True)
class SpilledRows:
    """Rows of a run. Labels are numbers, or provisional codes of texts."""

    X: Matrix
    vectors: dict[str, Any]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])


class Spill:
    """Runs of rows in a folder, where each array of a run is a file. Without a `seed` the rows keep their order."""

    def __init__(self, folder: Path, seed: int | None, expected_bytes: int) -> None:
        self.folder, self.seed = folder, seed
        self.n_runs = 1 if seed is None else max(1, -(-expected_bytes // RUN_BYTES))
        self.run_bytes: list[int] = [0] * self.n_runs
        self.dense_features: int | None = None
        self._pieces = 0
        self._dtypes: dict[str, np.dtype[Any]] = {}

    def add(self, X: Matrix, vectors: dict[str, Any]) -> None:
        """Set rows aside."""
        self._pieces += 1
        if not isinstance(X, CsrRows):
            self.dense_features = X.shape[1]
        if self.seed is None:
            if self.run_bytes[-1] >= RUN_BYTES:
                self.run_bytes.append(0)
            self._append(len(self.run_bytes) - 1, X, vectors)
            return
        if self.n_runs == 1:
            self._append(0, X, vectors)
            return
        run = np.random.default_rng((self.seed, 0, self._pieces)).integers(self.n_runs, size=(X.shape[0],))
        self._scatter(X, vectors, run, 0)

    def split_large_runs(self) -> None:
        """Scatter runs that outgrew memory over new ones; the size of the source was not known before."""
        run = 0
        while run < len(self.run_bytes):
            parts = self.run_bytes[run] // (2 * RUN_BYTES) + 1
            if self.seed is not None and parts > 1 and self._n_rows(run) > 1:
                first = len(self.run_bytes)
                self.run_bytes += [0] * parts
                for at, part in self._read_in_parts(run):
                    drawn = np.random.default_rng((self.seed, 1, run, at)).integers(parts, size=part.n_rows)
                    self._scatter(part.X, part.vectors, drawn, first)
                self.remove(run)
                self.run_bytes[run] = 0
            run += 1

    def remove(self, run: int) -> None:
        """Remove the files of a run, so that what is written next takes their memory in the system's cache."""
        for name in self._dtypes:
            (self.folder / f"{run}.{name}").unlink(missing_ok=True)

    def read_shuffled(self, run: int) -> tuple[SpilledRows, I64]:
        """Return a run's rows and the order in which they are to be written."""
        rows = self.read(run, 0, self._n_rows(run), 0)
        if self.seed is None:
            return rows, np.arange(rows.n_rows)
        return rows, np.random.default_rng((self.seed, 2, run)).permutation(rows.n_rows)

    def read(self, run: int, start: int, stop: int, first_item: int) -> SpilledRows:
        """Return the rows start:stop of a run. If they are sparse, the first begins at item `first_item` of the run."""
        vectors: dict[str, Any] = {
            name: self._load(run, name, start, stop - start)
            for name in self._dtypes
            if name not in ("data", "indices", "counts", "X", *LISTS)
        }
        if LISTS[0] in self._dtypes:
            vectors["label_sets"] = self._read_lists(run, start, stop)
        if self.dense_features is not None:
            d = self.dense_features
            X: Matrix = self._load(run, "X", start * d, (stop - start) * d).reshape(-1, d)
            return SpilledRows(X, vectors)
        indptr = np.concatenate(([0], np.cumsum(self._load(run, "counts", start, stop - start)))).astype(np.int64)
        data, indices = (self._load(run, name, first_item, int(indptr[-1])) for name in ("data", "indices"))
        return SpilledRows(CsrRows(data, indices, indptr, int(indices.max(initial=-1)) + 1), vectors)

    def _read_lists(self, run: int, start: int, stop: int) -> LabelLists:
        """Return the lists of labels of the rows start:stop of a run."""
        first = int(self._load(run, LISTS[1], 0, start).sum(dtype=np.int64))
        indptr = np.concatenate(([0], np.cumsum(self._load(run, LISTS[1], start, stop - start), dtype=np.int64)))
        return LabelLists(self._load(run, LISTS[0], first, int(indptr[-1])), indptr)

    def _read_in_parts(self, run: int) -> Iterator[tuple[int, SpilledRows]]:
        """Yield a run in parts of about a quarter of RUN_BYTES, each with the number of its first row."""
        n_rows, first_item = self._n_rows(run), 0
        step = max(1, n_rows * RUN_BYTES // (4 * self.run_bytes[run]))
        for at in range(0, n_rows, step):
            part = self.read(run, at, min(n_rows, at + step), first_item)
            first_item += len(part.X.data) if isinstance(part.X, CsrRows) else 0
            yield at, part

    def _scatter(self, X: Matrix, vectors: dict[str, Any], run: npt.NDArray[Any], first: int) -> None:
        """Append row i to the run first + run[i]."""
        if len(run) and run.max() < 1 << 16:
            run = run.astype(np.uint16)  # which NumPy sorts by radix, in a fraction of the time
        order = np.argsort(run, kind="stable")
        limits = np.searchsorted(run[order], np.arange(int(run.max()) + 2)) if len(run) else np.zeros(1, np.int64)
        X = permute_rows(X, order)
        for k in range(len(limits) - 1):
            part = slice(limits[k], limits[k + 1])
            if part.stop > part.start:
                mine = {name: values[order[part]] for name, values in vectors.items()}
                self._append(first + k, slice_rows(X, part), mine)

    def _append(self, run: int, X: Matrix, vectors: dict[str, Any]) -> None:
        arrays = dict(vectors)
        if (lists := arrays.pop("label_sets", None)) is not None:
            arrays |= dict(zip(LISTS, (lists.values, lists.counts), strict=True))
        if isinstance(X, CsrRows):
            arrays |= {"data": X.data, "indices": X.indices, "counts": np.diff(X.indptr)}
        else:
            arrays["X"] = np.ascontiguousarray(X)
        for name, values in arrays.items():
            self._dtypes.setdefault(name, values.dtype)
            with (self.folder / f"{run}.{name}").open("ab") as file:
                file.write(np.ascontiguousarray(values).data)  # `tofile` would not report a full disk
            self.run_bytes[run] += values.nbytes

    def _load(self, run: int, name: str, first: int, count: int) -> npt.NDArray[Any]:
        dtype = self._dtypes[name]
        path = self.folder / f"{run}.{name}"
        if count == 0 or not path.exists():
            return np.empty(0, dtype)
        if name in MAPPED and count * dtype.itemsize >= LEAST_MAPPED_BYTES:
            with suppress(OSError):  # some file systems of networks map no files
                return _map(path, dtype, first, count)
        return np.fromfile(path, dtype, count, offset=first * dtype.itemsize)

    def _n_rows(self, run: int) -> int:
        name = "X" if self.dense_features is not None else "counts"
        path = self.folder / f"{run}.{name}"
        if not path.exists():
            return 0
        return path.stat().st_size // self._dtypes[name].itemsize // (self.dense_features or 1)


def _map(path: Path, dtype: np.dtype[Any], first: int, count: int) -> npt.NDArray[Any]:
    """Return items of a file as the system's cache holds them, without a copy. The file may be removed meanwhile.

    The mapping is shared and writable, though nothing writes: a private one would be copied page by page when it is
    populated, and compiled code takes writable arrays. Without populating, every 16th page would cost a page fault.
    """
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    begin, end = first * dtype.itemsize, (first + count) * dtype.itemsize
    skip = begin % mmap.ALLOCATIONGRANULARITY
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), end - begin + skip, flags, offset=begin - skip)
    return np.frombuffer(mapped, dtype, count, skip)


def as_matrix(X: npt.NDArray[np.float32] | csr_array) -> Matrix:
    """Return X in our own form, whose slices cost less than SciPy's."""
    if isinstance(X, csr_array):
        return CsrRows(
            X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int64, copy=False), X.shape[1]
        )
    return X


def to_sparse(X: npt.NDArray[np.float32]) -> CsrRows:
    """Return dense rows as sparse rows without their zeros."""
    rows, columns = np.nonzero(X)
    counts = np.bincount(rows, minlength=len(X))
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return CsrRows(X[rows, columns], columns.astype(np.int32), indptr, X.shape[1])
