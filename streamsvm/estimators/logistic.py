"""Logistic regression: two classes, multinomial, or one class against the rest."""

from __future__ import annotations

import warnings
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows.source import RowSource
from streamsvm.estimators.inputs import DEPRECATED
from streamsvm.estimators.linear import LinearClassifier
from streamsvm.estimators.tasks import find_log_probabilities
from streamsvm.models.calibration import find_calibration
from streamsvm.models.evaluate import find_probabilities
from streamsvm.models.model import Model
from streamsvm.numeric.rows import F64
from streamsvm.options import INFINITE_COST, TrainOptions
from streamsvm.problems.registry import MULTINOMIAL, find_kinds
from streamsvm.runs.results import Result
from streamsvm.solvers.registry import AUTO, find_first
from streamsvm.system.errors import InputError, require_known

SKLEARN_SOLVERS = {  # with the texts of their warnings at max_iter, which filters match
    "lbfgs": "lbfgs failed to converge after {} iteration(s).",
    "liblinear": "Liblinear failed to converge, increase the number of iterations.",
    "newton-cg": "newton-cg failed to converge. Increase the number of iterations.",
    "newton-cholesky": "Newton solver did not converge after {} iterations.",
    "sag": "The max_iter was reached which means the coef_ did not converge.",
    "saga": "The max_iter was reached which means the coef_ did not converge.",
}


class LogisticRegression(LinearClassifier):
    """Logistic regression with a certificate, on data of any size; multinomial for more than two classes.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i log(1 + exp(-y_i (w.x_i + b)))

    for two classes, and for K > 2 classes, with a weight vector w_k and a bias b_k for each of them,

        P(W, b) = 1/2 sum_k (|w_k|^2 + (b_k / intercept_scaling)^2) + sum_i C_i (log sum_k exp(f_ik) - f_iy)

    where f_ik = w_k.x_i + b_k, and f_iy is the score of the row's own class. P is minimised with C_i = C *
    class_weight[y_i] * sample_weight_i. This is the objective of scikit-learn, except that the bias is penalised, as in
    LIBLINEAR; a larger `intercept_scaling` penalises it less. Training ends with the status "converged" only if the
    relative duality gap over all rows is proved to be at most `tol`.

    Parameters
    ----------
    multi_class : {"auto", "ovr", "multinomial"}, default="auto"
        How K > 2 classes are trained: as one multinomial problem, or as K problems of one class against the rest, in
        the same reads of the data. With "ovr", the problem of class k multiplies C by class_weight[k] for its own rows
        only, and the probabilities of the K problems are divided by their sum. "auto" is "multinomial", or "ovr" where
        there is no multinomial solver: for the penalty "l1", and for solver="newton" or "liblinear". Each label of a
        set of labels is a problem of two classes.
    resident_rows : int, str or None, default=None
        The rows that the solver keeps in memory, as a number or a share ("10%"). None is, for the multinomial problem,
        all rows that fit into memory; for two classes and for "ovr", it is a sample of a tenth of the rows, or all rows
        of small data, if the memory allows.
    penalty : {"l2", "l1", None}, default="l2"
        As in LinearSVC; None is no penalty, as C=inf is.
    l1_ratio : {0.0, 1.0}, default=0.0
        1 is the penalty "l1". A mixture of both penalties is refused, since no solver has it yet.
    C : float, default=1.0
        The cost of a row, as in scikit-learn. inf stands for no penalty, and is trained as the cost 1e10.
    solver : {"auto", "newton", "cutting-plane"}, or object, default="auto"
        "auto" is Newton's method for two classes and for "ovr", whose passes sum the gradient and the curvature over
        all rows, and cutting planes for the multinomial problem. "cutting-plane" requires more than two classes, and is
        refused for two classes and for "ovr". The names of scikit-learn's solvers, such as "lbfgs", mean "auto".
        streamsvm.Newton and CuttingPlane have the options.
    dual : bool, default=False
        Without effect, since the solver finds the optimum, and proves it with both the primal and the dual problem.
    warm_start : bool, default=False
        Without effect: the solvers start from a sample of the rows, in memory.

    Attributes
    ----------
    n_iter_ : ndarray of shape (1,), int64
        The number of steps of the solver; with several problems, the largest number among them.

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

    penalty: str | None = field(default="l2", kw_only=False)  # type: ignore[assignment]
    l1_ratio: float | None = 0.0
    multi_class: str = "auto"
    dual: bool = False
    warm_start: bool = False

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, (n, K) float64; a Dask array for Dask rows. X: as in `predict`.

        For two classes, and for each of L labels, it is 1 / (1 + exp(-f)). For more classes it is the softmax of the
        scores or, one against the rest, the probabilities of the K problems are divided by their sum.
        """
        check_is_fitted(self)
        return self._map_scores(X, partial(_find_probabilities, self.model_))

    def _name_solver(self) -> str:
        name = super()._name_solver()
        return AUTO if name in SKLEARN_SOLVERS else name

    def _name_penalty(self) -> Any:
        """Return the name of the penalty. scikit-learn's l1_ratio takes the place of its parameter `penalty`."""
        if self.penalty == "elasticnet" and self.l1_ratio is None:
            raise InputError("penalty is 'elasticnet', but l1_ratio is None; choose l1_ratio=0 (l2) or l1_ratio=1 (l1)")
        if self.l1_ratio not in (None, 0, 1):
            raise InputError(
                f"l1_ratio is {self.l1_ratio!r:.40}: no solver mixes both penalties; choose 0 (l2) or 1 (l1)"
            )
        if self.l1_ratio == 1 and not self._has_no_penalty():
            return "l1"
        return "l2" if self.penalty in (None, DEPRECATED, "elasticnet") else self.penalty

    def _count_steps(self, result: Result) -> Any:
        return np.array([super()._count_steps(result)])

    def _describe_limit(self, result: Result) -> str:
        """Return the message. At a limit of passes, it starts with scikit-learn's text for the solver, if any."""
        text = SKLEARN_SOLVERS.get(super()._name_solver()) if result.status == "pass_limit" else None
        told = super()._describe_limit(result)
        return told if text is None else f"{text.format(result.passes)} {told}"

    def _has_no_penalty(self) -> bool:
        return self.penalty is None or bool(np.inf == self.C)

    def _name_options(self) -> dict[str, Any]:
        cost = {"C": INFINITE_COST} if self._has_no_penalty() else {}
        if self.penalty is None and self.C not in (1.0, np.inf):
            told = f"Setting penalty=None will ignore the C and l1_ratio parameters (C={self.C!r})"
            warnings.warn(told, stacklevel=6)
        known = {**super()._name_options(), **cost, "penalty": self._name_penalty(), "multi_class": None}
        known["loss"] = None if self._is_multinomial(known["penalty"]) else "logistic"
        return known if known["loss"] else {**known, "task": MULTINOMIAL}

    def _is_multinomial(self, penalty: str) -> bool:
        """Return whether more than two classes are one problem. "auto" asks for it if there is a solver for it."""
        require_known("multi_class", self.multi_class, (AUTO, "ovr", MULTINOMIAL))
        if self.multi_class != AUTO:
            return self.multi_class == MULTINOMIAL
        name, asked = self._name_solver(), super()._name_solver()
        is_able = name == AUTO or find_first(name, find_kinds(MULTINOMIAL)) is not None
        return is_able and penalty == "l2" and asked != "liblinear"

    def _train_rows(self, source: RowSource, options: TrainOptions, *others: Any) -> Result:
        """Return the result of a training on rows. With "auto", each label of a set is a problem of its own."""
        if source.has_label_sets and self.multi_class == AUTO:
            options = replace(options, task=TrainOptions.task, loss="logistic")
        return super()._train_rows(source, options, *others)


def _find_probabilities(model: Model, scores: F64) -> F64:
    """Return the probability of each class or label, (n, K), from the model's calibration or from its loss."""
    is_shared = model.loss == "logistic" and scores.ndim > 1 and not model.problem.has_label_sets
    if not is_shared or find_calibration(model.info) is not None:
        return find_probabilities(model, scores)
    return np.asarray(np.exp(find_log_probabilities(model, scores)))
