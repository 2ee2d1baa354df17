"""The estimators of linear models, and their base class."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources.arrays import hold, refuse_unsuitable
from streamsvm.estimators.base import BaseSVM, SolverParameters
from streamsvm.estimators.inputs import is_dataset, read_queries, refuse_columns
from streamsvm.estimators.tasks import BaseOneClass, BaseSVC, BaseSVR
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import LinearModel, Model, RankModel
from streamsvm.numeric.rows import F64
from streamsvm.options import LARGEST_COST, TrainOptions, check_count, is_finite
from streamsvm.problems.ranking import RANK, ROC_AREA, evaluate_ranking
from streamsvm.problems.registry import PENALTIES, find_multi_class
from streamsvm.solvers.options import MAPS, FeatureOptions, KernelFeatures, OptionSet
from streamsvm.solvers.set_up import choose_solver, set_up
from streamsvm.system.errors import InputError

LINEAR_SOLVERS = "choose from auto, cutting-plane, newton, interior-point"
INTERCEPT_OPTION = "intercept_scaling"


class BaseLinear(SolverParameters, BaseSVM):  # type: ignore[misc]
    """The base class of linear estimators.

    Parameters
    ----------
    intercept_scaling : float, default=1.0
        The scale of the penalised bias; the interior-point method has none.
    max_iter : int, default=-1
        scikit-learn's name for max_passes; -1 is no limit. The smaller of the two limits holds.
    fit_intercept : bool, default=True
        Whether there is a bias b. The interior-point method always has one.
    penalty : {"l2", "l1"}, default="l2"
        1/2 |w|^2, or |w|_1, the sum of absolute weights, which leaves many weights at 0. "l1" requires a smooth loss.
        As in LIBLINEAR, the weight of the constant feature is penalised, too.
    dual : bool or "auto", default="auto"
        Without effect, since every solver finds the same optimum, and proves it with both the primal and the dual
        problem. As in scikit-learn, False is refused with losses that are not smooth.
    feature_map : object or None, default=None
        Learn from features that are computed from the rows in each pass and not stored:
        streamsvm.Nystroem(kernel="rbf", gamma=0.1, n_components=300), IncompleteCholesky or Eigenmap, whose features
        approximate a kernel, or PolynomialMap, all products of two features. The model takes raw rows, and coef_ has a
        weight for each feature. Grids reach the options of the map as feature_map__gamma.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (K, d), float64
        The weights. For a scaled dataset, they apply to scaled rows; predictions scale raw rows first.
    intercept_ : ndarray of shape (1,) or (K,), float64
    """

    penalty = "l2"
    own_options = (INTERCEPT_OPTION,)

    feature_map: OptionSet | None = None

    def _options(self) -> TrainOptions:
        """Return the parameters as TrainOptions. Raises InputError for a solver whose models have no weights."""
        options = super()._options()
        if self.feature_map is None and len(choose_solver(options).kernels) > 1:
            raise InputError(f"solver {options.solver!r}: {type(self).__name__} trains linear models; {LINEAR_SOLVERS}")
        return options

    def _set_model(self, model: Any, label_dtype: Any = None) -> None:
        """Set the fitted attributes. Weights and bias are copies; changing them leaves the model unchanged."""
        super()._set_model(model, label_dtype)
        self.coef_ = np.atleast_2d(model.coef.copy()) if model.problem.has_classes else model.coef.copy()
        self.intercept_ = self.intercept_.copy()

    def _get_model(self) -> Any:
        return put_weights(self.model_, self.coef_, self.intercept_)

    def _name_map(self) -> FeatureOptions | None:
        found = self.feature_map
        if found is None:
            return None
        if getattr(found, "name", None) not in MAPS:
            raise InputError(f"feature_map is {found!r:.60}; an object such as streamsvm.Nystroem() is expected")
        rank = check_count("n_components", getattr(found, "n_components", FeatureOptions.rank), 1)
        return FeatureOptions(found.name, rank, self._read_seed())

    def _name_options(self) -> dict[str, Any]:
        """Return fields of TrainOptions; the kernel is that of the feature map."""
        kernel = self.feature_map.get_params() if isinstance(self.feature_map, KernelFeatures) else {}
        return {**super()._name_options(), **{name: kernel[name] for name in kernel if name != "n_components"}}

    def _name_penalty(self) -> Any:
        return self.penalty

    def _refuse_penalty(self) -> None:
        """Raise InputError for an unknown penalty, or one that is incompatible with the loss or `dual`."""
        named = {name: getattr(self, name, None) for name in ("penalty", "loss", "dual")}
        named["penalty"] = penalty = self._name_penalty()
        is_smooth, dual = named["loss"] not in ("hinge", "epsilon_insensitive"), named["dual"]
        reason = ""
        if penalty not in PENALTIES:
            reason = f"the penalty is one of {', '.join(PENALTIES)}"
        elif penalty == "l1" and not is_smooth:
            reason = "the penalty l1 requires a smooth loss; choose squared_hinge, or LogisticRegression"
        elif penalty == "l1" and dual is True:
            reason = "the penalty l1 requires dual=False, or no dual"
        elif dual is False and not is_smooth:
            reason = "with dual=False, scikit-learn uses another loss; pass the name of that loss, or omit dual"
        if reason:
            given = ", ".join(f"{name}={value!r}" for name, value in named.items())
            raise InputError(f"Unsupported set of arguments: {given}: {reason}")

    def _list_own_options(self) -> dict[str, str]:
        """Return the solver's own options; without a bias, the constant feature is 0."""
        self._refuse_penalty()
        own = super()._list_own_options()
        if not self.fit_intercept:
            if self._name_solver() == "interior-point":
                raise InputError("fit_intercept=False: the interior-point method always has a bias; use another solver")
            if INTERCEPT_OPTION in self._list_solver_options():
                raise InputError(
                    f"fit_intercept=False and solver={self.solver!r}: omit {INTERCEPT_OPTION} in the solver"
                )
            return own | {INTERCEPT_OPTION: "0"}
        if not (is_finite(self.intercept_scaling) and 0 < self.intercept_scaling <= LARGEST_COST):
            raise InputError(
                f"intercept_scaling={self.intercept_scaling!r:.40}: a positive number up to {LARGEST_COST:.0e} is "
                "expected; for a model without a bias, set fit_intercept=False"
            )
        return own


def put_weights(model: Any, coef: Any, intercept: Any) -> Any:
    """Return the model with these weights and this bias, which users may change as in scikit-learn."""
    coef, intercept = _read_numbers("coef_", coef, model.coef), _read_numbers("intercept_", intercept, model.intercept)
    if np.array_equal(coef, model.coef) and np.array_equal(intercept, model.intercept):
        return model
    return replace(model, coef=coef, intercept=intercept if intercept.ndim else float(intercept))


def _read_numbers(name: str, given: Any, expected: Any) -> F64:
    """Return numbers set by a user in the expected shape. Raises InputError if that is impossible."""
    try:
        numbers = np.asarray(given.toarray() if issparse(given) else given, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {type(given).__name__}; an array of numbers is expected") from error
    shape = np.shape(expected)
    if numbers.shape not in (shape, (1, *shape)):
        raise InputError(f"{name} has the shape {numbers.shape}; that of the model is {shape}")
    return numbers.reshape(shape)


class BiasedLinear(BaseLinear):
    """The base class of linear estimators with costs, a bias and the parameters of scikit-learn for them."""

    C: float = 1.0
    solver: OptionSet | str = "auto"
    intercept_scaling: float = 1.0
    fit_intercept: bool = True
    dual: bool | str = "auto"
    max_iter: int = -1


class LinearClassifier(BiasedLinear, BaseSVC):
    """The base class of linear classifiers."""

    takes_label_sets = True

    def sparsify(self) -> Self:
        """Make `coef_` a sparse array, such as for the penalty "l1". Predictions and `save` stay the same."""
        check_is_fitted(self)
        self.coef_: Any = csr_array(self.coef_)
        return self

    def densify(self) -> Self:
        """Make `coef_` a NumPy array again, after `sparsify`."""
        check_is_fitted(self)
        self.coef_ = self.coef_.toarray() if issparse(self.coef_) else self.coef_
        return self


class LinearSVC(LinearClassifier):
    """Linear support-vector classifier with a certificate, on data of any size.

        P(w, b) = 1/2 (|w|^2 + (b / intercept_scaling)^2) + sum_i C_i max(0, 1 - y_i (w.x_i + b))

    With `loss="squared_hinge"` the maximum is squared. P is minimised with
    C_i = C * class_weight[y_i] * sample_weight_i. Training ends with the status "converged" only if the relative
    duality gap over all rows is proved to be at most `tol`.

    K > 2 classes are K such problems, one against the rest, solved in the same reads of the data; the slowest problem
    determines the number of reads. In the problem of class k, its rows have the weight class_weight[k] and the other
    rows the weight 1, as in LIBLINEAR. objective_ and lower_bound_ are sums over the problems.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        The squared hinge is the default of scikit-learn's LinearSVC. It is better if a class is rare, or if many
        classes are trained one against the rest, since w = 0 may then be the optimum of the hinge loss for a class.
    multi_class : {"ovr", "crammer_singer"}, default="ovr"
        How K > 2 classes are trained: one against the rest, or by one problem for all classes,

            P(W) = 1/2 sum_k |w_k|^2 + sum_i C_i max(0, max_{k != y_i} 1 + w_k.x_i - w_{y_i}.x_i)

        where x_i has a constant feature intercept_scaling, whose weight is the bias, and C_i uses the weight of the
        row's own class. This loss has no other form, so `loss` must be "hinge".
    solver : {"auto", "cutting-plane", "interior-point", "newton"}, or object, default="auto"
        "auto" is cutting planes for the hinge loss, and Newton's method for the squared hinge. Both penalise the bias,
        as LIBLINEAR does. The interior-point method has a free bias (no term in b), and reaches gaps of 1e-8 in 13 to
        36 iterations of two or three passes, for at most a few thousand features. Objects with the options of a solver
        are streamsvm.CuttingPlane(acceleration="line-search"), InteriorPoint and Newton.
    warm_start : bool, default=False
        Whether `fit` starts from the weights of the previous fit, if there is one with the same number of features.
        With more than two classes, each class starts from its own weights and new classes start as without warm_start;
        if a class is missing, all classes do. The certificate does not rely on these weights. Only cutting planes for
        the hinge loss use them. They have no effect with multi_class="crammer_singer", a feature map, or `checkpoint`,
        whose folder determines where a fit resumes.

    References
    ----------
    Joachims (2006), Training linear SVMs in linear time, KDD.
    Crammer & Singer (2001), On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2.
    Jung, O'Leary & Tits (2008), Adaptive constraint reduction for training support vector machines, ETNA 31.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import LinearSVC
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    >>> model = LinearSVC(C=1.0, tol=1e-3).fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    penalty: str = field(default="l2", kw_only=False)
    loss: str = field(default="hinge", kw_only=False)
    multi_class: str = "ovr"
    probability: bool | str = False
    warm_start: bool = False

    def _name_options(self) -> dict[str, Any]:
        task = find_multi_class(self.multi_class, ("ovr", "crammer_singer"))
        return {**super()._name_options(), "task": task, "multi_class": None}

    def _get_start(self, source: RowSource, options: TrainOptions) -> Model | None:
        """Return the model of the previous fit if this fit may start from it (solvers.start_from.StartedFrom)."""
        model, classes = getattr(self, "model_", None), source.classes
        if not (self.warm_start and self.checkpoint is None and isinstance(model, LinearModel)):
            return None
        if classes is None or model.features is not None or source.features:
            return None
        known = set(model.classes.tolist())
        if not known or not known <= set(classes.tolist()) or model.n_trained != source.n_features:
            return None
        fits = model.problem.has_label_sets == source.has_label_sets and set_up(source, options).n_starts > 0
        return model if fits else None


class LinearSVR(BiasedLinear, BaseSVR):
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
    solver : {"auto", "newton", "cutting-plane"}, or object, default="auto"
        "auto" is Newton's method, for at most a few thousand features. Cutting planes, for the first loss only, allow
        any number of features, but take ten times as many reads of the data.

    Attributes
    ----------
    coef_ : ndarray of shape (d,), float64
        The weights. For a scaled dataset, they apply to scaled rows; predictions scale raw rows first.
    intercept_ : ndarray of shape (1,), float64

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

    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"


class LinearOneClassSVM(BaseLinear, BaseOneClass):
    """Linear one-class support-vector machine with a certificate, on data of any size.

        min 1/2 |w|^2,   w = sum_i a_i x_i,   0 <= a_i <= sample_weight_i,   sum_i a_i = nu sum_i sample_weight_i

    The problem is that of `OneClassSVM(kernel="linear")`, and that of scikit-learn's SGDOneClassSVM, whose w and offset
    are ours divided by nu sum_i sample_weight_i. It is solved by cutting planes: no multipliers are kept, and one read
    of the data usually suffices. Rows with scores w.x - rho above 0 belong to the class, and the others are novel. The
    linear function separates the rows from the origin; with `feature_map`, it is a function of features that
    approximate a kernel.

    `objective_`, `lower_bound_` and the status are as in OneClassSVM. If the origin lies among the rows, w is 0 at the
    optimum, and the status is "stalled"; this does not happen with features of the kernel "rbf".

    Parameters
    ----------
    resident_rows : int, str or None, default=None
        The rows near the offset that stay in memory, as a number or a share ("10%"). None is a number with which one
        read usually suffices, as far as memory allows.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d), float64
    offset_ : float
        rho, so that `decision_function` is `score_samples` minus offset_.
    intercept_ : ndarray of shape (1,), float64
        -rho.

    References
    ----------
    Schoelkopf et al. (2001), Estimating the support of a high-dimensional distribution, Neural Computation 13.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import LinearOneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + [5.0, 3.0]
    >>> model = LinearOneClassSVM(nu=0.1).fit(X)
    >>> model.status_, model.gap_ <= 1e-3, model.predict([[5.0, 3.0], [0.0, 0.0]]).tolist()
    ('converged', True, [1, -1])
    """

    solver = "cutting-plane"
    fit_intercept = True
    intercept_scaling = 1.0


class RankSVM(BaseSVM):
    """Linear ranking with a certificate, on data of any size: rows of higher ranks get higher scores w.x.

        P(w) = 1/2 |w|^2 + K sum over pairs v_i v_j max(0, 1 - (w.x_i - w.x_j)),    K = C sum v / sum over pairs v_i v_j

    A pair has rows i and j with y_i > y_j, which belong to the same query if there are query ids; v are the sample
    weights. With query ids, all rows of a query have the same weight, which is the weight of its pairs. C is the cost
    of a row, as in LinearSVC; the paper's C is n C. There may be any number of ranks: pairs are counted in O(n log n).
    For two ranks, the loss in P bounds 1 minus the area under the ROC curve, up to a factor. Training ends with the
    status "converged" only if the relative duality gap over all pairs is proved to be at most `tol`. Training takes
    about 130 bytes of memory per row.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row.
    task : {"rank", "roc-area"}, default="rank"
        "roc-area" is for two classes, which may be texts, without queries.
    tol : float, default=1e-3
        The relative duality gap, (P - D) / P, at which training ends.
    solver : {"auto", "cutting-plane"}, or object, default="auto"
        With CuttingPlane(acceleration="none"), cutting planes are chosen by Algorithm 2 of Joachims (2006) as
        published, otherwise by a line search. Its option epsilon is the tolerance of Algorithm 2, which replaces `tol`:
        training stops when the worst cut is violated by at most epsilon, as a mean loss.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d), float64

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

    class_weight = None
    resident_rows = None

    C: float = 1.0
    task: str = "rank"
    tol: float = 1e-3
    solver: OptionSet | str = "auto"

    def fit(  # type: ignore[override]
        self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on ranked rows.

        Parameters
        ----------
        X : as in `LinearSVC.fit`
        y : array-like of shape (n,), optional
            The ranks, higher for rows that should come first; None with a dataset, which has its own.
        qid : array-like of shape (n,), optional
            The query of each row, as whole numbers or texts. The rows of a query must be contiguous.
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
        """Return the share of pairs in the right order; ties count half.

        With query ids, only pairs within a query count. Without pairs the score is 1. X, y, qid: as in `fit`.
        """
        check_is_fitted(self)
        if is_dataset(X):
            refuse_columns(y, qid)
            swapped = evaluate(self._get_model(), X)["swapped_pairs"]
        else:
            y, qid = hold(y), hold(qid)
            refuse_unsuitable(y=y, qid=qid)
            scores, labels = np.asarray(self.decision_function(X)), np.unique(np.asarray(y), return_inverse=True)[1]
            ids = None if qid is None else read_queries(qid)
            swapped = evaluate_ranking(scores, labels.astype(np.float64), ids)["swapped_pairs"]
        return 1.0 if swapped is None else 1.0 - float(swapped)

    def _set_model(self, model: RankModel, label_dtype: Any = None) -> None:
        super()._set_model(model, label_dtype)
        del self.intercept_
        self.coef_ = model.coef[None, :].copy()

    def _get_model(self) -> Any:
        return put_weights(self.model_, self.coef_, self.model_.intercept)
