"""A dataset on disk: a Zarr group that is opened by path, read chunk by chunk, and pickles to a few hundred bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import zarr

from streamsvm.data.layouts import CsrLayout, DenseLayout, Layout, split
from streamsvm.data.store import StoredArray
from streamsvm.errors import InputError, IntegrityError
from streamsvm.numeric.feature_maps import Features, unpack_features
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, stack_rows, take_rows
from streamsvm.numeric.scaling import Scaling

FORMAT = 1
ATTRIBUTE = "streamsvm"
FEATURES = "features/"  # folder of the arrays of a feature map


@dataclass(frozen=True)
class Dataset:
    """n rows of d features on disk, in chunks; the README's section on data describes the layout.

    y holds codes into `classes`; `chunk_starts` is (n_chunks + 1,): chunk k is rows chunk_starts[k]:chunk_starts[k+1].
    `fingerprint` changes when any stored value does (a manifest of checksums); for files without a manifest
    (AnnData) it names path and shape only.
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
    on_disk = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self.label, self.fingerprint)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path

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
        """Bytes of all rows once decoded."""
        return self.layout.nbytes + sum(v.length * v.row_bytes for v in self.vectors.values())

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored sparse."""
        return isinstance(self.layout, CsrLayout)

    @property
    def streams(self) -> bool:
        """Whether chunks are streamed in tiles (raw chunks on a local disk), not decoded whole."""
        return self.layout.streams

    def sum_weights(self) -> F64 | None:
        """Sum of the sample weights of each class, or its rows without weights; reads labels and weights only."""
        if self.class_counts is None or "sample_weight" not in self.vectors:
            return None if self.class_counts is None else self.class_counts.astype(np.float64)
        sums = np.zeros(len(self.class_counts))
        for index in range(self.n_chunks):
            y, weight = (self.vectors[name].read(*self._limits(index)) for name in ("y", "sample_weight"))
            sums += np.bincount(y, weight, len(sums))
        return sums

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return "y" (codes), "sample_weight" or "qid" of all rows, None if there is none; reads no features."""
        if name not in self.vectors:
            return None
        return np.concatenate([self.vectors[name].read(*self._limits(index)) for index in range(self.n_chunks)])

    def tiles(self, index: int) -> Iterator[Rows]:
        """Stream chunk `index`; a tile is valid until the next is asked for. IntegrityError if damaged."""
        start, stop = self._limits(index)
        vectors = {name: array.read(start, stop) for name, array in self.vectors.items()}
        return _with_vectors(self.layout.tiles(index, start, stop), start, vectors)

    def read(self, index: int) -> Rows:
        """Chunk `index` in memory of its own."""
        start, stop = self._limits(index)
        vectors = {name: array.read(start, stop) for name, array in self.vectors.items()}
        return Rows(start, self.layout.read(start, stop), **vectors)

    def take(self, rows: npt.ArrayLike) -> Rows:
        """Return the rows with those numbers, in that order, read from disk on demand; a chunk is verified once."""
        wanted = np.asarray(rows, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= self.n_rows)]
        if outside.size:
            raise InputError(f"{self.path}: row {outside[0]} of {self.n_rows} rows")
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order] if wanted.size else np.zeros(1, np.int64)  # one row is read, and none is kept
        chunk = np.searchsorted(self.chunk_starts, ordered, side="right") - 1
        parts, vectors = [], {name: [] for name in self.vectors}  # type: ignore[var-annotated]
        for index in np.unique(chunk).tolist():
            mine = ordered[chunk == index]
            parts.append(self.layout.take(index, mine))
            for name, array in self.vectors.items():
                vectors[name].append(array.read(int(mine[0]), int(mine[-1]) + 1)[mine - mine[0]])
        back = np.argsort(order, kind="stable")
        columns = {name: np.concatenate(values)[back] for name, values in vectors.items()}
        return Rows(-1, take_rows(stack_rows(parts), back), **columns)

    def advise(self, index: int) -> None:
        """Ask the kernel to read chunk `index` ahead."""
        self.layout.advise(index)

    def chunk_bytes(self, index: int) -> int:
        """Most bytes that chunk `index` takes in memory."""
        start, stop = self._limits(index)
        per_row = sum(array.row_bytes for array in self.vectors.values())
        return self.layout.chunk_bytes(index, stop - start) + (stop - start) * per_row

    def stream_bytes(self) -> int:
        """Memory that one reader needs to stream the largest chunk."""
        largest = int(np.diff(self.chunk_starts).max())
        per_row = sum(array.row_bytes for array in self.vectors.values())
        return self.layout.stream_bytes(largest) + largest * per_row

    def _limits(self, index: int) -> tuple[int, int]:
        return int(self.chunk_starts[index]), int(self.chunk_starts[index + 1])


def _with_vectors(tiles: Iterator[Matrix], start: int, vectors: dict[str, Any]) -> Iterator[Rows]:
    at = 0
    for X in tiles:
        end = at + X.shape[0]
        yield Rows(start + at, X, **{name: values[at:end] for name, values in vectors.items()})
        at = end


def split_rows(rows: Rows) -> Iterator[Rows]:
    """Cut rows in memory into the tiles in which they would be streamed."""
    names = ("y", "sample_weight", "qid")
    vectors = {name: getattr(rows, name) for name in names if getattr(rows, name) is not None}
    return _with_vectors(split(rows.X), rows.start, vectors)


@lru_cache(maxsize=8)
def _reopen(path: str, label: str | None, fingerprint: str) -> Dataset:
    dataset = open_dataset(path, label)
    if dataset.fingerprint != fingerprint:
        raise IntegrityError(f"{path}: the dataset was replaced while it was in use")
    return dataset


def open_dataset(path: str | Path, label: str | None = None) -> Dataset:
    """Open a dataset that `ingest` wrote, or an AnnData `.zarr` (label: the column of obs to learn).

    Raises InputError when there is none, IntegrityError when its metadata are damaged.
    """
    from streamsvm.data.anndata import open_anndata

    text = str(path).removeprefix("file://")
    if "://" not in text and not Path(text).exists():
        raise InputError(f"{text}: no such dataset")
    try:
        group = zarr.open_group(text, mode="r")
        meta = dict(cast(dict[str, Any], group.attrs.asdict().get(ATTRIBUTE, {})))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if Path(text, "zarr.json").is_file():
            raise IntegrityError(f"{text}/zarr.json: damaged ({error})") from error
        raise InputError(f"{text}: not a dataset ({error})") from error
    if not meta:
        return open_anndata(text, group, label)
    if meta.get("format") != FORMAT:
        raise InputError(f"{text}: format {meta.get('format')!r}; this version of streamsvm reads format {FORMAT}")
    fingerprint = meta.pop("sha256", None)
    if fingerprint != fingerprint_of(meta):
        raise IntegrityError(f"{text}/zarr.json: the manifest is damaged")
    stored = partial(_open_array, text, group, meta["arrays"])
    layout: Layout
    if meta["sparse"]:
        parts = [stored(f"X/{name}") for name in ("data", "indices", "indptr")]
        layout = CsrLayout(parts[0], parts[1], parts[2], meta["n_features"], meta["longest_row"])
    else:
        layout = DenseLayout(stored("X"))
    scaling = None
    if meta["scaling"]:
        scaling = Scaling(
            meta["scaling"], *(stored(f"scaling/{n}").read(0, meta["n_features"]) for n in ("offset", "factor"))
        )
    return Dataset(
        path=text,
        features=_read_features(text, meta, stored),
        layout=layout,
        vectors={name: stored(name) for name in ("y", "sample_weight", "qid") if name in meta["arrays"]},
        n_rows=meta["n_rows"],
        chunk_starts=np.asarray(meta["chunk_starts"], np.int64),
        classes=None if meta["classes"] is None else np.asarray(meta["classes"]),
        class_counts=None if meta["classes"] is None else np.asarray(meta["class_counts"], np.int64),
        fingerprint=fingerprint,
        scaling=scaling,
        feature_names=None if meta["feature_names"] is None else tuple(meta["feature_names"]),
        meta=meta,
    )


def _read_features(path: str, meta: dict[str, Any], stored: Callable[[str], StoredArray]) -> Features | None:
    """Return what made the rows of others, None if nothing did."""
    if (about := meta.get("features")) is None:
        return None
    names = [name for name in meta["arrays"] if name.startswith(FEATURES)]
    arrays = {name.removeprefix(FEATURES): (array := stored(name)).read(0, array.length) for name in names}
    try:
        return unpack_features(about, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: its feature map cannot be read ({error!r})") from error


def fingerprint_of(meta: dict[str, Any]) -> str:
    """SHA-256 of the metadata, the checksum of every chunk included."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def describe_array(array: zarr.Array[Any]) -> dict[str, Any]:
    """Return what the manifest says of an array, so that damaged Zarr metadata are found."""
    codecs = [codec.to_dict() for codec in array.metadata.codecs]  # type: ignore[union-attr]
    layout = {"shape": list(array.shape), "chunks": list(array.chunks), "dtype": str(array.dtype), "codecs": codecs}
    return json.loads(json.dumps(layout))  # type: ignore[no-any-return]


def _open_array(path: str, group: zarr.Group, manifest: dict[str, Any], name: str) -> StoredArray:
    try:
        array = group[name]
    except (KeyError, ValueError, TypeError) as error:
        raise IntegrityError(f"{path}/{name}/zarr.json: missing or damaged ({error})") from error
    entry = manifest[name]
    if not isinstance(array, zarr.Array) or describe_array(array) != {
        k: v for k, v in entry.items() if k != "checksums"
    }:
        raise IntegrityError(f"{path}/{name}/zarr.json: damaged (not what the manifest says)")
    return StoredArray(array, name, np.frombuffer(bytes.fromhex(entry["checksums"]), "<u4"))
