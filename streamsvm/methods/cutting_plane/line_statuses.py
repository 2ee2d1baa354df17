"""The totals of a pass along a line for guided_dual: losses, cuts, and the margin and status code of each row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streamsvm.methods.cutting_plane.row_statuses import U8, read_statuses
from streamsvm.methods.cutting_plane.segments import SegmentTotals, add_to_totals, combine_totals, start_totals
from streamsvm.numeric.rows import F32, F64, Rows, compute_scores


@dataclass
class LineTotals:
    """Totals of a pass along a line.

    segment: losses and cuts; tiles: for each tile its first row, its rows' margins at the end of the line, and their
    codes (cutting_plane.row_statuses).
    """

    segment: SegmentTotals
    tiles: list[tuple[int, F32, U8]] = field(default_factory=list)


def start_line(k: int, width: int) -> LineTotals:
    """Return the totals of no rows."""
    return LineTotals(start_totals(k, width))


def add_to_line(
    totals: LineTotals, rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float
) -> None:
    """Add the losses, the cuts, and the statuses of rows."""
    scores = compute_scores(rows.X, ends) if rows.scores is None else rows.scores
    add_to_totals(totals.segment, replace(rows, scores=scores), ends, class_costs, cut_steps, bias_feature)
    found = read_statuses(rows, scores, ends[:, -1] * bias_feature, class_costs, cut_steps)
    totals.tiles.append((rows.start, *found))


def combine_lines(left: LineTotals, right: LineTotals) -> LineTotals:
    """Return the totals of the rows of both."""
    return LineTotals(combine_totals(left.segment, right.segment), left.tiles + right.tiles)
