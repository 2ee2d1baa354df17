"""`delete` takes rows out of a dataset: it writes copies of them, and last of all a manifest that lists these.

No chunk is changed, so the rows stay on the disk until all files are ingested anew; whoever reads the dataset skips
them. The copies lie together, so that an update of a model reads the deleted rows alone (training.update).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamsvm import interrupts
from streamsvm.data.dataset import Dataset
from streamsvm.data.destination import new_folder
from streamsvm.data.edits import commit, find_chunk_bytes, name_next, require_editable
from streamsvm.data.manifest import DELETED, DELETES_FROM, NUMBERS
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.trimmed import TrimmedDataset, find_stored
from streamsvm.data.values import show_text, to_groups
from streamsvm.data.writer import DatasetWriter, Shape
from streamsvm.errors import InputError, say_count
from streamsvm.interrupts import caught
from streamsvm.locks import Lock
from streamsvm.numeric.label_sets import sum_labels
from streamsvm.numeric.rows import I64, CsrRows, Rows
from streamsvm.urls import is_remote

BLOCK_BYTES = 8 << 20  # of rows that are copied at a time


def delete_rows(path: str | Path, rows: npt.ArrayLike | None = None, *, groups: npt.ArrayLike | None = None) -> Dataset:
    """Delete rows of a dataset that ingest wrote, and return it opened. Give `rows` or `groups`.

    Parameters
    ----------
    path : str or Path
        The dataset, on a local disk.
    rows : (n_deleted,) whole numbers, optional
        Which rows, counted from 0 in the order of the dataset, which is that of `predict`. The rows that are left are
        numbered without gaps.
    groups : (n_groups,) texts, times or whole numbers, optional
        Whose rows: all rows of these groups, which `ingest` was told (`groups=`, `--groups`).

    Returns
    -------
    Dataset
        The dataset without the rows. Their chunks stay as they are, and so the values stay on the disk.

    Raises
    ------
    InputError
        If there is no such row or group, if no row of a class would be left, or for AnnData files and datasets of
        features. The dataset stays as it was.
    IntegrityError
        If one of the rows is damaged.
    """
    if (rows is None) == (groups is None):
        raise InputError(f"{path}: which rows are to be deleted? Give their numbers, or their groups")
    if is_remote(path):
        raise InputError(f"{path}: rows are deleted from datasets on a local disk only")
    if not Path(path).exists():
        raise InputError(f"{path}: no such dataset")
    with caught(), Lock(Path(path)):
        dataset = open_dataset(path)
        require_editable(dataset, "deleted")
        numbers = _check_numbers(dataset, rows if groups is None else _find_groups(dataset, groups))
        counts, n_items = _survey(dataset, numbers)
        folder = name_next(dataset, DELETED)
        with new_folder(folder, overwrite=True) as partial:  # a folder that no manifest lists is of a killed deletion
            _write(dataset, numbers, counts, n_items, partial)
        commit(dataset, DELETED, folder)
    return open_dataset(path)


def _check_numbers(dataset: Dataset, rows: npt.ArrayLike | None) -> I64:
    """Return the numbers of rows in ascending order, each once. InputError for what are no numbers of rows."""
    given = np.asarray(rows)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
        raise InputError(f"{dataset.path}: the numbers of the rows to delete are expected, which are whole numbers")
    distinct = np.unique(given)
    numbers: I64 = distinct.astype(np.int64)
    outside = distinct[(distinct < 0) | (distinct >= dataset.n_rows)]
    if outside.size:
        n_rows = say_count(dataset.n_rows, "row")
        raise InputError(f"{dataset.path}: row {outside[0]} of {n_rows}, which count from 0: nothing is deleted")
    if len(numbers) == dataset.n_rows:
        raise InputError(f"{dataset.path}: no row would be left: nothing is deleted; remove the folder instead")
    return numbers


def _find_groups(dataset: Dataset, groups: npt.ArrayLike) -> I64:
    """Return the numbers of the rows of some groups. InputError for a group without a row."""
    if "groups" not in dataset.vectors:
        raise InputError(f"{dataset.path}: its rows have no groups; `ingest --groups COLUMN` records them")
    given = np.atleast_1d(np.asarray(groups))
    if given.ndim != 1 or not given.size:
        raise InputError(f"{dataset.path}: the groups whose rows to delete are expected")
    wanted = to_groups(given, lambda i: f"group {i + 1} to delete")
    found = [np.zeros(0, np.int64)]
    seen = np.zeros(len(wanted), bool)
    for index in range(dataset.n_chunks):
        own = dataset.read_vector("groups", index)
        found.append(dataset.chunk_starts[index] + np.flatnonzero(np.isin(own, wanted)))
        seen |= np.isin(wanted, own)
    if not seen.all():
        raise InputError(f"{dataset.path}: no row has the group {show_text(given[~seen][0])}: nothing is deleted")
    return np.concatenate(found)


def _survey(dataset: Dataset, numbers: I64) -> tuple[I64 | None, int]:
    """Return how many of the rows each class has, and how many values are stored of them.

    Of dense rows the values that are not zero are counted, as in ingest: before they were scaled. InputError if no row
    of a class would be left.
    """
    counts = None if dataset.classes is None else np.zeros(len(dataset.classes), np.int64)
    n_items, scaling = 0, dataset.scaling
    zero = np.float32(0) if scaling is None else (-scaling.offset * scaling.factor).astype(np.float32)
    for rows in _take(dataset, numbers):
        n_items += (
            len(rows.X.data) if isinstance(rows.X, CsrRows) else int(np.count_nonzero(np.not_equal(rows.X, zero)))
        )
        if counts is not None and rows.y is not None:
            counts += np.bincount(rows.y, minlength=len(counts))
        if counts is not None and rows.label_sets is not None:
            counts += sum_labels(rows.label_sets, len(counts), None).astype(np.int64)
    left = None if counts is None or dataset.class_counts is None else dataset.class_counts - counts
    if left is not None and dataset.classes is not None and not dataset.has_label_sets and left.min() < 1:
        label = dataset.classes.tolist()[int(left.argmin())]
        raise InputError(
            f"{dataset.path}: no row with the label {label!r} would be left: nothing is deleted; ingest all files anew"
        )
    return counts, n_items


def _write(dataset: Dataset, numbers: I64, counts: I64 | None, n_items: int, folder: Path) -> None:
    """Write copies of the rows as a dataset of their own, with their numbers among the stored rows."""
    meta, n_labels = dataset.meta, len(dataset.classes) if dataset.has_label_sets and dataset.classes is not None else 0
    # at least one value is stored: sparse rows that are all empty get a zero
    shape = Shape(len(numbers), dataset.n_features, max(1, n_items), meta["longest_row"], dataset.is_sparse, n_labels)
    fields = tuple(dataset.vectors)
    writer = DatasetWriter(folder, shape, fields, find_chunk_bytes(dataset), meta["codec"])
    for at, rows in enumerate(_take(dataset, numbers)):
        is_empty = at == n_items == 0 and isinstance(rows.X, CsrRows)
        writer.append(replace(rows, X=_put_zero(rows.X)) if is_empty and isinstance(rows.X, CsrRows) else rows)
    about = {
        "classes": None if dataset.classes is None else dataset.classes.tolist(),
        "class_counts": None if counts is None else counts.tolist(),
        "feature_names": meta["feature_names"],
        "shuffle": None,
        "source": dataset.path,
        DELETES_FROM: dataset.fingerprint,
    }
    stored = find_stored(numbers, dataset.deleted) if isinstance(dataset, TrimmedDataset) else numbers
    writer.finish(about, None, {NUMBERS: stored})


def _take(dataset: Dataset, numbers: I64) -> Iterator[Rows]:
    """Yield the rows with these numbers, with their groups, some at a time."""
    whole = dataset.read_groups()
    step = max(1, BLOCK_BYTES * dataset.n_rows // dataset.nbytes)
    for at in range(0, len(numbers), step):
        interrupts.check()
        yield whole.take(numbers[at : at + step])


def _put_zero(X: CsrRows) -> CsrRows:
    """Return empty sparse rows, the first of which stores a zero."""
    return CsrRows(
        np.zeros(1, np.float32), np.zeros(1, np.int32), np.minimum(np.arange(X.shape[0] + 1), 1), X.n_features
    )
