"""`BudgetedSVC`, a kernel classifier of bounded size."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from streamsvm.errors import InputError
from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.budgeted_base import BudgetedSVM
from streamsvm.estimators.inputs import check_chunk
from streamsvm.estimators.kernel_base import KernelSVC
from streamsvm.options import ClassWeight

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class BudgetedSVC(BudgetedSVM, KernelSVC):
    """Kernel classifier with at most `budget` support vectors a class, trained on a shuffled stream of the rows.

        P(w, b) = 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    P is reduced by stochastic gradient descent with c_i = class_weight[y_i] * sample_weight_i. Memory and the time of a
    row do not grow with the number of rows, so that the estimator suits data for which the support vectors of an exact
    SVM would not fit. More than two classes are trained one against the rest, each with its own support vectors, from
    the same rows in the same order.

    Nothing is proved. status_ is "pass_limit" after the epochs asked for, lower_bound_ and gap_ are None, and
    objective_ is an estimate from up to 1,024 rows.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    budget : int, default=500
        The most support vectors of a class.
    merge : int, default=2
        The number of support vectors that become one when the budget is exceeded. More are faster and less exact.
    kernel, gamma, degree, coef0 : as in SVC
        The maintenances "merge" and "gradient-merge" are for kernel="rbf" only.
    maintenance : {"merge", "gradient-merge", "projection", "removal"}, default="merge"
        How a model returns to its budget.
    epochs : int, default=1
        The reads of all rows.
    pack : int, default=64
        The rows whose kernel values are computed at once. It changes the time only.
    replicas : int, default=1
        R models with budget / R vectors each learn shares of the rows on as many threads or workers. The model is their
        average.
    fit_intercept : bool, default=False
        Whether there is a free bias b; otherwise b = 0.
    expected_rows : int or None, default=None
        For partial_fit only: n of lambda = 1 / (n C). The rate of learning falls over n rows and then begins anew. None
        is the rows of the first call.
    class_weight, memory, n_jobs, client, checkpoint, max_passes, max_seconds, random_state : as in LinearSVC

    Attributes
    ----------
    support_vectors_, dual_coef_, intercept_, coef_, classes_, status_, objective_ and others : as in SVC

    References
    ----------
    Wang, Crammer & Vucetic (2012), Breaking the curse of kernelization, JMLR 13.
    Qaadan & Glasmachers (2018), Multi-merge budget maintenance for stochastic gradient descent SVM training.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import BudgetedSVC
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> y = np.sum(X**2, axis=1) > 1.5
    >>> model = BudgetedSVC(budget=50).fit(X, y)
    >>> len(model.support_vectors_) <= 50, model.score(X, y) > 0.9
    (True, True)
    """

    C: float = 1.0
    _: KW_ONLY
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
    fit_intercept: bool = False
    expected_rows: int | None = None
    class_weight: ClassWeight = None
    memory: str | int | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    random_state: int | None = 0

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn one chunk of a stream of rows, in an order drawn by the seed.

        The parameters, lambda = 1 / (expected_rows C), and gamma="scale" are fixed at the first call. After `fit` or
        `load`, a new stream begins.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        y : array-like of shape (n,)
        classes : array-like of shape (K,), optional
            All labels of the stream, at the first call.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        InputError
            A ValueError, for unsuitable data and parameters.
        """
        first = not hasattr(self, "_stream")
        if first and classes is None and not hasattr(self, "classes_"):
            raise InputError("classes must be passed on the first call to partial_fit")
        known = classes if first and classes is not None else self.classes_
        return self._learn(check_chunk(self, X, y, known, sample_weight, reset=first), y)
