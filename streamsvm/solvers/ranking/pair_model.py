"""The points at which the next pass makes cuts: minimisers of a model of P that a sample of the pairs gives.

    1/2 |w|^2 + max( L_S(w) - (a - a_S).(w - v) + L(v) - L_S(v),  max_c b_c - a_c.w )

L_S is the loss of the sample, v the best point so far, a and a_S the cuts of all pairs and of the sample at v, and
(a_c, b_c) the cuts of all pairs. The correction gives the sample's loss the value and the slope of the loss of all
pairs at v. The cut of all pairs at v is the highest cut there, so it need not be stored. Before the first pass, the
model is the sample's problem.

The model is minimised in memory by cutting planes with a line search (OCAS, Franc & Sonnenburg 2008). The first point
is the best point found. The second is the mean of the points of the active cuts, weighted by their multipliers. If
there are many pairs, their loss is nearly smooth, and the slope at the mean is about the mean of the slopes, which is
the slope that the model's optimum requires. So the cut of all pairs at the mean alone gives nearly the lower bound that
the cuts at all of these points give together. With few pairs the loss is not smooth, so other points are those of
active cuts; after a step without progress, they are points whose cuts of all pairs are not yet known.

Another point is that of a line search on all pairs, in case the model misleads: it lies on the segment from v to the
minimiser of the master problem of all pairs. On this segment the sample, with its slope corrected at v, shows where P
is lowest. All points are of this kind if P is noisy, and with fewer than ROWS_A_FEATURE sampled rows per feature,
unless the sample has all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.losses.pairs import ROWS_A_FEATURE, SAMPLE_ROWS, SEARCHED_ROWS, Pairs, sweep_pairs
from streamsvm.numeric.rows import F64, I64, add_combination, compute_scores
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, extend_products, is_noisy
from streamsvm.solvers.cutting_plane.master import MASTER_SHARE, solve_cuts
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear
from streamsvm.system import interrupts

MOST_FEATURES = SAMPLE_ROWS // ROWS_A_FEATURE  # with more features, the cuts of the model would take too much memory
MODEL_SHARE = 0.1  # the model is minimised to this share of the tolerance
MOST_LOOKS, IDLE_STEPS = 256, 5  # the largest number of cuts of the sample, and of steps on the model without progress
INNER_SHARES = (1.0, 1 / 4, 1 / 16)  # parts of the step on the sample that are tried in turn until the model is lower
LOOKED_AT, HALVINGS = 1 << 17, (10, 40)  # rows that all bisections visit together; fewest and most bisections
AHEAD = 0.1  # the step for the cut if P rises from the start of the segment
NEARER = (1.0, 1 / 4)  # parts of the step to the line search's point at which cuts are made
FARTHER, FARTHEST = 4.0, 64  # the growth of the line search's step with each step without progress, and its most powers
MOST_POINTS, FEW_POINTS = 8, 4  # the largest number of points of a pass, and the number if each point takes memory
KEPT_POINTS = 50  # points of active cuts of the model at which the next model first gets cuts


@dataclass(frozen=True)
class PairLoss:
    """The loss of all pairs at given scores, and its cut there.

    coefs (n,), offset: the cut, sum coefs_i x_i and its offset.
    """

    loss: float
    coefs: F64
    offset: float


def measure_pairs(scores: F64, pairs: Pairs, cost: float) -> PairLoss:
    """Return the loss and the cut at scores (n,), in O(n log n)."""
    order, up, down = sweep_pairs(scores, pairs, 1.0)
    offset, coefs = cost * float(np.sum(up)), np.empty(len(scores))
    coefs[order] = cost * (up - down)
    return PairLoss(offset - float(coefs @ scores), coefs, offset)


@dataclass(frozen=True)
class Sample:
    """A sample of the pairs.

    rows: the numbers of the rows in these pairs. cost: the cost of a sampled pair of weight 1, with which the total
    cost of the sample equals that of all pairs. is_whole: whether no pair is missing. X: the rows, once they are read.
    """

    pairs: Pairs
    rows: I64
    cost: float
    is_whole: bool = False
    X: Any = None

    @property
    def most_points(self) -> int:
        """The largest number of points of a pass."""
        return MOST_POINTS if self.is_whole else FEW_POINTS

    def measure(self, scores: F64) -> PairLoss:
        """Return the loss and the cut of the sample at scores (n,)."""
        return measure_pairs(scores, self.pairs, self.cost)

    def score(self, W: F64) -> F64:
        """Return the scores of the rows at points W (k, d), (k, n)."""
        return np.ascontiguousarray(compute_scores(self.X, W).T)

    def combine(self, coefs: F64, width: int) -> F64:
        """Return the sum of coefs_i x_i, (width,)."""
        total, row = np.zeros(width + 1), np.flatnonzero(coefs)
        add_combination(total, self.X, row, coefs[row], 0.0)
        return total[:-1]


def draw_sample(pairs: Pairs, cost: float, n_rows: int, is_shuffled: bool = False) -> Sample:
    """Return a sample of about n_rows rows, or of all rows if there are fewer than twice as many (`Pairs.thin`)."""
    stride = len(pairs.ranks) // n_rows
    sample, rows = pairs.thin(stride, is_shuffled) if stride > 1 else (pairs, np.arange(len(pairs.ranks)))
    total = max(sample.total, float(np.finfo(float).tiny))
    return Sample(sample, rows, cost * pairs.total / total, len(rows) == len(pairs.ranks))


def find_step(sample: Sample, start: F64, change: F64, squares: F64, slope: float | None) -> float:
    """Return the step in [0, 1] that minimises P on the sample.

    The scores of the sample's rows at a step t are start + t change. The result is the upper end of the last interval
    of the bisection, just beyond the minimum. Some pairs become active at the minimum, and a cut made just before it
    would repeat a known cut.

    squares (2,): the slope of 1/2 |w|^2 at the step t is squares[0] + t squares[1]. slope: the exact slope of P at 0
    (None: the sample's slope).
    """

    def find_slope(step: float) -> float:
        return float(squares[0] + step * squares[1] - sample.measure(start + step * change).coefs @ change)

    own = find_slope(0.0)
    exact = own if slope is None else slope
    correction = exact - own
    if exact >= 0.0:
        return 0.0
    low, high = 0.0, 1.0
    if find_slope(1.0) + correction <= 0.0:
        return 1.0
    for _ in range(int(np.clip(LOOKED_AT // len(start), *HALVINGS))):
        middle = (low + high) / 2
        low, high = (low, middle) if find_slope(middle) + correction > 0.0 else (middle, high)
    return high


def choose_points(settings: CutSettings, sample: Sample, state: Any) -> tuple[Any, F64]:
    """Return the state and the points (k, d) at which the next pass makes cuts. k is 0 if the cut at 0 has to be first.

    state: it also holds the `points` of the last model (`minimise_model`).
    """
    width, room = len(state.best_w), sample.most_points - 1
    is_enough = len(sample.rows) >= ROWS_A_FEATURE * width or (sample.is_whole and width <= MOST_FEATURES)
    if not is_enough or not np.isfinite(sample.cost) or is_noisy(state, settings.tol):
        return state, search_line(settings, sample, state) if state.passes else np.empty((0, width))
    if state.stuck:
        W = state.points[state.stuck * room - 2 :][:room]
    else:
        state, W = minimise_model(settings, sample, state)
        W = W[: room if state.passes or sample.is_whole else 2]
    return state, np.concatenate((W, search_line(settings, sample, state)[: 1 + room - len(W)])) if state.passes else W


def search_line(settings: CutSettings, sample: Sample, state: CutState) -> F64:
    """Return points on the segment from the best point to the master's minimiser: the lowest of the sample, and nearer.

    After steps without progress the points lie farther on, up to the master's minimiser, whose cut is new.
    """
    moves = state.master_w - state.best_w
    squares = np.array([state.best_w @ moves, moves @ moves])
    start, end = sample.score(np.stack((state.best_w, state.master_w)))
    slope = None if is_noisy(state, settings.tol) else float(squares[0] - state.cuts[_find_highest(state)] @ moves)
    thin = draw_sample(sample.pairs, sample.cost, SEARCHED_ROWS)
    step = find_step(thin, start[thin.rows], (end - start)[thin.rows], squares, slope) or AHEAD
    return state.best_w + np.outer(np.array(NEARER) * min(1.0, FARTHER ** min(state.stuck, FARTHEST) * step), moves)


def minimise_model(settings: CutSettings, sample: Sample, state: Any) -> tuple[Any, F64]:
    """Minimise the model; return the state with the points of the model's active cuts, and points for a pass.

    The points for a pass are the best point, the mean of the points of active cuts, and these points.
    """
    found = PairModel(sample, _correct(sample, state), state)
    best = found.minimise(MODEL_SHARE * settings.tol)
    z = found.z[len(state.offsets) :]
    active = np.argsort(-z, kind="stable")[: np.count_nonzero(z)]
    points, weights = np.array([found.points[k] for k in active]).reshape(-1, len(best)), z[active]
    mean = weights @ points / np.sum(weights) if len(weights) else best
    return replace(state, points=points[:KEPT_POINTS].copy()), np.concatenate((np.stack((best, mean)), points))


def _find_highest(state: CutState) -> int:
    """Return the cut that is highest at the best point: the cut that was made there, unless it was dropped."""
    return int(np.argmax(state.offsets - state.cuts @ state.best_w))


def _correct(sample: Sample, state: CutState) -> Linear:
    """Return the correction of the sample's loss: `slope` is added to its cuts, and `value` to their offsets."""
    v = state.best_w
    if not len(state.offsets):
        return Linear(np.zeros(len(v)), 0.0)
    highest, own = _find_highest(state), sample.measure(sample.score(v[np.newaxis])[0])
    slope = state.cuts[highest] - sample.combine(own.coefs, len(v))
    return Linear(slope, float(state.offsets[highest] - own.offset))


class PairModel:
    """Cutting planes on the model.

    points: the points of the sample's cuts. room: the cuts of all rows, followed by those of the sample. z: their
    multipliers.
    """

    def __init__(self, sample: Sample, linear: Linear, state: Any) -> None:
        self.sample, self.linear, self.known = sample, linear, state
        self.offsets, self.gram, self.z = state.offsets, state.gram, state.z
        # Only one copy: cuts may be most of the memory.
        self.room = np.empty((len(state.cuts) + MOST_LOOKS + len(INNER_SHARES), len(state.best_w)))
        self.room[: len(state.cuts)] = state.cuts
        self.points: list[F64] = []
        self.best: F64 = state.best_w
        self.low = np.inf
        self.scores = sample.score(self.best[np.newaxis])[0]
        self.look(self.best, self.scores)
        for w in state.points:
            self.look(w, sample.score(w[np.newaxis])[0])

    def look(self, w: F64, scores: F64) -> bool:
        """Make a cut at w, given the sample's scores there. Return whether the model is lower than before."""
        found = self.sample.measure(scores)
        cut, n_made = self.sample.combine(found.coefs, len(w)) + self.linear.slope, len(self.offsets)
        offset = found.offset + self.linear.value
        above = np.max(self.known.offsets - self.known.cuts @ w, initial=0.0)
        value = float(w @ w) / 2 + max(float(offset - cut @ w), float(above))
        self.gram, self.room[n_made] = extend_products(self.gram, self.room[:n_made], cut[np.newaxis]), cut
        self.offsets, self.z = np.append(self.offsets, offset), np.append(self.z, 0.0)
        self.points.append(w)
        if value >= self.low:
            return False
        self.best, self.scores, self.low = w, scores, value
        return True

    def minimise(self, share: float) -> F64:
        """Minimise the model to this share of its value, or until it makes no progress; return the best point."""
        high, idle, thin = -np.inf, 0, draw_sample(self.sample.pairs, self.sample.cost, SEARCHED_ROWS)
        while len(self.points) < MOST_LOOKS:
            interrupts.check()
            made = self.room[: len(self.z)]
            self.z, w = solve_cuts(made, self.offsets, self.gram, self.z, MASTER_SHARE * share * self.low)
            combined = self.z @ made
            high = max(high, float(self.z @ self.offsets - combined @ combined / 2))
            if self.low - high <= share * self.low or idle > IDLE_STEPS:
                break
            start, moves = self.scores, w - self.best
            change = self.sample.score(w[np.newaxis])[0] - start
            squares = np.array([(self.best - self.linear.slope) @ moves, moves @ moves])
            slope = float(squares[0] - self.sample.measure(start).coefs @ change)
            step = find_step(thin, start[thin.rows], change[thin.rows], squares, slope) or AHEAD
            base = self.best
            falls = any(self.look(base + part * moves, start + part * change) for part in step * np.array(INNER_SHARES))
            idle = 0 if falls else idle + 1
        return self.best
