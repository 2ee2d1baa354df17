"""The points at which the next pass makes cuts: minimisers of a model of P that a sample of the rows gives.

    1/2 |w|^2 + max( L_S(w) - (a - a_S).(w - v) + L(v) - L_S(v),  max_c b_c - a_c.w )

L_S is the loss of the sample, v the best point so far, a and a_S the cuts of all rows and of the sample at v, and
(a_c, b_c) the cuts of all rows. The losses are convex functions of the scores X w, such as the losses of single rows
and of pairs of rows. The correction gives the sample's loss the value and the slope of the loss of all rows at v. The
cut of all rows at v is the highest cut there, so it need not be stored. Before the first pass, the model is the
sample's problem.

The model is minimised in memory by cutting planes with a line search (OCAS, Franc & Sonnenburg 2008). The first point
is the best point found. The second is the mean of the points of the active cuts, weighted by their multipliers. If
there are many rows, their loss is nearly smooth, and the slope at the mean is about the mean of the slopes, which is
the slope that the model's optimum requires. So the cut of all rows at the mean alone gives nearly the lower bound that
the cuts at all of these points give together. With few rows the loss is not smooth. So the further points are the
points of active cuts or, after a step without progress, points at which the cuts of all rows are not yet known.

Another point is that of a line search on all rows, in case the model misleads: it lies on the segment from v to the
minimiser of the master problem of all rows. On this segment the sample, with its slope corrected at v, shows where P
is lowest. All points are of this kind if P is noisy, and with fewer than ROWS_A_FEATURE sampled rows per feature,
unless the sample has all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from streamsvm.numeric.rows import F64, I64, Rows, add_combination, compute_scores
from streamsvm.passes import grows
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, RowSums, extend_products, is_noisy
from streamsvm.solvers.cutting_plane.master import MASTER_SHARE, solve_cuts
from streamsvm.solvers.cutting_plane.smoothed_newton import Linear
from streamsvm.system import deadline, interrupts

SAMPLE_ROWS = 1 << 15  # number of rows whose loss gives the model of the loss of all rows
SEARCHED_ROWS = 1 << 13  # number of rows on which a line search chooses its step
ROWS_A_FEATURE = 8  # with fewer sampled rows per feature, the model would be worse than the line search
MOST_FEATURES = SAMPLE_ROWS // ROWS_A_FEATURE  # with more features, the cuts of the model would take too much memory
MODEL_SHARE = 0.1  # the model is minimised to this share of the tolerance
MOST_STEPS = 100  # the largest number of steps on the model
FLAT = 0.01  # a line search ends where the slope is at most this share of the first slope,
CLOSE = 0.01  # or where the interval of the minimum is at most this share of the step
LOOKED_AT, HALVINGS = 1 << 17, (12, 40)  # rows for each halving of the shortest step; fewest and most halvings
MOST_SECANTS = 40  # the largest number of secants of a line search
AHEAD = 0.1  # the step for the cut if P rises from the start of the segment
NEARER = (1.0, 1 / 4)  # parts of the step to the line search's point at which cuts are made
FARTHER, FARTHEST = 4.0, 64  # the growth of the line search's step with each step without progress, and its most powers
MOST_POINTS, FEW_POINTS = 8, 4  # the largest number of points of a pass, and the number if each point takes memory
IDLE_STEPS = 5  # rounding is the limit after this many successive steps that lower no objective and raise no bound
MOVES = 1e-12  # smaller relative changes do not count as progress
KEPT_POINTS = 50  # points of active cuts of the model at which the next model first gets cuts


@dataclass(frozen=True)
class LossAt:
    """A loss at the scores (n,) of rows, and its cut there.

    coefs (n,), offset: the cut, sum coefs_i x_i and its offset.
    """

    loss: float
    coefs: F64
    offset: float


@dataclass
class SampleState(CutState):
    """The state of a run with a sample. points (p, width): the points of the active cuts of the last model."""

    points: F64 = grows("p", "d")
    added: ClassVar[tuple[str, ...]] = (*CutState.added, "points")

    @classmethod
    def at_zero(cls, width: int) -> Self:
        """Return the state before the first pass: w = 0, and no cuts."""
        return replace(super().at_zero(width), points=np.empty((0, width)))


@dataclass(frozen=True)
class Sample(ABC):
    """A sample of the rows, whose loss stands for the loss of all rows.

    cost: the factor by which the costs of the sample are raised, so that the sample stands for all rows. rows: the
    numbers of the rows. bias_feature: the value of the constant feature; None without one. is_whole: whether no row is
    missing. held: the rows, once they are read.
    """

    cost: float
    rows: I64
    bias_feature: float | None = None
    is_whole: bool = False
    held: Any = None

    def hold(self, rows: Rows) -> Self:
        """Return the sample with its rows, which have been read."""
        return replace(self, held=rows)

    @abstractmethod
    def measure(self, scores: F64) -> LossAt:
        """Return the loss and the cut of the sample at scores (n,)."""

    def thin(self) -> Sample:
        """Return a part of the sample for line searches. Its `rows` are the places of its rows in the sample."""
        return replace(self, rows=np.arange(len(self.rows)))

    def is_enough(self, width: int) -> bool:
        """Return whether the sample gives a useful model of w, which has `width` entries."""
        is_large = len(self.rows) >= ROWS_A_FEATURE * width or (self.is_whole and width <= MOST_FEATURES)
        return is_large and bool(np.isfinite(self.cost))

    @property
    def most_points(self) -> int:
        """The largest number of points of a pass."""
        return MOST_POINTS if self.is_whole else FEW_POINTS

    def score(self, W: F64) -> F64:
        """Return the scores of the rows at points W (k, width), (k, n)."""
        scores = compute_scores(self.held.X, W) + (0.0 if self.bias_feature is None else self.bias_feature * W[:, -1])
        return np.ascontiguousarray(scores.T)

    def cut(self, W: F64, found: Iterable[LossAt]) -> tuple[F64, F64, RowSums]:
        """Return points W (k, width), and the losses (k,) and cuts of the sample there. found: the losses there."""
        vectors, (losses, offsets) = np.empty_like(W), np.empty((2, len(W)))
        for k, each in enumerate(found):
            vectors[k], losses[k], offsets[k] = self.combine(each.coefs, W.shape[1]), each.loss, each.offset
        return W, losses, RowSums(vectors, offsets, offsets)

    def combine(self, coefs: F64, width: int) -> F64:
        """Return the sum of coefs_i x_i, (width,)."""
        has_bias, row = self.bias_feature is not None, np.flatnonzero(coefs)
        total = np.zeros(width + 1 - has_bias)
        add_combination(total, self.held.X, row, coefs[row], self.bias_feature or 0.0)
        return total[:width]


def count_model_bytes(width: int) -> int:
    """Return the bytes that a model needs for its own cuts and for its larger master problem."""
    if width > MOST_FEATURES:
        return 0
    most, made = cuts.most_cuts(width), KEPT_POINTS + 2 * MOST_STEPS
    return cuts.cut_bytes(width, most + made) - cuts.cut_bytes(width, most) + 2 * 8 * KEPT_POINTS * width


def find_step(sample: Sample, start: F64, change: F64, squares: F64, slope: float | None) -> float:
    """Return the step in [0, 1] that nearly minimises P on the sample.

    The scores of the sample's rows at a step t are start + t change. The zero of the slope of P is found by secants
    (the Illinois method, Dowell & Jarratt 1971), until the slope is small or the interval short, or after MOST_SECANTS.
    The result is the upper end of the last interval, which lies beyond the minimum. Some rows become active at the
    minimum, and a cut made just before it would repeat a known cut.

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
    low, high, at_low, at_high, before = 0.0, 1.0, exact, find_slope(1.0) + correction, 0.0
    if at_high <= 0.0:
        return 1.0
    shortest = 0.5 ** float(np.clip(LOOKED_AT // len(start), *HALVINGS))  # many rows hide what few rows decide
    for _ in range(MOST_SECANTS):
        step = max(low + (high - low) * (at_low / (at_low - at_high)), shortest)
        found = find_slope(step) + correction
        share = 0.5 if before * found > 0.0 else 1.0  # so that the next secant moves the end that stayed twice
        if found >= 0.0:
            high, at_high, at_low = step, found, share * at_low
        else:
            low, at_low, at_high = step, found, share * at_high
        if 0.0 <= found <= -FLAT * exact or high - low <= max(CLOSE * high, shortest):
            break
        before = found
    return high


def choose_points(settings: CutSettings, sample: Sample, state: Any) -> tuple[Any, F64]:
    """Return the state and the points (k, width) at which the next pass makes cuts.

    Before the first pass there are none if P is noisy or the sample too small. state: it also holds the `points` of the
    last model (`minimise_model`).
    """
    width, room = len(state.best_w), sample.most_points - 1
    if not sample.is_enough(width) or is_noisy(state, settings.tol):
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
    thin = sample.thin()
    step = find_step(thin, start[thin.rows], (end - start)[thin.rows], squares, slope) or AHEAD
    return state.best_w + np.outer(np.array(NEARER) * min(1.0, FARTHER ** min(state.stuck, FARTHEST) * step), moves)


def minimise_model(settings: CutSettings, sample: Sample, state: Any) -> tuple[Any, F64]:
    """Minimise the model; return the state with the points of the model's active cuts, and points for a pass.

    The points for a pass are the best point, the mean of the points of active cuts, and these points.
    """
    linear, thin = _correct(sample, state), sample.thin()
    points = np.vstack((state.best_w, state.points))
    known = sample.cut(points, (sample.measure(sample.score(w[np.newaxis])[0]) for w in points))[2]
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
    squares, change = np.array([(ends[0] - linear.slope) @ moves, moves @ moves]), end - start
    first = sample.measure(start)
    slope = float(squares[0] - first.coefs @ change)
    step = find_step(thin, start[thin.rows], change[thin.rows], squares, slope) or AHEAD
    return sample.cut(np.stack((ends[0], ends[0] + step * moves)), (first, sample.measure(start + step * change)))


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


Search = Callable[[F64], tuple[F64, F64, RowSums]]


def minimise_by_cuts(
    search: Search, model: Linear, state: CutState, points: F64, known: RowSums, share: float, most_steps: int
) -> tuple[F64, ...]:
    """Minimise a corrected loss by cutting planes with a line search, until the gap is at most this share of its value.

    Return the minimiser, the minimiser of the master problem, the points (p, width) at which cuts of the sample were
    made, and the multipliers of these cuts; the multipliers of the last points may be missing. The search also ends
    after `most_steps`, after IDLE_STEPS successive steps without progress, or at the deadline.

    search: returns points on the segment between two ends (2, width), ordered from its start, and the losses and cuts
    of the sample there. model: the correction, with the slope g_S - g. state: the state with the cuts over all rows,
    and the best point, from which the search starts. points, known: the points at which cuts of the sample are already
    known, and these cuts.
    """
    best, n_full, new = state.best_w, len(state.offsets), known
    offsets, gram, z = state.offsets, state.gram, state.z  # the cuts of all rows, then of the sample
    room = np.empty((n_full + len(points) + 2 * most_steps, len(best)))  # only one copy: cuts may be most of the memory
    room[:n_full] = state.cuts
    lowest, highest, idle = np.inf, -np.inf, 0
    for _ in range(most_steps):
        interrupts.check()
        n_made, corrected = len(z), new.vectors + model.slope
        gram = extend_products(gram, room[:n_made], corrected)
        offsets, z = np.append(offsets, new.offsets + model.value), np.append(z, np.zeros(len(corrected)))
        made = room[: len(z)]
        made[n_made:] = corrected
        value = float(best @ best) / 2 + float(np.max(offsets - made @ best, initial=0.0))
        z, master_w = solve_cuts(made, offsets, gram, z, MASTER_SHARE * share * value)
        combined = z @ made
        bound = float(z @ offsets - combined @ combined / 2)
        W, losses, new = search(np.stack((best, master_w)))
        above = np.max(state.offsets[:, None] - state.cuts @ W.T, axis=0, initial=0.0)
        objectives = np.sum(W**2, axis=1) / 2 + np.maximum(losses - W @ model.slope + model.value, above)
        at = int(np.argmin(objectives))
        best = W[at]
        moves = lowest - objectives[at] > MOVES * abs(objectives[at]) or bound - highest > MOVES * abs(bound)
        lowest, highest, idle = min(lowest, float(objectives[at])), max(highest, bound), 0 if moves else idle + 1
        if objectives[at] - bound <= share * lowest or idle >= IDLE_STEPS or deadline.is_over():
            break
        chosen = np.unique(np.minimum([max(at, 1), at + 1], len(W) - 1))
        points, new = np.vstack((points, W[chosen])), new.pick(chosen)
    return best, master_w, points, z[n_full:]
