"""The edits of a dataset since ingest: appended rows and deleted rows (docs/storage.md).

An edit leaves the files of the rows unchanged. It writes the new rows, or copies of the deleted rows, as a separate
dataset into the folder `appended` or `deleted`. Then it replaces the manifest, which lists the fingerprints of all
edits. Open readers keep the version they opened. The fingerprint of its manifest identifies a version.

`EditedDataset` concatenates its additions: the dataset as ingest wrote it, and the rows of each `ingest --append`. The
stored rows are all rows of the additions, including deleted rows, and have numbers of their own. Reading skips deleted
rows, and numbers the remaining rows without gaps. `find_changes` lists the rows that were appended and deleted since
the state with a given fingerprint.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamsvm.data.rows.source import TILE_BYTES, RowSource, split_rows
from streamsvm.data.rows.views import ChunkRange
from streamsvm.data.store import manifest
from streamsvm.data.store.dataset import Dataset, open_group, read_manifest
from streamsvm.data.store.manifest import APPENDED, DELETED, Meta
from streamsvm.numeric.rows import I64, Rows, join_rows
from streamsvm.system.errors import InputError, IntegrityError
from streamsvm.system.files import sync_folder, write_atomically, writing

NO_ROWS = np.empty(0, np.int64)
TILES = 6  # tiles in memory while tiles with deleted rows are merged


class Deletion(NamedTuple):
    """Copies of rows that were deleted together, and their ascending numbers among the stored rows."""

    rows: Dataset
    numbers: I64


@dataclass(frozen=True, kw_only=True, repr=False)
class EditedDataset(Dataset):
    """The rows of several additions, in the order in which they were written, without the deleted rows.

    Attributes
    ----------
    additions : tuple of Dataset
        The dataset as ingest wrote it, and the rows of each append.
    deletions : tuple of Deletion
        The rows of each deletion.
    deleted : (n_deleted,) int64
        The ascending numbers of all deleted rows among the stored rows.
    stored_starts : (n_stored_chunks + 1,) int64
        The number of the first stored row of each chunk of the additions, and at the end the number of stored rows.
    chunks : (n_chunks,) int64
        The chunks that have remaining rows. Chunks are numbered consecutively over all additions.
    """

    additions: tuple[Dataset, ...]
    deletions: tuple[Deletion, ...]
    deleted: I64
    stored_starts: I64
    chunks: I64

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded rows, including deleted rows, which a pass also reads."""
        return sum(addition.nbytes for addition in self.additions)

    @property
    def stored_bytes(self) -> int:  # type: ignore[override]
        """Bytes that a pass reads from storage."""
        return sum(addition.stored_bytes for addition in self.additions)

    def read_groups(self) -> EditedDataset:
        """See Dataset."""
        return replace(self, reads_groups=True, additions=tuple(each.read_groups() for each in self.additions))

    def read_vector(self, name: str, index: int) -> npt.NDArray[Any]:
        """See Dataset."""
        addition, own, start = self._find(self.chunks[index])
        values = addition.read_vector(name, own)
        return values if self._is_whole(index) else values[self._find_left(start, start + len(values))]

    def tiles(self, index: int) -> Iterator[Rows]:
        """Yield the remaining rows of a chunk, in the same tiles as if they were stored without the deleted rows."""
        at = int(self.chunk_starts[index])
        for tile in self._merge_tiles(index):
            yield replace(tile, start=at)
            at += tile.n_rows

    def _merge_tiles(self, index: int) -> Iterator[Rows]:
        """Yield the tiles of a chunk. Rows of the next tile fill the places of deleted rows."""
        addition, own, start = self._find(self.chunks[index])
        if self._is_whole(index):
            yield from addition.tiles(own)
            return
        left = None
        for tile in addition.tiles(own):
            kept = self._find_left(start, start + tile.n_rows)
            start += tile.n_rows
            if len(kept):
                rows = tile.pick(kept)
                *whole, left = split_rows(rows if left is None else join_rows([left, rows]))
                yield from whole
        if left is not None:
            yield left

    def read(self, index: int) -> Rows:
        """See Dataset."""
        first, stop = self._limits(index)
        addition, own, _ = self._find(self.chunks[index])
        rows = addition.read(own) if self._is_whole(index) else self.take(np.arange(first, stop))
        return replace(rows, start=first)

    def take(self, rows: npt.ArrayLike) -> Rows:
        """See Dataset."""
        wanted = find_stored(self.find_numbers(rows), self.deleted)
        shares = self._share_out(wanted)
        taken = [addition.take(wanted[places] - first) for addition, first, places in shares]
        back = np.argsort(np.concatenate([places for _, _, places in shares]), kind="stable")
        whole = join_rows(taken)
        return whole if np.array_equal(back, np.arange(len(back))) else whole.pick(back)

    def take_bytes(self, rows: I64) -> int:
        """See Dataset."""
        stored = find_stored(rows, self.deleted)
        return sum(addition.take_bytes(stored[places] - first) for addition, first, places in self._share_out(stored))

    def check_parts(self) -> None:
        """See Dataset. Also checks copies of deleted rows and chunks without remaining rows, which no pass reads."""
        for addition in self.additions:
            addition.check_parts()
        for chunk in set(range(len(self.stored_starts) - 1)) - set(self.chunks.tolist()):
            addition, own, _ = self._find(chunk)
            deque(addition.tiles(own), maxlen=0)
        for rows, _ in self.deletions:
            rows.check_parts()
            for index in range(rows.n_chunks):
                deque(rows.tiles(index), maxlen=0)

    def advise(self, index: int) -> None:
        """See Dataset."""
        if index < self.n_chunks:
            addition, own, _ = self._find(self.chunks[index])
            addition.advise(own)

    def chunk_bytes(self, index: int) -> int:
        """See Dataset."""
        addition, own, _ = self._find(self.chunks[index])
        return addition.chunk_bytes(own)

    def stream_bytes(self) -> int:
        """See Dataset."""
        largest = max(addition.stream_bytes() for addition in self.additions)
        if not len(self.deleted):
            return largest
        if not self.streams:
            return largest + max(self.chunk_bytes(index) for index in range(self.n_chunks))
        row_bytes = 8 * self.meta["longest_row"] + sum(array.row_bytes for array in self.passed.values())
        most_rows = TILE_BYTES // (4 if self.is_sparse else 4 * self.n_features) + 1
        own: int = TILE_BYTES + 8 * self.meta["longest_row"] + most_rows * row_bytes
        return largest + TILES * own

    def _find(self, chunk: int) -> tuple[Dataset, int, int]:
        """Return the addition that holds a chunk, the chunk's number within the addition, and its first stored row."""
        firsts = np.cumsum([0, *(addition.n_chunks for addition in self.additions)])
        k = int(np.searchsorted(firsts, chunk, side="right")) - 1
        return self.additions[k], int(chunk - firsts[k]), int(self.stored_starts[chunk])

    def _share_out(self, stored: I64) -> list[tuple[Dataset, int, I64]]:
        """Return the additions that hold the rows, their first rows, and the positions of their rows in `stored`."""
        firsts = np.cumsum([0, *(addition.n_rows for addition in self.additions)])
        holder = np.searchsorted(firsts, stored, side="right") - 1
        shares = np.unique(holder).tolist() or [0]  # without rows, one addition still provides the types
        return [(self.additions[k], int(firsts[k]), np.flatnonzero(holder == k)) for k in shares]

    def _is_whole(self, index: int) -> bool:
        """Return whether no row of chunk `index` was deleted."""
        chunk, (first, stop) = int(self.chunks[index]), self._limits(index)
        return bool(stop - first == self.stored_starts[chunk + 1] - self.stored_starts[chunk])

    def _find_left(self, start: int, stop: int) -> I64:
        """Return the positions of the remaining rows within the stored rows start:stop."""
        a, b = np.searchsorted(self.deleted, (start, stop))
        return np.delete(np.arange(stop - start), self.deleted[a:b] - start)


def join(additions: Sequence[Dataset], deletions: Sequence[Deletion], fingerprint: str) -> EditedDataset:
    """Concatenate additions of the same kind into one dataset without the deleted rows.

    Raises IntegrityError if the deletions contradict the additions.
    """
    base, gone = additions[0], [deletion.rows for deletion in deletions]
    firsts = np.cumsum([0, *(addition.n_rows for addition in additions)])
    limits = [addition.chunk_starts[:-1] + first for addition, first in zip(additions, firsts[:-1], strict=True)]
    starts = np.append(np.concatenate(limits), firsts[-1]).astype(np.int64)
    deleted = np.sort(np.concatenate([NO_ROWS, *(deletion.numbers for deletion in deletions)]))
    left = starts - np.searchsorted(deleted, starts)  # for each start, the number of remaining rows before it
    chunks = np.flatnonzero(np.diff(left) > 0) if deletions else np.arange(len(left) - 1)
    counts = None if base.class_counts is None else _sum_counts(additions) - _sum_counts(gone)
    is_wrong = not len(chunks) or (counts is not None and counts.min() < (0 if base.has_label_sets else 1))
    if deletions and is_wrong:
        raise IntegrityError(f"{base.path}/zarr.json: the manifest contradicts itself: a class has no rows left")
    n_items = sum(rows.meta["n_items"] for rows in additions) - sum(rows.meta["n_items"] for rows in gone)
    known: Meta = {"n_rows": int(left[-1]), "n_items": max(0, n_items)}  # a copy of rows without items stores one zero
    known["longest_row"] = max(addition.meta["longest_row"] for addition in additions)
    if len(additions) > 1:
        known["shuffle"] = None  # appended rows come last, and may come from another distribution
    given: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(Dataset)}
    given |= {"n_rows": int(left[-1]), "chunk_starts": np.append(left[chunks], left[-1]), "meta": base.meta | known}
    given |= {"fingerprint": fingerprint, "class_counts": counts, "places": None}
    given |= {"deletions": tuple(deletions), "deleted": deleted, "stored_starts": starts, "chunks": chunks}
    return EditedDataset(**given, additions=tuple(additions))


def _sum_counts(parts: Sequence[Dataset]) -> Any:
    """Return the number of rows of each class, summed over several datasets; 0 for no datasets."""
    return np.sum([counts for rows in parts if (counts := rows.class_counts) is not None], axis=0, dtype=np.int64)


def find_stored(rows: I64, deleted: I64) -> I64:
    """Map row numbers that skip deleted rows to numbers among the stored rows."""
    before: I64 = deleted - np.arange(len(deleted))  # the number of remaining rows before each deleted row
    return rows + np.searchsorted(before, rows, side="right")


# The key in the manifest of an edit under which it records the fingerprint of the dataset before the edit.
PREVIOUS = {APPENDED: manifest.APPENDS_TO, DELETED: manifest.DELETES_FROM}
EDITS = "edits"


class Edit(NamedTuple):
    """An edit: `kind` is "appended" or "deleted", and `fingerprint` identifies its rows."""

    kind: str
    fingerprint: str


def open_edited(path: str, meta: Meta, cache: str | None = None, most: int | None = None) -> Dataset:
    """Open a dataset with edits. most: the number of edits after which the dataset is shown (None: all)."""
    edits, fingerprints = check_edits(path, meta)
    edits = edits[:most]
    additions = [read_manifest(path, open_group(path)[0], dict(meta["base"]), cache)]
    deletions: list[Deletion] = []
    for edit, before in zip(edits, fingerprints, strict=False):
        if edit.kind == APPENDED:
            additions.append(_open_edit(path, edit, len(additions), before, additions[-1]))
        else:
            rows = _open_edit(path, edit, len(deletions) + 1, before, additions[-1])
            deletions.append(_read_deletion(rows, sum(addition.n_rows for addition in additions), deletions))
    classes = additions[-1].classes
    if classes is not None:
        additions = [addition.code_by(classes) for addition in additions]
        deletions = [deletion._replace(rows=deletion.rows.code_by(classes)) for deletion in deletions]
    if not edits:
        return additions[0]
    known = {"fingerprints": fingerprints[: len(edits) + 1], EDITS: edits, "base": meta["base"]}
    whole = join(additions, deletions, fingerprints[len(edits)])
    return replace(whole, meta=whole.meta | known)


def check_edits(path: str, meta: Meta) -> tuple[list[Edit], list[str]]:
    """Check the manifest of an edited dataset. Return its edits, and its fingerprints before and after each edit.

    Raises IntegrityError if the manifest is damaged.
    """
    base: Meta = meta.get("base", {})
    is_joined = meta.get("format") == manifest.JOINED_FORMAT
    listed = meta.get(APPENDED if is_joined else EDITS)
    pairs = listed if isinstance(base, dict) and isinstance(listed, list) else []
    pairs = [[APPENDED, each] for each in pairs] if is_joined else pairs
    right = all(isinstance(pair, list) and len(pair) == 2 and pair[0] in list(PREVIOUS) for pair in pairs)
    edits = [Edit(kind, str(fingerprint)) for kind, fingerprint in pairs] if right else []
    if not edits or describe_edits(base, edits) != meta:
        raise IntegrityError(f"{path}/zarr.json: the manifest is damaged; restore the file, or ingest the rows again")
    return edits, [str(describe_edits(base, edits[:n]).get("sha256")) for n in range(len(edits) + 1)]


def describe_edits(base: Meta, edits: Sequence[Edit]) -> Meta:
    """Return the manifest of a dataset with these edits. Without deletions, older versions of streamsvm can read it."""
    if not edits:
        return base
    if all(edit.kind == APPENDED for edit in edits):
        whole = {"format": manifest.JOINED_FORMAT, "base": base, APPENDED: [edit.fingerprint for edit in edits]}
    else:
        whole = {"format": manifest.EDITED_FORMAT, "base": base, EDITS: [list(edit) for edit in edits]}
    return {**whole, "sha256": manifest.make_fingerprint(whole)}


def list_edits(dataset: Dataset) -> list[Edit]:
    """Return the edits of a dataset."""
    return list(dataset.meta.get(EDITS, []))


def name_next(dataset: Dataset, kind: str) -> Path:
    """Return the path for the next edit of this kind, and make its parent folder."""
    number = 1 + sum(edit.kind == kind for edit in list_edits(dataset))
    folder = Path(dataset.path, kind, str(number))
    with writing(folder.parent):
        folder.parent.mkdir(exist_ok=True)
    sync_folder(folder.parent.parent)
    return folder


def commit(dataset: Dataset, kind: str, folder: Path) -> None:
    """Replace the manifest by one that also lists this edit. The edit takes effect with this step."""
    made = json.loads((folder / "zarr.json").read_bytes())["attributes"][manifest.ATTRIBUTE]["sha256"]
    base = dataset.meta.get("base") or {**dataset.meta, "sha256": dataset.fingerprint}
    file = Path(dataset.path) / "zarr.json"
    group = json.loads(file.read_bytes())
    group["attributes"][manifest.ATTRIBUTE] = describe_edits(base, [*list_edits(dataset), Edit(kind, str(made))])
    write_atomically(file, json.dumps(group, indent=2).encode())


def require_editable(dataset: Dataset, what: str) -> None:
    """Raise InputError for datasets that cannot be edited. what: the word for the message, such as "appended"."""
    refused = f"{dataset.path}: no rows can be {what}: it"
    if dataset.meta.get("arrays") is None:
        raise InputError(f"{refused} is an AnnData file, which is read in place; ingest it first")
    if dataset.features is not None:
        raise InputError(f"{refused} holds the features of a map; change its raw rows, and map them again")


def find_chunk_bytes(dataset: Dataset) -> int | None:
    """Return the chunk size, in bytes, of the rows of the first ingest; None if they fill only one chunk.

    A single chunk may be far too small for the rows that are appended later.
    """
    if len((dataset.meta.get("base") or dataset.meta)["chunk_starts"]) == 2:
        return None
    first = dataset.meta["arrays"]["X/data" if dataset.is_sparse else "X"]["chunks"]
    return int(8 * first[0] if dataset.is_sparse else 4 * first[0] * first[1])


def _open_edit(path: str, edit: Edit, number: int, before: str, last: Dataset) -> Dataset:
    """Open the rows of an edit. Raises IntegrityError unless they match the manifest.

    last: the last addition before the edit. It has all classes of the dataset at that time; appended rows may add
    classes.
    """
    name = f"{path}/{edit.kind}/{number}"
    try:
        group, meta = open_group(name)
    except InputError as error:
        raise IntegrityError(
            f"{name}: the {edit.kind} rows are missing ({error}); restore the folder, or ingest all rows again"
        ) from error
    if not meta:
        raise IntegrityError(
            f"{name}/zarr.json: is damaged (it has no manifest); restore the file, or ingest all rows again"
        )
    rows = read_manifest(name, group, meta, last.cache)
    if rows.fingerprint != edit.fingerprint or rows.meta.get(PREVIOUS[edit.kind]) != before:
        raise IntegrityError(
            f"{name}/zarr.json: is damaged (it disagrees with the manifest of {path}); restore it, or ingest all rows "
            "again"
        )
    kinds = [(each.is_sparse, each.n_features, each.vectors.keys()) for each in (last, rows)]
    has_classes = last.meta["classes"] == rows.meta["classes"] or (edit.kind == APPENDED and _has_more(rows, last))
    if kinds[0] != kinds[1] or not has_classes or rows.scaling is not None or rows.features is not None:
        raise IntegrityError(
            f"{name}: its rows are of another kind than the rows of {path}; restore the folder, or ingest all rows "
            "again"
        )
    return rows


def _has_more(rows: Dataset, before: Dataset) -> bool:
    """Return whether `rows` has all classes of `before`, and further classes."""
    classes, known = rows.meta["classes"], before.meta["classes"]
    return None not in (classes, known) and not rows.has_label_sets and set(known) < set(classes)


def _read_deletion(rows: Dataset, n_stored: int, earlier: Sequence[Deletion]) -> Deletion:
    """Return copies of deleted rows with their numbers. n_stored: the number of stored rows before the deletion."""
    array = manifest.open_stored(rows.path, open_group(rows.path)[0], rows.meta["arrays"], None, manifest.NUMBERS)
    numbers = array.read(0, rows.n_rows)
    right = numbers[0] >= 0 and numbers[-1] < n_stored and bool(np.all(np.diff(numbers) > 0))
    if not right or any(np.isin(numbers, each.numbers, assume_unique=True).any() for each in earlier):
        raise IntegrityError(
            f"{rows.path}: some row numbers do not exist; restore the folder, or ingest all rows again"
        )
    return Deletion(rows, numbers)


@dataclass(frozen=True)
class Changes:
    """The rows appended to a source since an earlier state, and copies of the rows deleted since that state.

    source: the current rows. n_before: the number of rows in the earlier state. n_old: how many of these rows remain;
    they are the first rows of the source. n_stored: the number of stored rows in the earlier state. since: the
    deletions after that state. before: the rows deleted before that state, and deleted: all rows deleted so far, both
    as ascending numbers among the stored rows.
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
        """Number of rows of the earlier state that have been deleted."""
        return self.n_before - self.n_old

    def view(self) -> ChunkRange:
        """Return a view of the new rows, which keep their numbers, followed by copies of the deleted rows."""
        first = int(self.source.chunk_starts.searchsorted(self.n_old))
        whole = join_copies(self.source, self.since) if self.since else self.source
        return ChunkRange(whole, first, whole.n_chunks)

    def renumber(self, rows: I64) -> tuple[npt.NDArray[np.bool_], I64]:
        """Map old row numbers to new ones: return which rows survive, and their new numbers."""
        stored = find_stored(rows, self.before)
        left = ~np.isin(stored, self.deleted)
        return left, stored[left] - np.searchsorted(self.deleted, stored[left])

    def list_copies(self, rows: I64) -> I64:
        """Map old numbers of deleted rows to the numbers of their copies in the view.

        The result also includes the copies of all rows that were both appended and deleted since the earlier state.
        """
        stored, at, listed = find_stored(rows, self.before), self.source.n_rows, [NO_ROWS]
        for _, numbers in self.since:
            listed.append(at + np.flatnonzero(np.isin(numbers, stored) | (numbers >= self.n_stored)))
            at += len(numbers)
        return np.concatenate(listed)


@dataclass(frozen=True, kw_only=True)
class WithCopies(EditedDataset):
    """The rows of a dataset, followed by copies of rows that were deleted from it."""

    since: tuple[Deletion, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        from streamsvm.data.open import reopen_dataset

        dataset = self.additions[0]
        return reopen_dataset, (type(self), _join_last, dataset, len(self.since))


def find_changes(source: RowSource, fingerprint: str) -> Changes | None:
    """Return the changes since a source had the given fingerprint; None if it never had this fingerprint."""
    meta = source.meta if isinstance(source, Dataset) else {}
    known = meta.get("fingerprints", [source.fingerprint])  # after ingest, and after each edit
    if fingerprint not in known:
        return None
    made = [edit.kind for edit in meta.get(EDITS, [])[: known.index(fingerprint)]]
    additions: tuple[RowSource, ...] = (source,)
    deletions: tuple[Deletion, ...] = ()
    deleted = NO_ROWS
    if isinstance(source, EditedDataset):
        additions, deletions, deleted = source.additions, source.deletions, source.deleted
    n_stored = sum(addition.n_rows for addition in additions[: 1 + made.count(APPENDED)])
    earlier, since = deletions[: made.count(DELETED)], deletions[made.count(DELETED) :]
    before = np.sort(np.concatenate([NO_ROWS, *(deletion.numbers for deletion in earlier)]))
    n_old = n_stored - int(np.searchsorted(deleted, n_stored))
    return Changes(source, n_stored - len(before), n_old, n_stored, since, before, deleted)


def join_copies(source: RowSource, since: Sequence[Deletion]) -> WithCopies:
    """Return the rows of a dataset, followed by copies of deleted rows."""
    assert isinstance(source, Dataset)
    name = f"{source.fingerprint}, and the last {len(since)} deletions"
    joined = join([source, *(deletion.rows for deletion in since)], (), name)
    return WithCopies(**vars(joined), since=tuple(since))


def _join_last(dataset: EditedDataset, n_deletions: int) -> WithCopies:
    """Return the rows of a dataset, followed by copies of the rows of its last n_deletions deletions."""
    return join_copies(dataset, dataset.deletions[len(dataset.deletions) - n_deletions :])
