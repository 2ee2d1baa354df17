"""Edits of a dataset: rows are appended or deleted, while the chunks that are already stored do not change.

An append writes the new rows to additional chunks. A deletion leaves the deleted rows on the disk, and readers skip
them. It also stores copies of these rows together, because the update of a model has to read them (runs.update).
Finally, a new manifest replaces the old one in one step. If an edit is killed, the dataset stays as it was. Open
readers keep the version they opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from streamsvm.data.open import open_dataset
from streamsvm.data.rows.source import SourceRows
from streamsvm.data.store import edits
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import Upload, new_folder
from streamsvm.data.store.manifest import APPENDED, APPENDS_TO, DELETED, DELETES_FROM, NUMBERS, Meta
from streamsvm.data.tables.checks import show_text, to_groups
from streamsvm.ingestion.ingest import IngestOptions, Report, Survey, check_options, narrow_rows, set_aside, write_rows
from streamsvm.ingestion.write import DatasetWriter, Shape
from streamsvm.numeric.labels import count_labels
from streamsvm.numeric.rows import I64, CsrRows, Rows
from streamsvm.numeric.stored_types import Scaling, recall_anchor
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import Lock, to_local_path
from streamsvm.system.interrupts import caught

BLOCK_BYTES = 8 << 20  # the bytes of rows that are copied at a time
OF_DATASET = ("layout", "codec", "scale", "regression", "overwrite", "dtype")  # options decided by the dataset


def append_rows(
    pieces: Iterator[SourceRows],
    destination: str | Path,
    name: str,
    expected_bytes: int,
    options: IngestOptions,
    report: Report = lambda _: None,
) -> Dataset:
    """Append rows to a dataset that ingest wrote, and return it opened.

    The new rows are shuffled among themselves. They get the layout and the scaling of the dataset, and its class codes.
    With `options.new_classes`, they may have additional classes. The arguments are those of `write_dataset`.

    Raises
    ------
    InputError
        If the rows do not fit the dataset: the number or the names of features differ, a label is unknown, or only the
        rows or only the dataset have weights or groups. The dataset stays as it was.
    """
    _refuse_options(options)
    check_options(options)
    destination = to_local_path(destination)
    if not destination.exists():
        raise InputError(f"{destination}: no such dataset; ingest without --append (append=True) to create it")
    with Lock(destination):
        dataset = open_dataset(destination)
        edits.require_editable(dataset, "appended")
        if "qid" in dataset.vectors:
            why = "it has queries, whose rows must be contiguous; ingest all rows again"
            raise InputError(f"{dataset.path}: no rows can be appended: {why}")
        folder = edits.name_next(dataset, APPENDED)
        with (
            new_folder(folder, overwrite=True) as partial,  # a folder that exists is left from a killed append
            TemporaryDirectory(prefix="spill", dir=partial) as spill_folder,
        ):
            layout, dtype = ("sparse", "float32") if dataset.is_sparse else ("dense", dataset.dtype)
            own = replace(options, layout=layout, dtype=dtype, codec=dataset.meta["codec"])
            own = replace(own, chunk_bytes=own.chunk_bytes or edits.find_chunk_bytes(dataset))
            survey = _start_survey(dataset, name, replace(own, regression=dataset.has_targets))
            checked = _check_rows(pieces, dataset, name)
            spill = set_aside(checked, Path(spill_folder), survey, expected_bytes, report)
            _check_survey(survey, dataset)
            about = {APPENDS_TO: dataset.fingerprint, "feature_names": dataset.meta["feature_names"]}
            write_rows(spill, partial, survey, dataset.scaling, about)
        edits.commit(dataset, APPENDED, folder)
    return open_dataset(destination)


def _refuse_options(options: IngestOptions) -> None:
    for option in OF_DATASET:
        if getattr(options, option) != getattr(IngestOptions(), option):
            raise InputError(f"{option} has no effect on appended rows, which are written like the first ones; omit it")


def _start_survey(dataset: Dataset, name: str, options: IngestOptions) -> Survey:
    """Start a survey that knows the features and labels of the dataset; new rows then get the same class codes."""
    anchor = None if dataset.is_sparse else recall_anchor(dataset.scaling)
    survey = Survey(name, options, n_features=dataset.n_features, anchor=anchor)
    labels = [] if dataset.classes is None else dataset.classes.tolist()
    if labels and isinstance(labels[0], str):
        survey.texts = {label: code for code, label in enumerate(labels)}
    else:
        survey.labels, survey.has_numbers = set(map(float, labels)), not all(isinstance(each, bool) for each in labels)
    return survey


def _check_rows(pieces: Iterator[SourceRows], dataset: Dataset, name: str) -> Iterator[SourceRows]:
    """Yield the rows. Raises InputError if their features differ from those of the dataset."""
    d, names = dataset.n_features, dataset.feature_names
    for rows in pieces:
        width = rows.X.shape[1]
        if width > d or (width < d and isinstance(rows.X, np.ndarray)):
            raise InputError(f"{name}: its rows have {width:,} features, but the rows of {dataset.path} have {d:,}")
        if None not in (names, rows.feature_names) and names != rows.feature_names:
            found = rows.feature_names or ()
            k = next(k for k, (one, other) in enumerate(zip(names or (), found, strict=False)) if one != other)
            raise InputError(f"{name}: feature {k + 1} is {found[k]!r}, but {(names or ())[k]!r} in {dataset.path}")
        yield rows


def _check_survey(survey: Survey, dataset: Dataset) -> None:
    name, new_classes = survey.name, survey.options.new_classes
    found = {"y" if field == "label" else field for field in survey.fields}
    if differ := sorted(found ^ set(dataset.vectors)):
        what = ", ".join("labels" if field == "y" else field for field in differ)
        raise InputError(f"{name}: {what} must be in the new rows and in the rows of {dataset.path}, or in neither")
    classes = survey.classes()
    if classes is not None and dataset.classes is not None and len(classes) > len(dataset.classes):
        known = dataset.classes.tolist()
        unknown = next(label for label in classes.tolist() if label not in set(known))
        if dataset.has_label_sets or not new_classes:
            way = "ingest all files again" if dataset.has_label_sets else "use --new-classes (new_classes=True)"
            raise InputError(
                f"{name}: the label {unknown!r} is not one of the {len(known)} classes of {dataset.path}; to add a "
                f"class, {way}"
            )


def delete_rows(path: str | Path, rows: npt.ArrayLike | None = None, *, groups: npt.ArrayLike | None = None) -> Dataset:
    """Delete rows of a dataset that ingest wrote, and return it opened. Give either `rows` or `groups`.

    Parameters
    ----------
    path : str or Path
        The dataset, on a local disk.
    rows : (n_deleted,) whole numbers, optional
        The numbers of the rows, counted from 0 in the order of the dataset. `predict` lists rows in this order, too.
        The remaining rows are renumbered without gaps.
    groups : (n_groups,) texts, times or whole numbers, optional
        The groups whose rows are deleted. `ingest` records groups (`groups=`, `--groups`).

    Returns
    -------
    Dataset
        The dataset without the rows. Their values stay on the disk, since chunks do not change.

    Raises
    ------
    InputError
        If a row or group does not exist, if a class would lose its last row, or if the dataset is an AnnData file or
        consists of mapped features. The dataset stays as it was.
    IntegrityError
        If one of the rows is damaged.
    """
    if (rows is None) == (groups is None):
        raise InputError(f"{path}: give either the numbers or the groups of the rows to delete")
    place = to_local_path(path)
    if not place.exists():
        raise InputError(f"{path}: no such dataset")
    with caught(), Lock(place):
        dataset = open_dataset(path)
        edits.require_editable(dataset, "deleted")
        numbers = _check_numbers(dataset, rows if groups is None else _find_groups(dataset, groups))
        n_items, counts = count_items(dataset, numbers)
        _require_classes(dataset, counts)
        stored = edits.find_stored(numbers, dataset.deleted) if isinstance(dataset, edits.EditedDataset) else numbers
        about = {DELETES_FROM: dataset.fingerprint}
        folder = edits.name_next(dataset, DELETED)
        with new_folder(folder, overwrite=True) as partial:  # a folder that exists is left from a killed deletion
            copy_rows(dataset, numbers, n_items, partial, about, arrays={NUMBERS: stored})
        edits.commit(dataset, DELETED, folder)
    return open_dataset(path)


def _check_numbers(dataset: Dataset, rows: npt.ArrayLike | None) -> I64:
    """Return distinct row numbers in ascending order. Raises InputError for a number outside the dataset."""
    given = np.asarray(rows)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
        raise InputError(f"{dataset.path}: give the rows to delete as whole numbers")
    distinct = np.unique(given)
    numbers: I64 = distinct.astype(np.int64)
    outside = distinct[(distinct < 0) | (distinct >= dataset.n_rows)]
    if outside.size:
        n_rows = say_count(dataset.n_rows, "row")
        raise InputError(f"{dataset.path}: no row {outside[0]} (from 0) among {n_rows}; nothing is deleted")
    if len(numbers) == dataset.n_rows:
        raise InputError(f"{dataset.path}: no row would be left; nothing is deleted: remove the folder instead")
    return numbers


def _find_groups(dataset: Dataset, groups: npt.ArrayLike) -> I64:
    """Return the numbers of the rows of the given groups. Raises InputError for a group without rows."""
    if "groups" not in dataset.vectors:
        raise InputError(f"{dataset.path}: its rows have no groups; `ingest --groups COLUMN` records them")
    given = np.atleast_1d(np.asarray(groups))
    if given.ndim != 1 or not given.size:
        raise InputError(f"{dataset.path}: give the groups whose rows are to be deleted")
    wanted = to_groups(given, lambda i: f"group {i + 1} to delete")
    found = [np.zeros(0, np.int64)]
    seen = np.zeros(len(wanted), bool)
    for index in range(dataset.n_chunks):
        own = dataset.read_vector("groups", index)
        found.append(dataset.chunk_starts[index] + np.flatnonzero(np.isin(own, wanted)))
        seen |= np.isin(wanted, own)
    if not seen.all():
        raise InputError(f"{dataset.path}: no row has the group {show_text(given[~seen][0])}; nothing is deleted")
    return np.concatenate(found)


def count_items(dataset: Dataset, numbers: I64) -> tuple[int, I64]:
    """Return the number of stored values in the rows with these numbers, and their number of rows of each class.

    In dense rows, values that were not zero before scaling are counted, as in an ingest.
    """
    counts = np.zeros(0 if dataset.classes is None else len(dataset.classes), np.int64)
    n_items, scaling = 0, dataset.scaling
    zero = np.float32(0) if scaling is None else (-scaling.offset * scaling.factor).astype(np.float32)
    for rows in _take(dataset, numbers):
        X = rows.X
        n_items += len(X.data) if isinstance(X, CsrRows) else int(np.count_nonzero(np.not_equal(X, zero)))
        count_labels(rows, counts)
    return n_items, counts


def _require_classes(dataset: Dataset, deleted: I64) -> None:
    """Raise InputError if a class would lose its last row. deleted: the number of rows to delete of each class."""
    left = dataset.class_counts
    if left is not None and dataset.classes is not None and not dataset.has_label_sets and (left - deleted).min() < 1:
        label = dataset.classes.tolist()[int((left - deleted).argmin())]
        refused = f"{dataset.path}: no row with the label {label!r} would be left"
        raise InputError(f"{refused}; nothing is deleted: ingest all files again")


def copy_rows(
    dataset: Dataset,
    numbers: I64,
    n_items: int,
    folder: Path | Upload,
    about: Meta,
    scaling: Scaling | None = None,
    dtype: str = "float32",
    arrays: Mapping[str, I64] | None = None,
    codes: I64 | None = None,
) -> None:
    """Write copies of the rows with these numbers as a dataset.

    n_items: the number of their stored values (see `count_items`). about: further entries of the manifest. scaling: the
    scaling to record. dtype: the type in which dense rows are stored. arrays: further arrays to store. codes: the new
    code of each class, if `about` lists other classes.
    """
    meta, classes = dataset.meta, None if dataset.classes is None else dataset.classes.tolist()
    known = {"classes": classes, "feature_names": meta["feature_names"], "shuffle": None, "source": dataset.path}
    about = known | about
    n_classes = len(about["classes"] or ())
    # Sparse arrays have at least one value: if all rows are empty, a zero is stored.
    sizes = len(numbers), dataset.n_features, max(1, n_items), meta["longest_row"]
    shape = Shape(*sizes, dataset.is_sparse, n_classes, dtype)
    fields = tuple(dataset.vectors)
    writer = DatasetWriter(folder, shape, fields, edits.find_chunk_bytes(dataset), meta["codec"])
    for at, rows in enumerate(_take(dataset, numbers)):
        X = rows.X if dtype == "float32" else narrow_rows(rows.X, dtype, dataset.name)
        if at == n_items == 0 and isinstance(X, CsrRows):
            indptr = np.minimum(np.arange(rows.n_rows + 1), 1)
            X = CsrRows(np.zeros(1, np.float32), np.zeros(1, np.int32), indptr, X.n_features)
        y = rows.y if codes is None or rows.y is None else codes[rows.y].astype(np.int32)
        writer.append(replace(rows, X=X, y=y))
    writer.finish(about, scaling, arrays)


def _take(dataset: Dataset, numbers: I64) -> Iterator[Rows]:
    """Yield the rows with these numbers, including their groups, several rows at a time."""
    whole = dataset.read_groups()
    step = max(1, BLOCK_BYTES * dataset.n_rows // dataset.nbytes)
    for at in range(0, len(numbers), step):
        interrupts.check()
        yield whole.take(numbers[at : at + step])
