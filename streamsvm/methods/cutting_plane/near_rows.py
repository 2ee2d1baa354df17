"""The rows near the margin, collected in a pass, and the sums of all rows on the side of the margin where they lie.

    m_i = y_i w.x_i        rho_i = |1 - m_i| / |A x_i|

No row with rho_i >= r changes sides while w moves by less than r in the norm of numeric.row_norms. A pass at w
keeps the rows with the smallest rho_i, or, if rows that are farther away are to be drawn as well, the rows with the
smallest

    q_i = rho_i u_i^(1 / POWER),        u_i uniform in (0, 1]

Each group of chunks keeps more than its share of the resident rows. Of all these rows those with the smallest q_i are
kept, as many as may be resident. Let r be at most the q_i of every row of a group that is not kept. The group's rows
with rho_i < r are near, and all of them are kept. The others are far: such a row is kept with probability
(r / rho_i)^POWER, and stands for the inverse of that number of rows (priority sampling: Duffield, Lund & Thorup 2007,
Journal of the ACM 54). u_i depends on the row's number and on a seed alone, so every engine keeps the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from streamsvm.methods.cutting_plane.cuts import RowSums
from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.row_norms import RowNorm, bound_rows, measure_rows
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, Rows, stack_rows, take_rows

POWER = 1.5
SPARE_ROWS = 64  # rows that a group may hold beyond twice its share, while it is being read
LARGEST_WEIGHT = 1e9  # a far row stands for at most so many rows


@dataclass(frozen=True)
class Look:
    """What a pass looks for.

    w (width,): where it looks; norm: of the rows; squares (width,): what bounds the rows' norms (row_norms.bound_rows);
    draws: whether far rows are drawn too; share: of the rows of a group that the group keeps; most: how many rows are
    kept in all; left: what the bound of a later move of w may charge to the rows' lengths
    (row_norms.RowNorm.bound_move); class_costs (2,): C_i of the classes; bias_feature: the value of the constant
    feature; seed: of the drawing.
    """

    w: F64
    norm: RowNorm
    squares: F64
    draws: bool
    share: float
    most: int
    left: float
    class_costs: F64
    bias_feature: float
    seed: int


@dataclass(frozen=True)
class Part:
    """Rows that are kept, and of each its number, m_i, rho_i and q_i, (n,); radius: the r of their group."""

    rows: Rows
    numbers: I64
    margins: F64
    reach: F64
    priority: F64
    radius: float = float("inf")


@dataclass
class NearTotals:
    """Sums over rows, and the rows that are kept.

    sums: of the rows with m_i < 1; n_rows: all rows; radius: the smallest q_i of a row that is not kept; parts: the
    rows that are kept. As long as the rows of a group are added, there may be more than twice as many of them as are
    kept in the end. frozen: the same sums over the rows that are not set aside, if some are; n_apart: how many are;
    densest: their largest share of a group.
    """

    sums: RowSums
    frozen: RowSums
    n_rows: int = 0
    n_apart: int = 0
    densest: float = 0.0
    radius: float = float("inf")
    parts: list[Part] = field(default_factory=list)

    def find_densest(self) -> float:
        """Return the largest share of the rows of a group that are set aside."""
        return max(self.densest, self.n_apart / max(1, self.n_rows))


def start_near(width: int) -> NearTotals:
    """Return the totals of no rows."""
    return NearTotals(RowSums(np.zeros(width)), RowSums(np.zeros(width)))


def add_near(totals: NearTotals, rows: Rows, look: Look) -> None:
    """Add a tile of rows."""
    y, costs = read_labels(look.class_costs, rows.y, rows.sample_weight)
    margins = find_margins(look, rows, y)
    is_active = (margins < 1.0) & (costs > 0.0)
    _add_active(totals.sums, look, rows, y, costs, is_active)
    totals.n_rows += rows.n_rows
    if rows.chosen is not None:
        is_active[rows.chosen] = False
        _add_active(totals.frozen, look, rows, y, costs, is_active)
        totals.n_apart += len(rows.chosen)
    kept = _keep_below_radius(look, rows, margins, costs, totals.radius)
    if len(kept.numbers) or not totals.parts:  # a group without a row that costs anything has one part of no rows
        totals.parts.append(kept)
    if sum(len(part.numbers) for part in totals.parts) > 2 * look.share * totals.n_rows + SPARE_ROWS:
        totals.parts, totals.radius = _keep_nearest(totals, look.share)


def add_known(totals: NearTotals, rows: Rows, look: Look, margins: F64) -> None:
    """Add rows with the given m_i, (n,), none of which is to be kept."""
    y, costs = read_labels(look.class_costs, rows.y, rows.sample_weight)
    _add_active(totals.sums, look, rows, y, costs, (margins < 1.0) & (costs > 0.0))


def _add_active(sums: RowSums, look: Look, rows: Rows, y: F64, costs: F64, is_active: npt.NDArray[np.bool_]) -> None:
    """Add the active rows."""
    active = np.flatnonzero(is_active)
    coef = (y * costs)[active]
    add_rows(sums.vectors[None, :], rows.X, active, np.zeros_like(active), coef)
    sums.vectors[-1] += look.bias_feature * float(np.sum(coef))
    cost = float(np.sum(costs[active]))
    sums.offsets += cost
    sums.sizes += cost


def choose_within(rows: Rows, look: Look, radius: float) -> I64:
    """Return the places of the rows with a cost and with rho_i < radius: all others keep their sides in that ball."""
    y, costs = read_labels(look.class_costs, rows.y, rows.sample_weight)
    margins = find_margins(look, rows, y)
    bounds, lengths = bound_rows(look.squares, rows, look.bias_feature)
    is_far = _round_down(look, margins, lengths) * (1.0 - 4 * UNIT) >= radius * bounds
    chosen = np.flatnonzero(~is_far & (costs > 0.0))
    reach = find_reach(look, choose_rows(rows, chosen), margins[chosen])
    return chosen[reach < radius]


def find_margins(look: Look, rows: Rows, y: F64) -> F64:
    """Return m_i, (n,)."""
    scores = compute_scores(rows.X, np.ascontiguousarray(look.w[None, :-1]))[:, 0]
    margins: F64 = y * (scores + look.w[-1] * look.bias_feature)
    return margins


def _keep_below_radius(look: Look, rows: Rows, margins: F64, costs: F64, radius: float) -> Part:
    """Return the rows of a tile with a cost and with q_i < radius.

    A row's norm takes far more time than its score, so it is found only of rows that a bound of it does not rule out.
    """
    factor = np.ones(rows.n_rows)
    if look.draws:
        factor = draw_numbers(rows.list_numbers(), look.seed) ** (1.0 / POWER)
    bounds, lengths = bound_rows(look.squares, rows, look.bias_feature)
    is_far = _round_down(look, margins, lengths) * factor * (1.0 - 4 * UNIT) >= radius * bounds
    chosen = np.flatnonzero(~is_far & (costs > 0.0))
    some, m = choose_rows(rows, chosen), margins[chosen]
    reach = find_reach(look, some, m)
    part = Part(some, rows.list_numbers()[chosen], m, reach, reach * factor[chosen])
    below = np.flatnonzero(part.priority < radius)
    return part if len(below) == len(chosen) else choose_part(part, below)


def find_reach(look: Look, rows: Rows, margins: F64) -> F64:
    """Return rho_i, (n,), rounded downwards and never negative, given m_i."""
    measured, lengths = measure_rows(look.norm, rows, look.bias_feature)
    distance = _round_down(look, margins, lengths)
    reach: F64 = np.divide(distance, measured, out=np.zeros(len(margins)), where=(distance > 0.0) & (measured > 0.0))
    return reach * (1.0 - 4 * UNIT)


def _round_down(look: Look, margins: F64, lengths: F64) -> F64:
    """Return a lower bound of |1 - m_i|, (n,), whatever was rounded, given |x_i|."""
    rounding = 2 * UNIT * (len(look.w) + 8) * float(np.linalg.norm(look.w)) + look.left
    distance: F64 = np.abs(1.0 - margins) * (1.0 - 4 * UNIT) - rounding * lengths - 4 * UNIT
    return np.maximum(distance, 0.0)


def draw_numbers(numbers: I64, seed: int) -> F64:
    """Return a number in (0, 1] for each row, which depends on the row's number and the seed alone (splitmix64)."""
    z = (numbers + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(seed * 0x632BE59BD9B4E019 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = (z ^ (z >> np.uint64(31))) >> np.uint64(11)
    drawn: F64 = (bits.astype(np.float64) + 1.0) * 2.0**-53
    return drawn


def combine_near(share: float, left: NearTotals, right: NearTotals) -> NearTotals:
    """Return the totals of the rows of both. The rows that are kept are shared with both, not copied."""
    return NearTotals(
        sums=left.sums + right.sums,
        frozen=left.frozen + right.frozen,
        n_rows=left.n_rows + right.n_rows,
        n_apart=left.n_apart + right.n_apart,
        densest=max(left.find_densest(), right.find_densest()),
        radius=min(left.radius, right.radius),
        parts=close_group(left, share) + close_group(right, share),
    )


def close_group(totals: NearTotals, share: float) -> list[Part]:
    """Return the kept rows of groups that are complete; the rows of a group are one part, with the group's radius."""
    if any(np.isfinite(part.radius) for part in totals.parts):
        return totals.parts
    parts, radius = _keep_nearest(totals, share)
    return [replace(part, radius=min(radius, float(np.finfo(float).max))) for part in parts]


def _keep_nearest(totals: NearTotals, share: float) -> tuple[list[Part], float]:
    """Return the rows with the smallest q_i as one part, as many as the group's share is, and the smallest q_i left."""
    if not totals.parts:
        return [], totals.radius
    whole, most = join_parts(totals.parts), max(1, int(share * totals.n_rows))
    if len(whole.numbers) <= most:
        return [whole], totals.radius
    order = np.argsort(whole.priority, kind="stable")
    radius = min(totals.radius, float(whole.priority[order[most]]))
    return [choose_part(whole, np.sort(order[:most]))], radius


def keep_below(parts: list[Part], radius: float) -> list[Part]:
    """Return the parts' rows with q_i below a radius, which becomes the radius of each unless its own is smaller."""
    kept = [choose_part(part, np.flatnonzero(part.priority < radius)) for part in parts]
    return [replace(part, radius=min(part.radius, radius)) for part in kept]


def join_parts(parts: list[Part]) -> Part:
    """Return several parts as one, whose radius is not known."""
    rows = join_rows([part.rows for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    margins, reach, priority = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("margins", "reach", "priority")
    )
    return Part(rows, numbers, margins, reach, priority)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several parts, which have labels, one part below the other."""
    weights = [part.sample_weight for part in parts if part.sample_weight is not None]
    codes = [part.y for part in parts if part.y is not None]
    X = stack_rows([part.X for part in parts])
    return Rows(-1, X, np.concatenate(codes), np.concatenate(weights) if weights else None)


def count_for(part: Part, draws: bool) -> F64:
    """Return how many rows each row of a part stands for, (n,): 1 for those that are near."""
    if not draws:
        return np.ones(len(part.numbers))
    farther = part.reach > part.radius
    ratio = np.divide(part.radius, part.reach, out=np.ones(len(part.reach)), where=farther)
    weights: F64 = 1.0 / np.maximum(ratio**POWER, 1.0 / LARGEST_WEIGHT)
    return weights


def choose_part(part: Part, chosen: I64) -> Part:
    """Return the rows of a part with these places."""
    own = part.numbers[chosen], part.margins[chosen], part.reach[chosen], part.priority[chosen]
    return Part(choose_rows(part.rows, chosen), *own, part.radius)


def choose_rows(rows: Rows, chosen: I64) -> Rows:
    """Return the rows with these places, in memory of their own."""
    assert rows.y is not None
    weight = None if rows.sample_weight is None else rows.sample_weight[chosen]
    return Rows(-1, take_rows(rows.X, chosen), rows.y[chosen], weight)
