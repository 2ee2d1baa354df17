"""Groups and arrays of HDF5 files, with those names of Zarr's classes by which AnnData files are read in place.

The HDF5 library lets one thread read at a time, and decodes whole chunks. Links to other files, and values in other
files, are refused: a file that somebody else wrote could have a training read the user's own files in this way.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import InputError

SUFFIX = ".h5ad"
READ_BYTES = 1 << 20  # of the rows that are one chunk of an array which the file stores in one piece


class Hdf5Array:
    """An array, with those names of zarr.Array that the readers of AnnData files and StoredArray use."""

    shards = None

    def __init__(self, dataset: Any, store: str) -> None:
        self._dataset, self.store, self.path = dataset, store, dataset.name.lstrip("/")
        self.shape, self.dtype, self.ndim = dataset.shape, dataset.dtype, dataset.ndim
        self.attrs = _read_attributes(dataset)
        row_bytes = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        rows = min(max(1, READ_BYTES // row_bytes), max(1, *self.shape[:1])) if self.ndim else 1
        self.chunks = dataset.chunks or (rows, *self.shape[1:])

    def __getitem__(self, part: slice) -> Any:
        """Return the values of a part along the first axis; texts as str."""
        is_text = self.dtype.kind in "OS"
        return (self._dataset.asstr() if is_text else self._dataset)[part]


class Hdf5Group:
    """A group, whose members are opened by their names."""

    def __init__(self, group: Any, store: str) -> None:
        self._group, self._store, self.attrs = group, store, _read_attributes(group)

    def exists(self, name: str) -> bool:
        """Tell whether there is an array or a group of that name."""
        return name in self._group

    def list_names(self) -> list[str]:
        """Return the names of all arrays and groups, sorted."""
        return sorted(self._group)

    def open(self, name: str, place: str) -> Hdf5Array | Hdf5Group:
        """Open an array or a group. Raises InputError if it is missing or damaged, or lies in another file."""
        found = self._group
        for part in name.split("/"):
            link = found.get(part, getlink=True) if part in found else None
            if link is None or type(link).__name__ == "ExternalLink":
                fault = "missing" if link is None else f"lies in another file, {link.filename}, which is not read"
                raise InputError(f"{place}/{name}: {fault}")
            try:
                found = found[part]
            except (KeyError, OSError, RuntimeError) as error:
                raise InputError(f"{place}/{name}: damaged ({error})") from error
            if found.file.filename != self._group.file.filename:  # a soft link may lead through an external one
                raise InputError(f"{place}/{name}: lies in another file, {found.file.filename}, which is not read")
        if not hasattr(found, "shape"):
            return Hdf5Group(found, self._store)
        if found.external or found.is_virtual:
            raise InputError(f"{place}/{name}: its values lie in other files, which are not read")
        return Hdf5Array(found, self._store)


def open_hdf5(path: str) -> Hdf5Group:
    """Open a file, which stays open as long as its groups and arrays are used. InputError if it is no HDF5 file."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise InputError(f"reading {SUFFIX} needs h5py: pip install 'streamsvm[anndata]'") from error
    try:
        return Hdf5Group(h5py.File(path, "r"), path)
    except OSError as error:
        raise InputError(f"{path}: no {SUFFIX} file that h5py reads ({error})") from error


def is_h5ad(path: str | Path) -> bool:
    """Tell whether the name is that of a `.h5ad` file."""
    return Path(path).suffix.lower() == SUFFIX


def _read_attributes(node: Any) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in node.attrs.items()}
