"""Groups of chunks: the work of one task, and the leaves of the tree in which the sums of a pass are added up."""

from __future__ import annotations

from streamsvm.data.source import RowSource

LARGEST_GROUP_BYTES = 256 << 20
SMALLEST_GROUP_BYTES = 4 << 20
GROUPS = 16


def plan_groups(source: RowSource) -> list[range]:
    """Cut the chunks into groups by the dataset's shape alone: about 16, each of 4 to 256 MiB, whole chunks."""
    chunk_bytes = max(1, source.nbytes // source.n_chunks)
    wanted_bytes = min(LARGEST_GROUP_BYTES, max(SMALLEST_GROUP_BYTES, source.nbytes // GROUPS))
    size = max(1, wanted_bytes // chunk_bytes)
    return [range(at, min(at + size, source.n_chunks)) for at in range(0, source.n_chunks, size)]
