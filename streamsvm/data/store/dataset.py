"""A dataset on disk, which is read chunk by chunk. A pickled dataset holds its path and fingerprint, but no rows.

`ingest` writes a dataset as a Zarr group. The manifest describes its arrays, its scaling and its feature map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from streamsvm.data.remote.store import open_store
from streamsvm.data.rows.source import join_vectors
from streamsvm.data.store import manifest
from streamsvm.data.store.array import StoredArray
from streamsvm.data.store.layouts import VECTORS, CsrLayout, DenseLayout, Layout, check_vector
from streamsvm.data.store.places import open_cache
from streamsvm.data.store.zarr_arrays import describe_array_file
from streamsvm.kernels import stored_parts
from streamsvm.kernels.feature_maps import Features, KernelMap, unpack_features
from streamsvm.kernels.kernel import type_of
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.labels import sum_labels
from streamsvm.numeric.rows import F64, I32, I64, Rows, take_rows
from streamsvm.numeric.stored_types import Scaling
from streamsvm.system.display import Shown
from streamsvm.system.errors import InputError, IntegrityError, ReadError, TimeLimitError, say_count
from streamsvm.system.files import is_remote
from streamsvm.system.interrupts import waiting
from streamsvm.system.machine import format_bytes


@dataclass(frozen=True, repr=False)
class Dataset(Shown):
    """Rows on disk, in chunks that are verified as they are read. docs/storage.md describes the layout.

    `streamsvm.open` and `streamsvm.ingest` return datasets.

    Attributes
    ----------
    path : str
        Path of the Zarr group.
    n_rows, n_features : int
        Shape of X.
    chunk_starts : (n_chunks + 1,) int64
        Chunk k has the rows chunk_starts[k]:chunk_starts[k + 1].
    classes : (n_classes,) array or None
        The labels that occur, sorted; the stored y holds int32 indices into them. None for data without labels.
    class_counts : (n_classes,) int64 or None
        The number of rows of each class.
    fingerprint : str
        SHA-256 of the manifest, which changes with any stored value. For files without a manifest (AnnData) it depends
        on path, label and shape, and for a single `.h5ad` file on its size and modification time.
    scaling : Scaling or None
        The scaling applied to the features at ingest.
    feature_names : tuple of str or None
        Names of the features.
    features : Features or None
        The feature map that produced these rows, or None for raw rows.
    meta : dict
        The manifest, or a few entries in its place for an AnnData file.
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
    reads_groups: bool = False  # whether rows are read with their groups, which solvers do not need
    cache: str | None = None  # the folder for copies of chunks from an object store, and its limit (data.store.places)
    places: I32 | None = None  # maps codes in the stored y to codes in `classes`; None: both are the same
    on_disk = True

    def __reduce__(self) -> tuple[Any, ...]:
        from streamsvm.data.open import reopen_dataset, reopen_path

        path = self.path if is_remote(self.path) else str(Path(self.path).absolute())  # workers run in other folders
        facts = path, self.label, self.fingerprint, self.reads_groups, self.cache
        return reopen_dataset, (type(self), reopen_path, *facts)

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

    @cached_property
    def passed(self) -> dict[str, StoredArray]:
        """The vectors that are read with the rows: labels, targets, weights, query ids, and groups on request."""
        return {name: array for name, array in self.vectors.items() if name != "groups" or self.reads_groups}

    def read_groups(self) -> Dataset:
        """Return a dataset whose rows are read with their groups."""
        return replace(self, reads_groups=True)

    @cached_property
    def name(self) -> str:
        """The name of the dataset in messages."""
        return self.path

    def code_by(self, classes: npt.NDArray[Any]) -> Dataset:
        """Return the dataset with y recoded to `classes`, which must include all classes of the dataset."""
        assert self.classes is not None
        assert self.class_counts is not None
        if self.classes.tolist() == classes.tolist():
            return self
        place = {label: code for code, label in enumerate(classes.tolist())}
        places = np.array([place[label] for label in self.classes.tolist()], np.int32)
        counts = np.zeros(len(classes), np.int64)
        counts[places] = self.class_counts
        return replace(self, classes=classes, class_counts=counts, places=places)

    @cached_property
    def n_features(self) -> int:
        """Number of features."""
        return self.layout.n_features

    @cached_property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.chunk_starts) - 1

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all decoded rows."""
        return self.layout.nbytes + sum(v.length * v.row_bytes for v in self.passed.values())

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes that a pass reads from storage; fewer than `nbytes` for rows of narrow types."""
        return self.nbytes - self.layout.nbytes + sum(a.length * a.row_bytes for a in self.layout.arrays)

    @cached_property
    def dtype(self) -> str:
        """The type in which the features are stored. They are read as float32."""
        return self.layout.dtype

    @cached_property
    def is_shuffled(self) -> bool:
        """Whether ingest has shuffled the rows; always False for rows with query ids."""
        return self.meta.get("shuffle") is not None and "qid" not in self.vectors

    @cached_property
    def encoding(self) -> Encoding | None:
        """The encoding of table columns as features, before any feature map; None if all columns were numbers."""
        about = self.meta.get(manifest.ENCODING)
        return None if about is None else read_encoding(about)

    @cached_property
    def label_column(self) -> str | None:
        """The name of the label column in the table or in `obs` (AnnData); None if the user did not name it."""
        return self.label or self.meta.get(manifest.LABEL_COLUMN)

    @cached_property
    def read_as(self) -> dict[str, Any] | None:
        """The syntax of the files, where it is not the usual one, for models and appended rows; None if it is."""
        return self.meta.get(manifest.READ_AS)

    @cached_property
    def qid_column(self) -> str | None:
        """The table column that held the query ids, or None if the rows have no query ids."""
        return self.meta.get(manifest.QID_COLUMN)

    @cached_property
    def has_targets(self) -> bool:
        """Whether each row has a regression target (a number) instead of a class."""
        return "target" in self.vectors

    @cached_property
    def has_label_sets(self) -> bool:
        """Whether each row has a set of labels from `classes`, possibly an empty set."""
        return "label_sets" in self.vectors

    @cached_property
    def is_sparse(self) -> bool:
        """Whether the rows are stored in sparse form."""
        return isinstance(self.layout, CsrLayout)

    @cached_property
    def streams(self) -> bool:
        """Whether chunks are streamed tile by tile (raw chunks on a local disk), rather than decoded whole."""
        return self.layout.streams

    def sum_weights(self) -> F64 | None:
        """Return the sum of the sample weights of each class or label, or of all rows if they have targets.

        Rows without sample weights count 1 each. Return None if the rows have no labels. Labels and weights are read,
        but not features.
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

    def column(self, name: str, index: int | None = None) -> npt.NDArray[Any] | None:
        """Return a vector by its name (data.store.layouts.VECTORS), or None if the dataset does not have it.

        index: the chunk whose entries are returned; None: the entries of all rows are returned.
        """
        if name not in self.vectors:
            return None
        if index is not None:
            return self.read_vector(name, index)
        return np.concatenate([self.read_vector(name, each) for each in range(self.n_chunks)])

    def read_vector(self, name: str, index: int) -> npt.NDArray[Any]:
        """Return a vector (data.store.layouts.VECTORS) of the rows of chunk `index`."""
        start, stop = self._limits(index)
        return self._check_vector(name, self.vectors[name].read(start, stop), start)

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield chunk `index` in tiles, each valid until the next one. Raises IntegrityError if it is damaged."""
        with self._reading(index) as (start, stop, vectors):
            yield from join_vectors(self.layout.tiles(index, start, stop), start, vectors)

    def read(self, index: int) -> Rows:
        """Return chunk `index` in memory that the caller owns. Raises IntegrityError if it is damaged."""
        with self._reading(index) as (start, stop, vectors):
            return Rows(start, self.layout.read(start, stop), **vectors)

    @contextmanager
    def _reading(self, index: int) -> Iterator[tuple[int, int, dict[str, npt.NDArray[Any]]]]:
        """Yield start, stop and the vectors of chunk `index`. If the block fails, cancel pending reads."""
        self.advise(index)  # so that the arrays are read concurrently
        try:
            start, stop = self._limits(index)
            yield start, stop, {name: self.read_vector(name, index) for name in self.passed}
        except BaseException:
            for array in (*self.layout.arrays, *self.vectors.values()):
                array.forget_advised()
            raise

    def take(self, rows: npt.ArrayLike) -> Rows:
        """Return the rows with the given numbers, in the given order, read from disk and verified each time."""
        ordered, back = np.unique(self.find_numbers(rows), return_inverse=True)
        if not ordered.size:
            ordered = np.zeros(1, np.int64)  # one row is read to determine the types, and none is returned
        taken = {name: self.vectors[name].take(ordered, ordered + 1) for name in self.passed}
        columns = {name: self._check_vector(name, values, int(ordered[0]))[back] for name, values in taken.items()}
        X, is_ordered = self.layout.take(ordered), np.array_equal(back, np.arange(len(ordered)))
        return Rows(-1, X if is_ordered else take_rows(X, back), **columns)

    def find_numbers(self, rows: npt.ArrayLike) -> I64:
        """Return row numbers as an array. Raises InputError for a number outside the dataset."""
        wanted = np.asarray(rows, np.int64)
        if (outside := wanted[(wanted < 0) | (wanted >= self.n_rows)]).size:
            raise InputError(
                f"{self.path}: there is no row {outside[0]} (from 0) among {say_count(self.n_rows, 'row')}"
            )
        return wanted

    def take_bytes(self, rows: I64) -> int:
        """Return the size in bytes of the parts that hold these rows. Sparse rows are assumed to be equally long."""
        ordered, arrays = np.unique(rows), (*self.layout.arrays, *self.passed.values())
        limits = [[at * array.length // self.n_rows for at in (ordered, ordered + 1)] for array in arrays]
        return sum(array.take_bytes(*ends) for array, ends in zip(arrays, limits, strict=True))

    def check_parts(self) -> None:
        """Compare every part of every chunk with its checksum. Raises IntegrityError for the first mismatch."""
        for array in (*self.layout.arrays, *self.vectors.values()):
            array.check_parts()

    def advise(self, index: int) -> None:
        """Start reading chunk `index`, which this thread will soon need."""
        if index < self.n_chunks:
            start, stop = self._limits(index)
            for array in self.passed.values():
                array.advise(start, stop)
            self.layout.advise(index, start, stop)

    def chunk_bytes(self, index: int) -> int:
        """Return an upper bound on the bytes of chunk `index` in memory."""
        start, stop = self._limits(index)
        per_row = sum(array.row_bytes for array in self.passed.values())
        return self.layout.chunk_bytes(index, stop - start) + (stop - start) * per_row

    def stream_bytes(self) -> int:
        """Return the memory, in bytes, that one reader needs to stream the largest chunk."""
        largest = int(np.diff(self.chunk_starts).max())
        per_row = sum(array.row_bytes for array in self.passed.values())
        ahead_bytes = 4 * sum(array.ahead_bytes for array in self.passed.values())  # of two current and two next chunks
        return self.layout.stream_bytes(largest) + largest * per_row + ahead_bytes

    def _check_vector(self, name: str, values: npt.NDArray[Any], row: int) -> npt.NDArray[Any]:
        """Check a vector from storage, which begins at row `row`, and return it with y recoded to `classes`."""
        array = self.vectors[name]
        stored = self.classes if self.places is None else self.places
        check_vector(name, values, 0 if stored is None else len(stored), array.describe(row // array.chunk_rows))
        return values if self.places is None or name != "y" else self.places[values]

    def _limits(self, index: int) -> tuple[int, int]:
        return int(self.chunk_starts[index]), int(self.chunk_starts[index + 1])


Open = Callable[[str], StoredArray]


def read_scaling(path: str, meta: dict[str, Any], stored: Open) -> Scaling | None:
    """Return the scaling of the features, or None. Raises IntegrityError if the stored scaling is invalid."""
    if not meta["scaling"]:
        return None
    arrays = {name: stored(f"scaling/{name}").read(0, meta["n_features"]) for name in ("offset", "factor")}
    with suppress(ValueError):
        scaling = stored_parts.read_scaling(meta, arrays, meta["n_features"])
        if not (meta["sparse"] and arrays["offset"].any()):
            return scaling
    raise IntegrityError(
        f"{path}/scaling: is damaged: it does not hold the offsets and factors of a scaling; ingest the rows again"
    )


def read_features(path: str, meta: dict[str, Any], stored: Open) -> Features | None:
    """Return the feature map that produced the rows, or None. Raises IntegrityError if the map does not fit them."""
    if (about := meta.get("features")) is None:
        return None
    names = [name for name in meta["arrays"] if name.startswith(manifest.FEATURES)]
    arrays = {name.removeprefix(manifest.FEATURES): (array := stored(name)).read(0, array.length) for name in names}
    try:
        features = unpack_features(about, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise IntegrityError(
            f"{path}/{manifest.FEATURES}: the feature map cannot be read ({error!r}); write the features again"
        ) from error
    found = features.map
    is_wrong = isinstance(found, KernelMap) and (0 in found.matrix.shape or type_of(found.rows) != np.float32)
    if is_wrong or found.n_features != meta["n_features"]:
        raise IntegrityError(f"{path}/{manifest.FEATURES}: the map does not produce {meta['n_features']} features")
    return features


def read_manifest(text: str, group: zarr.Group, meta: dict[str, Any], cache: str | None = None) -> Dataset:
    """Check a manifest, and return the dataset that it describes. Raises the errors of `open_dataset`."""
    fingerprint = manifest.check_manifest(text, meta)
    copies = None if cache is None else open_cache(cache, fingerprint)
    stored = partial(manifest.open_stored, text, group, meta["arrays"], copies)
    classes = meta["classes"]
    dataset = Dataset(
        path=text,
        features=read_features(text, meta, stored),
        layout=_open_layout(meta, stored),
        vectors={name: stored(name) for name in VECTORS if name in meta["arrays"]},
        n_rows=meta["n_rows"],
        chunk_starts=np.asarray(meta["chunk_starts"], np.int64),
        classes=None if classes is None else np.asarray(classes),
        class_counts=None if classes is None else np.asarray(meta["class_counts"], np.int64),
        fingerprint=fingerprint,
        scaling=read_scaling(text, meta, stored),
        feature_names=None if meta["feature_names"] is None else tuple(meta["feature_names"]),
        meta=meta,
        cache=cache,
    )
    if copies is not None:
        if not all(array.is_raw for array in dataset.layout.arrays):
            raise InputError(
                f"{text}: --cache keeps only uncompressed chunks, and this dataset has compressed chunks; omit --cache"
            )
        copies.make_room(dataset.nbytes)
    return dataset


def open_group(path: str) -> tuple[zarr.Group, dict[str, Any]]:
    """Return the Zarr group at a path, and its manifest. The manifest is empty if streamsvm did not write the group."""
    if "://" not in path and not Path(path).exists():
        raise InputError(f"{path}: no such dataset")
    store: Any = open_store(path.rstrip("/")) if is_remote(path) else path if "://" in path else Path(path)
    try:
        with waiting():
            group = zarr.open_group(store, mode="r", use_consolidated=False)
        stored_meta: Any = group.attrs.asdict().get(manifest.ATTRIBUTE, {})
        meta: dict[str, Any] = dict(stored_meta)
    except (ReadError, TimeLimitError):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if is_remote(path) and isinstance(error, FileNotFoundError):
            store.require_bucket(path)
            raise InputError(f"{path}: no such dataset") from error
        if (found := describe_array_file(path)) is not None:
            raise InputError(
                f"{path}: is a Zarr array, {found}, and not a dataset: in Python, pass zarr.open_array({path!r}) to "
                "streamsvm.ingest or `fit`, with its labels y, or to `predict`"
            ) from error
        if Path(path, "zarr.json").is_file():
            raise IntegrityError(
                f"{path}/zarr.json: is damaged ({error}); restore the file, or ingest the rows again"
            ) from error
        why = "" if Path(path).is_file() else f" ({error})"
        made = "`streamsvm ingest` (streamsvm.ingest in Python) makes one from files"
        raise InputError(f"{path}: not a dataset; {made}{why}") from error
    return group, meta


def _open_layout(meta: dict[str, Any], stored: Callable[[str], StoredArray]) -> Layout:
    if not meta["sparse"]:
        return DenseLayout(stored("X"), is_narrow=meta["arrays"]["X"]["dtype"] != "float32")
    data, indices, indptr = (stored(f"X/{name}") for name in ("data", "indices", "indptr"))
    return CsrLayout(data, indices, indptr, meta["n_features"], meta["longest_row"])
