"""HDF5 files, seen as groups and arrays of Zarr are, as far as AnnData files need it: `.h5ad` files are read in place.

The library of HDF5 lets one thread read at a time, and decodes whole chunks. What lies in other files is refused: a
file that is opened may lead to data of its reader that its writer must not see.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import InputError

SUFFIX = ".h5ad"
READ_BYTES = 1 << 20  # of an array without chunks, which are read together


@contextmanager
def decoding(place: str) -> Iterator[None]:
    """Raise InputError, which names the place, for what h5py cannot decode."""
    try:
        yield
    except UnicodeEncodeError:
        raise
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{place}: damaged ({error})") from error


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
        with suppress(UnicodeEncodeError), decoding(f"{self._store}/{name}"):
            return name in self._group
        return False  # no name is beyond UTF-8

    def list_names(self) -> list[str]:
        """Return the names of all arrays and groups, sorted."""
        with decoding(self._store):
            return sorted(self._group)

    def open(self, name: str, place: str) -> Hdf5Array | Hdf5Group:
        """Open an array or a group. Raises InputError for what is missing, or lies in another file."""
        found = self._group
        for part in name.split("/"):
            with decoding(f"{place}/{name}"):
                link = found.get(part, getlink=True) if part in found else None
            if link is None or type(link).__name__ == "ExternalLink":
                fault = "missing" if link is None else f"lies in another file, {link.filename}, which is not read"
                raise InputError(f"{place}/{name}: {fault}")
            with decoding(f"{place}/{name}"):
                found = found[part]
        self._require_own_values(found, f"{place}/{name}")
        with decoding(f"{place}/{name}"):
            return Hdf5Group(found, self._store) if hasattr(found, "keys") else Hdf5Array(found, self._store)

    def _require_own_values(self, found: Any, name: str) -> None:
        """InputError for what is neither a group nor an array of this file, which soft links may leave as well."""
        if found.file != self._group.file:
            raise InputError(f"{name}: lies in another file, {found.file.filename}, which is not read")
        if hasattr(found, "keys"):
            return
        if getattr(found, "shape", None) is None:
            raise InputError(f"{name}: neither a group nor an array of values")
        if found.external or found.is_virtual:
            raise InputError(f"{name}: its values lie in other files, which are not read")


def open_hdf5(path: str) -> Hdf5Group:
    """Open a file, which stays open as long as its groups and arrays are used. InputError if it is no HDF5 file."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise InputError(f"reading {SUFFIX} needs h5py: pip install 'streamsvm[anndata]'") from error
    try:
        return Hdf5Group(h5py.File(path, "r"), path)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: no {SUFFIX} file that h5py reads ({error})") from error


def is_h5ad(path: str | Path) -> bool:
    """Tell whether the name is that of a `.h5ad` file."""
    return Path(path).suffix.lower() == SUFFIX


def _read_attributes(node: Any) -> dict[str, Any]:
    """Return the attributes; texts of a fixed length, which other languages write, are str as well."""
    found = {name: np.asarray(value).tolist() for name, value in node.attrs.items()}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}
