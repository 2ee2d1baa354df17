"""`ingest --append` adds rows to a dataset: an addition with new chunks of its own, and last of all a new manifest.

Nothing that is there is changed, except that the file of the manifest is replaced as a whole at the end. So a killed
append leaves the dataset as it was, and who reads it meanwhile keeps his view of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from streamsvm.data.dataset import Dataset, open_dataset
from streamsvm.data.destination import new_folder
from streamsvm.data.ingest import (
    MOST_CLASSES,
    IngestOptions,
    Report,
    check_options,
    set_aside,
    write_rows,
)
from streamsvm.data.joined import JoinedDataset, describe_joined, list_fingerprints, name_addition
from streamsvm.data.manifest import APPENDS_TO, ATTRIBUTE
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.survey import Survey
from streamsvm.errors import InputError, WriteError
from streamsvm.files import sync_folder, write_atomically
from streamsvm.locks import Lock
from streamsvm.urls import is_remote

OF_DATASET = ("layout", "codec", "scale", "regression", "overwrite")  # options that have been decided by the first rows


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
    classes. `write_dataset` has the same arguments.

    Raises
    ------
    InputError
        If the rows are no rows of this dataset: another number of features, other names of features, a label that the
        dataset does not have, weights or groups in one of the two only. The dataset stays as it was.
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
        number = len(list_fingerprints(dataset))
        folder = Path(name_addition(str(destination), number))
        _make_folder(folder.parent)
        with (
            new_folder(folder, overwrite=True) as partial,  # one that no manifest lists is of an append that was killed
            TemporaryDirectory(prefix="spill", dir=partial) as spill_folder,
        ):
            survey = _start_survey(dataset)
            own = replace(options, layout="sparse" if dataset.is_sparse else "dense", codec=dataset.meta["codec"])
            own = replace(own, chunk_bytes=own.chunk_bytes or _find_chunk_bytes(dataset))
            checked = _check_rows(pieces, dataset, name)
            spill = set_aside(checked, Path(spill_folder), survey, name, expected_bytes, own, report)
            _check_survey(survey, dataset, name)
            about = {APPENDS_TO: dataset.fingerprint, "feature_names": dataset.meta["feature_names"]}
            write_rows(spill, partial, survey, dataset.scaling, name, own, about)
        _commit(destination, describe_joined(dataset, _read_fingerprint(folder)))
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
    reasons = {
        "is an AnnData file, which is read as it lies": "arrays" not in dataset.meta,
        "holds the features of a map: append to its raw rows, and make the features anew": dataset.features is not None,
        "has queries, whose rows must lie together: ingest all rows anew": "qid" in dataset.vectors,
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise InputError(f"{dataset.path}: no rows can be appended: it {reason}")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written: {error.strerror or error}") from error
    sync_folder(folder.parent)


def _find_chunk_bytes(dataset: Dataset) -> int | None:
    """Return the bytes of a chunk of the first rows, or None if these are one chunk: new rows may be far more rows."""
    base = dataset.additions[0] if isinstance(dataset, JoinedDataset) else dataset
    if base.n_chunks == 1:
        return None
    first = base.meta["arrays"]["X/data" if base.is_sparse else "X"]["chunks"]
    return int(8 * first[0] if base.is_sparse else 4 * first[0] * first[1])


def _start_survey(dataset: Dataset) -> Survey:
    """Return a survey that knows the features and the labels of the dataset, so that new rows get the same codes."""
    survey = Survey(MOST_CLASSES, None, dataset.has_targets, n_features=dataset.n_features)
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


def _check_survey(survey: Survey, dataset: Dataset, name: str) -> None:
    found = {"y" if field == "label" else field for field in survey.fields}
    if differ := sorted(found ^ set(dataset.vectors)):
        what = ", ".join("labels" if field == "y" else field for field in differ)
        raise InputError(f"{name}: {what} are in the new rows or in the rows of {dataset.path}, and not in both")
    classes = survey.classes()
    if classes is not None and dataset.classes is not None and len(classes) > len(dataset.classes):
        known = dataset.classes.tolist()
        unknown = next(label for label in classes.tolist() if label not in set(known))
        raise InputError(
            f"{name}: no row of {dataset.path} has the label {unknown!r}, so it is not among its {len(known)} classes; "
            "for a new class ingest all files anew"
        )
    if not survey.n_items:
        raise InputError(f"{name}: every feature of every row is zero")


def _read_fingerprint(folder: Path) -> str:
    return str(json.loads((folder / "zarr.json").read_bytes())["attributes"][ATTRIBUTE]["sha256"])


def _commit(destination: Path, manifest: dict[str, object]) -> None:
    """Replace the manifest, which is the moment in which the rows are appended."""
    file = destination / "zarr.json"
    group = json.loads(file.read_bytes())
    group["attributes"][ATTRIBUTE] = manifest
    write_atomically(file, json.dumps(group, indent=2).encode())
