"""The base classes of classifiers, regressions and one-class estimators: fit, predictions and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.sources.arrays import hold, refuse_unsuitable, to_numpy
from streamsvm.estimators.base import BaseSVM, show_as
from streamsvm.estimators.inputs import DEPRECATED, is_dataset, refuse_columns
from streamsvm.models.calibration import find_calibration
from streamsvm.models.evaluate import evaluate, find_probabilities, has_probabilities, judge_weighted_rows
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64
from streamsvm.options import ClassWeight
from streamsvm.problems.classification import choose, choose_labels
from streamsvm.problems.nu import ONE_CLASS
from streamsvm.problems.problem import Scored
from streamsvm.problems.registry import SOFTMAX
from streamsvm.problems.regression import REGRESS


def _asks_for_probabilities(estimator: Any) -> bool:
    return getattr(estimator, "probability", False) not in (False, DEPRECATED)


def find_log_probabilities(model: Model, scores: F64) -> F64:
    """Return the logarithm of the probability of each class, (n, K), from scores.

    Without a calibration, the logarithm is accurate even where the probability underflows.
    """
    if find_calibration(model.info) is not None:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(find_probabilities(model, scores)))
    if model.loss == SOFTMAX:
        return np.asarray(log_softmax(scores, axis=1))
    if scores.ndim == 1:
        return np.column_stack((log_expit(-scores), log_expit(scores)))
    logs: F64 = log_expit(scores)
    return logs if model.problem.has_label_sets else logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)


class BaseSVC(ClassifierMixin, BaseSVM):  # type: ignore[misc]
    """The base class of classifiers. More than two classes are trained one against the rest.

    Parameters
    ----------
    class_weight : dict, "balanced" or None, default=None
        Factors of C by label. "balanced" is n / (K n_k), where n and n_k are sums of sample weights, as in
        scikit-learn's LinearSVC since 1.7.
    probability : bool or {"sigmoid", "isotonic", "temperature"}, default=False
        Whether the estimator has `predict_proba` and `predict_log_proba`, and how scores become probabilities; True
        stands for "sigmoid". Five models, each trained on four fifths of the rows, score the remaining fifth, and the
        function is fitted to these scores. The five share the reads of the model of all rows; their scores take one
        more read.

    Attributes
    ----------
    classes_ : ndarray of shape (2,) or (K,)
    """

    class_weight: ClassWeight = None

    takes_label_sets = False  # whether `fit` also takes an indicator matrix

    def decision_function(self, X: Any) -> Any:
        """Return f(x) for each row; for two classes f(x) > 0 predicts classes_[1].

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), Dask array or frame, Dataset, or path of a dataset

        Returns
        -------
        ndarray or Dask array of shape (n,), float64
            Of shape (n, K) for K > 2 classes. The scores of Dask rows are a Dask array.
        """
        return self._score(X)

    def predict(self, X: Any) -> Any:
        """Return the predicted label of each row, (n,); a Dask array for Dask rows. X: as in `decision_function`.

        After a fit on an indicator matrix of labels, the result is such a matrix, (n, L) int64.
        """
        check_is_fitted(self)
        if self.model_.problem.has_label_sets:
            return (self._score(X) > 0).astype(np.int64)
        return self._name(self._score(X), choose)

    def _name(self, scores: Any, choose_codes: Callable[[F64], Any]) -> Any:
        """Return the labels of the codes that choose_codes(scores) returns."""
        dropped = {"drop_axis": 1} if scores.ndim > 1 else {}
        name = partial(_name_classes, self.classes_, choose_codes)
        return map_scores("label", name, scores, dtype=self.classes_.dtype, **dropped)

    @available_if(_asks_for_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, (n, K), or of each label, after a fit with `probability`.

        Probabilities are sigmoids or isotonic functions of the scores, divided by their sum for K > 2 classes, or a
        softmax of the scores with one temperature. After a fit on an indicator matrix, each label has a function of its
        own.

        Parameters
        ----------
        X : as in `decision_function`

        Returns
        -------
        ndarray or Dask array of shape (n, K), float64
        """
        self._require_probabilities()
        return self._map_scores(X, partial(find_probabilities, self.model_))

    @available_if(lambda estimator: hasattr(estimator, "predict_proba"))
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the probability of each class, (n, K). X: as in `decision_function`."""
        self._require_probabilities()
        return self._map_scores(X, partial(find_log_probabilities, self.model_))

    def _require_probabilities(self) -> None:
        check_is_fitted(self)
        if not has_probabilities(self.model_):
            raise NotFittedError("predict_proba is not available when fitted with probability=False: fit again")

    def _map_scores(self, X: Any, find: Any) -> Any:
        scores = self._score(X)
        is_wider = scores.ndim == 1 and not isinstance(scores, np.ndarray)
        wider = {"new_axis": 1, "chunks": (scores.chunks[0], (2,))} if is_wider else {}
        return map_scores("odds", find, scores, dtype=np.float64, **wider)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the weighted accuracy; for sets of labels, the share of rows whose whole set is right.

        X, y, sample_weight: as in `fit`. The weights of a dataset are used like `sample_weight`.
        """
        if y is None and is_dataset(X):
            check_is_fitted(self)
            refuse_columns(sample_weight)
            sets = self.model_.problem.has_label_sets
            if judged := judge_weighted_rows(self._get_model(), X, _judge_sets if sets else _judge):
                return float(np.average(judged[0], weights=judged[1]))
            found = evaluate(self._get_model(), X)
            return float(found["subset_accuracy" if sets else "accuracy"])
        y, sample_weight = hold(y), hold(sample_weight)
        refuse_unsuitable(y=y, sample_weight=sample_weight)
        truth = y if issparse(y) else to_numpy(np.asarray(y))
        weight = None if sample_weight is None else np.asarray(sample_weight)
        return float(accuracy_score(truth, np.asarray(self.predict(X)), sample_weight=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.takes_label_sets
        return tags


def map_scores(name: str, function: Callable[[F64], Any], scores: Any, **made: Any) -> Any:
    """Apply a function to scores, or to each block of a Dask array of scores by tasks of this name.

    made: the dtype and the shape of the blocks, as arguments of `map_blocks`.
    """
    return function(scores) if isinstance(scores, np.ndarray) else scores.map_blocks(function, **made, **show_as(name))


def _judge(part: Scored) -> Any:
    return choose(part.scores) == part.truth


def _judge_sets(part: Scored) -> Any:
    return (choose_labels(part.scores) == part.truth).all(axis=1)


def _name_classes(classes: npt.NDArray[Any], choose_codes: Callable[[F64], Any], scores: F64) -> Any:
    """Return the labels that scores predict."""
    return classes[choose_codes(scores)]


class BaseSVR(RegressorMixin, BaseSVM):  # type: ignore[misc]
    """The base class of regressions."""

    task = REGRESS.name
    class_weight = None
    loss = "epsilon_insensitive"

    def predict(self, X: Any) -> Any:
        """Return the predicted target of each row, (n,) float64; a Dask array for Dask rows."""
        return self._score(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2, the share of the targets' variance that is explained.

        X, y, sample_weight: as in `fit`. The weights of a dataset are used like `sample_weight`.
        """
        if y is None and is_dataset(X):
            check_is_fitted(self)
            refuse_columns(sample_weight)
            model = self._get_model()
            if judged := judge_weighted_rows(model, X, lambda part: np.stack((part.labels, part.scores), axis=1)):
                return float(r2_score(*judged[0].T, sample_weight=judged[1]))
            share = evaluate(model, X)["r2"]
            return float("nan") if share is None else float(share)
        y, sample_weight = hold(y), hold(sample_weight)
        refuse_unsuitable(y=y, sample_weight=sample_weight)
        return float(r2_score(np.asarray(y), np.asarray(self.predict(X)), sample_weight=sample_weight))


class BaseOneClass(OutlierMixin, BaseSVM):  # type: ignore[misc]
    """The base class of one-class estimators, which learn where rows lie, without labels.

    Parameters
    ----------
    nu : float, default=0.5
        An upper bound on the share of rows that lie outside, in (0, 1]; with a kernel, also a lower bound on the share
        of support vectors.

    Attributes
    ----------
    offset_ : float
        rho, so that `decision_function` is `score_samples` minus offset_.
    intercept_ : ndarray of shape (1,), float64
        -rho.
    """

    task = ONE_CLASS.name
    C = 1.0
    class_weight = None
    nu: float = 0.5

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # type: ignore[override]  # noqa: ARG002
        """Train on rows of the class; a share `nu` of them may be outliers. See `LinearSVC.fit`; y is ignored."""
        return super().fit(X, None, sample_weight)

    def decision_function(self, X: Any) -> Any:
        """Return w.phi(x) - rho for each row, (n,) float64; a Dask array for Dask rows. X: as in `SVC`."""
        return self.score_samples(X) - self.offset_

    def score_samples(self, X: Any) -> Any:
        """Return w.phi(x) for each row, (n,) float64, low for novel rows. X: as in `decision_function`."""
        check_is_fitted(self)
        return self._score(X, replace(self._get_model(), intercept=0.0))

    def predict(self, X: Any) -> Any:
        """Return +1 for each row of the class and -1 for each novel one, (n,). X: as in `decision_function`."""
        return map_scores("label", choose_sides, self.decision_function(X), dtype=np.intp)

    def _set_model(self, model: Any, label_dtype: Any = None) -> None:
        super()._set_model(model, label_dtype)
        del self.classes_  # with classes_, scikit-learn would take this for a classifier
        self.offset_ = -float(self.intercept_[0])


def choose_sides(scores: F64) -> Any:
    """Return +1 for scores above 0, otherwise -1."""
    return np.where(scores > 0.0, 1, -1)
