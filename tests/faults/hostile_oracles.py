"""Oracles of hostile fits, in long double: P of a saved model, and P of points that others found, which bound D.

Others are LIBLINEAR and LIBSVM by scikit-learn, PIQP, and the model that is all zeros. Nothing of streamsvm is used but
the numbers of the saved model, and, where rows are mapped, its features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import sklearn.linear_model
import sklearn.svm

from streamsvm.data.rows.views import Mapped
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.estimators import SVC, SVR, LogisticRegression, NuSVC, NuSVR, RankSVM
from tests.faults.hostile_problems import Hostile
from tests.nu_problems import NuProblem
from tests.one_class_problems import Long, OneClass
from tests.solvers.test_kernel_certificates import compute_long

LONG = np.longdouble
NOTHING = LONG(0.0)


def measure(case: Hostile, model: Any) -> tuple[Any, list[Any]]:
    """What the saved model's objective is, and the objectives of points that others found, all in long double."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        estimator = case.family.estimator
        if "nu" in case.parameters:
            return _measure_nu(case, model)
        if estimator is RankSVM:
            return _measure_ranks(case, model)
        if estimator in (SVC, SVR):
            return _measure_kernel(case, model)
        if case.parameters.get("multi_class") == "crammer_singer":
            return _measure_joint(case, model)
        return _measure_linear(case, model)


def read_costs(case: Hostile) -> Long:
    """C times the weight of each row, (n,)."""
    weight = np.ones(len(case.X)) if case.weight is None else case.weight
    return LONG(case.parameters.get("C", 1.0)) * weight.astype(LONG)


def list_problems(case: Hostile) -> Iterator[tuple[Any, Long]]:
    """The targets, or -1 and +1, and the costs C_i, of each problem of one score."""
    costs, factors = read_costs(case), case.parameters.get("class_weight") or {}
    if case.family.labels == "numbers":
        yield case.y, costs
    elif case.family.labels == "sets":
        yield from ((2 * column - 1, costs) for column in case.y.T)
    elif len(np.unique(case.y)) == 2:
        yield np.where(case.y == np.max(case.y), 1, -1), costs * [factors.get(int(k), 1.0) for k in case.y]
    else:
        for k in np.unique(case.y):
            yield np.where(case.y == k, 1, -1), np.where(case.y == k, factors.get(int(k), 1.0), 1.0) * costs


def lose(case: Hostile, y: Any, costs: Long, f: Long) -> Any:
    """The sum of the losses of scores f (n,)."""
    loss = case.parameters.get("loss", "")
    if case.family.estimator is LogisticRegression:
        return costs @ np.logaddexp(NOTHING, -y * f)
    is_tube = case.family.labels == "numbers"
    excess = np.abs(np.asarray(y, LONG) - f) - LONG(case.parameters["epsilon"]) if is_tube else 1 - y * f
    return costs @ np.maximum(excess, 0) ** (2 if loss.startswith("squared") else 1)


def lose_least(case: Hostile, y: Any, costs: Long, f: Long) -> Any:
    """The sum of the losses for the best bias, where they are piecewise linear."""
    used = costs > 0
    kinks = (np.asarray(y, LONG) - f)[used]
    if case.family.labels == "numbers":
        kinks = np.concatenate([kinks + LONG(case.parameters["epsilon"]), kinks - LONG(case.parameters["epsilon"])])
    return min((lose(case, y, costs, f + kink) for kink in kinks), default=NOTHING)


def _measure_linear(case: Hostile, model: Any) -> tuple[Any, list[Any]]:
    X = case.X.astype(LONG)
    if model.model_.features is not None:
        rows = ArrayDataset(case.X, None, None)
        X = np.asarray(Mapped(rows, model.model_.features).read(0).X, LONG)
    s, is_free = LONG(case.parameters.get("intercept_scaling", 1.0)), case.loss == "interior point"
    own, others, W, b = NOTHING, [NOTHING, NOTHING], np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    for k, (y, costs) in enumerate(list_problems(case)):

        def evaluate(w: Any, b: Any, y: Any = y, costs: Any = costs) -> Any:
            w, b = np.asarray(w, LONG), LONG(b)
            f = X @ w
            if case.parameters.get("penalty") == "l1":
                return np.sum(np.abs(w)) + abs(b / s) + lose(case, y, costs, f + b)
            return (w @ w + (0 if is_free else (b / s) ** 2)) / 2 + lose(case, y, costs, f + b)

        zero = np.zeros(X.shape[1], LONG)
        own += evaluate(W[k], b[k])
        others[0] += lose_least(case, y, costs, X @ zero) if is_free else evaluate(zero, 0)
        others[1] += min((evaluate(*point) for point in _find_linear(case, X, y, costs)), default=np.inf)
    return own, others


def _find_linear(case: Hostile, X: Long, y: Any, costs: Long) -> Iterator[tuple[Any, Any]]:
    """The point where LIBLINEAR ends, in at most 2,000 steps."""
    scaling = float(case.parameters.get("intercept_scaling", 1.0))
    used, limits = costs > 0, {"max_iter": 2000, "tol": 1e-8, "random_state": 0, "intercept_scaling": scaling}
    penalty, loss = case.parameters.get("penalty", "l2"), case.parameters.get("loss", "hinge")
    try:
        if case.family.estimator is LogisticRegression:
            other = sklearn.linear_model.LogisticRegression(penalty=penalty, solver="liblinear", **limits)
        elif case.family.labels == "numbers":
            loss = case.parameters.get("loss", "epsilon_insensitive")
            other = sklearn.svm.LinearSVR(loss=loss, epsilon=case.parameters["epsilon"], dual=True, **limits)
        else:
            other = sklearn.svm.LinearSVC(penalty=penalty, loss=loss, dual=penalty == "l2", **limits)
        other.fit(X[used].astype(float), y[used], sample_weight=costs[used].astype(float))
    except ValueError:  # one class only, and weights that are too large for it
        return
    w, b = other.coef_.ravel(), float(np.ravel(other.intercept_)[0])
    if np.all(np.isfinite(w)) and np.isfinite(b):
        yield w, b


def _lose_jointly(classes: Any, y: Any, costs: Long, F: Long) -> Any:
    """The sum of Crammer and Singer's losses of scores F (n, K)."""
    own = np.searchsorted(classes, y)
    rows = np.arange(len(y))
    rivals = 1 + F - F[rows, own][:, None]
    rivals[rows, own] = 0
    return costs @ np.maximum(0, np.max(rivals, axis=1))


def _cost_classes(case: Hostile) -> Long:
    factors = case.parameters.get("class_weight") or {}
    return read_costs(case) * [factors.get(int(k), 1.0) for k in case.y]


def _measure_joint(case: Hostile, model: Any) -> tuple[Any, list[Any]]:
    X, costs, s = case.X.astype(LONG), _cost_classes(case), LONG(case.parameters.get("intercept_scaling", 1.0))

    def evaluate(W: Any, b: Any) -> Any:
        W, b = np.asarray(W, LONG), np.asarray(b, LONG)
        if len(W) == 1:
            W, b = np.concatenate([-W, W]) / 2, np.concatenate([-b, b]) / 2
        return (np.sum(W**2) + np.sum((b / s) ** 2)) / 2 + _lose_jointly(model.classes_, case.y, costs, X @ W.T + b)

    others, used = [np.sum(costs)], costs > 0
    if len(np.unique(case.y[used])) == len(model.classes_):
        limits = {"max_iter": 2000, "tol": 1e-8, "random_state": 0, "intercept_scaling": float(s)}
        other = sklearn.svm.LinearSVC(multi_class="crammer_singer", **limits)
        other.fit(case.X[used], case.y[used], sample_weight=costs[used].astype(float))
        others.append(evaluate(other.coef_, other.intercept_))
    return evaluate(model.coef_, model.intercept_), [value for value in others if np.isfinite(value)]


def _measure_ranks(case: Hostile, model: Any) -> tuple[Any, list[Any]]:
    v = np.ones(len(case.X), LONG) if case.weight is None else case.weight.astype(LONG)
    V = np.where(case.y[:, None] > case.y[None], v[:, None] * v[None], 0)
    cost, w = LONG(case.parameters["C"]) * np.sum(v) / np.sum(V), model.coef_[0].astype(LONG)
    f = case.X.astype(LONG) @ w
    return w @ w / 2 + cost * np.sum(V * np.maximum(0, 1 - (f[:, None] - f[None]))), [cost * np.sum(V)]


def _list_pairs(case: Hostile, model: Any) -> Iterator[tuple[Any, Any, Long, Long, Any]]:
    """Of each problem of a kernel model: its rows, targets, costs, coefficients and bias."""
    coefs, biases = np.atleast_2d(model.model_.dual_coef), np.atleast_1d(model.model_.intercept)
    if case.family.labels == "numbers":
        yield np.arange(len(case.X)), case.y, read_costs(case), coefs[0].astype(LONG), biases[0]
        return
    costs = _cost_classes(case)
    if model.model_.n_support is not None:
        coefs = model.model_.list_pairs().dual_coef
    for k, pair in enumerate(combinations(model.classes_, 2)):
        rows = np.flatnonzero(np.isin(case.y, pair))
        first = -1 if len(model.classes_) == 2 else 1
        yield rows, np.where(case.y[rows] == pair[0], first, -first), costs[rows], coefs[k].astype(LONG), biases[k]


def _measure_kernel(case: Hostile, model: Any) -> tuple[Any, list[Any]]:
    kernel, Z = model.model_.kernel, model.support_vectors_
    Z = Z.toarray() if hasattr(Z, "toarray") else Z
    across, within, K = (compute_long(kernel, *both) for both in ((case.X, Z), (Z, Z), (case.X, case.X)))
    if case.parameters.get("multi_class") == "crammer_singer":
        A, costs = np.atleast_2d(model.model_.dual_coef).astype(LONG), _cost_classes(case)
        biases = np.atleast_1d(np.asarray(model.model_.intercept, LONG))
        if len(A) == 1:  # two classes, whose weights are opposite
            A, biases = np.concatenate([-A, A]) / 2, np.concatenate([-biases, biases]) / 2
        half = (np.sum((A @ within) * A) + biases @ biases) / 2
        scores = across @ A.T + biases
        return half + _lose_jointly(model.classes_, case.y, costs, scores), [np.sum(costs)]
    own, other = NOTHING, NOTHING
    for rows, y, costs, coef, bias in _list_pairs(case, model):
        f, half = across[rows] @ coef, coef @ within @ coef / 2
        own += half + lose(case, y, costs, f + LONG(bias))
        points = [half + lose_least(case, y, costs, f), lose_least(case, y, costs, np.zeros(len(rows), LONG))]
        other += min([*points, *_find_kernel(case, K[np.ix_(rows, rows)], y, costs)])
    return own, [other]


def _find_kernel(case: Hostile, K: Long, y: Any, costs: Long) -> Iterator[Any]:
    """P where LIBSVM ends, in at most 200,000 steps."""
    used = np.flatnonzero(costs > 0)
    of_rows = {"kernel": "precomputed", "C": 1.0, "tol": 1e-8, "max_iter": 200_000}
    is_tube, rows = case.family.labels == "numbers", K[np.ix_(used, used)].astype(float)
    if len(used) == 0 or not np.all(np.isfinite(rows)) or (not is_tube and len(np.unique(y[used])) < 2):
        return
    other = sklearn.svm.SVR(epsilon=case.parameters["epsilon"], **of_rows) if is_tube else sklearn.svm.SVC(**of_rows)
    other.fit(rows, y[used], sample_weight=costs[used].astype(float))
    coef = np.zeros(len(K), LONG)
    coef[used[other.support_]] = other.dual_coef_[0]
    f = K @ coef
    yield coef @ f / 2 + lose_least(case, y, costs, f)


def _measure_nu(case: Hostile, model: Any) -> tuple[Any, list[Any]]:
    nu, weight = case.parameters["nu"], case.weight
    if case.family.labels == "none":
        one = OneClass(case.X, nu, weight)
        if not hasattr(model, "support_"):
            w, X = model.coef_[0].astype(LONG), case.X.astype(LONG)
            found = X.T @ one.find_point(X @ X.T)
            return w @ w / 2, [found @ found / 2]
        K, alpha = one.matrix(model.model_.kernel), one.read_multipliers(model.model_)
        return _square(K, alpha, [one.find_point(K), one.costs * LONG(nu)])
    if case.family.estimator is NuSVC:
        factors = case.parameters.get("class_weight") or {}
        weight = (np.ones(len(case.X)) if weight is None else weight) * [factors.get(int(k), 1.0) for k in case.y]
        two = NuProblem(case.X, nu, np.where(case.y == 1, 1, -1), weight=weight)
        K = two.matrix(model.model_.kernel)
        return _square(K, two.read_coefficients(model.model_), [two.find_point(K)])
    assert case.family.estimator is NuSVR
    tube = NuProblem(case.X, nu, target=case.y, C=case.parameters["C"], weight=weight)
    K = tube.matrix(model.model_.kernel)
    own, other = tube.read_coefficients(model.model_), tube.find_point(K)
    biases = [float(each) for s in (own, other) for each in (case.y - K @ s)] if len(K) <= 30 else []
    points = [(s, b) for s in (own, other, 0 * own) for b in [*biases, float(np.median(case.y - K @ s))]]
    return tube.measure(K, own, model.intercept_[0]), [tube.measure(K, s, b) for s, b in points]


def _square(K: Long, own: Long, others: list[Long]) -> tuple[Any, list[Any]]:
    """1/2 |w|^2 of multipliers, and of those of others, which long double may round to below 0."""
    first, *rest = (np.maximum(alpha @ K @ alpha / 2, 0) for alpha in (own, *others))
    return first, rest
