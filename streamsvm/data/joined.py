"""A dataset to which rows were appended: its additions, one below the other, with the interface of a dataset.

The first addition is the dataset as ingest wrote it. Each further one is what one `ingest --append` has added, a whole
dataset of its own in the folder `appended`. No file of an addition ever changes, so who has opened the dataset keeps
his view of it while rows are appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.dataset import Dataset
from streamsvm.errors import InputError, say_count
from streamsvm.numeric.rows import I64, Rows, stack_rows, take_rows


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
        return sum(addition.stored_bytes for addition in self.additions)

    @property
    def is_shuffled(self) -> bool:
        """No: rows that were appended come last, and these may be rows of another kind."""
        return False

    def read_groups(self) -> JoinedDataset:
        """See Dataset."""
        return replace(self, reads_groups=True, additions=tuple(each.read_groups() for each in self.additions))

    def read_vector(self, name: str, index: int) -> npt.NDArray[Any]:
        """See Dataset."""
        addition, own, _ = self._find(index)
        return addition.read_vector(name, own)

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


def join(path: str, additions: Sequence[Dataset], fingerprint: str) -> JoinedDataset:
    """Return the rows of several additions, which are of one kind, as one dataset."""
    base = additions[0]
    starts = np.cumsum([0, *(addition.n_rows for addition in additions[:-1])])
    limits = [addition.chunk_starts[:-1] + first for addition, first in zip(additions, starts, strict=True)]
    n_rows = sum(addition.n_rows for addition in additions)
    counts = [own for addition in additions if (own := addition.class_counts) is not None]
    known = {"n_rows": n_rows, "n_items": sum(addition.meta["n_items"] for addition in additions), "shuffle": None}
    known["longest_row"] = max(addition.meta["longest_row"] for addition in additions)
    return JoinedDataset(
        path=path,
        layout=base.layout,
        vectors=base.vectors,
        n_rows=n_rows,
        chunk_starts=np.append(np.concatenate(limits), n_rows).astype(np.int64),
        classes=base.classes,
        class_counts=np.sum(counts, axis=0) if counts else None,
        fingerprint=fingerprint,
        scaling=base.scaling,
        feature_names=base.feature_names,
        meta={**base.meta, **known},
        reads_groups=base.reads_groups,
        additions=tuple(additions),
        cache=base.cache,
    )
