"""One class, linear: the point nearest the origin among the sums of rows, from passes that keep rows in memory.

    min 1/2 |v|^2,   v in V = {sum_i a_i x_i:  0 <= a_i <= C_i,  sum_i a_i = N},      N = nu sum_i C_i

is the dual of the problem of Schoelkopf et al. 2001 with the linear kernel, times (nu n)^2. For a point w let
M(w, rho) = N rho - sum_i C_i max(0, rho - w.x_i). Its maximum over rho is the least w.v for v in V, so that

    M^2 / (2 |w|^2)  <=  Q*  <=  1/2 |v|^2        (numeric.fixed_sum_certificates)

A pass at (w, rho) sums up the far rows with scores below rho, and keeps the rows near it (cutting_plane.lowest_rows).
With far rows at their costs, or at 0, the multipliers of the near rows are a quadratic program in memory
(cutting_plane.nearest_point), whose solution (v, rho_v) is a point of V. It is the optimum if it is so close to
(w, rho) that no far row changes sides: then M is known there as well, from the sums of the pass. Otherwise the next
pass is at the point nearest the origin in the hull of all points so far, which hold the vertex of V that is lowest at
each w where a pass was: these are the cuts, and with them alone the method is that of Wolfe 1976, "Finding the nearest
point in a polytope", Mathematical Programming 11, and converges. The first centre is the solution of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.methods.cutting_plane.lowest_rows import (
    Centre,
    LowestTotals,
    Near,
    add_lowest,
    add_up_lowest,
    join_near,
    read_costs,
    start_lowest,
)
from streamsvm.methods.cutting_plane.nearest_point import find_nearest
from streamsvm.numeric.fixed_sum_certificates import find_offset
from streamsvm.numeric.kernels import combine_rows
from streamsvm.numeric.rounding import UNIT, bound_rounding
from streamsvm.numeric.row_products import compute_scores
from streamsvm.numeric.rows import F64, I64, Rows, take_rows
from streamsvm.requests import Progress, Scan, Solver, Step, Take, find_status

MOST_POINTS = 64  # of V, which are kept at once
BINS = 256  # of the sample's scores, by which rho is found again if the near rows miss it
STUCK_STEPS = 3
LEAST_FALL = 1e-9  # of the gap: less is no progress


@dataclass(frozen=True)
class LinearOneClass:
    """Settings.

    total: N; cost: the sum of all C_i; resident_rows: how many rows the sample has, and about how many are kept; most:
    how many a group keeps; tol: the relative gap to reach.
    """

    total: float
    cost: float
    resident_rows: int
    most: int
    tol: float = 1e-3


@dataclass
class State:
    """All that changes.

    w (d,), rho: the centre of the next pass, empty before the first; edges (k,): bins of scores; best (d,), best_rho:
    the best point of V; points (k, d): of V; point_error: the most by which one of them is away from V; resident (r,):
    the numbers of the sample's rows. The objective belongs to `best`, and bound_rounding is taken off the lower bound
    already.
    """

    resident: I64
    w: F64 = field(default_factory=lambda: np.empty(0))
    edges: F64 = field(default_factory=lambda: np.empty(0))
    best: F64 = field(default_factory=lambda: np.empty(0))
    points: F64 = field(default_factory=lambda: np.empty((0, 0)))
    rho: float = 0.0
    best_rho: float = 0.0
    point_error: float = 0.0
    objective: float = np.inf
    objective_rounding: float = 0.0
    lower_bound: float = 0.0
    bound_rounding: float = 0.0
    passes: int = 0
    stuck: int = 0
    shapes: ClassVar = {"resident": ("r",), "w": ("d",), "edges": ("e",), "best": ("d",), "points": ("p", "d")}
    row_numbers: ClassVar = ("resident",)

    @property
    def progress(self) -> Progress:
        """What is proved."""
        rounding = self.objective_rounding + self.bound_rounding
        return Progress(self.objective, self.lower_bound, self.passes, rounding, taken_off=self.bound_rounding)


class Margin(NamedTuple):
    """M at w and the best rho, the most that rounding can have added to it, and that rho."""

    value: float
    error: float
    rho: float


def solve(settings: LinearOneClass, d: int, state: State) -> Solver:
    """Go on from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    if not len(state.w):
        taken = yield Take(state.resident)
        state = _start_at_sample(settings, state, taken)
        del taken
    while True:
        centre = Centre(state.w, state.rho, settings.most, state.edges)
        totals = yield Scan(partial(start_lowest, d, len(state.edges)), add_lowest, add_up_lowest, (centre,))
        state = _learn(settings, state, totals, centre.unit)
        del totals
        yield Step(state, state.progress, _find_status(settings, state))


def _find_status(settings: LinearOneClass, state: State) -> str | None:
    """Return why the run ends after this step, or None if it goes on."""
    if state.objective <= state.objective_rounding:
        return "stalled"  # w is 0 but for rounding: the origin is among the rows
    return find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS)


def _start_at_sample(settings: LinearOneClass, state: State, taken: Rows) -> State:
    """Return the state whose first centre is the solution of a sample, brought to the scale of all rows."""
    costs = read_costs(taken)
    chosen = np.flatnonzero(costs > 0.0)
    if not len(chosen):  # of these rows; others have weights
        return replace(state, w=np.zeros(taken.X.shape[1]), edges=np.zeros(1))
    rows = taken.pick(chosen)
    scaled = costs[chosen] * (settings.cost / float(np.sum(costs)))
    found = find_nearest(rows.X, scaled, settings.total)
    edges = np.unique(np.quantile(compute_scores(rows.X, found.v[None])[:, 0], np.linspace(0.0, 1.0, BINS)))
    return replace(state, w=found.v, rho=found.rho, edges=edges)


def _learn(settings: LinearOneClass, state: State, totals: LowestTotals, unit: float) -> State:
    """Return the state after a pass: its bound, a better point of V, and the next centre."""
    before, near = state, join_near(totals.near)
    state = replace(state, passes=state.passes + 1)
    rest, limits = settings.total - totals.mass, (totals.low, totals.high)
    state = _raise_bound(state, state.w, _measure(settings, totals, near, state.w, state.w, limits))
    points, lacking = [*state.points, _find_vertex(near, totals, rest)], 0.0
    has_room = 0.0 < rest <= float(np.sum(near.costs))
    if has_room:
        found = find_nearest(near.X, near.costs, rest, totals.lowest)
        points, lacking = [*points, found.v], abs(float(np.sum(found.a)) - rest)
    state = _take_points(state, np.array(points), totals, lacking + bound_rounding(totals.n_rows + 4, settings.cost))
    if not has_room:
        return _end_step(_look_for_offset(state, totals, near, settings.total), before)
    margin = _measure(settings, totals, near, state.best, state.w, (-np.inf, np.inf))
    moved = np.hypot(np.linalg.norm(state.best - state.w), abs(margin.rho - state.rho) / unit)
    if moved < (1.0 - 1e-9) * totals.radius:
        state = _raise_bound(state, state.best, margin)
    edges = np.linspace(totals.least, totals.most, BINS)
    return _end_step(replace(state, w=state.best, rho=margin.rho, best_rho=margin.rho, edges=edges), before)


def _measure(
    settings: LinearOneClass, totals: LowestTotals, near: Near, v: F64, w: F64, limits: tuple[float, float]
) -> Margin:
    """Return M at v, where the far rows lie on their sides, for the best rho within the limits.

    A far row whose side is rounded adds no more than the rounding of its score, at v or at the centre w of the pass,
    where its side was found.
    """
    f, rest = compute_scores(near.X, v[None])[:, 0], settings.total - totals.mass
    rho = float(np.clip(_find_offset(near.costs, f, rest), *limits))
    loss = float(near.costs @ np.maximum(0.0, rho - f))
    value = rest * rho + float(totals.lowest @ v) - loss
    size = 2.0 * abs(rho) * settings.cost + float((np.abs(v) + np.abs(w)) @ totals.sizes)
    return Margin(value, 4.0 * bound_rounding(totals.n_rows + len(v) + 16, size), rho)


def _find_offset(costs: F64, f: F64, rest: float) -> float:
    """Return the best rho, or an extreme score if the rows below it cannot have the costs that are left of N."""
    if not 0.0 < rest < float(np.sum(costs)):
        return float(np.min(f) if rest <= 0.0 else np.max(f))
    return find_offset(costs, f, rest)


def _raise_bound(state: State, w: F64, margin: Margin) -> State:
    """Return the state with the bound of a point, if it is the highest one."""
    square, sure = float(w @ w), margin.value - margin.error
    if not (sure > 0.0 and square > 0.0):
        return state
    bound = margin.value / square * margin.value / 2
    square *= 1.0 + 2.0 * bound_rounding(len(w) + 4, 1.0)
    proved = (1.0 - 8 * UNIT) * (sure / square * sure / 2)
    if proved <= state.lower_bound:
        return state
    return replace(state, lower_bound=proved, bound_rounding=bound - proved)


def _find_vertex(near: Near, totals: LowestTotals, rest: float) -> F64:
    """Return the point of V that is lowest at the centre: the near rows of the lowest scores have their costs.

    Where near rows have no room for what is left of N, far rows of one side share it out among them, those with the
    score rho first.
    """
    order = np.argsort(near.f, kind="stable")
    before = np.cumsum(near.costs[order]) - near.costs[order]
    a = np.empty(len(order))
    a[order] = np.clip(rest - before, 0.0, near.costs[order])
    below = 1.0 + rest / totals.mass if rest < 0.0 else 1.0
    beyond = rest - float(np.sum(near.costs))
    level = _share(beyond, totals.level_mass)
    others = totals.cost - totals.mass - totals.level_mass - float(np.sum(near.costs))
    above = _share(beyond - totals.level_mass, others)
    return below * totals.lowest + combine_rows(near.X, a) + level * totals.level + above * totals.highest


def _share(wanted: float, cost: float) -> float:
    """Return the share of a cost that is wanted, from 0 to 1."""
    return min(1.0, wanted / cost) if wanted > 0.0 < cost else 0.0


def _take_points(state: State, points: F64, totals: LowestTotals, lacking: float) -> State:
    """Return the state with the point nearest the origin in the hull of points of V, if it is nearer than the best.

    lacking: by how much the multipliers of a point may miss their sum, with which |v| grows by the length of a row. A
    point of the hull is as far from V as the points that it combines, and is one of the points of later passes itself.
    """
    found = find_nearest(points, np.ones(len(points)), 1.0)
    used = np.flatnonzero(found.a > 1e-12)
    if len(used) > MOST_POINTS:
        used = np.sort(used[np.argsort(-found.a[used], kind="stable")[:MOST_POINTS]])
    kept = np.vstack((points[used], found.v)) if len(used) < len(points) else points
    length, size = float(np.linalg.norm(found.v)), float(np.linalg.norm(totals.sizes))
    new_error = 1.01 * (bound_rounding(totals.n_rows + 16, size) + lacking * float(np.linalg.norm(totals.largest)))
    point_error, weight = max(state.point_error, new_error), float(np.sum(found.a))
    combined = bound_rounding(len(points) + 16, size) + (abs(weight - 1.0) + bound_rounding(len(points), 1.0)) * size
    error = max(1.0, weight) * (1.0 + 1e-12) * point_error + 1.01 * combined
    objective = length**2 / 2
    rounding = length * error + error**2 / 2 + bound_rounding(len(found.v) + 4, objective)
    state = replace(state, points=kept, point_error=error if kept is not points else point_error)
    if objective + rounding >= state.objective + state.objective_rounding:
        return state
    return replace(state, best=found.v, objective=objective, objective_rounding=rounding)


def _look_for_offset(state: State, totals: LowestTotals, near: Near, total: float) -> State:
    """Return the state with a better rho for its centre, where rows of cost `total` do not lie below the near rows.

    It is found in the bin where the costs add up to `total`, and the next pass has bins within that one. If rho is
    right, but more rows than are kept have this very score, the next centre is the best point.
    """
    below, edges = np.cumsum(totals.counts), np.clip(state.edges, totals.least, totals.most)
    k = min(int(np.searchsorted(below, total)), len(edges))
    low, high = np.concatenate(([totals.least], edges, [totals.most]))[k : k + 2]
    inside = (total - (below[k - 1] if k else 0.0)) / max(float(totals.counts[k]), np.finfo(float).tiny)
    rho = float(low + min(1.0, inside) * (high - low))
    nearest = float(near.f[np.argmin(np.abs(near.f - rho))])
    rho = nearest if low <= nearest <= high else rho
    if rho == state.rho:
        edges, at = np.linspace(totals.least, totals.most, BINS), int(np.argmin(np.abs(near.f - rho)))
        rho = float(compute_scores(take_rows(near.X, np.array([at])), state.best[None])[0, 0])
        return replace(state, w=state.best, rho=rho, best_rho=rho, edges=edges)
    return replace(state, rho=rho, best_rho=_carry_over(rho, state), edges=np.linspace(low, high, BINS))


def _carry_over(rho: float, state: State) -> float:
    """Return an offset for the best point, which no pass has met yet: that of the centre, times the scores' ratio."""
    square = float(state.w @ state.w)
    return rho * float(state.w @ state.best) / square if square > 0.0 else rho


def _end_step(state: State, before: State) -> State:
    """Return the state with the number of steps without progress."""
    fall = LEAST_FALL * max(abs(state.objective), np.finfo(float).tiny) if np.isfinite(state.objective) else 0.0
    better = before.objective - state.objective > fall or state.lower_bound - before.lower_bound > fall
    return replace(state, stuck=0 if better else state.stuck + 1)
