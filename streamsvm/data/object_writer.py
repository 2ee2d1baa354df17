"""How an object is put into a store: small ones by one request, large ones in parts, several of which are in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from streamsvm.data.object_store import writing

PART_BYTES = 8 << 20  # of an object that is sent in parts
PARTS_IN_FLIGHT = 4
PUT_BYTES = (PARTS_IN_FLIGHT + 3) * PART_BYTES  # of memory that sending an object takes, with the blocks that are made


async def put_object(store: Any, url: str, key: str, parts: Iterable[Any], n_bytes: int, mode: Any = None) -> None:
    """Put an object of n_bytes, whose content comes in parts of any size. Raises WriteError, which names its URL.

    mode: "create" puts it only where none is, "overwrite" anywhere, and {"e_tag": known} in the place of the known
    version, each by one request.
    """
    import obstore

    several = n_bytes > PART_BYTES and mode is None
    with writing(f"{url}/{key}"):
        await obstore.put_async(
            store,
            key,
            _make_blocks(parts) if several else b"".join(parts),
            mode=mode,
            use_multipart=several,
            chunk_size=PART_BYTES,
            max_concurrency=PARTS_IN_FLIGHT,
        )


def _make_blocks(parts: Iterable[Any]) -> Iterator[bytes]:
    """Yield the bytes of the parts in blocks of PART_BYTES, or less than twice as many."""
    block = bytearray()
    for part in parts:
        content = memoryview(part)
        for at in range(0, len(content), PART_BYTES):
            block += content[at : at + PART_BYTES]
            if len(block) >= PART_BYTES:
                yield bytes(block)
                block = bytearray()
    if block:
        yield bytes(block)
