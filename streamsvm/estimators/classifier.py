"""The base class of classifiers: labels, scores and probabilities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.pieces import refuse_unsuitable, to_numpy
from streamsvm.estimators.base import BaseSVM, show_as
from streamsvm.estimators.inputs import is_dataset, refuse_columns
from streamsvm.models.evaluate import evaluate, judge_weighted_rows
from streamsvm.models.model import Model
from streamsvm.models.probabilities import find_probabilities, has_probabilities
from streamsvm.numeric.rows import F64
from streamsvm.problems.classification import choose, choose_labels
from streamsvm.problems.problem import Scored


def _asks_for_probabilities(estimator: Any) -> bool:
    return bool(getattr(estimator, "probability", False))


def find_logs(model: Model, scores: F64) -> F64:
    """Return the logarithm of the probability of each class, (n, K), from scores."""
    with np.errstate(divide="ignore"):
        logs: F64 = np.log(find_probabilities(model, scores))
    return logs


class BaseSVC(ClassifierMixin, BaseSVM):  # type: ignore[misc]
    """The base class of classifiers. More than two classes are trained one against the rest."""

    takes_label_sets = False  # whether `fit` takes an indicator matrix, too

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), pandas frame, Dask array or frame, Dataset, or path of one
            Dask rows are written to a temporary dataset chunk by chunk, and are never held as a whole.
        y : array-like of shape (n,), or matrix of shape (n, L), optional
            The labels; None with a dataset, which has its own. A linear classifier also takes an indicator matrix of 0
            and 1, dense or sparse, with a column for each of L labels of which a row may have any.
        sample_weight : array-like of shape (n,), optional
            The weights of the rows, >= 0; None with a dataset.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A ValueError, for unsuitable data and parameters.
        """
        return self._fit(X, y, sample_weight)

    def decision_function(self, X: Any) -> Any:
        """Return f(x) of each row; for two classes f(x) > 0 predicts classes_[1].

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

        After a fit on an indicator matrix of labels it is such a matrix, (n, L) int64.
        """
        if self._has_label_sets():
            return (self._score(X) > 0).astype(np.int64)
        return self._name(self._score(X), choose)

    def _has_label_sets(self) -> bool:
        """Return whether the fit was on an indicator matrix of labels."""
        check_is_fitted(self)
        return bool(self.model_.problem.has_label_sets)

    def _name(self, scores: Any, choose_codes: Callable[[F64], Any]) -> Any:
        """Return the labels whose codes are chosen by the scores."""
        name = partial(_name_classes, self.classes_, choose_codes)
        if isinstance(scores, np.ndarray):
            return name(scores)
        dropped = {"drop_axis": 1} if scores.ndim > 1 else {}
        return scores.map_blocks(name, **dropped, **show_as("label"), dtype=self.classes_.dtype)

    @available_if(_asks_for_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, (n, K), or of each label, if it was fitted with `probability`.

        Sigmoids or isotonic functions of the scores, which are divided by their sum for K > 2 classes, or one
        temperature for all scores. After a fit on an indicator matrix each label has a function of its own.

        Parameters
        ----------
        X : as in `decision_function`

        Returns
        -------
        ndarray or Dask array of shape (n, K), float64
        """
        self._require_probabilities()
        return self._map_scores(X, partial(find_probabilities, self.model_))

    @available_if(_asks_for_probabilities)
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the probability of each class, (n, K). X: as in `decision_function`."""
        self._require_probabilities()
        return self._map_scores(X, partial(find_logs, self.model_))

    def _require_probabilities(self) -> None:
        check_is_fitted(self)
        if not has_probabilities(self.model_):
            raise NotFittedError("predict_proba is not available when fitted with probability=False: fit again")

    def _map_scores(self, X: Any, find: Any) -> Any:
        scores = self._score(X)
        if isinstance(scores, np.ndarray):
            return find(scores)
        wider = {"new_axis": 1, "chunks": (scores.chunks[0], (2,))} if scores.ndim == 1 else {}
        return scores.map_blocks(find, **wider, **show_as("odds"), dtype=np.float64)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean accuracy, a share of the weights; of sets of labels, the share of sets that are right.

        X, y, sample_weight: as in `fit`. The weights of a dataset count, as `sample_weight` does.
        """
        if y is None and is_dataset(X):
            check_is_fitted(self)
            refuse_columns(sample_weight)
            sets = self.model_.problem.has_label_sets
            if judged := judge_weighted_rows(self._find_model(), X, _judge_sets if sets else _judge):
                return float(np.average(judged[0], weights=judged[1]))
            found = evaluate(self._find_model(), X)
            return float(found["subset_accuracy" if sets else "accuracy"])
        refuse_unsuitable(y=y, sample_weight=sample_weight)
        weight = None if sample_weight is None else np.asarray(sample_weight)
        return float(
            accuracy_score(
                y if issparse(y) else to_numpy(np.asarray(y)), np.asarray(self.predict(X)), sample_weight=weight
            )
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.takes_label_sets
        return tags


def _judge(part: Scored) -> Any:
    return choose(part.scores) == part.truth


def _judge_sets(part: Scored) -> Any:
    return (choose_labels(part.scores) == part.truth).all(axis=1)


def _name_classes(classes: npt.NDArray[Any], choose_codes: Callable[[F64], Any], scores: F64) -> Any:
    """Return the labels that scores predict."""
    return classes[choose_codes(scores)]
