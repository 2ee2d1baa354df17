"""`RankSVM`, a linear ranking."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.pieces import refuse_unsuitable
from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVM, with_parameters
from streamsvm.estimators.inputs import is_dataset, read_queries, refuse_columns
from streamsvm.estimators.linear_base import put_weights
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import RankModel
from streamsvm.problems.ranking import RANK, ROC_AREA, evaluate_ranking

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class RankSVM(BaseSVM):
    """Linear ranking with a certificate, on data of any size: rows of higher ranks get higher scores w.x.

        P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j)),    K = C sum v / sum over pairs v_i v_j

    The pairs are those of rows i and j with y_i > y_j, within a query if there are query ids, and v are the sample
    weights. (With query ids, all rows of a query have one weight, which is that of its pairs.) So C is the cost of a
    row, as in LinearSVC, and C of the paper is n C. There may be any number of ranks: pairs are counted in O(n log n).
    For two ranks, P bounds the distance of the area under the ROC curve from 1. Training ends with the status
    "converged" only if the relative duality gap over all pairs is proved to be at most `tol`. It takes about 130 bytes
    of memory a row.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row.
    task : {"rank", "roc-area"}, default="rank"
        "roc-area" is for two classes, which may be texts, without queries.
    tol, memory, n_jobs, client, checkpoint, max_passes, max_seconds, epsilon, random_state : as in LinearSVC
    acceleration : {"line-search", "none"}, default="line-search"
        How cutting planes are chosen: by a line search, or by Algorithm 2 of Joachims (2006) as published.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d), float64
    n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

    References
    ----------
    Joachims (2006), Training linear SVMs in linear time, KDD, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import RankSVM
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> ranks = np.digitize(X @ [1.0, -2.0, 0.5], [-1.0, 1.0])
    >>> model = RankSVM().fit(X, ranks)
    >>> model.status_, model.score(X, ranks) > 0.95
    ('converged', True)
    """

    solver = "cutting-plane"
    class_weight = None
    resident_rows = None

    C: float = 1.0
    _: KW_ONLY
    task: str = "rank"
    tol: float = 1e-3
    memory: str | int | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    acceleration: str = "line-search"
    epsilon: float | None = None
    random_state: int | None = 0

    def fit(self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None) -> Self:
        """Train on ranked rows.

        Parameters
        ----------
        X : as in `LinearSVC.fit`
        y : array-like of shape (n,), optional
            The ranks, higher for rows that come first; None with a dataset, which has its own.
        qid : array-like of shape (n,), optional
            Whole numbers or texts, the query of each row. The rows of a query are next to each other.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        InputError
            A ValueError, for unsuitable data and parameters.
        """
        if self.task not in (RANK.name, ROC_AREA.name):
            raise InputError(f"task is {self.task!r}: choose from {RANK.name}, {ROC_AREA.name}")
        return self._fit(X, y, sample_weight, qid)

    def predict(self, X: Any) -> Any:
        """Return the score of each row, (n,) float64, higher for higher ranks; a Dask array for Dask rows."""
        return self._score(X)

    def decision_function(self, X: Any) -> Any:
        """Return the score of each row, as `predict` does."""
        return self._score(X)

    def score(self, X: Any, y: Any = None, qid: Any = None) -> float:
        """Return the share of the pairs, in the right order; ties count half.

        The pairs are those within queries if there are any. Without pairs the score is 1. X, y, qid: as in `fit`.
        """
        check_is_fitted(self)
        if is_dataset(X):
            refuse_columns(y, qid)
            swapped = evaluate(self._find_model(), X)["swapped_pairs"]
        else:
            refuse_unsuitable(y=y, qid=qid)
            scores, labels = np.asarray(self.decision_function(X)), np.unique(np.asarray(y), return_inverse=True)[1]
            ids = None if qid is None else read_queries(qid)
            swapped = evaluate_ranking(scores, labels.astype(np.float64), ids)["swapped_pairs"]
        return 1.0 if swapped is None else 1.0 - float(swapped)

    def _name_options(self) -> dict[str, Any]:
        return {"task": self.task, "options": self._list_own_options()}

    def _take_model(self, model: RankModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        del self.intercept_
        self.coef_ = model.coef[None, :].copy()

    def _find_model(self) -> Any:
        return put_weights(self.model_, self.coef_, self.model_.intercept)
