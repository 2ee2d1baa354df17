"""`train FILE`: the file is ingested into a dataset beside it, which later trainings use while the file is the same."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.errors import InputError, NeedsOptionError
from streamsvm.urls import is_remote

if TYPE_CHECKING:
    from streamsvm.data.dataset import Dataset

CACHE = ".cache.zarr"  # the end of the dataset's name


def open_data(options: argparse.Namespace, *, regression: bool, needs_labels: bool) -> Dataset:
    """Return the dataset that a training is to read, which is made of the file if a file is named.

    regression, needs_labels: whether the labels are numbers to be predicted, and whether there must be labels.
    """
    from streamsvm.data.formats import has_known_ending
    from streamsvm.data.hdf5 import is_h5ad
    from streamsvm.data.open_dataset import open_dataset
    from streamsvm.data.sources import is_folder_of_files

    groups = getattr(options, "groups", None)
    local = None if is_remote(options.data) else Path(options.data)
    if local is not None and has_known_ending(local) and not local.exists():
        raise InputError(f"{local}: no such file")
    if local is None or (is_h5ad(local) and not regression) or not (local.is_file() or is_folder_of_files(local)):
        return open_dataset(options.data, options.label, groups, options.cache)
    if not local.is_file() or getattr(options, "plan", False):
        raise InputError(f"{local}: holds rows, and is no dataset: {_tell_commands(options)}")
    wanted = {"label": options.label, "groups": groups, "regression": regression, "needs_labels": needs_labels}
    return _ingest_once(local, wanted, options)


def _tell_commands(options: argparse.Namespace) -> str:
    return (
        f"run `streamsvm ingest {options.data} DATA.zarr`, whose options say how the rows are read, and then "
        f"`streamsvm {options.command} DATA.zarr` with the options of the training"
    )


def _ingest_once(file: Path, wanted: dict[str, Any], options: argparse.Namespace) -> Dataset:
    """Return the dataset beside a file, which is made, or made anew if the file or the wishes have changed."""
    from streamsvm.cli.progress import Line, RowCounter
    from streamsvm.data.edits import list_edits
    from streamsvm.data.formats import guess_format
    from streamsvm.data.ingest_options import IngestOptions
    from streamsvm.data.open_dataset import open_dataset
    from streamsvm.data.readers import ingest
    from streamsvm.data.tables import Columns

    cache, about = file.with_name(f"{file.name}{CACHE}"), file.stat()
    state = {**wanted, "size": about.st_size, "mtime_ns": about.st_mtime_ns}
    if cache.exists():
        found = open_dataset(cache)
        if list_edits(found):
            raise InputError(f"{cache}: rows were appended or deleted, so it is not {file}: train on it, or remove it")
        if found.meta.get("source_state") == state:
            print(f"{file}: its rows are in {cache}, from an earlier training", file=sys.stderr)
            return found
        if "source_state" not in found.meta:
            raise InputError(f"{cache}: is a dataset that another command wrote: train on it, or remove it")
    line = Line()
    counter = RowCounter(line)

    def show(n_rows: int) -> None:
        if not counter.n_rows:  # what is wrong with the first rows is told without this
            print(f"{file}: its rows are written to {cache}, which later trainings use, too", file=sys.stderr)
        counter.add(n_rows - counter.n_rows)

    columns = Columns(label=wanted["label"], groups=wanted["groups"], require_label=wanted["needs_labels"])
    settings = IngestOptions(regression=wanted["regression"], overwrite=True, source_state=state)
    try:
        guess_format(file)  # raises InputError for files that are not read
        return ingest(file, cache, columns=columns, options=settings, report=show)
    except NeedsOptionError as error:
        raise InputError(f"{error}; where more than --label is needed, {_tell_commands(options)}") from error
    finally:
        line.close()
