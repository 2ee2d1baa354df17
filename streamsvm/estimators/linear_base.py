"""What linear estimators share beyond `BaseSVM`: parameters of scikit-learn's linear estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVM
from streamsvm.methods.feature_map.options import FeatureOptions
from streamsvm.numeric.rows import F64
from streamsvm.options import LARGEST_COST, TrainOptions, is_finite
from streamsvm.problems.registry import PENALTIES

INTERCEPT_OPTION = "intercept_scaling"


class BaseLinear(BaseSVM):  # type: ignore[misc]
    """The base class of linear estimators."""

    fit_intercept: bool
    intercept_scaling: float
    loss: str
    penalty: str = "l2"
    feature_map: str | None
    rank: int
    kernel: str
    gamma: float | str
    degree: int
    coef0: float

    def _take_model(self, model: Any, label_dtype: Any = None) -> None:
        """Set the fitted attributes. Weights and bias are copies: a change of them leaves the model as it is."""
        super()._take_model(model, label_dtype)
        self.coef_ = self._shape_coef(model.coef.copy())
        self.intercept_ = self.intercept_.copy()

    def _shape_coef(self, coef: F64) -> F64:
        return np.atleast_2d(coef)

    def _find_model(self) -> Any:
        return put_weights(self.model_, self.coef_, self.intercept_)

    def _name_map(self) -> FeatureOptions | None:
        if self.feature_map is None:
            return None
        return FeatureOptions(self.feature_map, self.rank, self._read_seed())

    def _options(self) -> TrainOptions:
        """Return the parameters as TrainOptions; with a feature map they name the kernel that it approximates."""
        options = replace(super()._options(), penalty=self.penalty)
        if self.feature_map is None:
            return options
        kernel = {"kernel": self.kernel, "gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return replace(options, **kernel)  # type: ignore[arg-type]

    def _refuse_penalty(self) -> None:
        """Raise InputError for a penalty that there is not, or not with the loss."""
        given = ", ".join(f"{name}={getattr(self, name, None)!r}" for name in ("penalty", "loss", "dual"))
        if self.penalty not in PENALTIES:
            raise InputError(f"Unsupported set of arguments: {given}: the penalty is one of {', '.join(PENALTIES)}")
        if self.penalty == "l1" and getattr(self, "loss", None) in ("hinge", "epsilon_insensitive"):
            raise InputError(
                f"Unsupported set of arguments: {given}: the penalty l1 is for smooth losses; choose squared_hinge, or "
                "LogisticRegression"
            )
        if self.penalty == "l1" and getattr(self, "dual", None) is True:
            raise InputError(
                f"Unsupported set of arguments: {given}: with the penalty l1 leave dual out, or set it False"
            )

    def _list_own_options(self) -> dict[str, str]:
        """Return the options of single methods; a constant feature of 0 stands for no bias."""
        self._refuse_penalty()
        if getattr(self, "dual", None) is False and getattr(self, "loss", None) in ("hinge", "epsilon_insensitive"):
            raise InputError(
                f"Unsupported set of arguments: penalty='l2', loss={self.loss!r}, dual=False: scikit-learn's loss is "
                "another one then; pass its name as loss, or leave dual out, which has no effect"
            )
        own = super()._list_own_options()
        own.pop("fit_intercept", None)  # budgeted SGD has an option of this name
        if not self.fit_intercept:
            if self.solver == "interior-point":
                raise InputError("fit_intercept=False: the interior-point method always has a bias; use another solver")
            return own | {INTERCEPT_OPTION: "0"}
        if not (is_finite(self.intercept_scaling) and 0 < self.intercept_scaling <= LARGEST_COST):
            raise InputError(
                f"intercept_scaling={self.intercept_scaling!r:.40}: a positive number up to {LARGEST_COST:.0e} is "
                "expected; for a model without a bias, set fit_intercept=False"
            )
        return own


def put_weights(model: Any, coef: Any, intercept: Any) -> Any:
    """Return the model with these weights and this bias, which users may have changed as those of scikit-learn's."""
    coef, intercept = _read_numbers("coef_", coef, model.coef), _read_numbers("intercept_", intercept, model.intercept)
    if np.array_equal(coef, model.coef) and np.array_equal(intercept, model.intercept):
        return model
    return replace(model, coef=coef, intercept=intercept if intercept.ndim else float(intercept))


def _read_numbers(name: str, given: Any, expected: Any) -> F64:
    """Return numbers that a user has set, in the shape of those expected; InputError for others."""
    try:
        numbers = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {type(given).__name__}; an array of numbers is expected") from error
    shape = np.shape(expected)
    if numbers.shape not in (shape, (1, *shape)):
        raise InputError(f"{name} has the shape {numbers.shape}; that of the model is {shape}")
    return numbers.reshape(shape)


def read_fit_intercept(problem: Any) -> bool:
    """Return whether a model was trained with a bias, from the problem that it tells."""
    return not (isinstance(problem, dict) and problem.get("bias_feature") == 0)
