"""Multinomial logistic regression by a sample of the rows and passes over all rows: few reads of the data.

    P(W) = 1/2 |W|^2 + L(W),      L(W) = sum_i C_i (log sum_k exp(w_k.x_i) - w_{y_i}.x_i)

W is one vector of K (d+1) entries, whose K parts are the weights w_k of the classes, each with the weight of the
constant feature last. A cut is made of the probabilities at a point (losses.softmax); it is also a point of the dual
problem

    D(p) = sum_i C_i H(p_i) - 1/2 sum_k |sum_i C_i (p_ik - [k = y_i]) x_i|^2

Let L_S be the loss of a sample S in memory, weighted to stand for all rows. At the best point V so far, the corrected
loss of the sample

    L_V(W) = L_S(W) + (g - g_S).(W - V) + (L(V) - L_S(V))            g, g_S: gradients of L and L_S at V

has the value and the slope of L. The step to the minimiser of 1/2 |W|^2 + L_V(W) is found in memory. A pass evaluates P
at several points of this step and makes cuts over all rows there. The lower bound is the value of the master problem
over these cuts (cutting_plane.cuts), so it never depends on the sample. Without a best point, the first step leads from
0 to the sample's minimiser.

The model may fall without a limit, if its curvature is wrong. P falls by at most the gap. So a step in memory that
takes the model by more than MOST_FALL times the gap below its start is shortened, and is the last of the search.
A step to the master's minimiser replaces a step of the model that did not lower P. So the passes converge as cutting
planes with a line search do, even if the sample misleads.

If W has few entries, a pass also sums the Hessian of the loss of all rows at one point. The model is then corrected by
half the quadratic form of the difference between this Hessian and the Hessian of the sample. With more entries, the
model is the first Hessian of L-BFGS. Its secants are the last moves of the best point and, first of all, the product of
the Hessian of all rows with W, which the pass sums. Without it the model would be too stiff along W: rows near a
border between classes have most of the curvature, and their scores vary less than those of other rows.

Sources: Shamir, Srebro & Zhang 2014, "Communication-efficient distributed optimization using an approximate Newton-type
method", ICML (the corrected loss); Franc & Sonnenburg 2008, "Optimized cutting plane algorithm for support vector
machines", ICML (cuts along a line).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np

from streamsvm.losses.classes import read_costs
from streamsvm.losses.softmax import change_slopes, count_rows, find_slopes, measure
from streamsvm.numeric.rows import F64, I64, Rows, find_first_rows, to_factor
from streamsvm.passes import All, Scan, grows
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import CutSettings, CutState, RowSums
from streamsvm.solvers.cutting_plane.line_search import CutTotals, Evaluation
from streamsvm.solvers.softmax import lbfgs
from streamsvm.solvers.softmax.lbfgs import MOST_CURVED, SECANTS, Sample, follow_secants, minimise

FIRST_STEPS = (0.3, 0.7, 1.0)  # points of the first step, from 0 to the sample's minimiser: it may overfit
STEPS = (0.5, 0.75, 1.0, 1.5, 1.0)  # points of a later step, as multiples of the last step; the last point is moved
ALL_SHARE = 0.5  # 1/2 |grad P|^2 is reduced to this share of the requested gap if all rows are in memory
MODEL_SHARE = 0.1  # 1/2 |gradient|^2 of the model is reduced to this share of the requested gap
GAP_SHARE = 0.001  # or to this share of the current gap
MOST_FALL = 2.0  # the model may fall by so many times the gap, by which P can fall at most once
FIRST_SHARE = 0.03  # 1/2 |gradient|^2 of the sample's own problem is reduced to this share of P
FEW = 8  # the minimiser of one row in FEW is the start for a sample of more than FEW parts
FIT_ROWS = 0.2  # so many rows for each dimension of the fit give it half of the model; a feature needs 1
NEAR = 0.1  # the product of the Hessian with W is a secant if W has moved by at most this share of its length since
ASIDE = 0.1  # the distance of the point beside a step, as a share of the step (largest entries)
CURVED_AT = 2  # the Hessian is summed at this point of a pass, the third, unless the only point is that of all rows


@dataclass
class SoftmaxTotals(CutTotals):
    """The sums at k points, and at one of them the sums of the curvature (empty if they are not summed).

    With few weights, `curvature` is the Hessian. With many weights, its first K + d+1 columns are the sums of
    lbfgs.add_fit, and its last d+1 columns are the product of the Hessian with the weights (K, d+1).
    """

    curvature: F64


def start_totals(shape: tuple[int, ...], curved: tuple[int, int]) -> SoftmaxTotals:
    """Return zero totals for points of this shape (k, K, d+1). curved: the shape of the sums of the curvature."""
    return SoftmaxTotals(np.zeros(shape[0]), np.zeros(shape[0]), np.zeros(shape), np.zeros(curved))


def add_points(totals: SoftmaxTotals, rows: Rows, W: F64, class_costs: F64, bias_feature: float) -> None:
    """Add the losses, entropies and gradients of the rows at the points W (k, K, d+1)."""
    costs, size = read_costs(class_costs, rows), count_rows(W.shape[1])
    for at in range(0, rows.n_rows, size):
        part = slice(at, at + size)
        tile, own = rows.slice(part), costs[part]
        X = to_factor(tile.X)
        for k, weights in enumerate(W):
            scores = X @ weights[:, :-1].T + bias_feature * weights[:, -1]
            found = measure(scores, tile.codes, own)
            totals.losses[k] += found.loss
            totals.costs[k] += found.entropy
            lbfgs.add_slopes(totals.gradients[k], X, find_slopes(found.shares, tile.codes, own), bias_feature)
            if k == CURVED_AT and len(totals.curvature) > len(weights):
                lbfgs.add_hessian(totals.curvature, X, found.shares.astype(np.float32), own, bias_feature)
            elif k == CURVED_AT and len(totals.curvature):
                fit, product = np.split(totals.curvature, [-weights.shape[1]], axis=1)
                lbfgs.add_fit(fit, X, found.shares, own, bias_feature)
                lbfgs.add_slopes(product, X, change_slopes(found.shares, scores, own), bias_feature)


@dataclass
class State(CutState):
    """The state of a run. Vectors are flat (width,).

    slope: the gradient of L at best_w. step: the last step taken, as a share of the whole step. resident: the numbers
    of the sample's rows, ascending. n_rows: the number of all rows. moves, changes (p, width): the last moves of the
    best point, and the changes of the gradient of P. curved_at (width,), curvature: a point of the last pass, and the
    Hessian of L there or, with many weights, other sums (SoftmaxTotals).
    """

    slope: F64 = grows("d")
    step: float = 1.0
    resident: I64 = grows("r", dtype=np.int64)
    n_rows: int = 0
    moves: F64 = grows("p", "d")
    changes: F64 = grows("p", "d")
    curved_at: F64 = grows("h")
    curvature: F64 = grows("a", "b")


@dataclass(frozen=True, kw_only=True)
class Softmax(CutSettings):
    """The settings of the solver.

    class_costs (K,): C_i of the classes, before sample weights. resident_rows: the size of the sample; seed: its seed;
    dtype: the type of its products. bias_feature: the value of the constant feature. threads: the number of threads of
    the computations in memory.
    """

    class_costs: tuple[float, ...]
    resident_rows: int
    dtype: Any = np.float64
    seed: int = 0
    bias_feature: float = 1.0
    threads: int = 1
    epsilon: ClassVar[float | None] = None

    def shape(self, vectors: F64) -> F64:
        """Return flat vectors (.., width) as matrices (.., K, d+1)."""
        return vectors.reshape(*vectors.shape[:-1], len(self.class_costs), -1)

    def find_steps(self, sample: Sample, state: State) -> F64:
        """Return the steps to the points of the next pass.

        If the sample has all rows, its model is P itself, and a single point is enough.
        """
        if sample.n_rows == state.n_rows:
            return np.array([state.step])
        return state.step * np.array(STEPS) if len(state.slope) else np.array(FIRST_STEPS)

    def choose_points(self, sample: Sample, state: State) -> tuple[State, F64]:
        """Return the state and the points (k, width) of the next step.

        The lower bound lacks 1/2 |gradient|^2, most of it along directions of high curvature. A cut at a point beside
        the step, against the gradient, shows how the gradient changes in these directions.
        """
        end = state.master_w
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), suppress(np.linalg.LinAlgError):
            end = self.minimise(sample, state) if state.stuck % 2 == 0 else end
        points = state.best_w + self.find_steps(sample, state)[:, None] * (end - state.best_w)
        if len(points) == len(STEPS):
            gradient, size = state.best_w + state.slope, np.max(np.abs(points[-1] - state.best_w))
            points[-1] -= ASIDE * size * (gradient / max(np.max(np.abs(gradient)), np.finfo(float).tiny))
        return state, points

    def minimise(self, sample: Sample, state: State) -> F64:
        """Return the minimiser of the model, (width,), or of the sample's own problem if there is no best point.

        If there is no step towards it, or if the numbers are too large, return the minimiser of the master problem, or
        raise LinAlgError if a matrix has no eigenvalues because its entries are not finite.
        """
        start, is_all = self.shape(state.best_w), sample.n_rows == state.n_rows
        if not len(state.slope) or not len(state.curvature) or is_all:
            free = lbfgs.Model(np.zeros_like(start), start)
            if sample.n_rows > FEW * lbfgs.PART_ROWS and not state.passes:
                start = minimise(sample.thin(sample.n_rows // FEW)[0], free, start, 0.0, FIRST_SHARE)
            found = minimise(sample, free, start, 0.0, ALL_SHARE * self.tol if is_all else FIRST_SHARE)
        else:
            found = self._step_from(sample, state, start)
        # The loss does not depend on the mean over the classes, which is 0 at the optimum.
        flat: F64 = (found - np.mean(found, axis=0)).ravel()
        return flat if np.isfinite(flat).all() and np.any(found.ravel() != state.best_w) else state.master_w

    def _step_from(self, sample: Sample, state: State, start: F64) -> F64:
        """Return the minimiser of the model at the best point.

        Unless the model has the Hessian of all rows at this point, it is the first Hessian of a step of L-BFGS.
        """
        wanted = max(MODEL_SHARE * self.tol * state.objective, GAP_SHARE * (state.objective - state.lower_bound))
        scores, is_summed = sample.score(start), start.size <= MOST_CURVED
        most = MOST_FALL * (state.objective - state.lower_bound)
        point, is_exact = sample.look(scores), is_summed and np.array_equal(state.curved_at, state.best_w)
        A, n_counted = sample.sum_classes(point.shares)
        own = lbfgs.find_share(n_counted, start.shape[1]) if is_exact or not is_summed else 0.0
        if is_summed:
            shrunk = sample.shrink(point.shares, np.zeros_like(start), 0.0, own)
            E = state.curvature - own * sample.sum_hessian(point.shares)
            solve = lbfgs.factorise(state.curvature)
        else:
            means = lbfgs.find_means(state.curvature[:, : -start.shape[1]])
            fitted, rest, means = sample.sum_features(point.shares, means)
            of_fit = max(own, lbfgs.find_share(n_counted, FIT_ROWS * min(start.shape[1], len(start) - 1)))
            shrunk = sample.shrink(point.shares, means, of_fit, own)
            B = (1.0 - of_fit) * fitted + (1.0 - own) * rest
            solve = lbfgs.invert_product(A, lbfgs.find_axes(fitted + rest))
        known = shrunk.look(scores).gradient + start

        def bend(U: F64) -> F64:
            if is_summed:
                return (E @ U.ravel()).reshape(U.shape)
            return A @ (U * B if B.ndim == 1 else U @ B)

        def step(gradient: F64) -> F64:
            model = lbfgs.Model(self.shape(gradient) - known, start, bend, solve, most)
            return (minimise(shrunk, model, start, wanted, scores=scores) - start).ravel()

        gradient, secants = state.best_w + state.slope, list(zip(state.moves, state.changes, strict=True))
        farther = np.linalg.norm(state.best_w - state.curved_at) / NEAR
        if not is_summed and farther < np.linalg.norm(state.best_w):
            secants.insert(0, (state.curved_at, state.curved_at + state.curvature[:, -start.shape[1] :].ravel()))
        found = step(gradient) if is_exact else follow_secants(gradient, secants, step)
        return start + self.shape(found)

    def look_at(self, points: F64) -> Scan:
        """Return the scan for the losses, the cuts and the sums of the loss at the points, (k, width)."""
        W = self.shape(points)
        n_classes, width = W.shape[1:]
        curved = (W[0].size, W[0].size) if W[0].size <= MOST_CURVED else (n_classes, n_classes + 2 * width)
        start = partial(start_totals, W.shape, curved if len(points) > CURVED_AT else (0, 0))
        return Scan(start, add_points, add, (W, np.array(self.class_costs), self.bias_feature))

    def take_rounding(self, state: State, answers: Sequence[Any]) -> State:
        """Return the state with the magnitudes, which are the last answer in the first pass.

        The terms of a loss or an entropy are at most C_i (1 + log K) and twice the size of C_i times a score. The
        probabilities of a row sum to 1 but for K roundings.
        """
        if len(state.magnitudes):
            return state
        n_classes = len(self.class_costs)
        state = cuts.take_magnitudes(state, answers, n_classes)
        state = replace(state, magnitudes=2.0 * state.magnitudes, largest=2.0 * state.largest)
        total_cost = state.total_cost * (2.0 + float(np.log(n_classes)))
        return replace(state, total_cost=total_cost, terms=state.terms + 2.0 * n_classes + 16.0)


@dataclass(frozen=True)
class DrawnRows:
    """The numbers of the rows of a sample, out of n_rows rows, before these rows are read."""

    settings: Softmax
    rows: I64
    n_rows: int

    def hold(self, rows: Rows) -> Sample:
        """Return the sample. Each row's weight counts the rows that it represents."""
        own, weighed = self.settings, rows.weigh(self.n_rows / rows.n_rows)
        costs, held = np.array(own.class_costs), find_first_rows(rows, self.rows)
        return Sample(weighed, costs, own.bias_feature, own.threads, own.dtype, held)


class SoftmaxSearch:
    """The search for losses of rows with a score for each class."""

    def evaluate(self, settings: Softmax, sample: Sample, state: State, W: F64) -> Evaluation:
        """Compute P, the cuts and the sums of the curvature in one pass."""
        costs, looks = np.array(settings.class_costs), [settings.look_at(W)]
        looks += cuts.look_for_rounding(state, None, costs, settings.bias_feature, len(costs))
        found, *others = yield All([replace(look, held=sample.held) for look in looks])
        state = settings.take_rounding(state, others)
        if len(found.curvature) and np.isfinite(found.curvature).all():
            state = replace(state, curved_at=W[CURVED_AT], curvature=found.curvature)
        new = RowSums(-found.gradients.reshape(W.shape), found.costs, np.full(len(W), state.total_cost))
        return take_best(state, W, settings.find_steps(sample, state), found, new), found.losses, new, 1


def take_best(state: State, points: F64, steps: F64, found: CutTotals, new: RowSums) -> State:
    """Return the state moved to the best of the points if it lowers P.

    The new state also has the step for the next pass, and the move and its change of the gradient as the last secant.
    """
    moved, best = cuts.move_to_lowest(state, points, found.losses)
    if moved is state:
        return replace(state, step=state.step / 4)
    moved = replace(moved, slope=-new.vectors[best], step=float(np.clip(steps[best], 0.25, 1.0)))
    move = moved.best_w - state.best_w
    if not len(state.slope) or not np.any(move):
        return moved
    secant = zip((state.moves, state.changes), (move, move + moved.slope - state.slope), strict=True)
    moves, changes = (np.append(kept, last).reshape(-1, len(move))[-SECANTS:] for kept, last in secant)
    return replace(moved, moves=moves, changes=changes)
