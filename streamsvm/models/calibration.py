"""Calibrations, which turn scores into probabilities: fitting, application, storage and checks.

A model's `info` stores the fitted values as JSON, under the key of the calibration:

    sigmoids       {"A": [..], "B": [..]}, one A and one B for each score
    isotonic       [{"scores": [..], "probabilities": [..]}, ..], the corners of the function of each score
    temperature    {"beta": ..}

The probabilities of K > 2 classes by sigmoids or isotonic functions are divided by their sum; the probabilities of sets
of labels are not.

Temperature scaling has one factor for all scores:

    p_k = exp(beta f_k) / sum_l exp(beta f_l),      beta = 1 / temperature

beta minimises the log loss  - sum_i v_i log p_{y_i}  with the row weights v_i. The loss is convex in beta. The zero of
its derivative  sum_i v_i (sum_k p_k f_k - f_{y_i})  is found by Brent's method. Two classes have the scores -f and f.

Source: Guo, Pleiss, Sun & Weinberger 2017, "On calibration of modern neural networks", ICML; for scores of about 1,
beta has the bounds of scikit-learn 1.8's CalibratedClassifierCV(method="temperature").

Platt's sigmoid is the probability of a class from its score:

    P(y = 1 | f) = 1 / (1 + exp(A f + B))

A and B minimise the cross-entropy  - sum_i v_i [t_i log p_i + (1 - t_i) log(1 - p_i)]  with the row weights v_i and

    t_i = (N+ + 1) / (N+ + 2)  for a row of the class,    t_i = 1 / (N- + 2)  for any other

where N+ and N- are the sums of the weights of rows of the class and of other rows. These targets, due to Platt, keep
the probabilities of separable scores away from 0 and 1. The minimum is found by Newton's method with backtracking.

Source: Lin, Lin & Weng 2007, "A note on Platt's probabilistic outputs for support vector machines", Machine Learning
68, Algorithm 1.

Isotonic calibration is the non-decreasing function of the score that is closest to the truth:

    min over non-decreasing p    sum_i v_i (t_i - p(f_i))^2,      t_i = 1 for a row of the class, and 0 for any other

On the scores of the rows, the minimum is a step function. Only its corners are stored. Between corners the function is
linear, and beyond them it is constant, as in scikit-learn's IsotonicRegression(out_of_bounds="clip").

Source: Zadrozny & Elkan 2002, "Transforming classifier scores into accurate multiclass probability estimates", KDD. The
algorithm (pool adjacent violators) is SciPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from streamsvm.kernels.stored_parts import read_number, read_part
from streamsvm.numeric.rows import F64, I32, Flags

MOST_CORNERS = 20_000  # maximum number of corners of a stored function; a million unweighted rows give fewer


def fit_isotonic(scores: F64, is_in_class: Flags, weight: F64, may_be_rare: bool = False) -> tuple[F64, F64]:
    """Return the corners: ascending scores (k,) and non-decreasing probabilities (k,).

    scores (n,): the scores of the rows. is_in_class (n,): whether each row is of the class. weight (n,): the weights of
    the rows, >= 0. At most MOST_CORNERS corners are kept, evenly spread. If all rows of positive weight are in the
    class, or none is, the result with may_be_rare is one corner with the probability of Platt's targets; otherwise
    ValueError is raised.
    """
    total, positive = float(np.sum(weight)), float(np.sum(weight, where=is_in_class))
    if not 0.0 < positive < total:
        if may_be_rare:
            return np.zeros(1), np.array([(positive + 1.0) / (total + 2.0)])
        raise ValueError("the isotonic function of a class needs rows of this class, and others, with weights above 0")
    counted = weight > 0.0
    known, place = np.unique(scores[counted], return_inverse=True)
    weights = np.bincount(place, weight[counted])
    shares = np.bincount(place, weight[counted] * is_in_class[counted]) / weights
    from scipy.optimize import isotonic_regression  # imported here, because most trainings do not need its 15 MB

    found = isotonic_regression(shares, weights=weights)
    corners = np.unique(np.concatenate((found.blocks[:-1], found.blocks[1:] - 1)))
    if len(corners) > MOST_CORNERS:
        corners = corners[np.linspace(0, len(corners) - 1, MOST_CORNERS).astype(np.int64)]
    return known[corners], np.maximum.accumulate(np.clip(found.x[corners], 0.0, 1.0))


MOST_STEPS = 100
RIDGE = 1e-12  # added to the Hessian's diagonal, for scores of about 1
LEAST_GRADIENT = 1e-9  # the gradient at which the fit ends, for weights that sum to 1
LEAST_STEP = 1e-10
SUFFICIENT_FALL = 1e-4


def fit_sigmoid(scores: F64, is_in_class: Flags, weight: F64, may_be_rare: bool = False) -> tuple[float, float]:
    """Return A and B of the sigmoid.

    scores (n,): the scores of the rows. is_in_class (n,): whether each row is of the class. weight (n,): the weights of
    the rows, >= 0. Scores of rows with positive weight are first scaled to [-1, 1], and weights to the sum 1. If all
    rows of positive weight are in the class, or none is, the result with may_be_rare is the constant probability of
    Platt's targets; otherwise ValueError is raised.
    """
    total, positive = float(np.sum(weight)), float(np.sum(weight, where=is_in_class))
    if not 0.0 < positive < total:
        if may_be_rare:
            return 0.0, float(np.log((total - positive + 1.0) / (positive + 1.0)))
        raise ValueError("the sigmoid of a class needs rows of this class, and others, with weights above 0")
    counted = weight > 0.0
    target = np.where(is_in_class, (positive + 1.0) / (positive + 2.0), 1.0 / (total - positive + 2.0))[counted]
    f, weight = scores[counted], weight[counted] / total
    low, high = float(np.min(f)), float(np.max(f))
    middle, scale = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0 or 1.0
    f, point = (f - middle) / scale, np.array([0.0, np.log((total - positive + 1.0) / (positive + 1.0))])
    loss = _measure(point, f, target, weight)
    for _ in range(MOST_STEPS):
        p = expit(-(point[0] * f + point[1]))
        off, curve = weight * (target - p), weight * p * (1.0 - p)
        gradient = np.array([off @ f, np.sum(off)])
        if np.max(np.abs(gradient)) < LEAST_GRADIENT:
            break
        mixed = curve @ f
        hessian = np.array([[curve @ f**2 + RIDGE, mixed], [mixed, np.sum(curve) + RIDGE]])
        direction, length = -np.linalg.solve(hessian, gradient), 1.0
        fall = float(gradient @ direction)
        while length >= LEAST_STEP:
            ahead = point + length * direction
            found = _measure(ahead, f, target, weight)
            if found < loss + SUFFICIENT_FALL * length * fall:
                break
            length /= 2.0
        else:
            break
        point, loss = ahead, found
    slope = float(point[0] / scale)
    return slope, float(point[1]) - slope * middle


def _measure(point: F64, f: F64, target: F64, weight: F64) -> float:
    """Return the cross-entropy at the point (A, B)."""
    z = point[0] * f + point[1]
    return float(weight @ (target * z + np.logaddexp(0.0, -z)))


BLOCK_SCORES = 1 << 16  # scores processed at a time
MOST_LOG = 10.0  # log(beta times the largest score) is limited to -MOST_LOG .. MOST_LOG


def fit_temperature(scores: F64, codes: I32, weight: F64) -> float:
    """Return beta, which is positive.

    scores: the scores of the rows, (n, K), or (n, 1) for two classes. codes (n,): the class of each row. weight (n,):
    the weights of the rows, >= 0. Raises ValueError unless some row has a positive weight.
    """
    if not np.sum(weight) > 0.0:
        raise ValueError("a temperature needs rows")
    counted = [(scores[at], codes[at], weight[at] / np.sum(weight)) for at in _cut(scores)]
    scale = max(float(np.max(np.abs(f[own > 0.0]), initial=0.0)) for f, _, own in counted) or 1.0

    def slope(log_beta: float) -> float:
        return sum(_find_slope(*part, np.exp(log_beta), scale) for part in counted)

    if slope(-MOST_LOG) >= 0.0:
        return float(np.exp(-MOST_LOG)) / scale
    if slope(MOST_LOG) <= 0.0:
        return float(np.exp(MOST_LOG)) / scale
    from scipy.optimize import brentq  # imported here, because most trainings do not need its 15 MB

    found = float(np.exp(brentq(slope, -MOST_LOG, MOST_LOG, xtol=1e-12))) / scale
    counted.clear()  # brentq leaves a cycle of references behind, which would hold the scores until it is collected
    return found


def _find_slope(scores: F64, codes: I32, weight: F64, beta: float, scale: float) -> float:
    """Return the derivative of the loss of some rows with respect to beta, for scores divided by `scale`."""
    own = np.flatnonzero(weight > 0.0)  # rows without weight may have any scores
    logits = _make_logits(scores[own]) / scale
    p = softmax(beta * logits, axis=1)
    means = np.einsum("ik,ik->i", p, logits)
    return float(weight[own] @ (means - logits[np.arange(len(own)), codes[own]]))


def apply_temperature(stored: Mapping[str, Any], scores: F64) -> F64:
    """Return the probability of each class, (n, K), from scores (n,) for two classes or (n, K)."""
    found = np.empty((len(scores), 2 if scores.ndim == 1 else max(2, scores.shape[1])))
    for part in _cut(scores):
        found[part] = softmax(float(stored["beta"]) * _make_logits(scores[part]), axis=1)
    return found


def _cut(scores: F64) -> list[slice]:
    """Return slices of the rows to process one at a time, since softmax makes several copies of its scores."""
    step = max(1, BLOCK_SCORES * len(scores) // max(1, scores.size))
    return [slice(at, at + step) for at in range(0, len(scores), step)]


def _make_logits(scores: F64) -> F64:
    """Return a score for each class, (n, K)."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        f = scores.reshape(-1)
        return np.column_stack((-f, f))
    return scores


Truth = I32 | Flags


@dataclass(frozen=True)
class Calibration:
    """A method that turns scores into probabilities.

    key: the key in a model's `info`. by_score: whether there is a function for each score, fitted to the rows inside
    and outside the class of the score; otherwise, a single function takes all scores of a row.

    fit(scores, truth, weight): returns the value to store, or raises ValueError if there are too few rows. scores: the
    scores of the rows, (n, K), or (n, 1) for two classes. truth: the class codes (n,), or label flags (n, K). weight
    (n,): the weights of the rows.

    check(stored, n_scores): raises ValueError unless the stored value is for n_scores scores.

    find(stored, scores): returns probabilities (n, K), one for each score if by_score, otherwise one for each class.
    """

    key: str
    fit: Callable[[F64, Truth, F64], Any]
    find: Callable[[Any, F64], F64]
    check: Callable[[Any, int], None]
    by_score: bool = True

    def apply(self, stored: Any, scores: F64, has_label_sets: bool = False) -> F64:
        """Return the probabilities (n, K) of the classes or, for sets of labels, of each label."""
        if has_label_sets or not self.by_score:
            return self.find(stored, scores)
        return share_out(self.find(stored, np.atleast_2d(scores.T).T))


def _each_class(scores: F64, truth: Truth) -> list[tuple[F64, Any]]:
    """Return each column of scores, with flags of the rows that have the class or label of this column."""
    if truth.ndim == 2:
        return list(zip(scores.T, truth.T, strict=True))
    if scores.shape[1] == 1:
        return [(scores[:, 0], truth == 1)]
    return [(scores[:, k], truth == k) for k in range(scores.shape[1])]


def share_out(each: F64) -> F64:
    """Return class probabilities (n, K) that sum to 1.

    each: a probability for each score, (n, K), or (n, 1) for two classes.
    """
    if each.shape[1] == 1:
        return np.column_stack((1.0 - each[:, 0], each[:, 0]))
    sums = np.sum(each, axis=1, keepdims=True)
    return np.where(sums > 0.0, each / np.where(sums > 0.0, sums, 1.0), 1.0 / each.shape[1])


def _fit_sigmoids(scores: F64, truth: Truth, weight: F64) -> dict[str, list[float]]:
    found = [fit_sigmoid(f, own, weight, truth.ndim == 2) for f, own in _each_class(scores, truth)]
    return {"A": [A for A, _ in found], "B": [B for _, B in found]}


def _apply_sigmoids(stored: Mapping[str, Any], scores: F64) -> F64:
    found: F64 = expit(-(np.asarray(stored["A"]) * scores + np.asarray(stored["B"])))
    return found


def _check_sigmoids(stored: Any, n_scores: int) -> None:
    for name in ("A", "B"):
        _read_numbers(stored, name, n_scores, "sigmoids")


def _fit_isotonic(scores: F64, truth: Truth, weight: F64) -> list[dict[str, list[float]]]:
    found = [fit_isotonic(f, own, weight, truth.ndim == 2) for f, own in _each_class(scores, truth)]
    return [{"scores": at.tolist(), "probabilities": p.tolist()} for at, p in found]


def _apply_isotonic(stored: Any, scores: F64) -> F64:
    each = zip(scores.T, stored, strict=True)
    return np.stack([np.interp(f, own["scores"], own["probabilities"]) for f, own in each], axis=1)


def _check_isotonic(stored: Any, n_scores: int) -> None:
    if not isinstance(stored, list) or len(stored) != n_scores:
        raise ValueError(f"isotonic: {n_scores} functions are expected")
    for own in stored:
        at = read_part(own, "scores") if isinstance(own, dict) else None
        if not isinstance(at, list) or not 1 <= len(at) <= MOST_CORNERS:
            raise ValueError(f"isotonic: scores of 1 to {MOST_CORNERS} corners are expected")
        corners = _read_numbers(own, "scores", len(at), "isotonic")
        p = _read_numbers(own, "probabilities", len(at), "isotonic")
        if np.any(np.diff(corners) <= 0.0):
            raise ValueError("isotonic: the scores of the corners do not ascend")
        if np.any(np.diff(p) < 0.0) or p[0] < 0.0 or p[-1] > 1.0:
            raise ValueError("isotonic: the probabilities descend, or are not between 0 and 1")


def _fit_temperature(scores: F64, codes: Truth, weight: F64) -> dict[str, float]:
    return {"beta": fit_temperature(scores, codes.astype(np.int32, copy=False), weight)}


def _check_temperature(stored: Any, n_scores: int) -> None:  # noqa: ARG001
    if not isinstance(stored, dict) or read_number(stored, "beta") <= 0.0:
        raise ValueError("temperature: a positive number beta is expected")


def _read_numbers(stored: Any, name: str, n: int, of: str) -> F64:
    """Return n finite numbers. Raises ValueError for anything else."""
    values = read_part(stored, name) if isinstance(stored, dict) else None
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"{of}: {n} numbers {name} are expected")
    return np.array([read_number({name: value}, name) for value in values])


CALIBRATIONS = {
    "sigmoid": Calibration("sigmoids", _fit_sigmoids, _apply_sigmoids, _check_sigmoids),
    "isotonic": Calibration("isotonic", _fit_isotonic, _apply_isotonic, _check_isotonic),
    "temperature": Calibration("temperature", _fit_temperature, apply_temperature, _check_temperature, by_score=False),
}


def find_calibration(info: Mapping[str, Any]) -> str | None:
    """Return the name of the calibration that is stored in a model's `info`, or None."""
    return next((name for name, way in CALIBRATIONS.items() if way.key in info), None)


def check_calibration(info: Mapping[str, Any], n_scores: int) -> None:
    """Raise ValueError unless the calibration stored in `info`, if any, was fitted to n_scores scores."""
    for way in CALIBRATIONS.values():
        if way.key in info:
            way.check(info[way.key], n_scores)
