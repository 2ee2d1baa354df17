"""Kernel estimators of bounded size, which learn from a stream of rows: `BudgetedSVC` and `BudgetedSVR`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamsvm import __version__
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.local import SerialEngine
from streamsvm.estimators.inputs import check_rows
from streamsvm.estimators.libsvm_like import KernelSVM
from streamsvm.estimators.tasks import BaseSVC, BaseSVR
from streamsvm.numeric.compilation import one_blas_thread
from streamsvm.runs.gamma_scale import resolve_gamma
from streamsvm.solvers.budgeted_sgd.setup import BudgetedSolver, make_stream
from streamsvm.solvers.budgeted_sgd.solver import State
from streamsvm.solvers.many.classes import join_models, share_options, view_classes
from streamsvm.solvers.options import BudgetedSGD, OptionSet
from streamsvm.system.errors import InputError
from streamsvm.system.interrupts import caught


class BudgetedSVM(KernelSVM):  # type: ignore[misc]
    """The base class of kernel estimators of bounded size, which learn from a stream of rows.

    Parameters
    ----------
    budget : int, default=500
        The maximum number of support vectors, per class if there are classes.
    epochs : int, default=1
        The number of reads of all rows.
    expected_rows : int or None, default=None
        For partial_fit only: n in lambda = 1 / (n C). The learning rate falls over n rows and then starts again. None
        is the number of rows in the first call.
    solver : "budgeted-sgd", or object, default="budgeted-sgd"
        streamsvm.BudgetedSGD(merge=5, maintenance="projection") has further options: how many support vectors are
        merged into one when the budget is exceeded, another way to return to the budget, and the number R of models
        (replicas=R), with budget / R vectors each, that learn from parts of the rows on R threads or workers, and whose
        average is the final model.
    """

    tol = 1e-3  # unused: the solver has no gap to compare with it
    resident_rows = None
    own_options = ("budget", "epochs")

    budget: int = BudgetedSGD.budget
    epochs: int = BudgetedSGD.epochs
    expected_rows: int | None = None
    solver: OptionSet | str = BudgetedSGD.name

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None, eval_set: Any = None) -> Self:
        """Train from the beginning, and end the stream of `partial_fit`."""
        self.__dict__.pop("_stream", None)
        return super()._fit(X, y, sample_weight, qid, eval_set)

    def _learn(self, chunk: ArrayDataset, y: Any) -> Self:
        """Learn from the first or next chunk of a stream, and set the fitted attributes."""
        stream = getattr(self, "_stream", None) or self._start_stream(chunk)
        with caught(), one_blas_thread():
            parts = zip(stream, self._view_problems(chunk), strict=True)
            self._stream = [(problem, problem.learn_chunk(view, state)) for (problem, state), view in parts]
        models = [problem.make_model(state, chunk.take) for problem, state in self._stream]
        model: Any = models[0] if len(models) == 1 else join_models(models, np.asarray(chunk.classes), [], chunk.take)
        settings, objective = self._stream[0][0].settings, sum(state.objective for _, state in self._stream)
        about: dict[str, Any] = {"solver": self._name_solver(), "task": self._options().task, "C": float(self.C)}
        about |= {"version": __version__, "status": "pass_limit", "objective": objective, "lower_bound": None}
        if "tube" in settings:  # `load` recreates the estimator from these settings
            about["problem"] = {name: settings[name] for name in ("loss", "tube")}
        self._set_model(replace(model, info=about), getattr(y, "dtype", None))
        return self

    def _start_stream(self, chunk: ArrayDataset) -> list[tuple[BudgetedSolver, State]]:
        """Return each problem with its initial state: one per class for more than two classes, otherwise one."""
        self._set_known(result_=None, history_=None, n_iter_=None, n_passes_=None)  # they belong to an earlier fit
        if self.class_weight == "balanced":
            raise InputError("class_weight 'balanced' needs all rows; for a stream, pass the weights by label")
        options, views = resolve_gamma(SerialEngine(chunk), self._options()), self._view_problems(chunk)
        each = [options] if len(views) == 1 else share_options(chunk, options)
        pairs = zip(views, each, strict=True)
        problems = [make_stream(view, own, expected_rows=self.expected_rows) for view, own in pairs]
        return [(problem, problem.start()) for problem in problems]

    def _view_problems(self, chunk: ArrayDataset) -> Sequence[Any]:
        """Return a view of the rows for each of more than two classes, or the rows themselves for a single problem."""
        return view_classes(chunk) if chunk.classes is not None and len(chunk.classes) > 2 else [chunk]

    def _list_own_options(self) -> dict[str, str]:
        own = super()._list_own_options()
        if "bias" in own:
            raise InputError(f"solver={self.solver!r}: for a bias, set fit_intercept of {type(self).__name__}")
        return {**own, "bias": "free" if self.fit_intercept else "none"}


class BudgetedSVC(BudgetedSVM, BaseSVC):
    """Kernel classifier with at most `budget` support vectors per class, trained on a shuffled stream of the rows.

        P(w, b) = 1/2 |w|^2 + C sum_i c_i max(0, 1 - y_i (w.phi(x_i) + b)),   k(x, z) = phi(x).phi(z)

    P is reduced by stochastic gradient descent with c_i = class_weight[y_i] * sample_weight_i. Memory and the time per
    row do not grow with the number of rows, so the estimator suits data for which the support vectors of an exact SVM
    would not fit in memory. More than two classes are trained one against the rest, each with its own support vectors,
    from the same rows in the same order.

    Nothing is proved. status_ is "pass_limit" after the requested epochs, lower_bound_ and gap_ are None, and
    objective_ is an estimate from up to 1,024 rows.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    fit_intercept : bool, default=False
        Whether there is a free bias b; otherwise b = 0.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, m) or (K, m), float64, or a sparse array if the rows are sparse
        The coefficients of the support vectors; for K > 2 classes, each support vector belongs to one class.
    intercept_ : ndarray of shape (1,) or (K,), float64
    coef_ : ndarray of shape (1, d) or (K, d), float64
        Only for kernel="linear".

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
    fit_intercept: bool = False

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one chunk of a stream of rows, in a random order set by the seed.

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
        return self._learn(check_rows(self, X, y, sample_weight, classes=known, reset=first), y)


class BudgetedSVR(BudgetedSVM, BaseSVR):
    """Kernel regression with at most `budget` support vectors, trained on a shuffled stream of the rows.

        P(w, b) = 1/2 |w|^2 + C sum_i c_i max(0, |y_i - (w.phi(x_i) + b)| - epsilon),   k(x, z) = phi(x).phi(z)

    With loss="squared_epsilon_insensitive" the maximum is squared. P is reduced by stochastic gradient descent with c_i
    = sample_weight_i. No step moves a prediction past the edge of the row's tube. Memory and the time per row do not
    grow with the number of rows.

    Nothing is proved. status_ is "pass_limit" after the requested epochs, lower_bound_ and gap_ are None, and
    objective_ is an estimate from up to 1,024 rows.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    epsilon : float, default=0.1
        The error that costs nothing, in units of the targets.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"
        The squared loss with epsilon=0 is that of kernel ridge regression with the penalty 1 / (2 C).
    fit_intercept : bool, default=True
        Whether there is a free bias b, which starts at the median target of a sample; otherwise b = 0.

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
    epsilon: float = 0.1
    fit_intercept: bool = True
    loss: str = "epsilon_insensitive"

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from one chunk of a stream of rows, in a random order set by the seed.

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
        return self._learn(check_rows(self, X, y, sample_weight, reset=not hasattr(self, "_stream")), y)
