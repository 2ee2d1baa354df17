"""`LinearOneClassSVM`, the linear form of one class."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.estimators.base import with_parameters
from streamsvm.estimators.linear_base import BaseLinear
from streamsvm.estimators.one_class import BaseOneClass
from streamsvm.problems.one_class import ONE_CLASS

if TYPE_CHECKING:
    from distributed import Client


@with_parameters
class LinearOneClassSVM(BaseLinear, BaseOneClass):
    """Linear one-class support-vector machine with a certificate, on data of any size.

        min 1/2 |w|^2,   w = sum_i a_i x_i,   0 <= a_i <= sample_weight_i,   sum_i a_i = nu sum_i sample_weight_i

    The problem is that of `OneClassSVM(kernel="linear")`, and that of scikit-learn's SGDOneClassSVM, whose w and offset
    are ours divided by nu sum_i sample_weight_i. It is solved by cutting planes: no multipliers are kept, and one read
    of the data is enough as a rule. Rows with scores w.x - rho above 0 are of the class, the others are novel. A linear
    function separates the rows from the origin; with `feature_map` it is one of features that approximate a kernel.

    `objective_`, `lower_bound_` and the status are as in OneClassSVM. If the origin lies among the rows, w is 0 at the
    optimum, and the status is "stalled"; features of the kernel "rbf" do not have it so.

    Parameters
    ----------
    nu : float, default=0.5
        The largest share of the rows that lie outside, in (0, 1].
    tol, memory, n_jobs, client, checkpoint, max_passes, max_seconds, random_state, max_iter, verbose : as in LinearSVC
    resident_rows : int, str or None, default=None
        The rows near the offset that stay in memory, as a number or a share ("10%"). None is as many as make one read
        enough as a rule, as far as the memory allows.
    feature_map, rank, kernel, gamma, degree, coef0 : as in LinearSVC

    Attributes
    ----------
    coef_ : ndarray of shape (1, d), float64
    offset_ : float
        rho, so that `decision_function` is `score_samples` less offset_.
    intercept_ : ndarray of shape (1,), float64
        -rho.
    n_features_in_, feature_names_in_, history_, result_, model_ : as in LinearSVC
    objective_, lower_bound_, rounding_bound_, gap_, status_, n_iter_, n_passes_ : as in LinearSVC

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

    _: KW_ONLY
    nu: float = 0.5
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
    feature_map: str | None = None
    rank: int = 300
    kernel: str = "rbf"
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0

    def _name_options(self) -> dict[str, Any]:
        return {"task": ONE_CLASS.name, "nu": self.nu, "options": self._list_own_options()}
