"""A dataset to which rows were appended: its additions, one below the other, with the interface of a dataset.

The first addition is the dataset as ingest wrote it. Each further one is what one `ingest --append` has added, a whole
dataset of its own in the folder `appended`. No file of an addition ever changes, so who has opened the dataset keeps
his view of it while rows are appended. The manifest lists the additions by their fingerprints (docs/storage.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.dataset import Dataset, open_group, read_manifest
from streamsvm.data.manifest import APPENDED, APPENDS_TO, JOINED_FORMAT, Meta, check_joined, make_fingerprint
from streamsvm.errors import InputError, IntegrityError, say_count
from streamsvm.numeric.rows import F64, I64, Rows, stack_rows, take_rows


@dataclass(frozen=True, repr=False)
class JoinedDataset(Dataset):
    """The rows of several additions in the order in which they were written.

    Attributes
    ----------
    additions : tuple of Dataset
        The dataset as ingest wrote it, and what was appended each time.
    """

    additions: tuple[Dataset, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded rows."""
        return sum(addition.nbytes for addition in self.additions)

    @property
    def stored_bytes(self) -> int:  # type: ignore[override]
        """Bytes that a pass reads."""
        return self.nbytes

    @property
    def is_shuffled(self) -> bool:
        """No: rows that were appended come last, and these may be rows of another kind."""
        return False

    def read_groups(self) -> JoinedDataset:
        """See Dataset."""
        return replace(self, reads_groups=True, additions=tuple(each.read_groups() for each in self.additions))

    def sum_weights(self) -> F64 | None:
        """See Dataset."""
        sums = [found for addition in self.additions if (found := addition.sum_weights()) is not None]
        return sum(sums[1:], sums[0]) if sums else None

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """See Dataset."""
        columns = [values for addition in self.additions if (values := addition.column(name)) is not None]
        return np.concatenate(columns) if columns else None

    def tiles(self, index: int) -> Iterator[Rows]:
        """See Dataset."""
        addition, own, first = self._find(index)
        for rows in addition.tiles(own):
            yield replace(rows, start=rows.start + first)

    def read(self, index: int) -> Rows:
        """See Dataset."""
        addition, own, first = self._find(index)
        rows = addition.read(own)
        return replace(rows, start=rows.start + first)

    def take(self, rows: npt.ArrayLike) -> Rows:
        """See Dataset."""
        wanted = np.asarray(rows, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= self.n_rows)]
        if outside.size:
            raise InputError(f"{self.path}: row {outside[0]} of {say_count(self.n_rows, 'row')}")
        shares = self._share_out(wanted)
        taken = [addition.take(wanted[places] - first) for addition, first, places in shares]
        back = np.argsort(np.concatenate([places for _, _, places in shares]), kind="stable")
        vectors = {name: np.concatenate([each.vectors[name] for each in taken])[back] for name in self.passed}
        return Rows(-1, take_rows(stack_rows([each.X for each in taken]), back), **vectors)

    def take_bytes(self, rows: I64) -> int:
        """See Dataset."""
        return sum(addition.take_bytes(rows[places] - first) for addition, first, places in self._share_out(rows))

    def check_parts(self) -> None:
        """See Dataset."""
        for addition in self.additions:
            addition.check_parts()

    def advise(self, index: int) -> None:
        """See Dataset."""
        addition, own, _ = self._find(index)
        addition.advise(own)

    def chunk_bytes(self, index: int) -> int:
        """See Dataset."""
        addition, own, _ = self._find(index)
        return addition.chunk_bytes(own)

    def stream_bytes(self) -> int:
        """See Dataset."""
        return max(addition.stream_bytes() for addition in self.additions)

    def _find(self, index: int) -> tuple[Dataset, int, int]:
        """Return the addition with chunk `index`, the chunk's number in it, and the number of its first row."""
        first = 0
        for addition in self.additions:
            if index < addition.n_chunks:
                return addition, index, first
            index, first = index - addition.n_chunks, first + addition.n_rows
        raise IndexError(index)

    def _share_out(self, rows: I64) -> list[tuple[Dataset, int, I64]]:
        """Return each addition that has some of the rows, the number of its first row, and the places of its rows."""
        shares: list[tuple[Dataset, int, I64]] = []
        first = 0
        for addition in self.additions:
            places = np.flatnonzero((rows >= first) & (rows < first + addition.n_rows))
            if len(places) or (not len(rows) and not shares):
                shares.append((addition, first, places))
            first += addition.n_rows
        return shares


def open_joined(path: str, meta: Meta, cache: str | None = None, most: int | None = None) -> JoinedDataset | Dataset:
    """Open a dataset to which rows were appended; most: as it was when it had so many additions more than the first."""
    fingerprints = check_joined(path, meta)
    kept = fingerprints if most is None else fingerprints[: most + 1]
    additions = [read_manifest(path, open_group(path)[0], dict(meta["base"]), cache)]
    for number, before in enumerate(kept[:-1], 1):
        addition = open_addition(path, number, cache)
        if addition.fingerprint != meta[APPENDED][number - 1] or addition.meta.get(APPENDS_TO) != before:
            raise IntegrityError(f"{addition.path}/zarr.json: damaged (not what the manifest of {path} says)")
        _check_fit(additions[0], addition)
        additions.append(addition)
    return additions[0] if len(additions) == 1 else _join(path, additions, kept)


def open_addition(path: str, number: int, cache: str | None = None) -> Dataset:
    """Open the rows that were appended in the place of this number, from 1 on."""
    name = name_addition(path, number)
    try:
        group, meta = open_group(name)
    except InputError as error:
        raise IntegrityError(f"{name}: rows that were appended are missing ({error})") from error
    if not meta:
        raise IntegrityError(f"{name}/zarr.json: damaged (it has no manifest)")
    return read_manifest(name, group, meta, cache)


def name_addition(path: str, number: int) -> str:
    """Return the path of the rows that were appended in the place of this number, from 1 on."""
    return f"{path}/{APPENDED}/{number}"


def list_fingerprints(dataset: Dataset) -> tuple[str, ...]:
    """Return the fingerprints that the dataset has had: as ingest wrote it, and after each time rows were appended."""
    known = dataset.meta.get("fingerprints")
    return (dataset.fingerprint,) if known is None else tuple(known)


def describe_joined(dataset: Dataset, appended: str) -> Meta:
    """Return the manifest of a dataset to which an addition with this fingerprint is appended."""
    known = dataset.additions if isinstance(dataset, JoinedDataset) else (dataset,)
    listed = [*(addition.fingerprint for addition in known[1:]), appended]
    base = {**known[0].meta, "sha256": known[0].fingerprint}
    whole = {"format": JOINED_FORMAT, "base": base, APPENDED: listed}
    return {**whole, "sha256": make_fingerprint(whole)}


def _join(path: str, additions: list[Dataset], fingerprints: list[str]) -> JoinedDataset:
    base = additions[0]
    starts = np.cumsum([0, *(addition.n_rows for addition in additions[:-1])])
    limits = [addition.chunk_starts[:-1] + first for addition, first in zip(additions, starts, strict=True)]
    n_rows = sum(addition.n_rows for addition in additions)
    counts = [own for addition in additions if (own := addition.class_counts) is not None]
    known = {"n_rows": n_rows, "n_items": sum(addition.meta["n_items"] for addition in additions), "shuffle": None}
    return JoinedDataset(
        path=path,
        layout=base.layout,
        vectors=base.vectors,
        n_rows=n_rows,
        chunk_starts=np.append(np.concatenate(limits), n_rows).astype(np.int64),
        classes=base.classes,
        class_counts=np.sum(counts, axis=0) if counts else None,
        fingerprint=fingerprints[-1],
        scaling=base.scaling,
        feature_names=base.feature_names,
        meta={**base.meta, **known, "fingerprints": fingerprints},
        additions=tuple(additions),
        cache=base.cache,
    )


def _check_fit(base: Dataset, addition: Dataset) -> None:
    """Raise IntegrityError unless an addition has rows of the kind that the first addition has."""
    same = (
        base.is_sparse == addition.is_sparse
        and base.n_features == addition.n_features
        and base.vectors.keys() == addition.vectors.keys()
        and base.meta["classes"] == addition.meta["classes"]
    )
    if not same or addition.scaling is not None or addition.features is not None:
        raise IntegrityError(f"{addition.path}: its rows are of another kind than those that they were appended to")
