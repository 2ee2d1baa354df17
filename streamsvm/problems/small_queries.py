"""Whether queries are so small that pairs are counted where the rows are read, and what memory that takes."""

from __future__ import annotations

from streamsvm.data.row_tiles import TILE_ITEMS, count_tile_rows
from streamsvm.data.source import RowSource
from streamsvm.numeric.pair_counts import SAMPLE_ROWS
from streamsvm.problems.query_pairs import QueryPairs, find_query_pairs
from streamsvm.problems.registry import find_problem

ROW_VECTORS = 28  # vectors of 8 bytes a row at once: scores, also in twice the precision, and the counts of pairs
LARGEST_QUERY_BYTES = 16 << 20  # With a larger query the driver holds the scores of all rows.
SAMPLE_BYTES = 16 << 20  # the most bytes of the sample: long rows make it smaller
EDGES = (
    4  # copies of the largest query in a task: at both ends of its rows, where two ends meet, and while it is joined
)
TASK_BYTES = 320  # for each row of a tile: scores, also in twice the precision, what sorts them, and counts of pairs


def find_small_queries(source: RowSource, task: str) -> QueryPairs | None:
    """Return the pairs within queries; None if pairs are not within queries, or the rows of a query are too many.

    InputError is raised for data that have no pairs of rows to compare, or queries that are not as they should be.
    """
    if not find_problem(task).reads_queries or source.column_of("qid", 0) is None:
        return None
    found = find_query_pairs(source, count_sample_rows(source))
    return found if query_bytes(source, found.largest) <= LARGEST_QUERY_BYTES else None


def count_task_bytes(source: RowSource, found: QueryPairs) -> int:
    """Return the bytes of the queries at both ends of a task, and of what a tile or a query is measured with."""
    measured = TASK_BYTES * max(found.largest, _count_tile_rows(source))
    return EDGES * query_bytes(source, found.largest) + measured


def query_bytes(source: RowSource, n_rows: int) -> int:
    """Return the bytes of so many rows, and of vectors with an entry for each of them."""
    return n_rows * (source.nbytes // source.n_rows + 8 * ROW_VECTORS)


def count_sample_rows(source: RowSource) -> int:
    """Return how many rows the line search looks at: fewer if they are long."""
    return max(1, min(SAMPLE_ROWS, SAMPLE_BYTES * source.n_rows // max(1, source.nbytes)))


def _count_tile_rows(source: RowSource) -> int:
    """Return the most rows of a tile."""
    return min(source.n_rows, TILE_ITEMS if source.is_sparse else count_tile_rows(source.n_features))
