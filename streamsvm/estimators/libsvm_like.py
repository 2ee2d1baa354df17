"""The base classes of kernel estimators.

As in scikit-learn, `SVC` and `SVR` accept callable and precomputed kernels, negative weights, and C=inf.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _num_samples, check_is_fitted

from streamsvm.data.sources.arrays import refuse_unsuitable
from streamsvm.estimators.base import BaseSVM, KernelParameters, SolverParameters, show_only
from streamsvm.estimators.inputs import is_dask, is_dataset, read_weights
from streamsvm.estimators.tasks import BaseSVC
from streamsvm.kernels import precomputed
from streamsvm.kernels.kernel import combine_rows
from streamsvm.kernels.stored_parts import read_n_rows
from streamsvm.models.model import N_SUPPORT, KernelModel, Model
from streamsvm.numeric.rows import F64, I64, CsrRows
from streamsvm.options import INFINITE_COST, TrainOptions
from streamsvm.problems.registry import find_entry
from streamsvm.runs.results import DONE, Result
from streamsvm.solvers.options import SMALL_ROWS, OptionSet
from streamsvm.solvers.registry import AUTO, SOLVERS, name_solvers
from streamsvm.system.errors import InputError, MemoryBudgetError
from streamsvm.system.machine import default_budget_bytes, format_bytes, resident_bytes


class KernelSVM(KernelParameters, BaseSVM):  # type: ignore[misc]
    """The base class of estimators whose model is a sum of kernels.

    Attributes
    ----------
    support_vectors_ : ndarray or sparse array of shape (m, d), float32, or float64 for up to 1,024 rows in memory
        For a scaled dataset, they are scaled rows.
    support_, n_support_ : ndarray of shape (m,), ndarray of shape (1,), int64
        The row numbers of the support vectors (for a dataset, in its order), and the number of support vectors.
    dual_coef_ : ndarray of shape (1, m), float64, or a sparse array if the rows are sparse
        The coefficients of the support vectors.
    intercept_ : ndarray of shape (1,), float64
    coef_ : ndarray of shape (1, d), float64, or a sparse array if the rows are sparse
        Only for kernel="linear".
    """

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None, eval_set: Any = None) -> Self:
        """Train. Raises InputError for a solver of linear models, which have no support vectors."""
        able = list(dict.fromkeys(method.name for method in SOLVERS if len(method.kernels) > 1))
        name = self._name_solver()
        if name in {AUTO, *name_solvers()}.difference(able):
            raise InputError(
                f"solver {name!r}: {type(self).__name__} trains sums of kernels; choose from {', '.join(able)}"
            )
        return super()._fit(X, y, sample_weight, qid, eval_set)

    def _choose_dtype(self, n_rows: int) -> type[np.float32 | np.float64]:
        """Return float64 if SMO solves this number of rows in float64; otherwise float32, as in datasets."""
        is_plain = self._name_solver() in (AUTO, "smo") and self.resident_rows is None
        is_plain = is_plain and not {"selection", "inner", "working_rows"} & self._list_solver_options().keys()
        return np.float64 if is_plain and n_rows <= SMALL_ROWS else np.float32

    def _set_model(self, model: KernelModel, label_dtype: Any = None) -> None:
        super()._set_model(model, label_dtype)
        X = model.support_vectors
        coef = np.atleast_2d(model.dual_coef)
        if isinstance(X, CsrRows):
            parts = show_only(X.data), show_only(X.indices), show_only(X.indptr)
            self.support_vectors_ = csr_array(parts, X.shape)
            self.dual_coef_ = csr_array(coef)
            self.dual_coef_.data.flags.writeable = False
        else:
            self.support_vectors_, self.dual_coef_ = show_only(X), show_only(coef)
        self._gamma = model.kernel.gamma
        self._set_known(support_=model.support, n_support_=count_support(model))

    @property
    def coef_(self) -> Any:
        """The weights for kernel="linear", (1, d), (K, d) or (pairs, d), read-only. Computed on access."""
        check_is_fitted(self)
        model = self.model_ if self.model_.n_support is None else self.model_.list_pairs()
        if model.kernel.name != "linear":
            raise AttributeError("coef_ exists for kernel='linear' only")
        coef = np.stack([combine_rows(model.support_vectors, each) for each in np.atleast_2d(model.dual_coef)])
        return csr_array(coef) if isinstance(model.support_vectors, CsrRows) else show_only(coef)


VALUE_BYTES = 8  # the size of a kernel value that a function returns
TERMINATED = "Solver terminated early (max_iter={}).  Consider pre-processing your data with StandardScaler or "
TERMINATED += "MinMaxScaler."
NEAR_SHARE = 0.5  # multipliers must stay below this share of the cost


class LibsvmLike(SolverParameters, KernelSVM):  # type: ignore[misc]
    """The base class of `SVC` and `SVR`, which accept the same input as scikit-learn's.

    The kernel may be a function of two sets of rows, or "precomputed"; then the rows hold kernel values. Rows whose
    weights are not positive are left out. C may be infinite.

    Parameters
    ----------
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="rbf"
        x.z, exp(-gamma |x - z|^2), (gamma x.z + coef0)^degree, or tanh(gamma x.z + coef0), which is indefinite for some
        parameters and may then stall. "precomputed": row i holds its kernel values with all rows of `fit`. A callable
        returns such values, (n, m), for rows in memory; its models cannot be saved to files. Given values are not
        proved to be positive semidefinite, so there is no lower bound, and the status at the optimum is "stationary".
    solver : {"smo", "irwls"}, or object, default="smo"
        SMO (Platt 1998) or IRWLS (Pérez-Cruz et al. 2000) on active sets of rows. Objects with their options are
        streamsvm.SMO(selection="largest") and IRWLS.
    shrinking : bool, default=True
        Without effect: the solver chooses the rows that it looks at.
    cache_size : float, default=200
        Without effect: the cache of kernel columns gets a quarter of the spare memory (see `memory`).
    resident_rows : int, str or None, default=None
        The rows in memory, as a number or a share ("10%"). None is all rows if there are at most 16,384 of them or if
        they are long, otherwise a fifth of them, as far as memory allows.
    max_iter : int, default=-1
        The maximum number of SMO pair steps per problem, as in LIBSVM. At the limit, the status is "pair_limit" and a
        ConvergenceWarning is given. -1 is no limit. Where pair steps are not counted ("irwls", SMO(selection="platt"),
        "crammer_singer", and "interior-point"), it is another name for max_passes.

    Attributes
    ----------
    fit_status_, shape_fit_ : int, tuple
        0 if nothing cut the training short, otherwise 1; the shape of the rows.
    """

    kernel: Any = "rbf"
    solver: OptionSet | str = "smo"
    max_iter: int = -1
    shrinking: bool = True
    cache_size: float = 200

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None, eval_set: Any = None) -> Self:
        self._X_fit, self._least_weight = None, 1.0
        if callable(self.kernel):
            values = self._evaluate_all(X, y)
            self._X_fit, X = X, values
        if self.kernel == precomputed.NAME and issparse(X):
            raise TypeError("Sparse precomputed kernels are not supported.")
        if sample_weight is not None and not (is_dask(X) or is_dataset(X)):
            sample_weight = np.maximum(read_weights(sample_weight), 0.0)
            self._require_weights(sample_weight, y)
            self._least_weight = float(np.min(sample_weight[sample_weight > 0], initial=np.inf))
        return super()._fit(X, y, sample_weight, qid, eval_set)

    def _set_model(self, model: Any, label_dtype: Any = None) -> None:
        super()._set_model(model, label_dtype)
        self.fit_status_ = int(self.status_ not in (None, *DONE))
        n_rows = read_n_rows(model.info)
        shape = None if n_rows is None else (n_rows, model.n_features)
        self._set_known(shape_fit_=shape, class_weight_=get_class_factors(model))

    def _list_given(self, X: Any) -> Any:
        return X if self._X_fit is None else self._X_fit

    def _evaluate_all(self, X: Any, y: Any) -> Any:
        """Return the kernel matrix of rows in memory, (n, n). Raises MemoryBudgetError if it does not fit."""
        if is_dask(X) or is_dataset(X):
            raise InputError("a kernel that is a function takes rows in memory, not a dataset or Dask rows")
        if y is not None:
            check_consistent_length(X, y)
        n_rows, budget = _num_samples(X), self._options().memory_bytes or default_budget_bytes()
        needed = resident_bytes() + VALUE_BYTES * n_rows**2
        if needed > budget:
            raise MemoryBudgetError(
                f"{format_bytes(needed)} of memory are needed for the kernel values of all pairs of {n_rows:,} rows, "
                f"but the limit is {format_bytes(budget)}: raise it, or use a named kernel, which needs less memory"
            )
        return self._evaluate(X, X)

    def _evaluate(self, X: Any, others: Any) -> Any:
        """Return the kernel values of rows with other rows, (n, m).

        Raises InputError if the kernel returns another shape.
        """
        refuse_unsuitable(X=X)
        found, expected = self.kernel(X, others), (_num_samples(X), _num_samples(others))
        values = found.toarray() if issparse(found) else np.asarray(found)
        if values.shape != expected:
            raise InputError(
                f"the kernel returned an array of shape {values.shape}; {expected} is expected: X.shape[0] should be "
                "equal to X.shape[1] for the rows of fit"
            )
        return values

    def _require_weights(self, weight: F64, y: Any) -> None:
        """Raise InputError if no row has a positive weight or, for a classifier, if only rows of one class have one."""
        if weight.size and not np.any(weight != 0):  # NaN is refused later
            raise InputError("Invalid input - all samples have zero or negative weights.")
        labels = np.asarray(y) if isinstance(self, BaseSVC) else np.empty(0)
        left = labels[weight != 0] if labels.shape == weight.shape else labels[:0]
        if len(left) and np.all(left == left[0]):
            counted = ", so the specified nu is infeasible" if hasattr(self, "nu") else ""
            raise InputError(
                "Invalid input - all samples with positive weights belong to the same class; a classifier needs "
                f"rows of two classes{counted}."
            )

    def _score(self, X: Any, model: Any = None) -> Any:
        check_is_fitted(self)
        if callable(self.kernel) and self._X_fit is not None:
            X = self._evaluate(X, self._X_fit)
        elif self.model_.is_of_known_values and issparse(X):
            raise TypeError("Sparse precomputed kernels are not supported.")
        return super()._score(X, model)

    def save(self, path: Any) -> None:
        """Write the model to a file, without pickle; see `LinearSVC.save`.

        Raises
        ------
        InputError
            If the kernel is a function: a file holds no code, so the loaded model could not be used.
        """
        if callable(self.kernel):
            raise InputError(
                "a model whose kernel is a function cannot be saved, since loading a model runs no code; train with "
                "kernel='precomputed' on the values of the function to save a model that takes rows of such values"
            )
        super().save(path)

    def _counts_pairs(self) -> bool:
        """Return whether max_iter limits the pair steps of SMO, as in LIBSVM, rather than the reads."""
        own = self._list_solver_options()
        counted = own.get("inner", "smo") == "smo" and own.get("selection") != "platt"
        return self._name_solver() in (AUTO, "smo") and counted and getattr(self, "multi_class", "") != "crammer_singer"

    def _limit_passes(self) -> int | None:
        return self.max_passes if self._counts_pairs() else super()._limit_passes()

    def _list_own_options(self) -> dict[str, str]:
        is_limited = self._counts_pairs() and self.max_iter != -1
        own = super()._list_own_options()
        if is_limited and own.setdefault("max_pairs", str(self.max_iter)) != str(self.max_iter):
            raise InputError(f"max_iter={self.max_iter!r} and solver={self.solver!r}: set only one of the limits")
        return own

    def _count_steps(self, result: Result) -> Any:
        """Return the largest number of steps among the problems: SMO pair steps, or steps if pairs are not counted."""
        return int(max(self._count_each(result)))

    def _count_each(self, result: Result) -> list[int]:
        """Return the number of SMO pair steps of each problem, or of steps if pairs are not counted."""
        each = result.problems or [{"steps": result.steps, **result.history[-1]}]
        counted = "pairs" if self._counts_pairs() else "steps"
        return [problem.get(counted, problem["steps"]) for problem in each]

    def _describe_limit(self, result: Result) -> str:
        """Return the message. At a limit of pair steps, it starts with scikit-learn's text, which filters match."""
        if result.status != "pair_limit":
            return super()._describe_limit(result)
        return f"{TERMINATED.format(self._list_own_options()['max_pairs'])} {super()._describe_limit(result)}"

    def _name_options(self) -> dict[str, Any]:
        known = {"kernel": precomputed.NAME} if callable(self.kernel) else {}
        return {**super()._name_options(), **known}

    def _options(self) -> TrainOptions:
        options = super()._options()
        is_infinite = isinstance(self.C, Real) and np.inf == self.C and self._name_solver() != "interior-point"
        if find_entry(options.task).has_kind("classes"):  # the joint problem's steps lose digits at such costs
            return options
        return replace(options, C=INFINITE_COST) if is_infinite else options

    def _set_result(self, result: Result, y: Any) -> Self:
        if np.inf == self.C:
            self._require_no_errors(result.model)
        return super()._set_result(result, y)

    def _require_no_errors(self, model: Any) -> None:
        """Raise InputError if a multiplier is near the cost that replaces C=inf, which indicates an error of a row."""
        problem = model.info["problem"]
        costs = np.asarray(problem.get("class_costs", problem.get("row_cost")), np.float64)
        least = float(np.min(costs[costs > 0], initial=np.inf)) * self._least_weight
        largest = float(np.max(np.abs(model.dual_coef), initial=0.0))
        if largest >= NEAR_SHARE * least:
            no_errors = "separate the classes" if model.problem.has_classes else "come within epsilon of all targets"
            raise InputError(
                f"C is inf, but no function of this kernel seems to {no_errors}: a multiplier reaches {largest:.1e}, "
                f"and costs of {least:.0e} stand for infinity; choose a finite C"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == precomputed.NAME
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags


def get_class_factors(model: Model) -> F64 | None:
    """Return the factor of C of each class, (K,); None for a model without classes or known factors.

    Two classes, and a joint problem, have one cost per class. Problem k of K has the costs of the rest and of class k.
    A pair of classes has the costs of its second and of its first class; the pairs (0, 1), (0, 2), .. come first.
    """
    K, problem = len(model.classes), model.info.get("problem")
    if not model.problem.has_classes or model.problem.has_label_sets or not isinstance(problem, dict):
        return None
    try:
        costs = np.asarray(problem["class_costs"], np.float64) / float(model.info["C"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    if K > 2 and costs.shape == (2,):  # the costs are the same in all problems
        return np.full(K, costs[1])
    if isinstance(model, KernelModel) and model.n_support is not None and costs.shape == (K * (K - 1) // 2, 2):
        return np.append(costs[0, 1], costs[: K - 1, 0])
    return costs if costs.shape == (K,) else costs[:, 1] if costs.shape == (K, 2) else None


def count_support(model: KernelModel) -> I64 | None:
    """Return the number of support vectors of each class, (K,), or of all if there are no classes, (1,).

    The counts come from the model's file. Files of two classes, and files of earlier versions, lack the counts; for
    these, the class of a vector is the class for which its coefficient is positive. Return None if the vectors are not
    rows of the data, or if a vector has no positive coefficient.
    """
    if not (model.problem.has_classes and model.problem.needs_labels):
        return np.array([model.dual_coef.shape[-1]])
    if model.support is None or model.n_support is not None:
        return model.n_support
    counted, most = model.info.get(N_SUPPORT), model.dual_coef.shape[-1]
    if isinstance(counted, list) and len(counted) == len(model.classes) and all(n in range(most + 1) for n in counted):
        return np.array(counted, np.int64)
    coef = model.dual_coef if model.dual_coef.ndim > 1 else np.stack((-model.dual_coef, model.dual_coef))
    return np.bincount(np.argmax(coef, axis=0), minlength=len(coef)) if (coef.max(axis=0) > 0).all() else None
