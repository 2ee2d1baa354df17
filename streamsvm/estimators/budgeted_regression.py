"""`BudgetedSVR`, a kernel regression of bounded size."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.budgeted_base import BudgetedSVM
from streamsvm.estimators.inputs import check_target_chunk
from streamsvm.estimators.regression import BaseSVR
from streamsvm.problems.regression import REGRESS

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class BudgetedSVR(BudgetedSVM, BaseSVR):
    """Kernel regression with at most `budget` support vectors, trained on a shuffled stream of the rows.

        P(w, b) = 1/2 |w|^2 + C sum_i c_i max(0, |y_i - (w.phi(x_i) + b)| - epsilon),   k(x, z) = phi(x).phi(z)

    With loss="squared_epsilon_insensitive" the maximum is squared. P is reduced by stochastic gradient descent with
    c_i = sample_weight_i. No step takes a row beyond the edge of its tube. Memory and the time of a row do not grow
    with the number of rows.

    Nothing is proved. status_ is "pass_limit" after the epochs asked for, lower_bound_ and gap_ are None, and
    objective_ is an estimate from up to 1,024 rows.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    epsilon : float, default=0.1
        The error that costs nothing, in units of the targets.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"
        The squared loss, with epsilon 0, is that of kernel ridge regression with the penalty 1 / (2 C).
    budget : int, default=500
        The most support vectors.
    merge, maintenance, epochs, pack, replicas : as in BudgetedSVC
    kernel, gamma, degree, coef0 : as in SVC
        The maintenances "merge" and "gradient-merge" are for kernel="rbf" only.
    fit_intercept : bool, default=True
        Whether there is a free bias b, which begins at the median of the targets of a sample; otherwise b = 0.
    expected_rows : as in BudgetedSVC
    memory, n_jobs, client, checkpoint, max_passes, max_seconds, random_state : as in LinearSVC

    Attributes
    ----------
    support_vectors_, dual_coef_, intercept_, coef_, status_, objective_ and others : as in SVR

    References
    ----------
    Wang, Crammer & Vucetic (2012), Breaking the curse of kernelization, JMLR 13.
    Qaadan & Glasmachers (2018), Multi-merge budget maintenance for stochastic gradient descent SVM training.
    Kulis & Bartlett (2010), Implicit online learning, ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import BudgetedSVR
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0]) + 10
    >>> model = BudgetedSVR(C=10.0, budget=30).fit(X, y)
    >>> len(model.support_vectors_) <= 30, model.score(X, y) > 0.9
    (True, True)
    """

    C: float = 1.0
    _: KW_ONLY
    epsilon: float = 0.1
    budget: int = 500
    merge: int = 2
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    maintenance: str = "merge"
    epochs: int = 1
    pack: int = 64
    replicas: int = 1
    fit_intercept: bool = True
    expected_rows: int | None = None
    memory: str | int | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    random_state: int | None = 0
    loss: str = "epsilon_insensitive"

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn one chunk of a stream of rows, in an order drawn by the seed.

        The parameters, lambda = 1 / (expected_rows C), gamma="scale", and the unit in which b moves are fixed at the
        first call. After `fit` or `load`, a new stream begins.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        y : array-like of shape (n,)
            The targets.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        InputError
            A ValueError, for unsuitable data and parameters.
        """
        return self._learn(check_target_chunk(self, X, y, sample_weight, reset=not hasattr(self, "_stream")), y)

    def _name_options(self) -> dict[str, Any]:
        loss = None if self.loss == "epsilon_insensitive" else self.loss
        return {**super()._name_options(), "task": REGRESS.name, "loss": loss, "epsilon": self.epsilon}
