"""`LogisticRegression`, a linear classifier that tells probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, log_expit

from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.classifier import BaseSVC, find_logs
from streamsvm.estimators.linear_base import BaseLinear
from streamsvm.models.model import Model
from streamsvm.models.probabilities import find_probabilities
from streamsvm.numeric.calibration import find_calibration
from streamsvm.options import ClassWeight

if TYPE_CHECKING:
    from distributed import Client


Find = Callable[[Any], Any]


@with_parameters
class LogisticRegression(BaseLinear, BaseSVC):
    """Logistic regression with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i log(1 + exp(-y_i (w.x_i + b)))

    P is minimised with C_i = C * class_weight[y_i] * sample_weight_i, by Newton's method, whose passes sum up the
    gradient and the curvature of all rows. Training ends with the status "converged" only if the relative duality gap
    over all rows is proved to be at most `tol`. The bias is penalised, as in LIBLINEAR; a larger `intercept_scaling`
    penalises it less. K > 2 classes are K such problems, one against the rest, solved in the same reads of the data.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in scikit-learn.
    tol : float, default=1e-3
        The relative duality gap, (P - D) / P.
    class_weight : dict, "balanced" or None, default=None
        Factors of C by label, as in LinearSVC.
    intercept_scaling : float, default=1.0
        The scale of the penalised bias.
    memory : str, int or None, default=None
        The limit of the resident memory of the whole process, in bytes or as text ("2GB"); None is half of the
        machine's memory.
    resident_rows : int, str or None, default=None
        The rows of the sample that the method begins with, as a number or a share ("10%"); None is a tenth of the rows,
        or all rows of small data, if the memory allows.
    n_jobs : int or None, default=None
        The number of threads; None and -1 are all cores.
    client : distributed.Client or None, default=None
        The Dask cluster whose workers read the data.
    checkpoint : path or None, default=None
        The folder of the run. Training goes on from the checkpoint there, which Ctrl-C leaves.
    max_passes : int or None, default=None
        The most reads of all rows, after which the status is "pass_limit" and a ConvergenceWarning is given.
    max_seconds : float or None, default=None
        The most seconds of training, after which the status is "time_limit" and a ConvergenceWarning is given.
    random_state : int or None, default=0
        The seed of the sample.
    fit_intercept, max_iter, verbose, penalty, dual : as in LinearSVC
    feature_map, rank, kernel, gamma, degree, coef0 : as in LinearSVC

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (K, d), float64
    intercept_ : ndarray of shape (1,) or (K,), float64
    classes_ : ndarray of shape (2,) or (K,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        Only if the rows had names of columns.
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_, history_, result_, model_
        The certificate and the run, as in LinearSVC.

    References
    ----------
    Lin, Weng & Keerthi (2008), Trust region Newton method for large-scale logistic regression, JMLR 9.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    >>> model = LogisticRegression(C=1.0).fit(X, y)
    >>> model.status_, model.predict_proba(X).shape, model.score(X, y) > 0.9
    ('converged', (200, 2), True)
    """

    solver = "newton"

    C: float = 1.0
    _: KW_ONLY
    tol: float = 1e-3
    class_weight: ClassWeight = None
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
    penalty: str = "l2"
    dual: bool = False
    feature_map: str | None = None
    rank: int = 300
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, (n, K).

        For two classes, and for each of L labels, it is 1 / (1 + exp(-f)); for more classes the probabilities of the K
        problems are divided by their sum.

        Parameters
        ----------
        X : as in `decision_function`

        Returns
        -------
        ndarray or Dask array of shape (n, K), float64
        """
        of_loss = expit if self._has_label_sets() else _find_probabilities
        return self._map_scores(X, self._choose(of_loss, find_probabilities))

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of the probability of each class, (n, K). X: as in `decision_function`."""
        of_loss = log_expit if self._has_label_sets() else _find_log_probabilities
        return self._map_scores(X, self._choose(of_loss, find_logs))

    def _choose(self, of_loss: Find, of_model: Callable[[Model, Any], Any]) -> Find:
        """Return how probabilities are found: by the loss, or by the calibration that the command line has given."""
        return of_loss if find_calibration(self.model_.info) is None else partial(of_model, self.model_)

    takes_label_sets = True

    def _name_options(self) -> dict[str, Any]:
        return {"options": self._list_own_options(), "loss": "logistic"}


def _find_probabilities(scores: Any) -> Any:
    if scores.ndim == 1:
        return np.column_stack((expit(-scores), expit(scores)))
    return np.exp(_find_log_probabilities(scores))


def _find_log_probabilities(scores: Any) -> Any:
    if scores.ndim == 1:
        return np.column_stack((log_expit(-scores), log_expit(scores)))
    logs = log_expit(scores)
    return logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
