"""`SVR`, a support-vector regression with kernels."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.libsvm_like import LibsvmLike
from streamsvm.estimators.regression import BaseSVR
from streamsvm.problems.regression import REGRESS

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class SVR(LibsvmLike, BaseSVR):
    """Support-vector regression with kernels and with a certificate, on data of any size.

        P(w, b) = 1/2 |w|^2 + sum_i C_i max(0, |y_i - (w.phi(x_i) + b)| - epsilon),   k(x, z) = phi(x).phi(z)

    P is minimised with C_i = C * sample_weight_i and a free bias, as in LIBSVM. Training ends with the status
    "converged" only if the relative duality gap over all rows is proved to be at most `tol`.

    Parameters
    ----------
    C : float, default=1.0
        The cost of a row, as in LIBSVM and scikit-learn. inf allows no errors beyond epsilon: InputError if they are
        not avoided with costs up to 1e10.
    epsilon : float, default=0.1
        The error that costs nothing, in units of the targets.
    kernel, gamma, degree, coef0 : as in SVC
    solver : {"smo", "irwls"}, default="smo"
        SMO (Platt 1998) or IRWLS (Pérez-Cruz et al. 2000) on active sets of rows.
    selection : {"second-order", "largest", "smallest", "random", "chunking"}, default="second-order"
        How the rows of working sets are chosen.
    inner, working_rows, tol, memory, resident_rows : as in SVC
    n_jobs, client, checkpoint, max_passes, max_seconds, random_state, verbose : as in LinearSVC
    max_iter : as in SVC

    Attributes
    ----------
    support_vectors_ : ndarray or sparse array of shape (m, d), float32, or float64 of up to 1,024 rows in memory
        On a scaled dataset they are scaled rows.
    support_, n_support_ : ndarray of shape (m,), ndarray of shape (1,), int64
        The numbers of the support vectors among the rows (of a dataset, in its order), and how many they are.
    dual_coef_ : ndarray of shape (1, m), float64, or a sparse array if the rows are sparse
        The multipliers of rows above the tube, and with a minus those of rows below it.
    intercept_ : ndarray of shape (1,), float64
    coef_ : ndarray of shape (1, d), float64
        Only for kernel="linear".
    n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

    References
    ----------
    Smola & Schoelkopf (2004), A tutorial on support vector regression, Statistics and Computing 14.
    Pérez-Cruz et al. (2000), An IRWLS procedure for SVR, EUSIPCO.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SVR
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = SVR(C=10.0, kernel="rbf").fit(X, y)
    >>> model.status_, model.gap_ <= 1e-3, model.score(X, y) > 0.9
    ('converged', True, True)
    """

    C: float = 1.0
    _: KW_ONLY
    epsilon: float = 0.1
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
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

    def _name_options(self) -> dict[str, Any]:
        own = self._list_own_options()
        own.pop("epsilon", None)  # cutting planes have an option of this name, which is their stop
        return {**self._name_kernel(), "task": REGRESS.name, "options": own, "epsilon": self.epsilon}
