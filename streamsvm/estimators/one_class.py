"""`OneClassSVM`, which learns the region where rows lie, and tells novel rows, and its base class."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from streamsvm.estimators.base import BaseSVM, show_as, with_parameters
from streamsvm.estimators.libsvm_like import LibsvmLike
from streamsvm.models.model import KernelModel
from streamsvm.numeric.rows import F64
from streamsvm.problems.one_class import ONE_CLASS

if TYPE_CHECKING:
    from distributed import Client


class BaseOneClass(OutlierMixin, BaseSVM):  # type: ignore[misc]
    """The base class of one-class estimators, which learn where rows lie, without labels."""

    C = 1.0
    class_weight = None
    nu: float

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Train on rows of the class, of which the share `nu` may be something else.

        Parameters
        ----------
        X : as in `LinearSVC.fit`
        y : ignored
        sample_weight : array-like of shape (n,), optional
            The weights of the rows, of which only those above 0 count; None with a dataset.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A ValueError, for unsuitable data and parameters.
        """
        return self._fit(X, None, sample_weight)

    def decision_function(self, X: Any) -> Any:
        """Return w.phi(x) - rho of each row, (n,) float64; a Dask array for Dask rows. X: as in `SVC`."""
        return self.score_samples(X) - self.offset_

    def score_samples(self, X: Any) -> Any:
        """Return w.phi(x) of each row, (n,) float64, which is low for novel rows. X: as in `decision_function`."""
        check_is_fitted(self)
        return self._score(X, replace(self._find_model(), intercept=0.0))

    def predict(self, X: Any) -> Any:
        """Return +1 for each row of the class and -1 for each novel one, (n,). X: as in `decision_function`."""
        scores = self.decision_function(X)
        if isinstance(scores, np.ndarray):
            return name_sides(scores)
        return scores.map_blocks(name_sides, **show_as("label"), dtype=np.intp)

    def _take_model(self, model: Any, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        del self.classes_  # it would be taken for a classifier
        self.offset_ = -float(self.intercept_[0])


@with_parameters
class OneClassSVM(BaseOneClass, LibsvmLike):  # type: ignore[misc]
    """One-class support-vector machine with a certificate, on data of any size.

        min 1/2 |w|^2,   w = sum_i a_i phi(x_i),   0 <= a_i <= sample_weight_i,   sum_i a_i = nu sum_i sample_weight_i

    The score of a row is w.phi(x) - rho, with k(x, z) = phi(x).phi(z); rows with scores above 0 are of the class, the
    others are novel. `objective_` is 1/2 |w|^2, as LIBSVM prints it, and `lower_bound_` is a proved lower bound of its
    minimum, by w and rho over all rows (see docs/certificate.md). Training ends with the status "converged" only if
    the relative gap of both is proved to be at most `tol`. If the origin lies among the images of the rows, w is 0 at
    the optimum, and no relative gap can be proved: the status then is "stalled". It cannot happen with kernel="rbf".

    Parameters
    ----------
    kernel, gamma, degree, coef0 : as in SVC
    nu : float, default=0.5
        The largest share of the rows that lie outside, and the least share of support vectors, in (0, 1].
    solver : {"smo", "irwls"}, default="smo"
        SMO (Platt 1998) or IRWLS (Pérez-Cruz et al. 2000) on active sets of rows.
    selection : {"second-order", "largest", "smallest", "random", "chunking"}, default="second-order"
        How the rows of working sets are chosen.
    inner, working_rows, tol, memory, resident_rows : as in SVC
    n_jobs, client, checkpoint, max_passes, max_seconds, random_state, verbose : as in LinearSVC
    max_iter : as in SVC

    Attributes
    ----------
    offset_ : float
        rho, so that `decision_function` is `score_samples` less offset_.
    intercept_ : ndarray of shape (1,), float64
        -rho.
    support_vectors_ : ndarray or sparse array of shape (m, d), float32, or float64 of up to 1,024 rows in memory
        On a scaled dataset they are scaled rows.
    support_, n_support_ : ndarray of shape (m,), ndarray of shape (1,), int64
        The numbers of the support vectors among the rows (of a dataset, in its order), and how many they are.
    dual_coef_ : ndarray of shape (1, m), float64, or a sparse array if the rows are sparse
        a_i, which sum to nu times the sum of the weights.
    coef_ : ndarray of shape (1, d), float64
        Only for kernel="linear".
    n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

    References
    ----------
    Schoelkopf et al. (2001), Estimating the support of a high-dimensional distribution, Neural Computation 13.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import OneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = OneClassSVM(nu=0.1).fit(X)
    >>> model.status_, model.gap_ <= 1e-3, model.predict([[0.0, 0.0], [5.0, 5.0]]).tolist()
    ('converged', True, [1, -1])
    """

    _: KW_ONLY
    kernel: str = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0
    nu: float = 0.5
    solver: str = "smo"
    selection: str = "second-order"
    inner: str | None = None
    working_rows: int | None = None
    tol: float = 1e-3
    memory: str | int | None = None
    resident_rows: int | str | None = None
    n_jobs: int | None = None
    client: Client | str | None = None
    checkpoint: str | Path | None = None
    max_passes: int | None = None
    max_seconds: float | None = None
    random_state: int | None = 0
    max_iter: int = -1
    verbose: int = 0

    def _take_model(self, model: KernelModel, label_dtype: Any = None) -> None:
        super()._take_model(model, label_dtype)
        self.n_support_ = np.array([model.dual_coef.shape[-1]])

    def _name_options(self) -> dict[str, Any]:
        return {**self._name_kernel(), "task": ONE_CLASS.name, "options": self._list_own_options(), "nu": self.nu}


def name_sides(scores: F64) -> Any:
    """Return +1 for scores above 0, and else -1."""
    return np.where(scores > 0.0, 1, -1)
