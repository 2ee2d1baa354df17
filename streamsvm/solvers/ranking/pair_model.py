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
from functools import partial
from typing import Any

import numpy as np

from streamsvm.losses.pairs import ROWS_A_FEATURE, SAMPLE_ROWS, SEARCHED_ROWS, Pairs, sweep_pairs
from streamsvm.numeric.rows import F64, I64, add_combination, compute_scores
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, RowSums, is_noisy
from streamsvm.solvers.cutting_plane.sample_model import minimise_by_cuts
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear

MOST_FEATURES = SAMPLE_ROWS // ROWS_A_FEATURE  # with more features, the cuts of the model would take too much memory
MODEL_SHARE = 0.1  # the model is minimised to this share of the tolerance
MOST_STEPS = 100  # the largest number of steps on the model
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


def sum_pairs(cuts: F64, offsets: F64) -> RowSums:
    """Return the cuts of pairs as sums over rows. Each pair contributes a term to both of its rows."""
    return RowSums(cuts, offsets, 2 * offsets)


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

    def cut(self, W: F64) -> tuple[F64, F64, RowSums]:
        """Return points W (k, d), and the losses (k,) and cuts of the sample there."""
        found = [self.measure(scores) for scores in self.score(W)]
        vectors = np.stack([self.combine(each.coefs, W.shape[1]) for each in found])
        losses, offsets = np.array([[each.loss, each.offset] for each in found]).T
        return W, losses, sum_pairs(vectors, offsets)

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
    return Sample(sample, rows, cost * pairs.total / total, stride <= 1)


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
    linear, thin = _correct(sample, state), draw_sample(sample.pairs, sample.cost, SEARCHED_ROWS)
    points, _, known = sample.cut(np.vstack((state.best_w, state.points)))
    search, share = partial(search_sample, sample, thin, linear), MODEL_SHARE * settings.tol
    best, _, points, z = minimise_by_cuts(search, linear, state, points, known, share, MOST_STEPS)
    active = np.argsort(-z, kind="stable")[: np.count_nonzero(z)]
    points, weights = points[active], z[active]
    mean = weights @ points / np.sum(weights) if len(weights) else best
    return replace(state, points=points[:KEPT_POINTS].copy()), np.concatenate((np.stack((best, mean)), points))


def search_sample(sample: Sample, thin: Sample, linear: Linear, ends: F64) -> tuple[F64, F64, RowSums]:
    """Return the start of a segment and a point near the model's minimum on it, with the sample's losses and cuts.

    thin: a sample of the sample, on which the minimum is searched. linear: the correction of the model.
    """
    moves, (start, end) = ends[1] - ends[0], sample.score(ends)
    squares = np.array([(ends[0] - linear.slope) @ moves, moves @ moves])
    slope = float(squares[0] - sample.measure(start).coefs @ (end - start))
    step = find_step(thin, start[thin.rows], (end - start)[thin.rows], squares, slope) or AHEAD
    return sample.cut(np.stack((ends[0], ends[0] + step * moves)))


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
