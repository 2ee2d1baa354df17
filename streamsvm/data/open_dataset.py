"""Opens a dataset by its path, whatever wrote it, and once more in the process that a dataset is sent to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from streamsvm.data.anndata import open_anndata
from streamsvm.data.dataset import Dataset
from streamsvm.data.edits import open_edited
from streamsvm.data.hdf5 import Hdf5Group, is_h5ad, open_hdf5
from streamsvm.data.made_once import made_once
from streamsvm.data.manifest import APPENDS_TO, DELETES_FROM, EDITED_FORMAT, JOINED_FORMAT
from streamsvm.data.stored_dataset import open_group, read_manifest
from streamsvm.errors import InputError, IntegrityError
from streamsvm.urls import is_remote


class UnopenedDataset:
    """Stands for a pickled dataset that this process cannot open. Every use raises the error.

    Unpickling must not raise. A Dask worker unpickles a dataset while it receives a message, and an error there closes
    the connection and ends the worker, with everything that it holds for its user.
    """

    def __init__(self, pickled: tuple[Any, ...], error: Exception) -> None:
        self.pickled, self.error = pickled, error

    def __reduce__(self) -> tuple[Any, ...]:
        return self.pickled  # another process may be able to open the dataset

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and Dask look for optional methods by these names
            raise AttributeError(name)
        raise self.error


def reopen_dataset(*facts: Any) -> Dataset | UnopenedDataset:
    """Open a pickled dataset by what `Dataset.__reduce__` gives, once for all that use it."""
    try:
        return _reopen(*facts)
    except (InputError, OSError) as error:
        return UnopenedDataset((reopen_dataset, facts), error)


@made_once
def _reopen(path: str, label: str | None, fingerprint: str, reads_groups: bool, cache: str | None) -> Dataset:
    """Open a dataset. Raises InputError if there is none, and IntegrityError if another one has its place."""
    dataset = open_dataset(path, label, cache=cache)
    if dataset.fingerprint != fingerprint:  # rows were appended or deleted meanwhile
        known = dataset.meta.get("fingerprints", [])
        if fingerprint not in known:
            raise IntegrityError(f"{path}: the dataset was replaced while it was in use")
        dataset = open_edited(path, open_group(path)[1], cache, most=known.index(fingerprint))
    return dataset.read_groups() if reads_groups else dataset


def open_dataset(
    path: str | Path, label: str | None = None, groups: str | None = None, cache: str | None = None
) -> Dataset:
    """Open a dataset that `ingest` wrote, or an AnnData file, `.zarr` or `.h5ad`, as it is.

    Parameters
    ----------
    path : str or Path
        Path of the dataset. A URL such as `file:///data/rows.zarr` is taken, too.
    label : str, optional
        The column of `obs` that holds the labels of an AnnData file. Other datasets store their labels.
    groups : str, optional
        The column of `obs` that tells which rows of an AnnData file cross-validation holds out together.
    cache : str, optional
        A folder on a local disk and the most bytes in it, such as "/scratch/cache:200GB", for a dataset in an object
        store: chunks that were read once are kept and read there. Each worker of a cluster uses the folder on its own
        machine.

    Returns
    -------
    Dataset
        The opened dataset. Only its metadata have been read and checked so far; every chunk is verified when it is
        read.

    Raises
    ------
    InputError
        If there is no dataset at `path`, or none that this version can read, or if `label` or `groups` are given for a
        dataset that stores them, or `cache` for one on a local disk or with compressed chunks.
    IntegrityError
        If its metadata are damaged.
    """
    text = str(path).removeprefix("file://")
    if cache is not None and not is_remote(text):
        raise InputError(f"{path}: --cache keeps copies of what is read from an object store, and this is a local path")
    in_place = is_h5ad(text) and Path(text).is_file()
    group, meta = (open_hdf5(text), {}) if in_place else open_group(text)
    if isinstance(group, Hdf5Group) or not meta:
        if cache is not None:
            raise InputError(f"{path}: --cache is for datasets that ingest wrote, whose chunks have checksums")
        return open_anndata(text, group, label, groups)
    for option, given in (("label", label), ("groups", groups)):
        if given is not None:
            raise InputError(
                f"{path}: --{option} has no effect on a dataset that ingest wrote, which stores its "
                f"{option.removesuffix('s')}s: leave it out; it is for AnnData files"
            )
    if APPENDS_TO in meta:
        raise InputError(f"{path}: holds rows that were appended to a dataset, which is the folder above: open that")
    if DELETES_FROM in meta:
        raise InputError(f"{path}: holds rows that were deleted from a dataset, which is the folder above: open that")
    is_edited = meta.get("format") in (JOINED_FORMAT, EDITED_FORMAT)
    return open_edited(text, meta, cache) if is_edited else read_manifest(text, group, meta, cache)
