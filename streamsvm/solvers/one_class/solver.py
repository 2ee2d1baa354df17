"""The linear one-class SVM: find the point of a reduced hull nearest to the origin, with the near rows in memory.

    min 1/2 |v|^2,   v in V = {sum_i a_i x_i:  0 <= a_i <= C_i,  sum_i a_i = N},      N = nu sum_i C_i

is the dual of the problem of Schoelkopf et al. 2001 with the linear kernel, times (nu n)^2. Let Q* be its minimum, and
for a point w let M(w, rho) = N rho - sum_i C_i max(0, rho - w.x_i). The maximum of M over rho is the minimum of w.v
over v in V. Hence

    M^2 / (2 |w|^2)  <=  Q*  <=  1/2 |v|^2        (certificates.kernel)

A pass at (w, rho) sums the far rows with scores below rho, and keeps the rows near rho. With

    f_i = w.x_i        r_i = |f_i - rho| / |(x_i, s)|        s = |rho| / |w|

no row with r_i >= r changes sides of the offset while (w, rho / s) moves by less than r. Since s is the distance of the
plane from the origin, the choice of near rows does not depend on the scale of the features. A group of chunks keeps the
rows with the smallest r_i. All other rows are far; those with f_i < rho are summed with their costs C_i.

With the multipliers of far rows fixed at C_i or 0, the multipliers of the near rows are a quadratic program in memory.
Its solution (v, rho_v) is a point of V. It is the optimum if it is so close to (w, rho) that no far row changes sides:
then the sums of the pass also give M there. Otherwise the next pass is at the point nearest to the origin in the hull
of all points so far. For each w where a pass was made, these points include a cut: the vertex of V that minimises w.v.
With the cuts alone, this would be the method of Wolfe 1976, "Finding the nearest point in a polytope", Mathematical
Programming 11, which converges. The first centre is the solution for a sample of the rows.

The program in memory:

    min over a    1/2 |v|^2,   v = g + sum_i a_i x_i,     0 <= a_i <= C_i,   sum_i a_i = N

is solved by a primal-dual interior-point method with Mehrotra's predictor and corrector. With the multiplier rho of the
sum and the multipliers z, u of the limits, the conditions are

    v.x_i - rho - z_i + u_i = 0,     z_i a_i = mu,     u_i (C_i - a_i) = mu,     sum_i a_i = N

A step solves (X X' + Z/A + U/(C - A)) da - d_rho = h with a matrix over the features, or over the rows if there are
fewer rows (Ferris & Munson 2002, "Interior-point methods for massive support vector machines", SIAM J. Optim. 13). The
proved gap of a and rho is  sum_i a_i max(0, v.x_i - rho) + sum_i (C_i - a_i) max(0, rho - v.x_i).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import issparse

from streamsvm.certificates.kernel import find_offset
from streamsvm.kernels.kernel import combine_rows, compute_squares
from streamsvm.numeric.rounding import UNIT, add_row_magnitudes, bound_rounding
from streamsvm.numeric.rows import F64, I64, Matrix, Rows, add_rows, compute_scores, stack_rows, take_rows, to_factor
from streamsvm.passes import Bounds, Requests, RowTotals, Scan, Step, Take, axes, find_status, grows
from streamsvm.system import deadline, interrupts

MOST_STEPS = 80
TOLERANCE = 1e-13  # the gap at which the iteration ends, relative to |v|^2
LEAST = 1e-24  # With rows of length at most 1, a gap below this means that |v| is only rounding.
FALL, PATIENCE = 0.9, 12  # The iteration ends if, in PATIENCE steps, no gap was below FALL times the least gap.
TILE_ROWS = 256
BOUNDARY = 0.995  # the share of the way to the limits that a step may go
MOST_POINTS = 64  # the maximum number of points of V that are kept
BINS = 256  # bins of scores, used to find rho if no near row has this score
STUCK_STEPS = 3
LEAST_FALL = 1e-9  # a smaller relative change of the bounds does not count as progress
Solve = Callable[[F64], F64]


class Nearest(NamedTuple):
    """A solution of the program in memory.

    a (n,): the multipliers, which are within their limits and sum to N up to rounding. v (d,), rho: the point and its
    offset.
    """

    a: F64
    v: F64
    rho: float


class Iterate(NamedTuple):
    """An interior point: a (n,), rho, and the multipliers z and u (n,) of the limits. All except rho are positive."""

    a: F64
    rho: float
    z: F64
    u: F64


def find_nearest(X: Matrix | F64, costs: F64, total: float, g: F64 | None = None) -> Nearest:
    """Return the solution for X (n, d), costs C (n,), total N with 0 < N <= sum C_i, and g (d,), by default 0.

    Rows and costs are first scaled to magnitudes of about 1.
    """
    rows, offset = to_factor(X), np.zeros(X.shape[1]) if g is None else g
    squares = rows.multiply(rows).sum(axis=1) if issparse(rows) else np.einsum("ij,ij->i", rows, rows)
    size = float(np.sqrt(np.max(squares))) or 1.0
    share, rho = _solve(rows / size, costs / total, offset / (total * size))
    a = _fill(share * total, costs, total)
    return Nearest(a, offset + rows.T @ a, rho * total * size**2)


def _solve(X: Any, C: F64, g: F64) -> tuple[F64, float]:
    """Return a, with sum 1, and rho, for scaled rows and costs."""
    n = len(C)
    if float(np.sum(C)) <= 1.0:
        return C.copy(), float(np.max(X @ (g + X.T @ C), initial=0.0))
    a = C / np.sum(C)
    f = X @ (g + X.T @ a)
    rho = float(np.median(f))
    start = max(1e-3, float(np.mean(np.abs(f - rho))))
    at = Iterate(a, rho, np.maximum(f - rho, 0.0) + start, np.maximum(rho - f, 0.0) + start)
    products = _multiply(X) if X.shape[1] > n else None
    best, least, idle = at, np.inf, 0
    for _ in range(MOST_STEPS):
        interrupts.check()
        v, room = g + X.T @ at.a, C - at.a
        f, square = X @ v, float(v @ v)
        gap = float(at.a @ np.maximum(f - at.rho, 0.0) + room @ np.maximum(at.rho - f, 0.0))
        idle = 0 if gap <= FALL * least else idle + 1
        if gap < least:
            best, least = at, gap
        is_inside = min(np.min(at.a), np.min(room), np.min(at.z), np.min(at.u)) > 0.0
        if gap <= TOLERANCE * square + LEAST or idle > PATIENCE or not is_inside or deadline.is_over():
            break
        try:
            with np.errstate(all="ignore"):
                solve = _factor(X, products, at.z / at.a + at.u / room)
                at = _step(at, room, f - at.rho - at.z + at.u, solve)
        except (LinAlgError, ValueError):  # The iterate is too close to the limits for float64.
            break
    return best.a, best.rho


def _step(at: Iterate, room: F64, off: F64, solve: Solve) -> Iterate:
    """Return the iterate after Mehrotra's step. off (n,): the residual of the first condition."""
    n, lacking = len(room), 1.0 - float(np.sum(at.a))
    of_ones = solve(np.ones(n))
    share = np.sum(of_ones)  # 0 if all of them underflow: the step is then NaN, which ends the iteration

    def find(rz: F64, ru: F64) -> tuple[F64, float, F64, F64]:
        h = solve(-off + rz / at.a - ru / room)
        d_rho = (lacking - np.sum(h)) / share
        da = h + d_rho * of_ones
        return da, d_rho, (rz - at.z * da) / at.a, (ru + at.u * da) / room

    mu = float(at.z @ at.a + at.u @ room) / (2 * n)
    da, d_rho, dz, du = find(-at.z * at.a, -at.u * room)
    length = _find_length(at, room, da, dz, du)
    after = float((at.z + length * dz) @ (at.a + length * da) + (at.u + length * du) @ (room - length * da)) / (2 * n)
    target = (after / mu) ** 3 * mu
    da, d_rho, dz, du = find(target - at.z * at.a - da * dz, target - at.u * room + da * du)
    length = BOUNDARY * _find_length(at, room, da, dz, du)
    return Iterate(at.a + length * da, at.rho + length * d_rho, at.z + length * dz, at.u + length * du)


def _find_length(at: Iterate, room: F64, da: F64, dz: F64, du: F64) -> float:
    """Return the longest step, at most 1, that keeps a, C - a, z and u positive."""
    pairs = ((at.a, da), (room, -da), (at.z, dz), (at.u, du))
    return min(1.0, *(float(np.min(-value / change, where=change < 0.0, initial=1.0)) for value, change in pairs))


def _multiply(X: Any) -> F64:
    """Return X X' as a dense array; TILE_ROWS rows at a time, since the product of sparse rows is sparse."""
    products = np.empty((X.shape[0], X.shape[0]))
    for at in range(0, X.shape[0], TILE_ROWS):
        part: Any = X[at : at + TILE_ROWS] @ X.T
        products[at : at + TILE_ROWS] = part.toarray() if issparse(part) else part
    return products


def _factor(X: Any, products: F64 | None, diagonal: F64) -> Solve:
    """Return the function that solves (X X' + diagonal) y = h. products: X X' if there are fewer rows than features."""
    if products is not None:
        matrix = products.copy(order="F")
        matrix[np.diag_indices(len(matrix))] += diagonal
        whole = cho_factor(matrix, lower=True, overwrite_a=True)
        return lambda h: np.asarray(cho_solve(whole, h))
    d, q = X.shape[1], 1.0 / diagonal
    inner = (X.T.multiply(q).tocsr() @ X).toarray() if issparse(X) else (X.T * q) @ X
    inner[np.diag_indices(d)] += 1.0
    factor = cho_factor(inner)

    def solve(h: F64) -> F64:
        y = q * (h - X @ cho_solve(factor, X.T @ (q * h)))
        rest = h - X @ (X.T @ y) - diagonal * y  # One step of refinement, since the costs of rows differ widely.
        return np.asarray(y + q * (rest - X @ cho_solve(factor, X.T @ (q * rest))))

    return solve


def _fill(a: F64, costs: F64, total: float) -> F64:
    """Return `a`, changed in place: clipped to its limits, and with the error of its sum distributed.

    The error is distributed in proportion to the remaining room.
    """
    a = np.clip(a, 0.0, costs)
    lacking = total - float(np.sum(a))
    room = costs - a if lacking > 0.0 else a
    most = float(np.sum(room))
    return np.clip(a + lacking * room / most, 0.0, costs) if most > 0.0 else a


@dataclass(frozen=True)
class Centre:
    """The centre of a pass.

    w (d,), rho: the weights and the offset. most: the number of rows that a group keeps. edges (k,): the edges of the
    bins of scores.
    """

    w: F64
    rho: float
    most: int
    edges: F64

    @property
    def unit(self) -> float:
        """The length s, or 1 if the plane goes through the origin."""
        length = float(np.linalg.norm(self.w))
        unit = abs(self.rho) / length if length > 0.0 else 1.0
        return unit if 0.0 < unit < np.inf else 1.0


class Near(NamedTuple):
    """Near rows in memory, with their costs C_i > 0, scores f_i and distances r_i (`reach`), (m,)."""

    X: Matrix
    costs: F64
    f: F64
    reach: F64

    def pick(self, places: I64) -> Near:
        """Return copies of the rows at these places."""
        return Near(take_rows(self.X, places), self.costs[places], self.f[places], self.reach[places])


@dataclass
class LowestTotals(RowTotals):
    """The sums of a pass.

    far (3, d), masses (3,): the sums of C_i x_i, and of C_i, over the far rows with f_i < rho, with f_i = rho, and with
    f_i > rho. sizes (d,): the sum of C_i |x_ij| over all rows. largest (d,): max |x_ij|. counts (k+1,): the sum of C_i
    in each bin of scores. cost: the sum of all C_i. n_rows: the number of rows. radius: a lower bound on r_i of far
    rows. low: the highest score of far rows with f_i < rho. high: the lowest score of far rows with f_i >= rho. least,
    most: the lowest and the highest score of all rows. near: the near rows.
    """

    far: F64
    masses: F64
    sizes: F64
    largest: F64
    counts: F64
    cost: float = 0.0
    n_rows: int = 0
    radius: float = np.inf
    low: float = -np.inf
    high: float = np.inf
    least: float = np.inf
    most: float = -np.inf
    near: list[Near] = field(default_factory=list)
    joined: ClassVar = {
        **dict.fromkeys(("largest", "low", "most"), np.maximum),
        **dict.fromkeys(("radius", "high", "least"), np.minimum),
    }


def start_lowest(d: int, n_edges: int) -> LowestTotals:
    """Return empty sums, for d features and n_edges edges of bins."""
    return LowestTotals(np.zeros((3, d)), np.zeros(3), np.zeros(d), np.zeros(d), np.zeros(n_edges + 1))


def add_lowest(totals: LowestTotals, rows: Rows, centre: Centre) -> None:
    """Add rows to the totals of their group. centre: the centre of the pass."""
    costs = rows.weights
    add_row_magnitudes(totals.sizes, totals.largest, rows.X, costs)
    f = compute_scores(rows.X, centre.w[None])[:, 0]
    reach = np.abs(f - centre.rho) / np.hypot(centre.unit, np.sqrt(compute_squares(rows.X, np.float64)))
    totals.cost += float(np.sum(costs))
    totals.n_rows += rows.n_rows
    totals.counts += np.bincount(np.searchsorted(centre.edges, f), costs, len(totals.counts))
    is_near, counted, every = reach < totals.radius, costs > 0.0, Near(rows.X, costs, f, reach)
    totals.least = min(totals.least, float(np.min(f[counted], initial=np.inf)))
    totals.most = max(totals.most, float(np.max(f[counted], initial=-np.inf)))
    _add_far(totals, every, np.flatnonzero(counted & ~is_near), centre.rho)
    chosen = np.flatnonzero(counted & is_near)
    if len(chosen):
        totals.near.append(every.pick(chosen))
    if sum(len(part.f) for part in totals.near) > 2 * centre.most:  # keep the nearest; the others become far rows
        whole = join_near(totals.near)
        order = np.argsort(whole.reach, kind="stable")
        totals.radius = min(totals.radius, float(whole.reach[order[centre.most]]))
        _add_far(totals, whole, np.sort(order[centre.most :]), centre.rho)
        totals.near = [whole.pick(np.sort(order[: centre.most]))]


def _add_far(totals: LowestTotals, rows: Near, far: I64, rho: float) -> None:
    """Add the rows at the places `far` of `rows` to the sums of far rows."""
    if not len(far):
        return
    f = rows.f[far]
    totals.radius = min(totals.radius, float(np.min(rows.reach[far])))
    totals.low = max(totals.low, float(np.max(f[f < rho], initial=-np.inf)))
    totals.high = min(totals.high, float(np.min(f[~(f < rho)], initial=np.inf)))
    for k, chosen in enumerate((far[f < rho], far[f == rho], far[f > rho])):
        add_rows(totals.far[k : k + 1], rows.X, chosen, np.zeros(len(chosen), np.int64), rows.costs[chosen])
        totals.masses[k] += float(np.sum(rows.costs[chosen]))


def join_near(parts: list[Near]) -> Near:
    """Return near rows in several parts as one part."""
    X, *vectors = zip(*parts, strict=True)
    return Near(stack_rows(list(X)), *map(np.concatenate, vectors))


@dataclass(frozen=True)
class LinearOneClass:
    """Settings of the method.

    total: N. cost: the sum of all C_i. resident_rows: the number of rows in the sample, and about the number of rows
    kept by a pass. most: the number of rows that a group keeps. tol: the relative gap to reach.
    """

    total: float
    cost: float
    resident_rows: int
    most: int
    tol: float = 1e-3


@dataclass
class State(Bounds):
    """The state of a run.

    w (d,), rho: the centre of the next pass; w is empty before the first pass. edges (k,): the edges of the bins of
    scores. best (d,), best_rho: the best point of V and its offset; `objective` is the objective of this point. points
    (k, d): the kept points of V. point_error: a bound on the distances of these points from V. resident (r,): the row
    numbers of the sample.
    """

    resident: I64 = axes("r")
    w: F64 = grows("d")
    edges: F64 = grows("e")
    best: F64 = grows("d")
    points: F64 = grows("p", "d")
    rho: float = 0.0
    best_rho: float = 0.0
    point_error: float = 0.0
    row_numbers: ClassVar = ("resident",)


Margin = tuple[float, float, float]  # M at w and the best rho, a bound on its rounding error, and that rho


def solve(settings: LinearOneClass, d: int, state: State) -> Requests:
    """Run from a state. A run that is resumed from the state in any `Step` gives the same bits."""
    if not len(state.w):
        taken = yield Take(state.resident)
        state = _start_at_sample(settings, state, taken)
        del taken
    while True:
        centre = Centre(state.w, state.rho, settings.most, state.edges)
        totals = yield Scan(partial(start_lowest, d, len(state.edges)), add_lowest, operator.add, (centre,))
        state = _learn(settings, state, totals, centre.unit)
        del totals
        is_zero = state.objective <= state.objective_rounding  # w is 0 up to rounding: V contains the origin.
        status = "stalled" if is_zero else find_status(state.progress, settings.tol, state.stuck, STUCK_STEPS)
        yield Step(state, state.progress, status)


def _start_at_sample(settings: LinearOneClass, state: State, taken: Rows) -> State:
    """Return the state whose first centre is the solution for the sample.

    The costs of the sample are scaled so that they sum to the costs of all rows.
    """
    costs = taken.weights
    chosen = np.flatnonzero(costs > 0.0)
    if not len(chosen):  # The sample has no weight, although other rows have.
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
    rest, limits = settings.total - float(totals.masses[0]), (totals.low, totals.high)
    state = _raise_bound(state, state.w, _measure(settings, totals, near, state.w, state.w, limits))
    points, lacking = [*state.points, _find_vertex(near, totals, rest)], 0.0
    has_room = 0.0 < rest <= float(np.sum(near.costs))
    if has_room:
        found = find_nearest(near.X, near.costs, rest, totals.far[0])
        points, lacking = [*points, found.v], abs(float(np.sum(found.a)) - rest)
    state = _take_points(state, np.array(points), totals, lacking + bound_rounding(totals.n_rows + 4, settings.cost))
    if not has_room:
        return _end_step(_look_for_offset(state, totals, near, settings.total), before)
    margin = _measure(settings, totals, near, state.best, state.w, (-np.inf, np.inf))
    rho = margin[2]
    moved = np.hypot(np.linalg.norm(state.best - state.w), abs(rho - state.rho) / unit)
    if moved < (1.0 - 1e-9) * totals.radius:
        state = _raise_bound(state, state.best, margin)
    edges = np.linspace(totals.least, totals.most, BINS)
    return _end_step(replace(state, w=state.best, rho=rho, best_rho=rho, edges=edges), before)


def _measure(
    settings: LinearOneClass, totals: LowestTotals, near: Near, v: F64, w: F64, limits: tuple[float, float]
) -> Margin:
    """Return M at v for the best rho within the limits.

    Every far row counts on the side of the offset where the pass found it. If rounding has put a far row on the wrong
    side, the error is at most the rounding error of its score at v, or at the centre w of the pass.
    """
    f, rest = compute_scores(near.X, v[None])[:, 0], settings.total - float(totals.masses[0])
    rho = float(np.clip(_find_offset(near.costs, f, rest), *limits))
    loss = float(near.costs @ np.maximum(0.0, rho - f))
    value = rest * rho + float(totals.far[0] @ v) - loss
    size = 2.0 * abs(rho) * settings.cost + float((np.abs(v) + np.abs(w)) @ totals.sizes)
    return value, 4.0 * bound_rounding(totals.n_rows + len(v) + 16, size), rho


def _find_offset(costs: F64, f: F64, rest: float) -> float:
    """Return the best rho for the near rows, given `rest`, the part of N that their multipliers must sum to.

    If the multipliers cannot have this sum, return an extreme score.
    """
    if not 0.0 < rest < float(np.sum(costs)):
        return float(np.min(f) if rest <= 0.0 else np.max(f))
    return find_offset(costs, f, rest)


def _raise_bound(state: State, w: F64, margin: Margin) -> State:
    """Return the state with the lower bound that M proves, if it is higher than the current lower bound."""
    (value, error, _), square = margin, float(w @ w)
    sure = value - error
    if not (sure > 0.0 and square > 0.0):
        return state
    bound = value / square * value / 2
    square *= 1.0 + 2.0 * bound_rounding(len(w) + 4, 1.0)
    proved = (1.0 - 8 * UNIT) * (sure / square * sure / 2)
    if proved <= state.lower_bound:
        return state
    return replace(state, lower_bound=proved, bound_rounding=bound - proved)


def _find_vertex(near: Near, totals: LowestTotals, rest: float) -> F64:
    """Return the vertex of V that minimises w.v at the centre: the near rows with the lowest scores have a_i = C_i.

    If the multipliers of the near rows cannot sum to the rest of N, far rows of one side share the remainder. Rows with
    the score rho come first.
    """
    order = np.argsort(near.f, kind="stable")
    before = np.cumsum(near.costs[order]) - near.costs[order]
    a = np.empty(len(order))
    a[order] = np.clip(rest - before, 0.0, near.costs[order])
    mass, level_mass, _ = totals.masses.tolist()
    below = 1.0 + rest / mass if rest < 0.0 else 1.0
    beyond = rest - float(np.sum(near.costs))
    others = totals.cost - mass - level_mass - float(np.sum(near.costs))
    level, above = _share(beyond, level_mass), _share(beyond - level_mass, others)
    lowest, on_level, highest = totals.far
    return np.asarray(below * lowest + combine_rows(near.X, a) + level * on_level + above * highest)


def _share(wanted: float, cost: float) -> float:
    """Return wanted / cost, limited to the range from 0 to 1."""
    return min(1.0, wanted / cost) if wanted > 0.0 < cost else 0.0


def _take_points(state: State, points: F64, totals: LowestTotals, lacking: float) -> State:
    """Return the state with the point nearest to the origin in the hull of points of V, if it is better than the best.

    lacking: a bound on the error of the sum of a point's multipliers. An error of 1 in this sum changes v by at most
    the length of a row. The nearest point is, up to rounding, no farther from V than the points that it combines. Later
    passes use it as one of the points.
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
    """Return the state with a better rho for the same w, if the right offset is not among the near rows.

    rho is interpolated in the bin in which the sum of the costs reaches `total`, and the next pass divides this bin. If
    rho is already right, but too many rows have exactly this score to keep all of them, the next centre is the best
    point.
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
    # No pass has evaluated the best point yet: its offset is estimated by the centre's, times the ratio of the scores.
    square = float(state.w @ state.w)
    best_rho = rho * float(state.w @ state.best) / square if square > 0.0 else rho
    return replace(state, rho=rho, best_rho=best_rho, edges=np.linspace(low, high, BINS))


def _end_step(state: State, before: State) -> State:
    """Return the state with an updated count of steps without progress."""
    fall = LEAST_FALL * max(abs(state.objective), np.finfo(float).tiny) if np.isfinite(state.objective) else 0.0
    better = before.objective - state.objective > fall or state.lower_bound - before.lower_bound > fall
    return replace(state, stuck=0 if better else state.stuck + 1)
