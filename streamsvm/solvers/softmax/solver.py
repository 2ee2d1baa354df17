"""Multinomial logistic regression by a sample of the rows and passes over all rows (cutting_plane.sample_model).

    P(W) = 1/2 |W|^2 + sum_i C_i (log sum_k exp(w_k.x_i) - w_{y_i}.x_i)

W is one vector of K (d+1) entries, whose K parts are the weights w_k of the classes, each with the weight of the
constant feature last. A cut is made of the probabilities at a point (losses.softmax); it is also a point of the dual
problem

    D(p) = sum_i C_i H(p_i) - 1/2 sum_k |sum_i C_i (p_ik - [k = y_i]) x_i|^2

If W has few entries, a pass also sums the Hessian of the loss of all rows at one point. The model is then corrected by
half the quadratic form of the difference between this Hessian and the Hessian of the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, ClassVar

import numpy as np

from streamsvm.losses.classes import read_costs
from streamsvm.losses.softmax import count_rows, find_slopes, measure
from streamsvm.numeric.rows import F64, Rows, to_factor
from streamsvm.passes import Scan, grows
from streamsvm.solvers.cutting_plane import cuts
from streamsvm.solvers.cutting_plane.cuts import RowSums
from streamsvm.solvers.cutting_plane.line_search import CutTotals
from streamsvm.solvers.cutting_plane.sample_model import ModelState, SampleModel
from streamsvm.solvers.softmax import newton
from streamsvm.solvers.softmax.newton import MOST_CURVED, PART_ROWS, Model, Sample, add_fit, add_hessian, minimise

ALL_SHARE = 0.5  # 1/2 |grad P|^2 is reduced to this share of the requested gap if all rows are in memory
MODEL_SHARE = 0.1  # 1/2 |gradient|^2 of the model is reduced to this share of the requested gap
GAP_SHARE = 0.001  # or to this share of the current gap
FIRST_SHARE = 0.03  # 1/2 |gradient|^2 of the sample's own problem is reduced to this share of P
NARROW_TOL, SMALL_BYTES = 1e-5, 16 << 20  # a sample is float32 if `tol` is larger, it has more bytes
WIDE = 1 << 17  # or more weights,
HIGH_COST = 1e4  # and all costs are lower: the curvature of the penalty is 1, which float32 hides at high costs
FEW = 8  # the minimiser of one row in FEW is the start for a sample of more than FEW parts
FIT_ROWS = 0.2  # so many rows for each dimension of the fit give it half of the model; a feature needs 1
SECANTS = 4  # the largest number of moves kept for L-BFGS
CURVED_AT = 2  # the Hessian is summed at this point of a pass, the third, unless the only point is that of all rows


def follow_secants(gradient: F64, moves: F64, changes: F64, step: Callable[[F64], F64]) -> F64:
    """Return the step of L-BFGS (Nocedal & Wright 2006, Algorithm 7.4).

    step: the step for a gradient without secants.
    """
    scales = 1.0 / np.einsum("pj,pj->p", moves, changes)
    shares = np.zeros(len(moves))
    for k in reversed(range(len(moves))):
        shares[k] = scales[k] * float(moves[k] @ gradient)
        gradient = gradient - shares[k] * changes[k]
    found = step(gradient)
    for k in range(len(moves)):
        found = found - (shares[k] + scales[k] * float(changes[k] @ found)) * moves[k]
    return found


@dataclass
class SoftmaxTotals(CutTotals):
    """The sums at k points, and at one of them the Hessian or the fit of `add_fit` (empty if it is not summed)."""

    curvature: F64


def start_totals(shape: tuple[int, ...], curved: tuple[int, int]) -> SoftmaxTotals:
    """Return zero totals for points of this shape (k, K, d+1). curved: the shape of the Hessian, or of the fit."""
    return SoftmaxTotals(np.zeros(shape[0]), np.zeros(shape[0]), np.zeros(shape), np.zeros(curved))


def add_points(totals: SoftmaxTotals, rows: Rows, W: F64, class_costs: F64, bias_feature: float) -> None:
    """Add the losses, entropies and gradients of the rows at the points W (k, K, d+1)."""
    costs, size = read_costs(class_costs, rows), count_rows(W.shape[1])
    for at in range(0, rows.n_rows, size):
        part = slice(at, at + size)
        tile, own = rows.slice(part), costs[part]
        X = to_factor(tile.X)
        for k, weights in enumerate(W):
            found = measure(X @ weights[:, :-1].T + bias_feature * weights[:, -1], tile.codes, own)
            slopes = find_slopes(found.shares, tile.codes, own)
            totals.losses[k] += found.loss
            totals.costs[k] += found.entropy
            totals.gradients[k, :, :-1] += (X.T @ slopes).T
            totals.gradients[k, :, -1] += bias_feature * np.sum(slopes, axis=0)
            if k != CURVED_AT or not len(totals.curvature):
                continue
            if len(totals.curvature) > len(weights):
                add_hessian(totals.curvature, X, found.shares.astype(np.float32), own, bias_feature)
            else:
                add_fit(totals.curvature, X, found.shares, own, bias_feature)


@dataclass
class State(ModelState):
    """The state of a run.

    moves, changes (p, width): the last moves of the best point, and the changes of the gradient of P. curved_at
    (width,), curvature: a point of the last pass, and the Hessian of L there (width, width) or, with many weights, the
    sums of `add_fit` (K, K + d+1).
    """

    moves: F64 = grows("p", "d")
    changes: F64 = grows("p", "d")
    curved_at: F64 = grows("h")
    curvature: F64 = grows("a", "b")


@dataclass(frozen=True, kw_only=True)
class Softmax(SampleModel):
    """The settings of the solver.

    class_costs (K,): C_i of the classes, before sample weights. bias_feature: the value of the constant feature.
    threads: the number of threads of the computations in memory.
    """

    class_costs: tuple[float, ...]
    bias_feature: float = 1.0
    threads: int = 1
    state: ClassVar[type[ModelState]] = State

    def shape(self, vectors: F64) -> F64:
        """Return flat vectors (.., width) as matrices (.., K, d+1)."""
        return vectors.reshape(*vectors.shape[:-1], len(self.class_costs), -1)

    @property
    def needs_float64(self) -> bool:
        """Whether a sample of any size is float64."""
        return self.tol < NARROW_TOL or max(self.class_costs) > HIGH_COST

    def hold(self, rows: Rows) -> Sample:
        """See SampleModel."""
        is_small = rows.nbytes <= SMALL_BYTES and len(self.class_costs) * rows.X.shape[1] <= WIDE
        dtype = np.float64 if self.needs_float64 or is_small else np.float32
        return Sample(rows, np.array(self.class_costs), self.bias_feature, self.threads, dtype)

    def minimise(self, sample: Sample, state: State) -> F64:
        """See SampleModel."""
        start, is_all = self.shape(state.best_w), sample.n_rows == state.n_rows
        if not len(state.slope) or not len(state.curvature) or is_all:
            share = ALL_SHARE * self.tol if is_all else FIRST_SHARE
            free = Model(np.zeros_like(start), start)
            if sample.n_rows > FEW * PART_ROWS and not state.passes:
                start = minimise(sample.thin(sample.n_rows // FEW)[0], free, start, 0.0, FIRST_SHARE)
            found = minimise(sample, free, start, 0.0, share)
        else:
            found = self._step_from(sample, state, start)
        # The loss does not depend on the mean over the classes, which is 0 at the optimum.
        flat: F64 = (found - np.mean(found, axis=0)).ravel()
        return flat

    def _step_from(self, sample: Sample, state: State, start: F64) -> F64:
        """Return the minimiser of the model at the best point.

        Unless the model has the Hessian of all rows at this point, it is the first Hessian of a step of L-BFGS.
        """
        wanted = max(MODEL_SHARE * self.tol * state.objective, GAP_SHARE * (state.objective - state.lower_bound))
        scores, is_summed = sample.score(start), start.size <= MOST_CURVED
        point, is_exact = sample.look(scores), is_summed and np.array_equal(state.curved_at, state.best_w)
        A, n_counted = sample.sum_classes(point.shares)
        own = newton.find_share(n_counted, start.shape[1]) if is_exact or not is_summed else 0.0
        if is_summed:
            shrunk = sample.shrink(point.shares, np.zeros_like(start), 0.0, own)
            E = state.curvature - own * sample.sum_hessian(point.shares)
            solve = newton.factorise(state.curvature)
        else:
            fitted, rest, means = sample.sum_features(point.shares, newton.find_means(state.curvature))
            of_fit = max(own, newton.find_share(n_counted, FIT_ROWS * min(start.shape[1], len(start) - 1)))
            shrunk = sample.shrink(point.shares, means, of_fit, own)
            B = (1.0 - of_fit) * fitted + (1.0 - own) * rest
            solve = newton.invert_product(A, newton.find_axes(fitted + rest))
        known = shrunk.look(scores).gradient + start

        def bend(U: F64) -> F64:
            if is_summed:
                return (E @ U.ravel()).reshape(U.shape)
            return A @ (U * B if B.ndim == 1 else U @ B)

        def step(gradient: F64) -> F64:
            model = Model(self.shape(gradient) - known, start, bend, solve)
            return (minimise(shrunk, model, start, wanted, scores=scores) - start).ravel()

        gradient = state.best_w + state.slope
        found = step(gradient) if is_exact else follow_secants(gradient, state.moves, state.changes, step)
        return start + self.shape(found)

    def look_at(self, points: F64, held: Rows | None) -> Scan:
        """See SampleModel."""
        W = self.shape(points)
        n_classes, width = W.shape[1:]
        curved = (W[0].size, W[0].size) if W[0].size <= MOST_CURVED else (n_classes, n_classes + width)
        start = partial(start_totals, W.shape, curved if len(points) > CURVED_AT else (0, 0))
        return Scan(start, add_points, add, (W, np.array(self.class_costs), self.bias_feature), held=held)

    def read(self, state: State, points: F64, found: SoftmaxTotals) -> tuple[State, RowSums]:
        """See SampleModel."""
        if len(found.curvature) and np.isfinite(found.curvature).all():
            state = replace(state, curved_at=points[CURVED_AT], curvature=found.curvature)
        sizes = np.full(len(points), state.total_cost)
        return state, RowSums(-found.gradients.reshape(points.shape), found.costs, sizes)

    def take_move(self, before: State, state: State) -> State:
        """See SampleModel."""
        move = state.best_w - before.best_w
        if not len(before.slope) or not np.any(move):
            return state
        change = move + state.slope - before.slope

        def keep(vectors: F64, new: F64) -> F64:
            return np.append(vectors.ravel(), new).reshape(-1, len(new))[-SECANTS:]

        return replace(state, moves=keep(state.moves, move), changes=keep(state.changes, change))

    def look_for_rounding(self, state: State, held: Rows | None) -> list[Scan]:
        """See SampleModel."""
        if len(state.magnitudes):
            return []
        start = partial(cuts.start_magnitudes, len(state.best_w) // len(self.class_costs))
        shared = (np.array(self.class_costs), self.bias_feature)
        return [Scan(start, cuts.add_magnitudes, add, shared, held=held)]

    def take_rounding(self, state: State, answers: Sequence[Any]) -> State:
        """See SampleModel.

        The terms of a loss or an entropy are at most C_i (1 + log K) and twice the size of C_i times a score. The
        probabilities of a row sum to 1 but for K roundings.
        """
        if len(state.magnitudes):
            return state
        n_classes = len(self.class_costs)
        state = cuts.take_magnitudes(state, answers, n_classes)
        return replace(
            state,
            magnitudes=2.0 * state.magnitudes,
            largest=2.0 * state.largest,
            total_cost=state.total_cost * (2.0 + float(np.log(n_classes))),
            terms=state.terms + 2.0 * n_classes + 16.0,
        )
