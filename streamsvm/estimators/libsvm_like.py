"""What `SVC` and `SVR` take because scikit-learn's do: kernels that are functions or known, weights below 0, C=inf."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.pieces import refuse_unsuitable
from streamsvm.errors import InputError, MemoryBudgetError
from streamsvm.estimators.classifier import BaseSVC
from streamsvm.estimators.inputs import is_dask, is_dataset, is_sparse
from streamsvm.estimators.kernel_base import KernelSVM
from streamsvm.estimators.recalled import find_class_factors
from streamsvm.machine import default_budget_bytes, format_bytes, resident_bytes
from streamsvm.methods.registry import AUTO
from streamsvm.numeric import known_values
from streamsvm.numeric.rows import F64
from streamsvm.numeric.saved_parts import read_n_rows
from streamsvm.options import TrainOptions
from streamsvm.problems.registry import find_entry
from streamsvm.training.result import Result
from streamsvm.training.statuses import DONE

# C=inf asks for no errors at all. It is trained with this cost, since multipliers that stay below the cost are those of
# any larger cost: the lower bound holds for C=inf as well, and P - D bounds what is left of errors times the cost.
INFINITE_COST = 1e10
VALUE_BYTES = 8  # of a kernel value that a function returns
TERMINATED = "Solver terminated early (max_iter={}).  Consider pre-processing your data with StandardScaler or "
TERMINATED += "MinMaxScaler."
NEAR_SHARE = 0.5  # of the cost, which multipliers have to stay below


class LibsvmLike(KernelSVM):  # type: ignore[misc]
    """The base class of `SVC` and `SVR`, which take what scikit-learn's take.

    The kernel may be a function of two sets of rows, or be "precomputed", and then rows are rows of kernel values. Rows
    whose weights are not positive are left out. C may be infinite.
    """

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None) -> Self:
        self._X_fit, self._least_weight = None, 1.0
        refuse_unsuitable(sample_weight=sample_weight)
        if callable(self.kernel):
            values = self._evaluate_all(X, y)
            self._X_fit, X = X, values
        if self.kernel == known_values.NAME and is_sparse(X):
            raise TypeError("Sparse precomputed kernels are not supported.")
        if sample_weight is not None and not (is_dask(X) or is_dataset(X)):
            try:
                sample_weight = np.maximum(np.asarray(sample_weight, np.float64), 0.0)
            except OverflowError as error:
                raise InputError(f"sample_weight: a weight is too large for float64: {error}") from error
            self._require_weights(sample_weight, y)
            self._least_weight = float(np.min(sample_weight[sample_weight > 0], initial=np.inf))
        return super()._fit(X, y, sample_weight, qid)

    def _take_model(self, model: Any, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        self.fit_status_ = int(model.info["status"] not in DONE)
        n_rows = read_n_rows(model.info)
        shape = None if n_rows is None else (n_rows, model.n_features)
        for name, value in {"shape_fit_": shape, "class_weight_": find_class_factors(model)}.items():
            self.__dict__.pop(name, None)
            if value is not None:
                setattr(self, name, value)

    def _list_given(self, X: Any) -> Any:
        return X if self._X_fit is None else self._X_fit

    def _evaluate_all(self, X: Any, y: Any) -> Any:
        """Return the kernel matrix of rows in memory, (n, n), if the memory has room for it."""
        if is_dask(X) or is_dataset(X):
            raise InputError("a kernel that is a function takes rows in memory, and no dataset or Dask rows")
        if y is not None:
            check_consistent_length(X, y)
        needed, budget = resident_bytes() + VALUE_BYTES * len(_list(X)) ** 2, self._options().memory_bytes
        if needed > (budget or default_budget_bytes()):
            raise MemoryBudgetError(
                f"{format_bytes(needed)} of memory are needed for the kernel values of {len(_list(X)):,} rows with one "
                f"another, the limit is {format_bytes(budget or default_budget_bytes())}: allow more, or use a kernel "
                "that has a name, whose values are not all in memory"
            )
        return self._evaluate(X, X)

    def _evaluate(self, X: Any, others: Any) -> Any:
        """Return the kernel values of rows with others, (n, m); InputError for values of another shape."""
        refuse_unsuitable(X=X)
        values, expected = np.asarray(self.kernel(X, others)), (len(_list(X)), len(_list(others)))
        if values.shape != expected:
            raise InputError(
                f"the kernel returned an array of shape {values.shape}; {expected} is expected: X.shape[0] should be "
                "equal to X.shape[1] for the rows of fit"
            )
        return values

    def _require_weights(self, weight: F64, y: Any) -> None:
        """Raise InputError if no row, or for a classifier no second class, has a positive weight."""
        if weight.size and not np.any(weight != 0):  # also where it is not a number, which is refused later
            raise InputError("Invalid input - all samples have zero or negative weights.")
        labels = np.asarray(y) if isinstance(self, BaseSVC) else np.empty(0)
        left = labels[weight != 0] if labels.shape == weight.shape else labels[:0]
        if len(left) and np.all(left == left[0]):
            told = ", so the specified nu is infeasible" if hasattr(self, "nu") else ""
            raise InputError(
                "Invalid input - all samples with positive weights belong to the same class; a classifier needs "
                f"two{told}."
            )

    def _score(self, X: Any, model: Any = None) -> Any:
        check_is_fitted(self)
        if callable(self.kernel) and self._X_fit is not None:
            X = self._evaluate(X, self._X_fit)
        elif self.model_.is_of_known_values and is_sparse(X):
            raise TypeError("Sparse precomputed kernels are not supported.")
        return super()._score(X, model)

    def save(self, path: Any) -> None:
        """Write the model to a file, without pickle; see `LinearSVC.save`.

        Raises
        ------
        InputError
            If the kernel is a function: a file holds no code, so the model could not be used after it is loaded.
        """
        if callable(self.kernel):
            raise InputError(
                "a model whose kernel is a function is not saved: loading a model runs no code. Train with "
                "kernel='precomputed' on the function's values to save a model that takes rows of such values"
            )
        super().save(path)

    def _counts_pairs(self) -> bool:
        """Whether the pair steps of SMO are counted and limited by max_iter, as in LIBSVM, and not the reads."""
        given = [getattr(self, name, None) for name in ("inner", "selection", "multi_class")]
        return self.solver in (AUTO, "smo") and given[0] in (None, "smo") and not {"platt", "crammer_singer"} & {*given}

    def _limit_passes(self) -> int | None:
        return self.max_passes if self._counts_pairs() else super()._limit_passes()

    def _list_own_options(self) -> dict[str, str]:
        is_limited = self._counts_pairs() and self.max_iter != -1
        return super()._list_own_options() | ({"max_pairs": str(self.max_iter)} if is_limited else {})

    def _count_steps(self, result: Result) -> Any:
        """Return the pair steps of SMO, or else the steps; of many problems the most of one of them."""
        return int(max(self._count_each(result)))

    def _count_each(self, result: Result) -> list[int]:
        """Return the pair steps of SMO of each problem where these are counted, or else the steps."""
        each = result.problems or [{"steps": result.steps, **result.history[-1]}]
        counted = "pairs" if self._counts_pairs() else "steps"
        return [problem.get(counted, problem["steps"]) for problem in each]

    def _tell_limit(self, result: Result) -> str:
        """Return, of a limit of pair steps, also the words of scikit-learn, by which its warning is filtered."""
        if result.status != "pair_limit":
            return super()._tell_limit(result)
        return f"{TERMINATED.format(self.max_iter)} {super()._tell_limit(result)}"

    def _name_kernel(self) -> dict[str, Any]:
        named = super()._name_kernel()
        return {**named, "kernel": known_values.NAME} if callable(self.kernel) else named

    def _options(self) -> TrainOptions:
        options = super()._options()
        is_infinite = isinstance(self.C, Real) and np.inf == self.C and self.solver != "interior-point"
        if find_entry(options.task).joins_classes:  # whose steps of a row lose digits with costs so high
            return options
        return replace(options, C=INFINITE_COST) if is_infinite else options

    def _keep(self, result: Result, y: Any) -> Self:
        if np.inf == self.C:
            self._require_no_errors(result.model)
        return super()._keep(result, y)

    def _require_no_errors(self, model: Any) -> None:
        """Raise InputError if a multiplier is near its cost, which stands for infinity; then there are errors."""
        problem = model.info["problem"]
        costs = np.asarray(problem.get("class_costs", problem.get("row_cost")), np.float64)
        least = float(np.min(costs[costs > 0], initial=np.inf)) * self._least_weight
        largest = float(np.max(np.abs(model.dual_coef), initial=0.0))
        if largest >= NEAR_SHARE * least:
            no_errors = "separate the classes" if model.problem.has_classes else "come within epsilon of all targets"
            raise InputError(
                f"C is inf, but no function of this kernel seems to {no_errors}: a multiplier grows to {largest:.1e}, "
                f"and costs of {least:.0e} stand for infinity; give a finite C"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == known_values.NAME
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags


def _list(X: Any) -> Any:
    """Return rows as something that has a length."""
    return np.empty(X.shape[0]) if hasattr(X, "shape") else X
