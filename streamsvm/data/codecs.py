"""The codecs that may decode data from elsewhere. All others are refused, because some run code that the data hold.

The codec `pickle` of numcodecs does so, for Zarr 2 and, under other names, for Zarr 3. The list is applied to the
metadata as they are stored, before Zarr makes codecs of them, so that it holds for any version of numcodecs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import zarr
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from streamsvm.data.hdf5 import Hdf5Array, Hdf5Group
from streamsvm.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
FILTERS = {"bitround", "crc32c", "delta", "fixedscaleoffset", "shuffle", "vlen-bytes", "vlen-utf8"}
ZARR_3 = {"bytes", "sharding_indexed", "transpose"}
ALLOWED = COMPRESSORS | FILTERS | ZARR_3

Metadata = dict[str, Any]


def open_array(group: zarr.Group | Hdf5Group, name: str, place: str) -> zarr.Array[Any]:
    """Open an array of a group, which messages call `place`.

    Raises InputError if there is no such array, or if one of its codecs is not in ALLOWED; then nothing is decoded.
    """
    found = open_node(group, name, place)
    if not is_array(found):
        raise InputError(f"{place}/{name}: a group; an array is expected")
    return found


def is_array(node: object) -> TypeIs[zarr.Array[Any]]:
    """Tell whether a node is an array, and no group; an array of HDF5 passes for one of Zarr."""
    return isinstance(node, zarr.Array | Hdf5Array)


def open_node(group: zarr.Group | Hdf5Group, name: str, place: str) -> zarr.Array[Any] | zarr.Group:
    """Open an array, whose codecs must all be allowed, or a group by its name. Raises InputError for all else."""
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
                f"{place}/{name}: the codec {codec!r} is not allowed, since codecs may run code that the data hold; "
                f"write the array with one of {', '.join(sorted(ALLOWED))}"
            )
    try:
        return group[name]
    except Exception as error:  # damaged metadata make Zarr and numcodecs raise errors of many kinds
        raise InputError(f"{file}: damaged ({error})") from error


def is_name(name: str) -> bool:
    """Tell whether a name stays within its group: it has no empty part and no part `.` or `..`."""
    return not any(part in ("", ".", "..") for part in name.split("/"))


def exists(group: zarr.Group | Hdf5Group, name: str) -> bool:
    """Tell whether a group holds an array or a group of that name, without giving its metadata to Zarr."""
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
    """Return the file that describes an array or group, and its content; None if there is none."""
    for file in (f"{name}/{last}" for last in _metadata_files(group)):
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
        raise InputError(f"{file}: damaged (no JSON object)")
    return metadata


def _find_codecs(metadata: Metadata) -> Iterator[str]:
    """Yield the names of all codecs in metadata of Zarr 2 or 3, at any depth, since shards have codecs of their own."""
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
