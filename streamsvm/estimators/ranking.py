"""Linear ranking, as a scikit-learn estimator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVM
from streamsvm.estimators.inputs import is_dataset, refuse_columns
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import RankModel
from streamsvm.problems.ranking import RANK, ROC_AREA, evaluate_ranking

if TYPE_CHECKING:
    from distributed import Client


class RankSVM(BaseSVM):
    """Linear scores that order rows by rank, with a certificate, on data of any size (Joachims 2006, Algorithm 2).

        P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j)),    K = C sum v / sum over pairs v_i v_j

    over the pairs of rows with y_i > y_j, of one query if there are query ids; v: sample weights (of a query: one for
    all of its rows, and its pairs weigh that much). So C is the cost of a row, as in LinearSVC; C of the paper is n C.
    Any number of ranks: pairs are counted in O(n log n). Two ranks: P bounds what is missing of the area under the ROC
    curve. Training stops when the relative duality gap over all pairs is at most `tol`; then `status_` is "converged".

    Parameters: C, task ("rank", or "roc-area": two classes, which may be texts, and no queries), tol, memory, n_jobs,
    client, checkpoint, max_passes, acceleration, epsilon, random_state: as in LinearSVC. Memory: about 130 bytes a row.

    fit takes what LinearSVC takes, and qid (n,): rows of a query are next to each other. Fitted: coef_ (1, d),
    n_features_in_, n_iter_, n_passes_, objective_, lower_bound_, gap_, status_, history_, result_, model_.
    """

    solver = "cutting-plane"
    class_weight = None
    resident_rows = None

    def __init__(
        self, C: float = 1.0, *, task: str = "rank", tol: float = 1e-3, memory: str | int | None = None,
        n_jobs: int | None = None, client: Client | None = None, checkpoint: str | Path | None = None,
        max_passes: int | None = None, acceleration: str = "line-search", epsilon: float | None = None,
        random_state: int | None = 0,
    ) -> None:  # fmt: skip
        self.C = C
        self.task = task
        self.tol = tol
        self.memory = memory
        self.n_jobs = n_jobs
        self.client = client
        self.checkpoint = checkpoint
        self.max_passes = max_passes
        self.acceleration = acceleration
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None) -> Self:
        """Train; see the class. ValueError (InputError) for bad data and settings."""
        if self.task not in (RANK.name, ROC_AREA.name):
            raise InputError(f"task {self.task!r}: choose from {RANK.name}, {ROC_AREA.name}")
        return self._fit(X, y, sample_weight, qid)

    def predict(self, X: Any) -> Any:
        """Score of each row, higher for higher ranks: (n,) float64; a Dask array for Dask rows."""
        return self.decision_function(X)

    def score(self, X: Any, y: Any = None, qid: Any = None) -> float:
        """Share of the pairs, of one query if there are any, in the right order; ties count half. 1 without pairs."""
        check_is_fitted(self)
        if is_dataset(X):
            refuse_columns(y, qid)
            swapped = evaluate(self.model_, X)["swapped_pairs"]
        else:
            scores, labels = np.asarray(self.decision_function(X)), np.unique(np.asarray(y), return_inverse=True)[1]
            ids = None if qid is None else np.asarray(qid)
            swapped = evaluate_ranking(scores, labels.astype(np.float64), ids)["swapped_pairs"]
        return 1.0 if swapped is None else 1.0 - float(swapped)

    def _name_options(self) -> dict[str, Any]:
        options = {} if self.acceleration == "line-search" else {"acceleration": str(self.acceleration)}
        options |= {} if self.epsilon is None else {"epsilon": str(self.epsilon)}
        return {"task": self.task, "options": options}

    def _take_model(self, model: RankModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        del self.intercept_
        self.coef_ = model.coef[None, :]
