"""The edits of a dataset since ingest: rows that were appended, and rows that were deleted (docs/storage.md).

An edit changes no file that is there. It puts a dataset of its own into the folder `appended` or `deleted`, the new
rows or copies of the deleted ones, and then replaces the file of the manifest, which lists all edits by their
fingerprints. So who has opened the dataset keeps his view of it, which is known by the fingerprint of its manifest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.data.dataset import Dataset
from streamsvm.data.joined import join
from streamsvm.data.manifest import (
    APPENDED,
    APPENDS_TO,
    ATTRIBUTE,
    DELETED,
    DELETES_FROM,
    EDITED_FORMAT,
    JOINED_FORMAT,
    NUMBERS,
    Meta,
    make_fingerprint,
    open_stored,
)
from streamsvm.data.stored_dataset import open_group, read_manifest
from streamsvm.data.trimmed import Deletion, trim
from streamsvm.errors import InputError, IntegrityError, WriteError
from streamsvm.files import sync_folder, write_atomically

PREVIOUS = {APPENDED: APPENDS_TO, DELETED: DELETES_FROM}  # where the manifest of an edit tells what it was made to
EDITS = "edits"


class Edit(NamedTuple):
    """An edit: `kind` is "appended" or "deleted", and the fingerprint is that of its rows."""

    kind: str
    fingerprint: str


def open_edited(path: str, meta: Meta, cache: str | None = None, most: int | None = None) -> Dataset:
    """Open a dataset that was edited; most: as it was after so many edits."""
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
    known = {"fingerprints": fingerprints[: len(edits) + 1], EDITS: edits, "base": meta["base"]}
    whole = join(path, additions, fingerprints[len(edits)]) if len(additions) > 1 else additions[0]
    whole = replace(whole, fingerprint=fingerprints[len(edits)], meta={**whole.meta, **known} if edits else whole.meta)
    return trim(whole, deletions) if deletions else whole


def check_edits(path: str, meta: Meta) -> tuple[list[Edit], list[str]]:
    """Check the manifest of an edited dataset. Return its edits, and the fingerprints that it has had.

    Raises IntegrityError for a manifest that is damaged.
    """
    base, listed = meta.get("base"), meta.get(APPENDED if meta.get("format") == JOINED_FORMAT else EDITS)
    if not (isinstance(base, dict) and isinstance(listed, list) and listed):
        raise IntegrityError(f"{path}/zarr.json: the manifest is damaged")
    pairs = [[APPENDED, each] for each in listed] if meta["format"] == JOINED_FORMAT else listed
    if not all(isinstance(pair, list) and len(pair) == 2 and pair[0] in list(PREVIOUS) for pair in pairs):
        raise IntegrityError(f"{path}/zarr.json: the manifest is damaged")
    edits = [Edit(kind, str(fingerprint)) for kind, fingerprint in pairs]
    if describe_edits(base, edits) != meta:
        raise IntegrityError(f"{path}/zarr.json: the manifest is damaged")
    return edits, [str(describe_edits(base, edits[:n]).get("sha256")) for n in range(len(edits) + 1)]


def describe_edits(base: Meta, edits: Sequence[Edit]) -> Meta:
    """Return the manifest of a dataset with these edits. Without deletions earlier versions read it, too."""
    if not edits:
        return base
    if all(edit.kind == APPENDED for edit in edits):
        whole = {"format": JOINED_FORMAT, "base": base, APPENDED: [edit.fingerprint for edit in edits]}
    else:
        whole = {"format": EDITED_FORMAT, "base": base, EDITS: [list(edit) for edit in edits]}
    return {**whole, "sha256": make_fingerprint(whole)}


def list_edits(dataset: Dataset) -> list[Edit]:
    """Return the edits of a dataset."""
    return list(dataset.meta.get(EDITS, []))


def list_fingerprints(dataset: Dataset) -> tuple[str, ...]:
    """Return the fingerprints that the dataset has had: as ingest wrote it, and after each edit."""
    return tuple(dataset.meta.get("fingerprints", [dataset.fingerprint]))


def name_edit(path: str, kind: str, number: int) -> str:
    """Return the path of the rows of the edit of a kind that has this number among the edits of its kind, from 1 on."""
    return f"{path}/{kind}/{number}"


def name_next(dataset: Dataset, kind: str) -> Path:
    """Return the path of the next edit of a kind, in a folder that is there."""
    number = 1 + sum(edit.kind == kind for edit in list_edits(dataset))
    folder = Path(name_edit(dataset.path, kind, number))
    try:
        folder.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder.parent}: cannot be written: {error.strerror or error}") from error
    sync_folder(folder.parent.parent)
    return folder


def commit(dataset: Dataset, kind: str, folder: Path) -> None:
    """Replace the manifest by one that lists a further edit: this is the moment in which the edit is made."""
    made = json.loads((folder / "zarr.json").read_bytes())["attributes"][ATTRIBUTE]["sha256"]
    base = dataset.meta.get("base") or {**dataset.meta, "sha256": dataset.fingerprint}
    file = Path(dataset.path) / "zarr.json"
    group = json.loads(file.read_bytes())
    group["attributes"][ATTRIBUTE] = describe_edits(base, [*list_edits(dataset), Edit(kind, str(made))])
    write_atomically(file, json.dumps(group, indent=2).encode())


def require_editable(dataset: Dataset, what: str) -> None:
    """Raise InputError for datasets of which no rows can be appended or deleted; what: "appended" or "deleted"."""
    reasons = {
        "is an AnnData file, which is read as it lies": "arrays" not in dataset.meta,
        "holds the features of a map: change its raw rows, and make the features anew": dataset.features is not None,
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise InputError(f"{dataset.path}: no rows can be {what}: it {reason}")


def find_chunk_bytes(dataset: Dataset) -> int | None:
    """Return the bytes of a chunk of the first rows, or None if these are one chunk: new rows may be far more rows."""
    if len((dataset.meta.get("base") or dataset.meta)["chunk_starts"]) == 2:
        return None
    first = dataset.meta["arrays"]["X/data" if dataset.is_sparse else "X"]["chunks"]
    return int(8 * first[0] if dataset.is_sparse else 4 * first[0] * first[1])


def _open_edit(path: str, edit: Edit, number: int, before: str, last: Dataset) -> Dataset:
    """Open the rows of an edit. Raises IntegrityError if they are not those that the manifest lists.

    last: the last addition before, whose classes are those of the dataset; rows that are appended may add to them.
    """
    name = name_edit(path, edit.kind, number)
    try:
        group, meta = open_group(name)
    except InputError as error:
        raise IntegrityError(f"{name}: rows that were {edit.kind} are missing ({error})") from error
    if not meta:
        raise IntegrityError(f"{name}/zarr.json: damaged (it has no manifest)")
    rows = read_manifest(name, group, meta, last.cache)
    if rows.fingerprint != edit.fingerprint or rows.meta.get(PREVIOUS[edit.kind]) != before:
        raise IntegrityError(f"{name}/zarr.json: damaged (not what the manifest of {path} says)")
    same = (
        last.is_sparse == rows.is_sparse
        and last.n_features == rows.n_features
        and last.vectors.keys() == rows.vectors.keys()
        and (last.meta["classes"] == rows.meta["classes"] or (edit.kind == APPENDED and _has_more(rows, last)))
    )
    if not same or rows.scaling is not None or rows.features is not None:
        raise IntegrityError(f"{name}: its rows are of another kind than those of {path}")
    return rows


def _has_more(rows: Dataset, before: Dataset) -> bool:
    """Whether the classes of rows are those before, and further ones."""
    classes, known = rows.meta["classes"], before.meta["classes"]
    return None not in (classes, known) and not rows.has_label_sets and set(known) < set(classes)


def _read_deletion(rows: Dataset, n_stored: int, earlier: Sequence[Deletion]) -> Deletion:
    """Return copies of deleted rows with their numbers among the n_stored rows that were stored."""
    array = open_stored(rows.path, open_group(rows.path)[0], rows.meta["arrays"], None, NUMBERS)
    numbers = array.read(0, rows.n_rows)
    right = numbers[0] >= 0 and numbers[-1] < n_stored and bool(np.all(np.diff(numbers) > 0))
    if not right or any(np.isin(numbers, each.numbers, assume_unique=True).any() for each in earlier):
        raise IntegrityError(f"{rows.path}: numbers that are not those of rows which were there")
    return Deletion(rows, numbers)
