"""Opens datasets by path, whatever program wrote them, and reopens pickled datasets in other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamsvm.data.sources.anndata import open_anndata
from streamsvm.data.store.dataset import Dataset, open_group, read_manifest
from streamsvm.data.store.edits import open_edited
from streamsvm.data.store.manifest import APPENDS_TO, DELETES_FROM, EDITED_FORMAT, JOINED_FORMAT
from streamsvm.data.store.zarr_arrays import Hdf5Group, is_h5ad, open_hdf5
from streamsvm.system.errors import InputError, IntegrityError
from streamsvm.system.files import is_remote
from streamsvm.system.shared import made_once


class UnopenedDataset:
    """A placeholder for a pickled dataset, which is opened on first use. If opening fails, every use raises the error.

    Unpickling must neither raise nor wait. The event loop of a Dask worker unpickles a dataset while it receives a
    message. An error there would close the connection, end the worker and lose all results that it holds. A store that
    does not answer would block the worker. kind: the class of the dataset, for `isinstance`.
    """

    def __init__(self, kind: type[Dataset], make: Callable[..., Dataset], *facts: Any) -> None:
        self.kind, self.make, self.facts = kind, make, facts
        self.opened: Dataset | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.kind

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen_dataset, (self.kind, self.make, *self.facts)  # another process may be able to open the dataset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and Dask look for optional methods by these names
            raise AttributeError(name)
        if self.opened is None:
            self.opened = self.make(*self.facts)
        return getattr(self.opened, name)


def reopen_dataset(kind: type[Dataset], make: Callable[..., Dataset], *facts: Any) -> Dataset | UnopenedDataset:
    """Open a pickled dataset by make(*facts).

    If this fails, or an event loop runs in this thread, return an UnopenedDataset.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no event loop runs in this thread
        with suppress(InputError, OSError):
            return make(*facts)
    return UnopenedDataset(kind, make, *facts)


@made_once
def reopen_path(path: str, label: str | None, fingerprint: str, reads_groups: bool, cache: str | None) -> Dataset:
    """Open a dataset. Calls with the same arguments share one object.

    Raises InputError if it is missing, and IntegrityError if another dataset has replaced it.
    """
    dataset = open_dataset(path, label, cache=cache)
    if dataset.fingerprint != fingerprint:  # rows were appended or deleted meanwhile
        known = dataset.meta.get("fingerprints", [])
        if fingerprint not in known:
            raise IntegrityError(
                f"{path}: another dataset has replaced this dataset while it was in use; start the command again"
            )
        dataset = open_edited(path, open_group(path)[1], cache, most=known.index(fingerprint))
    return dataset.read_groups() if reads_groups else dataset


def open_dataset(
    path: str | Path, label: str | None = None, groups: str | None = None, cache: str | None = None
) -> Dataset:
    """Open a dataset that `ingest` wrote, or an AnnData file (`.zarr` or `.h5ad`) in place.

    Parameters
    ----------
    path : str or Path
        Path of the dataset, or a URL such as `file:///data/rows.zarr`.
    label : str, optional
        The column of `obs` that holds the labels of an AnnData file. Other datasets store their labels.
    groups : str, optional
        The column of `obs` that holds the groups of an AnnData file. Cross-validation holds out each group whole.
    cache : str, optional
        A folder on a local disk and the maximum number of bytes to keep in it, such as "/scratch/cache:200GB". Chunks
        of a dataset in an object store are copied to this folder when they are first read, and read from it
        afterwards. Each worker of a cluster uses the folder of this name on its own machine.

    Returns
    -------
    Dataset
        The opened dataset. Only its metadata have been read and checked so far; each chunk is verified when it is
        read.

    Raises
    ------
    InputError
        If `path` holds no dataset, or one that this version cannot read; if `label` or `groups` is given for a dataset
        that stores them; or if `cache` is given for a dataset on a local disk or with compressed chunks.
    IntegrityError
        If the metadata are damaged.
    """
    text = str(path).removeprefix("file://")
    if cache is not None and not is_remote(text):
        raise InputError(f"{path}: is on a local disk, and --cache only copies data from an object store; omit --cache")
    in_place = is_h5ad(text) and Path(text).is_file()
    group, meta = (open_hdf5(text), {}) if in_place else open_group(text)
    if isinstance(group, Hdf5Group) or not meta:
        if cache is not None:
            raise InputError(
                f"{path}: --cache needs a dataset that `ingest` wrote, since its chunks have checksums; omit --cache"
            )
        return open_anndata(text, group, label, groups)
    for option, given in (("label", label), ("groups", groups)):
        if given is not None:
            stored = f"a dataset that ingest wrote, which stores its {option.removesuffix('s')}s"
            raise InputError(f"{path}: --{option} has no effect on {stored}: omit it; it is for AnnData files")
    for change, verb in ((APPENDS_TO, "appended to"), (DELETES_FROM, "deleted from")):
        if change in meta:
            raise InputError(f"{path}: holds rows that were {verb} the dataset in the folder above: open that dataset")
    is_edited = meta.get("format") in (JOINED_FORMAT, EDITED_FORMAT)
    return open_edited(text, meta, cache) if is_edited else read_manifest(text, group, meta, cache)
