"""Zarr arrays from untrusted sources: codecs that may run code are refused, and chunks compared with the manifest.

Some codecs run code that the data contain. An example is `pickle` of numcodecs, in Zarr 2 and, under other names, in
Zarr 3. The list of allowed codecs is applied to the stored metadata, before Zarr creates codecs from them. It is
therefore effective with any version of numcodecs.

Zarr decodes compressed chunks and the chunks of remote stores. Its codec `crc32c` compares the bytes of a chunk with
the checksum at their end, but Zarr reads a missing chunk as zeros and does not notice two swapped chunks.
`CheckedStore` compares each chunk with the manifest as soon as Zarr receives it.

HDF5 files are presented as Zarr groups and arrays, as far as AnnData requires: `.h5ad` files are read in place. The
HDF5 library lets one thread read at a time, and decodes whole chunks. Links to data in other files are refused, since
a malicious file could link to private data of its reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import zarr
from zarr import Array, AsyncArray
from zarr.abc.store import ByteRequest, Store
from zarr.buffer import default_buffer_prototype
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.sync import sync
from zarr.storage import StorePath, WrapperStore

from streamsvm.data.store.chunks import CRC_BYTES
from streamsvm.system.errors import InputError, IntegrityError
from streamsvm.system.interrupts import waiting

if TYPE_CHECKING:
    from typing_extensions import TypeIs


import importlib
import math
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = ".h5ad"
DIMENSIONS = "_ARRAY_DIMENSIONS"  # the attribute with the names of dimensions in xarray's stores of Zarr 2
READ_BYTES = 1 << 20  # the number of bytes read at a time from an array without chunks


@contextmanager
def decoding(place: str) -> Iterator[None]:
    """Convert errors of h5py in the block to an InputError naming the place."""
    try:
        yield
    except (UnicodeEncodeError, InputError):
        raise
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{place}: damaged ({error})") from error


class Hdf5Array:
    """An HDF5 array with the attributes of zarr.Array that the readers of AnnData files and StoredArray use."""

    shards = None

    def __init__(self, dataset: Any, store: str) -> None:
        self._dataset, self.store, self.path = dataset, store, dataset.name.lstrip("/")
        self.shape, self.dtype, self.ndim = dataset.shape, dataset.dtype, dataset.ndim
        self.attrs = _read_attributes(dataset)
        row_bytes = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        rows = min(max(1, READ_BYTES // row_bytes), max(1, *self.shape[:1])) if self.ndim else 1
        self.chunks = dataset.chunks or (rows, *self.shape[1:])

    def __getitem__(self, part: slice) -> Any:
        """Return the values of a range of the first axis; strings are returned as str."""
        is_text = self.dtype.kind in "OS"
        return (self._dataset.asstr() if is_text else self._dataset)[part]


class Hdf5Group:
    """An HDF5 group, whose members are opened by name."""

    def __init__(self, group: Any, store: str) -> None:
        self._group, self._store, self.attrs = group, store, _read_attributes(group)

    def exists(self, name: str) -> bool:
        """Return whether the group has an array or a group with this name."""
        with suppress(UnicodeEncodeError), decoding(f"{self._store}/{name}"):
            return name in self._group
        return False  # such a name cannot be encoded as UTF-8

    def list_names(self) -> list[str]:
        """Return the names of all arrays and groups, sorted."""
        with decoding(self._store):
            return sorted(self._group)

    def open(self, name: str, place: str) -> Hdf5Array | Hdf5Group:
        """Open an array or a group. Raises InputError if it is missing, or lies in another file."""
        found = self._group
        with decoding(f"{place}/{name}"):
            for part in name.split("/"):
                link = found.get(part, getlink=True) if part in found else None
                if link is None or type(link).__name__ == "ExternalLink":
                    fault = "missing" if link is None else f"lies in another file, {link.filename}, which is not read"
                    raise InputError(f"{place}/{name}: {fault}")
                found = found[part]
            self._require_own_values(found, f"{place}/{name}")
            return Hdf5Group(found, self._store) if hasattr(found, "keys") else Hdf5Array(found, self._store)

    def _require_own_values(self, found: Any, name: str) -> None:
        """Raise InputError unless a node is a group or array of this file; soft links may lead to other files, too."""
        if found.file != self._group.file:
            raise InputError(
                f"{name}: lies in another file, {found.file.filename}, which is not read; copy it into this file"
            )
        if hasattr(found, "keys"):
            return
        if getattr(found, "shape", None) is None:
            raise InputError(f"{name}: is neither a group nor an array of values")
        if found.external or found.is_virtual:
            raise InputError(f"{name}: its values lie in other files, which are not read; copy them into this file")


def open_hdf5(path: str) -> Hdf5Group:
    """Open an HDF5 file. It stays open while its groups and arrays are in use.

    Raises InputError if h5py is not installed or cannot read the file.
    """
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise InputError(f"reading {SUFFIX} needs h5py: pip install 'streamsvm[anndata]'") from error
    try:
        return Hdf5Group(h5py.File(path, "r"), path)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is not a {SUFFIX} file that h5py can read ({error})") from error


def is_h5ad(path: str | Path) -> bool:
    """Return whether a path ends in `.h5ad`."""
    return Path(path).suffix.lower() == SUFFIX


def _read_attributes(node: Any) -> dict[str, Any]:
    """Return the attributes. Fixed-length strings, which programs in other languages write, are decoded to str."""
    found = {name: np.asarray(value).tolist() for name, value in node.attrs.items()}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


class CheckedStore(WrapperStore[Store]):
    """A store that refuses a chunk unless it exists and ends with the checksum listed for its key."""

    def __init__(self, store: Store, checksums: dict[str, int]) -> None:
        super().__init__(store)
        self._checksums = checksums

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return a whole chunk. Raises IntegrityError unless it is the chunk that the manifest lists."""
        found = await self._store.get(key, prototype, byte_range)
        if found is None:
            raise IntegrityError(f"{self._name(key)}: chunk is missing")
        if int.from_bytes(found[-CRC_BYTES:].to_bytes(), "little") != self._checksums.get(key):
            raise IntegrityError(f"{self._name(key)}: is not the chunk that was written here (its checksum differs)")
        return found

    def _name(self, key: str) -> str:
        return f"{self._store}/{key}".removeprefix("file://")


def check_chunks(array: Array[Any], checksums: npt.NDArray[np.uint32]) -> Array[Any]:
    """Return the array on a store that compares its chunks with these checksums. The chunks must be whole rows."""
    others = (0,) * (array.ndim - 1)
    keys = (array.metadata.encode_chunk_key((index, *others)) for index in range(len(checksums)))
    listed = {f"{array.path}/{key}": int(checksum) for key, checksum in zip(keys, checksums, strict=True)}
    place = StorePath(CheckedStore(array.store, listed), array.path)
    return Array(AsyncArray(array.metadata, place))


def list_codecs(array: Array[Any]) -> list[Any]:
    """Return the codecs of a Zarr 3 array; an empty list for other arrays."""
    known: Any = array.metadata
    return [codec.to_dict() for codec in known.codecs] if known.zarr_format == 3 else []


COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
FILTERS = {"bitround", "crc32c", "delta", "fixedscaleoffset", "shuffle", "vlen-bytes", "vlen-utf8"}
ZARR_3 = {"bytes", "sharding_indexed", "transpose"}
ALLOWED = COMPRESSORS | FILTERS | ZARR_3

Metadata = dict[str, Any]


def describe_array(array: zarr.Array[Any]) -> Metadata:
    """Return the manifest entry of an array. When the array is opened, its Zarr metadata must agree with this entry."""
    layout: Metadata = {"shape": list(array.shape), "chunks": list(array.chunks), "dtype": str(array.dtype)}
    layout |= {"codecs": list_codecs(array)} | ({} if array.shards is None else {"shards": list(array.shards)})
    entry: Metadata = json.loads(json.dumps(layout))
    return entry


def describe_array_file(path: str) -> str | None:
    """Return the type and the shape of the Zarr array in a local folder; None if there is no array."""
    for file in (Path(path, "zarr.json"), Path(path, ".zarray")):
        with suppress(OSError, InputError):
            about = _parse_metadata(file.read_bytes(), str(file))
            if about.get("node_type", "array") == "array" and isinstance(shape := about.get("shape"), list):
                return f"{about.get('data_type', about.get('dtype'))} of shape {tuple(shape)}"
    return None


def explain_group(group: zarr.Group, path: str) -> str:
    """Return what a group of arrays is that is not a dataset, and the remedy. xarray names the dimensions of arrays."""
    arrays = dict[str, zarr.Array[Any]]()
    for name in list_names(group):
        with suppress(InputError):
            if is_array(node := open_node(group, name, path)):
                arrays[name] = node
    if not arrays:
        return "a Zarr group without arrays"
    shown = ", ".join(f"{name} {node.shape}" for name, node in list(arrays.items())[:8])
    rows = next((name for name, node in arrays.items() if node.ndim == 2), None)
    named = (getattr(node.metadata, "dimension_names", None) or node.attrs.get(DIMENSIONS) for node in arrays.values())
    if not any(named):
        remedy = f"pass zarr.open_group({path!r})[{rows or 'NAME'!r}] and its labels y to streamsvm.ingest or `fit`"
        return f"a Zarr group with {shown}: in Python, {remedy}"
    part = ".to_dataframe()" if rows is None else f"[{rows!r}] and its labels y"
    return f"an xarray store with {shown}: in Python, pass xarray.open_zarr({path!r}){part} to streamsvm.ingest"


def open_array(group: zarr.Group | Hdf5Group, name: str, place: str) -> zarr.Array[Any]:
    """Open an array of a group. place: the name of the group in messages.

    Raises InputError if the array does not exist, or if one of its codecs is not in ALLOWED. This is checked before
    anything is decoded.
    """
    found = open_node(group, name, place)
    if not is_array(found):
        raise InputError(f"{place}/{name}: is a group; an array is expected")
    return found


def is_array(node: object) -> TypeIs[zarr.Array[Any]]:
    """Return whether a node is an array, rather than a group. Type checkers take an HDF5 array for a Zarr array."""
    return isinstance(node, zarr.Array | Hdf5Array)


def open_node(group: zarr.Group | Hdf5Group, name: str, place: str) -> zarr.Array[Any] | zarr.Group:
    """Open an array with allowed codecs, or a group, by name. Raises InputError if it is missing or unsuitable."""
    if not is_name(name):
        raise InputError(f"{place}: {name!r} is not the name of an array or group")
    if isinstance(group, Hdf5Group):
        return cast("zarr.Array[Any] | zarr.Group", group.open(name, place))
    stored = _find_metadata(group, name)
    if stored is None:
        raise InputError(f"{place}/{name}/{_metadata_files(group)[0]}: missing")
    file = f"{place}/{stored[0]}"
    metadata = _parse_metadata(stored[1], file)
    for codec in _find_codecs(metadata):
        if codec.removeprefix("numcodecs.") not in ALLOWED:
            raise InputError(
                f"{place}/{name}: the codec {codec!r} is not allowed, because it may run code in the data; "
                f"write the array with one of {', '.join(sorted(ALLOWED))}"
            )
    try:
        return group[name]
    except Exception as error:  # damaged metadata cause many types of errors in Zarr and numcodecs
        raise InputError(f"{file}: damaged ({error})") from error


def is_name(name: str) -> bool:
    """Return whether a name stays within its group: no part of it is empty, `.` or `..`."""
    return not any(part in ("", ".", "..") for part in name.split("/"))


def exists(group: zarr.Group | Hdf5Group, name: str) -> bool:
    """Return whether a group has an array or a group with this name, without passing its metadata to Zarr."""
    if isinstance(group, Hdf5Group):
        return group.exists(name)
    return _find_metadata(group, name) is not None


def list_names(group: zarr.Group | Hdf5Group) -> list[str]:
    """Return the names of all arrays and groups in a group, sorted."""
    if isinstance(group, Hdf5Group):
        return group.list_names()

    async def gather() -> list[str]:
        return [name async for name in group.store.list_dir(group.path)]

    return sorted(name for name in sync(gather()) if not name.startswith(".") and name != "zarr.json")


def _metadata_files(group: zarr.Group) -> tuple[str, ...]:
    return ("zarr.json",) if group.metadata.zarr_format == 3 else (".zarray", ".zgroup")


def _find_metadata(group: zarr.Group, name: str) -> tuple[str, bytes] | None:
    """Return the metadata file of an array or group, and its content; None if it does not exist."""
    for file in (f"{name}/{last}" for last in _metadata_files(group)):
        with waiting():
            stored = sync((group.store_path / file).get(default_buffer_prototype()))
        if stored is not None:
            return file, stored.to_bytes()
    return None


def _parse_metadata(content: bytes, file: str) -> Metadata:
    try:
        metadata = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: damaged ({error})") from error
    if not isinstance(metadata, dict):
        raise InputError(f"{file}: is damaged (it is not a JSON object)")
    return metadata


def _find_codecs(metadata: Metadata) -> Iterator[str]:
    """Yield the names of all codecs in Zarr 2 or 3 metadata, at any depth, since shards have codecs of their own."""
    for key in ("codecs", "index_codecs", "filters", "compressor"):
        listed = metadata.get(key)
        for codec in listed if isinstance(listed, list) else [listed]:
            if codec is None:
                continue
            if not isinstance(codec, dict):
                yield str(codec)
                continue
            yield str(codec.get("name", codec.get("id")))
            if isinstance(configuration := codec.get("configuration"), dict):
                yield from _find_codecs(configuration)
