"""What a pass along a line adds up where multipliers guide: losses and cuts, and where each row stands at its end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streamsvm.methods.cutting_plane.row_statuses import U8, read_statuses
from streamsvm.methods.cutting_plane.segments import SegmentTotals, add_to_totals, combine_totals, start_totals
from streamsvm.numeric.rows import F32, F64, Rows, compute_scores


@dataclass
class LineTotals:
    """What a pass adds up; tiles: first row, margins at the line's end, codes of cutting_plane.row_statuses."""

    segment: SegmentTotals
    tiles: list[tuple[int, F32, U8]] = field(default_factory=list)


def start_line(k: int, width: int) -> LineTotals:
    """Return the totals of no rows."""
    return LineTotals(start_totals(k, width))


def add_to_line(
    totals: LineTotals, rows: Rows, ends: F64, class_costs: F64, cut_steps: F64, bias_feature: float
) -> None:
    """Add rows."""
    scores = compute_scores(rows.X, ends) if rows.scores is None else rows.scores
    add_to_totals(totals.segment, replace(rows, scores=scores), ends, class_costs, cut_steps, bias_feature)
    found = read_statuses(rows, scores, ends[:, -1] * bias_feature, class_costs, cut_steps)
    totals.tiles.append((rows.start, *found))


def combine_lines(left: LineTotals, right: LineTotals) -> LineTotals:
    """Return the sum."""
    return LineTotals(combine_totals(left.segment, right.segment), left.tiles + right.tiles)
