"""Passes that keep the rows near the margin, and sum all other rows by their side of the margin.

    m_i = y_i w.x_i        rho_i = |1 - m_i| / |A x_i|

No row with rho_i >= r changes sides while w moves by less than r in the norm of numeric.row_norms. A pass at w keeps
the rows with the smallest rho_i. To sample rows farther away as well, it keeps the rows with the smallest

    q_i = rho_i u_i^(1 / POWER),        u_i uniform in (0, 1]

Each group of chunks keeps more than its part of the resident rows. From all groups together, the rows with the smallest
q_i stay, up to the number of resident rows. Let r be a lower bound of q_i over the dropped rows of a group. The rows of
the group with rho_i < r are near, and all of them are kept. The other rows are far. A far row is kept with probability
(r / rho_i)^POWER, and represents as many rows as the inverse of this probability (priority sampling: Duffield, Lund &
Thorup 2007, Journal of the ACM 54). u_i depends only on the row's number and a seed, so every engine keeps the same
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.numeric.labels import read_labels
from streamsvm.numeric.rounding import UNIT
from streamsvm.numeric.row_norms import RowNorm, bound_rows, measure_rows
from streamsvm.numeric.rows import F64, I64, Flags, Rows, add_combination, join_rows, score_rows, take_rows
from streamsvm.passes import Scan
from streamsvm.solvers.cutting_plane.cuts import RowSums

POWER = 1.5
KEPT_VECTORS = ("y", "sample_weight", "target")
SPARE_ROWS = 64  # a group that is being read may hold twice its share of rows, plus this number
EVERYWHERE = float(np.finfo(float).max)  # the radius of a group of which all rows are kept
LARGEST_WEIGHT = 1e9  # the largest number of rows that a far row represents


@dataclass(frozen=True)
class Look:
    """The parameters of a pass for near rows.

    w (width,): the point at which margins are computed. norm: the norm of the rows. squares (width,): weights that
    bound the rows' norms (row_norms.bound_rows). draws: whether far rows are sampled too. share: the fraction of its
    rows that a group keeps. most: the number of rows kept from all groups together. left: the largest allowed remainder
    in the bound of a later move of w (row_norms.RowNorm.bound_move). class_costs (2,): C_i of the classes.
    bias_feature: the value of the constant feature. seed: the seed of the sampling. place: the margin to which the rows
    are near, 1 in the formulas above.
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
    place: float = 1.0


@dataclass(frozen=True)
class Part:
    """Rows that a pass keeps.

    numbers, margins, reach, priority (n,): the row numbers, m_i, rho_i and q_i. radius: the r of the rows' group.
    """

    rows: Rows
    numbers: I64
    margins: F64
    reach: F64
    priority: F64
    radius: float = float("inf")


@dataclass
class NearTotals:
    """Sums over rows, and the rows that a pass keeps.

    sums: sums over the rows with m_i < 1. n_rows: the number of all rows. radius: the smallest q_i of a dropped row.
    parts: the kept rows. While the rows of a group are added, `parts` may hold more than twice as many rows as are kept
    in the end.
    others: further sums. If the pass sets rows aside for later passes (Scan.apart), they are sums over the rows with
    m_i < 1 that are not set aside; in one_read.kept_ball, sums over deleted rows; in newton.kinks, sums of magnitudes.
    n_apart: the number of rows set aside. densest: the largest share of a group's rows that is set aside.
    """

    sums: RowSums
    others: RowSums
    n_rows: int = 0
    n_apart: int = 0
    densest: float = 0.0
    radius: float = float("inf")
    parts: list[Part] = field(default_factory=list)

    def find_densest(self) -> float:
        """Return the largest share of a group's rows that is set aside."""
        return max(self.densest, self.n_apart / max(1, self.n_rows))


def start_near(width: int) -> NearTotals:
    """Return empty totals. width: the number of entries of w."""
    return NearTotals(RowSums(np.zeros(width)), RowSums(np.zeros(width)))


def add_near(totals: NearTotals, rows: Rows, look: Look) -> None:
    """Add a tile of rows to the totals of its group."""
    y, costs = read_labels(look.class_costs, rows.y, rows.sample_weight)
    margins = find_margins(look, rows, y)
    is_active = (margins < 1.0) & (costs > 0.0)
    _add_active(totals.sums, look, rows, y, costs, is_active)
    totals.n_rows += rows.n_rows
    if rows.chosen is not None:
        is_active[rows.chosen] = False
        _add_active(totals.others, look, rows, y, costs, is_active)
        totals.n_apart += len(rows.chosen)
    keep_near(totals, rows, look, margins, margins, costs)


def keep_near(totals: NearTotals, rows: Rows, look: Look, margins: F64, noted: F64, costs: F64) -> None:
    """Keep the rows of a tile that are near the margin. noted (n,): the numbers that are kept as Part.margins."""
    kept = _keep_below_radius(look, rows, margins, noted, costs, totals.radius)
    if len(kept.numbers) or not totals.parts:  # a group whose rows all have cost 0 has one empty part
        totals.parts.append(kept)
    if sum(len(part.numbers) for part in totals.parts) > 2 * look.share * totals.n_rows + SPARE_ROWS:
        totals.parts, totals.radius = _keep_nearest(totals, look.share)


def add_known(sums: RowSums, rows: Rows, look: Look, margins: F64) -> None:
    """Add the rows with m_i < 1 to the sums, given the m_i of all `rows`, (n,)."""
    y, costs = read_labels(look.class_costs, rows.y, rows.sample_weight)
    _add_active(sums, look, rows, y, costs, (margins < 1.0) & (costs > 0.0))


def _add_active(sums: RowSums, look: Look, rows: Rows, y: F64, costs: F64, is_active: Flags) -> None:
    """Add C_i y_i x_i and C_i of the rows with the flag `is_active` to the sums."""
    active = np.flatnonzero(is_active)
    add_combination(sums.vectors, rows.X, active, (y * costs)[active], look.bias_feature)
    cost = float(np.sum(costs[active]))
    sums.offsets += cost
    sums.sizes += cost


def choose_within(rows: Rows, look: Look, radius: float) -> I64:
    """Return the indices of the rows with a cost and rho_i < radius.

    While w moves by less than the radius, no other row with a cost changes sides.
    """
    y, costs = read_labels(look.class_costs, rows.y, rows.sample_weight)
    margins = find_margins(look, rows, y)
    chosen, _, reach = _find_within(look, rows, margins, costs, np.ones(rows.n_rows), radius)
    return chosen[reach < radius]


def find_margins(look: Look, rows: Rows, y: F64) -> F64:
    """Return the margins m_i of the rows at look.w, (n,)."""
    if rows.scores is None:
        return y * score_rows(rows.X, look.w, look.bias_feature)
    known: F64 = y * (rows.scores[:, 0] + look.bias_feature * look.w[-1])
    return known


def _keep_below_radius(look: Look, rows: Rows, margins: F64, noted: F64, costs: F64, radius: float) -> Part:
    """Return the rows of a tile that have a cost and q_i < radius."""
    factor = np.ones(rows.n_rows)
    if look.draws:
        factor = draw_numbers(rows.list_numbers(), look.seed) ** (1.0 / POWER)
    chosen, some, reach = _find_within(look, rows, margins, costs, factor, radius)
    part = Part(some, rows.list_numbers()[chosen], noted[chosen], reach, reach * factor[chosen])
    below = np.flatnonzero(part.priority < radius)
    return part if len(below) == len(chosen) else choose_part(part, below)


def _find_within(look: Look, rows: Rows, margins: F64, costs: F64, factor: F64, radius: float) -> tuple[I64, Rows, F64]:
    """Return the indices of rows with a cost whose rho_i factor_i may be below a radius, these rows, and their rho_i.

    A row's norm takes far more time than its score. So it is computed only if a cheap bound cannot exclude the row.
    """
    bounds, lengths = bound_rows(look.squares, rows, look.bias_feature)
    is_far = _round_down(look, margins, lengths) * factor * (1.0 - 4 * UNIT) >= radius * bounds
    chosen = np.flatnonzero(~is_far & (costs > 0.0))
    some = choose_rows(rows, chosen)
    return chosen, some, find_reach(look, some, margins[chosen])


def find_reach(look: Look, rows: Rows, margins: F64) -> F64:
    """Return rho_i, (n,), given m_i; the result is rounded down and never negative."""
    measured, lengths = measure_rows(look.norm, rows, look.bias_feature)
    distance = _round_down(look, margins, lengths)
    reach: F64 = np.divide(distance, measured, out=np.zeros(len(margins)), where=(distance > 0.0) & (measured > 0.0))
    return reach * (1.0 - 4 * UNIT)


def _round_down(look: Look, margins: F64, lengths: F64) -> F64:
    """Return a lower bound of |place - m_i|, (n,), that allows for all rounding; lengths: |x_i|."""
    rounding = 2 * UNIT * (len(look.w) + 8) * float(np.linalg.norm(look.w)) + look.left
    distance: F64 = np.abs(look.place - margins) * (1.0 - 4 * UNIT) - rounding * lengths - 4 * UNIT * look.place
    return np.maximum(distance, 0.0)


def draw_numbers(numbers: I64, seed: int) -> F64:
    """Return a number in (0, 1] for each row that depends only on the row's number and the seed (splitmix64)."""
    z = (numbers + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(seed * 0x632BE59BD9B4E019 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = (z ^ (z >> np.uint64(31))) >> np.uint64(11)
    return (bits.astype(np.float64) + 1.0) * 2.0**-53


def scan_near(
    look: Look, add: Callable[..., None] | None = None, others: tuple[Any, ...] = (), held: Rows | None = None
) -> Scan:
    """Return the pass that keeps near rows.

    add: the function to use in place of `add_near`, if any. others: the arguments of `add` after `look`. held: see
    Scan.
    """
    start, combine = partial(start_near, len(look.w)), partial(combine_near, look.share)
    return Scan(start, add or add_near, combine, (look, *others), weights=look.w[None, :], held=held)


def combine_near(share: float, left: NearTotals, right: NearTotals) -> NearTotals:
    """Combine the totals of two groups of rows. The kept rows are shared, not copied."""
    names = ("sums", "others", "n_rows", "n_apart")
    added: dict[str, Any] = {name: getattr(left, name) + getattr(right, name) for name in names}
    densest, radius = max(left.find_densest(), right.find_densest()), min(left.radius, right.radius)
    parts = close_group(left, share) + close_group(right, share)
    return NearTotals(**added, densest=densest, radius=radius, parts=parts)


def close_group(totals: NearTotals, share: float) -> list[Part]:
    """Return the kept rows of complete groups as one part per group, with the group's radius."""
    if any(np.isfinite(part.radius) for part in totals.parts):
        return totals.parts
    parts, radius = _keep_nearest(totals, share)
    return [replace(part, radius=min(radius, EVERYWHERE)) for part in parts]


def gather(totals: NearTotals, look: Look) -> tuple[Part, F64]:
    """Return all kept rows as one part, with the smallest radius, and the number of rows that each represents."""
    parts = close_group(totals, look.share)
    totals.parts = []  # frees the dropped rows before the kept rows are joined
    priority = np.concatenate([part.priority for part in parts])
    if len(priority) > look.most:
        radius = float(np.partition(priority, look.most)[look.most])
        parts = [choose_part(part, np.flatnonzero(part.priority < radius)) for part in parts]
        parts = [replace(part, radius=min(part.radius, radius)) for part in parts]
    weight = np.concatenate([count_for(part, look.draws) for part in parts])
    return replace(join_parts(parts), radius=min(part.radius for part in parts)), weight


def _keep_nearest(totals: NearTotals, share: float) -> tuple[list[Part], float]:
    """Return the group's share of its rows, those with the smallest q_i, and the smallest q_i of its dropped rows."""
    if not totals.parts:
        return [], totals.radius
    whole, most = join_parts(totals.parts), max(1, int(share * totals.n_rows))
    if len(whole.numbers) <= most:
        return [whole], totals.radius
    order = np.argsort(whole.priority, kind="stable")
    radius = min(totals.radius, float(whole.priority[order[most]]))
    return [choose_part(whole, np.sort(order[:most]))], radius


def join_parts(parts: list[Part]) -> Part:
    """Return several parts as one, with an infinite radius."""
    names = ("numbers", "margins", "reach", "priority")
    joined: list[Any] = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    return Part(join_rows([part.rows for part in parts]), *joined)


def count_for(part: Part, draws: bool) -> F64:
    """Return the number of rows that each row of a part represents, (n,): 1 for near rows."""
    if not draws:
        return np.ones(len(part.numbers))
    farther = part.reach > part.radius
    ratio = np.divide(part.radius, part.reach, out=np.ones(len(part.reach)), where=farther)
    return 1.0 / np.maximum(ratio**POWER, 1.0 / LARGEST_WEIGHT)


def choose_part(part: Part, chosen: I64) -> Part:
    """Return the rows of a part at these indices."""
    own = part.numbers[chosen], part.margins[chosen], part.reach[chosen], part.priority[chosen]
    return Part(choose_rows(part.rows, chosen), *own, part.radius)


def choose_rows(rows: Rows, chosen: I64) -> Rows:
    """Return a copy of the rows at these indices."""
    vectors = {name: values[chosen] for name, values in rows.vectors.items() if name in KEPT_VECTORS}
    return Rows(-1, take_rows(rows.X, chosen), **vectors)
