"""The base classes of estimators whose model is a sum of kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.in_memory import ArrayDataset
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.estimators.base import BaseSVM, show_only
from streamsvm.estimators.classifier import BaseSVC
from streamsvm.estimators.recalled import N_SUPPORT, count_support
from streamsvm.methods.decomposition.options import SMALL_ROWS, DecompositionOptions
from streamsvm.methods.registry import AUTO, METHODS, name_methods
from streamsvm.models.model import KernelModel
from streamsvm.numeric.kernels import combine_rows
from streamsvm.numeric.rows import F64, CsrRows


class KernelSVM(BaseSVM):  # type: ignore[misc]
    """The base class of estimators whose model is a sum of kernels."""

    kernel: Any
    gamma: float | str
    degree: int
    coef0: float

    def _name_kernel(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kernel", "gamma", "degree", "coef0")}

    def _fit(self, X: Any, y: Any, sample_weight: Any, qid: Any = None) -> Self:
        """Train; InputError for a solver that makes linear models, which have no support vectors."""
        able = [method.name for method in METHODS if len(method.kernels) > 1]
        if self.solver in {AUTO, *name_methods()}.difference(able):
            raise InputError(
                f"solver {self.solver!r}: {type(self).__name__} makes sums of kernels, and takes {', '.join(able)}"
            )
        return super()._fit(X, y, sample_weight, qid)

    def _choose_dtype(self, n_rows: int) -> type[np.float32 | np.float64]:
        """Return float64 for so few rows that SMO solves them in float64, and else float32, as datasets hold them."""
        own = {name: getattr(self, name, None) for name in ("working_rows", "inner", "resident_rows")}
        is_plain = self.solver in (AUTO, "smo") and getattr(self, "selection", "") == DecompositionOptions().selection
        return np.float64 if is_plain and n_rows <= SMALL_ROWS and set(own.values()) == {None} else np.float32

    def _take_model(self, model: KernelModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
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
        for name in ("support_", "n_support_"):
            self.__dict__.pop(name, None)
        if model.support is not None:
            self.support_ = model.support
        if (counts := count_support(model)) is not None:
            self.n_support_ = counts

    def _take_rows(self, source: RowSource) -> None:
        """Count the support vectors of each class, if the rows are in memory."""
        super()._take_rows(source)
        y = source.y if isinstance(source, ArrayDataset) and self.model_.problem.has_classes else None
        if y is not None and hasattr(self, "support_"):
            self.n_support_ = np.bincount(y[self.support_], minlength=len(self.classes_))
            if count_support(self.model_) is None:  # the file has to tell it
                about = {**self.model_.info, N_SUPPORT: self.n_support_.tolist()}
                self.model_ = replace(self.model_, info=about)

    @property
    def coef_(self) -> F64:
        """The weights for kernel="linear", (1, d), (K, d) or (pairs, d), read-only. They are formed on request."""
        check_is_fitted(self)
        model = self.model_ if self.model_.n_support is None else self.model_.list_pairs()
        if model.kernel.name != "linear":
            raise AttributeError("coef_ exists for kernel='linear' only")
        coef = np.stack([combine_rows(model.support_vectors, each) for each in np.atleast_2d(model.dual_coef)])
        return show_only(coef)


class KernelSVC(KernelSVM, BaseSVC):
    """The base class of classifiers whose model is a sum of kernels."""
