"""`ingest --append` adds rows to a dataset: an addition with new chunks of its own, and last of all a new manifest.

Nothing that is there is changed, except that the file of the manifest is replaced as a whole at the end. So a killed
append leaves the dataset as it was, and who reads it meanwhile keeps his view of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from streamsvm.data.dataset import Dataset
from streamsvm.data.destination import new_folder
from streamsvm.data.edits import commit, find_chunk_bytes, name_next, require_editable
from streamsvm.data.ingest import MOST_CLASSES, Report, set_aside, write_rows
from streamsvm.data.ingest_options import IngestOptions, check_options
from streamsvm.data.manifest import APPENDED, APPENDS_TO
from streamsvm.data.open_dataset import open_dataset
from streamsvm.data.rounding import recall_anchor
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.survey import Survey
from streamsvm.errors import InputError
from streamsvm.locks import Lock
from streamsvm.urls import is_remote

# Options that have been decided by the first rows.
OF_DATASET = ("layout", "codec", "scale", "regression", "overwrite", "dtype")


def append_rows(
    pieces: Iterator[SourceRows],
    destination: str | Path,
    name: str,
    expected_bytes: int,
    options: IngestOptions,
    report: Report = lambda _: None,
) -> Dataset:
    """Append rows to a dataset that ingest wrote, and return it opened.

    The new rows are shuffled among themselves, laid out and scaled as the rows of the dataset are, and coded by its
    classes, among which new ones are put in if `options.new_classes` is set. `write_dataset` has the same arguments.

    Raises
    ------
    InputError
        If the rows are no rows of this dataset: another number of features, other names of features, a label that the
        dataset does not have and that was not allowed, weights or groups in one of the two only. The dataset stays as
        it was.
    """
    _refuse_options(options)
    check_options(options)
    if is_remote(destination):
        raise InputError(f"{destination}: rows are appended to datasets on a local disk only")
    destination = Path(destination)
    if not destination.exists():
        raise InputError(f"{destination}: no such dataset; ingest without --append (append=True) makes one")
    with Lock(destination):
        dataset = open_dataset(destination)
        _refuse_kinds(dataset)
        folder = name_next(dataset, APPENDED)
        with (
            new_folder(folder, overwrite=True) as partial,  # one that no manifest lists is of an append that was killed
            TemporaryDirectory(prefix="spill", dir=partial) as spill_folder,
        ):
            survey = _start_survey(dataset)
            own = replace(options, layout="sparse" if dataset.is_sparse else "dense", codec=dataset.meta["codec"])
            own = replace(own, dtype="float32" if dataset.is_sparse else dataset.dtype)
            own = replace(own, chunk_bytes=own.chunk_bytes or find_chunk_bytes(dataset))
            checked = _check_rows(pieces, dataset, name)
            spill = set_aside(checked, Path(spill_folder), survey, name, expected_bytes, own, report)
            _check_survey(survey, dataset, name, options.new_classes)
            about = {APPENDS_TO: dataset.fingerprint, "feature_names": dataset.meta["feature_names"]}
            write_rows(spill, partial, survey, dataset.scaling, name, own, about)
        commit(dataset, APPENDED, folder)
    return open_dataset(destination)


def _refuse_options(options: IngestOptions) -> None:
    defaults = {field.name: field.default for field in fields(IngestOptions)}
    for option in OF_DATASET:
        if getattr(options, option) != defaults[option]:
            raise InputError(
                f"{option} has no effect on rows that are appended, which are written as the others: leave it out"
            )


def _refuse_kinds(dataset: Dataset) -> None:
    """Raise InputError for datasets to which no rows can be appended."""
    require_editable(dataset, "appended")
    if "qid" in dataset.vectors:
        why = "it has queries, whose rows must lie together: ingest all rows anew"
        raise InputError(f"{dataset.path}: no rows can be appended: {why}")


def _start_survey(dataset: Dataset) -> Survey:
    """Return a survey that knows the features and the labels of the dataset, so that new rows get the same codes."""
    anchor = None if dataset.is_sparse else recall_anchor(dataset.scaling)
    survey = Survey(MOST_CLASSES, None, dataset.has_targets, n_features=dataset.n_features, anchor=anchor)
    labels = [] if dataset.classes is None else dataset.classes.tolist()
    if labels and isinstance(labels[0], str):
        survey.texts = {label: code for code, label in enumerate(labels)}
    else:
        survey.labels = set(map(float, labels))
    return survey


def _check_rows(pieces: Iterator[SourceRows], dataset: Dataset, name: str) -> Iterator[SourceRows]:
    """Yield the rows. Raises InputError for rows with other features than the dataset."""
    d, names = dataset.n_features, dataset.feature_names
    for rows in pieces:
        width = rows.X.shape[1]
        if width > d or (width < d and isinstance(rows.X, np.ndarray)):
            raise InputError(f"{name}: its rows have {width:,} features, and the rows of {dataset.path} have {d:,}")
        if None not in (names, rows.feature_names) and names != rows.feature_names:
            found = rows.feature_names or ()
            k = next(k for k, (one, other) in enumerate(zip(names or (), found, strict=False)) if one != other)
            raise InputError(f"{name}: feature {k + 1} is {found[k]!r}, and {(names or ())[k]!r} in {dataset.path}")
        yield rows


def _check_survey(survey: Survey, dataset: Dataset, name: str, new_classes: bool) -> None:
    found = {"y" if field == "label" else field for field in survey.fields}
    if differ := sorted(found ^ set(dataset.vectors)):
        what = ", ".join("labels" if field == "y" else field for field in differ)
        raise InputError(f"{name}: {what} are in the new rows or in the rows of {dataset.path}, and not in both")
    classes = survey.classes()
    if classes is not None and dataset.classes is not None and len(classes) > len(dataset.classes):
        known = dataset.classes.tolist()
        unknown = next(label for label in classes.tolist() if label not in set(known))
        if dataset.has_label_sets or not new_classes:
            way = "ingest all files anew" if dataset.has_label_sets else "--new-classes (new_classes=True)"
            raise InputError(
                f"{name}: no row of {dataset.path} has the label {unknown!r}, so it is not among its {len(known)} "
                f"classes; for a new class: {way}"
            )
    if not survey.n_items:
        raise InputError(f"{name}: every feature of every row is zero")
