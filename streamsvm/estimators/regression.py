"""`LinearSVR`, a linear support-vector regression, and the base class that it shares with `SVR`."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.pieces import refuse_unsuitable
from streamsvm.estimators.base import BaseSVM, with_parameters
from streamsvm.estimators.inputs import is_dataset, refuse_columns
from streamsvm.estimators.linear_base import BaseLinear
from streamsvm.models.evaluate import evaluate, judge_weighted_rows
from streamsvm.numeric.rows import F64
from streamsvm.problems.regression import REGRESS

if TYPE_CHECKING:
    from distributed import Client


class BaseSVR(RegressorMixin, BaseSVM):  # type: ignore[misc]
    """The base class of regressions."""

    class_weight = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows with targets.

        Parameters
        ----------
        X : as in `LinearSVC.fit`
        y : array-like of shape (n,), optional
            The targets, which are numbers; None with a dataset, which has its own (`ingest` with `regression=True`).
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

    def predict(self, X: Any) -> Any:
        """Return the predicted target of each row, (n,) float64; a Dask array for Dask rows."""
        return self._score(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2, the share of the targets' variance that is explained.

        X, y, sample_weight: as in `fit`. The weights of a dataset count, as `sample_weight` does.
        """
        if y is None and is_dataset(X):
            check_is_fitted(self)
            refuse_columns(sample_weight)
            pairs = judge_weighted_rows(
                self._find_model(), X, lambda part: np.column_stack((np.asarray(part.truth), part.scores))
            )
            if pairs is not None:
                return float(r2_score(*pairs[0].T, sample_weight=pairs[1]))
            share = evaluate(self._find_model(), X)["r2"]
            return float("nan") if share is None else float(share)
        refuse_unsuitable(y=y, sample_weight=sample_weight)
        return float(r2_score(np.asarray(y), np.asarray(self.predict(X)), sample_weight=sample_weight))


@with_parameters
class LinearSVR(BaseLinear, BaseSVR):
    """Linear support-vector regression with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i max(0, |y_i - (w.x_i + b)| - epsilon)

    With `loss="squared_epsilon_insensitive"` the maximum is squared. P is minimised with C_i = C * sample_weight_i.
    Training ends with the status "converged" only if the relative duality gap over all rows is proved to be at most
    `tol`. The bias is penalised, as in LIBLINEAR: if the targets are far from 0, subtract their mean, or choose a
    larger `intercept_scaling`.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBLINEAR and scikit-learn.
    epsilon : float, default=0.0
        The error that costs nothing, in units of the targets. With 0 the losses are the absolute and the squared error.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"
    solver : {"auto", "newton", "cutting-plane"}, default="auto"
        "auto" is Newton's method, for some thousands of features at most. Cutting planes, for the first loss only, take
        any number of features, and ten times as many reads of the data.
    tol, intercept_scaling, memory, resident_rows, n_jobs, client, checkpoint, random_state : as in LinearSVC
    max_passes, max_seconds, fit_intercept, max_iter, verbose, dual : as in LinearSVC
    feature_map, rank, kernel, gamma, degree, coef0 : as in LinearSVC

    Attributes
    ----------
    coef_ : ndarray of shape (d,), float64
        The weights. On a scaled dataset they belong to scaled rows; predictions scale raw rows themselves.
    intercept_ : ndarray of shape (1,), float64
    n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

    References
    ----------
    Smola & Schoelkopf (2004), A tutorial on support vector regression, Statistics and Computing 14.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import LinearSVR
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0
    >>> model = LinearSVR(C=10.0).fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.99
    ('converged', True, True)
    """

    C: float = 1.0
    _: KW_ONLY
    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"
    solver: str = "auto"
    tol: float = 1e-3
    intercept_scaling: float = 1.0
    memory: str | int | None = None
    resident_rows: int | str | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    random_state: int | None = 0
    fit_intercept: bool = True
    max_iter: int = -1
    verbose: int = 0
    dual: bool | str = "auto"
    feature_map: str | None = None
    rank: int = 300
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0

    def _name_options(self) -> dict[str, Any]:
        own = self._list_own_options()
        own.pop("epsilon", None)  # cutting planes have an option of this name, which is their stop
        loss = None if self.loss == "epsilon_insensitive" else self.loss
        return {"task": REGRESS.name, "options": own, "loss": loss, "epsilon": self.epsilon}

    def _shape_coef(self, coef: F64) -> F64:
        return coef
