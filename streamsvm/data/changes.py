"""What has changed in a dataset since a state of it that a fingerprint names: the new rows, and the deleted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.chunk_range import ChunkRange
from streamsvm.data.dataset import Dataset
from streamsvm.data.edits import list_edits, list_fingerprints
from streamsvm.data.joined import JoinedDataset, join
from streamsvm.data.manifest import APPENDED, DELETED
from streamsvm.data.open_dataset import UnopenedDataset
from streamsvm.data.source import RowSource
from streamsvm.data.trimmed import Deletion, TrimmedDataset, find_left, find_stored
from streamsvm.numeric.rows import I64

NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Changes:
    """The rows of a source that are new since a state of it, and copies of the rows that were deleted since.

    source: the rows as they are now; n_before: how many there were then; n_old: how many of these are left, which are
    the first rows of the source; n_stored: how many were stored then (data.trimmed); since: what was deleted since;
    before, deleted: the numbers among the stored rows of those that were deleted then, and of those that are now.
    """

    source: RowSource
    n_before: int
    n_old: int
    n_stored: int
    since: tuple[Deletion, ...]
    before: I64
    deleted: I64

    @property
    def n_new(self) -> int:
        """Number of new rows."""
        return self.source.n_rows - self.n_old

    @property
    def n_gone(self) -> int:
        """Number of rows that were there then, and are deleted now."""
        return self.n_before - self.n_old

    def view(self) -> ChunkRange:
        """Return the new rows, and after the last of them copies of the deleted rows, numbered on."""
        first = int(self.source.chunk_starts.searchsorted(self.n_old))
        whole = join_copies(self.source, self.since) if self.since else self.source
        return ChunkRange(whole, first, whole.n_chunks)

    def renumber(self, rows: I64) -> tuple[npt.NDArray[np.bool_], I64]:
        """Return which of some rows, by their numbers then, are left, and the numbers that these have now."""
        stored = find_stored(rows, self.before)
        left = ~np.isin(stored, self.deleted)
        return left, find_left(stored[left], self.deleted)

    def list_copies(self, rows: I64) -> I64:
        """Return the numbers, in the view, of the copies of some deleted rows, by their numbers then.

        Copies of rows that were not there then are listed, too.
        """
        stored, at, listed = find_stored(rows, self.before), self.source.n_rows, [NONE]
        for _, numbers in self.since:
            listed.append(at + np.flatnonzero(np.isin(numbers, stored) | (numbers >= self.n_stored)))
            at += len(numbers)
        return np.concatenate(listed)


@dataclass(frozen=True, kw_only=True)
class WithCopies(JoinedDataset):
    """The rows of a dataset, and below them copies of rows that were deleted from it."""

    since: tuple[Deletion, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        dataset = self.additions[0]
        return _join_last, (dataset, len(self.since))


def find_changes(source: RowSource, fingerprint: str) -> Changes | None:
    """Return what has changed since a source had a fingerprint; None if it never had it."""
    if not isinstance(source, Dataset):
        is_known = fingerprint == source.fingerprint
        return Changes(source, source.n_rows, source.n_rows, source.n_rows, (), NONE, NONE) if is_known else None
    known = list_fingerprints(source)
    if fingerprint not in known:
        return None
    made = [edit.kind for edit in list_edits(source)[: known.index(fingerprint)]]
    trimmed = source if isinstance(source, TrimmedDataset) else None
    stored, deletions, deleted = (trimmed.stored, trimmed.deletions, trimmed.deleted) if trimmed else (source, (), NONE)
    additions = stored.additions if isinstance(stored, JoinedDataset) else (stored,)
    n_stored = sum(addition.n_rows for addition in additions[: 1 + made.count(APPENDED)])
    earlier, since = deletions[: made.count(DELETED)], deletions[made.count(DELETED) :]
    before = np.sort(np.concatenate([NONE, *(deletion.numbers for deletion in earlier)]))
    n_old = n_stored - int(np.searchsorted(deleted, n_stored))
    return Changes(source, n_stored - len(before), n_old, n_stored, since, before, deleted)


def join_copies(source: RowSource, since: Sequence[Deletion]) -> WithCopies:
    """Return the rows of a dataset with copies of deleted rows below them."""
    assert isinstance(source, Dataset)
    name = f"{source.fingerprint}, and the last {len(since)} deletions"
    joined = join(source.path, [source, *(deletion.rows for deletion in since)], name)
    return WithCopies(**vars(joined), since=tuple(since))


def _join_last(dataset: TrimmedDataset | UnopenedDataset, n_deletions: int) -> WithCopies | UnopenedDataset:
    """Return the rows of a dataset with copies of what was deleted the last times."""
    if isinstance(dataset, UnopenedDataset):
        return UnopenedDataset((_join_last, (dataset, n_deletions)), dataset.error)
    return join_copies(dataset, dataset.deletions[len(dataset.deletions) - n_deletions :])
