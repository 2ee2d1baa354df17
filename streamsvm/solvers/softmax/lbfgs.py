"""L-BFGS for softmax on rows in memory, with a linear and a quadratic term.

    F(W) = 1/2 |W|^2 + L_S(W) + slope.W + 1/2 (W - centre)'E(W - centre)

Scores and gradients are matrix products over the rows. They only choose points, so they are float32 if there are many
rows. L-BFGS starts from a multiple of an approximation of the Hessian H. Unless the model gives one, it is computed at
steps 1, 2, 3, 5, 9, .. A small H is summed over some rows. A large H is approximated by I + A x B with

    A = sum_i C_i (diag p_i - p_i p_i'),      B = the mean of x_i x_i', weighted by C_i (1 - |p_i|^2)

B is computed only once. I + A x B is H if the probabilities do not depend on the features. A and B have fewer entries
than H, so a sample that is too small for H still determines them. If the probabilities do depend on the features, the
rows x_i are split into p_i.M, with the least-squares fit M of the rows of all data by their probabilities, and the
rest. The model keeps the shares f and s of the sample's own Hessian of the two parts, by the rows
sqrt(f) p_i.M + sqrt(s) (x_i - p_i.M). A x B replaces the remainder: its B is 1 - f times the B of the rows p_i.M, plus
1 - s times the B of the rest. The fit takes only K (K + d+1) sums.

Sources: Nocedal & Wright 2006, "Numerical Optimization", Algorithms 7.4 and 7.5 (L-BFGS); Martens & Grosse 2015,
"Optimizing neural networks with Kronecker-factored approximate curvature", ICML (A x B).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from streamsvm.losses.classes import read_costs
from streamsvm.losses.softmax import find_slopes, measure
from streamsvm.numeric.equations import find_factor
from streamsvm.numeric.rows import F64, Rows, Values, to_factor
from streamsvm.system import deadline, interrupts
from streamsvm.system.threads import map_on_threads

PART_ROWS = 8192  # rows of a part; the parts do not depend on the number of threads
SUMMED_PARTS = 4  # the sums of so many parts are held at once
MOST_STEPS = 500
SECANTS = 4  # the largest number of secants from pass to pass, and in memory for a large W
MORE_SECANTS, SECANT_ENTRIES = 100, 1 << 21  # in memory, their largest number for a small W, and for all moves together
LEAST_FALL = 1e-4  # a step is taken if F falls by this share of what its slope promises
ROUNDING, FLATTER = 16, 0.9  # or if F rises by at most so many roundings, and its slope falls to this share
SHORTEST = 1e-8  # rounding is the limit if no longer step descends
FACTOR_ROWS = 4  # a Hessian is summed over so many rows for each weight,
FACTOR_SCORES = 8  # or over more, if this takes no longer than the scores and gradients of dense rows at so many points
AXIS_ROWS = 16  # B is summed over so many rows for each feature, and A over so many for each class and feature
CURVED_ROWS = 512  # rows whose Hessians are summed at once
MOST_CURVED = 1024  # a Hessian is summed if W has at most this many entries
RIDGE = 1e-6  # relative to the diagonal, for the fit of the rows by their probabilities
MOST_AXES = 2048  # with more features, the axes are the features,
AXES_SHARE = 30  # or if the cube of their number exceeds this many times the numbers of the rows for all classes

Solve = Callable[[F64], F64]  # of matrices (K, d+1)


class Point(NamedTuple):
    """The loss, the gradient (K, d+1) and the probabilities of the parts at a point."""

    loss: float
    gradient: F64
    shares: list[Values]


class Sample:
    """Rows in memory, in parts. costs (K,): the costs of the classes. dtype: the type of all products.

    A part is its rows, codes and costs and, after `shrink`, the probabilities that predict its rows. held: the rows of
    the sample, if they are the first rows of the dataset.
    """

    def __init__(self, rows: Rows, costs: F64, bias_feature: float, threads: int, dtype: Any, held: Any = None) -> None:
        self.bias_feature, self.threads, self.dtype, self.n_rows = bias_feature, threads, dtype, rows.n_rows
        self.factor, self.means, self.held = dtype(1), np.empty(0), held
        parts = [rows.slice(slice(at, at + PART_ROWS)) for at in range(0, rows.n_rows, PART_ROWS)]
        self.parts: list[Any] = [
            (to_factor(one.X, dtype), one.codes, read_costs(costs, one).astype(dtype), None) for one in parts
        ]

    def shrink(self, shares: list[Values], means: F64, fitted: float, own: float) -> Sample:
        """Return the sample with rows sqrt(fitted) p_i.means + sqrt(own) (x_i - p_i.means) in place of the rows x_i.

        shares: the probabilities p_i of the parts. means: (K, d+1).
        """
        shrunk, shrunk.factor = copy(self), self.dtype(own**0.5)
        shrunk.means = (fitted**0.5 - own**0.5) * means
        shrunk.parts = [(*part[:3], p) for part, p in zip(self.parts, shares, strict=True)]
        return shrunk

    def thin(self, most: int) -> tuple[Sample, int]:
        """Return the sample of every k-th row with k times its costs, and k, so that about `most` rows are left."""
        thinned, k = copy(self), min(max(1, self.n_rows // most), PART_ROWS)  # one row of a part, or more
        thinned.n_rows = self.n_rows // k
        thinned.parts = [(X[::k], y[::k], self.dtype(k) * costs[::k], None) for X, y, costs, _ in self.parts]
        return thinned, k

    def _map(self, work: Callable[..., Any], *others: Any) -> list[Any]:
        return map_on_threads(lambda each: work(*each), list(zip(self.parts, *others, strict=True)), self.threads)

    def _sum(self, work: Callable[..., F64], *others: Any) -> F64:
        """Return the sum of the results of the parts, in order."""
        pairs, total = list(zip(self.parts, *others, strict=True)), np.zeros(())
        for at in range(0, len(pairs), SUMMED_PARTS):
            some = pairs[at : at + SUMMED_PARTS]
            total = sum(map_on_threads(lambda each: work(*each), some, self.threads), total)
        return total

    def score(self, W: F64) -> list[Values]:
        """Return the scores of the parts, (n, K) each."""
        weights, biases = W[:, :-1].T.astype(self.dtype), (self.bias_feature * W[:, -1]).astype(self.dtype)
        if not len(self.means):
            return self._map(lambda part: part[0] @ weights + biases)
        fitted = (self.means @ W.T).astype(self.dtype)
        return self._map(lambda part: self.factor * (part[0] @ weights + biases) + part[3] @ fitted)

    def look(self, scores: list[Values]) -> Point:
        """Return the loss, the gradient and the probabilities at these scores."""
        found = self._map(lambda part, own: measure(own, *part[1:3]), scores)
        shares = [each.shares for each in found]
        gradient = self._sum(lambda part, p: self._combine(part, find_slopes(p, *part[1:3])), shares)
        return Point(sum(each.loss for each in found), gradient, shares)

    def _combine(self, part: Any, slopes: Values) -> F64:
        """Return the sums of the rows times their slopes for each class, (K, d+1)."""
        X, p = part[0], part[3]
        sums = np.column_stack(((X.T @ slopes).T, self.bias_feature * np.sum(slopes, axis=0))).astype(np.float64)
        return sums if p is None else self.factor * sums + (slopes.T @ p) @ self.means

    def sum_hessian(self, shares: list[Values]) -> F64:
        """Return the Hessian of the loss, (width, width)."""
        shape = (shares[0].shape[1] * (self.parts[0][0].shape[1] + 1),) * 2
        return self._sum(lambda one, p: add_hessian(np.zeros(shape), one[0], p, one[2], self.bias_feature), shares)

    def sum_classes(self, shares: list[Values]) -> tuple[F64, float]:
        """Return the matrix A of the classes, and the number of rows that count for a class."""
        n_classes = shares[0].shape[1]
        A, sizes, squares = np.zeros((n_classes, n_classes)), np.zeros(n_classes), np.zeros(n_classes)
        for (_, _, costs, _), p in zip(self.parts, shares, strict=True):
            weighted = costs[:, None].astype(np.float64) * p
            A += np.diag(np.sum(weighted, axis=0)) - weighted.T @ p
            weighted *= 1.0 - p
            sizes, squares = sizes + np.sum(weighted, axis=0), squares + np.sum(weighted**2, axis=0)
        return A, min(float(np.median(sizes**2 / np.maximum(squares, np.finfo(float).tiny))), float(self.n_rows))

    def sum_features(self, shares: list[Values], means: F64) -> tuple[F64, F64, F64]:
        """Return the matrices B of the rows p_i.means and x_i - p_i.means, and the means (K, d+1).

        The means are those given, multiplied by the number between 0 and 1 that fits the rows of the sample best. The
        matrices are diagonals (d+1,) if their eigenvectors would take too long.
        """
        n_classes, width = means.shape
        few, spread = self.thin(AXIS_ROWS * width)
        n_values = sum(part[0].size for part in self.parts)
        is_diagonal = width > MOST_AXES or width**3 > AXES_SHARE * n_values * n_classes
        fit: F64 = np.zeros((n_classes, n_classes + width))
        squares: F64 = np.zeros(width if is_diagonal else (width, width))
        for (X, _, costs, _), p in zip(few.parts, (p[::spread] for p in shares), strict=True):
            add_fit(fit, X, p, costs, self.bias_feature)
            squares += self._sum_squares(X, weigh(p, costs), is_diagonal)
        inner, tiny = fit[:, :n_classes] @ means, np.finfo(float).tiny
        scale = float(np.clip(np.vdot(means, fit[:, n_classes:]) / (np.vdot(means, inner) + tiny), 0.0, 1.0))
        means, inner, total = scale * means, scale * inner, np.sum(fit[:, :n_classes]) + tiny

        def multiply(sums: F64) -> F64:
            return np.sum(means * sums, axis=0) if is_diagonal else (means.T @ sums + sums.T @ means) / 2

        fitted = multiply(inner)
        return fitted / total, (squares + fitted - 2.0 * multiply(fit[:, n_classes:])) / total, means

    def _sum_squares(self, X: Any, weights: Values, is_diagonal: bool) -> F64:
        """Return the sum of weight_i x_i x_i', or its diagonal."""
        if is_diagonal:
            return np.append(weights @ (X * X), self.bias_feature**2 * float(np.sum(weights))).astype(np.float64)
        x = np.column_stack((to_array(X), np.full(len(weights), self.bias_feature, X.dtype)))
        matrix: F64 = ((weights[:, None] * x).T @ x).astype(np.float64)
        return matrix


Axes = tuple[F64, F64 | None]  # eigenvalues of a matrix of the features, and eigenvectors (None: it is diagonal)


def find_axes(B: F64) -> Axes:
    """Return the eigenvalues and eigenvectors of a matrix of the features (d+1, d+1), or of a diagonal (d+1,)."""
    of_features, axes = (B, None) if B.ndim == 1 else np.linalg.eigh(B)
    return np.maximum(of_features, 0.0), axes


def invert_product(A: F64, axes: Axes) -> Solve:
    """Return the function that multiplies a matrix (K, d+1) by the inverse of I + A x B. axes: the axes of B."""
    of_classes, classes = np.linalg.eigh(A)
    of_features, vectors = axes
    values = 1.0 + np.maximum(of_classes, 0.0)[:, None] * of_features

    def solve(U: F64) -> F64:
        outer: F64 = classes @ ((classes.T @ (U if vectors is None else U @ vectors)) / values)
        return outer if vectors is None else outer @ vectors.T

    return solve


def find_share(n_rows: float, width: float) -> float:
    """Return the share of the sample's own Hessian in a model, by the rows that count for a class and the dimensions.

    The sample shows the Hessian of a class if many more rows count for the class than there are dimensions.
    """
    ratio = (n_rows / width) ** 2
    return ratio / (1.0 + ratio)


def to_array(X: Any) -> Any:
    """Return a factor of products as an array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def weigh(shares: Values, costs: Values) -> Any:
    """Return C_i (1 - |p_i|^2) of rows."""
    return costs * (1.0 - np.einsum("ik,ik->i", shares, shares))


def add_slopes(total: F64, X: Any, slopes: Values, bias_feature: float) -> None:
    """Add the rows times their slopes for each class, (n, K), to the total (K, d+1)."""
    total[:, :-1] += (X.T @ slopes).T
    total[:, -1] += bias_feature * np.sum(slopes, axis=0)


def add_fit(total: F64, X: Any, shares: Values, costs: Values, bias_feature: float) -> None:
    """Add the sums of p_i (p_i, x_i)', weighted by C_i (1 - |p_i|^2), to the total (K, K + d+1)."""
    weighted, n_classes = weigh(shares, costs)[:, None] * shares, shares.shape[1]
    total[:, :n_classes] += weighted.T @ shares
    add_slopes(total[:, n_classes:], X, weighted, bias_feature)


def find_means(fit: F64) -> Any:
    """Return the means (K, d+1) whose mixtures p_i.means are nearest to the rows x_i, for the sums of `add_fit`."""
    inner = fit[:, : len(fit)].copy()
    inner.flat[:: len(fit) + 1] = (1.0 + RIDGE) * np.diag(inner) + np.finfo(float).tiny
    return np.linalg.solve(inner, fit[:, len(fit) :])


@np.errstate(over="ignore", invalid="ignore")  # a Hessian that is not finite is not used
def add_hessian(total: F64, X: Any, shares: Values, costs: Values, bias_feature: float) -> F64:
    """Add the rows' Hessians sum_i C_i (diag p_i - p_i p_i') x x_i x_i' to the total, in the type of the shares.

    Return the total.
    """
    for at in range(0, len(shares), CURVED_ROWS):
        part = slice(at, at + CURVED_ROWS)
        p, roots = shares[part], np.sqrt(costs[part])[:, None]
        x = np.column_stack((to_array(X[part]), np.full(len(p), bias_feature)))
        x = (roots * x).astype(shares.dtype)
        both = (p[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        total -= both.T @ both
        for k in range(p.shape[1]):
            own = np.sqrt(p[:, k : k + 1]) * x
            block = slice(k * x.shape[1], (k + 1) * x.shape[1])
            total[block, block] += own.T @ own
    return total


@dataclass(frozen=True)
class Model:
    """The terms of F besides the loss of the sample.

    bend: the product of E with a direction; by default E is 0. solve: nearly the product of the inverse of I + E plus
    the Hessian of the loss at the centre (None: unknown). most: the most by which F can fall, unless E is wrong.
    """

    slope: F64
    centre: F64
    bend: Solve = np.zeros_like
    solve: Solve | None = None
    most: float = np.inf

    def measure(self, W: F64) -> tuple[float, F64]:
        """Return the terms with 1/2 |W|^2, and their gradient."""
        bent = self.bend(moved := W - self.centre)
        return float(np.vdot(W, W) / 2 + np.vdot(self.slope, W) + np.vdot(moved, bent) / 2), W + self.slope + bent


def factorise(H: F64) -> Solve | None:
    """Return the product of the inverse of I + H with a matrix; None if rounding makes I + H indefinite."""
    U = find_factor(H + np.eye(len(H)))
    return None if U is None else lambda v: cho_solve((U, False), v.ravel(), check_finite=False).reshape(v.shape)


def follow_secants(gradient: F64, secants: Sequence[tuple[F64, F64]], step: Callable[[F64], F64]) -> F64:
    """Return the step of L-BFGS (Nocedal & Wright 2006, Algorithm 7.4).

    secants: moves, and the changes of the gradient along them; the last counts most. step: the step for a gradient
    without secants.
    """
    found, shares = gradient, list[float]()
    for move, change in reversed(secants):
        shares.append(float(np.vdot(move, found) / np.vdot(move, change)))
        found = found - shares[-1] * change
    found = step(found)
    for (move, change), share in zip(secants, reversed(shares), strict=True):
        found = found - (share + float(np.vdot(change, found) / np.vdot(move, change))) * move
    return found


def count_secants(width: int) -> int:
    """Return the largest number of secants in memory for so many weights."""
    return int(np.clip(SECANT_ENTRIES // width, SECANTS, MORE_SECANTS))


def minimise(sample: Sample, model: Model, start: F64, wanted: float, share: float = 0.0, scores: Any = None) -> F64:
    """Return the minimiser (K, d+1) of F, to 1/2 |grad F|^2 <= wanted + share * F.

    scores: the scores to start with (None: the scores of the sample's rows at `start`).
    The search ends early where F is not convex, where rounding leaves no step that descends, or at the deadline. A step
    that takes F by more than `most` of the model below its start is shortened, and is the last.
    """
    W, scores, axes, secants = start, scores or sample.score(start), None, list[tuple[F64, F64]]()
    point, (own, own_gradient) = sample.look(scores), model.measure(start)
    lowest, rounding = own + point.loss - model.most, ROUNDING * float(np.finfo(sample.dtype).eps)
    falls_far = False
    for n_steps in range(MOST_STEPS):
        interrupts.check()
        gradient, least, t = point.gradient + own_gradient, own + point.loss, 1.0
        if deadline.is_over() or not np.vdot(gradient, gradient) / 2 > wanted + share * least:
            break
        if n_steps & (n_steps - 1) == 0:  # 0 or a power of two
            solve, axes = _precondition(sample, model, point.shares, axes)
        step = follow_secants(gradient, secants, _scale(solve, secants))
        moves, slope = sample.score(step), float(np.vdot(gradient, step))
        while t >= SHORTEST:
            del point  # the probabilities of only one point fit into the memory that is planned
            there = [one + t * move for one, move in zip(scores, moves, strict=True)]
            point, (own, own_gradient) = sample.look(there), model.measure(W + t * step)
            rise, after = own + point.loss - least, float(np.vdot(point.gradient + own_gradient, step))
            is_flat = rise <= rounding * abs(least) and abs(after) <= FLATTER * abs(slope)
            if own + point.loss >= lowest and (rise <= LEAST_FALL * t * slope or is_flat):
                break
            falls_far |= own + point.loss < lowest
            t /= 2
        change = point.gradient + own_gradient - gradient
        if t < SHORTEST or not np.vdot(step, change) > 0.0:
            break
        W, scores = W + t * step, there
        if falls_far:
            break
        secants = [*secants, (t * step, change)][-count_secants(W.size) :]
    return W


def _scale(solve: Solve, secants: Sequence[tuple[F64, F64]]) -> Solve:
    """Return the function that applies `solve` to a gradient, times minus the number that fits the last secant best."""
    scale = 1.0
    for move, change in secants[-1:]:
        scale = float(np.vdot(move, change) / np.vdot(change, solve(change)))
    return lambda gradient: -scale * solve(gradient)


def _precondition(sample: Sample, model: Model, shares: list[Values], known: Axes | None) -> tuple[Solve, Axes | None]:
    """Return a function that nearly solves H u = v and, if it is a product A x B, the axes of B.

    known: the axes that an earlier step has found.
    """
    solve, width, (n_classes, n_features) = model.solve, model.centre.size, model.centre.shape
    if solve is None and width <= MOST_CURVED:
        few, k = sample.thin(max(FACTOR_ROWS * width, FACTOR_SCORES * sample.n_rows // width))
        solve = factorise(few.sum_hessian([p[::k] for p in shares]))
    if solve is not None:
        return solve, None
    axes = known or find_axes(sample.sum_features(shares, np.zeros_like(model.centre))[1])
    few, k = sample.thin(AXIS_ROWS * (n_classes + n_features))
    return invert_product(few.sum_classes([p[::k] for p in shares])[0], axes), axes
