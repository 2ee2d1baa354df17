"""The rows of the lowest scores, summed up in a pass, and the rows near the offset, which stay in memory.

    f_i = w.x_i        r_i = |f_i - rho| / |(x_i, s)|        s = |rho| / |w|

No row with r_i >= r changes sides of the offset while (w, rho / s) moves by less than r. With s, how far the plane is
from the origin, the same rows are near on any scale of the features. A group of chunks keeps the rows of the smallest
r_i. All others are far: those with f_i < rho are summed up, each with its cost C_i.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from streamsvm.numeric.kernels import compute_squares
from streamsvm.numeric.magnitudes import add_row_magnitudes
from streamsvm.numeric.row_products import add_rows, compute_scores
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, stack_rows, take_rows


@dataclass(frozen=True)
class Centre:
    """Where a pass looks: w (d,) and rho; most: how many rows a group keeps; edges (k,): of bins of the scores."""

    w: F64
    rho: float
    most: int
    edges: F64

    @property
    def unit(self) -> float:
        """The length s; 1 where the plane has no distance from the origin."""
        length = float(np.linalg.norm(self.w))
        unit = abs(self.rho) / length if length > 0.0 else 1.0
        return unit if 0.0 < unit < np.inf else 1.0


@dataclass(frozen=True)
class Near:
    """Rows in memory with their costs C_i > 0, scores f_i and distances r_i, (m,)."""

    X: Matrix
    costs: F64
    f: F64
    reach: F64


@dataclass
class LowestTotals:
    """Sums over rows.

    lowest (d,), mass: sum of C_i x_i, and of C_i, over far rows with f_i < rho; level (d,), level_mass: the same over
    far rows with f_i = rho; highest (d,): sum of C_i x_i over the other far rows; sizes (d,): sum of C_i |x_ij| over
    all rows; largest (d,): max |x_ij|; cost: sum of all C_i; counts (k+1,): the costs in each bin of scores; radius: no
    far row has a smaller r_i; low, high: the highest score of a far row below rho, and the lowest one of any other far
    row; least, most: the extreme scores; near: rows that are kept, of which there are `n_near`.
    """

    lowest: F64
    level: F64
    highest: F64
    sizes: F64
    largest: F64
    counts: F64
    mass: float = 0.0
    level_mass: float = 0.0
    cost: float = 0.0
    n_rows: int = 0
    radius: float = np.inf
    low: float = -np.inf
    high: float = np.inf
    least: float = np.inf
    most: float = -np.inf
    near: list[Near] = field(default_factory=list)
    n_near: int = 0


def start_lowest(d: int, n_edges: int) -> LowestTotals:
    """Return the sums over no rows."""
    return LowestTotals(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(n_edges + 1))


def read_costs(rows: Rows) -> F64:
    """Return C_i, (n,)."""
    return np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight


def add_lowest(totals: LowestTotals, rows: Rows, centre: Centre) -> None:
    """Add rows to the totals of their group."""
    costs = read_costs(rows)
    add_row_magnitudes(totals.sizes, totals.largest, rows.X, costs)
    f = compute_scores(rows.X, centre.w[None])[:, 0]
    reach = np.abs(f - centre.rho) / np.hypot(centre.unit, np.sqrt(compute_squares(rows.X, np.float64)))
    totals.cost += float(np.sum(costs))
    totals.n_rows += rows.n_rows
    totals.counts += np.bincount(np.searchsorted(centre.edges, f), costs, len(totals.counts))
    is_near = reach < totals.radius
    counted = costs > 0.0
    totals.least = min(totals.least, float(np.min(f[counted], initial=np.inf)))
    totals.most = max(totals.most, float(np.max(f[counted], initial=-np.inf)))
    _add_far(totals, Near(rows.X, costs, f, reach), np.flatnonzero(counted & ~is_near), centre.rho)
    chosen = np.flatnonzero(counted & is_near)
    if len(chosen):
        totals.near.append(_pick(Near(rows.X, costs, f, reach), chosen))
        totals.n_near += len(chosen)
    if totals.n_near > 2 * centre.most:
        _keep_nearest(totals, centre)


def _keep_nearest(totals: LowestTotals, centre: Centre) -> None:
    """Keep the rows of the smallest r_i, as many as a group keeps; the others are far from now on."""
    whole = join_near(totals.near)
    order = np.argsort(whole.reach, kind="stable")
    dropped = np.sort(order[centre.most :])
    totals.radius = min(totals.radius, float(whole.reach[order[centre.most]]))
    _add_far(totals, whole, dropped, centre.rho)
    totals.near, totals.n_near = [_pick(whole, np.sort(order[: centre.most]))], centre.most


def _add_far(totals: LowestTotals, rows: Near, far: I64, rho: float) -> None:
    """Add far rows, by their places."""
    if not len(far):
        return
    totals.radius = min(totals.radius, float(np.min(rows.reach[far])))
    f = rows.f[far]
    is_below, is_level, is_above = f < rho, f == rho, f > rho
    totals.low = max(totals.low, float(np.max(f[is_below], initial=-np.inf)))
    totals.high = min(totals.high, float(np.min(f[~is_below], initial=np.inf)))
    sums = (totals.lowest, far[is_below]), (totals.level, far[is_level]), (totals.highest, far[is_above])
    for total, chosen in sums:
        add_rows(total[None], rows.X, chosen, np.zeros(len(chosen), np.int64), rows.costs[chosen])
    totals.mass += float(np.sum(rows.costs[far[is_below]]))
    totals.level_mass += float(np.sum(rows.costs[far[is_level]]))


def add_up_lowest(left: LowestTotals, right: LowestTotals) -> LowestTotals:
    """Return the sums over the rows of both."""
    return replace(
        left,
        lowest=left.lowest + right.lowest,
        level=left.level + right.level,
        highest=left.highest + right.highest,
        sizes=left.sizes + right.sizes,
        largest=np.maximum(left.largest, right.largest),
        counts=left.counts + right.counts,
        mass=left.mass + right.mass,
        level_mass=left.level_mass + right.level_mass,
        cost=left.cost + right.cost,
        n_rows=left.n_rows + right.n_rows,
        radius=min(left.radius, right.radius),
        low=max(left.low, right.low),
        high=min(left.high, right.high),
        least=min(left.least, right.least),
        most=max(left.most, right.most),
        near=[*left.near, *right.near],
        n_near=left.n_near + right.n_near,
    )


def join_near(parts: list[Near]) -> Near:
    """Return the rows of several parts, of which there is one at least, one part below the other."""
    vectors = [np.concatenate([getattr(part, name) for part in parts]) for name in ("costs", "f", "reach")]
    return Near(stack_rows([part.X for part in parts]), *vectors)


def _pick(rows: Near, places: npt.NDArray[np.int64]) -> Near:
    return Near(take_rows(rows.X, places), rows.costs[places], rows.f[places], rows.reach[places])
