"""Groups of chunks. A group is the work of one task, and a leaf of the tree that adds up the sums of a pass."""

from __future__ import annotations

from streamsvm.data.source import RowSource

LARGEST_GROUP_BYTES = 256 << 20
SMALLEST_GROUP_BYTES = 4 << 20
GROUPS = 16


def plan_groups(source: RowSource) -> list[range]:
    """Cut the chunks into about 16 groups, each of 4 to 256 MiB of whole chunks.

    The groups depend on the shape of the dataset alone, so that sums have the same bits in every engine.
    """
    chunk_bytes = max(1, source.nbytes // source.n_chunks)
    wanted_bytes = min(LARGEST_GROUP_BYTES, max(SMALLEST_GROUP_BYTES, source.nbytes // GROUPS))
    size = max(1, wanted_bytes // chunk_bytes)
    return [range(at, min(at + size, source.n_chunks)) for at in range(0, source.n_chunks, size)]
